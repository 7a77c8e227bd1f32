"""One group's log as its member holds it: recent entries in memory, all of them by their place."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from warren_raft.storage.wal import Place
from warren_raft.types import Entry, GroupId, Index, Term


class GroupLog:
    """Entries first … last; an entry is in memory, on disk, or both.

    A place costs 12 bytes per entry, terms one pair per term. In a volatile log there are no
    places; entries that its machine no longer refers to are `released` and read as missing.
    Invariants: first <= last + 1;  a place per index in a log on disk;  term runs ascend in both
    """

    __slots__ = (
        "_files",
        "_lengths",
        "_offsets",
        "_run_starts",
        "_run_terms",
        "bytes_counted",
        "bytes_held",
        "dropped",
        "entries",
        "first",
        "group",
        "last",
        "volatile",
    )  # fmt: skip

    def __init__(self, group: GroupId, volatile: bool = False) -> None:
        self.group = group
        self.first: Index = 1
        self.last: Index = 0
        self.volatile = volatile
        self.entries: dict[Index, Entry] = {}
        self.bytes_held = 0
        self.bytes_counted = 0  # the memtable's: data of its lines for this log
        self.dropped = False
        self._run_starts: list[Index] = []
        self._run_terms: list[Term] = []
        self._files = array("I")
        self._offsets = array("I")
        self._lengths = array("I")

    def append(self, entry: Entry, place: Place | None) -> None:
        """Take an entry, replacing everything from its index on; place: None in a volatile log."""
        index = entry.index
        assert self.first <= index <= self.last + 1, (self.group, self.first, self.last, index)
        if index <= self.last:
            self.truncate(index)
        if not self._run_terms or self._run_terms[-1] != entry.term:
            assert not self._run_terms or self._run_terms[-1] < entry.term, (self.group, entry)
            self._run_starts.append(index)
            self._run_terms.append(entry.term)
        self.last = index
        if place is not None:
            self._files.append(place.file)
            self._offsets.append(place.offset)
            self._lengths.append(place.length)

    def truncate(self, index: Index) -> None:
        """Drop everything from `index` on."""
        assert self.first <= index, (self.group, self.first, index)
        for gone in range(index, self.last + 1):
            self.forget(gone)
        kept = index - self.first
        del self._files[kept:], self._offsets[kept:], self._lengths[kept:]
        while self._run_starts and self._run_starts[-1] >= index:
            self._run_starts.pop()
            self._run_terms.pop()
        self.last = index - 1

    def hold(self, entry: Entry) -> None:
        """Keep an appended entry in memory."""
        self.entries[entry.index] = entry
        self.bytes_held += len(entry.data)

    def forget(self, index: Index) -> None:
        """Keep it in memory no longer."""
        entry = self.entries.pop(index, None)
        if entry is not None:
            self.bytes_held -= len(entry.data)

    def term(self, index: Index) -> Term:
        """Its term, also when the entry itself was released; 0 for index 0."""
        if index == 0:
            return 0
        assert self.first <= index <= self.last, (self.group, self.first, self.last, index)
        return self._run_terms[bisect_right(self._run_starts, index) - 1]

    def place(self, index: Index) -> Place:
        """Where it stands on disk."""
        at = index - self.first
        return Place(self._files[at], self._offsets[at], self._lengths[at])

    def size(self, index: Index) -> int:
        """Its data's bytes, without reading it."""
        entry = self.entries.get(index)
        return len(entry.data) if entry is not None else self._lengths[index - self.first]

    def release_but(self, live: Iterable[Index], up_to: Index) -> None:
        """A volatile log lets go of every entry up to `up_to` that is not among `live`."""
        assert self.volatile, self.group
        keep = set(live)
        for index in [i for i in self.entries if i <= up_to and i not in keep]:
            self.forget(index)

    def drop(self) -> None:
        """The group is gone: hold nothing."""
        self.dropped = True
        self.entries.clear()
        self.bytes_held = 0
        self.last = self.first - 1
        self._run_starts.clear()
        self._run_terms.clear()
        del self._files[:], self._offsets[:], self._lengths[:]

    def check(self) -> None:
        """Assert the invariants."""
        assert self.first <= self.last + 1, (self.first, self.last)
        if not self.volatile:
            assert len(self._files) == self.last - self.first + 1, (len(self._files), self.last)
        assert self._run_starts == sorted(set(self._run_starts)), self._run_starts
        assert self._run_terms == sorted(set(self._run_terms)), self._run_terms
        assert self.bytes_held == sum(len(e.data) for e in self.entries.values())
        assert all(self.first <= i <= self.last for i in self.entries)
