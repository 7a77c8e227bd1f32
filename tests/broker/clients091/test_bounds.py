"""What a client makes its connection keep is bounded: waiting items and transactions."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pamqp.commands as spec
import pamqp.frame
import pytest

from tests.broker.clients091.peer import Peer
from tests.wire.kernel import frames as f
from warren_broker.access import requests

MIB = 1 << 20


def in_transaction(*channels: int, **config: Any) -> Peer:
    """A client with transactional channels."""
    peer = Peer(**config).connect()
    for channel in channels:
        peer.open(channel)
        peer.send(spec.Tx.Select(), channel)
        peer.got()
    return peer


def grown(call: Callable[[], object]) -> int:
    """Return the bytes of Python's memory that a call has added."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    call()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return after - before


@pytest.mark.parametrize("body", [b"", b"x" * 60_000])
def test_publishes_that_wait_for_commit_are_bounded(body: bytes) -> None:
    """Before: without a limit."""
    peer = in_transaction(1, transaction_bytes_max=MIB)

    def publish() -> None:
        for _ in range(10_000):
            peer.publish(body)
            if peer.conn.state.channels[1].state == "closing":
                return
        raise AssertionError("no limit")

    assert grown(publish) < MIB, "the closed channel keeps nothing"
    peer.channel_closed(406, "limits.transaction_bytes_max", at=(60, 40))
    assert peer.conn.state.transaction_bytes == 0


def test_the_bound_of_transactions_is_the_connections() -> None:
    peer = in_transaction(1, 2, transaction_bytes_max=MIB)
    peer.publish(b"x" * 120_000, channel=1, count=5)
    peer.publish(b"x" * 120_000, channel=2, count=5)
    peer.channel_closed(406, "commit more often", channel=2)
    peer.send(spec.Tx.Rollback())
    peer.one(spec.Tx.RollbackOk)
    assert peer.conn.state.transaction_bytes == 0
    for _ in range(3):
        peer.publish(b"x" * 120_000, channel=1, count=5)
        peer.send(spec.Tx.Commit())
        (published,) = peer.asked()
        peer.conn.routed(published.token, [])
        peer.one(spec.Tx.CommitOk)
    assert peer.conn.state.transaction_bytes == 0


def test_a_small_message_does_not_keep_what_was_read_with_it() -> None:
    """Before: 50 MB for 50 octets."""
    peer = in_transaction(1).open(2)
    large = b"x" * 125_000

    def publish() -> None:
        for _ in range(50):
            peer.conn.receive(f.publish(1, b"", b"q", b"s") + f.publish(2, b"", b"q", large) * 8)
            peer.asked()

    assert grown(publish) < 3 * MIB
    peer.send(spec.Tx.Commit())
    published = peer.asked()
    assert [made.table.body(made.first) for made in published] == [b"s"] * 50


def test_what_waits_for_an_answer_is_counted_as_it_is() -> None:
    """Before: a method counted 64 bytes, however large; a small message kept what came with it."""
    peer = Peer().connect().open().open(2)
    peer.send(spec.Queue.Declare(queue="a"))
    declare = spec.Queue.Declare(queue="b", arguments={f"{n:x}": True for n in range(15_000)})
    method = pamqp.frame.marshal(declare, 1)
    small = f.publish(1, b"", b"q", b"s") + f.publish(2, b"", b"q", b"x" * 125_000) * 7

    def send(data: bytes) -> None:
        for _ in range(2_000):
            if not peer.conn.wants_input:
                return
            peer.conn.receive(data)
            peer.conn.state.requests.clear()
        raise AssertionError("it reads on")

    assert grown(lambda: send(method)) < 32 * MIB
    peer.conn.answer(1, requests.QueueDeclared("a", 0, 0))
    peer.conn.disconnected()
    peer = Peer(waiting_bytes_max=MIB).connect().open().open(2)
    peer.send(spec.Queue.Declare(queue="a"))
    assert grown(lambda: send(small)) < 4 * MIB


def test_acknowledgements_that_wait_are_counted_by_their_ranges() -> None:
    peer = Peer(waiting_bytes_max=MIB).connect().open()
    peer.send(spec.Queue.Declare(queue="a"))
    peer.conn.receive(b"".join(f.ack(1, 2 * n + 1) for n in range(10_000)))
    assert not peer.conn.wants_input


def test_consumers_of_a_connection_are_bounded() -> None:
    peer = Peer(consumers_max=3).connect().open().open(2)
    for number in range(3):
        peer.consume("q", f"c{number}", channel=1 + number % 2)
    peer.send(spec.Basic.Consume(queue="q", consumer_tag="c3"))
    peer.connection_closed(530, "limits.consumers_max")
