"""What is written for a slow client is bounded over all of its sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.broker.clients10.test_connection import Client
from tests.broker.clients10.test_links import CONSUMER, consumer, opened, received
from warren_broker.clients10 import link_requests as asks
from warren_machines.queue.commands import Delivery as Run
from warren_wire.amqp10.send_ahead import BEYOND_MAX
from warren_wire.block.block import Block, encode

LIMIT = 1 << 20
MESSAGE = 600_000
WINDOW = 1 << 20
"""Of a session of the client: one frame."""
SOME = 3


def session(client: Client, number: int, window: int = WINDOW, settled: bool = False) -> Any:
    """A consumer with credit, on a session of its own."""
    client.answers[asks.Consume] = asks.Consuming(number)
    client.session = client.engine.connection.session()
    client.session.incoming_capacity = window
    client.session.open()
    return consumer(client, snd_settle_mode=int(settled))


def given(client: Client, number: int, count: int = SOME) -> None:
    """A queue's messages for a consumer."""
    block = Block.decode(encode([bytes(MESSAGE)] * count, [b""] * count, (b"", b"q"), 4, None))
    client.connection.deliver(number, Run(0, 1, 0, count - 1), block)


def test_sessions_share_the_bound() -> None:
    """Before: each had it for itself, 64 times 8 MiB."""
    client = opened(send_ahead_bytes_max=LIMIT)
    for number in range(40):
        session(client, 100 + number, settled=number % 2 == 0)
    for number in range(40):
        given(client, 100 + number, 10)
        client.connection.take_output()
    assert client.connection.ahead.bytes_waiting <= LIMIT + (1 + BEYOND_MAX) * MESSAGE


def test_a_client_that_reads_nothing_and_attaches_again_and_again() -> None:
    """An attach takes what is due out of the engine; it still waits for the socket."""
    client = opened(send_ahead_bytes_max=LIMIT)
    for number in range(20):
        receiver = session(client, 100 + number)
        given(client, 100 + number, 10)  # and the socket takes nothing
        for piece in client.engine.output():
            client.connection.receive(piece)
        receiver.flow(1)
    assert client.connection.ahead.bytes_waiting <= LIMIT + (1 + BEYOND_MAX) * MESSAGE


def test_frames_that_were_made_and_not_asked_for_are_counted() -> None:
    """Before: a client that read slowly had all of its credit in the engine: 100 messages here."""
    client = opened(send_ahead_bytes_max=LIMIT)
    session(client, 100, window=1 << 30)
    given(client, 100, 100)
    taken = 0
    for _ in range(50):
        taken += sum(map(len, client.connection.take_output(100_000)))
        written = 100 * MESSAGE - client.connection.bounds.undelivered_bytes
        assert written - taken <= 2 * (LIMIT + MESSAGE)
    assert taken > 50 * 50_000


def test_a_session_with_a_closed_window_leaves_the_others_room() -> None:
    client = opened(send_ahead_bytes_max=LIMIT)
    first = session(client, 100)
    given(client, 100, 10)
    for _ in range(6):  # the window is not renewed: nothing is read
        client.turn()
    assert client.connection.ahead.bytes_waiting >= LIMIT
    second = session(client, 101)
    given(client, 101, 2)
    got: list[Any] = []
    for _ in range(12):
        client.turn()
        got += received(second)
    assert len(got) == 2
    for _ in range(60):
        client.turn()
        got += received(first)
    assert len(got) == 12, "and it goes on itself"


def test_what_an_ended_session_held_is_forgotten() -> None:
    client = opened(send_ahead_bytes_max=LIMIT)
    for number in range(8):
        session(client, 100 + number)
        given(client, 100 + number, 4)
        client.turn()
        client.session.close()
        client.turn()
    assert client.connection.ahead.bytes_waiting == 0
    assert CONSUMER not in client.connection.consumers


def test_a_message_larger_than_the_bound_passes() -> None:
    client = opened(send_ahead_bytes_max=LIMIT)
    receiver = session(client, 100, window=64 << 20)
    block = Block.decode(encode([bytes(16 << 20)] * 2, [b""] * 2, (b"", b"q"), 4, None))
    client.connection.deliver(100, Run(0, 1, 0, 1), block)
    got: list[Any] = []
    for _ in range(40):
        client.turn()
        got += received(receiver)
    assert [len(message.body) for _, message in got] == [16 << 20] * 2


def test_the_memory_of_a_client_that_does_not_read() -> None:
    """60 sessions, with more than 8 MiB of messages for each; before: 550 MB."""
    client = opened()
    for number in range(60):
        session(client, 100 + number, settled=number % 2 == 0)
    block = Block.decode(encode([bytes(MESSAGE)] * 20, [b""] * 20, (b"", b"q"), 4, None))
    before = resident_bytes()
    for number in range(60):
        client.connection.deliver(100 + number, Run(0, 1, 0, 19), block)
        client.connection.take_output()
    assert resident_bytes() - before < 64 << 20


def resident_bytes() -> int:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
