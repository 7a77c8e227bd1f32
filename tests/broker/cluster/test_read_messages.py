"""Reads between nodes of which one does not know all fields of the other's messages."""

from __future__ import annotations

import msgspec

from warren_broker.cluster import messages
from warren_broker.cluster.client.reads import ReadFailed
from warren_broker.cluster.client.view_reads import if_browsed
from warren_machines.queue.places import BrowsedRows, BrowsePlace, Holder
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


class OlderView(msgspec.Struct, frozen=True, array_like=True, tag="read_view"):
    """`messages.ReadView` before a queue could be browsed."""

    request: int
    group: int
    states: tuple[str, ...]
    first: int
    last: int
    count: int
    pieces: int


def test_a_leader_of_an_earlier_version_is_browsed() -> None:
    behind = (BrowsePlace(2, "", (1, 2, 3, 4)), 5)
    asked = messages.ReadView(1, 2, ("ready",), 0, 0, 9, 0, behind)
    encoded = msgspec.msgpack.encode(asked)
    assert msgspec.msgpack.decode(encoded, type=messages.ReadView) == asked
    assert msgspec.msgpack.decode(encoded, type=OlderView).count == 9
    found: list[messages.ViewIs | ReadFailed] = []
    if_browsed(found.append, messages.ViewIs(1, (), (), ()))
    assert isinstance(found[0], ReadFailed) and found[0].unavailable
    rows = BrowsedRows((Holder("t", "n", 1),), (), (), False, ((1, 2, (("x", b"y"),)),))
    answer = messages.ViewIs(1, (), (), (), rows, 7)
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=messages.ViewIs)
    if_browsed(found.append, read)
    assert read == answer == found[1]
