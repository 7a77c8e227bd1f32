"""What a connection's consumers hold is bounded over all of its links."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message

from tests.broker.clients10.test_connection import Client, attach_management, new, send
from tests.broker.clients10.test_links import asked, opened, received
from tests.broker.clients10.test_send_ahead import MESSAGE, given, session
from warren_broker.clients10 import link_requests
from warren_broker.clients10.connection_bounds import LINKS_BEYOND_MAX, ConnectionBounds
from warren_broker.clients10.management_link import REQUESTS_MAX
from warren_machines.queue.commands import Delivery as Run
from warren_wire import errors
from warren_wire.admin.queues import GetQueueRequest
from warren_wire.block.block import Block, encode

FEW = 10
MIB = 1 << 20
WINDOW = 64 << 20


def small(client: Client, number: int, first_id: int, count: int) -> None:
    """Small messages of a queue for a consumer."""
    block = Block.decode(encode([b"m"] * count, [b""] * count, (b"", b"q"), 4, None))
    client.connection.deliver(number, Run(first_id, 1, 0, count - 1), block)


def settle(deliveries: list[Any]) -> None:
    """As a client that has handled its messages."""
    for delivery, _ in deliveries:
        delivery.update(delivery.ACCEPTED)
        delivery.settle()


def turns(client: Client) -> None:
    """Until nothing is under way."""
    for _ in range(4):
        client.turn()


def test_unsettled_deliveries_are_bounded() -> None:
    """Before: as many as the client had given credit for, on each link."""
    client = opened(unsettled_max=FEW)
    first = session(client, 100, WINDOW)
    first.flow(1000)
    turns(client)
    small(client, 100, 0, 50)
    turns(client)
    held = received(first)
    assert len(held) == FEW and client.connection.bounds.unsettled == FEW
    second = session(client, 101, WINDOW)
    second.flow(1000)
    turns(client)
    small(client, 101, 0, 5)
    turns(client)
    other = received(second)
    assert len(other) == 1, "a link that holds nothing sends one beyond the bound"
    settle(held[:5])
    turns(client)
    more = received(first) + received(second)
    assert len(more) == 4 and client.connection.bounds.unsettled == FEW
    settle(held[5:] + other + more)
    turns(client)
    got = len(held) + len(other) + len(more)
    while found := received(first) + received(second):
        got += len(found)
        settle(found)
        turns(client)
    assert got == 55 and client.connection.bounds.unsettled == 0


@pytest.mark.parametrize("end", ["link", "session"])
def test_an_ended_link_holds_nothing(end: str) -> None:
    client = opened(unsettled_max=FEW)
    receiver = session(client, 100)
    receiver.flow(1000)
    turns(client)
    small(client, 100, 0, 50)
    turns(client)
    assert client.connection.bounds.undelivered_bytes > 0
    (receiver if end == "link" else client.session).close()
    turns(client)
    assert client.connection.bounds.unsettled == 0
    assert client.connection.bounds.undelivered_bytes == 0


def test_what_waits_is_counted_until_it_is_written() -> None:
    client = opened(send_ahead_bytes_max=MESSAGE)
    receiver = session(client, 100)
    given(client, 100, 8)
    bounds = client.connection.bounds
    assert bounds.undelivered_bytes >= 6 * MESSAGE
    got: list[Any] = []
    for _ in range(60):
        client.turn()
        got += received(receiver)
    assert len(got) == 8 and bounds.undelivered_bytes == 0


class Link:
    """A link that has something to write, or not."""

    waits_to_write = False


def test_links_that_hold_nothing_take_a_delivery_beyond_the_bound() -> None:
    bounds = ConnectionBounds(1000, 1)
    links = [Link() for _ in range(LINKS_BEYOND_MAX + 2)]
    bounds.undelivered_bytes = 999
    assert bounds.takes(links[0]), "there is room"
    bounds.undelivered_bytes = 1000
    for link in links[:LINKS_BEYOND_MAX]:
        assert bounds.takes(link)
        link.waits_to_write = True
    assert not bounds.takes(links[0]) and not bounds.takes(links[-1])
    assert not bounds.may_exceed(links[-1])
    links[0].waits_to_write = False
    assert bounds.may_exceed(links[-1]) and bounds.takes(links[-1])
    bounds.undelivered_bytes = 501
    assert not bounds.half_free
    bounds.undelivered_bytes = 500
    assert bounds.half_free
    assert bounds.takes(links[1]) and not bounds.takes(links[1], in_turn=False)


@pytest.mark.parametrize("reads", [False, True])
def test_answers_that_are_not_taken_stop_the_requests(reads: bool) -> None:
    """Before: each request gave credit for another one, and its answer waited without a limit."""
    client = Client(new(send_ahead_bytes_max=100_000))
    client.turn()
    requests, answers = attach_management(client)
    answers.drain(0)  # the credit that it was given
    if reads:
        answers.flow(100_000)
    client.turn()
    client.answers[GetQueueRequest] = errors.NotFound("n" * 20_000)
    number = Message(address="/queues/q", subject="GET")
    for _ in range(40):
        while requests.credit > 0:
            send(requests, number.encode())
        client.turn()
        while reads and (delivery := answers.current) is not None:
            answers.recv(delivery.pending)
            answers.advance()
    bounds, count = client.connection.bounds, len(asked(client, GetQueueRequest))
    assert bounds.requests == 0
    if reads:
        assert count > 1_000 and bounds.answers_bytes == 0
        return
    assert count < 2 * REQUESTS_MAX and bounds.answers_bytes < 100_000 + REQUESTS_MAX * 21_000
    answers.flow(1_000)
    for _ in range(20):
        client.turn()
        while (delivery := answers.current) is not None:
            answers.recv(delivery.pending)
            answers.advance()
    assert bounds.answers_bytes == 0, "it goes on"


def test_messages_that_wait_to_be_read_are_bounded_over_all_sessions() -> None:
    """Before: each session had its window for them, 64 times 64 MiB."""
    client = opened(received_bytes_max=MIB, in_flight_bytes_max=1)
    client.answers[link_requests.OpenTarget] = link_requests.TargetOpened(5)
    senders = []
    for number in range(8):
        client.session = client.engine.connection.session()
        client.session.open()
        sender = client.session.sender(f"s{number}")
        sender.target.address = "/queues/q"
        sender.open()
        client.turn()
        senders.append(sender)
    most = 0
    for sender in senders:
        for _ in range(3):
            send(sender, Message(body=bytes(100_000), inferred=True).encode())
            client.turn()
            most = max(most, client.connection.ahead.bytes_received)
    assert most <= MIB + 101_000
    assert "limits.received_bytes_max" in client.connection.failure
