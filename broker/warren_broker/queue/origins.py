"""The names of messages that relays of other queues have brought: what comes again is dropped.

A relay settles its messages in order, so of one origin those may come again that are not below the
lowest number which it had not settled over there: the floor. Every message says it. Lower numbers
were accepted or will not come: they are refused without being remembered. So the memory of an
origin is bounded by the relay's prefetch, whatever passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from warren_broker.queue.deduplication import NumberSet

REMEMBERED_MS: Final = 7 * 24 * 3_600_000
"""An origin that has brought nothing for that long is forgotten when a new one begins. Longer than
the queue over there keeps messages for a relay that is away (`relays.KEPT_MS`)."""
ORIGINS_MAX: Final = 2_000
"""Origins remembered by a queue: with more, those that brought something last."""
OriginRow: TypeAlias = tuple[int, int, int, list[tuple[int, int]]]
"""(origin, floor, heard ms, (first, last) of numbers accepted), in a snapshot."""


class Origin:
    """What one origin has brought.

    Invariant: all of `numbers` are at or above the floor
    """

    __slots__ = ("floor", "heard_ms", "numbers")

    def __init__(self, floor: int, heard_ms: int) -> None:
        self.floor = floor
        self.heard_ms = heard_ms
        self.numbers = NumberSet()

    def has(self, number: int) -> bool:
        """Return whether this message was accepted before."""
        return number < self.floor or number in self.numbers

    def raise_floor(self, floor: int) -> None:
        """Forget the numbers below."""
        if floor <= self.floor:
            return
        self.floor = floor
        for first, last in self.numbers.ranges():
            if first >= floor:
                return
            self.numbers.remove(first, min(last, floor - 1))


class Origins:
    """The origins that a queue remembers; the one heard last is the last.

    dropped  messages dropped because they had been brought before
    """

    __slots__ = ("_known", "dropped")

    def __init__(self) -> None:
        self._known: dict[int, Origin] = {}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._known)

    def repeats(self, origin: int, numbers: Sequence[int]) -> list[int]:
        """Return the places of those numbers that were brought before, or come twice in these."""
        known = self._known.get(origin)
        found: list[int] = []
        met: set[int] = set()
        for place, number in enumerate(numbers):
            if number in met or (known is not None and known.has(number)):
                found.append(place)
            met.add(number)
        return found

    def accept(self, origin: int, floor: int, numbers: Iterable[int], now_ms: int) -> None:
        """Remember messages that were accepted, of which none was before, and the floor."""
        known = self._known.pop(origin, None)
        if known is None:
            self._make_room(now_ms)
            known = Origin(0, now_ms)
        known.heard_ms = now_ms
        for number in numbers:
            known.numbers.add(number, number)
        known.raise_floor(floor)
        self._known[origin] = known

    def _make_room(self, now_ms: int) -> None:
        for origin, known in list(self._known.items()):
            if known.heard_ms + REMEMBERED_MS > now_ms and len(self._known) < ORIGINS_MAX:
                return
            del self._known[origin]

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()

    def dump(self) -> list[OriginRow]:
        """Return the origins: equal states give equal values."""
        return [
            (origin, known.floor, known.heard_ms, known.numbers.ranges())
            for origin, known in self._known.items()
        ]

    def load(self, rows: Iterable[OriginRow]) -> None:
        """Load what `dump` returned into an empty object."""
        for origin, floor, heard_ms, ranges in rows:
            known = self._known[origin] = Origin(floor, heard_ms)
            for first, last in ranges:
                known.numbers.add(first, last)

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._known) <= ORIGINS_MAX, len(self._known)
        for origin, known in self._known.items():
            for first, last in known.numbers.ranges():
                assert known.floor <= first <= last, (origin, known.floor, first, last)
