"""Looking at the messages of a queue, page by page: nothing is taken, and nothing changes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Generic, Literal, Self, TypeVar

import msgspec

from warren_wire.admin.queues import QueueRequest
from warren_wire.admin.requests import DurationMs, Number, Result, Text, route, seen
from warren_wire.errors import InvalidArgument
from warren_wire.job_spec import Wanted
from warren_wire.message_states import STATES

BROWSED_MAX: Final = 500
"""Messages of one page."""
BODY_SHOWN_BYTES: Final = 1_024
BODY_SHOWN_MAX: Final = 1 << 20
"""Bytes of each body that are shown: by default, at most."""
T = TypeVar("T")
Encoding = Literal["text", "base64"]


class BrowsedMessage(msgspec.Struct, frozen=True):
    """A message, where it stands.

    index, ordinal  its position in the queue's log, which it keeps for as long as it is there
    state           `warren_wire.message_states`
    holder          held: the consumer's tag ("": `basic.get`), or the relay; claimed: the reader
    node, session   of that consumer
    reason          dead: rejected, expired, maxlen or delivery_limit
    claim           claimed: its number; 0: a part of one that was divided
    delivery_count  failed deliveries; acquired_count: hand-outs, without the one that has it now
    published_at    when it entered the queue, by the leader's clock
    since           held: when it was delivered; dead: when it died; 0: not known
    next_at         delayed: when it is ready; claimed: when the claim expires; 0: never, or now
    properties      of AMQP 0.9.1, those that it has; times in seconds
    headers         of AMQP 0.9.1, the application properties of AMQP 1.0
    annotations     of AMQP 1.0, the message's and those of consumers that returned it
    body            its first bytes: as text if they are UTF-8, else in Base64
    body_bytes      of all of it
    place           for `after`: a page with it begins behind this message
    unreadable      why neither properties nor body are here; "": they are
    """

    index: Annotated[int, seen(column=True, amqp="ulong")]
    ordinal: Annotated[int, seen(column=True, amqp="ulong")]
    state: Annotated[str, seen(column=True)]
    holder: Annotated[str, seen(column=True)] = ""
    node: str = ""
    session: Number = 0
    reason: str = ""
    claim: Number = 0
    priority: Annotated[int, seen(column=True, amqp="uint")] = 0
    delivery_count: Annotated[int, seen(column=True, amqp="ulong")] = 0
    acquired_count: Number = 0
    published_at: Number = 0
    since: Number = 0
    next_at: Number = 0
    exchange: Annotated[str, seen(column=True)] = ""
    routing_key: Annotated[str, seen(column=True)] = ""
    properties: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    body_bytes: Annotated[int, seen(column=True, amqp="ulong")] = 0
    body: Annotated[str, seen(column=True)] = ""
    encoding: Encoding = "text"
    place: str = ""
    unreadable: str = ""


class SelectingRequest(QueueRequest[T], Generic[T], frozen=True):
    """A request about those messages of a queue for which all of this holds.

    filter      a SQL filter expression over properties and application properties (headers)
    contains    text in the body, as its UTF-8
    priority    only messages of this one
    older_ms    only messages that entered the queue at least so long ago; 0: all
    newer_ms    only messages that entered it at most so long ago; 0: all
    reason      of the latest death of a dead letter: rejected, expired, maxlen, delivery_limit
    origin      the queue in which it died
    hour        of that death in UTC, such as 2026-11-30T04; of other messages: of their arrival
    header      NAME=TEXT: a header, and its value as a text
    """

    filter: Text = ""
    contains: Text = ""
    priority: Annotated[int, msgspec.Meta(ge=0, le=31)] | None = None
    older_ms: DurationMs = 0
    newer_ms: DurationMs = 0
    reason: str = ""
    origin: str = ""
    hour: str = ""
    header: Text = ""

    def wanted(self, now_ms: int) -> Wanted:
        """Return which messages are meant."""
        born_from = now_ms - self.newer_ms if self.newer_ms else 0
        born_to = now_ms - self.older_ms if self.older_ms else 1 << 62
        by = (self.filter, self.contains, self.priority, born_from, born_to)
        return Wanted(*by, self.reason, self.origin, self.hour, self.header)

    def checked(self) -> Self:
        """See the base class."""
        if self.header and "=" not in self.header:
            raise InvalidArgument(f"header: {self.header[:40]!r} is not NAME=TEXT")
        return self


def wanted_states(states: str) -> tuple[str, ...]:
    """Return the states that are joined by commas; "": all. Raises InvalidArgument."""
    found = tuple(states.split(",")) if states else STATES
    for name in found:
        if name not in STATES:
            raise InvalidArgument(
                f"states: {name[:40]!r} is none of a message's; known: {', '.join(STATES)}"
            )
    return found


class BrowsedPage(Result, frozen=True):
    """Messages that match, and where the next page begins.

    next     for `after` of the next request; "": nothing is left. There may be no message, and a
             next page: so many were looked at
    looked   messages looked at
    current  False: the leader was not reached, and what it has committed last may be missing
    """

    messages: tuple[BrowsedMessage, ...]
    next: str
    looked: int
    current: bool


class BrowseRequest(SelectingRequest[BrowsedPage], frozen=True):
    """Look at messages of a queue, which stay as they are; 404. Answer: BrowsedPage.

    They come state by state, in the order in which the queue keeps them: ready ones in the order of
    delivery, held ones by consumer, delayed ones by time, claimed ones by claim, dead letters in
    the order of the deaths. What stays where it is is met once, whatever comes and goes meanwhile;
    what changes its state may be met in both, or in neither. Answered by any node that has a member
    of the queue, else by the leader.

    states      of ready, held, delayed, claimed, dead, kept, joined by commas; "": all
    after       where to continue, `next` of an earlier page; "": from the beginning
    count       of messages at most
    body_bytes  bytes of each body that are shown
    """

    ROUTES: ClassVar = (
        route("GET /queues/:queue/messages", body=True, http="/queues/:vhost/:queue/messages"),
    )
    states: Text = ""
    after: Text = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=BROWSED_MAX)] = 100
    body_bytes: Annotated[int, msgspec.Meta(ge=0, le=BODY_SHOWN_MAX)] = BODY_SHOWN_BYTES

    def checked(self) -> Self:
        """See the base class."""
        wanted_states(self.states)
        return super().checked()
