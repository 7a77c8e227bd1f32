"""What a connection's consumers and requests may make its node hold, over all links."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Protocol

LINKS_MAX: Final = 1_024
"""Links of a connection."""
DISCARDED_MAX: Final = 4_096
"""Messages to a link that this end has detached: twice what any link is given credit for."""


LINKS_BEYOND_MAX: Final = 4
"""Links that may each have taken messages beyond the bound of bytes."""


class BoundedLink(Protocol):
    """The link of a consumer."""

    @property
    def waits_to_write(self) -> bool:
        """Whether it has messages that are not written."""


@dataclass(slots=True, eq=False, repr=False)
class ConnectionBounds:
    """Deliveries of all consumers of a connection, and its requests to the management.

    1. A client gives credit for millions of messages, and does not read, or does not settle.
    2. The queue gives them at once. Those that are not written keep their blocks in memory, and
    each that is written and not settled keeps some hundred bytes of the engine's. So both are
    bounded over all links. What is refused stays with the queue, which is asked again
    (`GroupClient.resume`).
    3. The client holds as much as it may on one link, or has closed the window of its session, and
    waits for a message on another one. So a link that holds nothing takes a delivery beyond the
    bound of bytes (LINKS_BEYOND_MAX links at a time), and sends one beyond that of unsettled ones.
    Replayed by tests/broker/clients10/test_connection_bounds.py

    undelivered_bytes  of deliveries that wait for the client's credit, window or reading
    unsettled          deliveries that were sent and that the client has not settled
    requests           of the management that are carried out
    answers_bytes      of answers to them that are not written
    """

    _undelivered_max: int
    _unsettled_max: int
    _beyond: set[BoundedLink] = field(default_factory=set)
    undelivered_bytes: int = 0
    unsettled: int = 0
    requests: int = 0
    answers_bytes: int = 0

    def takes(self, link: BoundedLink, in_turn: bool = True) -> bool:
        """Return whether a link takes its queue's messages now.

        in_turn  no other one waits for room before it
        """
        if in_turn and self.undelivered_bytes < self._undelivered_max:
            return True
        if not self.may_exceed(link):
            return False
        self._beyond.add(link)
        return True

    @property
    def half_free(self) -> bool:
        """Whether it is worth asking for what links have refused."""
        return 2 * self.undelivered_bytes <= self._undelivered_max

    def may_exceed(self, link: BoundedLink) -> bool:
        """Return whether a link may take a delivery beyond the bound of bytes."""
        self._beyond = {each for each in self._beyond if each.waits_to_write}
        return not link.waits_to_write and len(self._beyond) < LINKS_BEYOND_MAX

    def clear(self) -> None:
        """Forget the links: the connection is freed."""
        self._beyond.clear()

    def may_send(self, held: int) -> int:
        """Return how many more deliveries a link may send of which the client holds so many."""
        return max(self._unsettled_max - self.unsettled, 0 if held else 1)


FETCHES_MAX: Final = 8
"""Links of a connection that wait for what they fetch at a time."""


class Fetcher(Protocol):
    """A link that fetches."""

    def fetch(self) -> None:
        """Ask for more, if the bound allows."""


class FetchedAhead:
    """What the links of a connection have fetched and not written yet, over all of them.

    1. A client attaches 32 links at once, to claims of large messages, and takes the messages of
    one after another.  2. If each link fetched as much as one alone may, the node would hold 32
    times that, for each client. So they share the bound.
    3. The links that come last fetch first, and the client gives them no credit; the first link
    waits for room, and the client for its messages. So a link that holds nothing, and can write at
    once, may fetch beyond the bound, one link at a time.
    Replayed by tests/broker/clients10/test_fetched_ahead.py

    held_bytes  fetched and not written; above bytes_max by what FETCHES_MAX links fetch, at most
    Invariant: a link that waits for room is in `_waiting`, and asks again when some has been made
    """

    __slots__ = ("_asked", "_bytes_max", "_waiting", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._asked = 0
        self._waiting: OrderedDict[Fetcher, None] = OrderedDict()
        self.held_bytes = 0

    def admits(self, fetcher: Fetcher, writes: bool) -> bool:
        """Return whether a link may fetch now, which it then does; else its `fetch` is called.

        writes  it holds nothing, and what it gets is written at once
        """
        if self._has_room or (writes and not self._asked):
            self._waiting.pop(fetcher, None)
            self._asked += 1
            return True
        self._waiting[fetcher] = None
        return False

    def answered(self, size_bytes: int) -> None:
        """Take note of what a link has fetched."""
        self._asked -= 1
        self.held_bytes += size_bytes
        self._serve()

    def written(self, size_bytes: int) -> None:
        """Take note of what a link has written."""
        self.held_bytes -= size_bytes
        self._serve()

    def ended(self, fetcher: Fetcher, held_bytes: int) -> None:
        """Forget a link with what it holds; the others ask when the end of it has been sent."""
        self._waiting.pop(fetcher, None)
        self.held_bytes -= held_bytes

    @property
    def _has_room(self) -> bool:
        return self._asked < FETCHES_MAX and self.held_bytes < self._bytes_max

    def _serve(self) -> None:
        while self._waiting and self._has_room:
            fetcher, _ = self._waiting.popitem(last=False)
            fetcher.fetch()
