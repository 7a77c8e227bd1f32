"""What a queue remembers of the blocks it still refers to: how much of each lives, sizes, expiry.

The bytes themselves stay in the log. A block whose messages are all of one size and do not expire
costs one integer; others keep what their bytes were measured to be.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import add, sub
from typing import Any, Final

NO_TTL: Final = 0xFFFFFFFF
"""In a ttl column: this message has none."""
_LIVE: Final = 0xFFFFFFFF
_SIZE_SHIFT: Final = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """What the machine reads from a block.

    runs     (first ordinal, priority), ascending by ordinal; priorities 0 … 31, descending
    total    bytes of all bodies and properties
    largest  bytes of the largest message
    ends     None: every message has the same size; else ends[i] is the size of messages 0 … i
    ttl      milliseconds each message may live; None: no limit; an array: one for each
    """

    count: int
    runs: tuple[tuple[int, int], ...]
    total: int
    largest: int
    ends: array[int] | None = None
    ttl: int | array[int] | None = None


@lru_cache(maxsize=256)
def _even(count: int, size: int) -> bytes:
    """The offset column of `count` messages of one size."""
    if not size:
        return bytes(4 * (count + 1))
    return array("I", range(0, size * count + 1, size)).tobytes()


def measure(
    properties: memoryview, bodies: memoryview, exact: bool
) -> tuple[int, int, array[int] | None]:
    """(total, largest, ends) from the two offset columns, as bytes of little-endian u32.

    exact  False: when the largest is within a quarter of the mean, `ends` is left out; partial
           runs are then counted in proportion, and bounded by their largest
    """
    count = len(bodies) // 4 - 1
    head, body = _evenly(properties, count), _evenly(bodies, count)
    if head >= 0 and body >= 0:
        return (head + body) * count, head + body, None
    ends = bodies.cast("I").tolist()
    if head > 0:
        ends = list(map(add, ends, range(0, head * (count + 1), head)))
    elif head < 0:
        ends = list(map(add, ends, properties.cast("I").tolist()))
    total = ends[-1]
    largest = max(map(sub, islice(ends, 1, None), ends))
    if not exact and largest * count <= total + (total >> 2):
        return total, largest, _PROPORTIONAL
    return total, largest, array("I", islice(ends, 1, None))


def _evenly(column: memoryview, count: int) -> int:
    """The size of every item of an offset column; -1: they differ."""
    last = int.from_bytes(column[-4:], "little")
    size, rest = divmod(last, count)
    return size if not rest and bytes(column) == _even(count, size) else -1


_PROPORTIONAL: Final = array("I")
"""Stands for `ends` of a block whose sizes are near each other."""


@dataclass(slots=True)
class Detail:
    """What does not fit into one integer.

    ends     as in Shape; empty: sizes are near each other, partial runs count in proportion
    ttl      as in Shape
    cap_ms   the queue's own limit when the messages became ready; -1: none
    born_ms  when they became ready; -1: not yet (staged)
    """

    count: int
    total: int
    largest: int
    ends: array[int] | None
    ttl: int | array[int] | None
    cap_ms: int = -1
    born_ms: int = -1

    def size(self, first: int, last: int) -> int:
        """Bytes of a run; adds up over disjoint runs to `total`."""
        if self.ends is None:
            return self.largest * (last - first + 1)
        if self.ends:
            return self.ends[last] - (self.ends[first - 1] if first else 0)
        return self.total * (last + 1) // self.count - self.total * first // self.count

    def expiry(self, ordinal: int) -> int | None:
        """When a message may no longer be delivered; None: never. A ttl of 0 gives `born_ms`."""
        ttl = self.ttl
        if isinstance(ttl, array):
            ttl = ttl[ordinal]
            if ttl == NO_TTL:
                ttl = None
        if self.cap_ms >= 0:
            ttl = self.cap_ms if ttl is None else min(ttl, self.cap_ms)
        return None if ttl is None or self.born_ms < 0 else self.born_ms + ttl

    def stale(self, first: int, last: int, now: int, final: bool) -> int:
        """How many messages of a run have expired, from its first up to one that has not.

        final  a ttl of 0 is over in the millisecond it began; otherwise in the one after, so that
               a consumer that waits gets the message
        """
        if not isinstance(self.ttl, array):
            return last - first + 1 if self._is_stale(first, now, final) else 0
        for ordinal in range(first, last + 1):
            if not self._is_stale(ordinal, now, final):
                return ordinal - first
        return last - first + 1

    def fresh(self, first: int, last: int, now: int) -> int:
        """How many messages of a run have not expired, from its first up to one that has."""
        if not isinstance(self.ttl, array):
            return 0 if self._is_stale(first, now, False) else last - first + 1
        for ordinal in range(first, last + 1):
            if self._is_stale(ordinal, now, False):
                return ordinal - first
        return last - first + 1

    def _is_stale(self, ordinal: int, now: int, final: bool) -> bool:
        expiry = self.expiry(ordinal)
        if expiry is None:
            return False
        return now > expiry or (now == expiry and (final or expiry > self.born_ms))


class Contents:
    """The live blocks of a queue.

    Invariants: every index in `table` has 1 … 2^32 - 1 live messages; `details` ⊆ `table`;
    `expiring` counts the details whose messages can expire
    """

    __slots__ = ("details", "expiring", "table")

    def __init__(self) -> None:
        self.table: dict[int, int] = {}
        self.details: dict[int, Detail] = {}
        self.expiring = 0

    def add(self, index: int, shape: Shape) -> None:
        """A block that is referred to from here on, with all its messages; not yet ready."""
        assert index not in self.table and 0 < shape.count <= _LIVE, (index, shape.count)
        if shape.ends is None and shape.ttl is None and shape.largest <= _LIVE:
            self.table[index] = shape.largest << _SIZE_SHIFT | shape.count
            return
        self.table[index] = shape.count
        self.details[index] = Detail(shape.count, shape.total, shape.largest, shape.ends, shape.ttl)

    def ready_at(self, index: int, time_ms: int, ttl_ms: int | None) -> Detail | None:
        """Its messages become ready: their lives begin. Their detail when they can expire."""
        detail = self.details.get(index)
        if ttl_ms is None and (detail is None or detail.ttl is None):
            return None
        if detail is None:
            packed = self.table[index]
            count, size = packed & _LIVE, packed >> _SIZE_SHIFT
            detail = Detail(count, size * count, size, None, None)
            self.details[index] = detail
            self.table[index] = count
        detail.born_ms = time_ms
        detail.cap_ms = -1 if ttl_ms is None else ttl_ms
        self.expiring += 1
        return detail

    def size(self, index: int, first: int, last: int) -> int:
        """Bytes of bodies and properties of a run; exact for whole blocks, additive for parts."""
        size = self.table[index] >> _SIZE_SHIFT
        if size:
            return size * (last - first + 1)
        detail = self.details.get(index)
        return detail.size(first, last) if detail is not None else 0

    def fitting(self, index: int, first: int, last: int, size_bytes: int) -> int:
        """How many messages from `first` on surely fit into `size_bytes`; at most the run."""
        wanted = last - first + 1
        size = self.table[index] >> _SIZE_SHIFT
        if size:
            return min(wanted, size_bytes // size)
        detail = self.details.get(index)
        if detail is None:
            return wanted
        if detail.ends:
            before = detail.ends[first - 1] if first else 0
            return min(wanted, bisect_right(detail.ends, before + size_bytes) - first)
        if wanted == detail.count and detail.total <= size_bytes:
            return wanted
        return min(wanted, size_bytes // detail.largest) if detail.largest else wanted

    def expiring_detail(self, index: int) -> Detail | None:
        """Its detail when its messages can expire."""
        detail = self.details.get(index)
        return detail if detail is not None and detail.born_ms >= 0 else None

    def drop(self, index: int, count: int) -> None:
        """That many of its messages are referred to no longer; with the last one the block goes."""
        packed = self.table[index]
        live = packed & _LIVE
        assert live >= count > 0, (index, live, count)
        if live > count:
            self.table[index] = packed - count
            return
        del self.table[index]
        if self.details:
            detail = self.details.pop(index, None)
            if detail is not None and detail.born_ms >= 0:
                self.expiring -= 1

    def live(self, index: int) -> int:
        """Messages of a block that are still referred to; 0 when it is not known."""
        return self.table.get(index, 0) & _LIVE

    def dump(self) -> Iterator[Any]:
        """The blocks as plain values, ascending by index."""
        for index in sorted(self.table):
            packed, detail = self.table[index], self.details.get(index)
            if detail is None:
                yield (index, packed)
                continue
            ttl = detail.ttl.tobytes() if isinstance(detail.ttl, array) else detail.ttl
            yield (
                index, packed, detail.count, detail.total, detail.largest,
                None if detail.ends is None else detail.ends.tobytes(), ttl,
                detail.cap_ms, detail.born_ms,
            )

    def load(self, rows: list[Any]) -> None:
        """The inverse of `dump`, into an empty object."""
        for index, packed, *rest in rows:
            self.table[index] = packed
            if not rest:
                continue
            count, total, largest, ends, ttl, cap_ms, born_ms = rest
            self.details[index] = Detail(
                count, total, largest, None if ends is None else array("I", ends),
                array("I", ttl) if isinstance(ttl, bytes) else ttl, cap_ms, born_ms,
            )
            self.expiring += born_ms >= 0
