"""One group's log on this node: recent entries in memory, and the place on disk of all."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from warren_raft.index_set import PAGE_BITS, Indexes
from warren_raft.storage.entry_index import EntryIndex, Rows
from warren_raft.storage.format import RECORD_HEADER_BYTES
from warren_raft.storage.wal import Place
from warren_raft.types import Entry, EntryKind, GroupId, Index, Term

ENTRY_OVERHEAD_BYTES = 270
"""Overhead of an entry beside its data: the object, its numbers, its dictionary and queue slots.

Of a settlement of 40 bytes it is most: counted too low, a memtable of them exceeds its bound.
"""


@dataclass(slots=True, eq=False, repr=False)
class GroupLog:
    """Entries first … last, and below `first` those that the group's snapshot refers to.

    An entry is in memory, on disk, or both. A place takes a few bytes (`Columns`), terms one pair
    per term. In a volatile log there are no places; entries that its machine no longer refers to
    are `released` and read as missing.

    base_term, base_time_ms  of entry first - 1, which need not be here; 0, 0 when first is 1
    live_places              the places of the entries below `first`
    configs                  which of first … last are CONFIG entries, ascending
    Invariants: first <= last + 1;  a place per index in a log on disk;  term runs ascend by both;
    everything in `live_places` is below `first`
    """

    group: GroupId
    volatile: bool = False
    first: Index = 1
    last: Index = 0
    base_term: Term = 0
    base_time_ms: int = 0
    entries: dict[Index, Entry] = field(default_factory=dict)
    bytes_held: int = 0
    bytes_counted: int = 0  # the memtable's: bytes of its items of this log
    dropped: bool = False
    configs: list[Index] = field(default_factory=list)
    _run_starts: list[Index] = field(default_factory=list)
    _run_terms: list[Term] = field(default_factory=list)
    _places: EntryIndex = field(default_factory=EntryIndex)
    live_places: EntryIndex = field(default_factory=EntryIndex)

    @property
    def live(self) -> Indexes:
        """The entries below `first`."""
        return self.live_places.indexes()

    def append(self, entry: Entry, place: Place | None) -> None:
        """Take an entry, replacing everything from its index on; place: None in a volatile log."""
        self.append_at(entry.index, entry.term, place, entry.kind is EntryKind.CONFIG)

    def append_at(
        self, index: Index, term: Term, place: Place | None, config: bool = False
    ) -> None:
        """Append an entry by its place and term, without its data."""
        assert self.first <= index <= self.last + 1, (self.group, self.first, self.last, index)
        if index <= self.last:
            self.truncate(index)
        if not self._run_terms or self._run_terms[-1] != term:
            assert not self._run_terms or self._run_terms[-1] < term, (self.group, index, term)
            self._run_starts.append(index)
            self._run_terms.append(term)
        self.last = index
        if config:
            self.configs.append(index)
        if place is not None:
            self._places.add(index, place)

    def truncate(self, index: Index) -> None:
        """Drop everything from `index` on."""
        assert self.first <= index, (self.group, self.first, index)
        for gone in range(index, self.last + 1):
            self.forget(gone)
        self._places.cut(index)
        while self._run_starts and self._run_starts[-1] >= index:
            self._run_starts.pop()
            self._run_terms.pop()
        while self.configs and self.configs[-1] >= index:
            self.configs.pop()
        self.last = index - 1

    def hold(self, entry: Entry) -> None:
        """Keep an appended entry in memory."""
        self.entries[entry.index] = entry
        self.bytes_held += len(entry.data)

    def forget(self, index: Index) -> None:
        """Drop an entry from memory."""
        entry = self.entries.pop(index, None)
        if entry is not None:
            self.bytes_held -= len(entry.data)

    def term(self, index: Index) -> Term:
        """Return an entry's term, also of one that was released, and of first - 1."""
        if index == self.first - 1:
            return self.base_term
        assert self.first <= index <= self.last, (self.group, self.first, self.last, index)
        return self._run_terms[bisect_right(self._run_starts, index) - 1]

    def place(self, index: Index) -> Place:
        """Return an entry's place on disk; raises KeyError."""
        if index >= self.first:
            if index > self.last or self.volatile:
                raise KeyError(index)
            return self._places.at(index)
        return self.live_places.at(index)

    def pick(self, wanted: Indexes) -> EntryIndex:
        """Return the places of those entries; raises KeyError when one is not here."""
        picked = self.live_places.pick(wanted)
        picked.extend(self._places.pick(wanted))
        if len(picked) != len(wanted):
            here = picked.indexes()
            raise KeyError(next(index for index in wanted if index not in here))
        return picked

    def size(self, index: Index) -> int:
        """Return the bytes of an entry's data, without reading it."""
        entry = self.entries.get(index)
        return len(entry.data) if entry is not None else self.place(index).length

    # ------------------------------------------------------------ after a snapshot

    def drop_to(self, index: Index, live: Sequence[Index], time_ms: int) -> None:
        """Drop everything up to `index` that is not in `live` (ascending)."""
        assert not self.volatile, self.group
        assert self.first - 1 <= index <= self.last, (self.first, index, self.last)
        kept = Indexes.of(live)
        assert not kept or kept[-1] <= index, (kept[-1], index)
        self._forget_but(kept, index)
        self.live_places = self.pick(kept)
        self.base_term = self.term(index)
        self.base_time_ms = time_ms
        self._places.cut_head(index)
        del self.configs[: bisect_right(self.configs, index)]
        self.first = index + 1
        if self.last == index:
            self._run_starts.clear()
            self._run_terms.clear()
        else:
            keep = bisect_right(self._run_starts, index + 1) - 1
            del self._run_starts[:keep], self._run_terms[:keep]
            self._run_starts[0] = index + 1

    def reset_to(self, index: Index, term: Term, time_ms: int) -> None:
        """Drop everything: the log begins again after `index`, the end of a snapshot."""
        self.entries.clear()
        self.bytes_held = 0
        self.live_places, self._places = EntryIndex(), EntryIndex()
        self._run_starts.clear()
        self._run_terms.clear()
        self.configs.clear()
        self.first, self.last = index + 1, index
        self.base_term, self.base_time_ms = term, time_ms

    def _forget_but(self, kept: Indexes, up_to: Index) -> None:
        page, keep = -1, frozenset[Index]()
        for index in [i for i in self.entries if i <= up_to]:
            if index >> PAGE_BITS != page:
                page = index >> PAGE_BITS
                keep = frozenset(kept.page(page))
            if index not in keep:
                self.forget(index)

    def tally(self, into: dict[int, list[int]]) -> None:
        """Add to into[file] the number of entries there and the bytes of their data."""
        self.live_places.tally(into)
        self._places.tally(into)

    def held_bytes(self, up_to: Index) -> int:
        """Return about how many bytes the entries up to there take on disk."""
        count = len(self.live_places) + max(0, up_to + 1 - self.first)
        size = self.live_places.bytes + self._places.bytes - self._places.bytes_after(up_to)
        return size + RECORD_HEADER_BYTES * count

    def needed_bytes(self, live: Sequence[Index]) -> int:
        """Return about how many bytes those entries (ascending) take on disk."""
        wanted = Indexes.of(live)
        size = self.live_places.bytes_of(wanted) + self._places.bytes_of(wanted)
        return size + RECORD_HEADER_BYTES * len(wanted)

    def bytes_after(self, index: Index) -> int:
        """Return the bytes of data of the entries after `index` that are here."""
        return self._places.bytes_after(index)

    def rows(self, file: int) -> Rows:
        """Return the entries in that file, ascending."""
        rows = Rows()
        live = self.live_places.rows(file)
        rows.add(live, array("Q", [0]) * len(live.indexes))
        tail = self._places.rows(file)
        rows.add(tail, self._terms_of(tail.indexes))
        if self.configs and tail.indexes:
            here = set(tail.indexes)
            rows.configs.extend([index for index in self.configs if index in here])
        return rows

    def _terms_of(self, indexes: array[int]) -> array[int]:
        """Return the terms of entries from `first` on, ascending: run by run."""
        terms = array("Q")
        run = bisect_right(self._run_starts, indexes[0]) - 1 if indexes else 0
        while len(terms) < len(indexes):
            end = len(indexes)
            if run + 1 < len(self._run_starts):
                end = bisect_left(indexes, self._run_starts[run + 1])
            terms.extend(array("Q", [self._run_terms[run]]) * (end - len(terms)))
            run += 1
        return terms

    def move(self, rows: Rows, old: int, new: int, offsets: array[int]) -> None:
        """Move the rows of file `old` to `new` at these offsets; skip those dropped since."""
        split = bisect_left(rows.indexes, self.first)
        for places, part in (
            (self.live_places, slice(split)),
            (self._places, slice(split, len(rows))),
        ):
            places.move(rows.indexes[part], old, rows.offsets[part], new, offsets[part])

    def release_but(self, live: Iterable[Index], up_to: Index) -> None:
        """Drop every entry of a volatile log up to `up_to` that is not in `live`."""
        assert self.volatile, self.group
        keep = set(live)
        for index in [i for i in self.entries if i <= up_to and i not in keep]:
            self.forget(index)

    def drop(self) -> None:
        """Drop everything: the group is deleted."""
        self.dropped = True
        self.entries.clear()
        self.bytes_held = 0
        self.last = self.first - 1
        self._run_starts.clear()
        self._run_terms.clear()
        self.configs.clear()
        self._places, self.live_places = EntryIndex(), EntryIndex()

    def check(self) -> None:
        """Assert the invariants."""
        assert self.first <= self.last + 1, (self.first, self.last)
        if not self.volatile:
            assert len(self._places) == self.last - self.first + 1, (len(self._places), self.last)
        self._places.check()
        self.live_places.check()
        tail, live = self._places.indexes(), self.live
        assert not tail or (tail[0], tail[-1]) == (self.first, self.last), (tail, self.first)
        assert not live or live[-1] < self.first, (live[-1], self.first)
        assert self._run_starts == sorted(set(self._run_starts)), self._run_starts
        assert self._run_terms == sorted(set(self._run_terms)), self._run_terms
        assert self.bytes_held == sum(len(e.data) for e in self.entries.values())
        assert all(i <= self.last for i in self.entries)
        assert self.configs == sorted(set(self.configs)), self.configs
        assert not self.configs or self.first <= self.configs[0], (self.first, self.configs)
        assert not self.configs or self.configs[-1] <= self.last, (self.last, self.configs)
        assert not self._run_starts or self._run_starts[0] == self.first, self._run_starts
        assert bool(self._run_starts) == (self.last >= self.first), (self.first, self.last)


class Memtable:
    """The recent entries in memory of all groups but volatile ones; the oldest are dropped first.

    `add` is for entries that are on disk. A truncated entry leaves its item, which may drop the
    successor at that index early: that one is then read from disk.
    Invariants: bytes_held counts every item's overhead, and its data unless its group was dropped
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._queue: deque[tuple[GroupLog, Index, int]] = deque()

    def add(self, log: GroupLog, entry: Entry) -> None:
        """Count an entry of `log` that is in memory and on disk now."""
        if log.dropped:
            return
        size = len(entry.data)
        self._queue.append((log, entry.index, size))
        log.bytes_counted += size
        self.bytes_held += size + ENTRY_OVERHEAD_BYTES
        while self.bytes_held > self.bytes_max:
            self._let_go()

    def _let_go(self) -> None:
        log, index, size = self._queue.popleft()
        self.bytes_held -= ENTRY_OVERHEAD_BYTES
        if not log.dropped:
            self.bytes_held -= size
            log.bytes_counted -= size
            log.forget(index)

    def drop(self, log: GroupLog) -> None:
        """Forget a deleted group and its entries."""
        self.bytes_held -= log.bytes_counted
        log.bytes_counted = 0
        log.drop()
