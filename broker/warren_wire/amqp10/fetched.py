"""The layout of a piece of fetched messages on a link: runs, then the block they describe.

    u32 number of runs, u32 zero
    per run: u64 index, u32 first, u32 last, u32 delivery_count, u32 acquired_count   (24 bytes)
    block

little-endian. It is sent as the binary of one AMQP data section with a head of always 8 bytes, so a
block keeps its alignment to 8 within the message.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

Run: TypeAlias = tuple[int, int, int, int, int]
"""index, first, last, delivery_count, acquired_count; first and last are included."""

_HEAD = struct.Struct("<II")
_RUN = struct.Struct("<QIIII")
_SECTION = struct.Struct(">4sI")
_DATA = b"\x00\x53\x75\xb0"  # described type, smallulong 0x75 (data), vbin32
SECTION_BYTES = 8
PIECE_RUNS_MAX = 1 << 20
STAGED_STATE = 0x57424C4B
"""The delivery state of a block that is durable in its stages: a list of the queues' names."""


class MalformedPiece(ValueError):
    """Bytes that are not a piece, or not one data section."""


def encode_runs(runs: Sequence[Run]) -> bytes:
    """Encode the head of a piece, which the block follows."""
    assert 0 < len(runs) <= PIECE_RUNS_MAX, len(runs)
    return _HEAD.pack(len(runs), 0) + b"".join(_RUN.pack(*run) for run in runs)


def decode_piece(data: memoryview) -> tuple[tuple[Run, ...], memoryview]:
    """Decode runs and block; the block is a view."""
    if len(data) < _HEAD.size:
        raise MalformedPiece(
            f"a piece of {len(data)} bytes is shorter than its head of {_HEAD.size}"
        )
    count, zero = _HEAD.unpack_from(data)
    start = _HEAD.size + count * _RUN.size
    if zero or not 0 < count <= PIECE_RUNS_MAX or start > len(data):
        raise MalformedPiece(f"a piece of {len(data)} bytes claims to hold {count} runs")
    runs = tuple(_RUN.iter_unpack(data[_HEAD.size : start]))
    return runs, data[start:]


def encode_section_head(size: int) -> bytes:
    """Encode the head that makes the next `size` bytes an AMQP message of one data section."""
    assert 0 <= size < 1 << 32, size
    return _SECTION.pack(_DATA, size)


def decode_section(data: memoryview) -> memoryview:
    """Return the binary of a message of one data section, as a view."""
    if len(data) >= SECTION_BYTES:
        head, size = _SECTION.unpack_from(data)
        if head == _DATA and size == len(data) - SECTION_BYTES:
            return data[SECTION_BYTES:]
    if len(data) >= 5 and bytes(data[:4]) == b"\x00\x53\x75\xa0" and data[4] == len(data) - 5:
        return data[5:]
    raise MalformedPiece(
        f"a message of {len(data)} bytes is not one data section; send a block as one"
    )
