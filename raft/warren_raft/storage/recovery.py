"""Recovery: read manifest, snapshots and segments, then replay the WAL files that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from warren_raft.storage import file_chain, manifest, synced_mark
from warren_raft.storage.catalog import Catalog, Segment, damaged, read_catalog, reading
from warren_raft.storage.errors import GroupAlone, LogDamaged
from warren_raft.storage.files import Files
from warren_raft.storage.format import (
    FIRST_RECORD,
    Damaged,
    Head,
    Link,
    OtherVersion,
    Record,
    RecordKind,
    decode_entry,
    decode_head,
    decode_record,
)
from warren_raft.storage.group_log import GroupLog, Memtable
from warren_raft.storage.identity import Directory
from warren_raft.storage.recovered_group import RecoveredGroup
from warren_raft.storage.segment import SegmentIndex
from warren_raft.storage.wal import LogEnd, Place, file_name, file_number
from warren_raft.types import GroupId, HardState

MayHeal = Callable[[GroupId, bytes], bool]
"""Whether other members have that group, according to its GROUP_CREATED: (group, created)."""


class FileUse:
    """The existing groups with records in each WAL file that must be replayed."""

    __slots__ = ("live",)

    def __init__(self) -> None:
        self.live: dict[int, set[GroupId]] = {}

    def add_file(self, file: int) -> None:
        """Add a file."""
        self.live.setdefault(file, set())

    def mention(self, file: int, group: GroupId) -> None:
        """Record that the file has a record of that group."""
        self.live[file].add(group)

    def end(self, group: GroupId) -> None:
        """Drop a group that was deleted: its records are void."""
        for groups in self.live.values():
            groups.discard(group)

    def unneeded(self, current: int) -> list[int]:
        """Return the oldest files, below `current`, without a record of an existing group.

        Only from the oldest on: numbers are without gaps, so that a missing file is detected.
        """
        gone: list[int] = []
        for file in sorted(self.live):
            if file >= current or self.live[file]:
                break
            gone.append(file)
        return gone

    def remove(self, file: int) -> None:
        """Forget a file."""
        del self.live[file]


@dataclass(frozen=True, slots=True)
class Condemned:
    """A group with damaged data: it starts with an empty log, and other members repair it.

    paths  files of this group only, to be set aside
    """

    created: bytes
    damage: LogDamaged
    paths: tuple[Path, ...]


@dataclass(slots=True)
class Recovered:
    """The result of recovery.

    use    the groups with records in each log file that must be replayed
    salts  per file, for reading it later; ends: where its records end
    link   the next file's link to the newest one
    unnamed  (number, end, salt) of the newest file, which is marked again before the next one is
           begun; None: there is no file
    cut    (file, offset, bytes) of the torn tail that was cut, for the log line
    condemned  groups that cannot be recovered; the others can
    broken   damaged snapshots that nothing rests on
    reflected  every record that the manifest covers was read
    orphans  groups with records but no beginning, and where: their end must follow, because a
             file that held the beginning is removed only once the end is on disk
    """

    catalog: Catalog = field(default_factory=Catalog)
    manifest: Path = Path(manifest.NAME)
    groups: dict[GroupId, RecoveredGroup] = field(default_factory=dict)
    use: FileUse = field(default_factory=FileUse)
    salts: dict[int, int] = field(default_factory=dict)
    next_file: int = 1
    next_batch: int = 1
    link: Link = field(default_factory=lambda: Link(0))
    ends: dict[int, int] = field(default_factory=dict)
    unnamed: tuple[int, int, int] | None = None
    cut: tuple[Path, int, int] | None = None
    orphans: dict[GroupId, tuple[Path, int]] = field(default_factory=dict)
    condemned: dict[GroupId, Condemned] = field(default_factory=dict)
    broken: list[LogDamaged] = field(default_factory=list)
    reflected: bool = False

    def reflect(self) -> None:
        """Check the groups against the manifest, before the records written after it are read.

        1. The snapshot of a group up to 9 is on disk, what it made unnecessary was removed; by the
        manifest its log ends with 9.  2. The snapshot's file is lost.  3. The log has nothing of
        the group any more: it would start with an empty log, and with the vote that it gave.
        """
        if self.reflected:
            return
        self.reflected = True
        found = self.catalog.manifest
        for row in found.groups:
            group = self.groups.get(row.group)
            if group is not None:
                group.reflect(row.held, found.position, self.manifest)

    def log_end(self) -> LogEnd:
        """Return how the log ends."""
        return LogEnd(
            self.next_file, self.next_batch, self.salts, self.ends, self.link, self.unnamed
        )


def recover(
    files: Files, directory: Directory, memtable: Memtable, may_heal: MayHeal | None = None
) -> Recovered:
    """Read everything; then cut the torn tail of the newest file and remove what a crash left.

    memtable  holds the newest entries afterwards
    may_heal  which groups may be condemned; None: none
    raises    LogDamaged; nothing was changed then
    """
    recovered = Recovered(read_catalog(files, directory), directory.path / manifest.NAME)
    catalog = recovered.catalog
    for row in catalog.manifest.groups:
        found = _begin(recovered, row.group, row.created, row.born)
        found.hard_state = HardState(row.term, row.vote or None)
        found.listed_last = row.last
    for segment, index in zip(catalog.segments, catalog.rows, strict=True):
        _take_segment(recovered, segment, index)
    catalog.rows.clear()
    cut = _read_log(files, directory, memtable, recovered)
    for group, (path, offset) in sorted(recovered.orphans.items()):
        raise LogDamaged(
            path, offset, f"group {group} has records here, but its beginning is missing"
        )
    _condemn(directory, recovered, memtable, may_heal)
    if cut is not None:
        files.cut(cut[0], cut[1])
        recovered.cut = cut
    _clean(files, directory, recovered)
    return recovered


def _read_log(
    files: Files, directory: Directory, memtable: Memtable, recovered: Recovered
) -> tuple[Path, int, int] | None:
    """Read the files of the log that must be replayed; return what is to be cut off."""
    catalog = recovered.catalog
    first_file, position = catalog.manifest.first_file, catalog.manifest.position
    present = [n for n in map(file_number, files.names(directory.wal)) if n is not None]
    numbers = sorted(number for number in present if number >= first_file)
    _settle(files, directory, directory.wal / file_name(numbers[-1]) if numbers else None)
    heads = {number: _head(files, directory, number) for number in numbers}
    marks = synced_mark.read_both(files, directory)
    links = file_chain.verify(directory, heads, first_file, marks)
    recovered.ends.update(links.ends)
    cut: tuple[Path, int, int] | None = None
    end = 0
    for number in numbers:
        file = _File(files, directory.wal, heads[number], recovered, memtable)
        file.end = links.ends.get(number)
        file.synced = links.synced if number == numbers[-1] else 0
        cut = file.read(number == numbers[-1])
        end = file.offset
    if numbers and recovered.next_batch < position[0] + (position[1] > 0):
        raise LogDamaged(
            directory.wal / file_name(numbers[-1]),
            end,
            f"the log ends before batch {recovered.next_batch}, and {manifest.NAME} covers "
            f"batch {position[0]}",
        )
    recovered.reflect()
    ends = [segment.name.last for segment in catalog.segments]
    recovered.next_file = max([*present, *ends, first_file - 1, 0]) + 1
    recovered.next_batch = max(recovered.next_batch, position[0] + 1)
    disk = int(directory.identity.disk, 16)
    recovered.link = links.link(disk, recovered.next_file, end)
    if numbers:
        # Also when a mark names it: 1. A process overwrites its marks, and is killed before that is
        # synced.  2. The next process reads them, and begins a file.  3. The power fails: the marks
        # on the disk are the older ones, and two files are ahead of them.
        recovered.unnamed = (numbers[-1], end, heads[numbers[-1]].salt)
        recovered.ends[numbers[-1]] = end
    return cut


def _head(files: Files, directory: Directory, number: int) -> Head:
    path = directory.wal / file_name(number)
    fd = files.open_read(path)
    try:
        with reading(path):
            head = decode_head(files.read_at(fd, 0, FIRST_RECORD))
    except Damaged as damage:
        raise damaged(path, 0, damage) from None
    finally:
        files.close(fd)
    if head.number != number:
        raise LogDamaged(path, 16, f"this is file {head.number} under another name")
    return head


def _settle(files: Files, directory: Directory, newest: Path | None) -> None:
    """Sync the directory and the newest file before they are read, and drop the page cache.

    1. A batch is written, and the process is killed before its sync, or ends because that failed.
    2. The next process reads it from the page cache, and acknowledges it.  3. The power fails, and
    the batch is lost. After a failed sync the kernel takes the batch for written: so its cached
    pages are dropped.
    """
    for path in (directory.wal, directory.segments, directory.snapshots, directory.path):
        files.sync_directory(path)
    if newest is not None:
        fd = files.open_read(newest)
        try:
            files.sync_data(fd)
            files.drop_cached(fd, 0, files.size(newest))
        finally:
            files.close(fd)


def _condemn(
    directory: Directory, recovered: Recovered, memtable: Memtable, may_heal: MayHeal | None
) -> None:
    """Separate the groups that lost data; raises LogDamaged if no other member has it."""
    catalog = recovered.catalog
    for group, damage in sorted(_lost(directory, recovered, may_heal).items()):
        found = recovered.groups.pop(group)
        if may_heal is None:
            raise damage
        if not may_heal(group, found.created):
            raise GroupAlone(damage.path, damage.offset, damage.reason, group)
        memtable.drop(found.log)
        paths = [each.path for _, each in catalog.broken.get(group, ())]
        paths += [path for path, _ in catalog.snapshots.pop(group, ())]
        recovered.condemned[group] = Condemned(found.created, damage, tuple(paths))


def _lost(
    directory: Directory, recovered: Recovered, may_heal: MayHeal | None
) -> dict[GroupId, LogDamaged]:
    lost: dict[GroupId, LogDamaged] = {}
    for group, found in recovered.groups.items():
        try:
            found.finish(directory.snapshots)
            found.check_votes(directory.wal)
        except LogDamaged as damage:
            lost[group] = damage
    for group, broken in sorted(recovered.catalog.broken.items()):
        there = recovered.groups.get(group)
        newest = None if there is None else there.snapshot
        last, newest_damage = max(broken, key=lambda each: each[0])
        if there is not None and (newest is None or newest.index <= last):
            lost[group] = newest_damage
        elif may_heal is None:
            raise newest_damage
        else:
            recovered.broken += [each for _, each in broken]
    return lost


def _begin(
    recovered: Recovered, group: GroupId, created: bytes, born: tuple[int, int]
) -> RecoveredGroup:
    snapshot = recovered.catalog.snapshot_of(group, born)
    found = recovered.groups[group] = RecoveredGroup(GroupLog(group), created, born, snapshot)
    return found


def _take_segment(recovered: Recovered, segment: Segment, index: SegmentIndex) -> None:
    recovered.salts[segment.id] = index.salt
    for group, born, rows in index.groups:
        found = recovered.groups.get(group)
        if found is not None and found.born == born:
            found.take_rows(segment, rows)


def _clean(files: Files, directory: Directory, recovered: Recovered) -> None:
    """Remove what a crash left: it is superseded, or was never finished."""
    leftovers = list(recovered.catalog.leftovers)
    names = files.names(directory.wal)
    leftovers += [directory.wal / name for name in names if name.endswith(".wal.new")]
    for group, snapshots in recovered.catalog.snapshots.items():
        found = recovered.groups.get(group)
        used = found.snapshot if found is not None else None
        leftovers += [path for path, snapshot in snapshots if snapshot is not used]
    for path in leftovers:
        files.remove(path)


class _File:
    """One file being read."""

    def __init__(
        self, files: Files, directory: Path, head: Head, recovered: Recovered, memtable: Memtable
    ) -> None:
        self.head = head
        self.number = head.number
        self.path = directory / file_name(head.number)
        self.into = recovered
        self.memtable = memtable
        with reading(self.path):
            self.data = memoryview(files.read(self.path))
        self.ended = True  # whether the last record's batch has its BATCH_END
        self.position = (0, 0)
        self.offset = FIRST_RECORD
        self.end: int | None = None  # where its records end; None: not known
        self.synced = 0  # the bytes known to have been on disk

    def read(self, newest: bool) -> tuple[Path, int, int] | None:
        """Take every record; return what is to be cut off."""
        if self.head.batch < self.into.next_batch:
            raise LogDamaged(
                self.path,
                24,
                f"it begins with batch {self.head.batch}, after {self.into.next_batch - 1}",
            )
        self.into.next_batch = self.head.batch
        salt = self.into.salts[self.number] = self.head.salt
        self.into.use.add_file(self.number)
        size = len(self.data)
        if self.end is not None:
            if size < self.end:
                raise LogDamaged(
                    self.path, size, f"it ends here; it had {self.end} bytes when it was complete"
                )
            size = self.end
            self.data = self.data[:size]
        while self.offset < size:
            try:
                record = decode_record(salt, self.data, self.offset)
            except Damaged as damage:
                if not newest or isinstance(damage, OtherVersion):
                    raise damaged(self.path, self.offset, damage) from None
                self._refuse_unless_torn(salt, self.offset, str(damage))
                return None if self._unused() else (self.path, self.offset, size - self.offset)
            self._take(record)
            self.offset = record.end
        if size < self.synced:
            raise LogDamaged(self.path, size, f"it ends here; it had {self.synced} bytes on disk")
        return None

    def _unused(self) -> bool:
        """Return whether what follows the records is allocated space without records of this file.

        It holds zeros, or what the space was used for before: records with another salt.
        """
        rest = bytes(self.data[self.offset :])
        return self.head.link.reserved > 0 and self.head.tag not in rest

    def _refuse_unless_torn(self, salt: int, offset: int, damage: str) -> None:
        if offset < self.synced:
            raise LogDamaged(
                self.path,
                offset,
                f"{damage}; {self.synced} bytes of it were on disk, so this is no torn end",
            )
        # A write that a crash cut short leaves any mixture of its parts on the disk, so valid
        # records may follow a hole. But batch n + 1 is only written after the sync of batch n has
        # returned: a valid record of a batch after the damaged one proves that the damaged bytes
        # were on disk once, and this node may have acknowledged them.
        # Replayed by tests/raft/storage/test_recovery.py
        damaged_batch = self.into.next_batch if self.ended else self.into.next_batch - 1
        position = offset
        whole = bytes(self.data)
        while (position := whole.find(self.head.tag, position + 1)) >= 0:
            try:
                later = decode_record(salt, self.data, position)
            except Damaged:
                continue
            if later.batch > damaged_batch:
                raise LogDamaged(
                    self.path,
                    offset,
                    f"{damage}; a later write, at byte {position}, is whole, so this is no torn "
                    "end",
                )

    def _take(self, record: Record) -> None:
        expected = self.into.next_batch if self.ended else self.into.next_batch - 1
        if record.batch != expected:
            raise LogDamaged(
                self.path, record.offset, f"a record of batch {record.batch}, not of {expected}"
            )
        if record.batch != self.position[0]:
            self.position = (record.batch, 0)
        if self.position >= self.into.catalog.manifest.position:
            self.into.reflect()
        self.into.next_batch = record.batch + 1
        self.ended = record.kind is RecordKind.BATCH_END
        if not self.ended:
            if record.kind not in TAKE:
                raise LogDamaged(self.path, record.offset, "a LINK among a file's records")
            TAKE[record.kind](self, record)
        self.position = (record.batch, self.position[1] + 1)

    def _reflected(self) -> bool:
        """Return whether the manifest was written later than this record."""
        return self.position < self.into.catalog.manifest.position

    def _group(self, record: Record) -> RecoveredGroup | None:
        found = self.into.groups.get(record.group)
        if found is None and self._reflected():
            return None  # the group was deleted before the manifest was written
        if found is not None and self.position < found.born:
            return None  # of an earlier group of that number
        self.into.use.mention(self.number, record.group)
        if found is None:
            self.into.orphans.setdefault(record.group, (self.path, record.offset))
        return found

    def _entry(self, record: Record) -> None:
        group = self._group(record)
        if group is None:
            return
        try:
            entry = decode_entry(record)
        except Damaged as damage:
            raise damaged(self.path, record.offset, damage) from None
        place = Place(self.number, record.offset, len(record.data))
        group.take(entry, place, self.path, self.position)
        if group.log.first <= entry.index == group.log.last:
            group.log.hold(entry)
            self.memtable.add(group.log, entry)

    def _live(self, record: Record) -> None:
        group = self._group(record)
        if group is not None:
            place = Place(self.number, record.offset, len(record.data))
            group.taken_over[record.index] = place

    def _base(self, record: Record) -> None:
        group = self._group(record)
        if group is not None:
            group.begin_anew(record.index, self.path, record.offset)

    def _hard_state(self, record: Record) -> None:
        group = self._group(record)
        if group is None:
            return
        # The manifest may know a later one than this record: terms only ascend, and within a term
        # a vote is given once.
        vote = bytes(record.data).decode() if len(record.data) else None
        if (record.term, vote or "") >= (group.hard_state.term, group.hard_state.vote or ""):
            group.hard_state = HardState(record.term, vote)

    def _created(self, record: Record) -> None:
        found = self.into.groups.get(record.group)
        if found is not None and self.position <= found.born:
            if self.position == found.born:
                self.into.use.mention(self.number, record.group)
            return
        if found is None and self._reflected():
            return
        if found is not None:  # it was condemned, and created again: its earlier records are void
            self.memtable.drop(found.log)
            self.into.use.end(record.group)
        self.into.orphans.pop(record.group, None)
        self.into.use.mention(self.number, record.group)
        _begin(self.into, record.group, bytes(record.data), self.position)

    def _deleted(self, record: Record) -> None:
        if self._reflected():
            return
        gone = self.into.groups.pop(record.group, None)
        if gone is not None:
            self.memtable.drop(gone.log)
        self.into.orphans.pop(record.group, None)
        self.into.use.end(record.group)


TAKE: dict[RecordKind, Callable[[_File, Record], None]] = {
    RecordKind.ENTRY: _File._entry,
    RecordKind.LIVE: _File._live,
    RecordKind.BASE: _File._base,
    RecordKind.HARD_STATE: _File._hard_state,
    RecordKind.GROUP_CREATED: _File._created,
    RecordKind.GROUP_DELETED: _File._deleted,
}
