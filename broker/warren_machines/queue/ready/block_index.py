"""The blocks that a queue refers to: live messages, sizes and expiry of each.

The bytes themselves stay in the log. A `Shape` is what the machine reads from a block when its
entry is applied. A block of messages of one size that do not expire is kept as one
integer; others keep a `Detail`. Blocks that were not used for a while are packed, PAGE neighbouring
entries together: in a long backlog of small blocks, all but the newest and those being delivered.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from operator import add, sub
from typing import Any, Final

import msgspec

from warren_raft.index_set import PAGE, PAGE_BITS, Indexes
from warren_raft.int_runs import count_of, end_of, pack, unpack, value
from warren_wire.block.layout import TTL_NONE

LIVE: Final = 0xFFFFFFFF
SIZE_SHIFT: Final = 32
"""A block is an integer: size of each message << SIZE_SHIFT | live messages."""
_COLUMN: Final = 1
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes | None, bytes | None]])
_ROWS_DECODER: Final = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw, msgspec.Raw]])
_BYTES_DECODER: Final = msgspec.msgpack.Decoder(bytes | None)
_DETAIL_RUNS: Final = 7
FILLED_PAGES_MAX: Final = 2
"""Pages that received blocks last, kept unpacked: what is consumed at once is never packed."""
TOUCHED_PAGES_MAX: Final = 128
"""Pages unpacked again by a lookup: about as many as consumers hold messages of."""
SEEN_PAGES_MAX: Final = 16_384
"""Packed pages of which is kept what was seen when they were looked at."""
LOOKS_MAX: Final = 256
"""A packed page that is looked at so often is unpacked; less often one block of it is read."""
LOOK_AGAIN: Final = 8
"""So many looks is one at the page that was looked at last: what leaves in order is unpacked soon,
and a client that hops from page to page has none unpacked for each message."""
_WITHIN: Final = PAGE - 1
_ONE: Final = ord("1")
_PROPORTIONAL: Final = array("I")
"""The value of `ends` for a block of messages of similar sizes."""


class Shape(msgspec.Struct, frozen=True, gc=False):
    """What the machine reads from a block when its entry is applied.

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
    """Return the offset column of `count` messages of one size."""
    if not size:
        return bytes(4 * (count + 1))
    return array("I", range(0, size * count + 1, size)).tobytes()


def measure(
    properties: memoryview, bodies: memoryview, exact: bool
) -> tuple[int, int, array[int] | None]:
    """Return (total, largest, ends) from the two offset columns, as bytes of little-endian u32.

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
    """Return the size of every item of an offset column; -1: they differ."""
    last = int.from_bytes(column[-4:], "little")
    size, rest = divmod(last, count)
    return size if not rest and bytes(column) == _even(count, size) else -1


@dataclass(slots=True)
class Detail:
    """The properties of a block that do not fit into one integer.

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
        """Return the bytes of a run; disjoint runs add up to `total`."""
        if self.ends is None:
            return self.largest * (last - first + 1)
        if self.ends:
            return self.ends[last] - (self.ends[first - 1] if first else 0)
        return self.total * (last + 1) // self.count - self.total * first // self.count

    def expiry(self, ordinal: int) -> int | None:
        """Return when a message expires; None: never. A ttl of 0 gives `born_ms`."""
        ttl = self.ttl
        if isinstance(ttl, array):
            ttl = ttl[ordinal]
            if ttl == TTL_NONE:
                ttl = None
        if self.cap_ms >= 0:
            ttl = self.cap_ms if ttl is None else min(ttl, self.cap_ms)
        return None if ttl is None or self.born_ms < 0 else self.born_ms + ttl

    def stale(self, first: int, last: int, now: int, final: bool) -> int:
        """Count the expired messages from the start of a run up to the first that has not expired.

        final  a ttl of 0 ends in the millisecond in which it began; otherwise in the next one, so
               that a consumer that waits gets the message
        """
        if not isinstance(self.ttl, array):
            return last - first + 1 if self._is_stale(first, now, final) else 0
        for ordinal in range(first, last + 1):
            if not self._is_stale(ordinal, now, final):
                return ordinal - first
        return last - first + 1

    def fresh(self, first: int, last: int, now: int, final: bool) -> int:
        """Count the messages from the start of a run up to the first expired one; see `stale`."""
        if not isinstance(self.ttl, array):
            return 0 if self._is_stale(first, now, final) else last - first + 1
        for ordinal in range(first, last + 1):
            if self._is_stale(ordinal, now, final):
                return ordinal - first
        return last - first + 1

    def _is_stale(self, ordinal: int, now: int, final: bool) -> bool:
        expiry = self.expiry(ordinal)
        if expiry is None:
            return False
        return now > expiry or (now == expiry and (final or expiry > self.born_ms))


# ---------------------------------------------------------------- pages
#
# The bytes of a page describe the blocks of PAGE neighbouring entries, as runs in the format of
# `warren_raft.int_runs`, one after another:
#
#     index, live messages, size of each message      of every block that has a live message
#     then, if any of them have details: index, count, total, largest, ttl, cap, born of those,
#     then, if any of these have columns: MessagePack array of (number, ends, ttl column)
#
# ttl is 0: none, 1: a column, else milliseconds + 2; cap and born are milliseconds + 1, 0: none.
# Equal contents give equal bytes: a page is in a snapshot as it is in memory.


def encode_page(table: Mapping[int, int], details: Mapping[int, Detail], page: int) -> bytes:
    """Encode the blocks of a page; return b"" when it has none."""
    found = _indexes_in(table, page)
    if not found:
        return b""
    packed = [table[index] for index in found]
    plain = (
        pack(found),
        pack([block & LIVE for block in packed]),
        pack([block >> SIZE_SHIFT for block in packed]),
    )
    detailed = [index for index in found if index in details] if details else []
    if not detailed:
        return b"".join(plain)
    return b"".join((*plain, pack(detailed), *_detail_runs([details[i] for i in detailed])))


def _indexes_in(table: Mapping[int, int], page: int) -> list[int]:
    """Return the indexes of `table` in a page, ascending."""
    within = range(page << PAGE_BITS, page + 1 << PAGE_BITS)
    if len(table) < len(within):
        return sorted(i for i in table if i in within)
    return [i for i in within if i in table]


def _detail_runs(details: Sequence[Detail]) -> list[bytes]:
    columns = [
        (
            number,
            None if detail.ends is None else detail.ends.tobytes(),
            detail.ttl.tobytes() if isinstance(detail.ttl, array) else None,
        )
        for number, detail in enumerate(details)
        if detail.ends is not None or isinstance(detail.ttl, array)
    ]
    runs = [
        pack([detail.count for detail in details]),
        pack([detail.total for detail in details]),
        pack([detail.largest for detail in details]),
        pack([_ttl(detail) for detail in details]),
        pack([detail.cap_ms + 1 for detail in details]),
        pack([detail.born_ms + 1 for detail in details]),
    ]
    return [*runs, _ENCODER.encode(columns)] if columns else runs


def _ttl(detail: Detail) -> int:
    if detail.ttl is None:
        return 0
    return _COLUMN if isinstance(detail.ttl, array) else detail.ttl + 2


def page_indexes(page: bytes) -> bytes:
    """Return the run of the blocks' indexes."""
    return page[: end_of(page)]


def page_blocks(page: bytes) -> tuple[Sequence[int], list[int]]:
    """Return (indexes, their blocks)."""
    at = end_of(page)
    live = unpack(page, at)
    sizes = unpack(page, end_of(page, at))
    return unpack(page), list(map(_block, sizes, live))


def _block(size: int, live: int) -> int:
    return size << SIZE_SHIFT | live


def page_details(page: bytes) -> dict[int, Detail]:
    """Return the details of the blocks that have any."""
    starts = _starts(page)
    if len(starts) == 4:
        return {}
    columns: dict[int, tuple[bytes | None, bytes | None]] = {}
    if starts[-1] < len(page):
        rows = _DECODER.decode(memoryview(page)[starts[-1] :])
        columns = {number: (ends, ttl) for number, ends, ttl in rows}
    found: dict[int, Detail] = {}
    names, *values = (unpack(page, at) for at in starts[3 : 3 + _DETAIL_RUNS])
    rows_of = zip(names, *values, strict=True)
    for number, (index, count, total, largest, ttl, cap, born) in enumerate(rows_of):
        found[index] = _detail(
            (count, total, largest, ttl, cap, born), *columns.get(number, (None, None))
        )
    return found


def _detail(row: Sequence[int], ends: bytes | None, column: bytes | None) -> Detail:
    count, total, largest, ttl, cap, born = row
    limit: int | array[int] | None = ttl - 2 if ttl > _COLUMN else None
    if column is not None:
        limit = array("I", column)
    measured = None if ends is None else array("I", ends)
    return Detail(count, total, largest, measured, limit, cap - 1, born - 1)


def _starts(page: bytes) -> list[int]:
    """Return the offsets at which the runs begin, and the end of the last one."""
    starts, at = [0], 0
    while at < len(page) and len(starts) <= 3 + _DETAIL_RUNS:
        at = end_of(page, at)
        starts.append(at)
    return starts


def page_census(page: bytes) -> tuple[int, int, int]:
    """Count (blocks, those with details, those of them that can expire)."""
    starts = _starts(page)
    if len(starts) == 4:
        return count_of(page), 0, 0
    born: Sequence[Any] = unpack(page, starts[9])
    return count_of(page), len(born), len(born) - list(born).count(0)


class _PageView:
    """What is known of a page that was looked at, and stays packed.

    left   live messages of the blocks that have lost some since; 0: the block was removed
    gone   blocks that were removed
    looks  so often it was looked at
    """

    __slots__ = ("_bits", "_data", "_starts", "gone", "left", "looks")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._starts = _starts(data)
        self._bits = _bits(unpack(data))
        self.left: dict[int, int] = {}
        self.gone = self.looks = 0

    def has(self, index: int) -> bool:
        """Return whether a block is there."""
        return bool(self._bits >> (index & _WITHIN) & 1) and self.left.get(index) != 0

    def block(self, index: int) -> int:
        """Return a block; raises KeyError."""
        if not self.has(index):
            raise KeyError(index)
        at = _rank(self._bits, index)
        live = self.left.get(index) or value(self._data, self._starts[1], at)
        return _block(value(self._data, self._starts[2], at), live)

    def detail(self, index: int) -> Detail | None:
        """Return a block's detail."""
        data, starts = self._data, self._starts
        if len(starts) == 4:
            return None
        bits = self._bits
        if count_of(data, starts[3]) < count_of(data):
            bits = _bits(unpack(data, starts[3]))
            if not bits >> (index & _WITHIN) & 1:
                return None
        at = _rank(bits, index)
        row = [value(data, start, at) for start in starts[4 : 3 + _DETAIL_RUNS]]
        if starts[-1] < len(data):
            columns = _ROWS_DECODER.decode(memoryview(data)[starts[-1] :])
            place = bisect_left(columns, at, key=lambda each: each[0])
            if place < len(columns) and columns[place][0] == at:
                _, ends, ttl = columns[place]
                return _detail(row, _BYTES_DECODER.decode(ends), _BYTES_DECODER.decode(ttl))
        return _detail(row, None, None)

    @property
    def empty(self) -> bool:
        """Whether all of its blocks were removed."""
        return self.gone == count_of(self._data)

    def leave(self, table: dict[int, int], details: dict[int, Detail]) -> None:
        """Take from the unpacked page what has left it."""
        for index, live in self.left.items():
            if live:
                table[index] = table[index] & ~LIVE | live
            else:
                del table[index]
                details.pop(index, None)


def _bits(indexes: Sequence[int]) -> int:
    """Return bit i for each index with offset i in its page."""
    flags = bytearray(b"0" * PAGE)
    for index in indexes:
        flags[_WITHIN - (index & _WITHIN)] = _ONE
    return int(flags, 2)


def _rank(bits: int, index: int) -> int:
    """Return how many bits are below that of an index."""
    return (bits & (1 << (index & _WITHIN)) - 1).bit_count()


# ---------------------------------------------------------------- index


@dataclass(slots=True, eq=False, repr=False)
class BlockIndex:
    """The live blocks of a queue.

    table    blocks as integers (SIZE_SHIFT), of pages that are unpacked
    details  what does not fit into an integer, of blocks in `table`
    count    blocks in all; detailed: those with details; expiring: those of them that can expire

    Which pages are packed is not observable: neither in results nor in `dump`.
    Invariants: every block has 1 … 2^32 - 1 live messages; details ⊆ table; a page is packed or its
    blocks are in `table`, never both; a page with blocks in `table` is in `_filled` or `_touched`;
    what was seen is of packed pages
    """

    table: dict[int, int] = field(default_factory=dict)
    details: dict[int, Detail] = field(default_factory=dict)
    count: int = 0
    detailed: int = 0
    expiring: int = 0
    _packed: dict[int, bytes] = field(default_factory=dict)
    _filled: dict[int, None] = field(default_factory=dict)  # in the order they were started
    _touched: dict[int, None] = field(default_factory=dict)  # in the order they were looked up
    _newest: int = -1
    _seen: OrderedDict[int, _PageView] = field(default_factory=OrderedDict)  # by their first look
    _looked_at: int = -1

    def add(self, index: int, shape: Shape) -> None:
        """Add a block with all its messages, not yet ready."""
        assert 0 < shape.count <= LIVE, (index, shape.count)
        page = index >> PAGE_BITS
        if page != self._newest:
            self._begin(page)
        assert index not in self.table, index
        self.count += 1
        if shape.ends is None and shape.ttl is None and shape.largest <= LIVE:
            self.table[index] = shape.largest << SIZE_SHIFT | shape.count
            return
        self.table[index] = shape.count
        self.details[index] = Detail(shape.count, shape.total, shape.largest, shape.ends, shape.ttl)
        self.detailed += 1

    def ready_at(self, index: int, time_ms: int, ttl_ms: int | None) -> Detail | None:
        """Start the time to live of a block's messages; return its detail when they can expire."""
        if index not in self.table:
            self._unpack(index >> PAGE_BITS)
        packed = self.table[index]
        detail = self.details.get(index)
        if ttl_ms is None and (detail is None or detail.ttl is None):
            return None
        if detail is None:
            count, size = packed & LIVE, packed >> SIZE_SHIFT
            detail = Detail(count, size * count, size, None, None)
            self.details[index] = detail
            self.detailed += 1
            self.table[index] = count
        detail.born_ms = time_ms
        detail.cap_ms = -1 if ttl_ms is None else ttl_ms
        self.expiring += 1
        return detail

    def size(self, index: int, first: int, last: int) -> int:
        """Return the bytes of a run; exact for whole blocks, additive for parts."""
        size = (self.table.get(index) or self._block(index)) >> SIZE_SHIFT
        if size:
            return size * (last - first + 1)
        detail = self._detail(index)
        return detail.size(first, last) if detail is not None else 0

    def size_each(self, index: int) -> int:
        """Return the size of every message of a block; 0: they differ, or are empty."""
        return self._block(index) >> SIZE_SHIFT

    def fitting(self, index: int, first: int, last: int, size_bytes: int) -> int:
        """Return a lower bound of the messages, from `first` on, that fit into `size_bytes`."""
        wanted = last - first + 1
        size = self._block(index) >> SIZE_SHIFT
        if size:
            return min(wanted, size_bytes // size)
        detail = self._detail(index)
        if detail is None:
            return wanted
        if detail.ends:
            before = detail.ends[first - 1] if first else 0
            return min(wanted, bisect_right(detail.ends, before + size_bytes) - first)
        if wanted == detail.count and detail.total <= size_bytes:
            return wanted
        return min(wanted, size_bytes // detail.largest) if detail.largest else wanted

    def expiring_detail(self, index: int) -> Detail | None:
        """Return a block's detail when its messages can expire."""
        detail = self._detail(index)
        return detail if detail is not None and detail.born_ms >= 0 else None

    def drop(self, index: int, count: int) -> None:
        """Release that many messages of a block; remove the block with its last message."""
        packed = self.table.get(index)
        if packed is None:
            seen = self._look(index >> PAGE_BITS)
            if seen is not None:
                self._drop_packed(seen, index, count)
                return
            packed = self.table[index]
        live = packed & LIVE
        assert live >= count > 0, (index, live, count)
        if live > count:
            self.table[index] = packed - count
            return
        del self.table[index]
        self.count -= 1
        if self.details:
            detail = self.details.pop(index, None)
            if detail is not None:
                self.detailed -= 1
                self.expiring -= detail.born_ms >= 0

    def has(self, index: int) -> bool:
        """Return whether a block is referred to."""
        if index in self.table:
            return True
        page = index >> PAGE_BITS
        return page in self._packed and self._see(page).has(index)

    # ------------------------------------------------------------ packing

    def _block(self, index: int) -> int:
        """Return the block."""
        packed = self.table.get(index)
        if packed is None:
            seen = self._look(index >> PAGE_BITS)
            return self.table[index] if seen is None else seen.block(index)
        return packed

    def _detail(self, index: int) -> Detail | None:
        """Return a block's detail; not to be changed."""
        if not self.detailed:
            return None
        if index not in self.table:
            seen = self._look(index >> PAGE_BITS)
            if seen is not None:
                return seen.detail(index)
        return self.details.get(index)

    def _look(self, page: int) -> _PageView | None:
        """Return what is seen in a packed page, for one block; None: it is unpacked now.

        1. A client holds messages of 4,000 pages, and settles or returns them in any order.  2. If
        the page of each were unpacked, and another one packed, that would be 0.7 ms for each.
        """
        seen = self._see(page)
        seen.looks += LOOK_AGAIN if page == self._looked_at else 1
        self._looked_at = page
        if seen.looks < LOOKS_MAX:
            return seen
        self._unpack(page)
        return None

    def _see(self, page: int) -> _PageView:
        seen = self._seen.get(page)
        if seen is None:
            seen = self._seen[page] = _PageView(self._packed[page])
            if len(self._seen) > SEEN_PAGES_MAX:
                oldest = next(iter(self._seen))
                self._packed[oldest] = self._encoded(oldest)
                del self._seen[oldest]
        return seen

    def _drop_packed(self, seen: _PageView, index: int, count: int) -> None:
        """Release messages of a block in a page that stays packed."""
        live = seen.block(index) & LIVE
        assert live >= count > 0, (index, live, count)
        seen.left[index] = live - count
        if live > count:
            return
        self.count -= 1
        detail = seen.detail(index) if self.detailed else None
        if detail is not None:
            self.detailed -= 1
            self.expiring -= detail.born_ms >= 0
        seen.gone += 1
        if seen.empty:
            page = index >> PAGE_BITS
            del self._packed[page], self._seen[page]

    def _encoded(self, page: int) -> bytes:
        """Return the bytes of a packed page as it is now."""
        data, seen = self._packed[page], self._seen.get(page)
        if seen is None or not seen.left:
            return data
        table, details = dict(zip(*page_blocks(data), strict=True)), page_details(data)
        seen.leave(table, details)
        return encode_page(table, details, page)

    def _begin(self, page: int) -> None:
        """Begin a new page; pack the oldest one."""
        self._newest = page
        self._filled[page] = None
        if page in self._packed:
            self._unpack(page)
        while len(self._filled) > FILLED_PAGES_MAX:
            oldest = next(iter(self._filled))
            del self._filled[oldest]
            if oldest not in self._touched:
                self._pack(oldest)

    def _unpack(self, page: int) -> None:
        data = self._packed.pop(page)
        self.table.update(zip(*page_blocks(data), strict=True))
        self.details.update(page_details(data))
        seen = self._seen.pop(page, None)
        if seen is not None:
            seen.leave(self.table, self.details)
        if page in self._filled:
            return
        self._touched[page] = None
        while len(self._touched) > TOUCHED_PAGES_MAX:
            oldest = next(iter(self._touched))
            del self._touched[oldest]
            if oldest not in self._filled:
                self._pack(oldest)

    def _pack(self, page: int) -> None:
        data = encode_page(self.table, self.details, page)
        if data:
            self._packed[page] = data
            for index in page_blocks(data)[0]:
                del self.table[index]
                self.details.pop(index, None)
        if not self.table:
            self.table = {}  # a dictionary never shrinks

    # ------------------------------------------------------------ as a whole

    def dump(self) -> list[bytes]:
        """Return the pages that have blocks, ascending; equal contents give equal bytes."""
        found = {page: self._encoded(page) for page in self._packed}
        for page in (*self._filled, *self._touched):
            data = encode_page(self.table, self.details, page)
            if data:
                found[page] = data
        return [found[page] for page in sorted(found)]

    def load(self, dumped: list[bytes]) -> None:
        """Load what `dump` returned into an empty object."""
        for data in dumped:
            self._packed[value(data, 0, 0) >> PAGE_BITS] = data
            count, detailed, expiring = page_census(data)
            self.count += count
            self.detailed += detailed
            self.expiring += expiring

    def indexes(self) -> Indexes:
        """Return the entries that hold these blocks."""
        found = {
            page: page_indexes(data) if page not in self._seen else pack(self.in_page(page))
            for page, data in self._packed.items()
        }
        for page in (*self._filled, *self._touched):
            run = _indexes_in(self.table, page)
            if run:
                found[page] = pack(run)
        return Indexes(found[page] for page in sorted(found))

    def in_page(self, page: int) -> Sequence[int]:
        """Return the entries of a page of the log that hold these blocks, ascending."""
        packed, seen = self._packed.get(page), self._seen.get(page)
        if packed is None:
            return _indexes_in(self.table, page)
        found = unpack(packed)
        return found if seen is None or not seen.gone else list(filter(seen.has, found))

    def pages(self) -> list[int]:
        """Return the pages of the log that have blocks, or had some lately, ascending."""
        return sorted({*self._packed, *self._filled, *self._touched})

    def after(self, index: int) -> Iterator[int]:
        """Yield the entries above `index` that hold these blocks, ascending."""
        for page in self.pages():
            if page >= index >> PAGE_BITS:
                yield from (found for found in self.in_page(page) if found > index)

    def newest(self) -> int:
        """Return the newest entry that holds a block; 0: there is none."""
        for page in reversed(self.pages()):
            found = self.in_page(page)
            if found:
                return found[-1]
        return 0

    def rows(self) -> Iterator[tuple[int, int, Detail | None]]:
        """Yield (index, block, detail) of every block, ascending; leaves packed pages packed."""
        for data in self.dump():
            details = page_details(data)
            for index, block in zip(*page_blocks(data), strict=True):
                yield index, block, details.get(index)

    def check(self) -> list[tuple[int, int, Detail | None]]:
        """Assert the invariants; return what `rows` yields."""
        unpacked = {index >> PAGE_BITS for index in self.table}
        assert unpacked <= {*self._filled, *self._touched}, "unpacked pages that are not tracked"
        assert unpacked.isdisjoint(self._packed), "a page both packed and unpacked"
        assert all(index in self.table for index in self.details)
        assert self._seen.keys() <= self._packed.keys(), "seen, and not packed"
        assert not any(seen.empty for seen in self._seen.values()), "an empty page"
        rows = list(self.rows())
        assert self.count == len(rows), (self.count, len(rows))
        details = [detail for _, _, detail in rows if detail is not None]
        assert self.detailed == len(details), (self.detailed, len(details))
        expiring = sum(detail.born_ms >= 0 for detail in details)
        assert self.expiring == expiring, (self.expiring, expiring)
        for page, data in self._packed.items():
            assert {index >> PAGE_BITS for index in page_blocks(data)[0]} == {page}, page
        return rows
