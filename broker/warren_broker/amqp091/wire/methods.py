"""The methods of AMQP 0.9.1 with RabbitMQ's extensions, as values.

Each class is one method: its code is class id << 16 | method id, its fields stand in wire order
with their wire type as annotation. `codec` derives the bytes from that.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec

Octet: TypeAlias = Annotated[int, "octet"]
Short: TypeAlias = Annotated[int, "short"]
Long: TypeAlias = Annotated[int, "long"]
LongLong: TypeAlias = Annotated[int, "longlong"]
Bit: TypeAlias = Annotated[bool, "bit"]
ShortStr: TypeAlias = Annotated[str, "shortstr"]
LongStr: TypeAlias = Annotated[bytes, "longstr"]
Table: TypeAlias = Annotated[dict[str, Any], "table"]


class Method(msgspec.Struct, frozen=True):
    """The parent of all methods; name is the specification's."""

    code: ClassVar[int] = 0
    name: ClassVar[str] = ""


def _code(class_id: int, method_id: int) -> int:
    return class_id << 16 | method_id


# ------------------------------------------------------------------ connection (10)


class ConnectionStart(Method, frozen=True):
    """Server: who I am, how to authenticate."""

    code, name = _code(10, 10), "connection.start"
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Table = {}
    mechanisms: LongStr = b"PLAIN AMQPLAIN"
    locales: LongStr = b"en_US"


class ConnectionStartOk(Method, frozen=True):
    """Client: who I am, my credentials."""

    code, name = _code(10, 11), "connection.start_ok"
    client_properties: Table = {}
    mechanism: ShortStr = "PLAIN"
    response: LongStr = b""
    locale: ShortStr = "en_US"


class ConnectionSecure(Method, frozen=True):
    """Server: a challenge."""

    code, name = _code(10, 20), "connection.secure"
    challenge: LongStr = b""


class ConnectionSecureOk(Method, frozen=True):
    """Client: the response."""

    code, name = _code(10, 21), "connection.secure_ok"
    response: LongStr = b""


class ConnectionTune(Method, frozen=True):
    """Server: my limits; heartbeat in seconds."""

    code, name = _code(10, 30), "connection.tune"
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionTuneOk(Method, frozen=True):
    """Client: the limits we use."""

    code, name = _code(10, 31), "connection.tune_ok"
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionOpen(Method, frozen=True):
    """Client: the vhost."""

    code, name = _code(10, 40), "connection.open"
    virtual_host: ShortStr = "/"
    reserved_1: ShortStr = ""
    reserved_2: Bit = False


class ConnectionOpenOk(Method, frozen=True):
    """Server: go on."""

    code, name = _code(10, 41), "connection.open_ok"
    reserved_1: ShortStr = ""


class ConnectionClose(Method, frozen=True):
    """Either: good-bye, and why."""

    code, name = _code(10, 50), "connection.close"
    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


class ConnectionCloseOk(Method, frozen=True):
    """Either: nothing follows."""

    code, name = _code(10, 51), "connection.close_ok"


class ConnectionBlocked(Method, frozen=True):
    """Server: your publishes wait."""

    code, name = _code(10, 60), "connection.blocked"
    reason: ShortStr = ""


class ConnectionUnblocked(Method, frozen=True):
    """Server: they do not any more."""

    code, name = _code(10, 61), "connection.unblocked"


class ConnectionUpdateSecret(Method, frozen=True):
    """Client: my new password or token."""

    code, name = _code(10, 70), "connection.update_secret"
    new_secret: LongStr = b""
    reason: ShortStr = ""


class ConnectionUpdateSecretOk(Method, frozen=True):
    """Server: taken."""

    code, name = _code(10, 71), "connection.update_secret_ok"


# ------------------------------------------------------------------ channel (20), access (30)


class ChannelOpen(Method, frozen=True):
    """Client: this channel."""

    code, name = _code(20, 10), "channel.open"
    reserved_1: ShortStr = ""


class ChannelOpenOk(Method, frozen=True):
    """Server: it is open."""

    code, name = _code(20, 11), "channel.open_ok"
    reserved_1: LongStr = b""


class ChannelFlow(Method, frozen=True):
    """Either: send, or don't."""

    code, name = _code(20, 20), "channel.flow"
    active: Bit = True


class ChannelFlowOk(Method, frozen=True):
    """Either: so be it."""

    code, name = _code(20, 21), "channel.flow_ok"
    active: Bit = True


class ChannelClose(Method, frozen=True):
    """Either: this channel ends, and why."""

    code, name = _code(20, 40), "channel.close"
    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


class ChannelCloseOk(Method, frozen=True):
    """Either: nothing follows on it."""

    code, name = _code(20, 41), "channel.close_ok"


class AccessRequest(Method, frozen=True):
    """Client: a ticket (0.8; answered, without meaning)."""

    code, name = _code(30, 10), "access.request"
    realm: ShortStr = "/data"
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


class AccessRequestOk(Method, frozen=True):
    """Server: a ticket."""

    code, name = _code(30, 11), "access.request_ok"
    ticket: Short = 1


# ------------------------------------------------------------------ exchange (40)


class ExchangeDeclare(Method, frozen=True):
    """Client: there shall be this exchange."""

    code, name = _code(40, 10), "exchange.declare"
    reserved_1: Short = 0
    exchange: ShortStr = ""
    kind: ShortStr = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    no_wait: Bit = False
    arguments: Table = {}


class ExchangeDeclareOk(Method, frozen=True):
    """Server: there is."""

    code, name = _code(40, 11), "exchange.declare_ok"


class ExchangeDelete(Method, frozen=True):
    """Client: no more."""

    code, name = _code(40, 20), "exchange.delete"
    reserved_1: Short = 0
    exchange: ShortStr = ""
    if_unused: Bit = False
    no_wait: Bit = False


class ExchangeDeleteOk(Method, frozen=True):
    """Server: it is gone."""

    code, name = _code(40, 21), "exchange.delete_ok"


class ExchangeBind(Method, frozen=True):
    """Client: from source to destination, both exchanges."""

    code, name = _code(40, 30), "exchange.bind"
    reserved_1: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


class ExchangeBindOk(Method, frozen=True):
    """Server: bound."""

    code, name = _code(40, 31), "exchange.bind_ok"


class ExchangeUnbind(Method, frozen=True):
    """Client: not any more."""

    code, name = _code(40, 40), "exchange.unbind"
    reserved_1: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


class ExchangeUnbindOk(Method, frozen=True):
    """Server: unbound. RabbitMQ's method id is 51."""

    code, name = _code(40, 51), "exchange.unbind_ok"


# ------------------------------------------------------------------ queue (50)


class QueueDeclare(Method, frozen=True):
    """Client: there shall be this queue; an empty name asks for one."""

    code, name = _code(50, 10), "queue.declare"
    reserved_1: Short = 0
    queue: ShortStr = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    no_wait: Bit = False
    arguments: Table = {}


class QueueDeclareOk(Method, frozen=True):
    """Server: its name, ready messages, consumers."""

    code, name = _code(50, 11), "queue.declare_ok"
    queue: ShortStr = ""
    message_count: Long = 0
    consumer_count: Long = 0


class QueueBind(Method, frozen=True):
    """Client: from the exchange to the queue."""

    code, name = _code(50, 20), "queue.bind"
    reserved_1: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


class QueueBindOk(Method, frozen=True):
    """Server: bound."""

    code, name = _code(50, 21), "queue.bind_ok"


class QueuePurge(Method, frozen=True):
    """Client: drop its ready messages."""

    code, name = _code(50, 30), "queue.purge"
    reserved_1: Short = 0
    queue: ShortStr = ""
    no_wait: Bit = False


class QueuePurgeOk(Method, frozen=True):
    """Server: so many."""

    code, name = _code(50, 31), "queue.purge_ok"
    message_count: Long = 0


class QueueDelete(Method, frozen=True):
    """Client: no more."""

    code, name = _code(50, 40), "queue.delete"
    reserved_1: Short = 0
    queue: ShortStr = ""
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


class QueueDeleteOk(Method, frozen=True):
    """Server: it is gone, with so many messages."""

    code, name = _code(50, 41), "queue.delete_ok"
    message_count: Long = 0


class QueueUnbind(Method, frozen=True):
    """Client: not any more."""

    code, name = _code(50, 50), "queue.unbind"
    reserved_1: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    arguments: Table = {}


class QueueUnbindOk(Method, frozen=True):
    """Server: unbound."""

    code, name = _code(50, 51), "queue.unbind_ok"


# ------------------------------------------------------------------ basic (60)


class BasicQos(Method, frozen=True):
    """Client: how many unacknowledged deliveries at a time."""

    code, name = _code(60, 10), "basic.qos"
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    global_: Bit = False


class BasicQosOk(Method, frozen=True):
    """Server: so be it."""

    code, name = _code(60, 11), "basic.qos_ok"


class BasicConsume(Method, frozen=True):
    """Client: deliver that queue's messages to me."""

    code, name = _code(60, 20), "basic.consume"
    reserved_1: Short = 0
    queue: ShortStr = ""
    consumer_tag: ShortStr = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    no_wait: Bit = False
    arguments: Table = {}


class BasicConsumeOk(Method, frozen=True):
    """Server: under this tag."""

    code, name = _code(60, 21), "basic.consume_ok"
    consumer_tag: ShortStr = ""


class BasicCancel(Method, frozen=True):
    """Either: no more for this tag."""

    code, name = _code(60, 30), "basic.cancel"
    consumer_tag: ShortStr = ""
    no_wait: Bit = False


class BasicCancelOk(Method, frozen=True):
    """Either: none follows."""

    code, name = _code(60, 31), "basic.cancel_ok"
    consumer_tag: ShortStr = ""


class BasicPublish(Method, frozen=True):
    """Client: a message; its content follows."""

    code, name = _code(60, 40), "basic.publish"
    reserved_1: Short = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


class BasicReturn(Method, frozen=True):
    """Server: nobody wants it; its content follows."""

    code, name = _code(60, 50), "basic.return"
    reply_code: Short = 312
    reply_text: ShortStr = "NO_ROUTE"
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


class BasicDeliver(Method, frozen=True):
    """Server: a message for that consumer; its content follows."""

    code, name = _code(60, 60), "basic.deliver"
    consumer_tag: ShortStr = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


class BasicGet(Method, frozen=True):
    """Client: one message of that queue."""

    code, name = _code(60, 70), "basic.get"
    reserved_1: Short = 0
    queue: ShortStr = ""
    no_ack: Bit = False


class BasicGetOk(Method, frozen=True):
    """Server: here it is; its content follows."""

    code, name = _code(60, 71), "basic.get_ok"
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    message_count: Long = 0


class BasicGetEmpty(Method, frozen=True):
    """Server: there is none."""

    code, name = _code(60, 72), "basic.get_empty"
    reserved_1: ShortStr = ""


class BasicAck(Method, frozen=True):
    """Client: done. Server: confirmed."""

    code, name = _code(60, 80), "basic.ack"
    delivery_tag: LongLong = 0
    multiple: Bit = False


class BasicReject(Method, frozen=True):
    """Client: not this one."""

    code, name = _code(60, 90), "basic.reject"
    delivery_tag: LongLong = 0
    requeue: Bit = True


class BasicRecoverAsync(Method, frozen=True):
    """Client: all unacknowledged ones again, without an answer."""

    code, name = _code(60, 100), "basic.recover_async"
    requeue: Bit = False


class BasicRecover(Method, frozen=True):
    """Client: all unacknowledged ones again."""

    code, name = _code(60, 110), "basic.recover"
    requeue: Bit = False


class BasicRecoverOk(Method, frozen=True):
    """Server: they are on their way."""

    code, name = _code(60, 111), "basic.recover_ok"


class BasicNack(Method, frozen=True):
    """Client: not these. Server: not confirmed."""

    code, name = _code(60, 120), "basic.nack"
    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


# ------------------------------------------------------------------ tx (90), confirm (85)


class TxSelect(Method, frozen=True):
    """Client: publishes and acknowledgements wait for commit."""

    code, name = _code(90, 10), "tx.select"


class TxSelectOk(Method, frozen=True):
    """Server: they will."""

    code, name = _code(90, 11), "tx.select_ok"


class TxCommit(Method, frozen=True):
    """Client: now."""

    code, name = _code(90, 20), "tx.commit"


class TxCommitOk(Method, frozen=True):
    """Server: done."""

    code, name = _code(90, 21), "tx.commit_ok"


class TxRollback(Method, frozen=True):
    """Client: never."""

    code, name = _code(90, 30), "tx.rollback"


class TxRollbackOk(Method, frozen=True):
    """Server: forgotten."""

    code, name = _code(90, 31), "tx.rollback_ok"


class ConfirmSelect(Method, frozen=True):
    """Client: tell me of every publish."""

    code, name = _code(85, 10), "confirm.select"
    no_wait: Bit = False


class ConfirmSelectOk(Method, frozen=True):
    """Server: I will."""

    code, name = _code(85, 11), "confirm.select_ok"
