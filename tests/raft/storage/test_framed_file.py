"""The bytes of manifest, index, snapshot: frozen samples, and no flipped bit passes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.raft.storage.kit import Disk, two_groups_compacted
from warren_raft.index_set import Indexes
from warren_raft.storage import manifest, segment, snapshot
from warren_raft.storage.entry_index import Rows
from warren_raft.storage.errors import LogDamaged
from warren_raft.storage.format import Damaged
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
    3, (40, 2), (GroupRow(0, (1, 0), b"m", 5, "n2", 300), GroupRow(9, (7, 1), b"", 1, "", 0))
)


def an_index(configs: tuple[int, ...] = (299, 300)) -> SegmentIndex:
    rows = Rows()
    rows.configs.extend(configs)
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


VERSION_1 = {
    "snapshot": (
        "574152524e534e5001000000c628da2737000000000000009a07cd012c04cf0000018bcfe5687b920c030292"
        "a26e31a26e3291a26e33c41005000000000000002b01000000000000c4057374617465"
    ),
    "manifest": (
        "574152524e475250010000006644a0cc1b000000000000009303922802929500920100c4016d05a26e329509"
        "920701c40001a0"
    ),
    "segment": (
        "574152524e49445801000000a8fadcd190000000000000000200000000000000040000000000000001000000"
        "00000000210400000000000001efcdab0100000007000000000000000c000000000000000300000000000000"
        "030000000000000005000000000000002b010000000000002c01000000000000000000000000000004000000"
        "00000000040000000000000028000000c8000000e803000068000000bc02000001000000"
    ),
}

VERSION_2 = {
    "snapshot": (
        "574152524e534e500200000065a8234c4b000000000000009c07cd012c04cf0000018bcfe5687b920c030292"
        "a26e31a26e3291a26e33c41005000000000000002b01000000000000c40573746174659192a26e32cf800000"
        "000000000094032902ccc8"
    ),
    "manifest": (
        "574152524e4752500200000022a093311f000000000000009303922802929600920100c4016d05a26e32cd01"
        "2c9609920701c40001a000"
    ),
    "segment": (
        "574152524e494458020000007f34b786a0000000000000000200000000000000040000000000000001000000"
        "00000000210400000000000001efcdab0100000007000000000000000c000000000000000300000000000000"
        "030000000200000005000000000000002b010000000000002c01000000000000000000000000000004000000"
        "00000000040000000000000028000000c8000000e803000068000000bc020000010000002b01000000000000"
        "2c01000000000000"
    ),
}

FROZEN = {
    "snapshot": (
        "574152524e534e50030000006c87feb54e000000000000009c07cd012c04cf0000018bcfe5687b920c030292"
        "a26e31a26e3291a26e33c41300020005000000000000002601000000000000c40573746174659192a26e32cf"
        "800000000000000094032902ccc8"
    ),
    "manifest": (
        "574152524e475250030000004e395ba822000000000000009403922802929700920100c4016d05a26e32cd01"
        "2c009709920701c40001a0000000"
    ),
    "segment": (
        "574152524e49445803000000d3602d76a0000000000000000200000000000000040000000000000001000000"
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
    # Another layout needs another version, and code that still reads this one.
    assert encoded()[kind].hex() == FROZEN[kind]


def test_what_version_1_wrote_is_read() -> None:
    assert snapshot.decode(bytes.fromhex(VERSION_1["snapshot"])) == replace(
        TAKEN, ids=(), base=Base()
    )
    listed = tuple(replace(row, last=None) for row in LISTED.groups)
    assert manifest.decode(bytes.fromhex(VERSION_1["manifest"])) == replace(LISTED, groups=listed)
    back = segment.decode(bytes.fromhex(VERSION_1["segment"]))
    there = an_index(())
    for before, now in zip(back.groups, there.groups, strict=True):
        assert before[:2] == now[:2]
        assert [getattr(before[2], c) for c in Rows.__slots__] == [
            getattr(now[2], c) for c in Rows.__slots__
        ]


def test_what_version_2_wrote_is_read() -> None:
    assert snapshot.decode(bytes.fromhex(VERSION_2["snapshot"])) == TAKEN
    assert manifest.decode(bytes.fromhex(VERSION_2["manifest"])) == LISTED
    back, there = segment.decode(bytes.fromhex(VERSION_2["segment"])), an_index()
    assert segment.encode(back) == segment.encode(there)


@pytest.mark.parametrize("kind", sorted(FROZEN))
def test_a_newer_version_is_refused(kind: str) -> None:
    newer = bytearray(encoded()[kind])
    newer[8] += 1
    with pytest.raises(Damaged, match="format version ., this program knows"):
        DECODE[kind](bytes(newer))


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
