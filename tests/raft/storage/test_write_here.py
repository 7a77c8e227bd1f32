"""Small batches on a quick disk are written at the turn's end, without the thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.raft.storage.kit import ALONE, Disk, vote
from warren_raft.storage import wal
from warren_raft.storage.errors import WriteFailed
from warren_raft.storage.files import Files
from warren_raft.storage.log_store import LogStore
from warren_raft.storage.opened_log import open_log
from warren_raft.types import Entry, EntryKind

LARGE = wal.HERE_BYTES_MAX


class Watched(Files):
    """Notes on which thread each sync ran; takes as long as it is told, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[bool] = []
        self.now_s = 0.0
        self.sync_s = 0.0
        self.broken = False
        monkeypatch.setattr(wal.time, "monotonic", lambda: self.now_s)

    def sync_data(self, fd: int) -> None:
        if self.broken:
            raise OSError(5, "Input/output error")
        super().sync_data(fd)
        self.now_s += self.sync_s
        self.threads.append(threading.current_thread() is threading.main_thread())


class Turning(Disk):
    """A disk with a log that may write at the end of a turn; `turn` ends one."""

    def __init__(self, root: Path, files: Watched) -> None:
        super().__init__(root, files)
        self.store.close()
        self.at_end: list[Callable[[], None]] = []
        opened = open_log(files, root, "c", "n1", 1 << 20)
        self.store = LogStore(opened, self.posted.put, 1 << 20, ALONE, self.at_end.append)
        made: list[bool] = []  # the thread makes the file
        self.group(2).append(vote(self.group(2)), [Entry(1, 1, EntryKind.COMMAND, 1, b"opened")])
        self.store.wal.submit(lambda: made.append(True))
        assert not self.at_end
        self.await_thread(made)
        files.threads.clear()

    def submit(self, index: int, data: bytes) -> list[bool]:
        """Add an entry; true will be in the list when it is on disk."""
        done: list[bool] = []
        self.group(1).append(vote(self.group(1)), [Entry(index, 1, EntryKind.COMMAND, index, data)])
        self.store.wal.submit(lambda: done.append(True))
        return done

    def turn(self) -> None:
        calls = self.at_end[:]
        self.at_end.clear()
        for call in calls:
            call()()

    def await_thread(self, done: list[bool]) -> None:
        while not done:
            self.posted.get(timeout=PATIENCE_S)()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def held(root: Path) -> list[bytes]:
    disk = Disk(root)
    data = [entry[2] for entry in disk.contents()[1][1]]
    disk.close()
    return data


def test_done_is_told_after_the_sync_and_not_before_the_turn_s_end(
    tmp_path: Path, files: Watched
) -> None:
    disk = Turning(tmp_path, files)
    first = disk.submit(1, b"one")
    assert not first and not files.threads, "what may leave before the sync leaves first"
    second = disk.submit(2, b"two")
    disk.turn()
    assert first and not second and files.threads == [True]
    disk.turn()
    assert second and files.threads == [True, True]
    disk.close()
    assert held(tmp_path) == [b"one", b"two"]


def test_a_large_batch_goes_to_the_thread(tmp_path: Path, files: Watched) -> None:
    disk = Turning(tmp_path, files)
    large = disk.submit(1, bytes(LARGE))
    small = disk.submit(2, b"small")
    disk.turn()
    assert not small, "one batch at a time"
    disk.await_thread(large)
    disk.turn()
    assert small and files.threads == [False, True]
    disk.close()
    assert held(tmp_path) == [bytes(LARGE), b"small"]


def test_a_slow_disk_is_left_to_the_thread_until_it_is_quick_again(
    tmp_path: Path, files: Watched
) -> None:
    disk = Turning(tmp_path, files)
    files.sync_s = 0.02
    for index in range(1, wal.SLOW_MAX + 1):
        done = disk.submit(index, b"x")
        disk.turn()
        disk.await_thread(done)
    half = wal.SLOW_MAX // 2
    assert files.threads == [True] * half + [False] * half
    files.sync_s = 0.0
    for index in range(wal.SLOW_MAX + 1, 2 * wal.SLOW_MAX + 1):
        done = disk.submit(index, b"x")
        disk.turn()
        disk.await_thread(done)
    assert files.threads[wal.SLOW_MAX :] == [False] * (half + 1) + [True] * (half - 1)
    disk.close()


def test_one_very_long_sync_is_enough(tmp_path: Path, files: Watched) -> None:
    disk = Turning(tmp_path, files)
    for index, files.sync_s in ((1, 0.0), (2, 0.06), (3, 0.0)):
        done = disk.submit(index, b"x")
        disk.turn()
        disk.await_thread(done)
    assert files.threads == [True, True, False]
    disk.close()


def test_a_failed_sync_is_raised_and_vouches_for_nothing(tmp_path: Path, files: Watched) -> None:
    disk = Turning(tmp_path, files)
    files.broken = True
    done = disk.submit(1, b"one")
    with pytest.raises(WriteFailed):
        disk.turn()
    assert not done
    files.broken = False
    disk.close()


def test_closing_finishes_what_waits_for_the_turn_s_end(tmp_path: Path, files: Watched) -> None:
    disk = Turning(tmp_path, files)
    done = disk.submit(1, b"one")
    disk.close()
    assert not done, "no completion is called any more"
    disk.turn()
    assert not done and held(tmp_path) == [b"one"]
