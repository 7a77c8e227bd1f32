"""Reads between nodes of which one does not know that blocks may come without areas."""

from __future__ import annotations

import msgspec

from warren_broker.cluster import messages
from warren_wire.block.layout import AREA_BODIES, AREAS

RUNS = ((7, 0, 3, 1, 2),)


class OlderRead(msgspec.Struct, frozen=True, array_like=True, tag="read_block"):
    """`messages.ReadBlock` before it had areas."""

    request: int
    group: int
    runs: tuple[tuple[int, int, int, int, int], ...]
    max_bytes: int


def test_an_older_node_reads_whole_blocks_and_is_sent_whole_blocks() -> None:
    old = OlderRead(1, 2, RUNS, 9)
    encoded = msgspec.msgpack.encode(messages.ReadBlock(1, 2, RUNS, 9, AREA_BODIES))
    assert msgspec.msgpack.decode(encoded, type=OlderRead) == old
    found = msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=messages.ReadBlock)
    assert (found.max_bytes, found.areas) == (9, AREAS)
