"""What a node's write-ahead log says after a crash, read from the first file to the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from warren_raft.storage.errors import LogDamaged
from warren_raft.storage.file_use import FileUse
from warren_raft.storage.files import Files
from warren_raft.storage.format import (
    FILE_HEADER_BYTES,
    RECORD_MAGIC,
    Damaged,
    Record,
    RecordKind,
    decode_entry,
    decode_file_header,
    decode_record,
)
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.memtable import Memtable
from warren_raft.storage.wal import Place, file_name, file_number
from warren_raft.types import GroupId, HardState


@dataclass(slots=True)
class RecoveredGroup:
    """One group as the log has it."""

    log: GroupLog
    created: bytes = b""
    hard_state: HardState = field(default_factory=HardState)


@dataclass(slots=True)
class Recovered:
    """Everything the log says.

    use    which groups stand in which files
    salts  per file, for reading it later
    cut    (file, offset, bytes) of the torn tail that was cut, for the log line
    orphans  groups with records but no beginning, and where: their end must follow, because a
             file that held the beginning is removed only once the end is on disk
    """

    groups: dict[GroupId, RecoveredGroup] = field(default_factory=dict)
    use: FileUse = field(default_factory=FileUse)
    salts: dict[int, int] = field(default_factory=dict)
    next_file: int = 1
    next_batch: int = 1
    cut: tuple[Path, int, int] | None = None
    orphans: dict[GroupId, tuple[Path, int]] = field(default_factory=dict)


def recover(files: Files, directory: Path, memtable: Memtable) -> Recovered:
    """Read the log; cut the torn tail of the newest file.

    memtable  holds the newest entries afterwards
    raises    LogDamaged; nothing was changed then
    """
    recovered = Recovered()
    numbers = []
    for name in files.names(directory):
        number = file_number(name)
        if number is not None:
            numbers.append(number)
    cut: tuple[Path, int, int] | None = None
    for number in sorted(numbers):
        assert cut is None
        cut = _File(files, directory, number, recovered, memtable).read(number == max(numbers))
    for group, (path, offset) in sorted(recovered.orphans.items()):
        raise LogDamaged(
            path, offset, f"group {group} has records here, but its beginning is missing"
        )
    if cut is not None:
        files.cut(cut[0], cut[1])
        recovered.cut = cut
    for name in files.names(directory):
        if name.endswith(".wal.new"):
            files.remove(directory / name)
    recovered.next_file = max(numbers, default=0) + 1
    return recovered


class _File:
    """One file being read."""

    def __init__(
        self, files: Files, directory: Path, number: int, recovered: Recovered, memtable: Memtable
    ) -> None:
        self.path = directory / file_name(number)
        self.number = number
        self.into = recovered
        self.memtable = memtable
        self.data = memoryview(files.read(self.path))
        self.ended = True  # the batch of the last record has its BATCH_END

    def read(self, newest: bool) -> tuple[Path, int, int] | None:
        """Take every record; returns what is to be cut off."""
        try:
            number, salt, batch = decode_file_header(self.data)
        except Damaged as damage:
            raise LogDamaged(self.path, 0, str(damage)) from None
        if number != self.number:
            raise LogDamaged(self.path, 16, f"this is file {number} under another name")
        if batch < self.into.next_batch:
            raise LogDamaged(
                self.path, 24, f"it begins with batch {batch}, after {self.into.next_batch - 1}"
            )
        self.into.next_batch = batch
        self.into.salts[number] = salt
        self.into.use.add_file(number)
        offset, size = FILE_HEADER_BYTES, len(self.data)
        while offset < size:
            try:
                record = decode_record(salt, self.data, offset)
            except Damaged as damage:
                if not newest:
                    raise LogDamaged(self.path, offset, str(damage)) from None
                self._refuse_unless_torn(salt, offset, str(damage))
                return self.path, offset, size - offset
            self._take(record)
            offset = record.end
        return None

    def _refuse_unless_torn(self, salt: int, offset: int, damage: str) -> None:
        # A write that a crash cut short leaves any mixture of its parts on the disk, so valid
        # records may follow a hole. But batch n + 1 is only written after the sync of batch n has
        # returned: a valid record of a batch after the damaged one proves that the damaged bytes
        # were on disk once, and this node may have vouched for them.
        # Replayed by tests/raft/storage/test_recovery.py
        damaged_batch = self.into.next_batch if self.ended else self.into.next_batch - 1
        position = offset
        whole = bytes(self.data)
        while (position := whole.find(RECORD_MAGIC, position + 1)) >= 0:
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
        self.into.next_batch = record.batch + 1
        self.ended = record.kind is RecordKind.BATCH_END
        if not self.ended:
            TAKE[record.kind](self, record)

    def _group(self, record: Record) -> RecoveredGroup | None:
        self.into.use.mention(self.number, record.group)
        found = self.into.groups.get(record.group)
        if found is None:
            self.into.orphans.setdefault(record.group, (self.path, record.offset))
        return found

    def _entry(self, record: Record) -> None:
        group = self._group(record)
        if group is None:
            return
        log = group.log
        try:
            entry = decode_entry(record)
        except Damaged as damage:
            raise LogDamaged(self.path, record.offset, str(damage)) from None
        if not 0 < entry.index <= log.last + 1:
            raise LogDamaged(
                self.path,
                record.offset,
                f"group {record.group} has entry {entry.index} after {log.last}: records between "
                "them are missing",
            )
        log.append(entry, Place(self.number, record.offset, len(record.data)))
        log.hold(entry)
        self.memtable.add(log, entry)

    def _hard_state(self, record: Record) -> None:
        group = self._group(record)
        if group is not None:
            vote = bytes(record.data).decode() if len(record.data) else None
            group.hard_state = HardState(record.term, vote)

    def _created(self, record: Record) -> None:
        if record.group in self.into.groups:
            raise LogDamaged(
                self.path, record.offset, f"group {record.group} begins, and is there already"
            )
        self.into.use.mention(self.number, record.group)
        self.into.groups[record.group] = RecoveredGroup(GroupLog(record.group), bytes(record.data))

    def _deleted(self, record: Record) -> None:
        gone = self.into.groups.pop(record.group, None)
        if gone is not None:
            self.memtable.drop(gone.log)
        self.into.orphans.pop(record.group, None)
        self.into.use.end(self.number, record.group)


TAKE: dict[RecordKind, Callable[[_File, Record], None]] = {
    RecordKind.ENTRY: _File._entry,
    RecordKind.HARD_STATE: _File._hard_state,
    RecordKind.GROUP_CREATED: _File._created,
    RecordKind.GROUP_DELETED: _File._deleted,
}
