"""A compact sequence of ascending log indexes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, overload

from warren_raft import int_runs
from warren_raft.types import Index

PAGE_BITS: Final = 10
PAGE: Final = 1 << PAGE_BITS
"""Indexes that differ only in their last PAGE_BITS bits are packed into one run."""


class Indexes(Sequence[Index]):
    """Ascending log indexes, immutable; equal sets have equal bytes.

    A page of PAGE consecutive indexes takes 19 bytes; others take one or two bytes each.

    Invariant: one run per page, ascending; every value of a run is in its page
    """

    __slots__ = ("_pages", "_runs", "_starts")

    def __init__(self, runs: Iterable[bytes] = ()) -> None:
        """runs: one per page that is not empty, ascending, as `int_runs.pack` makes them."""
        self._runs = list(runs)
        self._pages: list[int] = []
        self._starts = [0]
        for run in self._runs:
            self._pages.append(int_runs.value(run, 0, 0) >> PAGE_BITS)
            self._starts.append(self._starts[-1] + int_runs.count_of(run))

    @classmethod
    def of(cls, indexes: Iterable[Index]) -> Indexes:
        """Pack indexes, which must ascend."""
        if isinstance(indexes, cls):
            return indexes
        runs: list[bytes] = []
        page: list[Index] = []
        before = -1
        for index in indexes:
            assert index > before, (before, index)
            if page and index >> PAGE_BITS != before >> PAGE_BITS:
                runs.append(int_runs.pack(page))
                page = []
            page.append(index)
            before = index
        if page:
            runs.append(int_runs.pack(page))
        return cls(runs)

    @classmethod
    def read(cls, data: int_runs.Buffer) -> Indexes:
        """Invert `tobytes`; raises int_runs.Unreadable."""
        runs: list[bytes] = []
        at = 0
        before = -1
        while at < len(data):
            end = int_runs.end_of(data, at)
            run = bytes(data[at:end])
            page = int_runs.value(run, 0, 0) >> PAGE_BITS
            last = int_runs.value(run, 0, int_runs.count_of(run) - 1)
            if page <= before or last >> PAGE_BITS != page:
                raise int_runs.Unreadable(f"the run at {at} is not of a page after page {before}")
            runs.append(run)
            before, at = page, end
        return cls(runs)

    def tobytes(self) -> bytes:
        """Return the concatenated runs."""
        return b"".join(self._runs)

    def pages(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over (page, its run), ascending."""
        return zip(self._pages, self._runs, strict=True)

    def page(self, page: int) -> Sequence[Index]:
        """Return the indexes of one page."""
        at = bisect_right(self._pages, page) - 1
        return int_runs.unpack(self._runs[at]) if at >= 0 and self._pages[at] == page else ()

    def up_to(self, index: Index) -> Indexes:
        """Return the indexes that are not above `index`."""
        page = index >> PAGE_BITS
        at = bisect_right(self._pages, page)
        runs = self._runs[:at]
        if runs and self._pages[at - 1] == page:
            kept = [i for i in int_runs.unpack(runs.pop()) if i <= index]
            if kept:
                runs.append(int_runs.pack(kept))
        return Indexes(runs)

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Index]:
        for run in self._runs:
            yield from int_runs.unpack(run)

    @overload
    def __getitem__(self, at: int) -> Index: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Index]: ...
    def __getitem__(self, at: int | slice) -> Index | Sequence[Index]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if at < 0:
            at += len(self)
        if not 0 <= at < len(self):
            raise IndexError(at)
        run = bisect_right(self._starts, at) - 1
        return int_runs.value(self._runs[run], 0, at - self._starts[run])

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and index in self.page(index >> PAGE_BITS)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Indexes):
            return self._runs == other._runs
        if isinstance(other, Sequence):
            return len(self) == len(other) and list(self) == list(other)
        return NotImplemented

    def __repr__(self) -> str:
        return f"Indexes({len(self)} in {len(self._runs)} pages)"
