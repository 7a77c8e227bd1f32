"""The requests of a client's connection to the broker, as values.

`Connection.take_requests()` returns these in the order in which they must be carried out. One
with a `token` is answered with `Connection.answer(token, result)`, where result is a value of
"results" below or a `Refusal` (then the connection closes the channel or itself). Names are those
of the connection's vhost; its user's permissions have been checked before a request is made. Ask
for requests after the output has been taken, too: windows move on it.

The caller must preserve this order: requests of one session to one queue in the order given, and a
consumer's answer to `ConsumeRequest` before its first delivery.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from warren_broker.access.token_rights import HeldRights
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.permissions import Permissions
from warren_machines.queue import commands
from warren_machines.queue.commands import ConsumerId, Delivery, SessionId
from warren_wire.arguments import Kind
from warren_wire.errors import Refusal

if TYPE_CHECKING:
    from warren_wire.block.block import Block
    from warren_wire.kernel import MessageTable

Token: TypeAlias = int
"""Names an unanswered request; never used twice in one connection."""
Arguments: TypeAlias = dict[str, Any]
"""A decoded field table."""


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all requests."""


class AnsweredRequest(ClientRequest, frozen=True, kw_only=True):
    """A request that `Connection.answer` answers."""

    token: Token


class SessionRequest(AnsweredRequest, frozen=True, kw_only=True):
    """A request of one channel."""

    session: SessionId


AnyClientRequest: TypeAlias = (
    ClientRequest | commands.Credit | commands.Discard | commands.Return | commands.Settle
)
"""Commands for a consumer's queue are made by the connection itself; they have no answer."""


# ------------------------------------------------------------------ the connection


class TokenAccepted(msgspec.Struct, frozen=True):
    """The login was a token, or a link of this node: the user is the one that it names."""

    rights: HeldRights


class AuthenticateRequest(AnsweredRequest, frozen=True, kw_only=True):
    """Check a user's password, or with EXTERNAL its name.

    Result: RequestDone, TokenAccepted or LoginRefused.
    """

    mechanism: str
    user: str
    password: str = msgspec.field(default="")

    def __repr__(self) -> str:
        said = f"token={self.token}, mechanism={self.mechanism!r}, user={self.user!r}"
        return f"AuthenticateRequest({said})"


class UpdateSecretRequest(AnsweredRequest, frozen=True, kw_only=True):
    """connection.update-secret: the same user, a new password or token.

    Result: RequestDone, TokenAccepted or a Refusal.
    """

    user: str
    password: str

    def __repr__(self) -> str:
        return f"UpdateSecretRequest(token={self.token}, user={self.user!r})"


class OpenVhostRequest(AnsweredRequest, frozen=True, kw_only=True):
    """connection.open. Result: RequestDone, or `errors.unknown_vhost`, `vhost_refused`, a limit."""

    vhost: str
    user: str


class CloseConnectionRequest(AnsweredRequest, frozen=True, kw_only=True):
    """End a connection: delete its exclusive queues. Result: RequestDone, when they are deleted.

    Its sessions are down already, by SessionDownRequest.
    """

    reason: str


# ------------------------------------------------------------------ sessions


class SessionUpRequest(ClientRequest, frozen=True, kw_only=True):
    """Start the session of a channel that was opened. No answer."""

    session: SessionId
    channel: int


class CheckChannelsRequest(SessionRequest, frozen=True, kw_only=True):
    """channel.open of a user with a limit of channels. Result: RequestDone, or NotAllowed."""


class SessionDownRequest(SessionRequest, frozen=True, kw_only=True):
    """End a channel's session: return its deliveries, remove its consumers. Result: RequestDone.

    consumers  all its consumers, including cancelled ones that still hold
               messages and those of basic.get
    failed     passed on to the queue's command
    """

    consumers: tuple[ConsumerId, ...]
    failed: bool = True


# ------------------------------------------------------------------ definitions


class QueueDeclareRequest(SessionRequest, frozen=True, kw_only=True):
    """queue.declare. Result: QueueDeclared, or `errors.inequivalent`, `locked_queue`, `no_queue` …

    name        never empty: a server-named one has its name already
    server_named  the name was generated here (its `amq.` prefix is allowed)
    """

    name: str
    passive: bool
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Arguments
    server_named: bool = False


class QueueDeleteRequest(SessionRequest, frozen=True, kw_only=True):
    """queue.delete. Result: MessageCount (its messages; 0 when there was no such queue)."""

    name: str
    if_unused: bool
    if_empty: bool


class QueuePurgeRequest(SessionRequest, frozen=True, kw_only=True):
    """Result: MessageCount."""

    name: str


Definition: TypeAlias = metadata.DeclareExchange | metadata.DeleteExchange | metadata.BindingCommand


class DefineRequest(SessionRequest, frozen=True, kw_only=True):
    """Declare or delete an exchange, bind or unbind. Result: RequestDone, or the refusal of that.

    An exchange's declaration has no placement yet (`Broker.exchange_declaration`).
    """

    command: Definition


# ------------------------------------------------------------------ publishing


class PublishRequest(SessionRequest, frozen=True, kw_only=True):
    """Publish messages first <= i < last of the table, in order.

    Exchanges, permissions, sizes, expirations and user ids have been checked. The caller calls
    `Connection.routed(token, parts)` as soon as the queues are known: one part per queue (a kernel
    Selection: table positions), so that a message which is in none is unroutable. With confirm,
    `Connection.confirmed(token, number of the part, ok)` is called once for every part, when the
    queue has all of it, or has refused it (or some: `refused`). Without confirm and without
    mandatory no call is needed.

    channel    its number
    mandatory  whether any message of the run is mandatory
    flags      of its messages, or-ed (`kernel.items`)
    relayed    the client is a relay: the messages may have names (`relay_names`)
    """

    channel: int
    table: MessageTable
    first: int
    last: int
    confirm: bool
    mandatory: bool
    flags: int = 0
    relayed: bool = False


# ------------------------------------------------------------------ consuming


class ConsumeRequest(SessionRequest, frozen=True, kw_only=True):
    """basic.consume. Result: RequestDone, or `errors.exclusive_use`, `no_queue`, `locked_queue`.

    With the command's explicit_credit the first Credit follows.
    arguments           as given, including those that are decoded already
    cancel_on_failover  the client asks for basic.cancel when another node begins to lead the queue
    """

    queue: str
    command: commands.Checkout
    arguments: Arguments
    cancel_on_failover: bool = False


class CancelRequest(SessionRequest, frozen=True, kw_only=True):
    """basic.cancel. Result: RequestDone, after which nothing is delivered to it."""

    consumer: ConsumerId


class GetRequest(SessionRequest, frozen=True, kw_only=True):
    """basic.get. Result: GotMessage, GotNothing, or a Refusal."""

    consumer: ConsumerId
    queue: str
    no_ack: bool


class SetAsideRequest(ClientRequest, frozen=True, kw_only=True):
    """Report a message that could not be sent as it is, for log and counter. No answer.

    index   of its entry in the queue's log
    msg_id  the delivery's number
    """

    consumer: ConsumerId
    index: int
    msg_id: int
    reason: str


class ForgetConsumerRequest(ClientRequest, frozen=True, kw_only=True):
    """Forget a consumer of the session, of which no delivery is outstanding. No answer.

    getter  it is one of basic.get, which the queue does not know to have ended
    """

    session: SessionId
    consumer: ConsumerId
    getter: bool


class TraceRequest(ClientRequest, frozen=True, kw_only=True):
    """Trace messages first <= i < last of a block or table: they were sent. No answer.

    Made only in vhosts that are traced.
    headers  their redelivery counts, which were added to their headers; None: none
    """

    channel: int
    queue: str
    messages: Block | MessageTable
    first: int
    last: int
    redelivered: bool = False
    headers: dict[str, int] | None = None


class OpenRepliesRequest(ClientRequest, frozen=True, kw_only=True):
    """basic.consume of amq.rabbitmq.reply-to. No answer.

    Messages that are published to the default exchange with that name as routing key, on any node,
    are passed to `Connection.deliver_reply(session, …)`.
    """

    session: SessionId
    name: str


class CloseRepliesRequest(ClientRequest, frozen=True, kw_only=True):
    """Cancel the consumer of direct replies. No answer."""

    session: SessionId
    name: str


# ------------------------------------------------------------------ results


class RequestDone(msgspec.Struct, frozen=True):
    """Carried out."""


class QueueDeclared(msgspec.Struct, frozen=True):
    """The queue exists, with that many ready messages and consumers."""

    name: str
    messages: int
    consumers: int


class MessageCount(msgspec.Struct, frozen=True):
    """That many messages were deleted or purged."""

    messages: int


class GotMessage(msgspec.Struct, frozen=True):
    """One message.

    block           the decoded block that the delivery refers to
    messages_ready  left in the queue
    getter          the number that holds it, where the queue is not the one that the number asked
                    for has messages of; None: that number
    """

    delivery: Delivery
    block: Any
    messages_ready: int
    getter: ConsumerId | None = None


class GotNothing(msgspec.Struct, frozen=True):
    """The queue is empty; getter: as in `GotMessage`."""

    getter: ConsumerId | None = None


_Counted: TypeAlias = QueueDeclared | MessageCount | GotMessage | GotNothing
Result: TypeAlias = RequestDone | TokenAccepted | _Counted | Refusal


# ------------------------------------------------------------------ local lookups


class ExchangeFacts(msgspec.Struct, frozen=True):
    """The properties of an exchange that a publish depends on."""

    kind: str
    internal: bool = False


class BrokerView(Protocol):
    """This node's present view of the definitions: lookups without waiting."""

    @property
    def traced_vhosts(self) -> Set[str]:
        """Return the vhosts in which this node traces what clients publish and are sent.

        It is one object, which changes.
        """

    def exchange(self, vhost: str, name: str) -> ExchangeFacts | None:
        """Return an exchange; None: there is none. Not called for the default exchange."""

    def permissions(self, vhost: str, user: str) -> Permissions | None:
        """Return the user's permissions; None: the user may not use the vhost."""

    def topic_permissions(self, vhost: str, user: str, exchange: str) -> Permissions | None:
        """Return the topic permissions; None: none are set for that exchange: all is allowed."""

    def tags(self, user: str) -> tuple[str, ...]:
        """Return the user's tags; none when the user no longer exists."""

    def queue_type(self, vhost: str, queue: str) -> Kind | None:
        """Return a queue's declared type; None: there is none.

        `quorum` if that was asked for, by argument or default type, else `classic`.
        """

    def channels_max(self, user: str) -> int | None:
        """Return how many channels the user may have open, over all nodes; None: no limit."""

    def reply_queue_exists(self, name: str) -> bool:
        """Return whether a consumer of amq.rabbitmq.reply-to has that name, on any node."""
