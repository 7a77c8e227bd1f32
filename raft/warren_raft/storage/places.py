"""Where a run of entries stands on disk, in columns."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from warren_raft.storage.wal import Place
from warren_raft.types import Index, Term


class Places:
    """File, offset, length per entry: 12 bytes each.

    Invariant: the entries of one file stand next to each other, because files are filled, and
    merged, in the order of the entries. So a column is walked by its runs, not by its items.
    """

    __slots__ = ("files", "lengths", "offsets")

    def __init__(self) -> None:
        self.files = array("I")
        self.offsets = array("I")
        self.lengths = array("I")

    def __len__(self) -> int:
        return len(self.files)

    def append(self, place: Place) -> None:
        """One more."""
        self.files.append(place.file)
        self.offsets.append(place.offset)
        self.lengths.append(place.length)

    def extend(self, other: Places) -> None:
        """Those of another run."""
        self.files.extend(other.files)
        self.offsets.extend(other.offsets)
        self.lengths.extend(other.lengths)

    def extend_in(self, file: int, offsets: Iterable[int], lengths: Sequence[int]) -> None:
        """Those of one file."""
        self.files.extend([file] * len(lengths))
        self.offsets.extend(offsets)
        self.lengths.extend(lengths)

    def at(self, position: int) -> Place:
        """One of them."""
        return Place(self.files[position], self.offsets[position], self.lengths[position])

    def cut(self, position: int) -> None:
        """Drop everything from there on."""
        del self.files[position:], self.offsets[position:], self.lengths[position:]

    def cut_head(self, count: int) -> None:
        """Drop the first ones, and give their memory back."""
        self.files = self.files[count:]
        self.offsets = self.offsets[count:]
        self.lengths = self.lengths[count:]

    def move(self, position: int, old: int, before: int, new: int, after: int) -> None:
        """It stands in another file now, unless it is not the one that was meant."""
        if self.files[position] == old and self.offsets[position] == before:
            self.files[position] = new
            self.offsets[position] = after

    def _take(self, positions: Sequence[int]) -> Places:
        taken = Places()
        if isinstance(positions, range) and positions:
            part = slice(positions[0], positions[-1] + 1)
            taken.files = self.files[part]
            taken.offsets = self.offsets[part]
            taken.lengths = self.lengths[part]
            return taken
        taken.files.extend([self.files[at] for at in positions])
        taken.offsets.extend([self.offsets[at] for at in positions])
        taken.lengths.extend([self.lengths[at] for at in positions])
        return taken

    def pick_from(self, first: Index, wanted: Sequence[Index]) -> Places:
        """Of a run that begins at `first` without gaps: those of `wanted`, all of them there."""
        if not wanted:
            return Places()
        if wanted[-1] - wanted[0] + 1 == len(wanted):
            return self._take(range(wanted[0] - first, wanted[-1] + 1 - first))
        return self._take([index - first for index in wanted])

    def pick(self, indexes: array[int], wanted: Sequence[Index]) -> Places:
        """Of a run whose indexes are given: those of `wanted`, all of them there."""
        positions = []
        at = 0
        for index in wanted:
            if indexes[at] != index:
                at = bisect_left(indexes, index, at + 1)
            assert indexes[at] == index, (index, indexes[at])
            positions.append(at)
            at += 1
        return self._take(positions)

    def all_runs(self) -> Iterator[tuple[int, int, int]]:
        """(file, first, last + 1) of every run of positions in one file, in order."""
        files, position, end = self.files, 0, len(self.files)
        while position < end:
            file, step = files[position], 1
            low = position  # known to be in the run; gallop, then halve
            while low + step < end and files[low + step] == file:
                low += step
                step *= 2
            high = min(low + step, end)
            while high - low > 1:
                middle = (low + high) // 2
                if files[middle] == file:
                    low = middle
                else:
                    high = middle
            yield file, position, low + 1
            position = low + 1

    def runs(self, file: int) -> list[tuple[int, int]]:
        """(first, last + 1) of the positions in that file."""
        return [(first, end) for found, first, end in self.all_runs() if found == file]

    def tally(self, into: dict[int, list[int]]) -> None:
        """Add to into[file] how many there are, and the bytes of their data."""
        for file, first, end in self.all_runs():
            found = into.setdefault(file, [0, 0])
            found[0] += end - first
            found[1] += sum(self.lengths[first:end])


class Rows:
    """Entries of one group in one file, as a segment's index lists them.

    terms    0: not known here; the record itself says
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

    def add(
        self, indexes: Iterable[Index], terms: Iterable[Term], places: Places, first: int, end: int
    ) -> None:
        """Those at positions first … end - 1 of `places`."""
        self.indexes.extend(indexes)
        self.terms.extend(terms)
        self.offsets.extend(places.offsets[first:end])
        self.lengths.extend(places.lengths[first:end])
