"""Files of the log are retired whatever is applied: what was replaced does not come back."""

from __future__ import annotations

from pathlib import Path

from tests.raft.storage.kit import Disk, wal_files
from warren_raft.storage.snapshot import Snapshot


def roll(disk: Disk) -> None:
    """The newest file is complete."""
    disk.sync()
    disk.store.wal.roll()
    disk.write(9, disk.group(9).last_index() + 1, [b"another group"])


def test_a_group_without_a_majority_keeps_no_file_of_the_log(tmp_path: Path) -> None:
    disk = Disk(tmp_path, file_bytes=2000)
    disk.write(1, 1, [b"never applied"])
    for index in range(1, 200):
        disk.write(2, index, [b"x" * 300])
        store = disk.group(2)
        store.applied = index
        if index % 20 == 0:
            disk.compact(
                Snapshot(2, index, 1, 1000 + index, store.born, 1, ("n1",), (), b"", b"s")
            )
    assert len(wal_files(tmp_path)) < 10, wal_files(tmp_path)
    assert disk.store.first_file > 20, disk.store.first_file
    for _ in range(2):
        assert disk.store.groups[1].read(1).data == b"never applied"
        disk.close()
        disk = Disk(tmp_path, file_bytes=2000)
    disk.write(1, 1, [b"replaced"], term=2)
    disk.compact()
    disk.close()
    disk = Disk(tmp_path, file_bytes=2000)
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
    assert disk.store.segments, "the first segment is still there"
    for _ in range(2):
        store = disk.group(1)
        assert (store.first_index(), store.last_index()) == (16, 15)
        disk.close()
        disk = Disk(tmp_path, file_bytes=4000)
    disk.write(1, 16, [b"the one"], term=8)
    disk.close()
    disk = Disk(tmp_path, file_bytes=4000)
    assert disk.group(1).read(16).data == b"the one"
    disk.close()
