"""The bytes of manifest, index, snapshot: frozen samples, and no flipped bit passes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.raft.storage.kit import Disk, two_groups_compacted
from warren_raft.index_set import Indexes
from warren_raft.storage import manifest, segment, snapshot
from warren_raft.storage.entry_index import Rows
from warren_raft.storage.errors import LogDamaged
from warren_raft.storage.format import Damaged, OtherVersion
from warren_raft.storage.framed_file import SEAL_HEADER_BYTES, seal
from warren_raft.storage.manifest import GroupRow, Manifest
from warren_raft.storage.segment import SegmentIndex, SegmentName
from warren_raft.storage.snapshot import Base, Snapshot

TAKEN = Snapshot(
    7,
    300,
    4,
    1_700_000_000_123,
    (12, 3),
    2,
    ("n1", "n2"),
    ("n3",),
    Indexes.of([5, 299]).tobytes(),
    b"state",
    (("n2", 1 << 63),),
    Base(3, 41, 2, 200),
)
LISTED = Manifest(
    3,
    (40, 2),
    (GroupRow(0, (1, 0), b"m", 5, "n2", 300, 300), GroupRow(9, (7, 1), b"", 1, "", 0, 0)),
    7,
)


def an_index() -> SegmentIndex:
    rows = Rows()
    rows.configs.extend([299, 300])
    rows.indexes.extend([5, 299, 300])
    rows.terms.extend([0, 4, 4])
    rows.offsets.extend([40, 200, 1000])
    rows.lengths.extend([104, 700, 1])
    return SegmentIndex(SegmentName(2, 4, 1), False, 1057, 0xABCDEF01, ((7, (12, 3), rows),))


def test_what_is_written_is_read() -> None:
    assert snapshot.decode(snapshot.encode(TAKEN)) == TAKEN
    assert list(TAKEN.live_indexes()) == [5, 299]
    assert manifest.decode(manifest.encode(LISTED)) == LISTED
    there, back = an_index(), segment.decode(segment.encode(an_index()))
    assert (back.name, back.in_place, back.data_bytes, back.salt) == (
        there.name,
        there.in_place,
        there.data_bytes,
        there.salt,
    )
    assert [(g, b) for g, b, _ in back.groups] == [(7, (12, 3))]
    assert back.groups[0][2].indexes.tolist() == [5, 299, 300]
    assert back.groups[0][2].offsets.tolist() == [40, 200, 1000]
    assert back.groups[0][2].configs.tolist() == [299, 300]


FROZEN = {
    "snapshot": (
        "574152524e534e5001000000d3ef81a84e000000000000009c07cd012c04cf0000018bcfe5687b920c030292"
        "a26e31a26e3291a26e33c41300020005000000000000002601000000000000c40573746174659192a26e32cf"
        "800000000000000094032902ccc8"
    ),
    "manifest": (
        "574152524e47525001000000fcd56af824000000000000009403922802929700920100c4016d05a26e32cd01"
        "2ccd012c9709920701c40001a0000007"
    ),
    "segment": (
        "574152524e49445801000000cacf684ca0000000000000000200000000000000040000000000000001000000"
        "00000000210400000000000001efcdab0100000007000000000000000c000000000000000300000000000000"
        "030000000200000005000000000000002b010000000000002c01000000000000000000000000000004000000"
        "00000000040000000000000028000000c8000000e803000068000000bc020000010000002b01000000000000"
        "2c01000000000000"
    ),
}


def encoded() -> dict[str, bytes]:
    return {
        "snapshot": snapshot.encode(TAKEN),
        "manifest": manifest.encode(LISTED),
        "segment": segment.encode(an_index()),
    }


DECODE = {"snapshot": snapshot.decode, "manifest": manifest.decode, "segment": segment.decode}


@pytest.mark.parametrize("kind", sorted(FROZEN))
def test_the_bytes_are_what_they_were(kind: str) -> None:
    # Another layout needs another version; after a release, code that still reads this one.
    assert encoded()[kind].hex() == FROZEN[kind]


@pytest.mark.parametrize("kind", sorted(FROZEN))
def test_what_format_1_wrote_is_read(kind: str) -> None:
    back: object = DECODE[kind](bytes.fromhex(FROZEN[kind]))
    if isinstance(back, SegmentIndex):
        assert segment.encode(back) == segment.encode(an_index())
    else:
        assert back in (TAKEN, LISTED)


@pytest.mark.parametrize("kind", sorted(FROZEN))
def test_another_version_is_refused(kind: str) -> None:
    payload = encoded()[kind][SEAL_HEADER_BYTES:]
    for version in (0, 2, 3):
        other = seal(encoded()[kind][:8], version, [payload])
        with pytest.raises(OtherVersion, match=f"format version {version}, this program reads 1"):
            DECODE[kind](other)


@pytest.mark.parametrize("kind", sorted(FROZEN))
def test_no_flipped_bit_and_no_lost_end_passes(kind: str) -> None:
    whole = encoded()[kind]
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        with pytest.raises(Damaged):
            DECODE[kind](bytes(flipped))
        with pytest.raises(Damaged):
            DECODE[kind](whole[:at])
    with pytest.raises(Damaged):
        DECODE[kind](whole + b"\0")


def with_segments(root: Path) -> None:
    """Leave a directory with a sealed segment, a rewritten one, and a snapshot."""
    disk = two_groups_compacted(root)
    disk.close()


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 8
    path.write_bytes(data)


def test_a_start_refuses_what_is_damaged_and_names_it(tmp_path: Path) -> None:
    with_segments(tmp_path / "whole")
    names = [
        "groups.manifest",
        *(str(p.relative_to(tmp_path / "whole")) for p in tmp_path.rglob("*.idx")),
        *(str(p.relative_to(tmp_path / "whole")) for p in tmp_path.rglob("*.snap")),
    ]
    assert len(names) >= 3
    for name in names:
        root = tmp_path / "damaged"
        shutil.copytree(tmp_path / "whole", root)
        damage(root / name, (root / name).stat().st_size // 2)
        before = sorted((p, p.read_bytes()) for p in root.rglob("*") if p.is_file())
        with pytest.raises(LogDamaged, match=Path(name).name):
            Disk(root)
        assert before == sorted((p, p.read_bytes()) for p in root.rglob("*") if p.is_file())
        shutil.rmtree(root)
    Disk(tmp_path / "whole").close()


def test_a_missing_data_file_or_snapshot_is_refused(tmp_path: Path) -> None:
    with_segments(tmp_path / "whole")
    for pattern in ("*.seg", "*.snap"):
        root = tmp_path / "damaged"
        shutil.copytree(tmp_path / "whole", root)
        for path in root.rglob(pattern):
            path.unlink()
        with pytest.raises(LogDamaged):
            Disk(root)
        shutil.rmtree(root)


def test_a_damaged_record_of_a_segment_is_named_when_it_is_read(tmp_path: Path) -> None:
    with_segments(tmp_path)
    path = next(iter(sorted(tmp_path.rglob("*.seg"))))
    disk = Disk(tmp_path, memtable_bytes=1)
    places = {index: disk.group(1).log.place(index) for index in disk.group(1).log.live}
    index = next(i for i, p in places.items() if disk.store.log_files.path_of(p.file) == path)
    damage(path, places[index].offset + 60)
    with pytest.raises(LogDamaged, match=path.name):
        disk.group(1).read(index)
    disk.close()
