"""A file of the log that would be copied in part waits for two more: the rest may soon be dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raft.storage.kit import Disk, wal_files
from warren_raft.index_set import Indexes
from warren_raft.storage import compaction
from warren_raft.storage.snapshot import Snapshot

FILE_BYTES = 4_000
BODY = b"b" * 300


def filled(root: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A log of three complete files; two entries of the third one are to be kept."""
    monkeypatch.setattr(compaction, "COPY_WAITS_BYTES", 2 * len(BODY))
    disk = Disk(root, file_bytes=FILE_BYTES)
    fill(disk, 3)
    return disk


def fill(disk: Disk, files: int) -> None:
    """Write entries of one group until that many files were begun."""
    wal = disk.store.wal
    target = wal.current_file + files
    while wal.current_file < target:
        disk.write(1, disk.group(1).last_index() + 1, [BODY])
    disk.group(1).applied = disk.group(1).last_index()


def kept(disk: Disk) -> list[int]:
    """Return the last two entries that there are."""
    last = disk.group(1).last_index()
    return [last - 1, last]


def compact(disk: Disk, live: list[int]) -> None:
    """Compact with a snapshot of all entries that refers to these."""
    store = disk.group(1)
    indexes = Indexes.of(live).tobytes()
    index, term = store.applied, store.term(store.applied)
    disk.compact(Snapshot(1, index, term, 1, store.born, 1, ("n1",), (), indexes, b"s"))


def segments(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "segments").glob("*.seg"))


def logged(root: Path) -> list[int]:
    return [int(path.stem) for path in wal_files(root)]


def test_what_is_dead_two_files_later_is_never_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream of batches copied a quarter of a file for each, and dropped the copy later."""
    disk = filled(tmp_path, monkeypatch)
    live = kept(disk)
    compact(disk, live)
    assert logged(tmp_path) == [3] and not segments(tmp_path)
    assert [disk.group(1).read(index).data for index in live] == [BODY, BODY]
    disk = disk.again()
    assert [disk.group(1).read(index).data for index in live] == [BODY, BODY]
    fill(disk, 1)
    compact(disk, [*live, *kept(disk)])
    assert logged(tmp_path) == [3, 4] and not segments(tmp_path), "the one behind it waits, too"
    compact(disk, kept(disk))
    assert logged(tmp_path) == [4] and not segments(tmp_path), "nothing of it is kept any more"
    disk = disk.again()
    assert [disk.group(1).read(index).data for index in kept(disk)] == [BODY, BODY]
    disk.close()


def test_what_lives_on_is_copied_when_two_more_files_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = filled(tmp_path, monkeypatch)
    live = kept(disk)
    compact(disk, live)
    fill(disk, 1)
    compact(disk, live)
    assert logged(tmp_path) == [3, 4]
    fill(disk, 1)
    compact(disk, live)
    assert logged(tmp_path) == [] and len(segments(tmp_path)) == 1
    assert [disk.group(1).read(index).data for index in live] == [BODY, BODY]
    disk = disk.again()
    assert [disk.group(1).read(index).data for index in live] == [BODY, BODY]
    disk.close()


def test_a_little_is_copied_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = filled(tmp_path, monkeypatch)
    compact(disk, kept(disk)[:1])
    assert logged(tmp_path) == [] and len(segments(tmp_path)) == 1
    disk.close()


@pytest.mark.parametrize("reason", ["damage", "damage later", "space"])
def test_nothing_waits_while_there_is_damage_or_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """Files are retired in their order: one that waited would have a damaged one wait behind it."""
    disk = filled(tmp_path, monkeypatch)
    live = kept(disk)
    fill(disk, 1)
    if reason == "space":
        disk.store.space_is_low()
    else:
        disk.store.compactor.damaged.add(3 if reason == "damage" else 4)
    compact(disk, live)
    assert logged(tmp_path) == [] and len(segments(tmp_path)) == 1
    assert [disk.group(1).read(index).data for index in live] == [BODY, BODY]
    disk.close()
