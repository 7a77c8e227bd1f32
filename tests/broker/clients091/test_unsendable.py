"""A message that cannot be sent to a client costs it neither its connection nor the others."""

from __future__ import annotations

from typing import Any

import pamqp.commands as spec

from tests.broker.clients091.peer import Peer, run
from tests.wire.kernel import frames as f
from warren_broker.access import requests
from warren_broker.clients091.deliveries import UNSENDABLE_TRIES_MAX
from warren_machines.queue import commands
from warren_wire.block.block import Block, encode

LARGE = f.properties(headers=f.table((b"h", b"x" + (5000).to_bytes(4, "big") + bytes(5000))))


def small_frames(**consume: Any) -> Peer:
    peer = Peer().connect(frame_max=4096).open()
    peer.consume("q", **consume)
    return peer


def block(*raw: bytes, form: int = 0) -> Block:
    bodies = [b"%d" % i for i in range(len(raw))]
    return Block.decode(encode(bodies, list(raw), (b"", b"q"), form=form))


def came(peer: Peer) -> list[tuple[int, bytes]]:
    """(delivery tag, body) of what has come."""
    frames = [frame for _, frame in peer.got()]
    tags = [frame.delivery_tag for frame in frames if frame.name == "Basic.Deliver"]
    return list(
        zip(tags, [frame.value for frame in frames if frame.name == "ContentBody"], strict=True)
    )


def test_those_around_it_are_delivered_and_it_goes_back_as_failed() -> None:
    peer = small_frames()
    peer.conn.deliver(1001, run(0, 5), block(f.PLAIN, LARGE, f.PLAIN, LARGE, f.PLAIN))
    assert came(peer) == [(1, b"0"), (2, b"2"), (3, b"4")]
    asked = peer.asked()
    notes = [each for each in asked if isinstance(each, requests.SetAsideRequest)]
    assert [(each.index, each.msg_id) for each in notes] == [(1, 1), (1, 3)]
    assert "frame of 4096 bytes" in notes[0].reason
    back = [each for each in asked if isinstance(each, commands.Return)]
    assert [(each.msg_ids, each.failed) for each in back] == [(((1, 1),), True), (((3, 3),), True)]
    assert len(asked) == 4
    peer.send(spec.Basic.Ack(3, multiple=True))
    settled = [ids for each in peer.asked() for ids in each.msg_ids]
    assert settled == [(0, 0), (2, 2), (4, 4)], "what was not sent is not acknowledged"
    assert peer.conn.state.phase == "running"


def test_it_is_discarded_in_the_end() -> None:
    peer = small_frames()
    peer.conn.deliver(1001, run(0, failed=UNSENDABLE_TRIES_MAX), block(LARGE))
    note, discard = peer.asked()
    assert isinstance(note, requests.SetAsideRequest)
    assert isinstance(discard, commands.Discard) and discard.msg_ids == ((0, 0),)


def test_what_nobody_could_be_sent_is_discarded_at_once() -> None:
    peer = small_frames()
    peer.conn.deliver(1001, run(0, 2), block(b"", b"", form=1))
    assert [type(each) for each in peer.asked()] == [
        requests.SetAsideRequest,
        commands.Discard,
    ] * 2
    peer.nothing()


def test_malformed_properties_are_replaced_and_noted() -> None:
    """Each of them ended the connection of every consumer that it came to."""
    peer = small_frames()
    peer.conn.deliver(1001, run(0, 3, acquired=1), block(b"", f.PLAIN, b"\x80\x00\x09x"))
    assert [tag for tag, _ in came(peer)] == [1, 2, 3]
    notes = peer.asked()
    assert [(type(each), each.msg_id) for each in notes] == [
        (requests.SetAsideRequest, 0),
        (requests.SetAsideRequest, 2),
    ]


def test_without_acknowledgements_the_window_moves_on() -> None:
    peer = small_frames(no_ack=True)
    for number in range(0, 3000, 10):
        peer.conn.deliver(1001, run(number, 10), block(*[LARGE] * 10))
    peer.got()
    asked = peer.asked()
    assert not any(isinstance(each, commands.Return | commands.Discard) for each in asked)
    credit = [each for each in asked if isinstance(each, commands.Credit)]
    assert credit and credit[-1].delivered == 3000


def test_basic_get_finds_nothing_that_it_could_bring() -> None:
    peer = Peer().connect(frame_max=4096).open()
    peer.send(spec.Basic.Get(queue="q"))
    peer.answer(requests.GetRequest, requests.GotMessage(run(0), block(LARGE), 0))
    peer.one(spec.Basic.GetEmpty)
    assert [type(each) for each in peer.asked()] == [
        requests.SetAsideRequest,
        commands.Return,
    ]
    peer.send(spec.Basic.Get(queue="q"))
    peer.answer(requests.GetRequest, requests.GotMessage(run(1), block(b""), 0))
    assert peer.got()[0][1].delivery_tag == 1
    assert [type(each) for each in peer.asked()] == [requests.SetAsideRequest]


def test_a_channel_wide_prefetch_is_not_used_up() -> None:
    peer = Peer().connect(frame_max=4096).open()
    peer.send(spec.Basic.Qos(prefetch_count=2, global_=True))
    peer.one(spec.Basic.QosOk)
    peer.consume("q")
    first = [
        each for each in [*peer.conn_requests, *peer.asked()] if isinstance(each, commands.Credit)
    ]
    assert first and first[-1].credit == 2
    peer.conn.deliver(1001, run(0, 2), block(LARGE, LARGE))
    again = [each for each in peer.asked() if isinstance(each, commands.Credit)]
    assert again and again[-1].delivered == 2 and again[-1].credit > 0
