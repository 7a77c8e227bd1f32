"""Compression of blocks.

CODEC_LZ4_AREAS, which `compress` writes: properties and bodies as one LZ4 block, everything before
them uncompressed, so that a queue's machine reads counts, sizes, priorities without unpacking.
CODEC_LZ4: an LZ4 frame of everything from byte 32; only read.
"""

from __future__ import annotations

from typing import Final, TypeVar

import lz4.block
import lz4.frame

from warren_wire.block.layout import (
    CODEC_LZ4,
    CODEC_LZ4_AREAS,
    CODEC_NONE,
    HEADER,
    HEADER_BYTES,
    BlockError,
    areas_start,
)
from warren_wire.checksum import crc32

COMPRESS_BYTES_MIN: Final = 512
"""Smaller blocks are not compressed."""
SAMPLE_BYTES: Final = 4 << 10
"""Size of the sample from the middle that decides whether compression is worth the work."""
_ACCELERATION: Final = 2
_Bytes = TypeVar("_Bytes", bytes, memoryview)


def compress(block: _Bytes, bytes_min: int = COMPRESS_BYTES_MIN) -> _Bytes | bytes:
    """Return the block compressed with LZ4 when that saves an eighth; otherwise `block` itself.

    bytes_min  smaller blocks are not compressed. Of larger ones with more than twice SAMPLE_BYTES
               of messages a sample is compressed first, and must shrink by a quarter
    """
    if len(block) < max(bytes_min, COMPRESS_BYTES_MIN) or block[7] != CODEC_NONE:
        return block
    head = list(HEADER.unpack_from(block))
    start = areas_start(head)
    view = memoryview(block)
    areas = view[start:]
    if len(areas) > 2 * SAMPLE_BYTES:
        middle = len(areas) // 2
        sample = areas[middle : middle + SAMPLE_BYTES]
        if len(_packed(sample)) > SAMPLE_BYTES - SAMPLE_BYTES // 4:
            return block
    packed = _packed(areas)
    if start + len(packed) > len(block) - len(block) // 8:
        return block
    plain = view[HEADER_BYTES:start]
    head[4] = CODEC_LZ4_AREAS
    head[6] = crc32(packed, crc32(plain))
    return b"".join((HEADER.pack(*head), plain, packed))


def _packed(data: memoryview) -> bytes:
    packed: bytes = lz4.block.compress(
        data, mode="fast", acceleration=_ACCELERATION, store_size=False
    )
    return packed


def plain(view: memoryview, head: tuple[int, ...]) -> memoryview:
    """Decompress a block; raises BlockError when it is damaged.

    Never allocates more than the size in its header: a decompression bomb is refused unread.
    """
    length = head[7]
    if head[4] == CODEC_LZ4:
        return _with_head(head, b"", _frame(view, length - HEADER_BYTES))
    assert head[4] == CODEC_LZ4_AREAS, head[4]
    start = areas_start(head)
    if start > min(length, len(view)):
        raise BlockError(f"compressed block of {length} bytes is too short for its columns")
    size = length - start
    try:
        data = lz4.block.decompress(view[start:], uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError, OverflowError) as error:
        raise BlockError(f"compressed block of {length} bytes cannot be read: {error}") from error
    if len(data) != size:
        raise BlockError(f"compressed block of {length} bytes holds {len(data) + start}")
    return _with_head(head, view[HEADER_BYTES:start], data)


def _frame(view: memoryview, size: int) -> bytes:
    reader = lz4.frame.LZ4FrameDecompressor()
    try:
        # One byte more than allowed: a frame that holds more than it declares is refused unread.
        data: bytes = reader.decompress(view[HEADER_BYTES:], max_length=size + 1)
    except (RuntimeError, EOFError) as error:
        length = size + HEADER_BYTES
        raise BlockError(f"compressed block of {length} bytes cannot be read: {error}") from error
    if len(data) != size or not reader.eof:
        raise BlockError(
            f"compressed block of {size + HEADER_BYTES} bytes holds {len(data) + HEADER_BYTES}"
        )
    if reader.unused_data:
        raise BlockError(f"{len(reader.unused_data)} bytes follow a compressed block")
    return data


def _with_head(head: tuple[int, ...], columns: memoryview | bytes, data: bytes) -> memoryview:
    fields = list(head)
    fields[4] = CODEC_NONE
    fields[6] = crc32(data, crc32(columns))
    return memoryview(b"".join((HEADER.pack(*fields), columns, data)))
