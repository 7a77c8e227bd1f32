"""Where the entries of one page stand on disk."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, compress
from operator import add, itemgetter, sub
from typing import Final

from warren_raft.int_runs import count_of, end_of, is_consecutive, pack, unpack, value
from warren_raft.storage.wal import Place
from warren_raft.types import Index

HEAD: Final = struct.Struct("<BIIQ")
"""Of a page: form, file, offset of the first entry, bytes of all entries' data."""
MIXED: Final = 0
ONE_FILE: Final = 1


class Columns:
    """The entries of one page, unpacked: index, file, offset, length, each as a column.

    Packed: the head, then runs (`warren_raft.int_runs`) of indexes and lengths, then of what lies
    between an entry's end and the next one's record. Neighbours that were written one by one have
    equal gaps, so they cost what their lengths cost. A page of entries of several files, or whose
    offsets do not ascend, has runs of files and offsets instead.
    """

    __slots__ = ("files", "indexes", "lengths", "offsets")

    def __init__(self) -> None:
        self.indexes = array("Q")
        self.files = array("I")
        self.offsets = array("I")
        self.lengths = array("I")

    @classmethod
    def read(cls, page: bytes) -> Columns:
        """The inverse of `packed`."""
        columns = cls()
        form, file, offset, _ = HEAD.unpack_from(page)
        at = HEAD.size
        indexes = unpack(page, at)
        columns.indexes.extend(indexes)
        at = end_of(page, at)
        columns.lengths.extend(unpack(page, at))
        if form == ONE_FILE:
            columns.files = array("I", [file]) * len(indexes)
            columns.offsets.append(offset)
            if len(indexes) > 1:
                gaps = unpack(page, end_of(page, at))
                steps = map(add, columns.lengths, gaps)
                columns.offsets = array("I", accumulate(steps, initial=offset))
            return columns
        at = end_of(page, at)
        columns.files.extend(unpack(page, at))
        columns.offsets.extend(unpack(page, end_of(page, at)))
        return columns

    def packed(self) -> bytes:
        """As a page."""
        total = sum(self.lengths)
        runs = [pack(self.indexes), pack(self.lengths)]
        if self.files.count(self.files[0]) == len(self.files):
            ends = map(add, self.offsets, self.lengths)
            gaps = list(map(sub, self.offsets[1:], ends))
            if not gaps or min(gaps) >= 0:
                if gaps:
                    runs.append(pack(gaps))
                head = HEAD.pack(ONE_FILE, self.files[0], self.offsets[0], total)
                return head + b"".join(runs)
        runs += [pack(self.files), pack(self.offsets)]
        return HEAD.pack(MIXED, 0, 0, total) + b"".join(runs)

    def number(self, index: Index) -> int:
        """Which of them an entry is; raises KeyError."""
        at = bisect_left(self.indexes, index)
        if at == len(self.indexes) or self.indexes[at] != index:
            raise KeyError(index)
        return at

    def place(self, at: int) -> Place:
        """Where one of them stands."""
        return Place(self.files[at], self.offsets[at], self.lengths[at])

    def extend(self, other: Columns) -> None:
        """Those after them."""
        self.indexes.extend(other.indexes)
        self.files.extend(other.files)
        self.offsets.extend(other.offsets)
        self.lengths.extend(other.lengths)

    def part(self, first: int, end: int) -> Columns:
        """Those at first … end - 1."""
        part = Columns()
        part.indexes, part.files = self.indexes[first:end], self.files[first:end]
        part.offsets, part.lengths = self.offsets[first:end], self.lengths[first:end]
        return part

    def where(self, chosen: Sequence[bool]) -> Columns:
        """Those that are chosen."""
        part = Columns()
        part.indexes.extend(compress(self.indexes, chosen))
        part.files.extend(compress(self.files, chosen))
        part.offsets.extend(compress(self.offsets, chosen))
        part.lengths.extend(compress(self.lengths, chosen))
        return part


def run_of(page: bytes) -> bytes:
    """The run of a page's indexes."""
    return page[HEAD.size : end_of(page, HEAD.size)]


def pick(page: bytes, run: bytes) -> bytes:
    """Of a page those entries whose indexes `run` has; nothing when it has none of them."""
    wanted = unpack(run)
    if is_consecutive(page, HEAD.size) and HEAD.unpack_from(page)[0] == ONE_FILE:
        first = value(page, HEAD.size, 0)
        end = first + count_of(page, HEAD.size)
        if len(wanted) > 1 and first <= wanted[0] and wanted[-1] < end:
            return _picked(page, run, itemgetter(*[index - first for index in wanted]))
    chosen = frozenset(wanted)
    columns = Columns.read(page)
    columns = columns.where([index in chosen for index in columns.indexes])
    return columns.packed() if columns.indexes else b""


def _picked(page: bytes, run: bytes, choose: itemgetter[tuple[int, ...]]) -> bytes:
    """The same, from neighbours in one file and without a detour: the loop waits for this."""
    _, file, offset, _ = HEAD.unpack_from(page)
    at = end_of(page, HEAD.size)
    every = unpack(page, at)
    gaps = unpack(page, end_of(page, at))
    lengths = choose(every)
    offsets = choose(list(accumulate(map(add, every, gaps), initial=offset)))
    between = list(map(sub, map(sub, offsets[1:], offsets), lengths))
    head = HEAD.pack(ONE_FILE, file, offsets[0], sum(lengths))
    return b"".join((head, run, pack(lengths), pack(between)))
