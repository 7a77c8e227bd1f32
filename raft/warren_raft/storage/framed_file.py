"""The frame of a file that is always written and read as a whole.

Little-endian:

| at | what |
| --- | --- |
| 0 | 8 bytes magic, u32 version, u32 crc32 of bytes 0 … 11, of bytes 16 … 23 and of the payload |
| 16 | u64 length of the payload |
| 24 | payload, to the end of the file |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from warren_raft.storage.format import Damaged, Data, OtherVersion
from warren_wire.checksum import crc32

SEAL_HEADER_BYTES = 24
_START = struct.Struct("<8sI")
_CRC = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")


def seal(magic: bytes, version: int, parts: Sequence[Data]) -> bytes:
    """Return the whole file."""
    start = _START.pack(magic, version)
    length = _LENGTH.pack(sum(map(len, parts)))
    crc = crc32(length, crc32(start))
    for part in parts:
        crc = crc32(part, crc)
    return b"".join((start, _CRC.pack(crc), length, *parts))


def unseal(magic: bytes, version: int, file: Data) -> memoryview:
    """Return the payload of a file of that version; raises Damaged."""
    if len(file) < SEAL_HEADER_BYTES:
        raise Damaged(f"the file has {len(file)} bytes, its header alone has {SEAL_HEADER_BYTES}")
    found, its_version = _START.unpack_from(file)
    if found != magic:
        raise Damaged(f"it starts with {bytes(found)!r}, not with {magic!r}")
    (crc,) = _CRC.unpack_from(file, _START.size)
    (length,) = _LENGTH.unpack_from(file, 16)
    payload = memoryview(file)[SEAL_HEADER_BYTES:]
    whole = memoryview(file)
    whole_crc = crc32(payload, crc32(whole[16:SEAL_HEADER_BYTES], crc32(whole[: _START.size])))
    if its_version != version:
        kind = OtherVersion if whole_crc == crc else Damaged
        raise kind(f"it has format version {its_version}, this program reads {version}")
    if length != len(payload):
        raise Damaged(f"{length} bytes should follow the header, {len(payload)} do")
    if whole_crc != crc:
        raise Damaged("the file's checksum is wrong")
    return payload
