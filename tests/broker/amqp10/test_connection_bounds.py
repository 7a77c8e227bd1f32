"""What a connection's consumers hold is bounded over all of its links."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.amqp10.test_connection import Client
from tests.broker.amqp10.test_links import opened, received
from tests.broker.amqp10.test_send_ahead import MESSAGE, given, session
from warren_broker.amqp10.connection_bounds import LINKS_BEYOND_MAX, ConnectionBounds
from warren_broker.block.block import Block, encode
from warren_broker.queue.commands import Delivery as Run

FEW = 10
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
    assert not bounds.takes_again(links[-1])
    links[0].waits_to_write = False
    assert bounds.takes_again(links[-1]) and bounds.takes(links[-1])
    bounds.undelivered_bytes = 501
    assert not bounds.takes_again(links[1])
    bounds.undelivered_bytes = 500
    assert bounds.takes_again(links[1])
