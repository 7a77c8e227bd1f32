"""The bound of what the links of one connection have fetched ahead of the client's reading."""

from __future__ import annotations

from typing import Final, Protocol

FETCHES_MAX: Final = 8
"""Links of a connection that wait for what they fetch at a time."""


class Fetcher(Protocol):
    """A link that fetches."""

    def fetch(self) -> None:
        """Ask for more, if the bound allows."""
        ...


class FetchedAhead:
    """What the links of a connection have fetched and not written yet, over all of them.

    1. A client attaches 32 links at once, to claims of large messages, and takes the messages of
    one after another.  2. If each link fetched as much as one alone may, the node would hold 32
    times that, for each client. So they share the bound.
    3. The links that come last fetch first, and the client gives them no credit; the first link
    waits for room, and the client for its messages. So a link that holds nothing, and can write at
    once, may fetch beyond the bound, one link at a time.
    Replayed by tests/broker/amqp10/test_fetched_ahead.py

    held_bytes  fetched and not written; above bytes_max by what FETCHES_MAX links fetch, at most
    Invariant: a link that waits for room is in `_waiting`, and asks again when some has been made
    """

    __slots__ = ("_asked", "_bytes_max", "_waiting", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._asked = 0
        self._waiting: dict[Fetcher, None] = {}
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
            fetcher = next(iter(self._waiting))
            del self._waiting[fetcher]
            fetcher.fetch()
