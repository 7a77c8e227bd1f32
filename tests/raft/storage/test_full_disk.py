"""A disk without space: the log waits for it, at every write of a life, and loses nothing."""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.raft.storage.kit import ALONE, WAIT_S, Disk, wal_files
from warren_raft.index_set import Indexes
from warren_raft.storage import wal
from warren_raft.storage.errors import WriteFailed
from warren_raft.storage.files import Files, SyncFailed, is_full
from warren_raft.storage.log_store import LogStore
from warren_raft.storage.opened_log import open_log
from warren_raft.storage.snapshot import Snapshot
from warren_raft.storage.wal import Job
from warren_raft.types import Entry, EntryKind

FILE_BYTES = 2_000


class SmallFiles(Files):
    """From the n-th write of the log on there is no space, until `free` is set.

    A write without space leaves its first half; `reason` is what the disk says, `at_sync` when.
    """

    def __init__(self, full_at: int, reason: int = errno.ENOSPC, at_sync: bool = False) -> None:
        self.full_at = full_at
        self.reason = reason
        self.at_sync = at_sync
        self.calls = 0
        self.refused = 0
        self.free = threading.Event()

    def _full(self) -> bool:
        self.calls += 1
        if self.calls < self.full_at or self.free.is_set():
            return False
        self.refused += 1
        return True

    def write_at(self, fd: int, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        if not self.at_sync and self._full():
            whole = b"".join(buffers)
            super().write_at(fd, offset, [whole[: len(whole) // 2]])
            raise OSError(self.reason, "full")
        super().write_at(fd, offset, buffers)

    def sync_data(self, fd: int) -> None:
        if self.at_sync and self._full():
            raise SyncFailed(self.reason, "sync: full")
        super().sync_data(fd)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "SPACE_RETRY_S", 0.005)


def body(number: int) -> bytes:
    return b"%d:" % number + b"x" * (37 * number % 300)


def a_life(root: Path, files: SmallFiles) -> int:
    """Twenty batches, over several files; returns how often the log said that it is full."""
    told: list[bool] = []

    def heard(error: OSError | None) -> None:
        told.append(error is not None)
        if error is not None:
            files.free.set()

    files.free.set()
    disk = Disk(root, files, file_bytes=FILE_BYTES, callbacks=replace(ALONE, full=heard))
    files.calls = 0
    files.free.clear()
    for number in range(1, 21):
        disk.write(1 + number % 2, (number + 1) // 2, [body(number)])
    assert told in ([], [True, False]), told
    assert disk.store.wal.full is None
    assert written(disk) == WHOLE
    disk.close()
    return len(told) // 2


def written(disk: Disk) -> dict[int, list[bytes]]:
    found = disk.contents()
    return {group: [data for _, _, data in entries] for group, (_, entries) in found.items()}


WHOLE = {
    1: [body(number) for number in range(2, 21, 2)],
    2: [body(number) for number in range(1, 21, 2)],
}


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT])
def test_the_log_waits_for_space_at_every_write(tmp_path: Path, reason: int) -> None:
    times = 0
    for full_at in range(1, 100):
        root = tmp_path / str(full_at)
        files = SmallFiles(full_at, reason)
        times += a_life(root, files)
        again = Disk(root, file_bytes=FILE_BYTES)
        assert again.cut is None
        assert written(again) == WHOLE
        again.close()
        if not files.refused:
            break
    else:
        raise AssertionError("the life has more writes than were tried")
    assert times >= 20, times


def test_a_small_batch_is_waited_for_beside_the_loop(tmp_path: Path) -> None:
    # The write at the turn's end finds no space: it must not keep the loop, which has heartbeats.
    files = SmallFiles(1)
    files.free.set()
    opened = open_log(files, tmp_path, "c", "n1", 1 << 20)
    posted: queue.Queue[Callable[[], None]] = queue.Queue()
    turn_end: list[Job] = []
    told: list[bool] = []
    callbacks = replace(ALONE, full=lambda error: told.append(error is not None))
    store = LogStore(opened, posted.put, 1 << 20, callbacks, turn_end.append)
    group = store.create(1, b"members")
    made: list[bool] = []  # the thread makes the file
    store.wal.submit(lambda: made.append(True))
    while not made:
        posted.get(timeout=WAIT_S)()
    files.free.clear()
    group.append(None, [Entry(1, 1, EntryKind.COMMAND, 1, b"one")])
    done: list[bool] = []
    store.wal.submit(lambda: done.append(True))
    turn_end.pop()()()
    assert told == [True] and not done
    assert store.wal.backlog_bytes > 0
    group.append(None, [Entry(2, 1, EntryKind.COMMAND, 1, b"two")])
    store.wal.submit(lambda: done.append(True))
    for _ in range(3):
        posted.get(timeout=WAIT_S)()  # it is tried again, and again
    assert told == [True] and not done
    files.free.set()
    while len(done) < 2:
        if turn_end:
            turn_end.pop()()()
        else:
            posted.get(timeout=WAIT_S)()
    assert told == [True, False]
    assert store.wal.backlog_bytes == 0
    store.close()


def test_a_full_disk_does_not_keep_a_node_from_ending(tmp_path: Path) -> None:
    files = SmallFiles(2)
    disk = Disk(tmp_path, files)
    disk.group(1).append(None, [Entry(1, 1, EntryKind.COMMAND, 1, b"never written")])
    disk.store.wal.submit(lambda: pytest.fail("it was not written"))
    disk.posted.get(timeout=WAIT_S)()
    assert disk.store.wal.full is not None
    disk.close()
    again = Disk(tmp_path)
    assert written(again) in ({}, {1: []})  # the half that was written is cut, or was a whole one
    again.close()


def test_a_start_on_a_full_disk_waits_with_its_first_write(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(1, 1, [b"before"])
    disk.close()
    files = SmallFiles(1)
    again = Disk(tmp_path, files)
    assert written(again) == {1: [b"before"]}
    threading.Timer(0.05, files.free.set).start()
    again.write(1, 2, [b"after"])
    assert files.refused
    again.close()
    last = Disk(tmp_path)
    assert written(last) == {1: [b"before", b"after"]}
    assert not [path for path in (tmp_path / "wal").iterdir() if path.suffix == ".new"]
    assert len(wal_files(tmp_path)) == 2
    last.close()


@pytest.mark.parametrize(
    ("reason", "at_sync"), [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, True)]
)
def test_any_other_failure_ends_the_node(tmp_path: Path, reason: int, at_sync: bool) -> None:
    # A sync that failed is never asked for again, not even for want of space.
    files = SmallFiles(3, reason, at_sync)
    disk = Disk(tmp_path, files)
    with pytest.raises(WriteFailed):
        for number in range(1, 10):
            disk.write(1, number, [body(number)])
    assert files.refused == 1
    disk.close()


def test_which_failures_are_for_want_of_space() -> None:
    assert is_full(OSError(errno.ENOSPC, "x")) and is_full(OSError(errno.EDQUOT, "x"))
    assert not is_full(OSError(errno.EIO, "x"))
    assert not is_full(SyncFailed(errno.ENOSPC, "x"))


class SyncFails(Files):
    """The n-th sync of the background writer's thread fails, for want of space, or so it says."""

    def __init__(self, fail_at: int) -> None:
        self.fail_at = fail_at
        self.calls = 0

    def _step(self) -> None:
        if threading.current_thread().name == "background-writer":
            self.calls += 1
            if self.calls == self.fail_at:
                raise SyncFailed(errno.ENOSPC, "sync: full")

    def sync_data(self, fd: int) -> None:
        self._step()
        super().sync_data(fd)

    def sync_directory(self, path: Path) -> None:
        self._step()
        super().sync_directory(path)

    def write_whole(self, path: Path, data: bytes) -> None:
        self._step()
        super().write_whole(path, data)


def rewriting(root: Path, files: SyncFails) -> None:
    """A snapshot, a segment, its index, the manifest, removals."""
    disk = Disk(root, files, file_bytes=FILE_BYTES)
    try:
        for number in range(1, 31):
            disk.write(1, number, [body(number)])
        store = disk.group(1)
        store.applied = 30
        live = Indexes.of(range(3, 30, 3)).tobytes()
        disk.compact(Snapshot(1, 30, 1, 1030, store.born, 1, ("n1",), (), live, b"s"))
    finally:
        disk.close()


def test_a_sync_of_any_file_that_fails_ends_the_node(tmp_path: Path) -> None:
    whole = SyncFails(0)
    rewriting(tmp_path / "whole", whole)
    assert whole.calls >= 8, whole.calls
    for fail_at in range(1, whole.calls + 1):
        with pytest.raises(WriteFailed):
            rewriting(tmp_path / str(fail_at), SyncFails(fail_at))
