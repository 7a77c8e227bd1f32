"""What the machine reads from a block: counts, sizes, expiry."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import add, sub
from typing import Final

NO_TTL: Final = 0xFFFFFFFF
"""In a ttl column: this message has none."""


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
