"""The index of a file with final entries.

A segment is a data file, in the format of a WAL file (`format`), with only those records that the
index lists; and the index, `segments/FIRST-LAST.GENERATION.idx` (WAL file numbers of 12 digits,
generation of 4): it holds the retained entries of those WAL files. The data are in
`segments/FIRST-LAST.GENERATION.seg`, or, when most of a WAL file is retained, in that file itself.
The index is framed as in `framed_file` with magic `WARRNIDX` and version 1; the payload:

| at | what |
| --- | --- |
| 0 | u64 first, u64 last, u32 generation, u32 in_place (1: the data are WAL file `first`) |
| 24 | u64 length of the data file, u32 its salt, u32 number of groups |
| 40 | the groups, ascending |

A group:

| at | what |
| --- | --- |
| 0 | u64 group, u64 batch and u64 record of its GROUP_CREATED, u32 count, u32 configs |
| 32 | u64 index[count], ascending; u64 term[count], 0 where only the record has it |
| | u32 offset[count] of the record in the data file, u32 length[count] of the entry's data |
| | u64 config[configs]: which of the indexes are CONFIG entries, ascending |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from warren_raft.storage.entry_index import Rows
from warren_raft.storage.format import Damaged, Data
from warren_raft.storage.framed_file import seal, unseal
from warren_raft.storage.snapshot import Position
from warren_raft.types import GroupId

MAGIC = b"WARRNIDX"
VERSION = 1
INDEX_SUFFIX = ".idx"
DATA_SUFFIX = ".seg"
ID_BASE = 1 << 31
"""File numbers in `Place`: below it WAL files, from it on segments in order of creation."""
_HEAD = struct.Struct("<QQIIQII")
_GROUP = struct.Struct("<QQQII")


@dataclass(frozen=True, slots=True)
class SegmentName:
    """The WAL files that a segment replaces; of two that overlap the higher generation is valid."""

    first: int
    last: int
    generation: int

    def stem(self) -> str:
        """Return its files' names without suffix."""
        return f"{self.first:012d}-{self.last:012d}.{self.generation:04d}"


def parse_name(name: str, suffix: str) -> SegmentName | None:
    """Parse a file's name; None for other names."""
    if not name.endswith(suffix):
        return None
    span, dot, generation = name.removesuffix(suffix).partition(".")
    first, dash, last = span.partition("-")
    if not (dot and dash and first.isdigit() and last.isdigit() and generation.isdigit()):
        return None
    return SegmentName(int(first), int(last), int(generation))


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """A segment's index; see the module. groups: (group, born) to rows, ascending."""

    name: SegmentName
    in_place: bool
    data_bytes: int
    salt: int
    groups: tuple[tuple[GroupId, Position, Rows], ...]


def encode(index: SegmentIndex) -> bytes:
    """Encode the file."""
    name = index.name
    parts: list[Data] = [
        _HEAD.pack(
            name.first,
            name.last,
            name.generation,
            index.in_place,
            index.data_bytes,
            index.salt,
            len(index.groups),
        )
    ]
    for group, born, rows in index.groups:
        parts.append(_GROUP.pack(group, *born, len(rows), len(rows.configs)))
        columns = (rows.indexes, rows.terms, rows.offsets, rows.lengths, rows.configs)
        parts += [column.tobytes() for column in columns]
    return seal(MAGIC, VERSION, parts)


def decode(file: Data) -> SegmentIndex:
    """Invert `encode`; raises Damaged."""
    payload = unseal(MAGIC, VERSION, file)
    if len(payload) < _HEAD.size:
        raise Damaged("its payload is too short for an index")
    first, last, generation, in_place, data_bytes, salt, count = _HEAD.unpack_from(payload)
    offset = _HEAD.size
    groups = []
    for _ in range(count):
        if offset + _GROUP.size > len(payload):
            raise Damaged(f"its list of {count} groups ends early")
        group, batch, record, rows_count, configs = _GROUP.unpack_from(payload, offset)
        offset += _GROUP.size
        if offset + 24 * rows_count + 8 * configs > len(payload):
            raise Damaged(f"its rows of group {group} end early")
        rows = Rows()
        for column, size in (
            (rows.indexes, 8 * rows_count),
            (rows.terms, 8 * rows_count),
            (rows.offsets, 4 * rows_count),
            (rows.lengths, 4 * rows_count),
            (rows.configs, 8 * configs),
        ):
            column.frombytes(payload[offset : offset + size])
            offset += size
        groups.append((group, (batch, record), rows))
    if offset != len(payload):
        raise Damaged(f"{len(payload) - offset} bytes follow its last group")
    name = SegmentName(first, last, generation)
    return SegmentIndex(name, bool(in_place), data_bytes, salt, tuple(groups))
