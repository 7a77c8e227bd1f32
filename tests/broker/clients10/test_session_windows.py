"""The window of a session leaves room for what has to come before anything can be read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.clients10.test_connection import Client, new
from warren_broker.clients10 import link_requests
from warren_wire.amqp10.engine import CLIENT_FRAME_SIZE, CLIENT_WINDOW_FRAMES

MIB = 1 << 20
WINDOW = CLIENT_FRAME_SIZE * CLIENT_WINDOW_FRAMES
HEAD = b"\0\x53\x75\xb0"
"""Of a data section; four octets of its size follow."""


def client_of_small_frames(**limits: Any) -> Client:
    """As most clients are: it takes frames of less than 1 MiB."""
    client = Client(new(**limits), frame_size=512)
    client.answers[link_requests.OpenTarget] = link_requests.TargetOpened(7)
    return client


def publishers(client: Client, count: int) -> list[Any]:
    """Links on one session."""
    made = []
    for number in range(count):
        sender = client.session.sender(f"publisher {number}")
        sender.target.address = "/queues/q"
        sender.open()
        made.append(sender)
    client.turn()
    return made


def published(client: Client) -> list[int]:
    """Sizes of the messages that the broker was asked to publish."""
    return [
        len(asked.table.body(i))
        for asked in client.requests
        if isinstance(asked, link_requests.PublishMessages)
        for i in range(asked.table.count)
    ]


def send_in_turn(client: Client, senders: list[Any], size: int, piece: int = 4 * MIB) -> None:
    """A message on each link, piece by piece on each in turn."""
    for sender in senders:
        sender.delivery("x")
        sender.stream(HEAD + size.to_bytes(4, "big"))
    for at in range(0, size, piece):
        for sender in senders:
            sender.stream(bytes(min(piece, size - at)))
        client.turn()
    for sender in senders:
        sender.advance()
    for _ in range(40):
        client.turn()


@pytest.mark.parametrize(("count", "size"), [(1, 51 * MIB), (4, 14 * MIB)])
def test_messages_that_are_not_complete_do_not_use_up_the_window(count: int, size: int) -> None:
    """Before, they waited for ever: the window was full, and nothing was there to be read.

    One message that a node takes with limits.message_size_max of 51 MiB, or some in turn on links
    of one session, each within the default limit.
    """
    assert count * size > WINDOW
    client = client_of_small_frames(message_bytes_max=52 * MIB, in_flight_bytes_max=256 * MIB)
    senders = publishers(client, count)
    assert all(int(sender.credit) > 0 for sender in senders), client.seen
    send_in_turn(client, senders, size)
    assert sorted(published(client)) == [size] * count
    assert client.connection.unfinished_bytes == 0 and not client.connection.failure


def test_messages_that_are_never_complete_are_bounded() -> None:
    client = client_of_small_frames(unfinished_bytes_max=60 * MIB, message_bytes_max=40 * MIB)
    senders = publishers(client, 3)
    for sender in senders:
        sender.delivery("x")
        sender.stream(HEAD + (39 * MIB).to_bytes(4, "big"))
    for _ in range(8):
        for sender in senders:
            sender.stream(bytes(4 * MIB))
        client.turn()
    for _ in range(20):
        client.turn()
    assert "limits.unfinished_bytes_max" in client.connection.failure
