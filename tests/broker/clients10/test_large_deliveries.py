"""Messages larger than a frame: written in pieces, so that the engine keeps little of each."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.broker.clients10.test_connection import Client, new
from tests.broker.clients10.test_links import asked, received
from tests.broker.clients10.test_send_ahead import resident_bytes
from warren_broker.clients10 import link_requests as asks
from warren_machines.queue import commands
from warren_machines.queue.commands import Delivery as Run
from warren_wire.amqp10.engine import CLIENT_FRAME_SIZE, UNTAKEN_BYTES_MAX
from warren_wire.amqp10.proton import lib
from warren_wire.block.block import Block, encode

FRAME = 1 << 14
MIB = 1 << 20
CONSUMER = 7
TRANSFER = b"\x00\x53\x14"


def opened(frame_size: int, window: int, credit: int, **fields: Any) -> tuple[Client, Any]:
    """A client with a consumer in a session of that window, in bytes."""
    client = Client(new(), frame_size=frame_size)
    client.answers[asks.Consume] = asks.Consuming(CONSUMER)
    client.turn()
    client.session = client.engine.connection.session()
    client.session.incoming_capacity = window
    client.session.open()
    receiver = client.session.receiver("large")
    receiver.source.address = "/queues/q"
    for name, value in fields.items():
        setattr(receiver, name, value)
    receiver.open()
    client.turn()
    receiver.flow(credit)
    client.turn()
    return client, receiver


def given(client: Client, sizes: list[int]) -> list[bytes]:
    """A queue's messages, each with bytes of its own."""
    bodies = [struct.pack(">I", at) * (size // 4) for at, size in enumerate(sizes)]
    block = Block.decode(encode(bodies, [b""] * len(bodies), (b"", b"q"), 4, None))
    client.connection.deliver(CONSUMER, Run(0, 1, 0, len(bodies) - 1), block)
    return bodies


def sent(client: Client) -> list[int]:
    """The sizes of the frames of transfers that are to be sent."""
    data = b"".join(map(bytes, client.connection.take_output()))
    found, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        if data[at + 8 : at + 11] == TRANSFER:
            found.append(size)
        at += size
    return found


def test_each_piece_is_a_frame_and_the_last_one_ends_the_message() -> None:
    client, _ = opened(FRAME, 64 * MIB, 10)
    given(client, [MIB])
    sizes = sent(client)
    assert max(sizes) <= FRAME
    assert len(sizes) == 65
    assert min(sizes[:-1]) > FRAME - 256, "only the last one is smaller"


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("window", [2 * MIB, 64 * MIB])
def test_messages_of_all_sizes_come_whole_and_in_order(window: int, settled: bool) -> None:
    sizes = [FRAME - 200, MIB, 4, 3 * FRAME, FRAME, MIB, 8, 2 * FRAME - 128, 700_000]
    client, receiver = opened(FRAME, window, 100, snd_settle_mode=int(settled))
    bodies = given(client, sizes)
    got: list[Any] = []
    for _ in range(40):
        client.turn()
        got += received(receiver)
    assert [bytes(message.body) for _, message in got] == bodies
    for delivery, _ in got:
        delivery.update(delivery.ACCEPTED)
        delivery.settle()
    client.turn()
    settles = asked(client, commands.Settle)
    assert settled or [each.msg_ids for each in settles] == [((0, len(sizes) - 1),)]


def test_a_closed_window_keeps_one_message_of_a_link_in_the_engine() -> None:
    """It is whole there: a drain, or the link's end, finds nothing half written."""
    client, receiver = opened(FRAME, MIB, 100)
    bodies = given(client, [700_000] * 6)
    for _ in range(3):
        client.turn()
        waiting = lib.pn_session_outgoing_bytes(first_session(client))
        assert waiting < 710_000
    got: list[Any] = []
    for _ in range(40):
        client.turn()
        got += received(receiver)
    assert [bytes(message.body) for _, message in got] == bodies


def first_session(client: Client) -> Any:
    """The session of the broker's end that has the consumer."""
    (part,) = {id(part): part for part in client.connection.consumers.values()}.values()
    return lib.pn_link_session(part.link._impl)  # type: ignore[union-attr]


def test_a_client_that_takes_frames_of_any_size_gets_rabbitmqs() -> None:
    client, _ = opened(0, 64 * MIB, 10)
    given(client, [MIB])
    sizes = sent(client)
    assert len(sizes) == 9 and max(sizes) <= CLIENT_FRAME_SIZE


def test_a_message_that_was_made_ahead_does_not_stop_the_reading() -> None:
    """It may be larger than all answers that a client may leave unread."""
    client, _ = opened(FRAME, 256 * MIB, 10)
    given(client, [7 * MIB, UNTAKEN_BYTES_MAX - 7 * MIB, MIB])
    assert client.connection.ahead.bytes_waiting > UNTAKEN_BYTES_MAX
    assert client.connection.wants_input
    assert client.connection.bounds.undelivered_bytes >= MIB, "the next one waits"
    other = client.session.receiver("other")
    other.source.address = "/queues/q"
    other.open()
    for piece in client.engine.output():
        client.connection.receive(piece)
    for request in client.connection.take_requests():
        if type(request) is asks.Consume:  # the answer is written apart from what is due before
            client.connection.answer(request.token, asks.Consuming(CONSUMER + 1))
    assert client.connection.ahead.bytes_waiting > UNTAKEN_BYTES_MAX
    assert client.connection.wants_input


def test_the_memory_of_deliveries_that_are_read_and_not_settled() -> None:
    """Before: each kept its size, as the engine's buffers grow and do not shrink: 320 MiB here."""
    client, _ = opened(FRAME, 1 << 30, 1_000)
    before = resident_bytes()
    for number in range(320):
        block = Block.decode(encode([bytes(MIB)], [b""], (b"", b"q"), 4, None))
        client.connection.deliver(CONSUMER, Run(number, number + 1, 0, 0), block)
        while client.connection.take_output():
            pass
    assert client.connection.bounds.unsettled == 320
    assert resident_bytes() - before < 64 * MIB
