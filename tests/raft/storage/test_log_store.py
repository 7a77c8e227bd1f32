"""Memory is bounded, groups come and go, and the disk's failures are loud."""

from __future__ import annotations

import errno
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.raft.storage.kit import WAIT_S, Disk, vote, wal_files
from warren_raft.storage.errors import LogDamaged, WriteFailed
from warren_raft.storage.files import Files
from warren_raft.storage.group_log import ENTRY_OVERHEAD_BYTES, GroupLog, Memtable
from warren_raft.types import Entry, EntryKind, HardState


def test_old_entries_are_read_from_the_disk(tmp_path: Path) -> None:
    disk = Disk(tmp_path, memtable_bytes=5 * (1000 + ENTRY_OVERHEAD_BYTES), file_bytes=3000)
    for index in range(1, 21):
        disk.write(1, index, [bytes([index]) * 1000])
    log = disk.group(1).log
    assert sorted(log.entries) == [16, 17, 18, 19, 20]
    assert disk.store.memtable.bytes_held <= disk.store.memtable.bytes_max
    assert [e[2][:1] for e in disk.contents()[1][1]] == [bytes([i]) for i in range(1, 21)]
    some = disk.group(1).entries(3, 18, bytes_max=4500)
    assert [e.index for e in some] == [3, 4, 5, 6]
    assert [e.index for e in disk.group(1).entries(3, 18, bytes_max=0)] == [3]
    disk.close()
    again = Disk(tmp_path, memtable_bytes=5 * (1000 + ENTRY_OVERHEAD_BYTES))
    assert sorted(again.group(1).log.entries) == [16, 17, 18, 19, 20]
    assert len(again.contents()[1][1]) == 20
    again.close()


@pytest.mark.parametrize("size", [40, 100, 600, 1100])
def test_what_the_memtable_counts_is_what_its_entries_take(size: int) -> None:
    memtable, logs = Memtable(4 << 20), [GroupLog(group) for group in range(12)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        number = 0
        while memtable.bytes_held + size + ENTRY_OVERHEAD_BYTES <= memtable.bytes_max:
            number += 1
            log, time_ms = logs[number % len(logs)], 1_700_000_000_000 + number
            entry = Entry(1_000 + number, 1, EntryKind.COMMAND, time_ms, bytes(size))
            log.hold(entry)
            memtable.add(log, entry)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.9 * taken < memtable.bytes_held < 1.1 * taken, (taken, memtable.bytes_held)


def test_damage_found_while_reading_is_named(tmp_path: Path) -> None:
    disk = Disk(tmp_path, memtable_bytes=1)
    disk.write(1, 1, [b"a" * 100])
    path = wal_files(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[data.index(b"a" * 100) + 50] ^= 4
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match=path.name):
        disk.group(1).read(1)
    with pytest.raises(KeyError):
        disk.group(1).read(2)
    disk.close()


def test_a_deleted_group_stays_deleted_and_may_begin_anew(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(1, 1, [b"a" * 100])
    disk.write(2, 1, [b"b"])
    disk.store.delete(1)
    assert disk.store.memtable.bytes_held == len(b"b") + 2 * ENTRY_OVERHEAD_BYTES
    disk.sync()
    disk = disk.again()
    assert sorted(disk.store.groups) == [2]
    disk.write(1, 1, [b"new"], term=7)
    disk = disk.again()
    assert disk.contents()[1][1] == [(1, 7, b"new")]
    disk.close()


def test_files_that_no_group_needs_are_removed(tmp_path: Path) -> None:
    disk = Disk(tmp_path, file_bytes=200)
    disk.write(1, 1, [b"stays"])
    disk.write_apart(2, range(1, 6), b"goes" * 50)
    before = len(wal_files(tmp_path))
    disk.write(1, 2, [b"stays too"])
    disk.store.delete(2)
    disk.sync()
    disk.write(1, 3, [b"newest"])
    disk.compact()
    disk.close()
    assert before >= 6 and len(wal_files(tmp_path)) <= 4
    disk = Disk(tmp_path)
    assert sorted(disk.store.groups) == [1]
    assert [e[2] for e in disk.contents()[1][1]] == [b"stays", b"stays too", b"newest"]
    disk.close()


def test_the_end_of_a_group_outlives_its_records(tmp_path: Path) -> None:
    # 1. Group 2's records share file 1 with group 1, which lives.  2. Group 2 is deleted: its end
    # stands in a later file that holds nothing alive.  3. If that file went, group 2 were back.
    disk = Disk(tmp_path, file_bytes=400)
    disk.group(1)
    disk.write(2, 1, [b"goes"])
    disk.write(1, 1, [b"stays" * 50])
    disk.store.delete(2)
    disk.sync()
    disk.write(3, 1, [b"x" * 400])
    disk.store.delete(3)
    disk.sync()
    disk.write(4, 1, [b"x" * 400])
    disk.close()
    disk = Disk(tmp_path)
    assert sorted(disk.store.groups) == [1, 4]
    disk.close()


def test_a_volatile_group_touches_no_file_and_forgets_what_is_dead(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.store.create(9, b"", volatile=True)
    for index in range(1, 101):
        store.append(HardState(1, "n1"), [Entry(index, 1, EntryKind.COMMAND, 0, b"d" * 10)])
    store.release_but([7, 90], up_to=95)
    assert sorted(store.log.entries) == [7, 90, 96, 97, 98, 99, 100]
    assert store.log.bytes_held == 70
    assert store.read(7).data == b"d" * 10 and store.term(50) == 1
    with pytest.raises(KeyError):
        store.read(50)
    store.log.check()
    disk.store.delete(9)
    disk.close()
    assert wal_files(tmp_path) == []


class FailingFiles(Files):
    """The n-th write or sync fails."""

    def __init__(self, call: str, nth: int) -> None:
        self.call = call
        self.left = nth

    def _count(self, call: str) -> None:
        if call == self.call:
            self.left -= 1
            if self.left == 0:
                raise OSError(errno.EIO, "Input/output error")

    def write_at(self, fd: int, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        self._count("write")
        super().write_at(fd, offset, buffers)

    def sync_data(self, fd: int) -> None:
        self._count("sync")
        super().sync_data(fd)


@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_failed_write_or_sync_vouches_for_nothing_and_is_raised(
    tmp_path: Path, call: str, nth: int
) -> None:
    files = FailingFiles(call, nth + (3 if call == "write" else 0))  # identity, first header
    disk = Disk(tmp_path, files)
    vouched = 0
    store = disk.group(1)
    with pytest.raises(WriteFailed, match="Input/output error") as failure:
        for index in range(1, 10):
            store.append(vote(store), [Entry(index, 1, EntryKind.COMMAND, 0, b"d")])
            done: list[bool] = []
            disk.store.wal.submit(lambda done=done: done.append(True))
            disk.posted.get(timeout=WAIT_S)()
            assert done == [True]
            vouched = index
    assert "This node ends" in str(failure.value)
    disk.close()
    again = Disk(tmp_path)
    held = again.contents().get(1, (None, []))[1]
    assert len(held) >= vouched
    again.close()


def test_batches_collect_while_one_is_under_way(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.group(1)
    order: list[int] = []
    for index in range(1, 51):
        store.append(vote(store), [Entry(index, 1, EntryKind.COMMAND, 0, b"d")])
        disk.store.wal.submit(lambda index=index: order.append(index))
    while len(order) < 50:
        disk.posted.get(timeout=WAIT_S)()
    assert order == list(range(1, 51))
    assert disk.store.wal.batches == 2, "the first alone, the other 49 in one write"
    disk.close()


def test_what_only_collects_is_written_when_the_log_is_closed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(1, 1, [b"written"])
    disk.group(1).append(None, [Entry(2, 1, EntryKind.COMMAND, 0, b"nobody waits for it")])
    disk.close()
    disk = Disk(tmp_path)
    assert disk.group(1).read(2).data == b"nobody waits for it"
    disk.close()


class BrokenFiles(Files):
    """A bug of ours, on the writing thread."""

    def sync_data(self, fd: int) -> None:
        raise ZeroDivisionError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writing_thread_that_dies_of_a_bug_ends_the_node_too(tmp_path: Path) -> None:
    disk = Disk(tmp_path, BrokenFiles())
    disk.group(1)
    disk.store.wal.submit(lambda: None)
    with pytest.raises(AssertionError, match="WAL's thread ended"):
        disk.posted.get(timeout=WAIT_S)()
    disk.close()
