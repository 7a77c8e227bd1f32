"""The methods of AMQP 0.9.1 with RabbitMQ's extensions.

One class per method: its fields in wire order with their wire types as annotations; the ids are in
one table. Everything else is derived from that when the module is imported: the value classes by
msgspec, the methods' names from the classes' names, the encoder and the decoder by `codec`.
"""

from __future__ import annotations

import re
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

_WORDS = re.compile("[A-Z][a-z]*")
_IDS = """
connection 10: start 10, start_ok 11, secure 20, secure_ok 21, tune 30, tune_ok 31, open 40,
    open_ok 41, close 50, close_ok 51, blocked 60, unblocked 61, update_secret 70,
    update_secret_ok 71
channel 20: open 10, open_ok 11, flow 20, flow_ok 21, close 40, close_ok 41
access 30: request 10, request_ok 11
exchange 40: declare 10, declare_ok 11, delete 20, delete_ok 21, bind 30, bind_ok 31, unbind 40,
    unbind_ok 51
queue 50: declare 10, declare_ok 11, bind 20, bind_ok 21, purge 30, purge_ok 31, delete 40,
    delete_ok 41, unbind 50, unbind_ok 51
basic 60: qos 10, qos_ok 11, consume 20, consume_ok 21, cancel 30, cancel_ok 31, publish 40,
    return 50, deliver 60, get 70, get_ok 71, get_empty 72, ack 80, reject 90,
    recover_async 100, recover 110, recover_ok 111, nack 120
tx 90: select 10, select_ok 11, commit 20, commit_ok 21, rollback 30, rollback_ok 31
confirm 85: select 10, select_ok 11
"""
"""Class ids, with the ids of each class's methods."""


def _codes() -> dict[str, int]:
    """Return class id << 16 | method id by a method's name."""
    found: dict[str, int] = {}
    for row in _IDS.replace("\n    ", " ").strip().splitlines():
        of, _, methods = row.partition(": ")
        name, number = of.split()
        for each in methods.split(", "):
            method, own = each.split()
            found[f"{name}.{method}"] = int(number) << 16 | int(own)
    return found


_CODES = _codes()


class Method(msgspec.Struct, frozen=True):
    """The base of all methods; the name of BasicRecoverAsync is `basic.recover_async`."""

    code: ClassVar[int] = 0  # class id << 16 | method id
    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        first, *rest = _WORDS.findall(cls.__name__)
        cls.name = f"{first}.{'_'.join(rest)}".lower()
        cls.code = _CODES[cls.name]


# ------------------------------------------------------------------ connection (10)


class ConnectionStart(Method, frozen=True):
    """Server: its properties and authentication mechanisms."""

    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Table = {}
    mechanisms: LongStr = b"PLAIN AMQPLAIN"
    locales: LongStr = b"en_US"


class ConnectionStartOk(Method, frozen=True):
    """Client: its properties, the chosen mechanism and the credentials."""

    client_properties: Table = {}
    mechanism: ShortStr = "PLAIN"
    response: LongStr = b""
    locale: ShortStr = "en_US"


class ConnectionSecure(Method, frozen=True):
    """Server: an authentication challenge."""

    challenge: LongStr = b""


class ConnectionSecureOk(Method, frozen=True):
    """Client: the response to the challenge."""

    response: LongStr = b""


class ConnectionTune(Method, frozen=True):
    """Server: the limits it proposes; heartbeat in seconds."""

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionTuneOk(Method, frozen=True):
    """Client: the limits in use from now on."""

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionOpen(Method, frozen=True):
    """Client: select the vhost."""

    virtual_host: ShortStr = "/"
    reserved_1: ShortStr = ""
    reserved_2: Bit = False


class ConnectionOpenOk(Method, frozen=True):
    """Server: the vhost is selected."""

    reserved_1: ShortStr = ""


class ConnectionClose(Method, frozen=True):
    """Either: close the connection, with the reason."""

    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


class ConnectionCloseOk(Method, frozen=True):
    """Either: the connection is closed."""


class ConnectionBlocked(Method, frozen=True):
    """Server: a resource alarm is set; publishes are not read."""

    reason: ShortStr = ""


class ConnectionUnblocked(Method, frozen=True):
    """Server: the resource alarm is cleared."""


class ConnectionUpdateSecret(Method, frozen=True):
    """Client: a new password or token."""

    new_secret: LongStr = b""
    reason: ShortStr = ""


class ConnectionUpdateSecretOk(Method, frozen=True):
    """Server: the new secret is accepted."""


# ------------------------------------------------------------------ channel (20), access (30)


class ChannelOpen(Method, frozen=True):
    """Client: open the channel."""

    reserved_1: ShortStr = ""


class ChannelOpenOk(Method, frozen=True):
    """Server: the channel is open."""

    reserved_1: LongStr = b""


class ChannelFlow(Method, frozen=True):
    """Either: stop or resume sending messages."""

    active: Bit = True


class ChannelFlowOk(Method, frozen=True):
    """Either: the flow setting is applied."""

    active: Bit = True


class ChannelClose(Method, frozen=True):
    """Either: close the channel, with the reason."""

    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


class ChannelCloseOk(Method, frozen=True):
    """Either: the channel is closed."""


class AccessRequest(Method, frozen=True):
    """Client: request an access ticket (AMQP 0.8; answered, ignored)."""

    realm: ShortStr = "/data"
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


class AccessRequestOk(Method, frozen=True):
    """Server: an access ticket."""

    ticket: Short = 1


# ------------------------------------------------------------------ exchange (40)


class ExchangeDeclare(Method, frozen=True):
    """Client: declare an exchange."""

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
    """Server: the exchange exists."""


class ExchangeDelete(Method, frozen=True):
    """Client: delete an exchange."""

    reserved_1: Short = 0
    exchange: ShortStr = ""
    if_unused: Bit = False
    no_wait: Bit = False


class ExchangeDeleteOk(Method, frozen=True):
    """Server: the exchange is deleted."""


class ExchangeBind(Method, frozen=True):
    """Client: bind the destination exchange to the source exchange."""

    reserved_1: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


class ExchangeBindOk(Method, frozen=True):
    """Server: the binding exists."""


class ExchangeUnbind(Method, frozen=True):
    """Client: remove a binding between exchanges."""

    reserved_1: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


class ExchangeUnbindOk(Method, frozen=True):
    """Server: the binding is removed. RabbitMQ's method id is 51."""


# ------------------------------------------------------------------ queue (50)


class QueueDeclare(Method, frozen=True):
    """Client: declare a queue; the server makes up a name when it is empty."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    no_wait: Bit = False
    arguments: Table = {}


class QueueDeclareOk(Method, frozen=True):
    """Server: the queue's name, number of ready messages and of consumers."""

    queue: ShortStr = ""
    message_count: Long = 0
    consumer_count: Long = 0


class QueueBind(Method, frozen=True):
    """Client: bind a queue to an exchange."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


class QueueBindOk(Method, frozen=True):
    """Server: the binding exists."""


class QueuePurge(Method, frozen=True):
    """Client: drop the ready messages of a queue."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    no_wait: Bit = False


class QueuePurgeOk(Method, frozen=True):
    """Server: number of messages purged."""

    message_count: Long = 0


class QueueDelete(Method, frozen=True):
    """Client: delete a queue."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


class QueueDeleteOk(Method, frozen=True):
    """Server: the queue is deleted, with that many messages."""

    message_count: Long = 0


class QueueUnbind(Method, frozen=True):
    """Client: remove a queue's binding."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    arguments: Table = {}


class QueueUnbindOk(Method, frozen=True):
    """Server: the binding is removed."""


# ------------------------------------------------------------------ basic (60)


class BasicQos(Method, frozen=True):
    """Client: limit the number of unacknowledged deliveries."""

    prefetch_size: Long = 0
    prefetch_count: Short = 0
    global_: Bit = False


class BasicQosOk(Method, frozen=True):
    """Server: the limit is set."""


class BasicConsume(Method, frozen=True):
    """Client: start a consumer on a queue."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    consumer_tag: ShortStr = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    no_wait: Bit = False
    arguments: Table = {}


class BasicConsumeOk(Method, frozen=True):
    """Server: the consumer is started, under this tag."""

    consumer_tag: ShortStr = ""


class BasicCancel(Method, frozen=True):
    """Client: cancel a consumer. Server: a consumer was cancelled."""

    consumer_tag: ShortStr = ""
    no_wait: Bit = False


class BasicCancelOk(Method, frozen=True):
    """Either: the consumer is cancelled."""

    consumer_tag: ShortStr = ""


class BasicPublish(Method, frozen=True):
    """Client: publish a message; its content follows."""

    reserved_1: Short = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


class BasicReturn(Method, frozen=True):
    """Server: a mandatory message was unroutable; its content follows."""

    reply_code: Short = 312
    reply_text: ShortStr = "NO_ROUTE"
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


class BasicDeliver(Method, frozen=True):
    """Server: a delivery to a consumer; its content follows."""

    consumer_tag: ShortStr = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


class BasicGet(Method, frozen=True):
    """Client: get one message from a queue."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    no_ack: Bit = False


class BasicGetOk(Method, frozen=True):
    """Server: the message; its content follows."""

    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    message_count: Long = 0


class BasicGetEmpty(Method, frozen=True):
    """Server: the queue has no ready message."""

    reserved_1: ShortStr = ""


class BasicAck(Method, frozen=True):
    """Client: acknowledge deliveries. Server: confirm publishes."""

    delivery_tag: LongLong = 0
    multiple: Bit = False


class BasicReject(Method, frozen=True):
    """Client: reject one delivery."""

    delivery_tag: LongLong = 0
    requeue: Bit = True


class BasicRecoverAsync(Method, frozen=True):
    """Client: redeliver all unacknowledged deliveries; no answer."""

    requeue: Bit = False


class BasicRecover(Method, frozen=True):
    """Client: redeliver all unacknowledged deliveries."""

    requeue: Bit = False


class BasicRecoverOk(Method, frozen=True):
    """Server: the deliveries are returned to their queues."""


class BasicNack(Method, frozen=True):
    """Client: reject deliveries. Server: publishes were not accepted."""

    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


# ------------------------------------------------------------------ tx (90), confirm (85)


class TxSelect(Method, frozen=True):
    """Client: make the channel transactional."""


class TxSelectOk(Method, frozen=True):
    """Server: the channel is transactional."""


class TxCommit(Method, frozen=True):
    """Client: commit the transaction."""


class TxCommitOk(Method, frozen=True):
    """Server: the transaction is committed."""


class TxRollback(Method, frozen=True):
    """Client: roll the transaction back."""


class TxRollbackOk(Method, frozen=True):
    """Server: the transaction is rolled back."""


class ConfirmSelect(Method, frozen=True):
    """Client: switch the channel to publisher confirms."""

    no_wait: Bit = False


class ConfirmSelectOk(Method, frozen=True):
    """Server: publishes are confirmed from now on."""
