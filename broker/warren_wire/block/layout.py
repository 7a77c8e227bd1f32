"""The byte layout of a block: its header, the order of its parts, the meaning of each number.

Little-endian; offsets are from the start of the block, those of areas from the area's:

    0   "WBLK", u8 version 1, u8 form, u8 columns, u8 codec
    8   u32 count, u32 crc32 of everything from byte 32 as stored, u32 length uncompressed,
        u32 routes, u32 priority runs, u32 bytes of the routes
    32  priority runs: (u32 first, u8 priority, 3 zero) each      none with a priority column
        u32 properties_offsets[count + 1], u32 body_offsets[count + 1]
        u32 route[count]    columns bit 0: there is more than one route
        u32 ttl_ms[count]   columns bit 1; 0xFFFFFFFF: none
        u8 priority[count], padded to 4   columns bit 2
        routes: (u8 length, exchange, u8 length, routing key) each
        zeros up to a multiple of 8, properties area, body area

Form 0: a message's properties are AMQP 0.9.1's flags and list. Form 1, AMQP 1.0 sections, is read
and not written. Codec 1: everything from byte 32 is one LZ4 frame. Codec 2: the two areas are one
LZ4 block, and what precedes them is uncompressed.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from warren_wire.checksum import crc32

Buffer: TypeAlias = bytes | bytearray | memoryview
Route: TypeAlias = tuple[bytes, bytes]
"""(exchange, routing key), at most 255 bytes each."""

MAGIC = b"WBLK"
VERSION = 1
HEADER = struct.Struct("<4sBBBB6I")
HEADER_BYTES = 32
FORM_AMQP091 = 0
FORM_AMQP10 = 1
COLUMN_ROUTE = 1
COLUMN_TTL = 2
COLUMN_PRIORITY = 4
CODEC_NONE = 0
CODEC_LZ4 = 1
CODEC_LZ4_AREAS = 2

PRIORITY_DEFAULT = 4
PRIORITY_MAX = 31
TTL_NONE = 0xFFFFFFFF
MESSAGE_BYTES_MAX = 16 << 20
"""What a node accepts by default (`limits.message_size_max`)."""
LENGTH_MAX = 0xFFFFFFFF
"""Offsets and lengths are 32-bit numbers."""
AREA_PROPERTIES, AREA_BODIES = 1, 2
AREAS = AREA_PROPERTIES | AREA_BODIES
"""The areas of a block, as bits: a reader may want one of them, or none."""
BLOCK_MESSAGES_MAX = 65_536
"""Maximum number of messages in a block, a client's or the broker's: one pass of the loop."""
BLOCK_BYTES_MAX = 64 << 20
"""Largest uncompressed block that `decode` accepts and `encode` makes by default."""
LARGEST_BODY_BYTES = BLOCK_BYTES_MAX - (12 << 20)
"""No node accepts a larger message, whatever its settings: the rest of its block is for others.

Dead letters are gathered up to 8 MiB, publishes up to 1 MiB."""

Runs: TypeAlias = tuple[tuple[int, int, int], ...]
"""(first, last, priority), maximal, contiguous."""
Area: TypeAlias = tuple[bytes, Buffer]
"""Offsets that start at 0, and the data."""

RUN = struct.Struct("<IB3x")
_SAME_BYTES = re.compile(rb"(.)\1*", re.DOTALL)


class BlockError(ValueError):
    """Malformed block bytes, or arguments that do not fit into a block."""


def areas_start(head: Sequence[int]) -> int:
    """Return the offset of the properties area, from the fields of HEADER."""
    columns, count, runs, routes_bytes = head[3], head[5], head[9], head[10]
    wide = 2 * (count + 1) + count * (columns & 1) + count * (columns >> 1 & 1)
    narrow = (count + 3 & ~3) * (columns >> 2 & 1)
    return HEADER_BYTES + runs * RUN.size + 4 * wide + narrow + routes_bytes + 7 & ~7


def encode_head(
    *,
    form: int,
    columns: int,
    count: int,
    crc: int,
    length: int,
    routes: int,
    runs: int,
    routes_bytes: int,
) -> bytes:
    """Encode the 32-byte header of a block."""
    return HEADER.pack(
        MAGIC, VERSION, form, columns, CODEC_NONE, count, crc, length, routes, runs, routes_bytes
    )


def encode_routes(routes: Iterable[Route]) -> bytes:
    """Encode the routes as stored in a block, without padding."""
    parts = []
    for exchange, key in routes:
        if len(exchange) > 255 or len(key) > 255:
            raise BlockError(
                f"exchange of {len(exchange)} or routing key of {len(key)} bytes; the limit is 255"
            )
        parts.append(b"%c%b%c%b" % (len(exchange), exchange, len(key), key))
    return b"".join(parts)


def encode_parts(
    *,
    form: int,
    count: int,
    properties: Area,
    bodies: Area,
    routes: Sequence[Route],
    route_column: Buffer | None,
    ttl_column: Buffer | None,
    runs: Runs,
) -> bytes:
    """Encode a block; runs that do not descend become a priority column. The parts must fit."""
    columns = 0
    parts: list[Buffer] = [b"", b"", properties[0], bodies[0]]
    stored = 0
    if descending(runs):
        parts[1] = b"".join([RUN.pack(first, priority) for first, _, priority in runs])
        stored = len(runs)
    if route_column is not None:
        columns |= COLUMN_ROUTE
        parts.append(route_column)
    if ttl_column is not None:
        columns |= COLUMN_TTL
        parts.append(ttl_column)
    if stored != len(runs):
        columns |= COLUMN_PRIORITY
        parts.append(b"".join([bytes((p,)) * (last - first) for first, last, p in runs]))
        parts.append(bytes(-count % 4))
    routes_data = encode_routes(routes)
    parts.append(routes_data)
    length = HEADER_BYTES + sum(memoryview(part).nbytes for part in parts)
    parts.append(bytes(-length % 8))
    parts += (properties[1], bodies[1])
    length += -length % 8 + len(properties[1]) + len(bodies[1])
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    parts[0] = encode_head(
        form=form,
        columns=columns,
        count=count,
        crc=crc,
        length=length,
        routes=len(routes),
        runs=stored,
        routes_bytes=len(routes_data),
    )
    return b"".join(parts)


def runs_of(priorities: Buffer) -> Runs:
    """Return the maximal runs of equal bytes."""
    return tuple(
        (found.start(), found.end(), found[0][0]) for found in _SAME_BYTES.finditer(priorities)
    )


def descending(runs: Runs) -> bool:
    """Return whether every run has a lower priority than the one before."""
    return all(a[2] > b[2] for a, b in itertools.pairwise(runs))


def words_of(column: Buffer) -> memoryview:
    """Return a buffer as 32-bit words."""
    return memoryview(column).cast("B").cast("I")


def shifted(words: memoryview, delta: int) -> bytes:
    """Add delta to every u32 of words; each sum stays within 0 to 2**32 - 1.

    Done as one long addition: no sum carries into its neighbour, so all lanes are right.
    """
    if delta == 0 or not len(words):
        return words.tobytes()
    size = 4 * len(words)
    ones = int.from_bytes(b"\x01\x00\x00\x00" * len(words), "little")
    return (int.from_bytes(words, "little") + delta * ones).to_bytes(size, "little")
