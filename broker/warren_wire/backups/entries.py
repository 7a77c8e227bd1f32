"""The entries of a group's log in a backup: records one after the other.

    u32 length, little-endian | MessagePack [index, term, kind, time_ms, data]

A file of entries holds whole records, their indexes ascending.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from warren_wire.undecodable import UNDECODABLE

Record: TypeAlias = tuple[int, int, int, int, bytes]
"""index, term, kind, time_ms, data: the fields of an entry of a log."""
_LENGTH: Final = struct.Struct("<I")
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[int, int, int, int, bytes])


class NoEntries(ValueError):
    """Bytes that are not records of entries."""


def encode_entry(index: int, term: int, kind: int, time_ms: int, data: bytes) -> bytes:
    """Return an entry's record."""
    packed = _ENCODER.encode((index, term, int(kind), time_ms, data))
    return _LENGTH.pack(len(packed)) + packed


def decode_entries(data: bytes | memoryview) -> Iterator[Record]:
    """Yield the entries of a file; raises NoEntries where it is none."""
    view, at, before = memoryview(data), 0, 0
    while at < len(view):
        if at + _LENGTH.size > len(view):
            raise NoEntries(f"{len(view) - at} bytes at {at} are no length")
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(view, at)[0]
        if at > len(view):
            raise NoEntries(f"the record at {start} ends at {at}, the file at {len(view)}")
        try:
            record = _DECODER.decode(view[start:at])
        except UNDECODABLE as error:
            raise NoEntries(f"the record at {start}: {error}") from error
        if record[0] <= before:
            raise NoEntries(f"entry {record[0]} follows entry {before}")
        before = record[0]
        yield record


def record_ends(data: bytes | bytearray | memoryview, at: int) -> Iterator[tuple[int, int]]:
    """Yield index and end of each whole record from `at` on."""
    view = memoryview(data)
    while at + _LENGTH.size <= len(view):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(view, at)[0]
        if at > len(view):
            return
        yield _DECODER.decode(view[start:at])[0], at
