"""Entries that lie near each other in a file are read at once, and fail one by one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.raft.storage.kit import ALONE, Disk, two_groups_compacted, wal_files
from warren_raft.storage import log_files
from warren_raft.storage.errors import EntryDamaged, LogDamaged
from warren_raft.storage.files import Files
from warren_raft.types import Entry, EntryKind

ENTRIES = 40


class Counted(Files):
    """Notes each read; fails those that touch a bad byte of a file."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []
        self.bad: int | None = None

    def read_at(self, fd: int, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        if self.bad is not None and offset <= self.bad < offset + length:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read_at(fd, offset, length)


def body(index: int) -> bytes:
    return b"entry %06d" % index * 10


def written(tmp_path: Path, told: list[EntryDamaged], entries: int = ENTRIES) -> Disk:
    """A group's entries on disk only, each in a batch of its own, with another group's between."""

    def damaged(damage: EntryDamaged) -> bool:
        told.append(damage)
        return True

    disk = Disk(tmp_path, Counted(), memtable_bytes=1, callbacks=replace(ALONE, damaged=damaged))
    for index in range(1, entries + 1):
        disk.write(1, index, [body(index)])
        disk.write(2, index, [b"other"])
    assert not disk.group(1).log.entries
    files_of(disk).reads.clear()
    return disk


def files_of(disk: Disk) -> Counted:
    files = disk.store.files
    assert isinstance(files, Counted)
    return files


def read(disk: Disk, *indexes: int) -> list[bytes | None]:
    """The data of entries; None for a damaged one."""
    found = disk.group(1).read_data(indexes)
    return [None if isinstance(each, EntryDamaged) else each for each in found]


def test_neighbours_are_read_at_once(tmp_path: Path) -> None:
    disk = written(tmp_path, [])
    wanted = [*range(1, 20), *range(25, ENTRIES + 1)]
    assert read(disk, *wanted) == [body(index) for index in wanted]
    assert len(files_of(disk).reads) == 1
    assert [e.data for e in disk.group(1).entries(3, 30, 1 << 20)] == [
        body(index) for index in range(3, 31)
    ]
    assert len(files_of(disk).reads) == 2
    disk.close()


def test_what_one_read_takes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = written(tmp_path, [])
    monkeypatch.setattr(log_files, "RUN_BYTES_MAX", 1000)
    assert read(disk, *range(1, ENTRIES + 1)) == [body(i) for i in range(1, ENTRIES + 1)]
    assert len(files_of(disk).reads) > 5
    assert max(length for _, length in files_of(disk).reads) <= 1000
    monkeypatch.setattr(log_files, "RUN_BYTES_MAX", 10)  # less than one entry: each alone
    files_of(disk).reads.clear()
    assert read(disk, 1, 2, 3) == [body(1), body(2), body(3)]
    assert len(files_of(disk).reads) == 3
    disk.close()


def test_far_entries_are_not_read_through_what_lies_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = written(tmp_path, [])
    monkeypatch.setattr(log_files, "GAP_BYTES_MAX", 1000)
    assert read(disk, 1, 2, 30, 31) == [body(1), body(2), body(30), body(31)]
    assert len(files_of(disk).reads) == 2
    assert sum(length for _, length in files_of(disk).reads) < 2000
    disk.close()


def test_any_order_and_repeats_are_read(tmp_path: Path) -> None:
    disk = written(tmp_path, [])
    assert read(disk, 5, 4, 4, 9, 1) == [body(index) for index in (5, 4, 4, 9, 1)]
    assert read(disk) == []
    disk.close()


def test_entries_in_memory_on_disk_and_in_segments_come_in_order(tmp_path: Path) -> None:
    disk = two_groups_compacted(tmp_path)
    for memory in (range(37, 40), ()):
        store = disk.group(1)
        for index in set(range(37, 40)) - set(memory):
            store.log.forget(index)
        indexes = [2, 9, 30, *range(37, 40)]
        assert list(store.read_data(indexes)) == [b"%d" % index * 100 for index in indexes]
    disk.close()


def test_an_entry_that_is_not_held_ends_the_reading(tmp_path: Path) -> None:
    disk = written(tmp_path, [])
    found = disk.group(1).read_data([ENTRIES - 1, ENTRIES, ENTRIES + 1])
    assert [next(found), next(found)] == [body(ENTRIES - 1), body(ENTRIES)]
    with pytest.raises(KeyError):
        next(found)
    disk.close()


def spoil_byte(disk: Disk, path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def spoil_sector(disk: Disk, path: Path, at: int) -> None:
    files_of(disk).bad = at


@pytest.mark.parametrize("spoil", [spoil_byte, spoil_sector])
@pytest.mark.parametrize("within", [0, 30, 56, 100], ids=["tag", "head", "data", "end"])
@pytest.mark.parametrize("index", [1, 7, ENTRIES])
def test_a_damaged_entry_leaves_its_neighbours_readable(
    tmp_path: Path, spoil: Callable[[Disk, Path, int], None], within: int, index: int
) -> None:
    told: list[EntryDamaged] = []
    disk = written(tmp_path, told)
    place = disk.group(1).log.place(index)
    (path,) = wal_files(tmp_path)
    spoil(disk, path, place.offset + within)
    found = list(disk.group(1).read_data(range(1, ENTRIES + 1)))
    damage = found.pop(index - 1)
    assert found == [body(i) for i in range(1, ENTRIES + 1) if i != index]
    assert isinstance(damage, EntryDamaged) and told == [damage]
    assert (damage.path, damage.offset, damage.file) == (path, place.offset, place.file)
    assert (damage.group, damage.index, damage.term) == (1, index, 1)
    with pytest.raises(EntryDamaged) as alone:
        disk.group(1).read(index)
    assert str(alone.value) == str(damage)
    # For the core: what precedes it, and nothing after it.
    assert [e.index for e in disk.group(1).entries(1, ENTRIES, 1 << 20)] == [*range(1, index)]
    disk.close()


def test_a_lost_end_of_the_file_is_damage_of_what_was_there(tmp_path: Path) -> None:
    told: list[EntryDamaged] = []
    disk = written(tmp_path, told)
    (path,) = wal_files(tmp_path)
    os.truncate(path, disk.group(1).log.place(30).offset + 20)
    assert read(disk, *range(1, ENTRIES + 1)) == [
        body(index) if index < 30 else None for index in range(1, ENTRIES + 1)
    ]
    assert [damage.index for damage in told] == [*range(30, ENTRIES + 1)]
    disk.close()


def test_another_record_in_the_place_of_an_entry_is_damage(tmp_path: Path) -> None:
    told: list[EntryDamaged] = []
    disk = written(tmp_path, told)
    (path,) = wal_files(tmp_path)
    data = bytearray(path.read_bytes())
    at, other = (disk.group(1).log.place(index) for index in (8, 9))
    size = 56 + at.length
    data[at.offset : at.offset + size] = data[other.offset : other.offset + size]
    path.write_bytes(data)
    assert read(disk, 7, 8, 9) == [body(7), None, body(9)]
    assert [(damage.index, damage.reason) for damage in told] == [
        (8, "it is not entry 8 of group 1")
    ]
    disk.close()


def test_a_copy_of_a_damaged_entry_is_read_among_its_neighbours(tmp_path: Path) -> None:
    disk = written(tmp_path, [])
    (path,) = wal_files(tmp_path)
    spoil_byte(disk, path, disk.group(1).log.place(8).offset + 60)
    assert read(disk, 7, 8, 9) == [body(7), None, body(9)]
    disk.group(1).heal(Entry(8, 1, EntryKind.COMMAND, 1008, body(8)))
    assert read(disk, 7, 8, 9) == [body(7), body(8), body(9)]
    disk.close()


def test_damage_that_no_other_member_can_repair_is_raised(tmp_path: Path) -> None:
    disk = Disk(tmp_path, memtable_bytes=1)
    for index in range(1, 4):
        disk.write(1, index, [body(index)])
    (path,) = wal_files(tmp_path)
    spoil_byte(disk, path, disk.group(1).log.place(2).offset + 60)
    found = disk.group(1).read_data([1, 2, 3])
    assert next(found) == body(1)
    with pytest.raises(LogDamaged, match="it held entry 2 of group 1"):
        next(found)
    disk.close()
