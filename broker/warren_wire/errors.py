"""Refusals of client requests, with the codes of every protocol.

Every refusal is an exception that can also be returned as a value. Its class holds the AMQP 0.9.1
reply code and word, the AMQP 1.0 condition, the HTTP status of `/management`, whether it closes a
0.9.1 channel or the whole connection, and which side must act. Its text says what, which value,
which limit; the helpers at the end return the texts that RabbitMQ's clients know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Literal, TypeAlias, TypeVar

REPLY_TEXT_BYTES_MAX = 255
CUT_OFF = "..."
"""A 0.9.1 reply text is a short string."""


class Refusal(Exception):
    """Base class of all refusals of a client's request.

    reply_code   AMQP 0.9.1
    word         prefix of the text in a 0.9.1 reply
    condition    AMQP 1.0
    http_status  the answer's status on `/management`
    ends         what is closed for a 0.9.1 client: the channel, or the connection
    acts         the side that can do something about it: the client's author, its peer, the
                 operator, or "nobody" (try again later)
    """

    reply_code: ClassVar[int] = 541
    word: ClassVar[str] = "INTERNAL_ERROR"
    condition: ClassVar[str] = "amqp:internal-error"
    http_status: ClassVar[int] = 500
    ends: ClassVar[Literal["channel", "connection"]] = "connection"
    acts: ClassVar[Literal["client", "peer", "operator", "nobody"]] = "client"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    @property
    def reply_text(self) -> str:
        """The text as RabbitMQ writes it, at most 255 bytes of UTF-8: a longer one ends in dots."""
        text = f"{self.word} - {self.detail}"
        if len(text) * 4 <= REPLY_TEXT_BYTES_MAX:
            return text
        encoded = text.encode("utf-8", "replace")
        if len(encoded) <= REPLY_TEXT_BYTES_MAX:
            return encoded.decode()
        cut = encoded[: REPLY_TEXT_BYTES_MAX - len(CUT_OFF)]
        return cut.decode("utf-8", "ignore") + CUT_OFF


Found = TypeVar("Found")
Shown = TypeVar("Shown")
Reply: TypeAlias = Found | Refusal
"""A result, or the refusal of what was asked for."""
Answer: TypeAlias = Callable[[Found | Refusal], None]
"""Called once with a result, or with a Refusal."""


def converted(answer: Answer[Shown], convert: Callable[[Found], Shown]) -> Answer[Found]:
    """Return what gives `answer` the result converted, and a Refusal as it is."""
    return lambda reply: answer(reply if isinstance(reply, Refusal) else convert(reply))


def continued(answer: Callable[[Refusal], None], then: Callable[[Found], None]) -> Answer[Found]:
    """Return what calls `then` with the result, and `answer` with a Refusal."""

    def told(reply: Found | Refusal) -> None:
        if isinstance(reply, Refusal):
            answer(reply)
        else:
            then(reply)

    return told


class ContentTooLarge(Refusal):
    """A message above the size limit."""

    reply_code, word, ends = 311, "CONTENT_TOO_LARGE", "channel"
    condition, http_status = "amqp:link:message-size-exceeded", 413


class CreditExceeded(Refusal):
    """More messages on a link of AMQP 1.0 than the client had credit for."""

    reply_code, word, ends = 406, "PRECONDITION_FAILED", "channel"
    condition, http_status = "amqp:link:transfer-limit-exceeded", 400


class NoRoute(Refusal):
    """A mandatory message (basic.return), or one of a block, without a queue to go to."""

    reply_code, word, ends = 312, "NO_ROUTE", "channel"
    condition, http_status = "warren:no-route", 404


class ConnectionForced(Refusal):
    """An operator, or the node's shutdown, closes the connection."""

    reply_code, word = 320, "CONNECTION_FORCED"
    condition, http_status, acts = "amqp:connection:forced", 503, "operator"


class AccessRefused(Refusal):
    """The user lacks the permission, the name is reserved, or there is an exclusive user of it."""

    reply_code, word = 403, "ACCESS_REFUSED"
    ends: ClassVar[Literal["channel", "connection"]] = "channel"
    condition, http_status = "amqp:unauthorized-access", 403


class LoginRefused(AccessRefused):
    """Wrong credentials: the connection ends, with the code of `AccessRefused`."""

    ends = "connection"
    http_status = 401
    why: ClassVar[str] = "invalid credentials"
    """For this node's log; the client is not told which of them is wrong."""


class NotFound(Refusal):
    """No such queue, exchange or binding."""

    reply_code, word, ends = 404, "NOT_FOUND", "channel"
    condition, http_status = "amqp:not-found", 404


class ResourceDeleted(NotFound):
    """What a link was attached to was deleted."""

    condition, http_status = "amqp:resource-deleted", 410


class ResourceLocked(Refusal):
    """The resource belongs to another connection."""

    reply_code, word, ends = 405, "RESOURCE_LOCKED", "channel"
    condition, http_status = "amqp:resource-locked", 409


class PreconditionFailed(Refusal):
    """An argument is wrong or inequivalent, or the state does not allow the operation."""

    reply_code, word, ends = 406, "PRECONDITION_FAILED", "channel"
    condition, http_status = "amqp:precondition-failed", 409


class ClaimNotOpen(PreconditionFailed):
    """The claim was released, has expired or was never opened: its messages are not available."""

    condition, http_status = "warren:claim-lost", 410


class EpochSuperseded(PreconditionFailed):
    """A newer driver has registered this claim reader, or this run of a sink."""

    condition = "warren:fenced"


class StageMissing(PreconditionFailed):
    """A stage to be published is missing or incomplete: stage the batch again."""

    condition, http_status = "warren:stage-lost", 410


class BatchNumberPast(PreconditionFailed):
    """A batch before the last one that this run of the sink has published."""

    condition = "warren:batch-past"


class BatchDiffers(PreconditionFailed):
    """A batch that this run of the sink has published with other content."""

    condition = "warren:batch-conflict"


class OtherUserId(PreconditionFailed):
    """A message with the `user_id` of another user than its publisher."""

    condition = "amqp:unauthorized-access"


class InvalidArgument(PreconditionFailed):
    """An argument with an invalid type or value; in 0.9.1 the same as an inequivalent one."""

    http_status = 400
    condition = "amqp:invalid-field"


class FrameError(Refusal):
    """Bytes that are not a frame."""

    reply_code, word, acts = 501, "FRAME_ERROR", "peer"
    condition, http_status = "amqp:connection:framing-error", 400


class SyntaxRefused(Refusal):
    """A frame with unreadable fields."""

    reply_code, word, acts = 502, "SYNTAX_ERROR", "peer"
    condition, http_status = "amqp:decode-error", 400


class CommandInvalid(Refusal):
    """A method that is not allowed in the present state."""

    reply_code, word, acts = 503, "COMMAND_INVALID", "peer"
    condition, http_status = "amqp:illegal-state", 400


class ChannelMisused(Refusal):
    """A channel that is not open, or is open already."""

    reply_code, word, acts = 504, "CHANNEL_ERROR", "peer"
    condition, http_status = "amqp:illegal-state", 400


class UnexpectedFrame(Refusal):
    """A content frame without its method, or a method inside a content."""

    reply_code, word, acts = 505, "UNEXPECTED_FRAME", "peer"
    condition, http_status = "amqp:illegal-state", 400


class ResourceError(Refusal):
    """The node, or a limit of the vhost or user, does not provide that much."""

    reply_code, word, acts = 506, "RESOURCE_ERROR", "operator"
    condition, http_status = "amqp:resource-limit-exceeded", 503


class NotAllowed(Refusal):
    """Forbidden by the protocol or by a limit: unknown vhost, a consumer tag used twice."""

    reply_code, word = 530, "NOT_ALLOWED"
    condition, http_status = "amqp:not-allowed", 400


class ConnectionsReached(NotAllowed):
    """A limit of the vhost or of the user on connections is reached."""

    condition, http_status, acts = "amqp:resource-limit-exceeded", 503, "operator"


class MethodNotAllowed(NotAllowed):
    """A `/management` resource that has no such method."""

    http_status = 405


class NotImplementedHere(Refusal):
    """Part of the protocol that this broker does not implement."""

    reply_code, word = 540, "NOT_IMPLEMENTED"
    condition, http_status = "amqp:not-implemented", 501


class InternalError(Refusal):
    """A fault of the broker."""

    reply_code, word = 541, "INTERNAL_ERROR"
    acts: ClassVar[Literal["client", "peer", "operator", "nobody"]] = "operator"
    condition, http_status = "amqp:internal-error", 500


class Unavailable(InternalError):
    """No majority, or a stopping node: nothing is wrong; the same request may succeed later."""

    acts = "nobody"
    http_status = 503


class HomeNodeDown(Unavailable):
    """The queue's only node is unreachable; the same request may succeed when it is back."""

    reply_code, word, ends = 404, "NOT_FOUND", "channel"


# ------------------------------------------------------------------ RabbitMQ's texts


def named(kind: str, name: str, vhost: str) -> str:
    """Name a resource as the texts do: `queue 'x' in vhost '/'`."""
    return f"{kind} '{name}' in vhost '{vhost}'"


def no_queue(name: str, vhost: str) -> NotFound:
    """Return the refusal for a queue that does not exist."""
    return NotFound(f"no {named('queue', name, vhost)}")


def home_node_down(name: str, vhost: str, durable: bool, node: str) -> HomeNodeDown:
    """Return the refusal for a queue of which the only node is unreachable."""
    what = named("durable queue" if durable else "queue", name, vhost)
    return HomeNodeDown(f"home node '{node}' of {what} is down or inaccessible")


def no_exchange(name: str, vhost: str) -> NotFound:
    """Return the refusal for an exchange that does not exist."""
    return NotFound(f"no {named('exchange', name, vhost)}")


def inequivalent(
    argument: str, kind: str, name: str, vhost: str, received: str, current: str
) -> PreconditionFailed:
    """Return the refusal of a differing declaration, with rendered values."""
    return PreconditionFailed(
        f"inequivalent arg '{argument}' for {named(kind, name, vhost)}: "
        f"received {received} but current is {current}"
    )


def check_fields(
    kind: str, name: str, vhost: str, current: object, wanted: object, fields: Mapping[str, str]
) -> None:
    """Raise `inequivalent` for the first field in which a declaration differs from what is there.

    fields  attribute to the argument's name in the text
    """
    for field, argument in fields.items():
        now, received = getattr(current, field), getattr(wanted, field)
        if now != received:
            raise inequivalent(
                argument, kind, name, vhost, render_field(received), render_field(now)
            )


def render_field(value: object) -> str:
    """Render a flag or name for an inequivalence text: `'false'`."""
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return f"'{shown}'"


def render_argument(value: object) -> str:
    """Render an argument for an inequivalence text: none, or the value with its type."""
    if value is None:
        return "none"
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return f"the value '{shown}' of type '{type_word(value)}'"


def type_word(value: object) -> str:
    """Return RabbitMQ's word for a plain value's type."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
    return _TYPE_WORDS.get(type(value), "array")


_TYPE_WORDS: Mapping[type, str] = {
    bool: "bool",
    str: "longstr",
    float: "double",
    bytes: "binary",
    dict: "table",
    type(None): "void",
}


def locked_queue(name: str, vhost: str) -> ResourceLocked:
    """Return the refusal for a queue declared exclusively by another connection."""
    return ResourceLocked(
        f"cannot obtain exclusive access to locked {named('queue', name, vhost)}. It could be "
        "originally declared on another connection or the exclusive property value does not "
        "match that of the original declaration."
    )


def store_refused(name: str, vhost: str, exchange: str) -> AccessRefused:
    """Return the refusal of any use of a queue in which an exchange keeps messages."""
    return AccessRefused(
        f"{named('queue', name, vhost)} is internal: exchange '{exchange}' keeps messages in it"
    )


def exclusive_use(name: str, vhost: str) -> AccessRefused:
    """Return the refusal for a queue with an exclusive consumer, or with others for a new one."""
    return AccessRefused(f"{named('queue', name, vhost)} in exclusive use")


def in_use(kind: str, name: str, vhost: str) -> PreconditionFailed:
    """Return the refusal of if-unused for a resource in use."""
    return PreconditionFailed(f"{named(kind, name, vhost)} in use")


def not_empty(name: str, vhost: str) -> PreconditionFailed:
    """Return the refusal of if-empty for a queue with messages."""
    return PreconditionFailed(f"{named('queue', name, vhost)} not empty")


def reserved_name(kind: str, name: str) -> AccessRefused:
    """Return the refusal of a name that begins with `amq.`, reserved for the broker."""
    return AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def no_node(name: str, known: Iterable[str]) -> NotFound:
    """Return the refusal for an unknown node."""
    return NotFound(f"no node '{name}' in the cluster; its nodes are {', '.join(sorted(known))}")


def lives_on_one_node(name: str, vhost: str, kind: str, node: str) -> PreconditionFailed:
    """Return the refusal of a change of members for a queue that is not replicated."""
    return PreconditionFailed(
        f"{named('queue', name, vhost)} is {'an' if kind == 'exclusive' else 'a'} {kind} queue: it "
        f"lives on node '{node}' alone; declare it with x-queue-type quorum to have members"
    )


def no_server_name(kind: str) -> PreconditionFailed:
    """Return the refusal to name a queue of that type."""
    return PreconditionFailed(f"Cannot declare a server-named queue for type {kind}")


def last_member(name: str, vhost: str, nodes: Iterable[str]) -> PreconditionFailed:
    """Return the refusal to delete the only member."""
    return PreconditionFailed(
        f"{named('queue', name, vhost)}: node '{', '.join(nodes)}' has its last member; add a "
        "member on another node first, or delete the queue"
    )


def default_exchange() -> AccessRefused:
    """Return the refusal of any operation but publishing on the default exchange."""
    return AccessRefused("operation not permitted on the default exchange")


def permission_refused(
    permission: str, kind: str, name: str, vhost: str, user: str
) -> AccessRefused:
    """Return the refusal for a missing permission; the default exchange is amq.default."""
    shown = "amq.default" if kind == "exchange" and name == "" else name
    return AccessRefused(
        f"{permission} access to {named(kind, shown, vhost)} refused for user '{user}'"
    )


def login_refused(mechanism: str) -> LoginRefused:
    """Return the refusal of a login, which does not tell whether user or password is wrong."""
    return LoginRefused(
        f"Login was refused using authentication mechanism {mechanism}. "
        "For details see the broker logfile."
    )


def unknown_vhost(vhost: str) -> NotAllowed:
    """Return the refusal of connection.open for an unknown vhost."""
    return NotAllowed(f"vhost {vhost} not found")


def vhost_refused(vhost: str, user: str) -> NotAllowed:
    """Return the refusal of connection.open in a vhost without permissions for the user."""
    return NotAllowed(f"access to vhost '{vhost}' refused for user '{user}'")


def vhost_connections_reached(vhost: str, user: str, limit: int) -> ConnectionsReached:
    """Return the refusal of connection.open in a vhost with as many connections as it may have."""
    return ConnectionsReached(
        f"access to vhost '{vhost}' refused for user '{user}': connection limit ({limit}) is "
        "reached"
    )


def user_connections_reached(user: str, limit: int) -> ConnectionsReached:
    """Return the refusal of connection.open for a user with as many connections as allowed."""
    return ConnectionsReached(
        f"connection refused for user '{user}': user connection limit ({limit}) is reached"
    )


def channels_reached(user: str, limit: int) -> NotAllowed:
    """Return the refusal of channel.open for a user with as many channels as allowed."""
    return NotAllowed(
        f"number of channels opened for user '{user}' has reached the maximum allowed user limit "
        f"of {limit}"
    )
