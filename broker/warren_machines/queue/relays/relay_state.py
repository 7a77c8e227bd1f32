"""A queue's relays, consumers that carry messages to another cluster, and what others have brought.

The name of a message in a relay's hands is (origin, number). It keeps it until it is settled, also
while the relay has no consumer, so that the queue to which it is carried recognises a repeat.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from warren_machines.queue.deduplication import NumberSet

KeptRun: TypeAlias = tuple[int, int, int, int, int, int, int]
"""(number, origin, index, first, last, delivery_count, acquired_count) of a relay's messages that
no consumer holds; with the mark of `ranges.Run`. The numbers of a run are consecutive."""
Numbering: TypeAlias = "list[tuple[int, int, int]]"
"""(msg_id, origin, number): names from that msg_id on, up to the next entry; ascending."""
REMEMBERED_MS: Final = 7 * 24 * 3_600_000
"""An origin that has brought nothing for that long is forgotten when a new one begins. Longer than
the queue over there keeps messages for a relay that is away (`relays.KEPT_MS`)."""
ORIGINS_MAX: Final = 2_000
"""Origins remembered by a queue: with more, those that brought something last."""
RANGES_MAX: Final = 200_000
"""Ranges of numbers remembered by a queue; a relay needs half its prefetch, 32,767 at the most."""
OriginRow: TypeAlias = tuple[int, int, int, list[tuple[int, int]]]
"""(origin, floor, heard ms, (first, last) of numbers accepted), in a snapshot."""


class Relay(msgspec.Struct, eq=False):
    """A relay of the queue.

    origin       of the messages that it takes now, drawn by its session. So a name never stands for
                 two messages: were a queue set back to an older copy of its data, it would give a
                 number again, and to another session
    owner        (uplink, session) that consumes for it, or did so last
    next_number  of the next message taken; numbers ascend over all origins
    idle_ms      since when it has no session; 0: it has one
    kept         what it has taken, and no consumer holds now; by number
    consumer_keys  of its consumers, the oldest first; some may have ended
    """

    name: str
    origin: int
    owner: tuple[int, int]
    next_number: int = 1
    idle_ms: int = 0
    kept: list[KeptRun] = []
    consumer_keys: dict[tuple[int, int], None] = {}

    @property
    def kept_count(self) -> int:
        """The messages in `kept`."""
        return sum(run[4] - run[3] + 1 for run in self.kept)

    def check(self) -> None:
        """Assert that numbers ascend."""
        after = 1
        for number, _, _, first, last, _, _ in self.kept:
            assert after <= number and first <= last, (self.name, after, number)
            after = number + last - first + 1
        assert after <= self.next_number, (self.name, after, self.next_number)


def note_name(numbering: Numbering, held_from: int, msg_id: int, origin: int, number: int) -> None:
    """Note the name of the message with that msg_id, which those after it continue.

    held_from  the lowest msg_id that is held: names of those before it are forgotten
    """
    first = bisect_right(numbering, held_from, key=lambda entry: entry[0]) - 1
    if first > 0:
        del numbering[:first]
    if numbering:
        at, before, counted = numbering[-1]
        if before == origin and counted + msg_id - at == number:
            return
    numbering.append((msg_id, origin, number))


def name_of(numbering: Numbering, msg_id: int) -> tuple[int, int]:
    """Return (origin, number) of a message that a relay's consumer holds."""
    at, origin, number = numbering[bisect_right(numbering, msg_id, key=lambda entry: entry[0]) - 1]
    assert at <= msg_id, (at, msg_id)
    return origin, number + msg_id - at


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
        self.numbers.remove_below(floor)


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the numbers, of which none is there twice, as ranges."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] + 1 == number:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


class Origins:
    """The origins that a queue remembers; the one heard last is the last. Repeats are dropped.

    A relay settles its messages in order, so of one origin those may come again that are not below
    the lowest number which it had not settled over there: the floor. Every message says it. Lower
    numbers were accepted or will not come: they are refused without being remembered. So the memory
    of an origin is bounded by the relay's prefetch, whatever passes; and that of a queue by
    RANGES_MAX, whatever a client says that is no relay of ours.

    dropped  messages dropped because they had been brought before

    Invariant: _ranges are those of all origins
    """

    __slots__ = ("_known", "_ranges", "dropped")

    def __init__(self) -> None:
        self._known: OrderedDict[int, Origin] = OrderedDict()
        self._ranges = 0
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
        before = len(known.numbers)
        known.numbers.add_all(_ranges(numbers))
        known.raise_floor(floor)
        self._known[origin] = known
        self._ranges += len(known.numbers) - before
        if self._ranges > RANGES_MAX:
            self._forget_ranges(known)

    def _make_room(self, now_ms: int) -> None:
        for origin, known in list(self._known.items()):
            if known.heard_ms + REMEMBERED_MS > now_ms and len(self._known) < ORIGINS_MAX:
                return
            self._forget(origin)

    def _forget(self, origin: int) -> None:
        self._ranges -= len(self._known.pop(origin).numbers)

    def _forget_ranges(self, newest: Origin) -> None:
        """Forget the origins heard longest ago, then the lower half of the newest one's ranges.

        A client that names its messages with gaps, and no floor, would fill the memory of every
        member and each snapshot, with messages that have long been consumed.
        """
        while self._ranges > RANGES_MAX and len(self._known) > 1:
            self._forget(next(iter(self._known)))
        if self._ranges > RANGES_MAX:
            surplus = self._ranges - RANGES_MAX // 2
            newest.raise_floor(newest.numbers.ranges()[surplus - 1][1] + 1)
            self._ranges -= surplus

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()
        self._ranges = 0

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
            known.numbers.add_all(ranges)
            self._ranges += len(known.numbers)

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._known) <= ORIGINS_MAX, len(self._known)
        ranges = sum(len(known.numbers) for known in self._known.values())
        assert ranges == self._ranges <= RANGES_MAX, (ranges, self._ranges)
        for origin, known in self._known.items():
            for first, last in known.numbers.ranges():
                assert known.floor <= first <= last, (origin, known.floor, first, last)
