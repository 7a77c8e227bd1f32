"""What one input of a client makes its connection do, in lines of Python: a sum, no product."""

from __future__ import annotations

from collections.abc import Callable

import pamqp.commands as spec
import pamqp.frame
import pytest

from tests.broker.clients091.peer import Peer, message, run
from tests.line_steps import growth, lines
from warren_broker.access import requests
from warren_broker.clients091.unread_deliveries import UnreadDeliveries
from warren_machines.queue.commands import Delivery

SUM = 2.5
"""More than a sum grows when all is doubled, less than a product."""
Prepared = Callable[[], object]


def consuming(count: int, consumers: int) -> Peer:
    """A channel with so many consumers, which have been sent one message each, in turn."""
    peer = Peer().connect().open()
    for number in range(consumers):
        peer.consume("q", f"c{number}")
    for number in range(count):
        consumer, at = divmod(number, consumers)[::-1]
        peer.conn.deliver(1001 + consumer, run(at), message())
    peer.conn.take_output()
    return peer


def sent(peer: Peer, *frames: object) -> Prepared:
    """One read with these frames."""
    data = b"".join(pamqp.frame.marshal(frame, 1) for frame in frames)
    return lambda: peer.conn.receive(data)


def acknowledged_from_the_end(count: int) -> Prepared:
    """One of two consumers was cancelled: what it still holds was looked for at each of them."""
    peer = consuming(count, 2)
    peer.send(spec.Basic.Cancel("c0"))
    peer.answer(requests.CancelRequest)
    return sent(peer, *map(spec.Basic.Ack, range(count, 0, -1)))


def acknowledged_beside_many_consumers(count: int) -> Prepared:
    """Each of them was asked whether it shares the channel's prefetch, at each acknowledgement."""
    return sent(consuming(count, count), *map(spec.Basic.Ack, range(count, 0, -1)))


def acknowledged_under_a_limit(count: int) -> Prepared:
    peer = Peer().connect().open()
    peer.send(spec.Basic.Qos(prefetch_count=2 * count, global_=True))
    peer.got()
    for number in range(count):
        peer.consume("q", f"c{number}")
    for number in range(count):
        peer.conn.deliver(1001 + number, run(0), message())
    return sent(peer, *map(spec.Basic.Ack, range(count, 0, -1)))


def limited_again_and_again(count: int) -> Prepared:
    peer = consuming(0, count)
    return sent(peer, *(spec.Basic.Qos(prefetch_count=at, global_=True) for at in range(count)))


def cancelled_by_their_queue(count: int) -> Prepared:
    """It is deleted: what each holds, and what is held back for it, was looked for among all."""
    peer = consuming(0, count)
    peer.send(spec.Basic.Qos(prefetch_count=count // 2, global_=True))
    for number in range(count):
        peer.conn.deliver(1001 + number, run(0), message())
    peer.got()
    numbers = list(peer.conn.state.consumers)
    return lambda: [peer.conn.cancelled(number, "deleted") for number in numbers]


def closed_with_channels_that_wait(count: int) -> Prepared:
    """The publishes and requests without an answer were looked through for each channel."""
    peer = Peer().connect()
    for channel in range(1, count + 1):
        peer.open(channel)
        peer.send(spec.Confirm.Select(nowait=True), channel)
    for channel in range(1, count + 1):
        peer.publish(channel=channel)
        peer.send(spec.Basic.Consume(queue="q", consumer_tag="c"), channel)
    return lambda: peer.conn.receive(pamqp.frame.marshal(spec.Connection.Close(200, "", 0, 0), 0))


def ended_while_the_client_does_not_read(count: int) -> Prepared:
    """All that waits for the socket was looked through for each consumer that ends."""
    held = UnreadDeliveries(1 << 30, lambda: 0, lambda *_: None, Peer().conn.state)
    for consumer in range(count):
        held.add(consumer, Delivery(0, 1, 0, 0, 0, 0), message())
    return lambda: [held.take_of((consumer,)) for consumer in range(count)]


@pytest.mark.parametrize(
    "prepared",
    [
        acknowledged_from_the_end,
        acknowledged_beside_many_consumers,
        acknowledged_under_a_limit,
        limited_again_and_again,
        cancelled_by_their_queue,
        closed_with_channels_that_wait,
        ended_while_the_client_does_not_read,
    ],
)
def test_one_input_is_a_sum_of_steps(prepared: Callable[[int], Prepared]) -> None:
    assert growth(prepared, 100) < SUM


def test_channels_are_not_looked_through_to_be_counted() -> None:
    """Where a user's channels are limited, they are counted for each that is opened."""

    def counted(channels: int) -> tuple[int, int]:
        peer = Peer().connect()
        for number in range(1, channels + 1):
            peer.open(number)
        found: list[int] = []
        taken = lines(lambda: found.append(peer.conn.state.channels_open()))
        return found[0], taken

    (few, once), (many, twice) = counted(2), counted(100)
    assert (few, many) == (2, 100) and once == twice


def test_half_closed_channels_are_not_counted() -> None:
    peer = Peer().connect()
    for number in range(1, 5):
        peer.open(number)
    state = peer.conn.state

    def is_right() -> int:
        channels = state.channels.values()
        assert state.channels_open() == sum(one.state in ("new", "open") for one in channels)
        return state.channels_open()

    peer.send(spec.Channel.Close(200, "", 0, 0), channel=1)
    assert is_right() == 3
    peer.send(spec.Basic.Ack(77), channel=2)  # an unknown delivery tag: the broker closes it
    assert is_right() == 2
    peer.send(spec.Channel.CloseOk(), channel=2)
    assert is_right() == 2 and 2 not in state.channels
    for asked in peer.asked():
        peer.conn.answer(asked.token, requests.RequestDone())
    assert is_right() == 2 and 1 not in state.channels
    peer.got()
    peer.open(2)
    assert is_right() == 3
    peer.send(spec.Connection.Close(200, "", 0, 0), channel=0)
    assert is_right() == 0
