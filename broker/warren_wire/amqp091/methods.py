"""The methods of AMQP 0.9.1 with RabbitMQ's extensions.

One class per method: class id, method id, and the fields in wire order with their wire types as
annotations. Everything else is derived from that when the module is imported: the value classes by
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


class Method(msgspec.Struct, frozen=True):
    """The base of all methods; the name of BasicRecoverAsync is `basic.recover_async`."""

    code: ClassVar[int] = 0  # class id << 16 | method id
    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        first, *rest = _WORDS.findall(cls.__name__)
        cls.name = f"{first}.{'_'.join(rest)}".lower()


# ------------------------------------------------------------------ connection (10)


class ConnectionStart(Method, frozen=True):
    """Server: its properties and authentication mechanisms."""

    code = 10 << 16 | 10
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Table = {}
    mechanisms: LongStr = b"PLAIN AMQPLAIN"
    locales: LongStr = b"en_US"


class ConnectionStartOk(Method, frozen=True):
    """Client: its properties, the chosen mechanism and the credentials."""

    code = 10 << 16 | 11
    client_properties: Table = {}
    mechanism: ShortStr = "PLAIN"
    response: LongStr = b""
    locale: ShortStr = "en_US"


class ConnectionSecure(Method, frozen=True):
    """Server: an authentication challenge."""

    code = 10 << 16 | 20
    challenge: LongStr = b""


class ConnectionSecureOk(Method, frozen=True):
    """Client: the response to the challenge."""

    code = 10 << 16 | 21
    response: LongStr = b""


class ConnectionTune(Method, frozen=True):
    """Server: the limits it proposes; heartbeat in seconds."""

    code = 10 << 16 | 30
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionTuneOk(Method, frozen=True):
    """Client: the limits in use from now on."""

    code = 10 << 16 | 31
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionOpen(Method, frozen=True):
    """Client: select the vhost."""

    code = 10 << 16 | 40
    virtual_host: ShortStr = "/"
    reserved_1: ShortStr = ""
    reserved_2: Bit = False


class ConnectionOpenOk(Method, frozen=True):
    """Server: the vhost is selected."""

    code = 10 << 16 | 41
    reserved_1: ShortStr = ""


class ConnectionClose(Method, frozen=True):
    """Either: close the connection, with the reason."""

    code = 10 << 16 | 50
    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


class ConnectionCloseOk(Method, frozen=True):
    """Either: the connection is closed."""

    code = 10 << 16 | 51


class ConnectionBlocked(Method, frozen=True):
    """Server: a resource alarm is set; publishes are not read."""

    code = 10 << 16 | 60
    reason: ShortStr = ""


class ConnectionUnblocked(Method, frozen=True):
    """Server: the resource alarm is cleared."""

    code = 10 << 16 | 61


class ConnectionUpdateSecret(Method, frozen=True):
    """Client: a new password or token."""

    code = 10 << 16 | 70
    new_secret: LongStr = b""
    reason: ShortStr = ""


class ConnectionUpdateSecretOk(Method, frozen=True):
    """Server: the new secret is accepted."""

    code = 10 << 16 | 71


# ------------------------------------------------------------------ channel (20), access (30)


class ChannelOpen(Method, frozen=True):
    """Client: open the channel."""

    code = 20 << 16 | 10
    reserved_1: ShortStr = ""


class ChannelOpenOk(Method, frozen=True):
    """Server: the channel is open."""

    code = 20 << 16 | 11
    reserved_1: LongStr = b""


class ChannelFlow(Method, frozen=True):
    """Either: stop or resume sending messages."""

    code = 20 << 16 | 20
    active: Bit = True


class ChannelFlowOk(Method, frozen=True):
    """Either: the flow setting is applied."""

    code = 20 << 16 | 21
    active: Bit = True


class ChannelClose(Method, frozen=True):
    """Either: close the channel, with the reason."""

    code = 20 << 16 | 40
    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


class ChannelCloseOk(Method, frozen=True):
    """Either: the channel is closed."""

    code = 20 << 16 | 41


class AccessRequest(Method, frozen=True):
    """Client: request an access ticket (AMQP 0.8; answered, ignored)."""

    code = 30 << 16 | 10
    realm: ShortStr = "/data"
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


class AccessRequestOk(Method, frozen=True):
    """Server: an access ticket."""

    code = 30 << 16 | 11
    ticket: Short = 1


# ------------------------------------------------------------------ exchange (40)


class ExchangeDeclare(Method, frozen=True):
    """Client: declare an exchange."""

    code = 40 << 16 | 10
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

    code = 40 << 16 | 11


class ExchangeDelete(Method, frozen=True):
    """Client: delete an exchange."""

    code = 40 << 16 | 20
    reserved_1: Short = 0
    exchange: ShortStr = ""
    if_unused: Bit = False
    no_wait: Bit = False


class ExchangeDeleteOk(Method, frozen=True):
    """Server: the exchange is deleted."""

    code = 40 << 16 | 21


class ExchangeBind(Method, frozen=True):
    """Client: bind the destination exchange to the source exchange."""

    code = 40 << 16 | 30
    reserved_1: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


class ExchangeBindOk(Method, frozen=True):
    """Server: the binding exists."""

    code = 40 << 16 | 31


class ExchangeUnbind(Method, frozen=True):
    """Client: remove a binding between exchanges."""

    code = 40 << 16 | 40
    reserved_1: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


class ExchangeUnbindOk(Method, frozen=True):
    """Server: the binding is removed. RabbitMQ's method id is 51."""

    code = 40 << 16 | 51


# ------------------------------------------------------------------ queue (50)


class QueueDeclare(Method, frozen=True):
    """Client: declare a queue; the server makes up a name when it is empty."""

    code = 50 << 16 | 10
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

    code = 50 << 16 | 11
    queue: ShortStr = ""
    message_count: Long = 0
    consumer_count: Long = 0


class QueueBind(Method, frozen=True):
    """Client: bind a queue to an exchange."""

    code = 50 << 16 | 20
    reserved_1: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


class QueueBindOk(Method, frozen=True):
    """Server: the binding exists."""

    code = 50 << 16 | 21


class QueuePurge(Method, frozen=True):
    """Client: drop the ready messages of a queue."""

    code = 50 << 16 | 30
    reserved_1: Short = 0
    queue: ShortStr = ""
    no_wait: Bit = False


class QueuePurgeOk(Method, frozen=True):
    """Server: number of messages purged."""

    code = 50 << 16 | 31
    message_count: Long = 0


class QueueDelete(Method, frozen=True):
    """Client: delete a queue."""

    code = 50 << 16 | 40
    reserved_1: Short = 0
    queue: ShortStr = ""
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


class QueueDeleteOk(Method, frozen=True):
    """Server: the queue is deleted, with that many messages."""

    code = 50 << 16 | 41
    message_count: Long = 0


class QueueUnbind(Method, frozen=True):
    """Client: remove a queue's binding."""

    code = 50 << 16 | 50
    reserved_1: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    arguments: Table = {}


class QueueUnbindOk(Method, frozen=True):
    """Server: the binding is removed."""

    code = 50 << 16 | 51


# ------------------------------------------------------------------ basic (60)


class BasicQos(Method, frozen=True):
    """Client: limit the number of unacknowledged deliveries."""

    code = 60 << 16 | 10
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    global_: Bit = False


class BasicQosOk(Method, frozen=True):
    """Server: the limit is set."""

    code = 60 << 16 | 11


class BasicConsume(Method, frozen=True):
    """Client: start a consumer on a queue."""

    code = 60 << 16 | 20
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

    code = 60 << 16 | 21
    consumer_tag: ShortStr = ""


class BasicCancel(Method, frozen=True):
    """Client: cancel a consumer. Server: a consumer was cancelled."""

    code = 60 << 16 | 30
    consumer_tag: ShortStr = ""
    no_wait: Bit = False


class BasicCancelOk(Method, frozen=True):
    """Either: the consumer is cancelled."""

    code = 60 << 16 | 31
    consumer_tag: ShortStr = ""


class BasicPublish(Method, frozen=True):
    """Client: publish a message; its content follows."""

    code = 60 << 16 | 40
    reserved_1: Short = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


class BasicReturn(Method, frozen=True):
    """Server: a mandatory message was unroutable; its content follows."""

    code = 60 << 16 | 50
    reply_code: Short = 312
    reply_text: ShortStr = "NO_ROUTE"
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


class BasicDeliver(Method, frozen=True):
    """Server: a delivery to a consumer; its content follows."""

    code = 60 << 16 | 60
    consumer_tag: ShortStr = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


class BasicGet(Method, frozen=True):
    """Client: get one message from a queue."""

    code = 60 << 16 | 70
    reserved_1: Short = 0
    queue: ShortStr = ""
    no_ack: Bit = False


class BasicGetOk(Method, frozen=True):
    """Server: the message; its content follows."""

    code = 60 << 16 | 71
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    message_count: Long = 0


class BasicGetEmpty(Method, frozen=True):
    """Server: the queue has no ready message."""

    code = 60 << 16 | 72
    reserved_1: ShortStr = ""


class BasicAck(Method, frozen=True):
    """Client: acknowledge deliveries. Server: confirm publishes."""

    code = 60 << 16 | 80
    delivery_tag: LongLong = 0
    multiple: Bit = False


class BasicReject(Method, frozen=True):
    """Client: reject one delivery."""

    code = 60 << 16 | 90
    delivery_tag: LongLong = 0
    requeue: Bit = True


class BasicRecoverAsync(Method, frozen=True):
    """Client: redeliver all unacknowledged deliveries; no answer."""

    code = 60 << 16 | 100
    requeue: Bit = False


class BasicRecover(Method, frozen=True):
    """Client: redeliver all unacknowledged deliveries."""

    code = 60 << 16 | 110
    requeue: Bit = False


class BasicRecoverOk(Method, frozen=True):
    """Server: the deliveries are returned to their queues."""

    code = 60 << 16 | 111


class BasicNack(Method, frozen=True):
    """Client: reject deliveries. Server: publishes were not accepted."""

    code = 60 << 16 | 120
    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


# ------------------------------------------------------------------ tx (90), confirm (85)


class TxSelect(Method, frozen=True):
    """Client: make the channel transactional."""

    code = 90 << 16 | 10


class TxSelectOk(Method, frozen=True):
    """Server: the channel is transactional."""

    code = 90 << 16 | 11


class TxCommit(Method, frozen=True):
    """Client: commit the transaction."""

    code = 90 << 16 | 20


class TxCommitOk(Method, frozen=True):
    """Server: the transaction is committed."""

    code = 90 << 16 | 21


class TxRollback(Method, frozen=True):
    """Client: roll the transaction back."""

    code = 90 << 16 | 30


class TxRollbackOk(Method, frozen=True):
    """Server: the transaction is rolled back."""

    code = 90 << 16 | 31


class ConfirmSelect(Method, frozen=True):
    """Client: switch the channel to publisher confirms."""

    code = 85 << 16 | 10
    no_wait: Bit = False


class ConfirmSelectOk(Method, frozen=True):
    """Server: publishes are confirmed from now on."""

    code = 85 << 16 | 11
