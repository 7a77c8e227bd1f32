"""Damage found at a start: set aside where peers can repair it, refused where none can."""

from __future__ import annotations

import errno
import json
import os
import queue
from pathlib import Path

import pytest

from tests.raft.storage.kit import ALONE, WAIT_S, Disk, two_groups_compacted, wal_files
from tests.raft.storage.test_compaction_crash import StoppingFiles
from warren_raft.storage.errors import GroupAlone, LogDamaged, LogOfOtherVersion
from warren_raft.storage.files import Files
from warren_raft.storage.framed_file import SEAL_HEADER_BYTES, seal
from warren_raft.storage.group_log import ENTRY_OVERHEAD_BYTES
from warren_raft.storage.log_store import LogStore
from warren_raft.storage.opened_log import OpenedLog, open_log
from warren_raft.storage.quarantine import REASON_FILE
from warren_raft.storage.rewrite import write_snapshots
from warren_raft.storage.snapshot import MAGIC, Snapshot
from warren_raft.types import HardState

VOTED = HardState(1, "n1")


def a_life(root: Path) -> None:
    """Two groups: segments of both kinds, a snapshot of the first, a log."""
    disk = two_groups_compacted(root)
    disk.write(1, 40, [b"last"], state=VOTED)
    disk.write(2, 40, [b"last"], state=VOTED)
    disk.close()


def flip(path: Path, at: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 8
    path.write_bytes(data)


def start(root: Path, files: Files | None = None, alone: bool = False) -> OpenedLog:
    return open_log(
        files or Files(),
        root,
        "c",
        "n1",
        1 << 20,
        lambda: 0xABCDEF,
        lambda group, created: not alone,
        ("n2",),
    )


def read(opened: OpenedLog, group: int, index: int) -> bytes:
    return opened.log_files.read_entry(opened.recovered.groups[group].log, index).data


def identity(root: Path) -> dict[str, object]:
    return json.loads((root / "node.json").read_text())


def everything(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


WHOLE = {
    "wal, in the middle": lambda root: wal_files(root)[-1],
    "segment's index": lambda root: next((root / "segments").glob("*.idx")),
    "manifest": lambda root: root / "groups.manifest",
}


def damage(root: Path, kind: str) -> Path:
    path = WHOLE[kind](root)
    flip(path, 60 if path.suffix == ".wal" else None)
    return path


@pytest.mark.parametrize("kind", sorted(WHOLE))
def test_without_peers_damage_is_refused_and_nothing_touched(tmp_path: Path, kind: str) -> None:
    a_life(tmp_path)
    path = damage(tmp_path, kind)
    before = everything(tmp_path)
    for _ in range(2):
        with pytest.raises(LogDamaged, match="restore the file from a copy|replace the node") as no:
            open_log(Files(), tmp_path, "c", "n1", 1 << 20)
        assert str(path) in str(no.value)
        assert everything(tmp_path) == before


@pytest.mark.parametrize("kind", sorted(WHOLE))
def test_with_peers_everything_is_set_aside(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    a_life(tmp_path)
    path = damage(tmp_path, kind)
    disk_before = identity(tmp_path)["disk"]
    before = everything(tmp_path)
    opened = start(tmp_path)
    assert opened.recovered.groups == {} and not opened.recovered.condemned
    opened.close()
    assert str(path) in caplog.text and "set aside" in caplog.text
    after = everything(tmp_path / "damaged" / "0001")
    assert str(path) in after.pop("reason").decode()
    assert after == {n: d for n, d in before.items() if n not in ("node.json", "lock")}
    assert identity(tmp_path)["disk"] not in (disk_before, "")
    caplog.clear()
    opened = start(tmp_path)  # and from then on it is named at each start
    opened.close()
    assert "damaged/0001 holds" in caplog.text and str(path) in caplog.text


class BadSectors(Files):
    """The disk cannot read some files, once or as long as they have their names."""

    def __init__(self, number: int, *bad: Path) -> None:
        self.number = number
        self.bad = bad
        self.opened: dict[int, Path] = {}

    def _read(self, path: Path) -> None:
        if path in self.bad:
            raise OSError(self.number, os.strerror(self.number))

    def open_read(self, path: Path) -> int:
        fd = super().open_read(path)
        self.opened[fd] = path
        return fd

    def read(self, path: Path) -> bytes:
        self._read(path)
        return super().read(path)

    def read_at(self, fd: int, offset: int, length: int) -> bytes:
        self._read(self.opened[fd])
        return super().read_at(fd, offset, length)


@pytest.mark.parametrize("number", [errno.EIO, errno.EUCLEAN])
@pytest.mark.parametrize("kind", sorted(WHOLE))
def test_a_file_that_the_disk_cannot_read_is_damaged(
    tmp_path: Path, kind: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Each start ended with the error of the read, which did not even name the file."""
    a_life(tmp_path)
    path = WHOLE[kind](tmp_path)
    opened = start(tmp_path, BadSectors(number, path))
    assert opened.recovered.groups == {}
    opened.close()
    assert str(path) in caplog.text and "the disk cannot read it" in caplog.text
    assert (tmp_path / "damaged" / "0001" / path.relative_to(tmp_path)).exists()


@pytest.mark.parametrize("kind", sorted(WHOLE))
def test_a_directory_in_the_place_of_a_file_is_damage(tmp_path: Path, kind: str) -> None:
    a_life(tmp_path)
    path = WHOLE[kind](tmp_path)
    path.unlink()
    path.mkdir()
    opened = start(tmp_path)
    assert opened.recovered.groups == {}
    opened.close()
    assert (tmp_path / "damaged" / "0001" / path.relative_to(tmp_path)).is_dir()


def test_a_snapshot_that_the_disk_cannot_read_condemns_its_group(tmp_path: Path) -> None:
    a_life(tmp_path)
    snapshot = next((tmp_path / "snapshots").glob("*.snap"))
    opened = start(tmp_path, BadSectors(errno.EIO, snapshot))
    assert set(opened.recovered.condemned) == {1} and set(opened.recovered.groups) == {2}
    opened.close()


def test_marks_that_the_disk_cannot_read_are_as_damaged_ones(tmp_path: Path) -> None:
    a_life(tmp_path)
    marks = tmp_path / "synced", tmp_path / "wal" / "synced"
    opened = start(tmp_path, BadSectors(errno.EIO, marks[0]))
    assert len(opened.recovered.groups) == 2
    opened.close()
    opened = start(tmp_path, BadSectors(errno.EIO, *marks))
    assert opened.recovered.groups == {}
    opened.close()


@pytest.mark.parametrize("kind", sorted(WHOLE))
def test_a_file_that_may_not_be_read_ends_the_start_and_is_named(tmp_path: Path, kind: str) -> None:
    """Nothing of the disk is wrong: the operator has to give the node its permissions."""
    a_life(tmp_path)
    path = WHOLE[kind](tmp_path)
    before = everything(tmp_path)
    with pytest.raises(PermissionError) as no:
        start(tmp_path, BadSectors(errno.EACCES, path))
    assert str(path) in str(no.value)
    assert everything(tmp_path) == before


def test_node_json_that_the_disk_cannot_read_is_named(tmp_path: Path) -> None:
    a_life(tmp_path)
    (tmp_path / "node.json").unlink()
    (tmp_path / "node.json").symlink_to("/proc/self/mem")  # there is nothing at its beginning
    with pytest.raises(OSError, match="Input/output error: .*node.json"):
        start(tmp_path)


@pytest.mark.parametrize("kind", ["wal, in the middle", "manifest"])
def test_setting_aside_can_be_stopped_anywhere(tmp_path: Path, kind: str) -> None:
    whole = tmp_path / "whole"
    a_life(whole)
    damage(whole, kind)
    before = everything(whole)
    calls = 0
    for stop_at in range(1, 200):
        root = tmp_path / str(stop_at)
        for name, data in before.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        files = MovingFiles(stop_at)
        try:
            start(root, files).close()
            calls = stop_at
        except OSError:
            pass
        opened = start(root)
        # Never a part of the log: all of it is out of the way, and the disk another one.
        assert opened.recovered.groups == {}
        opened.close()
        assert identity(root)["disk"] == f"{0xABCDEF:016x}"
        said = ("reason", "moving.new")
        kept = [d for n, d in everything(root / "damaged").items() if not n.endswith(said)]
        assert sorted(kept) == sorted(d for n, d in before.items() if n != "node.json")
        if calls:
            break
    assert calls > 10, calls


class MovingFiles(StoppingFiles):
    """Moves count, too."""

    def move(self, old: Path, new: Path) -> None:
        self._step()
        super().move(old, new)


def snapshot_of(root: Path) -> Path:
    return next((root / "snapshots").glob("*.snap"))


def test_a_damaged_snapshot_concerns_its_group_alone(tmp_path: Path) -> None:
    a_life(tmp_path)
    path = snapshot_of(tmp_path)
    flip(path)
    rotten = path.read_bytes()
    disk_before = identity(tmp_path)["disk"]
    for attempt in range(2):  # the first one ends before anything is written
        opened = start(tmp_path)
        assert sorted(opened.recovered.groups) == [2] and sorted(opened.recovered.condemned) == [1]
        assert read(opened, 2, 40) == b"last"
        if not attempt:
            opened.close()
            assert path.exists()
    disk = Disk.__new__(Disk)
    disk.posted = queue.Queue()
    disk.store = LogStore(opened, disk.posted.put, 2000, ALONE)
    assert disk.store.condemned[1].created == b"members"
    begun = disk.store.recreate(1, b"again")
    assert begun.last_index() == 0
    disk.sync()
    while path.exists():
        disk.posted.get(timeout=WAIT_S)()
    disk.close()
    aside = tmp_path / "damaged" / "0001" / "snapshots" / path.name
    assert aside.read_bytes() == rotten
    assert identity(tmp_path)["disk"] == disk_before
    again = start(tmp_path)
    assert not again.recovered.condemned
    assert again.recovered.groups[1].created == b"again" and again.recovered.groups[1].log.last == 0
    assert read(again, 2, 40) == b"last"
    again.close()
    disk = Disk(tmp_path, file_bytes=2000)
    disk.write(1, 1, [b"healed"], state=VOTED)
    for group in (1, 2):
        disk.group(group).applied = disk.group(group).last_index()
    disk.compact()
    disk.close()
    last = start(tmp_path)
    assert last.recovered.groups[1].created == b"again" and read(last, 1, 1) == b"healed"
    last.close()


def test_what_is_left_of_a_damaged_group_is_not_held_in_memory(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for group in (1, 2):
        disk.write(group, 1, [bytes(100)] * 5, state=VOTED)
    taken = Snapshot(1, 3, 1, 1003, disk.group(1).born, 1, ("n1",), (), b"", b"s")
    write_snapshots(disk.store.files, disk.store.directory.snapshots, [taken])
    disk.close()
    flip(snapshot_of(tmp_path))
    opened = start(tmp_path)
    assert sorted(opened.recovered.condemned) == [1]
    overhead = ENTRY_OVERHEAD_BYTES * 10  # of each line, until its turn comes
    assert (
        opened.memtable.bytes_held - overhead == 500 == opened.recovered.groups[2].log.bytes_counted
    )
    opened.close()


def test_a_group_that_nobody_else_has_is_never_given_up(tmp_path: Path) -> None:
    a_life(tmp_path)
    flip(snapshot_of(tmp_path))
    before = everything(tmp_path)
    with pytest.raises(GroupAlone, match="group 1 is on this node only"):
        start(tmp_path, alone=True)
    assert everything(tmp_path) == before


def test_what_another_version_wrote_is_refused_not_healed(tmp_path: Path) -> None:
    a_life(tmp_path)
    path = snapshot_of(tmp_path)
    payload = path.read_bytes()[SEAL_HEADER_BYTES:]
    path.write_bytes(seal(MAGIC, 99, [payload]))
    before = everything(tmp_path)
    with pytest.raises(LogOfOtherVersion, match="format version 99.*the version that wrote it"):
        start(tmp_path)
    assert everything(tmp_path) == before


def test_a_note_beside_damaged_files_that_rots_itself_keeps_no_node_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a_life(tmp_path)
    damage(tmp_path, "manifest")
    start(tmp_path).close()
    (note,) = (tmp_path / "damaged").rglob(REASON_FILE)
    note.write_bytes(b"checksum \x93\xff of")
    start(tmp_path).close()
    assert "damaged files that were set aside (checksum" in caplog.text


def test_a_start_that_fails_while_setting_aside_lets_go_of_the_directory(tmp_path: Path) -> None:
    a_life(tmp_path)
    damage(tmp_path, "manifest")
    with pytest.raises(OSError):
        start(tmp_path, MovingFiles(1))
    opened = start(tmp_path)
    assert opened.recovered.groups == {}
    opened.close()
