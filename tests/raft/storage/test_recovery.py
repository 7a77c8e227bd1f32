"""What is on disk comes back; what was never vouched for is cut; anything else is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.raft.storage.kit import WAIT_S, Disk, marks, wal_files
from warren_raft.storage import synced_mark
from warren_raft.storage.errors import LogDamaged
from warren_raft.storage.files import Files
from warren_raft.storage.format import FIRST_RECORD, RECORD_HEADER_BYTES
from warren_raft.storage.opened_log import open_log
from warren_raft.types import HardState

TAG_BYTES = 4


def written(root: Path, recycle: bool = True) -> dict:
    """Two groups, three batches; returns what is there."""
    disk = Disk(root, recycle=recycle)
    disk.write(1, 1, [b"one", b"two"], state=HardState(1, "n1"))
    disk.write(2, 1, [b"x" * 500], term=3, state=HardState(3, "n2"))
    disk.write(1, 3, [b"three"])
    contents = {
        1: (HardState(1, "n1"), [(1, 1, b"one"), (2, 1, b"two"), (3, 1, b"three")]),
        2: (HardState(3, "n2"), [(1, 3, b"x" * 500)]),
    }
    disk.close()
    return contents


def as_while_it_was_written(root: Path) -> None:
    """The log had not come to rest: what says where it ended tells of its newest file alone."""
    known = synced_mark.decode(marks(root)[0].read_bytes())
    for path in marks(root):
        path.write_bytes(synced_mark.encode(known._replace(end=FIRST_RECORD)))


def reopened(root: Path) -> tuple[dict, object]:
    disk = Disk(root)
    try:
        return disk.contents(), disk.cut
    finally:
        disk.close()


def test_everything_comes_back(tmp_path: Path) -> None:
    expected = written(tmp_path)
    assert reopened(tmp_path) == (expected, None)
    assert reopened(tmp_path) == (expected, None), "a start without writes changes nothing"


def test_an_entry_replaces_the_rest_of_the_log(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(1, 1, [b"a", b"b", b"c"], state=HardState(1, "n1"))
    disk.write(1, 2, [b"B"], term=2, state=HardState(2, None))
    expected = {1: (HardState(2, None), [(1, 1, b"a"), (2, 2, b"B")])}
    assert disk.contents()[1][1] == expected[1][1]
    disk.close()
    assert reopened(tmp_path)[0] == expected


def test_a_tail_torn_at_every_byte_of_the_last_batch_is_cut(tmp_path: Path) -> None:
    expected = written(tmp_path / "whole")
    as_while_it_was_written(tmp_path / "whole")
    path = wal_files(tmp_path / "whole")[-1]
    whole = path.read_bytes()
    # The last batch is the entry `three` and its BATCH_END.
    start = len(whole) - 2 * RECORD_HEADER_BYTES - len(b"three")
    without = {**expected, 1: (expected[1][0], expected[1][1][:2])}
    for length in range(start, len(whole) + 1):
        root = tmp_path / f"torn-{length}"
        shutil.copytree(tmp_path / "whole", root)
        torn = root / "wal" / path.name
        torn.write_bytes(whole[:length])
        contents, cut = reopened(root)
        has_entry = length >= len(whole) - RECORD_HEADER_BYTES
        assert contents == (expected if has_entry else without), length
        records = (start, len(whole) - RECORD_HEADER_BYTES, len(whole))
        # Less than a record's tag is no different from what allocated space held before.
        nothing_begun = min(length - at for at in records if at <= length) < TAG_BYTES
        assert (cut is None) == nothing_begun, (length, cut)
        assert reopened(root) == (contents, None), "what was cut stays cut"
        shutil.rmtree(root)


@pytest.mark.parametrize("garbage", [b"\0" * 700, b"WREC" * 40, b"\xff" * 13])
def test_garbage_after_the_last_batch_is_cut(tmp_path: Path, garbage: bytes) -> None:
    expected = written(tmp_path, recycle=False)
    path = wal_files(tmp_path)[-1]
    with path.open("ab") as file:
        file.write(garbage)
    contents, cut = reopened(tmp_path)
    assert contents == expected
    assert cut is not None and cut[2] == len(garbage)


def test_a_hole_in_the_last_batch_is_a_torn_write(tmp_path: Path) -> None:
    # A crash may leave the end of a write on the disk but not its beginning.
    disk = Disk(tmp_path)
    disk.write(1, 1, [b"kept"], state=HardState(1, "n1"))
    disk.write(1, 2, [b"a" * 5000, b"b" * 5000, b"c" * 5000])
    disk.close()
    as_while_it_was_written(tmp_path)
    path = wal_files(tmp_path)[-1]
    data = bytearray(path.read_bytes())
    hole = data.index(b"a" * 5000)
    data[hole : hole + 4096] = bytes(4096)
    path.write_bytes(data)
    contents, cut = reopened(tmp_path)
    assert contents[1][1] == [(1, 1, b"kept")]
    assert cut is not None


def test_a_bit_flipped_in_any_byte_but_the_last_batch_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    path = wal_files(tmp_path)[-1]
    whole = path.read_bytes()
    last_batch = len(whole) - 2 * RECORD_HEADER_BYTES - len(b"three")
    for offset in range(last_batch):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << (offset % 8)
        path.write_bytes(damaged)
        with pytest.raises(LogDamaged) as refused:
            Disk(tmp_path)
        assert refused.value.path == path
        assert refused.value.offset <= offset
        assert str(path) in str(refused.value) and "empty directory" in str(refused.value)
        assert wal_files(tmp_path) == [path] and path.read_bytes() == bytes(damaged), "untouched"
    path.write_bytes(whole)
    Disk(tmp_path).close()


def test_damage_to_the_last_batch_of_a_log_that_rested_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    path = wal_files(tmp_path)[-1]
    whole = path.read_bytes()
    last_batch = len(whole) - 2 * RECORD_HEADER_BYTES - len(b"three")
    flipped = [
        whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]
        for at in range(last_batch, len(whole))
    ]
    shorter = [whole[:length] for length in range(last_batch, len(whole))]
    for damaged in flipped + shorter:
        path.write_bytes(damaged)
        with pytest.raises(LogDamaged, match="on disk"):
            Disk(tmp_path)
        assert path.read_bytes() == damaged, "untouched"
    path.write_bytes(whole)
    Disk(tmp_path).close()


def test_what_a_damaged_note_of_the_end_says_is_ignored(tmp_path: Path) -> None:
    expected = written(tmp_path)
    note = tmp_path / "wal" / synced_mark.NAME
    whole = note.read_bytes()
    for damaged in [
        b"",
        whole[:-1],
        *(
            whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]
            for at in range(len(whole))
        ),
    ]:
        note.write_bytes(damaged)
        assert reopened(tmp_path) == (expected, None)


class Watched(Files):
    """Notes what is asked for of which file."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def sync_data(self, fd: int) -> None:
        self.calls.append(("sync", os.readlink(f"/proc/self/fd/{fd}")))
        super().sync_data(fd)

    def drop_cached(self, fd: int, offset: int, length: int) -> None:
        self.calls.append(("forget", os.readlink(f"/proc/self/fd/{fd}")))
        super().drop_cached(fd, offset, length)

    def read(self, path: Path) -> bytes:
        self.calls.append(("read", str(path)))
        return super().read(path)


def test_the_newest_file_is_synced_then_read_from_the_disk(tmp_path: Path) -> None:
    written(tmp_path)
    newest = str(wal_files(tmp_path)[-1])
    files = Watched()
    Disk(tmp_path, files).close()
    done = [what for what, path in files.calls if path == newest]
    assert done == ["sync", "forget", "read"]


def test_where_the_log_ends_is_written_down_once_it_rests(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    mark, wal = disk.store.synced_mark, disk.store.directory.wal
    for index in (1, 2):
        disk.write(1, index, [b"entry"], state=HardState(1, "n1") if index == 1 else None)
        mark.look(200 * index)
        assert not mark.busy, "it was written to since the last look"
        mark.look(200 * index + 100)
        assert mark.busy
        while mark.busy:
            disk.posted.get(timeout=WAIT_S)()
        end = disk.store.wal.newest_bytes
        assert synced_mark.read(disk.store.files, wal)[:2] == (1, end)
    for now_ms in (600, 700, 5_000):
        mark.look(now_ms)
        assert not mark.busy, "there is nothing to do"
    disk.close()


def test_damage_in_an_older_file_is_refused_even_at_its_end(tmp_path: Path) -> None:
    disk = Disk(tmp_path, file_bytes=300)
    for index in range(1, 9):
        disk.write(1, index, [b"d" * 50], state=HardState(1, "n1") if index == 1 else None)
    disk.close()
    files = wal_files(tmp_path)
    assert len(files) > 2
    for damage in (lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1])):
        whole = files[0].read_bytes()
        files[0].write_bytes(damage(whole))
        with pytest.raises(LogDamaged, match=files[0].name):
            Disk(tmp_path)
        files[0].write_bytes(whole)
    assert len(reopened(tmp_path)[0][1][1]) == 8


def test_a_missing_file_in_the_middle_is_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path, file_bytes=300)
    for index in range(1, 9):
        disk.write(1, index, [b"d" * 50], state=HardState(1, "n1") if index == 1 else None)
    disk.close()
    wal_files(tmp_path)[1].unlink()
    with pytest.raises(LogDamaged, match="missing"):
        Disk(tmp_path)


def test_a_missing_first_file_is_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path, file_bytes=300)
    disk.write_apart(1, range(1, 5), b"d" * 50)
    disk.close()
    wal_files(tmp_path)[0].unlink()
    with pytest.raises(LogDamaged, match="01.wal .*is missing, and 000000000002.wal names it"):
        Disk(tmp_path)


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    path = wal_files(tmp_path)[-1]
    data = bytearray(path.read_bytes())
    data[8] = 9
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match="version 9"):
        Disk(tmp_path)


def test_a_start_that_died_while_making_its_file_leaves_no_trace(tmp_path: Path) -> None:
    expected = written(tmp_path)
    stray = tmp_path / "wal" / "000000000002.wal.new"
    stray.write_bytes(b"WARR")
    assert reopened(tmp_path)[0] == expected
    assert not stray.exists()


def test_bytes_of_a_user_do_not_pass_for_records(tmp_path: Path) -> None:
    # A message with a piece of another node's log as its body, torn: it must be cut, not refused.
    written(tmp_path / "other")
    piece = wal_files(tmp_path / "other")[-1].read_bytes()[FIRST_RECORD:]
    disk = Disk(tmp_path / "own")
    disk.write(1, 1, [b"kept"], state=HardState(1, "n1"))
    disk.write(1, 2, [piece])
    disk.close()
    as_while_it_was_written(tmp_path / "own")
    path = wal_files(tmp_path / "own")[-1]
    path.write_bytes(path.read_bytes()[: -RECORD_HEADER_BYTES - 10])
    contents, cut = reopened(tmp_path / "own")
    assert contents[1][1] == [(1, 1, b"kept")]
    assert cut is not None


def test_entries_of_a_later_term_than_the_votes_condemn_the_group(tmp_path: Path) -> None:
    # An older copy of the newest file took a vote away; segments and snapshots are not older.
    disk = Disk(tmp_path)
    disk.write(1, 1, [b"one"], term=2, state=HardState(1, "n2"))
    disk.write(2, 1, [b"two"], term=2, state=HardState(2, "n2"))
    disk.write(3, 1, [b"three"], term=1, state=HardState())
    disk.close()
    with pytest.raises(LogDamaged, match=r"group 1 has entries of term 2.*an older copy"):
        Disk(tmp_path)  # a node without peers
    opened = open_log(
        Files(), tmp_path, "c", "n1", 1 << 20, may_heal=lambda group, created: True, peers=("n2",)
    )
    assert list(opened.recovered.condemned) == [1, 3]
    assert "group 1 has entries of term 2" in str(opened.recovered.condemned[1].damage)
