"""The requests of links that carry single messages: consumers and publishers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from warren_wire.admin.requests import Request
from warren_wire.errors import Refusal
from warren_wire.relay_names import RelayedName

if TYPE_CHECKING:
    from warren_wire.kernel import MessageTable

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Closed ranges (first, last), ascending."""


class Consume(Request, frozen=True):
    """Add a consumer to a queue. Answer: Consuming, before its first delivery, or Refusal.

    settled     what is delivered counts as accepted
    timeout_ms  how long it may hold a message; None: as the queue says
    filter      see `commands.Checkout`
    relay       its name, of a relay (`relay_names`); "": it is none
    """

    queue: str
    link: str
    settled: bool
    priority: int = 0
    timeout_ms: int | None = None
    filter: bytes = b""
    relay: str = ""


class GrantCredit(Request, frozen=True):
    """Let a consumer have `credit` messages after the `delivered`-th one.

    drain  what the queue does not have now is given back. Answer: CreditDrained; otherwise none
    """

    consumer: int
    delivered: int
    credit: int
    drain: bool = False


class EndConsumer(Request, frozen=True):
    """Remove a link's consumer; what it holds returns to the queue. No answer.

    failed  it counts as a failed delivery
    """

    consumer: int
    failed: bool


class SetAside(Request, frozen=True):
    """Report a message that could not be sent, for log and counter. No answer.

    index   of its entry in the queue's log
    msg_id  the delivery's number
    """

    consumer: int
    index: int
    msg_id: int
    reason: str


class OpenTarget(Request, frozen=True):
    """Check that a client may publish there. Answer: TargetOpened or Refusal.

    queue     publish to it; "": to the exchange; both "": the messages say where
    """

    queue: str
    exchange: str
    anonymous: bool = False


class CloseTarget(Request, frozen=True):
    """Forget a link that published to a queue; number: as in TargetOpened. No answer."""

    number: int


class PublishMessages(Request, frozen=True):
    """Publish a table's messages. Answers: PublishOutcomes, until one is the last.

    settled    the client waits for no outcome
    anonymous  a refused message is skipped; False: it is the last one that is looked at
    names      of a relay's messages, by position
    """

    table: MessageTable
    flags: int
    settled: bool
    anonymous: bool
    names: dict[int, RelayedName] = {}


class OpenReplies(Request, frozen=True):
    """Make a name for replies to this connection. Answer: RepliesOpened."""


class CloseReplies(Request, frozen=True):
    """Forget a name for replies. No answer."""

    name: str


class DeclareTemporary(Request, frozen=True):
    """Make a queue that is exclusive to the connection. Answer: TemporaryDeclared or Refusal.

    container, link  of the client; the queue's name has both
    """

    container: str
    link: str


class DeleteTemporary(Request, frozen=True):
    """Delete such a queue. No answer."""

    queue: str


# ------------------------------------------------------------------ answers


class Consuming(msgspec.Struct, frozen=True):
    """The consumer's number.

    active  it gets messages; None: the queue says so later (`Connection10.tell_active`), or never
    """

    consumer: int
    active: bool | None = None


class CreditDrained(msgspec.Struct, frozen=True):
    """All that the consumer gets with its old credit are the deliveries below `delivered`."""

    delivered: int


class TargetOpened(msgspec.Struct, frozen=True):
    """The target is there, and the user may publish to it.

    number  under which the link is told that its queue was deleted; 0: its target is no queue
    """

    number: int = 0


class RejectedBy(msgspec.Struct, frozen=True):
    """A queue has refused messages, or is out of reach."""

    queue: str
    unavailable: bool


class PublishOutcomes(msgspec.Struct, frozen=True):
    """Outcomes of messages, by their positions in the table; each is named once.

    accepted  every queue has confirmed
    released  no queue
    rejected  a queue did not take it
    refused   the message may not be published
    last      every message has its outcome, or comes after one that was refused
    """

    accepted: Sequence[int] = ()
    released: Sequence[int] = ()
    rejected: Sequence[tuple[int, RejectedBy]] = ()
    refused: Sequence[tuple[int, Refusal]] = ()
    last: bool = False


class RepliesOpened(msgspec.Struct, frozen=True):
    """The queue name to which replies are published."""

    name: str


class TemporaryDeclared(msgspec.Struct, frozen=True):
    """The queue's name."""

    queue: str
