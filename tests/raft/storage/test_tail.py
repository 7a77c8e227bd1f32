"""Where the newest file of the log ends: torn, damaged, allocated ahead, or used before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.raft.storage.kit import Disk, marks, wal_files
from warren_raft.storage import synced_mark
from warren_raft.storage.errors import LogDamaged
from warren_raft.storage.format import (
    FIRST_RECORD,
    RECORD_HEADER_BYTES,
    Damaged,
    Head,
    Link,
    Record,
    decode_head,
    decode_record,
    encode_file_header,
    encode_head,
    encode_record,
)
from warren_raft.types import HardState

RESERVED = 6000


def written(root: Path, batches: int = 5) -> Path:
    """A log of one file, each batch a hard state and two entries; the file."""
    disk = Disk(root)
    for at in range(batches):
        disk.write(1, 2 * at + 1, [b"one" * 20, b"two" * 30], 1, HardState(1 + at, "n1"))
    disk.close()
    (path,) = wal_files(root)
    return path


def mark(root: Path, end: int) -> None:
    """The log was known to be on disk up to there, not further."""
    known = synced_mark.decode(marks(root)[0].read_bytes())
    for path in marks(root):
        path.write_bytes(synced_mark.encode(known._replace(end=end)))


def records(data: bytes) -> list[Record]:
    """The records of a file, as far as they are whole, without its LINK."""
    head = decode_head(data)
    found, at = [], FIRST_RECORD
    while at + RECORD_HEADER_BYTES <= len(data) and data[at : at + 4] == head.tag:
        found.append(decode_record(head.salt, memoryview(data), at))
        at = found[-1].end
    return found


def begin(root: Path) -> tuple[int, tuple[Path, int, int] | None]:
    """Start; the last entry of group 1, and what was cut."""
    disk = Disk(root)
    try:
        return disk.group(1).last_index(), disk.cut
    finally:
        disk.close()


@pytest.mark.parametrize("how", ["checksum", "tag", "length", "zeros"])
def test_damage_to_each_record_before_the_last_batch_is_no_torn_end(
    tmp_path: Path, how: str
) -> None:
    path = written(tmp_path)
    mark(tmp_path, FIRST_RECORD)
    whole = path.read_bytes()
    found = records(whole)
    last_batch = found[-1].batch
    earlier = [record for record in found if record.batch < last_batch]
    assert len(earlier) == 4 * 4 + 1, "hard state, two entries, the end; and the group's beginning"
    for record in earlier:
        damaged = bytearray(whole)
        at = record.offset
        if how == "zeros":
            damaged[at : record.end] = bytes(record.end - at)
        else:
            damaged[at + {"checksum": 30, "tag": 1, "length": 10}[how]] ^= 0x41
        path.write_bytes(damaged)
        with pytest.raises(LogDamaged, match="a later write, at byte .* is whole"):
            Disk(tmp_path)
        assert path.read_bytes() == damaged, "untouched"


def test_damage_before_what_is_known_to_be_synced_is_no_torn_end(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    found = records(whole)
    for record in found:
        mark(tmp_path, record.end)
        damaged = bytearray(whole)
        damaged[record.offset + 40] ^= 1
        path.write_bytes(damaged[: record.end])
        with pytest.raises(LogDamaged, match="were on disk"):
            Disk(tmp_path)
        path.write_bytes(whole[: record.offset])
        with pytest.raises(LogDamaged, match="bytes on disk"):
            Disk(tmp_path)


def stale(number: int, salt: int, size: int) -> bytes:
    """A file of an earlier use of the space: its records are as long as those of `written`."""
    data = b"".join([encode_file_header(number, salt, 1), bytes(FIRST_RECORD)])[:FIRST_RECORD]
    batch = 1
    while len(data) < size:
        for index, body in enumerate((b"", b"one" * 20, b"two" * 30, b"")):
            kind = (2, 1, 1, 5)[index]
            data += encode_record(salt, batch, kind, 1, index, 99, body, 1) + body
        batch += 1
    return data[:size]


def reserved(root: Path, filling: bytes) -> Path:
    """The newest file as it were if its space had been allocated ahead, and held that."""
    (path,) = wal_files(root)
    data = path.read_bytes()
    head = decode_head(data)
    batches = data[FIRST_RECORD:]
    start = encode_head(head.number, head.salt, head.batch, head.link._replace(reserved=RESERVED))
    path.write_bytes(start + batches + filling[len(data) :])
    return path


FILLINGS = {
    "zeros": bytes(RESERVED),
    "records of an earlier use": stale(77, 0x1234567, RESERVED),
    "records before there were links": stale(77, 0x1234567, RESERVED).replace(
        (0x1234567).to_bytes(4, "little"), b"WREC"
    ),
}


@pytest.mark.parametrize("filling", sorted(FILLINGS))
def test_space_that_was_allocated_ahead_is_no_damage(tmp_path: Path, filling: str) -> None:
    path = written(tmp_path)
    end = path.stat().st_size
    reserved(tmp_path, FILLINGS[filling])
    assert path.stat().st_size == RESERVED
    assert begin(tmp_path) == (10, None)
    assert path.stat().st_size == RESERVED, "nothing is cut"
    # The next file names the byte where this one ends, and is no longer than that for any reader.
    disk = Disk(tmp_path)
    disk.write(1, 11, [b"next"], 9)
    disk.close()
    newer = wal_files(tmp_path)[-1]
    head = decode_head(newer.read_bytes())
    assert (head.link.end, head.number) == (end, 2)
    assert begin(tmp_path) == (11, None)


def test_a_record_of_an_earlier_use_at_the_very_end_is_not_taken(tmp_path: Path) -> None:
    """Byte for byte where the next record would be, with the batch number that it would have."""
    path = written(tmp_path)
    data = path.read_bytes()
    head = decode_head(data)
    other = head.salt ^ 0x5A5A5A5A
    batch = records(data)[-1].batch + 1
    body = b"of long ago"
    for tag in (other.to_bytes(4, "little"), b"WREC"):
        old = encode_record(other, batch, 1, 1, 11, 99, body, 1) + body
        old += encode_record(other, batch, 5, 0, 1, 0)
        old = old.replace(other.to_bytes(4, "little"), tag)
        reserved(tmp_path, data + old + bytes(RESERVED))
        assert begin(tmp_path) == (10, None)
        path.write_bytes(data)


def test_a_torn_write_into_space_that_was_used_before_is_cut(tmp_path: Path) -> None:
    path = written(tmp_path)
    mark(tmp_path, FIRST_RECORD)
    data = path.read_bytes()
    last = [r for r in records(data) if r.batch == records(data)[-1].batch]
    filling = FILLINGS["records of an earlier use"]
    whole = reserved(tmp_path, filling).read_bytes()
    for record in last:  # that record did not come to the disk; those after it did
        torn = bytearray(whole)
        torn[record.offset : record.end] = filling[record.offset : record.end]
        path.write_bytes(torn)
        for each in marks(tmp_path):
            each.write_bytes(synced_mark.encode(_known(tmp_path)._replace(end=FIRST_RECORD)))
        root = tmp_path / str(record.offset)
        shutil.copytree(tmp_path, root, ignore=shutil.ignore_patterns("[0-9]*[0-9]"))
        kept, cut = begin(root)
        assert kept == 8 + max(0, last.index(record) - 1), record
        is_end = record is last[-1]
        assert (cut is None) == is_end, "behind a missing BATCH_END is nothing of this file"
        shutil.rmtree(root)


def _known(root: Path) -> synced_mark.SyncedMark:
    return synced_mark.decode(marks(root)[0].read_bytes())


def test_damage_in_space_that_was_used_before_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path)
    mark(tmp_path, FIRST_RECORD)
    filling = FILLINGS["records of an earlier use"]
    whole = reserved(tmp_path, filling).read_bytes()
    found = records(path.read_bytes())
    for record in [r for r in found if r.batch < found[-1].batch]:
        old = bytearray(whole)
        old[record.offset : record.end] = filling[record.offset : record.end]
        path.write_bytes(old)
        with pytest.raises(LogDamaged, match="a later write, at byte .* is whole"):
            Disk(tmp_path)


def test_an_older_copy_of_a_complete_file_that_was_allocated_ahead_is_noticed(
    tmp_path: Path,
) -> None:
    path = written(tmp_path)
    reserved(tmp_path, FILLINGS["zeros"])
    disk = Disk(tmp_path)
    disk.write(1, 11, [b"next"], 9)
    disk.close()
    whole = path.read_bytes()
    for record in records(whole):
        path.write_bytes(whole[: record.offset] + bytes(RESERVED - record.offset))
        with pytest.raises(LogDamaged, match=path.name):
            Disk(tmp_path)
    path.write_bytes(whole)
    assert begin(tmp_path) == (11, None)


def test_a_files_beginning_says_what_it_was_given() -> None:
    link = Link(0xD15C, 0x12345678, 1000, 512)
    frozen = (
        "574152524e57414c0100000001efcdab090000000000000007000000000000008012e2ad0000000001efcdab"
        "6ec8bf19080000000800000000000000000000000800000000000000e8030000000000007856341200000000"
        "5cd10000000000000002000000000000"
    )
    assert decode_head(encode_head(9, 0xABCDEF01, 7, link)) == Head(9, 0xABCDEF01, 7, link)
    assert encode_head(9, 0xABCDEF01, 7, link).hex() == frozen
    with pytest.raises(Damaged, match="its header alone has|a record's header has"):
        decode_head(encode_file_header(9, 0xABCDEF01, 7))
