"""All logs of a node: one WAL, one background writer, one compactor over one directory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warren_raft.storage import quarantine
from warren_raft.storage.background_writer import BackgroundWriter
from warren_raft.storage.compaction import Compactor
from warren_raft.storage.errors import EntryDamaged, LogDamaged
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.group_store import GroupStore
from warren_raft.storage.opened_log import OpenedLog
from warren_raft.storage.snapshot import Position, Snapshot
from warren_raft.storage.spare_files import SpareFiles
from warren_raft.storage.synced_mark import SyncedMarkFiles, SyncedMarkWriter
from warren_raft.storage.wal import Job, Wal
from warren_raft.types import GroupId, HardState

log = logging.getLogger("warren.raft")


@dataclass(frozen=True)
class LogCallbacks:
    """What the logs of a node ask of their owner, on the owner's thread.

    full     called with the error when the disk has no space for a batch, and with None when the
             batch was written after all
    closed   called when a WAL file is complete
    damaged  starts the repair of a damaged entry; returns False when no other member has it
    """

    full: Callable[[OSError | None], None]
    closed: Callable[[], None]
    damaged: Callable[[EntryDamaged], bool]


class LogStore:
    """The logs of one node. Not thread-safe; WAL and background writer have their own threads."""

    def __init__(
        self,
        opened: OpenedLog,
        post: Callable[[Callable[[], None]], None],
        file_bytes: int,
        callbacks: LogCallbacks,
        at_turn_end: Callable[[Job], None] | None = None,
        recycle: bool = True,
    ) -> None:
        """Start to append to an opened log, in a new file; post, at_turn_end: see Wal.

        recycle  allocate the log's files ahead, and write over those that are not needed any more
        """
        recovered = opened.recovered
        self.files = opened.files
        self.directory = opened.directory
        self.memtable = opened.memtable
        self.log_files = opened.log_files
        self.condemned = recovered.condemned
        self._callbacks = callbacks
        marks = SyncedMarkFiles(self.files, self.directory)
        self.spares = SpareFiles(self.files, file_bytes, recycle)
        self.wal = Wal(
            self.files,
            self.directory.wal,
            post,
            recovered.log_end(),
            file_bytes=file_bytes,
            mark=marks.write,
            on_full=self._is_full,
            on_batch=self._batch_written,
            at_turn_end=at_turn_end,
            spares=self.spares if recycle else None,
        )
        self.background_writer = BackgroundWriter(post, self.directory.path)
        self.synced_mark = SyncedMarkWriter(marks, self.wal, self.background_writer)
        self.groups: dict[GroupId, GroupStore] = {
            group: self._group(
                found.log, found.hard_state, found.created, found.born, found.snapshot
            )
            for group, found in sorted(recovered.groups.items())
        }
        self.compactor = Compactor(
            self.log_files,
            self.groups,
            self.wal,
            self.background_writer,
            self.spares,
            file_bytes,
            callbacks.damaged,
            self.space_is_low,
        )
        self._doomed: dict[GroupId, Path] = {}
        if recovered.broken:
            self._set_aside([each.path for each in recovered.broken], recovered.broken[0])

    def _is_full(self, error: OSError | None) -> None:
        if error is not None:
            self.space_is_low()
        self._callbacks.full(error)

    def _group(
        self,
        log: GroupLog,
        hard_state: HardState,
        created: bytes,
        born: Position = (0, 0),
        snapshot: Snapshot | None = None,
    ) -> GroupStore:
        return GroupStore(
            self.wal,
            self.memtable,
            self.log_files,
            self.is_damaged,
            log,
            hard_state,
            created,
            born,
            snapshot,
        )

    def recreate(self, group: GroupId, data: bytes) -> GroupStore:
        """Create a condemned group again; once that is on disk its damaged files are set aside.

        Until then the next start finds the damage again and repeats this.
        """
        lost = self.condemned.pop(group)
        log.error("%s. Other members have group %s: it joins them again", lost.damage.what, group)
        store = self.create(group, data)
        self.wal.submit(lambda: self._set_aside(list(lost.paths), lost.damage))
        return store

    def _set_aside(self, paths: list[Path], damage: LogDamaged) -> None:
        if paths:
            self.background_writer.run(
                lambda: quarantine.set_aside(self.files, self.directory, paths, damage.what),
                lambda place: log.warning("damaged files are set aside in %s", place),
                lambda error: None,  # no space: the next start repeats it
            )

    def close(self) -> None:
        """Finish the writes, then close the files and unlock the directory."""
        self.background_writer.close()
        self.wal.close()
        self.synced_mark.close()
        self.log_files.close()
        self.directory.close()

    # ------------------------------------------------------------ groups

    def create(self, group: GroupId, data: bytes, volatile: bool = False) -> GroupStore:
        """Create a group's log; GROUP_CREATED is written with the first append."""
        assert group not in self.groups, group
        store = self._group(GroupLog(group, volatile), HardState(), data)
        self.groups[group] = store
        if not volatile:
            store.born = self.wal.created(group, data)
        return store

    def delete(self, group: GroupId) -> None:
        """Delete a group; GROUP_DELETED is written with the next batch."""
        store = self.groups.pop(group, None)
        if store is None:
            return
        if not store.log.volatile:
            self.wal.deleted(group)
            if store.snapshot_index:
                self._doomed[group] = self.snapshot_path(store)
        self.memtable.drop(store.log)

    # ------------------------------------------------------------ damage

    def is_damaged(self, damage: EntryDamaged) -> None:
        """Report an unreadable entry; raises LogDamaged when no other member has it."""
        self.compactor.damaged.add(damage.file)
        if not self.repair(damage):
            reason = f"{damage.reason}; it held entry {damage.index} of group {damage.group}"
            raise LogDamaged(damage.path, damage.offset, reason) from damage

    def repair(self, damage: EntryDamaged) -> bool:
        """Start the repair of a damaged entry; return False when no other member has it."""
        return self._callbacks.damaged(damage)

    # ------------------------------------------------------------ snapshots

    def snapshot_path(self, group: GroupStore) -> Path:
        """Return the path of a group's newest snapshot."""
        return self.log_files.snapshot_path(group.log.group, group.snapshot_index)

    def read_snapshot(self, group: GroupStore) -> Snapshot:
        """Read a group's newest snapshot; raises LogDamaged, after which another one is taken."""
        try:
            return self.log_files.read_snapshot(group.log.group, group.snapshot_index)
        except LogDamaged:
            self.compactor.snapshots_damaged.add(group.log.group)
            raise

    # ------------------------------------------------------------ files that are not needed

    def remove_later(self, paths: list[Path]) -> None:
        """Remove files that are no longer needed, on the background writer's thread."""

        def job() -> None:
            for path in paths:
                if self.files.exists(path):
                    self.files.remove(path)

        if paths:
            self.background_writer.run(job, lambda _: None, lambda error: None)

    def look(self, now_ms: int) -> None:
        """Mark the log's end and remove surplus spare files, where that is due; often."""
        self.synced_mark.look(now_ms)
        self.remove_later(self.spares.look(self.wal.current_file, now_ms))

    def space_is_low(self) -> None:
        """Remove spare files at once, and keep none for a while."""
        self.remove_later(self.spares.space_is_low())

    def _batch_written(self, file: int, groups: set[GroupId], deleted: list[GroupId]) -> None:
        use = self.log_files.use
        if file not in use.live:
            use.add_file(file)
        for group in deleted:
            use.end(group)
            path = self._doomed.pop(group, None)
            if path is not None:
                self.remove_later([path])
        use.live[file] |= groups
        if deleted:
            self.compactor.remove_unneeded()
        if file < self.wal.current_file:
            self._callbacks.closed()
