"""Large bodies leave as views of their block, in order with all that is sent beside them."""

from __future__ import annotations

from typing import Any

import pamqp.commands as spec
import pytest

from tests.broker.clients091.peer import Peer, run
from tests.wire.kernel import frames as f
from warren_broker.clients091.deliveries import VIEWED_BYTES_MIN
from warren_wire.block.block import Block, encode

FRAME_MAX = 131_072


def block(*sizes: int) -> Block:
    bodies = [bytes([at + 1]) * size for at, size in enumerate(sizes)]
    return Block.decode(encode(bodies, [f.PLAIN] * len(sizes), (b"", b"q")))


def consumer(frame_max: int = FRAME_MAX, **given: Any) -> Peer:
    peer = Peer().connect(frame_max=frame_max).open()
    peer.consume("q", **given)
    return peer


def views(peer: Peer) -> int:
    """The number of bodies that leave as views; all of the output is kept for `got`."""
    pieces = peer.conn.take_output()
    peer.left += b"".join(bytes(piece) for piece in pieces)
    return sum(isinstance(piece, memoryview) for piece in pieces)


def test_they_are_views_between_the_frames_that_are_sent_before_and_after() -> None:
    peer = consumer()
    peer.send(spec.Basic.Qos(prefetch_count=5))
    peer.conn.deliver(1001, run(0, 2), block(100_000, 300_000))
    peer.send(spec.Basic.Qos(prefetch_count=6))
    assert peer.conn.wants_output
    assert views(peer) == 1 + 3
    names = [frame.name for _, frame in peer.got()]
    message = ["Basic.Deliver", "ContentHeader", "ContentBody"]
    more = ["ContentBody"] * 2
    assert names == ["Basic.QosOk", *message, *message, *more, "Basic.QosOk"]
    assert not peer.conn.wants_output


def test_their_bodies_are_those_of_the_block() -> None:
    peer = consumer()
    peer.conn.deliver(1001, run(0, 3), block(40_000, 0, 200_000))
    assert views(peer) == 3
    frames = [frame for _, frame in peer.got()]
    assert [each.delivery_tag for each in frames if each.name == "Basic.Deliver"] == [1, 2, 3]
    bodies = b"".join(each.value for each in frames if each.name == "ContentBody")
    assert bodies == b"\1" * 40_000 + b"\3" * 200_000


@pytest.mark.parametrize(
    ("frame_max", "sizes"),
    [
        (4096, (100_000, 100_000)),
        (VIEWED_BYTES_MIN, (100_000, 100_000)),
        (FRAME_MAX, (VIEWED_BYTES_MIN - 1,) * 2),
        (FRAME_MAX, (100_000, 100_000, 300_000)),
    ],
    ids=["small frames", "frames below the bound", "small bodies", "a small part of its block"],
)
def test_others_are_copied(frame_max: int, sizes: tuple[int, ...]) -> None:
    peer = consumer(frame_max)
    peer.conn.deliver(1001, run(0, 2), block(*sizes))
    assert views(peer) == 0
    bodies = b"".join(frame.value for _, frame in peer.got() if frame.name == "ContentBody")
    assert len(bodies) == sizes[0] + sizes[1]


def test_an_automatic_acknowledgement_counts_the_same_bytes() -> None:
    counted = []
    for given in (block(100_000), block(100_000, 300_000)):
        peer = consumer(no_ack=True)
        peer.conn.deliver(1001, run(0, 1), given)
        (known,) = peer.conn.state.consumers.values()
        counted.append((known.unreported, known.unreported_bytes))
    assert counted[0] == counted[1] and counted[0][1] > 100_000


def test_a_closed_connection_keeps_no_views() -> None:
    peer = consumer()
    peer.conn.deliver(1001, run(0, 1), block(100_000))
    peer.conn.disconnected()
    assert peer.conn.take_output() == []
