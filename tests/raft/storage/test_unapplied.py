"""Files of the log are retired whatever is applied: what was replaced does not come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.raft.storage.kit import Disk, wal_files
from warren_raft.storage.rewrite import write_snapshots
from warren_raft.storage.snapshot import Snapshot


def roll(disk: Disk) -> None:
    """The newest file is complete."""
    disk.sync()
    disk.store.wal.roll()
    disk.write(9, disk.group(9).last_index() + 1, [b"another group"])


def check_next_entry(disk: Disk, index: int, term: int) -> None:
    """Write the entry behind the snapshot: after a restart it is there, and is the log's last."""
    disk.write(1, index, [b"the one"], term=term)
    disk = disk.again()
    assert disk.group(1).read(index).data == b"the one"
    assert disk.group(1).last_index() == index
    disk.close()


def test_a_group_without_a_majority_keeps_no_file_of_the_log(tmp_path: Path) -> None:
    disk = Disk(tmp_path, file_bytes=2000)
    disk.write(1, 1, [b"never applied"])
    for index in range(1, 200):
        disk.write(2, index, [b"x" * 300])
        store = disk.group(2)
        store.applied = index
        if index % 20 == 0:
            disk.compact(Snapshot(2, index, 1, 1000 + index, store.born, 1, ("n1",), (), b"", b"s"))
    assert len(wal_files(tmp_path)) < 10, wal_files(tmp_path)
    assert disk.store.log_files.first_file > 20, disk.store.log_files.first_file
    for _ in range(2):
        assert disk.store.groups[1].read(1).data == b"never applied"
        disk = disk.again()
    disk.write(1, 1, [b"replaced"], term=2)
    disk.compact()
    disk = disk.again()
    assert disk.store.groups[1].read(1).data == b"replaced"
    assert disk.store.groups[1].last_index() == 1
    disk.close()


def test_what_a_shorter_log_replaced_and_a_snapshot_covers_does_not_come_back(
    tmp_path: Path,
) -> None:
    # 1. Entries 13 … 16 of a leader without majority, retired.  2. 13 … 15 of another replace
    # them, a snapshot covers these.  3. The segment stays for another group's sake: 16 is in its
    # index, right behind the snapshot.
    disk = Disk(tmp_path, file_bytes=4000)
    disk.write(1, 1, [b"%d" % i for i in range(1, 17)], term=5)
    disk.write(3, 1, [b"z" * 3000])
    roll(disk)
    disk.compact()
    store = disk.group(1)
    disk.write(1, 13, [b"other %d" % i for i in (13, 14, 15)], term=8)
    store.applied = 15
    roll(disk)
    disk.compact(Snapshot(1, 15, 8, 1015, store.born, 1, ("n1",), (), b"", b"s"))
    roll(disk)
    disk.compact()
    assert disk.store.log_files.segments, "the first segment is still there"
    for _ in range(2):
        store = disk.group(1)
        assert (store.first_index(), store.last_index()) == (16, 15)
        disk.close()
        disk = Disk(tmp_path, file_bytes=4000)
    check_next_entry(disk, 16, 8)


@pytest.mark.parametrize("retired", [False, True])
def test_what_a_shorter_log_replaced_does_not_come_back_after_a_crash_behind_the_snapshot(
    tmp_path: Path, retired: bool
) -> None:
    # As above, and the node ends when the snapshot is written: the manifest has 16 as the log's
    # end. A start meets it in the segment (or in the log's file), then 13 … 15 of the other leader.
    disk = Disk(tmp_path)
    disk.write(1, 1, [b"%d" % i for i in range(1, 17)], term=5)
    if retired:
        roll(disk)
        disk.compact()
        assert disk.store.log_files.segments
    disk.write(1, 13, [b"other %d" % i for i in (13, 14, 15)], term=8)
    taken = Snapshot(1, 15, 8, 1015, disk.group(1).born, 1, ("n1",), (), b"", b"s")
    write_snapshots(disk.store.files, disk.store.directory.snapshots, [taken])
    disk.close()
    for _ in range(2):
        disk = Disk(tmp_path)
        assert (disk.group(1).first_index(), disk.group(1).last_index()) == (16, 15)
        disk.close()
    check_next_entry(Disk(tmp_path), 16, 8)


@pytest.mark.parametrize("retired", [0, 9, 12])
def test_what_a_snapshot_voids_does_not_come_back_behind_it(tmp_path: Path, retired: int) -> None:
    # 1. Entries 1 … 12 of a leader without majority, some of them retired.  2. Another member's
    # snapshot up to 9, of another log, is written.  3. A crash, before the log says so: 10 … 12
    # are of the log that is no more, wherever they stand.
    disk = Disk(tmp_path, file_bytes=4000)
    disk.write(3, 1, [b"z" * 2000])
    if retired:
        disk.write(1, 1, [b"%d" % i for i in range(1, retired + 1)], term=5)
        roll(disk)
        disk.compact()
        assert disk.store.log_files.segments
    if retired < 12:
        disk.write(1, retired + 1, [b"%d" % i for i in range(retired + 1, 13)], term=5)
    store = disk.group(1)
    assert store.last_index() == 12
    theirs = Snapshot(1, 9, 4, 1009, store.born, 1, ("n1",), (), b"", b"s")
    store.begin_incoming()
    base = store.voided(theirs)
    write_snapshots(disk.store.files, disk.store.directory.snapshots, [replace(theirs, base=base)])
    disk.close()
    for _ in range(2):
        disk = Disk(tmp_path, file_bytes=4000)
        store = disk.group(1)
        assert (store.first_index(), store.last_index()) == (10, 9)
        disk.compact()
        disk.close()
    check_next_entry(Disk(tmp_path, file_bytes=4000), 10, 6)
