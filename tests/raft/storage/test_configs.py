"""Entries that change a group's members are found again, wherever they stand."""

from __future__ import annotations

from pathlib import Path

from tests.raft.storage.kit import Disk, vote
from warren_raft.index_set import Indexes
from warren_raft.storage.snapshot import Snapshot, encode
from warren_raft.types import Entry, EntryKind


def append(disk: Disk, group: int, index: int, kind: EntryKind, data: bytes, term: int = 1) -> None:
    store = disk.group(group)
    store.append(vote(store, term), [Entry(index, term, kind, 1000 + index, data)])
    disk.sync()
    store.written(1)


def command(disk: Disk, group: int, index: int, term: int = 1, size: int = 100) -> None:
    append(disk, group, index, EntryKind.COMMAND, b"%d" % index * (size // 2), term)


def config(disk: Disk, group: int, index: int, data: bytes, term: int = 1) -> None:
    append(disk, group, index, EntryKind.CONFIG, data, term)


def found(root: Path, group: int = 1, **settings: int) -> list[tuple[int, bytes]]:
    disk = Disk(root, **settings)
    try:
        disk.group(group).log.check()
        return list(disk.group(group).configs())
    finally:
        disk.close()


def taken(disk: Disk, group: int, index: int, live: tuple[int, ...] = ()) -> Snapshot:
    store = disk.group(group)
    store.applied = max(store.applied, index)
    return Snapshot(
        group,
        index,
        store.term(index),
        1,
        store.born,
        1,
        ("n1",),
        (),
        Indexes.of(live).tobytes(),
        b"s",
    )


def test_from_the_log_and_from_memory(tmp_path: Path) -> None:
    for memtable in (1, 1 << 20):  # read from the file; still in memory
        root = tmp_path / str(memtable)
        disk = Disk(root, memtable_bytes=memtable)
        command(disk, 1, 1)
        config(disk, 1, 2, b"first")
        command(disk, 1, 3)
        config(disk, 1, 4, b"second")
        config(disk, 2, 1, b"another group's")
        assert disk.group(1).configs() == [(2, b"first"), (4, b"second")]
        disk.close()
        assert found(root, memtable_bytes=memtable) == [(2, b"first"), (4, b"second")]
        assert found(root, 2) == [(1, b"another group's")]


def test_one_that_was_replaced_is_none(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    command(disk, 1, 1)
    config(disk, 1, 2, b"stays")
    config(disk, 1, 3, b"is replaced")
    config(disk, 1, 4, b"goes with it")
    command(disk, 1, 3, term=2)
    assert disk.group(1).configs() == [(2, b"stays")]
    config(disk, 1, 4, b"new", term=2)
    disk.close()
    assert found(tmp_path) == [(2, b"stays"), (4, b"new")]


def test_from_segments_sealed_and_copied_and_merged(tmp_path: Path) -> None:
    disk = Disk(tmp_path, file_bytes=1500)
    expected = []
    for index in range(1, 60):
        if index % 7 == 0:
            config(disk, 1, index, b"c%d" % index)
            expected.append((index, b"c%d" % index))
        else:
            command(disk, 1, index)
        command(disk, 2, index, size=400)
    disk.group(1).applied = disk.group(2).applied = 59
    disk.compact()  # sealed in place
    assert list(disk.store.log_files.segments) and all(
        s.in_place for s in disk.store.log_files.segments
    )
    assert disk.group(1).configs() == expected
    disk.close()
    assert found(tmp_path) == expected
    disk = Disk(tmp_path, file_bytes=1500)
    disk.group(1).applied = disk.group(2).applied = 59
    disk.compact(taken(disk, 2, 59))  # most is dead now: rewritten
    assert any(not s.in_place for s in disk.store.log_files.segments)
    assert disk.group(1).configs() == expected
    disk.close()
    assert found(tmp_path) == expected


def with_three_configs(root: Path) -> Disk:
    """Write entries 1 to 29, of which 5, 12 and 20 are CONFIG entries."""
    disk = Disk(root, file_bytes=1000)
    for index in range(1, 30):
        if index in (5, 12, 20):
            config(disk, 1, index, b"c%d" % index)
        else:
            command(disk, 1, index)
    return disk


def test_those_below_the_snapshot_are_in_it(tmp_path: Path) -> None:
    disk = with_three_configs(tmp_path)
    disk.compact(taken(disk, 1, 12, (3, 11)))
    assert disk.group(1).configs() == [(20, b"c20")]
    disk.close()
    assert found(tmp_path) == [(20, b"c20")]


def test_what_is_kept_for_others_below_the_snapshot_does_not_count(tmp_path: Path) -> None:
    disk = with_three_configs(tmp_path)
    disk.group(1).begun(lambda: 4)
    disk.compact(taken(disk, 1, 15))
    assert disk.group(1).first_index() == 4
    assert disk.group(1).configs() == [(20, b"c20")]
    disk.close()
    assert found(tmp_path) == [(20, b"c20")]


def test_a_deleted_groups_are_not_its_successors(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    config(disk, 1, 1, b"old")
    disk.store.delete(1)
    disk.sync()
    command(disk, 1, 1)
    disk.close()
    assert found(tmp_path) == []


def test_another_members_snapshot_takes_their_place(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    config(disk, 1, 1, b"old")
    command(disk, 1, 2)
    store = disk.group(1)
    theirs = Snapshot(1, 9, 3, 5, store.born, 1, ("n1", "n2"), (), b"", b"s", (("n2", 77),))
    store.begin_incoming()
    disk.store.files.write_whole(disk.store.log_files.snapshot_path(1, 9), encode(theirs))
    places = store.incoming_places(theirs, 0)
    assert places is not None
    store.install(theirs, places)
    store.end_incoming()
    disk.sync()
    config(disk, 1, 10, b"new", term=3)
    assert store.configs() == [(10, b"new")]
    disk.close()
    disk = Disk(tmp_path)
    snapshot = disk.group(1).snapshot
    assert snapshot is not None and snapshot.ids == (("n2", 77),)
    assert disk.group(1).configs() == [(10, b"new")]
    disk.close()
