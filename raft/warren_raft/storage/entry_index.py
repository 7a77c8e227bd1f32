"""The index of a group's entries on disk, packed by pages of neighbouring entries."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, compress
from operator import add, itemgetter, sub
from typing import Final, TypeAlias

from warren_raft.index_set import PAGE_BITS, Indexes
from warren_raft.int_runs import count_of, end_of, is_consecutive, pack, unpack, value
from warren_raft.storage.wal import Place
from warren_raft.types import Index, Term

HEAD: Final = struct.Struct("<BIIQ")
"""A page's head: form, file, offset of the first entry, bytes of all entries' data."""
MIXED: Final = 0
ONE_FILE: Final = 1
EXACT_PAGES_MAX: Final = 16
"""Pages of which `bytes_of` counts a part entry by entry, the largest; each takes 0.2 ms."""


class Columns:
    """The entries of one page, unpacked: index, file, offset, length, each as a column.

    Packed: the head, then runs (`warren_raft.int_runs`) of indexes and lengths, then of the gaps
    between an entry's end and the next one's record. Neighbours that were written one by one have
    equal gaps, so they take little more than their lengths. A page with entries of several files,
    or with offsets that do not ascend, has runs of files and offsets instead.
    """

    __slots__ = ("files", "indexes", "lengths", "offsets")

    def __init__(self) -> None:
        self.indexes = array("Q")
        self.files = array("I")
        self.offsets = array("I")
        self.lengths = array("I")

    @classmethod
    def read(cls, page: bytes) -> Columns:
        """Invert `packed`."""
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
        """Encode as a page."""
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
        """Return the position of an entry; raises KeyError."""
        at = bisect_left(self.indexes, index)
        if at == len(self.indexes) or self.indexes[at] != index:
            raise KeyError(index)
        return at

    def place(self, at: int) -> Place:
        """Return the place of the entry at a position."""
        return Place(self.files[at], self.offsets[at], self.lengths[at])

    def extend(self, other: Columns) -> None:
        """Append the entries of other columns."""
        self.indexes.extend(other.indexes)
        self.files.extend(other.files)
        self.offsets.extend(other.offsets)
        self.lengths.extend(other.lengths)

    def part(self, first: int, end: int) -> Columns:
        """Return the entries at positions first … end - 1."""
        part = Columns()
        part.indexes, part.files = self.indexes[first:end], self.files[first:end]
        part.offsets, part.lengths = self.offsets[first:end], self.lengths[first:end]
        return part

    def where(self, chosen: Sequence[bool]) -> Columns:
        """Return the entries that are chosen."""
        part = Columns()
        part.indexes.extend(compress(self.indexes, chosen))
        part.files.extend(compress(self.files, chosen))
        part.offsets.extend(compress(self.offsets, chosen))
        part.lengths.extend(compress(self.lengths, chosen))
        return part


def run_of(page: bytes) -> bytes:
    """Return the run of a page's indexes."""
    return page[HEAD.size : end_of(page, HEAD.size)]


def chosen_bytes(indexes: Sequence[int], lengths: Sequence[int], run: bytes) -> int:
    """Return the bytes of data of the entries that are in `run`."""
    return sum(compress(lengths, map(frozenset(unpack(run)).__contains__, indexes)))


def pick(page: bytes, run: bytes) -> bytes:
    """Return a page of those entries that are in `run`; empty when there are none."""
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
    """Pick neighbours in one file without unpacking them to columns: the loop waits for this."""
    _, file, offset, _ = HEAD.unpack_from(page)
    at = end_of(page, HEAD.size)
    every = unpack(page, at)
    gaps = unpack(page, end_of(page, at))
    lengths = choose(every)
    offsets = choose(list(accumulate(map(add, every, gaps), initial=offset)))
    between = list(map(sub, map(sub, offsets[1:], offsets), lengths))
    head = HEAD.pack(ONE_FILE, file, offsets[0], sum(lengths))
    return b"".join((head, run, pack(lengths), pack(between)))


class EntryIndex:
    """File, offset, length by ascending index.

    The newest page is unpacked; of the others only the one that was read last is kept unpacked.
    Invariants: a page is packed in `_pages`, which ascend, or is the newest one, never both;
    `count` and `bytes` are those of all entries
    """

    __slots__ = ("_newest", "_number", "_pages", "_read", "_read_number", "bytes", "count")

    def __init__(self) -> None:
        self._pages: dict[int, bytes] = {}
        self._newest: Columns | None = None
        self._number = -1  # of the newest page
        self._read: Columns | None = None
        self._read_number = -1
        self.count = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self.count

    # ------------------------------------------------------------ adding

    def add(self, index: Index, place: Place) -> None:
        """Append one entry."""
        newest = self._newest
        if newest is None or index >> PAGE_BITS != self._number:
            newest = self._begin(index >> PAGE_BITS)
        assert not newest.indexes or newest.indexes[-1] < index, (newest.indexes[-1], index)
        newest.indexes.append(index)
        newest.files.append(place.file)
        newest.offsets.append(place.offset)
        newest.lengths.append(place.length)
        self.count += 1
        self.bytes += place.length

    def add_rows(
        self, file: int, indexes: array[int], offsets: array[int], lengths: array[int]
    ) -> None:
        """Append many entries of one file."""
        first = 0
        while first < len(indexes):
            page = indexes[first] >> PAGE_BITS
            end = bisect_left(indexes, page + 1 << PAGE_BITS, first)
            columns = Columns()
            columns.indexes.extend(indexes[first:end])
            columns.files = array("I", [file]) * (end - first)
            columns.offsets.extend(offsets[first:end])
            columns.lengths.extend(lengths[first:end])
            self._add_columns(page, columns)
            first = end

    def extend(self, other: EntryIndex) -> None:
        """Append the entries of another index."""
        self._seal()
        for page, data in other._all():
            if page in self._pages:
                self._add_columns(page, Columns.read(data))
                self._seal()
            else:
                assert not self._pages or next(reversed(self._pages)) < page, page
                self._pages[page] = data
                self._count(data, 1)

    def _add_columns(self, page: int, columns: Columns) -> None:
        newest = self._newest if page == self._number else None
        if newest is None:
            newest = self._begin(page)
        assert not newest.indexes or newest.indexes[-1] < columns.indexes[0], page
        newest.extend(columns)
        self.count += len(columns.indexes)
        self.bytes += sum(columns.lengths)

    def _begin(self, page: int) -> Columns:
        """Make that page the newest."""
        self._seal()
        data = self._pages.pop(page, None)
        assert not self._pages or next(reversed(self._pages)) < page, page
        self._newest = Columns() if data is None else Columns.read(data)
        self._number = page
        if page == self._read_number:
            self._read = None
        return self._newest

    def _seal(self) -> None:
        if self._newest is not None:
            if self._newest.indexes:
                self._pages[self._number] = self._newest.packed()
            self._newest, self._number = None, -1

    def _count(self, data: bytes, times: int) -> None:
        self.count += times * count_of(data, HEAD.size)
        self.bytes += times * int(HEAD.unpack_from(data)[3])

    # ------------------------------------------------------------ reading

    def _columns(self, page: int) -> Columns | None:
        if page == self._number:
            return self._newest
        if page != self._read_number or self._read is None:
            data = self._pages.get(page)
            if data is None:
                return None
            self._read, self._read_number = Columns.read(data), page
        return self._read

    def at(self, index: Index) -> Place:
        """Return the place of an entry; raises KeyError."""
        columns = self._columns(index >> PAGE_BITS)
        if columns is None:
            raise KeyError(index)
        return columns.place(columns.number(index))

    def get(self, index: Index) -> Place | None:
        """Return the place of an entry; None: it is not here."""
        try:
            return self.at(index)
        except KeyError:
            return None

    def _all(self) -> Iterator[tuple[int, bytes]]:
        yield from self._pages.items()
        if self._newest is not None and self._newest.indexes:
            yield self._number, self._newest.packed()

    def indexes(self) -> Indexes:
        """Return the indexes of the entries."""
        return Indexes(run_of(data) for _, data in self._all())

    def bytes_after(self, index: Index) -> int:
        """Return the bytes of data of the entries above `index`."""
        page, total = index >> PAGE_BITS, 0
        for number in reversed(self._numbers()):
            if number <= page:
                columns = self._columns(number)
                if number == page and columns is not None:
                    at = bisect_left(columns.indexes, index + 1)
                    total += sum(columns.lengths[at:])
                break
            total += self._page_bytes(number)
        return total

    def _numbers(self) -> list[int]:
        return [*self._pages, self._number] if self._newest is not None else list(self._pages)

    def _page_bytes(self, page: int) -> int:
        if page == self._number and self._newest is not None:
            return sum(self._newest.lengths)
        return int(HEAD.unpack_from(self._pages[page])[3])

    def bytes_of(self, wanted: Indexes) -> int:
        """Return the bytes of data of the `wanted` here; of parts of many pages in proportion.

        1. A page of a queue of Spark is a thousand blocks of 4 MB, some wanted, and settlements.
        2. A snapshot cuts it: what is wanted of it is here, and in the index of what follows.
        3. In proportion both would count all of that, and a gigabyte of dead ones would be none.
        Replayed by tests/raft/storage/test_entry_index.py
        """
        total = 0
        parts: list[tuple[int, int, bytes]] = []
        for page, run in wanted.pages():
            if page == self._number and self._newest is not None:
                total += chosen_bytes(self._newest.indexes, self._newest.lengths, run)
            elif page in self._pages:
                data = self._pages[page]
                size = int(HEAD.unpack_from(data)[3])
                if data.startswith(run, HEAD.size):
                    total += size
                else:
                    parts.append((size, page, run))
        parts.sort(reverse=True)
        for _, page, run in parts[:EXACT_PAGES_MAX]:
            data = self._pages[page]
            lengths = unpack(data, end_of(data, HEAD.size))
            total += chosen_bytes(unpack(data, HEAD.size), lengths, run)
        for size, page, run in parts[EXACT_PAGES_MAX:]:
            count = count_of(self._pages[page], HEAD.size)
            total += size * min(count_of(run), count) // count
        return total

    # ------------------------------------------------------------ removing

    def cut(self, index: Index) -> None:
        """Drop everything from `index` on."""
        page = index >> PAGE_BITS
        for number in reversed(self._numbers()):
            if number < page:
                return
            columns = self._begin(number)
            at = bisect_left(columns.indexes, index)
            gone = columns.part(at, len(columns.indexes))
            self.count -= len(gone.indexes)
            self.bytes -= sum(gone.lengths)
            self._newest = columns.part(0, at)
            if not at:
                self._newest, self._number = None, -1

    def cut_head(self, index: Index) -> None:
        """Drop everything up to `index`."""
        page = index >> PAGE_BITS
        self._seal()
        self._read = None
        for number in self._numbers():
            if number > page:
                return
            data = self._pages[number]
            if number < page:
                self._count(data, -1)
                del self._pages[number]
                continue
            columns = Columns.read(data)
            rest = columns.part(bisect_left(columns.indexes, index + 1), len(columns.indexes))
            self._count(data, -1)
            if not rest.indexes:
                del self._pages[number]
                continue
            self._pages[number] = rest.packed()
            self._count(self._pages[number], 1)

    def pick(self, wanted: Indexes) -> EntryIndex:
        """Return an index of those `wanted` that are here."""
        picked = EntryIndex()
        own = dict(self._all())
        for page, run in wanted.pages():
            data = own.get(page)
            if data is None:
                continue
            if run_of(data) != run:
                data = pick(data, run)
                if not data:
                    continue
            picked._pages[page] = data
            picked._count(data, 1)
        return picked

    # ------------------------------------------------------------ by file

    def _in_file(self, file: int) -> Iterator[Columns]:
        """Iterate over the pages that may have entries of a file."""
        for number, data in list(self._pages.items()):
            form, found, _, _ = HEAD.unpack_from(data)
            if form == MIXED or found == file:
                columns = self._columns(number)
                assert columns is not None, number
                yield columns
        if self._newest is not None:
            yield self._newest

    def tally(self, into: dict[int, list[int]]) -> None:
        """Add to into[file] the number of entries there, and the bytes of their data."""
        for data in self._pages.values():
            form, file, _, size = HEAD.unpack_from(data)
            if form == ONE_FILE:
                found = into.setdefault(file, [0, 0])
                found[0] += count_of(data, HEAD.size)
                found[1] += size
            else:
                _tally_each(Columns.read(data), into)
        if self._newest is not None:
            _tally_each(self._newest, into)

    def rows(self, file: int) -> Columns:
        """Return the entries in that file, ascending."""
        found = Columns()
        for columns in self._in_file(file):
            count = columns.files.count(file)
            if count == len(columns.files):
                found.extend(columns)
            elif count:
                found.extend(columns.where([other == file for other in columns.files]))
        return found

    def move(
        self,
        indexes: array[int],
        old: int,
        befores: array[int],
        new: int,
        afters: array[int],
    ) -> None:
        """Move entries from file `old` at `befores` to file `new` at `afters`; skip others."""
        first = 0
        while first < len(indexes):
            page = indexes[first] >> PAGE_BITS
            end = bisect_left(indexes, page + 1 << PAGE_BITS, first)
            columns = self._columns(page)
            if columns is not None:
                source, target = (old, befores[first:end]), (new, afters[first:end])
                _move(columns, indexes[first:end], source, target)
                if page != self._number:
                    self._pages[page] = columns.packed()
            first = end

    def check(self) -> None:
        """Assert the invariants."""
        assert self._number not in self._pages, self._number
        pages = list(self._all())
        assert [page for page, _ in pages] == sorted({page for page, _ in pages})
        count = size = 0
        for page, data in pages:
            columns = Columns.read(data)
            assert columns.packed() == data, page
            indexes = list(columns.indexes)
            assert indexes == sorted(set(indexes)), page
            assert {index >> PAGE_BITS for index in indexes} == {page}, page
            count += len(indexes)
            size += sum(columns.lengths)
        assert (count, size) == (self.count, self.bytes), (count, self.count, size, self.bytes)


def _tally_each(columns: Columns, into: dict[int, list[int]]) -> None:
    for file, length in zip(columns.files, columns.lengths, strict=True):
        found = into.setdefault(file, [0, 0])
        found[0] += 1
        found[1] += length


Places: TypeAlias = "tuple[int, array[int]]"
"""The number of a file, and offsets in it."""


def _move(columns: Columns, indexes: array[int], source: Places, target: Places) -> None:
    (old, befores), (new, afters) = source, target
    same = columns.indexes == indexes and columns.offsets == befores
    if same and columns.files.count(old) == len(indexes):
        columns.files = array("I", [new]) * len(indexes)
        columns.offsets = array("I", afters)
        return
    for index, before, after in zip(indexes, befores, afters, strict=True):
        try:
            at = columns.number(index)
        except KeyError:
            continue
        if columns.files[at] == old and columns.offsets[at] == before:
            columns.files[at] = new
            columns.offsets[at] = after


class Rows:
    """Entries of one group in one file, as a segment's index lists them.

    terms    0: not known here, only in the record itself
    configs  which of the indexes are CONFIG entries, ascending
    """

    __slots__ = ("configs", "indexes", "lengths", "offsets", "terms")

    def __init__(self) -> None:
        self.configs = array("Q")
        self.indexes = array("Q")
        self.terms = array("Q")
        self.offsets = array("I")
        self.lengths = array("I")

    def __len__(self) -> int:
        return len(self.indexes)

    def add(self, columns: Columns, terms: Iterable[Term]) -> None:
        """Append the entries of columns."""
        self.indexes.extend(columns.indexes)
        self.terms.extend(terms)
        self.offsets.extend(columns.offsets)
        self.lengths.extend(columns.lengths)
