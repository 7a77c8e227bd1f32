"""The flows that tell a client whether its consumer is the active one."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Data, symbol, uint

from tests.broker.clients10.test_connection import Client, new, output
from tests.broker.clients10.test_links import CONSUMER, asked, consumer, deliver, opened, received
from warren_broker.clients10 import link_requests as asks
from warren_broker.clients10.consuming_link import ACTIVE
from warren_machines.queue.commands import Delivery as Run
from warren_wire.amqp10.engine import encode_frame
from warren_wire.amqp10.link_flows import _frames
from warren_wire.block.block import Block, encode

FLOW = b"\x00\x53\x13"
TRANSFER = b"\x00\x53\x14"
HANDLE, COUNT, CREDIT, DRAIN, PROPERTIES = 4, 5, 6, 8, 10
SMALL_FRAMES = 32_768


def frames(data: bytes) -> list[tuple[int, bytes]]:
    """(channel, body) of whole frames."""
    found, at = [], 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append((int.from_bytes(data[at + 6 : at + 8], "big"), data[at + 8 : at + size]))
        at += max(size, 8)
    return found


def flows(data: bytes) -> list[tuple[int, list[Any]]]:
    """(channel, fields) of the flows with properties."""
    found = []
    for channel, body in frames(data):
        if body.startswith(FLOW):
            fields = Data()
            fields.decode(body)
            fields.rewind()
            fields.next()
            values = list(fields.get_object().value)
            if len(values) > PROPERTIES:
                found.append((channel, values))
    return found


def turned(client: Client, times: int = 4) -> bytes:
    """Bytes both ways; return what the broker sent."""
    sent = b""
    for _ in range(times):
        for piece in client.engine.output(1 << 20):
            client.connection.receive(piece)
        for request in client.connection.take_requests():
            client.requests.append(request)
            if type(request) in client.answers:
                client.connection.answer(request.token, client.answers[type(request)])
        made = output(client.connection)
        for _ in client.engine.receive(made):
            pass
        list(client.engine.events())
        sent += made
    return sent


def said(data: bytes) -> list[bool]:
    return [fields[PROPERTIES][symbol(ACTIVE)] for _, fields in flows(data)]


def link(client: Client, active: bool | None, consumer_number: int = CONSUMER) -> Any:
    """A receiver without credit; active: as the answer to its attach says."""
    client.answers[asks.Consume] = asks.Consuming(consumer_number, active)
    return consumer(client, credit=0)


def test_a_consumer_of_an_ordinary_queue_is_told_once_that_it_is_active() -> None:
    client = opened()
    receiver = link(client, True)
    assert said(turned(client)) == [], "it has given no credit"
    receiver.flow(3)
    ((channel, fields),) = flows(turned(client))
    assert channel == 0
    assert fields[HANDLE] == 0
    assert (fields[COUNT], fields[CREDIT], fields[DRAIN]) == (0, 3, False)
    assert fields[PROPERTIES] == {symbol("rabbitmq:active"): True}
    deliver(client, [b"a", b"b"])
    receiver.flow(5)
    assert said(turned(client)) == []
    assert len(received(receiver)) == 2
    assert receiver.credit == 6, "the flow has changed none"


def test_each_change_is_told_and_nothing_is_told_twice() -> None:
    client = opened()
    receiver = link(client, None)
    receiver.flow(3)
    assert said(turned(client)) == [], "the queue has not said so"
    client.connection.tell_active(CONSUMER, False)
    assert said(turned(client)) == [False]
    client.connection.tell_active(CONSUMER, False)
    assert said(turned(client)) == []
    client.connection.tell_active(CONSUMER, True)
    assert said(turned(client)) == [True]
    client.connection.tell_active(CONSUMER, False)
    client.connection.tell_active(CONSUMER, True)
    assert said(turned(client)) == [False, True]


def test_one_that_becomes_the_single_active_one_is_told_before_its_first_credit() -> None:
    """As in RabbitMQ: a client may give credit to active consumers alone."""
    client = opened()
    receiver = link(client, None)
    client.connection.tell_active(CONSUMER, False)
    assert said(turned(client)) == [], "it waits, and has given no credit"
    client.connection.tell_active(CONSUMER, True)
    ((_, fields),) = flows(turned(client))
    assert (fields[COUNT], fields[CREDIT]) == (0, 0)
    assert fields[PROPERTIES] == {symbol("rabbitmq:active"): True}
    receiver.flow(1)
    assert said(turned(client)) == []
    client.connection.tell_active(CONSUMER, False)
    assert said(turned(client)) == [False]


def test_the_flow_is_of_the_link_and_the_session_that_it_says() -> None:
    client = opened()
    link(client, True, 1)
    second = client.engine.connection.session()
    second.open()
    client.turn()
    client.session, first = second, client.session
    link(client, True, 2)
    other = link(client, True, 3)
    other.flow(2)
    ((channel, fields),) = flows(turned(client))
    assert (channel, fields[HANDLE], fields[CREDIT]) == (1, 1, 2)
    client.session = first


def test_the_delivery_count_is_what_was_sent_and_given_back() -> None:
    client = opened()
    receiver = link(client, None)
    receiver.flow(4)
    client.turn()
    deliver(client, [b"a", b"b", b"c"])
    client.connection.tell_active(CONSUMER, True)
    ((_, fields),) = flows(turned(client))
    assert (fields[COUNT], fields[CREDIT]) == (3, 1)
    receiver.drain(9)
    turned(client)
    (*_, request) = asked(client, asks.GrantCredit)
    client.connection.answer(request.token, asks.CreditDrained(3))
    turned(client)
    client.connection.tell_active(CONSUMER, False)
    ((_, fields),) = flows(turned(client))
    assert (fields[COUNT], fields[CREDIT]) == (13, 0)
    receiver.drain_mode = False
    receiver.flow(2)
    turned(client)
    (more,) = asked(client, asks.GrantCredit)
    assert (more.delivered, more.credit) == (3, 2)
    deliver(client, [b"d", b"e"], first_id=3)
    assert len(received(receiver)) == 5


def test_a_drain_is_answered_before_a_change_is_told() -> None:
    """Otherwise the client would take that flow for the answer."""
    client = opened()
    receiver = link(client, None)
    receiver.drain(9)
    turned(client)
    (request,) = asked(client, asks.GrantCredit)
    client.connection.tell_active(CONSUMER, False)
    assert said(turned(client)) == [] and receiver.draining()
    client.connection.answer(request.token, asks.CreditDrained(0))
    assert said(turned(client)) == [False]
    assert not receiver.draining()


def test_that_it_is_not_active_any_more_comes_after_its_messages() -> None:
    """The client's window is closed meanwhile."""
    client = Client(new(), frame_size=SMALL_FRAMES)
    client.session.incoming_capacity = SMALL_FRAMES
    client.turn()
    receiver = link(client, True)
    receiver.flow(10)
    assert said(turned(client)) == [True]
    bodies = [b"x" * 30_000 for _ in range(4)]
    block = Block.decode(encode(bodies, [b""] * 4, (b"", b"q"), 4, None))
    client.connection.deliver(CONSUMER, Run(0, 1, 0, 3), block)
    client.connection.tell_active(CONSUMER, False)
    sent, got = b"", []
    for _ in range(12):
        sent += turned(client, 1)
        got += received(receiver)
    order = [
        "flow" if body.startswith(FLOW) else "transfer"
        for _, body in frames(sent)
        if body.startswith(TRANSFER) or flows(_whole(body))
    ]
    assert len(got) == 4
    assert order[-1] == "flow" and order.count("flow") == 1, order


def _whole(body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def test_a_link_whose_consumer_has_timed_out_is_told_of_its_next_one() -> None:
    client = opened()
    receiver = link(client, None)
    receiver.flow(2)
    client.connection.tell_active(CONSUMER, True)
    assert said(turned(client)) == [True]
    deliver(client, [b"a"])
    client.answers[asks.Consume] = asks.Consuming(CONSUMER + 1, None)
    client.connection.timed_out(CONSUMER, ((0, 0),))
    turned(client)
    client.connection.tell_active(CONSUMER, False)  # of the one that has ended
    assert said(turned(client)) == []
    client.connection.tell_active(CONSUMER + 1, False)
    assert said(turned(client)) == [False]


@pytest.mark.parametrize("ended", ["link", "session"])
def test_a_change_after_the_end_of_the_link_is_dropped(ended: str) -> None:
    client = opened()
    receiver = link(client, None)
    receiver.flow(2)
    turned(client)
    (receiver if ended == "link" else client.session).close()
    turned(client)
    client.connection.tell_active(CONSUMER, True)
    assert said(turned(client)) == []
    assert not client.connection.faults and not client.connection.done


def test_a_frame_that_cannot_be_read_is_passed_over() -> None:
    """Found by the fuzzer: an answered attach; its connection was lost."""
    short = b"\x00\x53\x12\xd0\x00\x00\x00\x40\x00\x00\x00\x0e"
    made = bytearray((8 + len(short)).to_bytes(4, "big") + b"\x02\x00\x00\x05" + short)
    assert _frames(made) == []
    flow = encode_frame(3, 0x13, [uint(1)])
    assert [(channel, kind) for channel, kind, _ in _frames(made + flow)] == [(3, 0x13)]
