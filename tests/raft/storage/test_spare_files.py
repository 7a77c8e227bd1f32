"""Files of the log are allocated ahead, and written over when they are not needed any more."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.raft.storage.kit import WAIT_S, Disk, wal_files
from warren_raft.index_set import Indexes
from warren_raft.storage.files import Files
from warren_raft.storage.format import FIRST_RECORD, decode_head
from warren_raft.storage.snapshot import Snapshot
from warren_raft.storage.spare_files import (
    SPARES_FREE_FILES,
    SPARES_MAX,
    SPARES_MIN,
    SPARES_PAUSE_MS,
    SPARES_WINDOW_MS,
    SpareFiles,
)
from warren_raft.storage.wal import SMALL_MIN, ZEROS

FILE_BYTES = 4_000
BODY = b"b" * 300


def fill(disk: Disk, files: int) -> None:
    """Write entries of one group until that many files were begun."""
    wal = disk.store.wal
    last = disk.group(1).last_index()
    target = wal.current_file + files
    while wal.current_file < target:
        last += 1
        disk.write(1, last, [BODY + b"%d" % last])
    disk.group(1).applied = last


def settle(disk: Disk) -> None:
    """Compact with a snapshot that needs nothing: complete files are not needed any more."""
    store = disk.group(1)
    live = Indexes.of([]).tobytes()
    disk.compact(
        Snapshot(
            1,
            store.applied,
            store.term(store.applied),
            1,
            store.born,
            1,
            ("n1",),
            (),
            live,
            b"s",
        )
    )


def rewritten(disk: Disk) -> None:
    """Wait until the background writer has done what it was asked for."""
    done: list[None] = []
    disk.store.background_writer.run(lambda: None, done.append, lambda error: None)
    while not done:
        disk.posted.get(timeout=WAIT_S)()


def spare(root: Path) -> list[Path]:
    return sorted((root / "wal").glob("*.wal.new"))


def inodes(root: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in sorted((root / "wal").iterdir())}


def filled(root: Path, recycle: bool = True, files: Files | None = None) -> Disk:
    """A log with two spare files, unless there are to be none."""
    disk = Disk(root, files, file_bytes=FILE_BYTES, recycle=recycle)
    fill(disk, 3)
    settle(disk)
    return disk


def read_back(root: Path) -> list[bytes]:
    disk = Disk(root, file_bytes=FILE_BYTES)
    (_, entries) = disk.contents()[1]
    disk.close()
    return [data for _, _, data in entries]


def test_a_file_that_is_not_needed_becomes_the_next_one(tmp_path: Path) -> None:
    tmp_path, killed = tmp_path / "log", tmp_path / "killed"
    disk = filled(tmp_path)
    kept = spare(tmp_path)
    assert [path.name for path in kept] == ["000000000001.wal.new", "000000000002.wal.new"]
    before = {path.stat().st_ino for path in kept}
    first = disk.group(1).last_index() + 1
    fill(disk, 2)
    assert disk.store.wal.recycled == 2
    assert {inodes(tmp_path)[name] for name in ("000000000005.wal", "000000000004.wal")} >= before
    newest = wal_files(tmp_path)[-1]
    data = newest.read_bytes()
    head = decode_head(data)
    assert head.link is not None and head.link.reserved >= FILE_BYTES // 2
    last = disk.group(1).last_index()
    expected = [BODY + b"%d" % index for index in range(first, last + 1)]
    behind = data[disk.store.wal.newest_bytes :]
    assert BODY in behind, "there are records of an earlier use behind the last one"
    # As a kill leaves it: with everything that stands behind the records.
    shutil.copytree(tmp_path, killed)
    disk.close()
    assert newest.stat().st_size < len(data), "a stop gives the space back"
    for root in (tmp_path, killed):
        assert read_back(root)[-len(expected) :] == expected
        assert not spare(root), "a start removes them"


def test_a_recycled_file_that_is_torn_anywhere_gives_what_was_synced(tmp_path: Path) -> None:
    """The power fails in its last write: any of its sectors may hold what was there before."""
    tmp_path, copy, root = tmp_path / "log", tmp_path / "copy", tmp_path / "torn"
    disk = filled(tmp_path)
    fill(disk, 1)
    last = disk.group(1).last_index()
    path = wal_files(tmp_path)[-1]
    old = path.read_bytes()
    begin = disk.store.wal.newest_bytes
    disk.write(1, last + 1, [b"new" * 400])
    end = disk.store.wal.newest_bytes
    new = path.read_bytes()
    shutil.copytree(tmp_path, copy)
    disk.close()
    sector = 512
    edges = [begin, *range((begin // sector + 1) * sector, end, sector), end]
    pieces = list(itertools.pairwise(edges))
    assert len(pieces) > 2
    for mask in range(1 << len(pieces)):
        torn = bytearray(old)
        for at, (low, high) in enumerate(pieces):
            if mask >> at & 1:
                torn[low:high] = new[low:high]
        shutil.copytree(copy, root)
        (root / "wal" / path.name).write_bytes(torn)
        found = read_back(root)
        whole = mask == (1 << len(pieces)) - 1
        assert found[-1] == (b"new" * 400 if b"new" in found[-1] else BODY + b"%d" % last)
        assert whole <= (found[-1] == b"new" * 400)
        shutil.rmtree(root)


def test_what_makes_a_file_no_spare_one(tmp_path: Path) -> None:
    (tmp_path / "off").mkdir()
    disk = filled(tmp_path / "off", recycle=False)
    assert not spare(tmp_path / "off")
    disk.close()
    # A copy of hard links, as a backup makes one, would be written over.
    root = tmp_path / "linked"
    disk = Disk(root, file_bytes=FILE_BYTES)
    fill(disk, 3)
    for path in wal_files(root):
        os.link(path, tmp_path / path.name)
    copies = {path.name: (tmp_path / path.name).read_bytes() for path in wal_files(root)[:-1]}
    settle(disk)
    assert not spare(root)
    fill(disk, 2)
    disk.close()
    assert copies == {name: (tmp_path / name).read_bytes() for name in copies}
    # A file that was completed early is too short to be of use.
    root = tmp_path / "short"
    disk = Disk(root, file_bytes=len(ZEROS) * 8)
    disk.write(1, 1, [BODY])
    disk.group(1).applied = 1
    disk.store.wal.roll()
    disk.write(1, 2, [BODY])
    settle(disk)
    assert not spare(root) and len(wal_files(root)) == 1
    disk.close()


def test_a_file_with_damage_is_not_used_again(tmp_path: Path) -> None:
    disk = Disk(tmp_path, file_bytes=FILE_BYTES)
    fill(disk, 3)
    disk.store.compactor.damaged.add(2)
    settle(disk)
    names = [path.name for path in spare(tmp_path)]
    assert names == ["000000000001.wal.new", "000000000003.wal.new"]
    disk.close()


def test_spare_files_are_few_and_go_when_the_log_rests_or_space_is_low(tmp_path: Path) -> None:
    disk = Disk(tmp_path, file_bytes=FILE_BYTES)
    fill(disk, 6)
    settle(disk)
    assert len(spare(tmp_path)) == SPARES_MIN
    assert not wal_files(tmp_path)
    disk.store.look(0)
    disk.store.look(SPARES_WINDOW_MS - 1)
    assert len(spare(tmp_path)) == SPARES_MIN, "it counts from the newest file's beginning"
    disk.store.look(SPARES_WINDOW_MS)
    rewritten(disk)
    assert not spare(tmp_path)
    fill(disk, 3)
    settle(disk)
    assert len(spare(tmp_path)) == SPARES_MIN
    now_ms = SPARES_WINDOW_MS
    disk.store.space_is_low()
    rewritten(disk)
    assert not spare(tmp_path)
    fill(disk, 3)
    settle(disk)
    assert not spare(tmp_path)
    for later_ms in (now_ms + 1, now_ms + SPARES_PAUSE_MS):
        assert disk.store.spares.paused
        disk.store.look(later_ms)
    assert not disk.store.spares.paused
    fill(disk, 3)
    settle(disk)
    assert len(spare(tmp_path)) == SPARES_MIN
    disk.close()


def keep_some(spares: SpareFiles, root: Path, numbers: range) -> list[str]:
    """Offer files of the usual size; return the names of those that were kept."""
    kept = []
    for number in numbers:
        path = root / f"{number:012d}.wal"
        path.write_bytes(bytes(FILE_BYTES))
        if spares.keep(path):
            kept.append(path.name)
    return kept


def test_a_log_that_begins_many_files_has_as_many_spare_ones(tmp_path: Path) -> None:
    """With two of them every second batch of 120 MiB was written to memory that is new."""
    spares = SpareFiles(Files(), FILE_BYTES, recycle=True)
    assert spares.look(7, now_ms=0) == []
    assert len(keep_some(spares, tmp_path, range(1, 10))) == SPARES_MIN
    assert spares.look(12, now_ms=100) == []
    # A start is the beginning of one file, and five were begun since.
    assert len(keep_some(spares, tmp_path, range(10, 20))) == 6 - SPARES_MIN
    assert spares.look(100, now_ms=200) == []
    assert len(keep_some(spares, tmp_path, range(20, 30))) == SPARES_MAX - 6
    assert spares.look(100, now_ms=199 + SPARES_WINDOW_MS) == []
    assert len(list(tmp_path.glob("*.wal.new"))) == SPARES_MAX
    assert spares.look(101, now_ms=200 + SPARES_WINDOW_MS) == [
        tmp_path / f"{n:012d}.wal.new" for n in (1, 2, *range(10, 14))
    ]
    assert spares.take() == tmp_path / "000000000021.wal.new", "the last one: it is in memory"
    assert spares.take() is not None and spares.take() is None


class Narrow(Files):
    """A disk with so much free space."""

    free = 0

    def free_bytes(self, directory: Path) -> int:
        return self.free


def test_a_small_disk_is_not_filled_with_spare_files(tmp_path: Path) -> None:
    """Eight of them could raise the alarm for low space, which blocks publishers."""
    files = Narrow()
    spares = SpareFiles(files, FILE_BYTES, recycle=True)
    spares.look(1, now_ms=0)
    spares.look(10, now_ms=100)
    files.free = SPARES_FREE_FILES * FILE_BYTES - 1
    assert len(keep_some(spares, tmp_path, range(1, 10))) == SPARES_MIN
    files.free += 1
    assert len(keep_some(spares, tmp_path, range(10, 20))) == SPARES_MAX - SPARES_MIN


def test_there_is_free_space_on_a_disk(tmp_path: Path) -> None:
    assert 0 < Files().free_bytes(tmp_path) <= shutil.disk_usage(tmp_path).total


def test_a_log_that_rests_keeps_no_spare_file(tmp_path: Path) -> None:
    spares = SpareFiles(Files(), FILE_BYTES, recycle=True)
    assert spares.look(1, now_ms=0) == []
    assert spares.look(1, now_ms=SPARES_WINDOW_MS - 1) == []
    kept = keep_some(spares, tmp_path, range(1, 3))
    assert len(kept) == SPARES_MIN
    for later_ms in (0, 100):
        assert len(spares.look(1, SPARES_WINDOW_MS + later_ms)) == SPARES_MIN
        assert len(keep_some(spares, tmp_path, range(3, 6))) == SPARES_MIN
    assert spares.look(2, SPARES_WINDOW_MS + 200) == [], "it begins files again"


def test_a_spare_file_that_somebody_has_removed_or_emptied(tmp_path: Path) -> None:
    disk = filled(tmp_path)
    one, other = spare(tmp_path)
    other.unlink()
    os.truncate(one, 0)
    first = disk.group(1).last_index() + 1
    fill(disk, 3)
    last = disk.group(1).last_index()
    assert disk.store.wal.recycled == 1
    disk.close()
    assert read_back(tmp_path)[first - last - 1 :] == [
        BODY + b"%d" % index for index in range(first, last + 1)
    ]


class NoRoomAhead(Files):
    """There is space for records, and none for zeros."""

    def __init__(self) -> None:
        self.refused = 0
        self.full = True

    def write_at(self, fd: int, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        data = b"".join(buffers)
        if self.full and data.endswith(bytes(1_000)):
            self.refused += 1
            super().write_at(fd, offset, [data[: len(data) - 500]])
            raise OSError(errno.ENOSPC, "no space left on device")
        super().write_at(fd, offset, buffers)


def test_without_space_ahead_the_file_grows(tmp_path: Path) -> None:
    files = NoRoomAhead()
    disk = Disk(tmp_path / "log", files, file_bytes=FILE_BYTES)
    disk.write(1, 1, [BODY])
    disk.write(1, 2, [BODY])
    assert files.refused and disk.store.wal.full is None
    # Its head says that it grows. What else follows its records is a torn end, and cut as one.
    files.full = False
    for index in range(3, 3 + SMALL_MIN):
        disk.write(1, index, [b"small"])
    (path,) = wal_files(tmp_path / "log")
    assert path.stat().st_size == disk.store.wal.newest_bytes
    shutil.copytree(tmp_path / "log", tmp_path / "killed")
    disk.close()
    bodies = [BODY, BODY, *[b"small"] * SMALL_MIN]
    assert read_back(tmp_path / "log") == read_back(tmp_path / "killed") == bodies


@pytest.mark.parametrize("recycle", [False, True])
def test_how_long_a_file_is(tmp_path: Path, recycle: bool) -> None:
    disk = Disk(tmp_path, file_bytes=2 * len(ZEROS), recycle=recycle)
    disk.write(1, 1, [BODY])
    (path,) = wal_files(tmp_path)
    end = disk.store.wal.newest_bytes
    assert path.stat().st_size == (len(ZEROS) if recycle else end)
    disk.write(1, 2, [b"x" * len(ZEROS)])  # large: nothing is written ahead of it
    for index in range(3, 3 + SMALL_MIN):
        assert path.stat().st_size == disk.store.wal.newest_bytes
        disk.write(1, index, [BODY])
    end = disk.store.wal.newest_bytes
    assert len(ZEROS) + FIRST_RECORD < end
    assert path.stat().st_size == (2 * len(ZEROS) if recycle else end)
    disk.close()
    assert path.stat().st_size == end
    assert [len(data) for data in read_back(tmp_path)] == [300, len(ZEROS)] + SMALL_MIN * [300]


@pytest.mark.parametrize("torn", [False, True])
def test_a_kill_when_there_is_no_file_of_the_log(tmp_path: Path, torn: bool) -> None:
    """A complete file is retired before the next one is begun. torn: one of its two marks is."""
    disk = Disk(tmp_path / "a", file_bytes=FILE_BYTES)
    fill(disk, 3)
    settle(disk)
    assert not wal_files(tmp_path / "a"), "a file that is complete, and no next one"
    before = disk.contents()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    disk.close()
    if torn:
        (tmp_path / "b" / "synced").write_bytes(b"torn")
    again = Disk(tmp_path / "b", file_bytes=FILE_BYTES)
    assert again.contents() == before
    fill(again, 2)
    before = again.contents()
    again = again.again()
    assert again.contents() == before
    again.close()


class NoRoom:
    """The system's calls; those named in `refused` find no space, so often."""

    def __init__(self) -> None:
        self.refused: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if self.refused.get(name, 0):
                self.refused[name] -= 1
                raise OSError(errno.ENOSPC, "no space left on device")
            return getattr(os, name)(*arguments)

        return call


class TightFiles(Files):
    def __init__(self) -> None:
        self.system: NoRoom = NoRoom()


@pytest.mark.parametrize("call", ["pwritev", "rename"])
def test_a_spare_file_of_which_nothing_can_be_made_is_removed(tmp_path: Path, call: str) -> None:
    """Its space is needed then; nothing else would remove it before the next start."""
    files = TightFiles()
    disk = filled(tmp_path, files=files)
    disk.store.wal.roll()
    files.system.refused[call] = 1
    first = disk.group(1).last_index()
    fill(disk, 1)
    assert not files.system.refused[call]
    rewritten(disk)
    assert not spare(tmp_path), "those that are left are removed: the disk is full"
    last = disk.group(1).last_index()
    disk.close()
    assert len(read_back(tmp_path)[first - last :]) == last - first > 0


def test_a_file_that_cannot_be_renamed_is_removed_instead_of_kept(tmp_path: Path) -> None:
    """What a cycle of compaction could not remove, the next one does."""
    files = TightFiles()
    disk = Disk(tmp_path, files, file_bytes=FILE_BYTES)
    fill(disk, 4)
    keep = disk.store.spares.keep

    def kept(path: Path) -> bool:
        files.system.refused["rename"] = 1
        return keep(path)

    disk.store.spares.keep = kept  # type: ignore[method-assign]
    files.system.refused["unlink"] = 1
    settle(disk)
    assert wal_files(tmp_path), "there was no space to remove the first one"
    disk.compact()
    assert not wal_files(tmp_path) and not spare(tmp_path)
    disk.close()


def test_a_rewriting_without_space_gives_the_spare_files_back(tmp_path: Path) -> None:
    """The log itself may not notice: it writes to space that is there already."""
    files = TightFiles()
    disk = filled(tmp_path, files=files)
    assert len(spare(tmp_path)) == SPARES_MIN
    files.system.refused["pwritev"] = 1
    settle(disk)
    rewritten(disk)
    assert not files.system.refused["pwritev"] and not spare(tmp_path)
    fill(disk, 3)
    settle(disk)
    assert not spare(tmp_path), "none is kept for a while"
    disk.close()
