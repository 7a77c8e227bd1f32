"""A log store without a loop: completions are taken by hand."""

from __future__ import annotations

import base64
import json
import queue
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.patience import PATIENCE_S
from warren_raft.index_set import Indexes
from warren_raft.storage.files import Files
from warren_raft.storage.group_store import GroupStore
from warren_raft.storage.log_store import LogCallbacks, LogStore
from warren_raft.storage.opened_log import open_log
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import Entry, EntryKind, HardState

WAIT_S = PATIENCE_S
ALONE = LogCallbacks(full=lambda error: None, closed=lambda: None, damaged=lambda damage: False)
"""No other member has an entry that is damaged here."""


class Disk:
    """One node's log store over a directory."""

    def __init__(
        self,
        root: Path,
        files: Files | None = None,
        file_bytes: int = 1 << 20,
        memtable_bytes: int = 1 << 20,
        node: str = "n1",
        cluster: str = "c",
        callbacks: LogCallbacks = ALONE,
        recycle: bool = True,
    ) -> None:
        opened = open_log(files or Files(), root, cluster, node, memtable_bytes)
        self.cut = opened.recovered.cut
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.store = LogStore(opened, self.posted.put, file_bytes, callbacks, recycle=recycle)
        self._open = partial(
            Disk, root, files, file_bytes, memtable_bytes, node, cluster, callbacks, recycle
        )

    def again(self) -> Disk:
        """Close it, and open its directory again with the same settings."""
        self.close()
        return self._open()

    def group(self, group: int) -> GroupStore:
        found = self.store.groups.get(group)
        return found if found is not None else self.store.create(group, b"members")

    def write(
        self,
        group: int,
        first: int,
        datas: Sequence[bytes],
        term: int = 1,
        state: HardState | None = None,
    ) -> None:
        """Append entries from `first` on, in one batch, and wait for the disk.

        state  the votes in that batch; None: a vote in `term`, unless there is one already
        """
        entries = [
            Entry(first + i, term, EntryKind.COMMAND, 1000 + first + i, data)
            for i, data in enumerate(datas)
        ]
        store = self.group(group)
        store.append(state or vote(store, term), entries)
        self.sync()
        store.written(len(entries))

    def write_apart(self, group: int, indexes: range, data: bytes) -> None:
        """Append entries with the same bytes, each in a batch of its own."""
        for index in indexes:
            self.write(group, index, [data])

    def sync(self) -> None:
        done: list[bool] = []
        self.store.wal.submit(lambda: done.append(True))
        while not done:
            self.posted.get(timeout=WAIT_S)()

    def compact(self, *snapshots: Snapshot) -> None:
        """One cycle, to its end."""
        compactor = self.store.compactor
        compactor.run(snapshots)
        while compactor.busy:
            self.posted.get(timeout=WAIT_S)()

    def contents(self) -> dict[int, tuple[HardState, list[tuple[int, int, bytes]]]]:
        """Per group: hard state, and (index, term, data) of every entry, read one by one."""
        result = {}
        for group, store in self.store.groups.items():
            store.log.check()
            span = range(store.first_index(), store.last_index() + 1)
            entries = [store.read(index) for index in span]
            assert [e.term for e in entries] == [store.term(i) for i in span]
            result[group] = (store.hard_state, [(e.index, e.term, e.data) for e in entries])
        return result

    def close(self) -> None:
        self.store.close()


def vote(store: GroupStore, term: int = 1) -> HardState | None:
    """Return the vote that a member has written before an entry of that term; None: it has."""
    return HardState(term, "n1") if store.hard_state.term < term else None


def two_groups_compacted(root: Path) -> Disk:
    """Write two groups, then compact: a segment that was sealed, one that was rewritten, and a
    snapshot of group 1 up to entry 36, which refers to entries 2, 9 and 30."""
    disk = Disk(root, file_bytes=2000)
    for index in range(1, 40):
        disk.write(1, index, [b"%d" % index * 100])
        disk.write(2, index, [b"%d" % index * 100])
    for group in (1, 2):
        disk.group(group).applied = 39
    live = Indexes.of([2, 9, 30])
    store = disk.group(1)
    disk.compact(
        Snapshot(1, 36, store.term(36), 1, store.born, 1, ("n1",), (), live.tobytes(), b"s")
    )
    return disk


def wal_files(root: Path) -> list[Path]:
    """The log's files, oldest first."""
    return sorted((root / "wal").glob("*.wal"))


def frozen_directory(root: Path) -> None:
    """Write a directory of format 1, as it was written when that was the newest one.

    Groups 1 and 2 have entries up to 16, of terms 2 and 4; 3 was deleted. There are segments,
    files of the log, and a snapshot of group 1 up to entry 10 which refers to 2 and 9.
    """
    frozen = Path(__file__).with_name("directory_of_format_1.json")
    for part in ("wal", "segments", "snapshots"):
        (root / part).mkdir(parents=True)
    for name, data in json.loads(frozen.read_text()).items():
        (root / name).write_bytes(zlib.decompress(base64.b64decode(data)))


def marks(root: Path) -> list[Path]:
    """The two files that name the newest file of the log."""
    return [root / "wal" / "synced", root / "synced"]
