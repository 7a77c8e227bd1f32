"""Publisher de-duplication: the ids of the messages that a queue has accepted.

A queue that asks for it (`QueueConfig.deduplication`) drops a message with an id that it
remembers, and confirms it. It remembers the ids of the last `deduplication_window` messages that it
accepted with one, each for `deduplication_ttl_ms`; what became of the messages does not matter. Ids
are read from the block when its entry is applied (`kernel.publisher_ids`), so that the settings of
that moment decide, on every member alike.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Final, TypeAlias

from warren_wire.block.block import Block
from warren_wire.kernel import publisher_ids

IdGroup: TypeAlias = tuple[int, int, "list[bytes] | None", bytes, int]
"""(first ordinal, messages, digests, producer, sequence), see `kernel.publisher_ids`."""
IdRun: TypeAlias = "bytes | tuple[bytes, int, int]"
"""A digest, or (producer, first, last): sequence numbers that were accepted one after another."""
Id: TypeAlias = "bytes | tuple[bytes, int]"
"""A digest, or (producer, sequence number)."""
TIMES_PER_TTL: Final = 1_024
"""Ids that came within this part of the time to live are forgotten together, when the last is due:
so an id may be remembered for that part longer."""
_DIGEST: Final = 16
_HEAD_MAX: Final = 1_024
"""Boundaries of forgotten numbers that a `NumberSet` keeps before it moves the others up."""
_SINGLY_MAX: Final = 4
"""So many ranges, or so few that moving a list is cheaper, are added or removed one by one."""
_MOVES: Final = 100
"""Boundaries that are moved in the time in which one is sorted and counted."""


def read_ids(block: memoryview) -> list[IdGroup]:
    """Return the ids of a block's messages; raises BlockError."""
    outline = Block.outline(block)
    whole = outline if outline.whole else Block.decode(block, verify=False)
    found: list[IdGroup] = publisher_ids(whole)
    return found


class NumberSet:
    """Numbers as disjoint ranges: boundaries first, last + 1, first, last + 1 …, ascending.

    The boundaries before `_head` are of ranges that were removed at the front.
    """

    __slots__ = ("_boundaries", "_head")

    def __init__(self) -> None:
        self._boundaries: list[int] = []
        self._head = 0

    def __bool__(self) -> bool:
        return len(self._boundaries) > self._head

    def __len__(self) -> int:
        """Return the number of ranges."""
        return (len(self._boundaries) - self._head) // 2

    def __contains__(self, number: int) -> bool:
        return bool(bisect_right(self._boundaries, number, self._head) - self._head & 1)

    def overlaps(self, first: int, last: int) -> bool:
        """Return whether one of these numbers is in the set."""
        bounds = self._boundaries
        at = bisect_right(bounds, first, self._head)
        return bool(at - self._head & 1) or (at < len(bounds) and bounds[at] <= last)

    def add(self, first: int, last: int) -> None:
        """Add numbers of which none is in the set."""
        bounds, end = self._boundaries, last + 1
        at = bisect_right(bounds, first, self._head)
        before = at > self._head and bounds[at - 1] == first
        after = at < len(bounds) and bounds[at] == end
        joined = ([] if before else [first]) + ([] if after else [end])
        bounds[at - before : at + after] = joined

    def remove(self, first: int, last: int) -> None:
        """Remove neighbouring numbers, which are all in the set."""
        bounds, end = self._boundaries, last + 1
        at = bisect_right(bounds, first, self._head) - 1
        if at == self._head and bounds[at] == first:
            if bounds[at + 1] == end:
                self._head += 2
                self._move_up()
            else:
                bounds[at] = end
            return
        left = [bounds[at], first] if bounds[at] < first else []
        right = [end, bounds[at + 1]] if end < bounds[at + 1] else []
        bounds[at : at + 2] = left + right

    def _move_up(self) -> None:
        if self._head > _HEAD_MAX and 2 * self._head > len(self._boundaries):
            del self._boundaries[: self._head]
            self._head = 0

    def add_all(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Add disjoint ranges of numbers of which none is in the set, in any order."""
        if not self._turn_over(ranges):
            for first, last in ranges:
                self.add(first, last)

    def remove_all(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Remove disjoint ranges of numbers, which are all in the set, in any order."""
        if not self._turn_over(ranges):
            for first, last in ranges:
                self.remove(first, last)

    def _turn_over(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Add the ranges that are not in the set, and remove those that are, if they are many.

        1. A client counts down, with gaps.  2. For each of 65,536 numbers of a block, the list of
        boundaries would be moved by two places.  So all go into it at once: a boundary that is met
        twice is none any more.
        """
        if len(ranges) <= _SINGLY_MAX:
            return False
        bounds = self._boundaries
        ends = sorted(chain.from_iterable((first, last + 1) for first, last in ranges))
        low = bisect_left(bounds, ends[0], self._head)
        high = bisect_right(bounds, ends[-1], low)
        if len(ranges) * (len(bounds) - low) < _MOVES * (high - low):
            return False
        times = Counter(sorted(bounds[low:high] + ends))
        bounds[low:high] = [bound for bound, count in times.items() if count & 1]
        return True

    def remove_below(self, number: int) -> None:
        """Remove all numbers below."""
        bounds = self._boundaries
        at = bisect_right(bounds, number, self._head)
        if at - self._head & 1:
            at -= 1
            bounds[at] = number
        self._head = at
        self._move_up()

    def ranges(self) -> list[tuple[int, int]]:
        """Return (first, last) of each range."""
        bounds = self._boundaries[self._head :]
        return [(first, end - 1) for first, end in zip(bounds[::2], bounds[1::2], strict=True)]


class SeenIds:
    """The ids that a queue remembers.

    order      all of them, the oldest first
    ids        the digests among them; producers: the others
    times      [first ms, last ms, ids] of those accepted in this time, the oldest first
    count      ids in all
    dropped    duplicates dropped since the queue was declared

    Invariants: every id is in `order` once, and in `ids` or `producers`; the counts of `times` add
    up to `count`; no producer is without numbers
    """

    __slots__ = ("count", "dropped", "ids", "order", "producers", "times")

    def __init__(self) -> None:
        self.order: deque[IdRun] = deque()
        self.ids: set[bytes] = set()
        self.producers: dict[bytes, NumberSet] = {}
        self.times: deque[list[int]] = deque()
        self.count = 0
        self.dropped = 0

    def __contains__(self, name: Id) -> bool:
        if isinstance(name, bytes):
            return name in self.ids
        numbers = self.producers.get(name[0])
        return numbers is not None and name[1] in numbers

    # ------------------------------------------------------------ what is a duplicate

    def duplicates(self, groups: Sequence[IdGroup], window: int) -> list[int]:
        """Return the ordinals of a block's duplicates, as if its messages came one by one.

        window  ids that are remembered at most: each message that is accepted ends the memory of
                the oldest one
        """
        if not self._meets(groups):
            return []
        found: list[int] = []
        at_risk = self.count + sum(group[1] for group in groups) - window
        oldest = islice(self._names(), max(0, at_risk))
        # Of those that this block may end the memory of, or brings.
        places: dict[Id, int] = {name: place for place, name in enumerate(oldest)}
        end = self.count
        for ordinal, name in _each(groups):
            remembered = places[name] >= end - window if name in places else name in self
            if remembered:
                found.append(ordinal)
            else:
                places[name] = end
                end += 1
        return found

    def _meets(self, groups: Sequence[IdGroup]) -> bool:
        """Return whether an id of the block is remembered, or is in the block twice."""
        digests = list(chain.from_iterable(group[2] for group in groups if group[2] is not None))
        if digests and not self.ids.isdisjoint(digests):
            return True
        if len(set(digests)) < len(digests):
            return True
        own: dict[bytes, list[tuple[int, int]]] = {}
        for _, count, several, producer, first in groups:
            if several is not None:
                continue
            last = first + count - 1
            numbers = self.producers.get(producer)
            if numbers is not None and numbers.overlaps(first, last):
                return True
            own.setdefault(producer, []).append((first, last))
        return any(
            before[1] >= after[0]
            for mine in own.values()
            for before, after in pairwise(sorted(mine))
        )

    def _names(self) -> Iterator[Id]:
        for run in self.order:
            if isinstance(run, bytes):
                yield run
            else:
                producer, first, last = run
                for number in range(first, last + 1):
                    yield producer, number

    # ------------------------------------------------------------ what is remembered

    def remember(self, runs: Sequence[IdRun], now: int, window: int, ttl_ms: int) -> None:
        """Remember the ids of messages that were accepted, which are no duplicates, in this order.

        Only the last `window` of all remain.
        """
        added = _count(runs)
        if not added:
            return
        self.trim(max(0, window - added))
        if added > window:
            runs = _without_first(runs, added - window)
            added = window
        order = self.order
        digests = [run for run in runs if isinstance(run, bytes)]
        self.ids.update(digests)
        if len(digests) == len(runs):
            order.extend(digests)
        else:
            self._append(runs)
        self.count += added
        times = self.times
        if times and now - times[-1][0] < max(1, ttl_ms // TIMES_PER_TTL):
            times[-1][1] = now
            times[-1][2] += added
        else:
            times.append([now, now, added])

    def _append(self, runs: Sequence[IdRun]) -> None:
        order = self.order
        ranges: dict[bytes, list[tuple[int, int]]] = {}
        for run in runs:
            if not isinstance(run, bytes):
                producer, first, last = run
                ranges.setdefault(producer, []).append((first, last))
                before = order[-1] if order else b""
                if isinstance(before, tuple) and before[0] == producer and before[2] + 1 == first:
                    order[-1] = (producer, before[1], last)
                    continue
            order.append(run)
        for producer, some in ranges.items():
            self.producers.setdefault(producer, NumberSet()).add_all(some)

    def expire(self, now: int, ttl_ms: int) -> None:
        """Forget what was accepted `ttl_ms` ago."""
        count = 0
        for _, last_ms, some in self.times:
            if last_ms + ttl_ms > now:
                break
            count += some
        self.trim(self.count - count)

    def trim(self, window: int) -> None:
        """Forget the oldest ids but for the last `window`."""
        left = self.count - window
        if left <= 0:
            return
        if left == self.count:
            self.clear()
            return
        self.count -= left
        self._forget_times(left)
        order, ids = self.order, self.ids
        ranges: dict[bytes, list[tuple[int, int]]] = {}
        while left:
            run = order.popleft()
            if isinstance(run, bytes):
                ids.remove(run)
                left -= 1
                continue
            producer, first, last = run
            if last - first + 1 > left:
                order.appendleft((producer, first + left, last))
                last = first + left - 1
            ranges.setdefault(producer, []).append((first, last))
            left -= last - first + 1
        for producer, some in ranges.items():
            numbers = self.producers[producer]
            numbers.remove_all(some)
            if not numbers:
                del self.producers[producer]

    def _forget_times(self, count: int) -> None:
        times = self.times
        while count:
            some = min(count, times[0][2])
            times[0][2] -= some
            count -= some
            if not times[0][2]:
                times.popleft()

    def clear(self) -> None:
        """Forget all ids."""
        self.order, self.times = deque(), deque()
        self.ids, self.producers = set(), {}
        self.count = 0

    # ------------------------------------------------------------ as a whole

    def dump(
        self,
    ) -> tuple[list[bytes], list[bytes | tuple[int, int, int]], list[tuple[int, int, int]]]:
        """Return (producers, order, times).

        In `order` neighbouring digests are one string of bytes, and a producer is its number in
        `producers`: equal states give equal values.
        """
        producers: dict[bytes, int] = {}
        order: list[bytes | tuple[int, int, int]] = []
        digests: list[bytes] = []
        for run in self.order:
            if isinstance(run, bytes):
                digests.append(run)
                continue
            if digests:
                order.append(b"".join(digests))
                digests = []
            producer, first, last = run
            order.append((producers.setdefault(producer, len(producers)), first, last))
        if digests:
            order.append(b"".join(digests))
        return list(producers), order, [(first, last, some) for first, last, some in self.times]

    def load(
        self,
        producers: Sequence[bytes],
        order: Iterable[bytes | tuple[int, int, int]],
        times: Iterable[tuple[int, int, int]],
    ) -> None:
        """Load what `dump` returned into an empty object."""
        ranges: dict[bytes, list[tuple[int, int]]] = {}
        for some in order:
            if isinstance(some, bytes):
                digests = [some[at : at + _DIGEST] for at in range(0, len(some), _DIGEST)]
                self.ids.update(digests)
                self.order.extend(digests)
            else:
                number, first, last = some
                ranges.setdefault(producers[number], []).append((first, last))
                self.order.append((producers[number], first, last))
        for producer, each in ranges.items():
            self.producers.setdefault(producer, NumberSet()).add_all(each)
        self.times = deque([first, last, some] for first, last, some in times)
        self.count = sum(some for _, _, some in self.times)

    def check(self) -> None:
        """Assert the invariants."""
        names = list(self._names())
        assert len(names) == self.count == sum(some for _, _, some in self.times), self.count
        assert len(set(names)) == len(names), "an id is remembered twice"
        assert {name for name in names if isinstance(name, bytes)} == self.ids
        numbers = {name for name in names if not isinstance(name, bytes)}
        held = [
            (producer, number)
            for producer, some in self.producers.items()
            for first, last in some.ranges()
            for number in range(first, last + 1)
        ]
        assert len(held) == len(numbers) and set(held) == numbers
        assert all(self.producers.values()), "a producer without numbers"
        assert all(first <= last and some > 0 for first, last, some in self.times)


# ------------------------------------------------------------------ groups and runs


def accepted_runs(groups: Sequence[IdGroup], duplicates: Sequence[int], end: int) -> list[IdRun]:
    """Return the ids of the messages before ordinal `end`, without those of duplicates."""
    runs: list[IdRun] = []
    for first, count, digests, producer, sequence in groups:
        for low, high in gaps(first, min(first + count, end), duplicates):
            if digests is not None:
                runs += digests[low - first : high - first]
            else:
                runs.append((producer, sequence + low - first, sequence + high - 1 - first))
    return runs


def without(groups: Sequence[IdGroup], left_out: Sequence[int]) -> list[IdGroup]:
    """Return the groups without these ordinals, which ascend."""
    found: list[IdGroup] = []
    for first, count, digests, producer, sequence in groups:
        for low, high in gaps(first, first + count, left_out):
            names = None if digests is None else digests[low - first : high - first]
            found.append((low, high - low, names, producer, sequence + low - first))
    return found


def gaps(first: int, end: int, left_out: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ranges of first ≤ i < end without those left out, which ascend, half-open."""
    found: list[tuple[int, int]] = []
    for at in left_out[bisect_left(left_out, first) : bisect_left(left_out, end)]:
        if first < at:
            found.append((first, at))
        first = at + 1
    if first < end:
        found.append((first, end))
    return found


def _each(groups: Sequence[IdGroup]) -> Iterator[tuple[int, Id]]:
    for first, count, digests, producer, sequence in groups:
        for at in range(count):
            yield first + at, digests[at] if digests is not None else (producer, sequence + at)


def _count(runs: Sequence[IdRun]) -> int:
    return sum(1 if isinstance(run, bytes) else run[2] - run[1] + 1 for run in runs)


def _without_first(runs: Sequence[IdRun], count: int) -> list[IdRun]:
    kept: list[IdRun] = []
    for run in runs:
        size = 1 if isinstance(run, bytes) else run[2] - run[1] + 1
        if count >= size:
            count -= size
        elif isinstance(run, bytes):
            kept.append(run)
        else:
            kept.append((run[0], run[1] + count, run[2]))
            count = 0
    return kept
