"""The layout of a piece of a queue's view on a link: rows with their state, then their block.

    u32 length of the head, u32 zero
    head   MessagePack: `ViewHead`; then zeros up to a multiple of 8
    block  of the rows' messages in their order; nothing where none was asked for

little-endian; sent as one AMQP data section, as `fetched` has it.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import msgspec

from warren_wire.amqp10.fetched import MalformedPiece
from warren_wire.undecodable import UNDECODABLE

Row: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int]
"""See `warren_machines.queue.places.ViewRow`."""
_HEAD = struct.Struct("<II")
_ALIGNED = 8


class ViewHead(msgspec.Struct, array_like=True, frozen=True):
    """What a piece says about its messages.

    names  of consumers, readers and reasons, to which rows refer
    rows   in the order of the block's messages
    times  (log index, time in milliseconds since 1970 at which its messages entered the queue);
           empty where they were not asked for
    """

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    times: tuple[tuple[int, int], ...]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ViewHead)


def encode_view_head(head: ViewHead) -> bytes:
    """Encode the head of a piece, which the block follows."""
    data = _ENCODER.encode(head)
    return _HEAD.pack(len(data), 0) + data + bytes(-len(data) % _ALIGNED)


def decode_view(data: memoryview) -> tuple[ViewHead, memoryview]:
    """Decode head and block; the block is a view. Raises MalformedPiece."""
    if len(data) < _HEAD.size:
        raise MalformedPiece(f"a view of {len(data)} bytes is shorter than its head's length")
    length, zero = _HEAD.unpack_from(data)
    start = _HEAD.size + length + -length % _ALIGNED
    if zero or start > len(data):
        raise MalformedPiece(f"a view of {len(data)} bytes claims a head of {length}")
    try:
        return _DECODER.decode(data[_HEAD.size : _HEAD.size + length]), data[start:]
    except UNDECODABLE as error:
        raise MalformedPiece(f"a view's head: {error}") from error
