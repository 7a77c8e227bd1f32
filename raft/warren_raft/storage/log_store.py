"""All logs of a node: what its groups append to, and read from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from warren_raft.storage.errors import LogDamaged
from warren_raft.storage.files import Files
from warren_raft.storage.format import (
    RECORD_HEADER_BYTES,
    Damaged,
    RecordKind,
    decode_entry,
    decode_record,
)
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.identity import Directory, open_directory
from warren_raft.storage.memtable import Memtable
from warren_raft.storage.recovery import recover
from warren_raft.storage.wal import Wal, file_name
from warren_raft.types import Entry, GroupId, HardState, Index, Term

OPEN_FILES_MAX = 64


class GroupStore:
    """One group's view of its log: `ports.LogStore`, and what the host does to it."""

    __slots__ = ("_store", "_writing", "created", "hard_state", "log")

    def __init__(
        self, store: LogStore, log: GroupLog, hard_state: HardState, created: bytes
    ) -> None:
        self.log = log
        self.hard_state = hard_state
        self.created = created
        self._store = store
        self._writing: list[Entry] = []

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
            found.append(self.read(index))
        return found

    def read(self, index: Index) -> Entry:
        """One entry, from memory or disk; raises KeyError when it is not held."""
        entry = self.log.entries.get(index)
        return entry if entry is not None else self._store.read_entry(self.log, index)

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

    A WAL file that no living group needs is removed, see `file_use`.
    """

    def __init__(
        self, files: Files, path: Path, cluster: str, node: str, memtable_bytes: int
    ) -> None:
        """Lock the directory and read its log; raises StorageError."""
        self._files = files
        self.directory: Directory = open_directory(files, path, cluster, node)
        self.memtable = Memtable(memtable_bytes)
        try:
            self._recovered = recover(files, self.directory.wal, self.memtable)
        except BaseException:
            self.directory.close()
            raise
        self.cut = self._recovered.cut
        self.groups: dict[GroupId, GroupStore] = {
            group: GroupStore(self, found.log, found.hard_state, found.created)
            for group, found in sorted(self._recovered.groups.items())
        }
        self._salts = self._recovered.salts
        self._use = self._recovered.use
        self._open_files: OrderedDict[int, int] = OrderedDict()
        self.wal: Wal

    def start(
        self,
        post: Callable[[Callable[[], None]], None],
        file_bytes: int,
        at_turn_end: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """Begin to write, into a new file; post, at_turn_end: see Wal."""
        self.wal = Wal(
            self._files,
            self.directory.wal,
            post,
            next_file=self._recovered.next_file,
            next_batch=self._recovered.next_batch,
            file_bytes=file_bytes,
            salts=self._salts,
            at_turn_end=at_turn_end,
        )
        self.wal.on_batch = self._batch_written

    def close(self) -> None:
        """End the writing, let go of files and directory."""
        self.wal.close()
        for fd in self._open_files.values():
            self._files.close(fd)
        self._open_files.clear()
        self.directory.close()

    # ------------------------------------------------------------ groups

    def create(self, group: GroupId, data: bytes, volatile: bool = False) -> GroupStore:
        """A new group's log; its beginning is written with what is appended first."""
        assert group not in self.groups, group
        store = GroupStore(self, GroupLog(group, volatile), HardState(), data)
        self.groups[group] = store
        if not volatile:
            self.wal.created(group, data)
        return store

    def delete(self, group: GroupId) -> None:
        """Forget a group; its end is written with what is submitted next."""
        store = self.groups.pop(group, None)
        if store is None:
            return
        if not store.log.volatile:
            self.wal.deleted(group)
        self.memtable.drop(store.log)

    # ------------------------------------------------------------ reading

    def read_entry(self, log: GroupLog, index: Index) -> Entry:
        """From the disk; raises KeyError when it is not there, LogDamaged when it is not intact."""
        if log.volatile or not log.first <= index <= log.last:
            raise KeyError(index)
        place = log.place(index)
        path = self.directory.wal / file_name(place.file)
        data = self._files.read_at(
            self._descriptor(place.file), place.offset, RECORD_HEADER_BYTES + place.length
        )
        try:
            record = decode_record(self._salts[place.file], data, 0)
            if (record.kind, record.group, record.index, record.term) != (
                RecordKind.ENTRY, log.group, index, log.term(index)
            ):  # fmt: skip
                raise Damaged(f"it is not entry {index} of group {log.group}")
            return decode_entry(record)
        except Damaged as damage:
            raise LogDamaged(path, place.offset, str(damage)) from None

    def _descriptor(self, file: int) -> int:
        fd = self._open_files.get(file)
        if fd is None:
            if len(self._open_files) >= OPEN_FILES_MAX:
                self._files.close(self._open_files.popitem(last=False)[1])
            fd = self._files.open_read(self.directory.wal / file_name(file))
            self._open_files[file] = fd
        else:
            self._open_files.move_to_end(file)
        return fd

    # ------------------------------------------------------------ files nobody needs

    def _batch_written(self, file: int, groups: set[GroupId], deleted: list[GroupId]) -> None:
        use = self._use
        if file not in use.live:
            use.add_file(file)
        for group in deleted:
            use.end(file, group)
        use.live[file] |= groups
        if deleted:
            self._remove_unneeded()

    def _remove_unneeded(self) -> None:
        for file in self._use.unneeded(self.wal.current_file):
            fd = self._open_files.pop(file, None)
            if fd is not None:
                self._files.close(fd)
            self._files.remove(self.directory.wal / file_name(file))
            self._use.remove(file)
