"""All logs of a node: what its groups append to, and read from."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from warren_raft.storage import quarantine
from warren_raft.storage.background_writer import Janitor
from warren_raft.storage.compaction import Compactor
from warren_raft.storage.entry_index import Places
from warren_raft.storage.errors import EntryDamaged, GroupAlone, LogDamaged, LogNewer
from warren_raft.storage.files import Files
from warren_raft.storage.format import (
    RECORD_HEADER_BYTES,
    Damaged,
    RecordKind,
    decode_entry,
    decode_record,
)
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.identity import Directory, draw_disk, open_directory
from warren_raft.storage.memtable import Memtable
from warren_raft.storage.read_watch import ReadWatch
from warren_raft.storage.recovery import MayHeal, Recovered, recover
from warren_raft.storage.snapshot import Base, Position, Snapshot
from warren_raft.storage.snapshot import decode as decode_snapshot
from warren_raft.storage.snapshot import file_name as snapshot_name
from warren_raft.storage.synced_mark import Marker, Marks
from warren_raft.storage.wal import Job, Place, Wal, file_name
from warren_raft.types import Entry, GroupId, HardState, Index, NodeId, Term

log = logging.getLogger("warren.raft")

OPEN_FILES_MAX = 64


class GroupStore:
    """One group's view of its log: `ports.LogStore`, and what the host does to it.

    born            position of its beginning in the WAL
    snapshot_index  what the newest snapshot on disk holds; 0: there is none
    applied         what the host has applied: final, however the leaders change
    base            what the last snapshot of another member has voided
    incoming_file   the first WAL file with entries of a snapshot that is being received
    retain_from     the first entry that others may still ask for, below the snapshot
    """

    __slots__ = (
        "_healed",
        "_store",
        "_writing",
        "applied",
        "base",
        "born",
        "created",
        "hard_state",
        "incoming_file",
        "log",
        "received",
        "retain_from",
        "snapshot",
        "snapshot_index",
    )

    def __init__(
        self,
        store: LogStore,
        log: GroupLog,
        hard_state: HardState,
        created: bytes,
        born: Position = (0, 0),
        snapshot: Snapshot | None = None,
    ) -> None:
        """snapshot: the one to begin with; `begun` lets go of its bytes."""
        self.log = log
        self.born = born
        self.snapshot = snapshot
        self.snapshot_index: Index = snapshot.index if snapshot is not None else 0
        self.base = snapshot.base if snapshot is not None else Base()
        self.applied: Index = self.snapshot_index
        self.incoming_file: int | None = None
        self.received: list[tuple[Index, Place]] = []
        self.retain_from: Callable[[], Index] | None = None
        self.hard_state = hard_state
        self.created = created
        self._store = store
        self._writing: list[Entry] = []
        self._healed: dict[Index, tuple[Place, Entry]] = {}

    def begun(self) -> None:
        """The machine has its state: the snapshot's bytes are on disk, not in memory."""
        self.snapshot = None

    def adopt(self, taken: Snapshot) -> None:
        """A snapshot of this member's own is on disk: let go of what it made needless."""
        assert self.snapshot_index <= taken.index <= self.applied, (taken.index, self.applied)
        self.snapshot_index = taken.index
        self.drop(taken)

    def drop(self, taken: Snapshot) -> None:
        """Let go of entries up to the snapshot that neither it nor another member needs."""
        log, index = self.log, taken.index
        if self.retain_from is not None:
            index = min(index, max(self.retain_from() - 1, log.first - 1))
        live = taken.live_indexes()
        if index < taken.index:
            live = live.up_to(index)
        log.drop_to(index, live, taken.time_ms)

    # ------------------------------------------------------------ another member's snapshot

    def begin_incoming(self) -> None:
        """A snapshot is going to be received; what came of another one is void."""
        self.received = []
        self.incoming_file = self._store.wal.current_file

    def receive(self, entry: Entry) -> None:
        """A live entry of it, ascending; written with what is submitted next."""
        assert not self.received or self.received[-1][0] < entry.index, entry.index
        self.received.append((entry.index, self._store.wal.live(self.log.group, entry)))

    def incoming_places(self, snapshot: Snapshot, base: Index) -> Places | None:
        """Where the snapshot's live entries stand: up to `base` in this log, then as received.

        None: one of them is not here.
        """
        live = snapshot.live_indexes()
        places = Places()
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
        """What such a snapshot of another member voids here, taken before it is written.

        Files from `incoming_file` on, which is not above `Base.file`, stay until it is installed.
        """
        return Base(self._store.wal.current_file, *self._store.wal.position, snapshot.index)

    def install(self, snapshot: Snapshot, places: Places) -> None:
        """The snapshot, which is on disk, takes the place of the whole log."""
        log = self.log
        log.reset_to(snapshot.index, snapshot.term, snapshot.time_ms)
        log.live_places = places
        self.snapshot_index = self.applied = snapshot.index
        self.base = snapshot.base
        self._store.wal.base(log.group, snapshot.index, snapshot.term)

    def places_here(self, snapshot: Snapshot) -> Places | None:
        """Where the snapshot's live entries stand in this log; None: one of them is not here."""
        try:
            return self.log.pick(snapshot.live_indexes())
        except KeyError:
            return None

    def skip_to(self, snapshot: Snapshot) -> None:
        """The snapshot, which is on disk, takes the place of this log up to an entry in it."""
        self.applied = snapshot.index
        self.adopt(snapshot)

    def end_incoming(self) -> None:
        """Nothing is being received any more."""
        self.received = []
        self.incoming_file = None

    def last_time_ms(self) -> int | None:
        """See ports.LogStore; a snapshot may have replaced the last entry."""
        log = self.log
        try:
            return self.read(log.last).time_ms if log.last >= log.first else log.base_time_ms
        except EntryDamaged:
            return None  # `read` has asked for it

    def live_entry(self, index: Index, term: Term) -> Entry | None:
        """See ports.LogStore."""
        try:
            entry = self.read(index)
        except (KeyError, EntryDamaged):
            return None
        return entry if entry.term == term else None

    def first_index(self) -> Index:
        """See ports.LogStore."""
        return self.log.first

    def last_index(self) -> Index:
        """See ports.LogStore."""
        return self.log.last

    def term(self, index: Index) -> Term:
        """See ports.LogStore."""
        return self.log.term(index)

    def entries(self, first: Index, last: Index, bytes_max: int) -> Sequence[Entry]:
        """See ports.LogStore."""
        found: list[Entry] = []
        size = 0
        for index in range(first, last + 1):
            size += self.log.size(index)
            if found and size > bytes_max:
                break
            try:
                found.append(self.read(index))
            except EntryDamaged:
                break  # `read` has asked for it
        return found

    def configs(self) -> Sequence[tuple[Index, bytes | None]]:
        """See ports.LogStore."""
        found: list[tuple[Index, bytes | None]] = []
        for index in self.log.configs:
            if index > self.snapshot_index:
                try:
                    found.append((index, self.read(index).data))
                except EntryDamaged:
                    found.append((index, None))  # `read` has asked for it
        return found

    def read(self, index: Index) -> Entry:
        """One entry, from memory or disk.

        raises  KeyError when it is not held; EntryDamaged when its bytes are not what they were:
                other members are being asked, see `LogStore.on_damaged`
        """
        entry = self.log.entries.get(index)
        if entry is None:
            entry = self.healed(index)
        if entry is not None:
            return entry
        try:
            return self._store.read_entry(self.log, index)
        except EntryDamaged as damage:
            self._store.is_damaged(damage)
            raise

    # ------------------------------------------------------------ healing

    def heal(self, entry: Entry) -> None:
        """Another member's copy of an entry that is damaged here; for now in memory.

        Its file is rewritten with it. A crash before that finds the damage again.
        """
        self._healed[entry.index] = self.log.place(entry.index), entry

    def healed(self, index: Index) -> Entry | None:
        """The copy that was sent, if the entry still stands where it is damaged."""
        found = self._healed.get(index) if self._healed else None
        if found is None:
            return None
        place, entry = found
        try:
            if self.log.place(index) == place:
                return entry
        except KeyError:
            pass
        del self._healed[index]  # rewritten, replaced or let go of since
        return None

    def healed_in(self, file: int) -> list[Entry]:
        """Copies of entries that are damaged in that file."""
        entries = [self.healed(index) for index in list(self._healed)]
        return [e for e in entries if e is not None and self.log.place(e.index).file == file]

    def append(self, hard_state: HardState | None, entries: Iterable[Entry]) -> None:
        """Add to the write that collects; the entries replace what stands from their index on."""
        log = self.log
        if log.volatile:
            for entry in entries:
                log.append(entry, None)
                log.hold(entry)
            return
        wal = self._store.wal
        if hard_state is not None:
            self.hard_state = hard_state
            wal.hard_state(log.group, hard_state)
        for entry in entries:
            log.append(entry, wal.entry(log.group, entry))
            log.hold(entry)
            self._writing.append(entry)

    def written(self, count: int) -> None:
        """The oldest `count` appended entries are on disk: memory may let go of them."""
        add, log = self._store.memtable.add, self.log
        for entry in self._writing[:count]:
            add(log, entry)
        del self._writing[:count]

    def release_but(self, live: Iterable[Index], up_to: Index) -> None:
        """A volatile log lets go of what the machine does not refer to."""
        self.log.release_but(live, up_to)


class LogStore:
    """The logs of one node, over one directory. Not thread-safe; the WAL has its own thread.

    What nobody needs any more is removed, see `compaction`, and `file_use` for deleted groups.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        cluster: str,
        node: str,
        memtable_bytes: int,
        draw: Callable[[], int] = draw_disk,
        may_heal: MayHeal | None = None,
        peers: Collection[NodeId] = (),
        clock_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """Lock the directory and read its log; raises StorageError.

        draw      see open_directory
        may_heal  which groups other nodes have: what is damaged is set aside, see `salvage`; None,
                  or without `peers` here or in the directory: it is refused
        """
        self.directory: Directory = open_directory(files, path, cluster, node, draw)
        self.files = files
        self.memtable = Memtable(memtable_bytes)
        self.reads = ReadWatch(clock_ms)
        try:
            quarantine.resume(files, self.directory, draw)
            others = bool(peers or self.directory.identity.peers)
            recovered = self._recovered = self._recover(draw, may_heal if others else None)
            self.directory.complete()
            quarantine.report(files, self.directory)
        except BaseException:
            self.directory.close()
            raise
        self.cut = recovered.cut
        if self.cut is not None:
            log.warning(
                "%s: cut a torn end off: %s bytes from byte %s on, which nothing vouched for",
                self.cut[0],
                self.cut[2],
                self.cut[1],
            )
        self.condemned = recovered.condemned
        self.groups: dict[GroupId, GroupStore] = {
            group: GroupStore(
                self, found.log, found.hard_state, found.created, found.born, found.snapshot
            )
            for group, found in sorted(recovered.groups.items())
        }
        self.salts = recovered.salts
        self.use = recovered.use
        self.ends = recovered.ends
        self.segments = recovered.catalog.segments
        self.first_file = recovered.catalog.manifest.first_file
        self.listed = {row.group for row in recovered.catalog.manifest.groups}
        self.paths = {segment.id: segment.data for segment in self.segments}
        self._next_segment = recovered.catalog.next_segment
        self._open_files: OrderedDict[int, int] = OrderedDict()
        self._doomed: dict[GroupId, Path] = {}
        self.on_closed: Callable[[], None] = lambda: None
        self.on_damaged: Callable[[EntryDamaged], bool] = lambda damage: False
        self.wal: Wal
        self.janitor: Janitor
        self.compactor: Compactor
        self.marker: Marker

    def _recover(self, draw: Callable[[], int], may_heal: MayHeal | None) -> Recovered:
        files, directory = self.files, self.directory
        outdated = directory.identity.outdated
        try:
            if outdated:
                raise LogDamaged(directory.path, 0, outdated)
            return recover(files, directory, self.memtable, may_heal)
        except LogNewer:
            raise
        except LogDamaged as damage:
            if may_heal is None or isinstance(damage, GroupAlone):
                raise
            place = quarantine.set_all_aside(files, directory, damage, draw)
            log.critical(
                "%s. Other nodes have what was here: all of it is set aside in %s, and this node "
                "joins its groups again. Check the disk",
                damage.what,
                place,
            )
        self.memtable = Memtable(self.memtable.bytes_max)
        return recover(files, directory, self.memtable)

    def start(
        self,
        post: Callable[[Callable[[], None]], None],
        file_bytes: int,
        at_turn_end: Callable[[Job], None] | None = None,
    ) -> None:
        """Begin to write, into a new file; post, at_turn_end: see Wal."""
        marks = Marks(self.files, self.directory)
        self.wal = Wal(
            self.files,
            self.directory.wal,
            post,
            next_file=self._recovered.next_file,
            next_batch=self._recovered.next_batch,
            file_bytes=file_bytes,
            salts=self.salts,
            link=self._recovered.link,
            mark=marks.write,
            unnamed=self._recovered.unnamed,
            at_turn_end=at_turn_end,
        )
        self.wal.on_batch = self._batch_written
        self.janitor = Janitor(post, self.directory.path)
        self.compactor = Compactor(self, file_bytes)
        self.marker = Marker(marks, self.wal, self.janitor)
        broken, self._recovered.broken = self._recovered.broken, []
        if broken:
            self._set_aside([each.path for each in broken], broken[0])
        del self._recovered

    def recreate(self, group: GroupId, data: bytes) -> GroupStore:
        """Begin a condemned group anew; when that is on disk its damaged files are set aside.

        Until then the next start finds the damage again, and comes here again.
        """
        lost = self.condemned.pop(group)
        log.error("%s. Other members have group %s: it joins them again", lost.damage.what, group)
        store = self.create(group, data)
        self.wal.submit(lambda: self._set_aside(list(lost.paths), lost.damage))
        return store

    def _set_aside(self, paths: list[Path], damage: LogDamaged) -> None:
        if paths:
            self.janitor.run(
                lambda: quarantine.set_aside(self.files, self.directory, paths, damage.what),
                lambda place: log.warning("damaged files are set aside in %s", place),
                lambda error: None,  # no space: the next start comes here again
            )

    def close(self) -> None:
        """End the writing, let go of files and directory."""
        self.janitor.close()
        self.wal.close()
        self.marker.close()
        for fd in self._open_files.values():
            self.files.close(fd)
        self._open_files.clear()
        self.directory.close()

    # ------------------------------------------------------------ groups

    def create(self, group: GroupId, data: bytes, volatile: bool = False) -> GroupStore:
        """A new group's log; its beginning is written with what is appended first."""
        assert group not in self.groups, group
        store = GroupStore(self, GroupLog(group, volatile), HardState(), data)
        self.groups[group] = store
        if not volatile:
            store.born = self.wal.created(group, data)
        return store

    def delete(self, group: GroupId) -> None:
        """Forget a group; its end is written with what is submitted next."""
        store = self.groups.pop(group, None)
        if store is None:
            return
        if not store.log.volatile:
            self.wal.deleted(group)
            if store.snapshot_index:
                self._doomed[group] = self.snapshot_path(store)
        self.memtable.drop(store.log)

    # ------------------------------------------------------------ reading

    def is_damaged(self, damage: EntryDamaged) -> None:
        """That entry cannot be read; raises LogDamaged when nobody else has it."""
        self.compactor.damaged.add(damage.file)
        if not self.on_damaged(damage):
            reason = f"{damage.reason}; entry {damage.index} of group {damage.group} stood there"
            raise LogDamaged(damage.path, damage.offset, reason) from damage

    def healed_in(self, file: int) -> dict[tuple[GroupId, Index], Entry]:
        """Copies, sent by other members, of entries that are damaged in that file."""
        if file not in self.compactor.damaged:
            return {}
        return {
            (number, entry.index): entry
            for number, group in self.groups.items()
            for entry in group.healed_in(file)
        }

    def read_entry(self, log: GroupLog, index: Index) -> Entry:
        """From the disk; raises KeyError when it is not there, EntryDamaged if it is not intact."""
        place = log.place(index)
        path = self.path_of(place.file)
        known = log.term(index) if index >= log.first else 0
        try:
            with self.reads:
                data = self.files.read_at(
                    self._descriptor(place.file), place.offset, RECORD_HEADER_BYTES + place.length
                )
            record = decode_record(self.salts[place.file], data, 0)
            term = known or record.term
            if (record.group, record.index, record.term) != (
                log.group,
                index,
                term,
            ) or record.kind not in (RecordKind.ENTRY, RecordKind.LIVE):
                raise Damaged(f"it is not entry {index} of group {log.group}")
            return decode_entry(record)
        except (Damaged, OSError) as damage:
            raise EntryDamaged(
                path, place.offset, str(damage), log.group, index, known, place.file
            ) from None

    def path_of(self, file: int) -> Path:
        """The data file of a place."""
        return self.paths.get(file) or self.wal_path(file)

    def wal_path(self, file: int) -> Path:
        """A file of the log."""
        return self.directory.wal / file_name(file)

    def snapshot_path(self, group: GroupStore) -> Path:
        """The file of a group's newest snapshot."""
        return self.snapshot_file(group.log.group, group.snapshot_index)

    def snapshot_file(self, group: GroupId, index: Index) -> Path:
        """The file of a snapshot."""
        return self.directory.snapshots / snapshot_name(group, index)

    def remove_later(self, paths: list[Path]) -> None:
        """Remove files that nobody needs, beside the loop."""

        def job() -> None:
            for path in paths:
                if self.files.exists(path):
                    self.files.remove(path)

        if paths:
            self.janitor.run(job, lambda _: None, lambda error: None)

    def read_snapshot(self, group: GroupStore) -> Snapshot:
        """A group's newest snapshot, from disk; raises LogDamaged: another one is to be taken."""
        path = self.snapshot_path(group)
        try:
            with self.reads:
                data = self.files.read(path)
            return decode_snapshot(data)
        except (Damaged, OSError) as damage:
            self.compactor.snapshots_damaged.add(group.log.group)
            raise LogDamaged(path, 0, str(damage)) from None

    def _descriptor(self, file: int) -> int:
        fd = self._open_files.get(file)
        if fd is None:
            if len(self._open_files) >= OPEN_FILES_MAX:
                self.files.close(self._open_files.popitem(last=False)[1])
            fd = self.files.open_read(self.path_of(file))
            self._open_files[file] = fd
        else:
            self._open_files.move_to_end(file)
        return fd

    # ------------------------------------------------------------ files nobody needs

    def new_segment_id(self) -> int:
        """A number for places that no segment of this life has had."""
        self._next_segment += 1
        return self._next_segment - 1

    def forget_file(self, file: int) -> None:
        """Nothing stands there any more; its bytes are about to go."""
        fd = self._open_files.pop(file, None)
        if fd is not None:
            self.files.close(fd)
        self.paths.pop(file, None)
        self.salts.pop(file, None)
        self.ends.pop(file, None)

    def ends_listed(self) -> bool:
        """A group that the manifest tells of was deleted since."""
        return any(group not in self.groups for group in self.listed)

    def _batch_written(self, file: int, groups: set[GroupId], deleted: list[GroupId]) -> None:
        use = self.use
        if file not in use.live:
            use.add_file(file)
        for group in deleted:
            use.end(group)
            path = self._doomed.pop(group, None)
            if path is not None:
                self.remove_later([path])
        use.live[file] |= groups
        if deleted:
            self.remove_unneeded()
        if file < self.wal.current_file:
            self.on_closed()

    def remove_unneeded(self) -> None:
        """Let go of the oldest files of the log if only deleted groups have records in them.

        Not while a cycle reads them; it calls this at its end.
        """
        gone = self.use.unneeded(self.wal.closed_below)
        if gone and not self.compactor.busy:
            self.compactor.drop_oldest(gone)
