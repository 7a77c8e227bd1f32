"""The format of a write-ahead log file.

A file, little-endian:

| at | what |
| --- | --- |
| 0 | magic `WARRNWAL`, u32 version, u32 salt, u64 number of the file |
| 24 | u64 number of its first batch, u32 crc32 of bytes 0..31, u32 0 |
| 40 | records, one after the other |

A record:

| at | what |
| --- | --- |
| 0 | u32 the file's salt |
| 4 | u32 crc32 of everything from byte 8 to the record's end, started from the file's salt |
| 8 | u32 length of the data, u8 kind, u8 entry kind, u16 0 |
| 16 | u64 batch, u64 group, u64 index, u64 term, u64 time_ms |
| 56 | data |

A batch is what one write and one fdatasync made durable; its last record is BATCH_END. Batches are
numbered without gaps (except where a file was removed); batch n + 1 is written only after the sync
of batch n has returned: a valid record of a later batch proves that what comes before its batch was
on disk. The salt is random and not 0, so that neither a user's bytes nor records that an earlier
use of the same disk space left behind are taken for records. A group's records begin with
GROUP_CREATED, unless the manifest lists the group; those of a group without one (its file was
removed) must be followed by its GROUP_DELETED.

| kind | group | index | term | time_ms | data |
| --- | --- | --- | --- | --- | --- |
| 1 ENTRY | yes | of the entry | of the entry | its stamp | its own; replaces all from index on |
| 2 HARD_STATE | yes | 0 | current term | 0 | vote, UTF-8; empty: none |
| 3 GROUP_CREATED | yes | 0 | 0 | 0 | for the host (a membership) |
| 4 GROUP_DELETED | yes | 0 | 0 | 0 | empty; earlier records of the group are void |
| 5 BATCH_END | 0 | records in the batch | 0 | 0 | empty |
| 6 LIVE | yes | of the entry | of the entry | its stamp | its own; replaces nothing |
| 7 BASE | yes | of a snapshot | of a snapshot | 0 | empty; the log begins again after it |
| 8 LINK | 0 | end of file n - 1 | its salt | disk | u64 reserved; of no batch (batch 0) |

LIVE is an entry that another member's snapshot refers to, received with it; BASE says that the
snapshot is on disk, with all of them.

LINK is the first record of file n of the log, and occurs nowhere else (the data file of a segment
has none). It is written with the header, before the file has its name. It names file n - 1 by its
salt and by the byte at which its records end, which were on disk by then; both are 0 when there was
no such file, or it need not be replayed any more. What follows that byte in file n - 1 is ignored:
zeros of space that was allocated ahead, or records of an earlier use of that space. `reserved` is
the length up to which the file's space was allocated ahead when it was begun; 0: the file grows as
it is written.
disk is that of the directory (`identity`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from warren_raft.types import Entry, EntryKind
from warren_wire.checksum import crc32

VERSION = 1
FILE_MAGIC = b"WARRNWAL"
FILE_HEADER_BYTES = 40
RECORD_HEADER_BYTES = 56
DATA_BYTES_MAX = 1 << 30

_FILE = struct.Struct("<8sIIQQ")
_FILE_CRC = struct.Struct("<II")
_START = struct.Struct("<II")
_BODY = struct.Struct("<IBBHQQQQQ")
_WHOLE = struct.Struct("<IIIBBHQQQQQ")
_RESERVED = struct.Struct("<Q")
FIRST_RECORD = FILE_HEADER_BYTES + RECORD_HEADER_BYTES + _RESERVED.size
"""Where the first batch begins in a file of the log."""

Data: TypeAlias = bytes | memoryview
EntryParts: TypeAlias = tuple[int, int, EntryKind, int, bytes]
"""Index, term, kind, time_ms and data of an entry: the fields of `Entry`, in their order."""


class RecordKind(IntEnum):
    """The kind of a record; the value is stored on disk."""

    ENTRY = 1
    HARD_STATE = 2
    GROUP_CREATED = 3
    GROUP_DELETED = 4
    BATCH_END = 5
    LIVE = 6
    BASE = 7
    LINK = 8


KINDS = frozenset(RecordKind)
ENTRY_RECORDS = (RecordKind.ENTRY, RecordKind.LIVE)
"""The kinds of records that hold an entry."""
_ENTRY_KINDS = tuple(EntryKind)


@dataclass(frozen=True, slots=True)
class Record:
    """A record as read; `offset` is that of its header in the file."""

    offset: int
    kind: RecordKind
    entry_kind: int
    batch: int
    group: int
    index: int
    term: int
    time_ms: int
    data: Data

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.offset + RECORD_HEADER_BYTES + len(self.data)


class Damaged(Exception):
    """Bytes that are not a valid record; the text says why."""


class OtherVersion(Damaged):
    """Intact bytes that another version wrote: they are refused, not repaired."""


class Link(NamedTuple):
    """The content of a file's first record; see the module.

    salt, end  of the file before; (0, 0): there was none, or it is not needed
    """

    disk: int
    salt: int = 0
    end: int = 0
    reserved: int = 0


class Head(NamedTuple):
    """The head of a file of the log."""

    number: int
    salt: int
    batch: int
    link: Link

    @property
    def tag(self) -> bytes:
        """The first bytes of each of its records."""
        return self.salt.to_bytes(4, "little")


def encode_head(number: int, salt: int, batch: int, link: Link) -> bytes:
    """Encode the head of a file of the log: header and LINK; salt: unsigned 32 bit."""
    data = _RESERVED.pack(link.reserved)
    record = encode_record(
        salt, 0, RecordKind.LINK, number - 1, link.end, link.salt, data, 0, link.disk
    )
    return encode_file_header(number, salt, batch) + record + data


def decode_head(data: Data) -> Head:
    """Invert `encode_head`; raises Damaged."""
    number, salt, batch = decode_file_header(data)
    record = decode_record(salt, data, FILE_HEADER_BYTES)
    if record.kind is not RecordKind.LINK or record.end != FIRST_RECORD:
        raise Damaged(f"its first record is {record.kind.name}, not LINK")
    (reserved,) = _RESERVED.unpack(record.data)
    return Head(number, salt, batch, Link(record.time_ms, record.term, record.index, reserved))


def encode_file_header(number: int, salt: int, batch: int) -> bytes:
    """Encode the header, all of the head of a segment's data file; salt: unsigned 32 bit."""
    start = _FILE.pack(FILE_MAGIC, VERSION, salt, number, batch)
    return start + _FILE_CRC.pack(crc32(start), 0)


def decode_file_header(data: Data) -> tuple[int, int, int]:
    """Return (number, salt, first batch) of a file; raises Damaged."""
    if len(data) < FILE_HEADER_BYTES:
        raise Damaged(f"the file has {len(data)} bytes, its header alone has {FILE_HEADER_BYTES}")
    magic, version, salt, number, batch = _FILE.unpack_from(data)
    if magic != FILE_MAGIC:
        raise Damaged(f"it starts with {bytes(magic)!r}, not with {FILE_MAGIC!r}")
    whole = _FILE_CRC.unpack_from(data, _FILE.size) == (crc32(data[: _FILE.size]), 0)
    if version != VERSION:
        kind = OtherVersion if whole else Damaged
        raise kind(f"it has format version {version}, this program reads {VERSION}")
    if not whole:
        raise Damaged("the checksum of the file's header is wrong")
    return number, salt, batch


def encode_record(
    salt: int,
    batch: int,
    kind: int,
    group: int,
    index: int,
    term: int,
    data: Data = b"",
    entry_kind: int = 0,
    time_ms: int = 0,
) -> bytes:
    """Encode the header of a record; `data` must follow it."""
    length = len(data)
    assert length <= DATA_BYTES_MAX, (group, index, length)
    body = _BODY.pack(length, kind, entry_kind, 0, batch, group, index, term, time_ms)
    crc = crc32(body, salt)
    if length:
        crc = crc32(data, crc)
    return _START.pack(salt, crc) + body


def record_length(file: Data, offset: int) -> int:
    """Return the length of the data as the header there has it, which may be damaged."""
    return int(_WHOLE.unpack_from(file, offset)[2])


def decode_record(salt: int, file: Data, offset: int) -> Record:
    """Decode the record at `offset`, with its data as a part of `file`; raises Damaged."""
    left = len(file) - offset
    if left < RECORD_HEADER_BYTES:
        raise Damaged(f"{left} bytes are left, a record's header has {RECORD_HEADER_BYTES}")
    tag, crc, length, kind, entry_kind, zero, batch, group, index, term, time_ms = (
        _WHOLE.unpack_from(file, offset)
    )
    if tag != salt:
        raise Damaged(f"no record of this file starts here: {bytes(file[offset : offset + 4])!r}")
    end = offset + RECORD_HEADER_BYTES + length
    if length > DATA_BYTES_MAX or end > len(file):
        raise Damaged(f"a record of {length} bytes, {left - RECORD_HEADER_BYTES} are left")
    if crc32(file[offset + 8 : end], salt) != crc:
        raise Damaged("the record's checksum is wrong")
    if kind not in KINDS or zero:
        raise OtherVersion(f"a record of unknown kind {kind} from a newer version")
    data = file[offset + RECORD_HEADER_BYTES : end]
    return Record(offset, RecordKind(kind), entry_kind, batch, group, index, term, time_ms, data)


def entry_stamp(header: Data, group: int, index: int) -> int:
    """Return the time_ms in a record's header; 0: it is not of that entry. Nothing is checked."""
    if len(header) < RECORD_HEADER_BYTES:
        return 0
    _, _, _, kind, _, _, _, of_group, at, _, time_ms = _WHOLE.unpack_from(header, 0)
    right = kind in ENTRY_RECORDS and (of_group, at) == (group, index)
    return int(time_ms) if right else 0


def decode_entry(record: Record) -> Entry:
    """Return the entry in an ENTRY record; raises Damaged."""
    try:
        kind = EntryKind(record.entry_kind)
    except ValueError:
        raise OtherVersion(
            f"an entry of unknown kind {record.entry_kind} from a newer version"
        ) from None
    return Entry(record.index, record.term, kind, record.time_ms, bytes(record.data))


def intact_entry(
    salt: int, file: memoryview, offset: int, group: int, index: int, length: int
) -> EntryParts | None:
    """Return the entry in the record at `offset` if it is intact, and that entry of the group.

    The quick way of `decode_record` and `decode_entry` through many neighbours: None is not yet
    damage, they say what it is.
    """
    end = offset + RECORD_HEADER_BYTES + length
    if end > len(file):
        return None
    tag, crc, size, kind, entry_kind, zero, _, of_group, at, term, time_ms = _WHOLE.unpack_from(
        file, offset
    )
    if (tag, size, zero, of_group, at) != (salt, length, 0, group, index):
        return None
    if kind not in ENTRY_RECORDS or entry_kind >= len(_ENTRY_KINDS):
        return None
    if crc32(file[offset + 8 : end], salt) != crc:
        return None
    data = bytes(file[offset + RECORD_HEADER_BYTES : end])
    return at, term, _ENTRY_KINDS[entry_kind], time_ms, data
