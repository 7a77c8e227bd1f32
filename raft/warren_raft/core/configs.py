"""The memberships that a log contains, by index."""

from __future__ import annotations

from collections.abc import Iterable

from warren_raft.core.membership import decode
from warren_raft.types import Index, Membership


class Configs:
    """The memberships of a log: one at its beginning, one per CONFIG entry above that.

    A membership is in effect from the moment its entry is in the log, committed or not (thesis,
    4.1), and no longer when the entry is cut.

    base_index  `base` is in effect from there on: 0, or the index of a snapshot
    hinted      `base` is not the membership as of base_index but only which nodes to listen to: the
                member is joining and has not received a membership yet
    entries     (index, membership), ascending, all above base_index
    missing     indexes of CONFIGs whose bytes were damaged at the start and are not repaired yet
    """

    __slots__ = ("base", "base_index", "entries", "hinted", "missing")

    def __init__(
        self,
        base_index: Index,
        base: Membership,
        hinted: bool,
        found: Iterable[tuple[Index, bytes | None]] = (),
    ) -> None:
        above = [each for each in found if each[0] > base_index]
        self.base_index = base_index
        self.base = base
        self.hinted = hinted
        self.entries: list[tuple[Index, Membership]] = [
            (index, decode(data)) for index, data in above if data is not None
        ]
        self.missing: list[Index] = [index for index, data in above if data is None]

    @property
    def latest(self) -> Membership:
        """The membership in effect."""
        return self.entries[-1][1] if self.entries else self.base

    @property
    def latest_index(self) -> Index:
        """The index of the one in effect; base_index when the log holds no CONFIG above that."""
        return self.entries[-1][0] if self.entries else self.base_index

    @property
    def known(self) -> bool:
        """Whether the one in effect is more than a hint."""
        return bool(self.entries) or not self.hinted

    def at(self, index: Index) -> Membership | None:
        """Return the one as of that entry; None: not known here, see `hinted` and `missing`."""
        assert index >= self.base_index, (index, self.base_index)
        if self.missing and self.missing[0] <= index:
            return None
        for place, membership in reversed(self.entries):
            if place <= index:
                return membership
        return None if self.hinted else self.base

    def append(self, index: Index, membership: Membership) -> None:
        """Record a CONFIG entry that was appended to the log."""
        assert index > self.latest_index, (index, self.latest_index)
        self.entries.append((index, membership))

    def fill(self, found: Iterable[tuple[Index, bytes | None]]) -> None:
        """Add missing CONFIGs that can be read now; those truncated or superseded stay out."""
        for index, data in found:
            if data is not None and index in self.missing:
                self.missing.remove(index)
                self.entries.append((index, decode(data)))
        self.entries.sort(key=lambda each: each[0])

    def truncate_from(self, index: Index) -> bool:
        """Drop those from `index` on; return whether the one in effect was among them."""
        self.missing = [place for place in self.missing if place < index]
        before = len(self.entries)
        while self.entries and self.entries[-1][0] >= index:
            self.entries.pop()
        return len(self.entries) < before

    def forget_below(self, index: Index) -> None:
        """Drop what is needed only for indexes below `index`."""
        self.missing = [place for place in self.missing if place > index]
        while self.entries and self.entries[0][0] <= index:
            self.base_index, self.base = self.entries.pop(0)
            self.hinted = False

    def begin_at(self, index: Index, membership: Membership) -> None:
        """Begin at a snapshot that names its members; the log above `index` stays."""
        self.forget_below(index)
        self.base_index, self.base, self.hinted = index, membership, False

    def reset_to(self, index: Index, membership: Membership) -> None:
        """Begin at a snapshot that names its members and replaces the whole log."""
        self.base_index, self.base, self.hinted = index, membership, False
        self.entries.clear()
        self.missing.clear()

    def check(self) -> None:
        """Assert the class's invariants."""
        places = [index for index, _ in self.entries]
        assert places == sorted(set(places)), places
        assert not places or places[0] > self.base_index, (places, self.base_index)
        assert self.missing == sorted(set(self.missing) - set(places)), (self.missing, places)
