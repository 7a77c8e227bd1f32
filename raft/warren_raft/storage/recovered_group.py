"""The recovery of one group from snapshot, segments and log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from warren_raft.index_set import PAGE_BITS, Indexes
from warren_raft.storage.catalog import Segment
from warren_raft.storage.entry_index import EntryIndex, Rows
from warren_raft.storage.errors import LogDamaged
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.snapshot import Base, Position, Snapshot, file_name
from warren_raft.storage.wal import Place
from warren_raft.types import Entry, HardState, Index


@dataclass(slots=True, eq=False, repr=False)
class RecoveredGroup:
    """A group under recovery: it takes the rows of segments, then the entries of the log.

    damage       entries are missing; raised at the end, because those of a deleted group may be:
                1. The manifest lists the group.  2. It is deleted, a cycle begins to drop its
                segments.  3. A crash before the new manifest: GROUP_DELETED is in the log
    snapshot    the newest; entries up to its index are kept only if it refers to them
    log.live     during recovery: what segments hold
    listed_last the log's end in the manifest: rows above it are ignored. 1. Entries 13 … 16 of a
                leader without majority are in a segment.  2. 13 … 15 of another leader replace
                them, a snapshot covers these, their files are removed.  3. 16 must not reappear
    taken_over  the places of entries that came with another member's snapshot
    missing     a file that the group depends on is missing; later records cannot replace it
    diverged    the log's entry at the snapshot's index differs from the snapshot's, so that what
                follows it does not continue the snapshot. 1. A member holds entries 8, 9, 10 that
                no majority has.  2. It is sent a snapshot up to 9 of a log with another 9.  3. It
                crashes before anything is written after that: 10 must not reappear
    """

    log: GroupLog
    created: bytes
    born: Position
    snapshot: Snapshot | None
    hard_state: HardState = field(default_factory=HardState)
    taken_over: dict[Index, Place] = field(default_factory=dict)
    listed_last: Index | None = None
    diverged: bool = False
    damage: LogDamaged | None = None
    missing: LogDamaged | None = None
    _logged: list[tuple[Index, Place]] = field(default_factory=list)
    _base: Base = field(default_factory=Base)
    _wanted: Indexes = field(default_factory=Indexes)
    _wanted_page: tuple[int, frozenset[Index]] = (-1, frozenset())

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        if snapshot is not None:
            self._base, self._wanted = snapshot.base, snapshot.live_indexes()
            self.log.reset_to(snapshot.index, snapshot.term, snapshot.time_ms)

    def take_rows(self, segment: Segment, rows: Rows) -> None:
        """Take the entries of a segment, as of when its files were retired.

        Entries that a later file replaced may still be among them, and the entries before those may
        be missing in their segment: the later file's rows, or its records, replace all of them.
        """
        log, indexes = self.log, rows.indexes
        end = len(rows)
        if segment.name.last < self._base.file:
            end = bisect_right(indexes, self._base.last)
        if self.listed_last is not None:
            end = min(end, bisect_right(indexes, self.listed_last))
        split = min(bisect_left(indexes, log.first), end)
        places = EntryIndex()
        places.add_rows(segment.id, indexes[:split], rows.offsets[:split], rows.lengths[:split])
        places = places.pick(self._wanted)
        if len(places):
            # A later segment has the later copy: 1. Entry 5 is in a segment.  2. This member falls
            # behind and is sent a snapshot with entry 5: a copy in the log, then in a segment.
            log.live_places.cut(places.indexes()[0])
            log.live_places.extend(places)
        configs = set(rows.configs)
        for at in range(split, end):
            index = indexes[at]
            if index > log.last + 1 or not rows.terms[at]:  # term 0: a removed snapshot had it
                self.damage = LogDamaged(
                    segment.index,
                    0,
                    f"group {log.group} has entry {index} after {log.last}: entries between them "
                    "are missing",
                )
                return
            self.damage = None
            place = Place(segment.id, rows.offsets[at], rows.lengths[at])
            log.append_at(index, rows.terms[at], place, index in configs)

    def _wants(self, index: Index) -> bool:
        page = index >> PAGE_BITS
        if page != self._wanted_page[0]:
            self._wanted_page = page, frozenset(self._wanted.page(page))
        return index in self._wanted_page[1]

    def take(self, entry: Entry, place: Place, path: Path, position: Position) -> None:
        """Take an entry of the log file `path`; position: of its record."""
        log, index, snapshot = self.log, entry.index, self.snapshot
        if index > self._base.last and position < (self._base.batch, self._base.record):
            return
        if index < log.first and snapshot is not None:
            self.diverged = index == snapshot.index and entry.term != snapshot.term
            self._void_tail()
            while self._logged and self._logged[-1][0] >= index:
                self._logged.pop()
            if self._wants(index):
                self._logged.append((index, place))
            return
        if self.diverged:
            return
        if not 0 < index <= log.last + 1:
            self.damage = LogDamaged(
                path,
                place.offset,
                f"group {log.group} has entry {index} after {log.last}: records between "
                "them are missing",
            )
            return
        # 1. Entries 65, 66 are in file 6, 67 is in file 7.  2. A new leader replaces all three, in
        # file 8.  3. Nothing of file 6 is retained, it is retired.  4. A start finds 67 after 64:
        # the records that replaced it follow.
        self.damage = None
        log.append(entry, place)

    def begin_anew(self, index: Index, path: Path, offset: int) -> None:
        """Begin the log again after another member's snapshot, up to `index`, that replaced it.

        What came before is void; the snapshot was on disk, and only a later one replaces it.
        """
        self.diverged = False
        self._void_tail()
        if self.snapshot is None or self.snapshot.index < index:
            self.missing = LogDamaged(
                path,
                offset,
                f"group {self.log.group} had a snapshot up to entry {index} here, which is missing",
            )

    def reflect(self, held: Index, position: Position, path: Path) -> None:
        """Check, after all records that precede the manifest `path`: the log extends to `held`."""
        if self._base.batch and (self._base.batch, self._base.record) >= position:
            return  # replaced by another member's snapshot since
        if self.log.last < held:
            # Not final: rows may have been dropped from their segment since, because later records,
            # which follow now, replaced them. An entry that fits replaces all that is missing.
            self.damage = LogDamaged(
                path,
                0,
                f"group {self.log.group} had {held} entries, and {self.log.last} are here: a "
                "snapshot, or a segment, is missing",
            )

    def _void_tail(self) -> None:
        """Drop everything of the log above the snapshot: it was replaced."""
        self.damage = None
        if self.log.last >= self.log.first:
            self.log.truncate(self.log.first)

    def check_votes(self, directory: Path) -> None:
        """Check at the end that no entry is of a later term than the votes; raises LogDamaged.

        1. A member votes in term 2, and takes entries and a snapshot of it.  2. An older copy of
        the newest file takes its place: the vote is gone, the snapshot is here.
        """
        log = self.log
        last_term = log.term(log.last) if log.last else 0
        if last_term > self.hard_state.term:
            raise LogDamaged(
                directory,
                0,
                f"group {log.group} has entries of term {last_term}, and its votes are known up to "
                f"term {self.hard_state.term}: a file of the log is an older copy",
            )

    def finish(self, directory: Path) -> None:
        """Check at the end that the snapshot's live entries are here; raises LogDamaged."""
        log, snapshot = self.log, self.snapshot
        if self.missing is not None:
            raise self.missing
        if self.damage is not None:
            raise self.damage
        newer = self.taken_over or self._logged
        if snapshot is None or (log.live == self._wanted and not newer):
            return
        logged = dict(self._logged)
        places = EntryIndex()
        for index in self._wanted:
            place = self.taken_over.get(index)
            if place is None:
                place = logged.get(index)  # before a segment's: files are retired in order
            if place is None:
                place = log.live_places.get(index)
            if place is None:
                raise LogDamaged(
                    directory / file_name(log.group, snapshot.index),
                    0,
                    f"it refers to entry {index} of group {log.group}, which is missing",
                )
            places.add(index, place)
        log.live_places = places
