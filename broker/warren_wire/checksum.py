"""CRC-32, the checksum of records, blocks and files, with zlib's polynomial and values.

A message is summed several times: its block, its record in the log of every member, its record
again when it is read. zlib-ng's CRC-32 folds 64 bytes at a time with carry-less multiplication
where the processor has it; many systems' zlib does not. The values are the same
(tests/raft/test_checksum.py), so a file that one of them summed is checked by the other.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class _Crc32(Protocol):
    def __call__(self, data: Buffer, start: int = 0, /) -> int: ...


def _choose() -> _Crc32:
    try:
        from zlib_ng import zlib_ng
    except ImportError:  # there is no wheel for every platform
        import zlib

        return zlib.crc32
    return zlib_ng.crc32


crc32: _Crc32 = _choose()
"""Return the CRC-32 of `data`, an unsigned 32-bit integer; start: that of the bytes before it."""
