"""A node that ends again and again while it begins a file of its log keeps what it has."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.raft.storage.kit import Disk, wal_files
from tests.raft.storage.test_compaction_crash import StoppingFiles
from warren_raft.storage import synced_mark
from warren_raft.storage.errors import WriteFailed
from warren_raft.types import HardState

STATE = HardState(3, "n2")


def first_life(root: Path) -> None:
    disk = Disk(root, StoppingFiles())
    disk.write(1, 1, [b"one", b"two"], term=3, state=STATE)
    disk.close()


def a_life(root: Path, stop_at: int | None) -> int:
    """One entry more, and the disk stops at its n-th operation; returns how many there were."""
    files = StoppingFiles(stop_at)
    disk = None
    try:
        disk = Disk(root, files)
        disk.write(1, disk.group(1).last_index() + 1, [b"more"], term=3)
        ops = files.calls
    except (WriteFailed, OSError):
        ops = files.calls
    finally:
        if disk is not None:
            disk.close()
    return ops


def check(root: Path) -> None:
    """What the first life was told to be on disk is there, at a second start too."""
    for _ in range(2):
        disk = Disk(root, StoppingFiles())
        state, entries = disk.contents()[1]
        assert state == STATE
        assert entries[:2] == [(1, 3, b"one"), (2, 3, b"two")]
        assert all(data == b"more" for _, _, data in entries[2:])
        disk.close()
    assert a_life(root, None)


@pytest.mark.long
def test_two_lives_that_end_at_any_step_of_their_first_write(tmp_path: Path) -> None:
    first_life(tmp_path / "whole")
    steps = a_life(tmp_path / "whole", None)
    assert steps >= 12, "a new file, twice what names it, and the write"
    for stops in product(range(1, steps + 2), repeat=2):
        root = tmp_path / "-".join(map(str, stops))
        first_life(root)
        for stop_at in stops:
            a_life(root, stop_at)
        check(root)


def test_four_lives_that_end_at_the_same_step(tmp_path: Path) -> None:
    first_life(tmp_path / "whole")
    steps = a_life(tmp_path / "whole", None)
    for stop_at in range(1, steps + 2):
        root = tmp_path / str(stop_at)
        first_life(root)
        for _ in range(4):
            a_life(root, stop_at)
        check(root)


def test_a_file_that_nothing_names_is_named_before_the_next_one_is_begun(tmp_path: Path) -> None:
    first_life(tmp_path)
    known = synced_mark.read(StoppingFiles(), tmp_path)
    for stop_at in range(1, 20):
        a_life(tmp_path, stop_at)
        newest = int(wal_files(tmp_path)[-1].stem)
        if newest > known.file:
            break
    assert newest == known.file + 1, "begun, and the life ended before it was named"
    assert synced_mark.read(StoppingFiles(), tmp_path) == known
    for stop_at in range(1, 30):
        a_life(tmp_path, stop_at)
        there = int(wal_files(tmp_path)[-1].stem)
        named = [
            synced_mark.read(StoppingFiles(), place).file for place in (tmp_path, tmp_path / "wal")
        ]
        assert max(named) >= there - 1, (stop_at, named, there)


class RecordingFiles(StoppingFiles):
    """Keeps the names of the files that are created, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.created: list[str] = []

    def create(self, path: Path, data: bytes) -> int:
        self.created.append(path.name)
        return super().create(path, data)


def test_marks_that_were_read_are_written_again_before_the_next_file_is_begun(
    tmp_path: Path,
) -> None:
    # 1. A process overwrites its marks, and is killed before that is synced.  2. The next one reads
    # them from the cache, and begins a file.  3. The power fails: the older marks are on the disk.
    first_life(tmp_path)
    files = RecordingFiles()
    disk = Disk(tmp_path, files)
    disk.write(1, 3, [b"more"], term=3)
    disk.close()
    begun = next(at for at, name in enumerate(files.created) if name.endswith(".wal"))
    assert files.created[:begun].count("synced") == 2, files.created
