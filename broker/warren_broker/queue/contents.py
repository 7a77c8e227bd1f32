"""What a queue remembers of the blocks it still refers to: how much of each lives, sizes, expiry.

The bytes themselves stay in the log. A block whose messages are all of one size and do not expire
is one integer; others keep what their bytes were measured to be. Blocks that nobody has looked at
for a while are packed, PAGE neighbouring entries together: of a long backlog of small blocks all
but the newest and those being delivered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from warren_broker.queue import pages
from warren_broker.queue.block_index import Detail, Shape
from warren_broker.queue.pages import LIVE, SIZE_SHIFT
from warren_raft.index_set import PAGE_BITS, Indexes
from warren_raft.int_runs import pack, value

FILLED_PAGES_MAX: Final = 2
"""Pages that blocks came into last, unpacked: what is consumed at once is never packed."""
TOUCHED_PAGES_MAX: Final = 128
"""Pages unpacked again because somebody asked: as many as consumers hold messages of."""


class Contents:
    """The live blocks of a queue.

    table    blocks as `pages` has them, of pages that are unpacked
    details  what does not fit into an integer, of blocks in `table`
    count    blocks in all; detailed: those with details; expiring: those of them that can expire

    Which pages are packed shows nowhere: not in answers, not in `dump`.
    Invariants: every block has 1 … 2^32 - 1 live messages; details ⊆ table; a page is packed or its
    blocks are in `table`, never both; a page with blocks in `table` is in `_filled` or `_touched`
    """

    __slots__ = (
        "_filled",
        "_newest",
        "_packed",
        "_touched",
        "count",
        "detailed",
        "details",
        "expiring",
        "table",
    )

    def __init__(self) -> None:
        self.table: dict[int, int] = {}
        self.details: dict[int, Detail] = {}
        self.count = 0
        self.detailed = 0
        self.expiring = 0
        self._packed: dict[int, bytes] = {}
        self._filled: dict[int, None] = {}  # in the order they were begun
        self._touched: dict[int, None] = {}  # in the order they were asked for
        self._newest = -1

    def add(self, index: int, shape: Shape) -> None:
        """A block that is referred to from here on, with all its messages; not yet ready."""
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
        """Its messages become ready: their lives begin. Their detail when they can expire."""
        packed = self._block(index)
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
        """Bytes of bodies and properties of a run; exact for whole blocks, additive for parts."""
        size = self._block(index) >> SIZE_SHIFT
        if size:
            return size * (last - first + 1)
        detail = self.details.get(index)
        return detail.size(first, last) if detail is not None else 0

    def fitting(self, index: int, first: int, last: int, size_bytes: int) -> int:
        """How many messages from `first` on surely fit into `size_bytes`; at most the run."""
        wanted = last - first + 1
        size = self._block(index) >> SIZE_SHIFT
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
        self._block(index)
        detail = self.details.get(index)
        return detail if detail is not None and detail.born_ms >= 0 else None

    def drop(self, index: int, count: int) -> None:
        """That many of its messages are referred to no longer; with the last one the block goes."""
        packed = self._block(index)
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
        """Whether a block is referred to."""
        if index in self.table:
            return True
        packed = self._packed.get(index >> PAGE_BITS)
        return packed is not None and index in pages.blocks(packed)[0]

    # ------------------------------------------------------------ packing

    def _block(self, index: int) -> int:
        """The block, unpacked."""
        try:
            return self.table[index]
        except KeyError:
            self._unpack(index >> PAGE_BITS)
            return self.table[index]

    def _begin(self, page: int) -> None:
        """Blocks come into another page than before."""
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
        self.table.update(zip(*pages.blocks(data), strict=True))
        self.details.update(pages.details(data))
        if page in self._filled:
            return
        self._touched[page] = None
        while len(self._touched) > TOUCHED_PAGES_MAX:
            oldest = next(iter(self._touched))
            del self._touched[oldest]
            if oldest not in self._filled:
                self._pack(oldest)

    def _pack(self, page: int) -> None:
        data = pages.encode(self.table, self.details, page)
        if data:
            self._packed[page] = data
            for index in pages.blocks(data)[0]:
                del self.table[index]
                self.details.pop(index, None)
        if not self.table:
            self.table = {}  # a dictionary never shrinks

    # ------------------------------------------------------------ as a whole

    def dump(self) -> list[bytes]:
        """The pages that have blocks, ascending; equal contents give equal bytes."""
        found = dict(self._packed)
        for page in (*self._filled, *self._touched):
            data = pages.encode(self.table, self.details, page)
            if data:
                found[page] = data
        return [found[page] for page in sorted(found)]

    def load(self, dumped: list[bytes]) -> None:
        """The inverse of `dump`, into an empty object."""
        for data in dumped:
            self._packed[value(data, 0, 0) >> PAGE_BITS] = data
            count, detailed, expiring = pages.census(data)
            self.count += count
            self.detailed += detailed
            self.expiring += expiring

    def indexes(self) -> Indexes:
        """The entries whose blocks these are."""
        found = {page: pages.indexes(data) for page, data in self._packed.items()}
        for page in (*self._filled, *self._touched):
            run = pages.indexes_of(self.table, page)
            if run:
                found[page] = pack(run)
        return Indexes(found[page] for page in sorted(found))

    def rows(self) -> Iterator[tuple[int, int, Detail | None]]:
        """(index, block, detail) of every block, ascending; unpacks nothing for good."""
        for data in self.dump():
            details = pages.details(data)
            for index, block in zip(*pages.blocks(data), strict=True):
                yield index, block, details.get(index)

    def check(self) -> None:
        """Assert the invariants."""
        unpacked = {index >> PAGE_BITS for index in self.table}
        assert unpacked <= {*self._filled, *self._touched}, "unpacked pages that nobody knows of"
        assert unpacked.isdisjoint(self._packed), "a page both packed and not"
        assert all(index in self.table for index in self.details)
        rows = list(self.rows())
        assert self.count == len(rows), (self.count, len(rows))
        details = [detail for _, _, detail in rows if detail is not None]
        assert self.detailed == len(details), (self.detailed, len(details))
        expiring = sum(detail.born_ms >= 0 for detail in details)
        assert self.expiring == expiring, (self.expiring, expiring)
        for page, data in self._packed.items():
            assert {index >> PAGE_BITS for index in pages.blocks(data)[0]} == {page}, page
