"""The log of one group, for its Raft core and for the host."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from warren_raft.storage.entry_index import EntryIndex
from warren_raft.storage.entry_time import EntryTime
from warren_raft.storage.errors import EntryDamaged
from warren_raft.storage.format import EntryParts
from warren_raft.storage.group_log import GroupLog, Memtable
from warren_raft.storage.log_files import LogFiles
from warren_raft.storage.snapshot import Base, Position, Snapshot
from warren_raft.storage.wal import Place, Wal
from warren_raft.types import Entry, HardState, Index, Term


@dataclass(slots=True, eq=False, repr=False)
class GroupStore:
    """One group's log: `ports.LogReader` for the core, and the host's operations on it.

    born            position of its GROUP_CREATED in the WAL
    snapshot_index  the last entry of the newest snapshot on disk; 0: there is none
    applied         the last entry that the host applied: final, whichever member leads
    base            what the last snapshot of another member has voided
    incoming_file   the first WAL file with entries of a snapshot that is being received
    snapshot        the one to start from; `begun` releases its bytes
    _damage_met     called with each damaged entry that is read, see `LogStore.is_damaged`
    """

    _wal: Wal
    _memtable: Memtable
    _log_files: LogFiles
    _damage_met: Callable[[EntryDamaged], None]
    log: GroupLog
    hard_state: HardState
    created: bytes
    born: Position = (0, 0)
    snapshot: Snapshot | None = None
    snapshot_index: Index = 0
    base: Base = field(default_factory=Base)
    applied: Index = 0
    incoming_file: int | None = None
    received: list[tuple[Index, Place]] = field(default_factory=list)
    _retain_from: Callable[[], Index] | None = None
    _writing: list[Entry] = field(default_factory=list)
    _healed: dict[Index, tuple[Place, Entry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        if snapshot is not None:
            self.snapshot_index, self.base = snapshot.index, snapshot.base
        self.applied = self.snapshot_index

    def begun(self, retain_from: Callable[[], Index]) -> None:
        """Release the snapshot's bytes: the machine has been restored from them.

        retain_from  returns the first entry below a snapshot that others may still request
        """
        self.snapshot = None
        self._retain_from = retain_from

    def adopt(self, taken: Snapshot) -> None:
        """Adopt this member's own snapshot, which is on disk: drop what it made unnecessary."""
        assert self.snapshot_index <= taken.index <= self.applied, (taken.index, self.applied)
        self.snapshot_index = taken.index
        self.drop(taken)

    def drop(self, taken: Snapshot) -> None:
        """Drop entries up to the snapshot that neither it nor another member needs."""
        log, index = self.log, taken.index
        if self._retain_from is not None:
            index = min(index, max(self._retain_from() - 1, log.first - 1))
        live = taken.live_indexes()
        if index < taken.index:
            live = live.up_to(index)
        log.drop_to(index, live, taken.time_ms)

    # ------------------------------------------------------------ another member's snapshot

    def begin_incoming(self) -> None:
        """Prepare to receive a snapshot; a part received of another one is void."""
        self.received = []
        self.incoming_file = self._wal.current_file

    def receive(self, entry: Entry) -> None:
        """Add a live entry of it (ascending); it is written with what is submitted next."""
        assert not self.received or self.received[-1][0] < entry.index, entry.index
        self.received.append((entry.index, self._wal.live(self.log.group, entry)))

    def incoming_places(self, snapshot: Snapshot, base: Index) -> EntryIndex | None:
        """Locate the snapshot's live entries: up to `base` in this log, then as received.

        None: one of them is not here.
        """
        live = snapshot.live_indexes()
        places = EntryIndex()
        split = bisect_right(live, base)
        try:
            for index in live[:split]:
                places.add(index, self.log.place(index))
        except KeyError:
            return None
        if [index for index, _ in self.received] != list(live[split:]):
            return None
        for index, place in self.received:
            places.add(index, place)
        return places

    def voided(self, snapshot: Snapshot) -> Base:
        """Return what such a snapshot of another member voids here; ask before it is written.

        Files from `incoming_file` on, which is not above `Base.file`, stay until it is installed.
        """
        return Base(self._wal.current_file, *self._wal.position, snapshot.index)

    def install(self, snapshot: Snapshot, places: EntryIndex) -> None:
        """Replace the whole log by the snapshot, which is on disk."""
        log = self.log
        log.reset_to(snapshot.index, snapshot.term, snapshot.time_ms)
        log.live_places = places
        self.snapshot_index = self.applied = snapshot.index
        self.base = snapshot.base
        self._wal.base(log.group, snapshot.index, snapshot.term)

    def places_here(self, snapshot: Snapshot) -> EntryIndex | None:
        """Locate the snapshot's live entries in this log; None: one of them is not here."""
        try:
            return self.log.pick(snapshot.live_indexes())
        except KeyError:
            return None

    def skip_to(self, snapshot: Snapshot) -> None:
        """Replace this log up to an entry in it by the snapshot, which is on disk."""
        self.applied = snapshot.index
        self.adopt(snapshot)

    def end_incoming(self) -> None:
        """Forget the snapshot that was being received."""
        self.received = []
        self.incoming_file = None

    def last_time_ms(self) -> int | None:
        """See ports.LogReader; a snapshot may have replaced the last entry."""
        log = self.log
        try:
            return self.read(log.last).time_ms if log.last >= log.first else log.base_time_ms
        except EntryDamaged:
            return None  # `read` has asked for it

    def live_entry(self, index: Index, term: Term) -> Entry | None:
        """See ports.LogReader."""
        try:
            entry = self.read(index)
        except (KeyError, EntryDamaged):
            return None
        return entry if entry.term == term else None

    def first_index(self) -> Index:
        """See ports.LogReader."""
        return self.log.first

    def last_index(self) -> Index:
        """See ports.LogReader."""
        return self.log.last

    def term(self, index: Index) -> Term:
        """See ports.LogReader."""
        return self.log.term(index)

    def entries(self, first: Index, last: Index, bytes_max: int) -> Sequence[Entry]:
        """See ports.LogReader."""
        wanted: list[Index] = []
        size = 0
        for index in range(first, last + 1):
            size += self.log.size(index)
            if wanted and size > bytes_max:
                break
            wanted.append(index)
        found: list[Entry] = []
        for each in self._read_all(wanted):
            if isinstance(each, EntryDamaged):
                break  # `_read_all` has asked for it
            found.append(each if isinstance(each, Entry) else Entry(*each))
        return found

    def configs(self) -> Sequence[tuple[Index, bytes | None]]:
        """See ports.LogReader."""
        found: list[tuple[Index, bytes | None]] = []
        for index in self.log.configs:
            if index > self.snapshot_index:
                try:
                    found.append((index, self.read(index).data))
                except EntryDamaged:
                    found.append((index, None))  # `read` has asked for it
        return found

    def read(self, index: Index) -> Entry:
        """Read one entry from memory or disk.

        raises  KeyError when it is not held; EntryDamaged when its bytes are damaged: other
                members are being asked for it, see `LogCallbacks.damaged`. `Repair.when` calls back
                when to try again
        """
        entry = self._in_memory(index)
        if entry is not None:
            return entry
        try:
            return self._log_files.read_entry(self.log, index)
        except EntryDamaged as damage:
            self._damage_met(damage)
            raise

    def entry_time(self, index: Index) -> EntryTime:
        """Return when an entry was written, or where that is; raises KeyError: it is not held."""
        log, entry = self.log, self._in_memory(index)
        if entry is not None:
            return EntryTime(log.group, index, entry.time_ms)
        place = log.place(index)
        path = self._log_files.path_of(place.file)
        return EntryTime(log.group, index, 0, path, place.offset)

    def read_data(self, indexes: Iterable[Index]) -> Iterator[bytes | EntryDamaged]:
        """Yield the data of entries in that order, from memory, or from disk in few reads.

        A damaged one is yielded as the error that `read` raises, and those beside it are read.
        Raises KeyError at the first that is not held.
        """
        if type(indexes) is tuple and len(indexes) == 1:
            entry = self._in_memory(indexes[0])  # most often: the newest is delivered
            if entry is not None:
                return iter((entry.data,))
        return self._data_of(indexes)

    def _data_of(self, indexes: Iterable[Index]) -> Iterator[bytes | EntryDamaged]:
        for each in self._read_all(indexes):
            if isinstance(each, Entry):
                yield each.data
            else:
                yield each if isinstance(each, EntryDamaged) else each[4]

    def _read_all(self, indexes: Iterable[Index]) -> Iterator[Entry | EntryParts | EntryDamaged]:
        """Yield entries in that order; those that follow each other on disk are read together."""
        on_disk: list[Index] = []
        for index in indexes:
            entry = self._in_memory(index)
            if entry is None:
                on_disk.append(index)
                continue
            if on_disk:
                yield from self._read_disk(on_disk)
                on_disk = []
            yield entry
        yield from self._read_disk(on_disk)

    def _read_disk(self, indexes: list[Index]) -> Iterator[EntryParts | EntryDamaged]:
        for found in self._log_files.read_entries(self.log, indexes):
            if isinstance(found, EntryDamaged):
                self._damage_met(found)
            yield found

    def _in_memory(self, index: Index) -> Entry | None:
        entry = self.log.entries.get(index)
        return entry if entry is not None or not self._healed else self.healed(index)

    # ------------------------------------------------------------ repair

    def heal(self, entry: Entry) -> None:
        """Hold another member's copy of an entry that is damaged here, in memory.

        Its file is rewritten with it. After a crash before that the damage is found again.
        """
        self._healed[entry.index] = self.log.place(entry.index), entry

    def healed(self, index: Index) -> Entry | None:
        """Return the copy that was sent, if the entry's place is still the damaged one."""
        found = self._healed.get(index) if self._healed else None
        if found is None:
            return None
        place, entry = found
        try:
            if self.log.place(index) == place:
                return entry
        except KeyError:
            pass
        del self._healed[index]  # rewritten, replaced or dropped since
        return None

    def healed_in(self, file: int) -> list[Entry]:
        """Return copies of the entries that are damaged in that file."""
        found = [each for each in self._healed.values() if each[0].file == file]
        return [entry for _, entry in found if self.healed(entry.index) is not None]

    def append(self, hard_state: HardState | None, entries: Iterable[Entry]) -> None:
        """Add to the collecting batch; the entries replace the log from their index on."""
        log = self.log
        if log.volatile:
            for entry in entries:
                log.append(entry, None)
                log.hold(entry)
            return
        wal = self._wal
        if hard_state is not None:
            self.hard_state = hard_state
            wal.hard_state(log.group, hard_state)
        for entry in entries:
            log.append(entry, wal.entry(log.group, entry))
            log.hold(entry)
            self._writing.append(entry)

    def written(self, count: int) -> None:
        """Mark the oldest `count` appended entries durable: memory may drop them."""
        add, log = self._memtable.add, self.log
        for entry in self._writing[:count]:
            add(log, entry)
        del self._writing[:count]

    def release_but(self, live: Iterable[Index], up_to: Index) -> None:
        """Drop what the machine does not refer to; for volatile logs."""
        self.log.release_but(live, up_to)
