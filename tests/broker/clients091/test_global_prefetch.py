"""A channel-wide prefetch (basic.qos with global): one limit over all consumers."""

from __future__ import annotations

from typing import Any

import pamqp.commands as spec
import pytest

from tests.broker.clients091.peer import Peer, message, messages, run, settles, tags
from warren_broker.access import requests
from warren_broker.clients091.global_prefetch import crowded
from warren_machines.queue import commands


@pytest.fixture
def peer() -> Peer:
    return Peer().connect().open()


def test_prefetch_size(peer: Peer) -> None:
    peer.send(spec.Basic.Qos(prefetch_size=1))
    peer.connection_closed(540, "NOT_IMPLEMENTED - prefetch_size!=0 (1)")


def wide(peer: Peer, count: int) -> None:
    peer.send(spec.Basic.Qos(prefetch_count=count, global_=True))
    peer.one(spec.Basic.QosOk)


def credits(made: list[Any]) -> list[tuple[int, int, int]]:
    for request in made:
        assert isinstance(request, commands.Credit), request
    return [(request.consumer, request.delivered, request.credit) for request in made]


def test_one_consumer_gets_the_whole_limit(peer: Peer) -> None:
    wide(peer, 10)
    made = peer.consume("q", "c")
    assert made.explicit_credit
    assert credits(peer.conn_requests) == [(1001, 0, 10)]
    peer.conn.deliver(1001, run(0, 10), messages(10))
    assert len(tags(peer)) == 10
    peer.send(spec.Basic.Ack(4, True))
    settle, credit = peer.asked()
    assert settle.msg_ids == ((0, 3),)
    assert credits([credit]) == [(1001, 10, 4)]


def test_small_change_is_not_worth_a_command(peer: Peer) -> None:
    wide(peer, 100)
    peer.consume("q", "c")
    peer.conn.deliver(1001, run(0, 10), messages(10))
    peer.got()
    peer.send(spec.Basic.Ack(10, True))
    (settle,) = peer.asked()
    assert isinstance(settle, commands.Settle)
    peer.conn.deliver(1001, run(10, 50), messages(50))
    peer.got()
    peer.send(spec.Basic.Ack(60, True))
    assert credits(peer.asked()[1:]) == [(1001, 60, 100)]


def test_the_limit_holds_over_all_consumers(peer: Peer) -> None:
    wide(peer, 1)
    peer.consume("q", "a")
    assert credits(peer.conn_requests) == [(1001, 0, 1)]
    peer.consume("r", "b")
    assert credits(peer.conn_requests) == [(1002, 0, 1)]
    peer.conn.deliver(1001, run(0), message(b"first"))
    peer.conn.deliver(1002, run(0), message(b"second"))
    assert tags(peer) == [1]
    peer.send(spec.Basic.Ack(1))
    assert tags(peer) == [2]
    assert settles(peer) == [("Settle", 1001, ((0, 0),))]
    peer.send(spec.Basic.Ack(2))
    settle, one, two = peer.asked()
    assert settle.consumer == 1002
    assert credits([one, two]) == [(1001, 1, 1), (1002, 1, 1)]


def test_a_limit_holds_back_consumers_that_were_there_before(peer: Peer) -> None:
    peer.consume("q", "c")
    wide(peer, 2)
    peer.conn.deliver(1001, run(0, 5), messages(5))
    assert tags(peer) == [1, 2]
    peer.send(spec.Basic.Ack(1))
    assert tags(peer) == [3]
    peer.send(spec.Basic.Qos(prefetch_count=0, global_=True))
    assert tags(peer) == [4, 5]
    peer.asked()
    peer.send(spec.Basic.Ack(0, True))
    assert settles(peer) == [("Settle", 1001, ((1, 4),))]


def test_gets_and_no_ack_consumers_are_not_limited(peer: Peer) -> None:
    wide(peer, 1)
    made = peer.consume("q", "n", no_ack=True)
    assert not made.explicit_credit
    peer.conn.deliver(1001, run(0, 3), messages(3))
    assert tags(peer) == [1, 2, 3]
    peer.send(spec.Basic.Get(queue="q"))
    peer.answer(requests.GetRequest, requests.GotMessage(run(0), message(), 0))
    peer.got()
    peer.consume("q", "c")
    assert credits(peer.conn_requests) == [(1003, 0, 1)]
    peer.conn.deliver(1003, run(0), message())
    assert tags(peer) == [5]


def test_prefetch_under_a_limit(peer: Peer) -> None:
    peer.send(spec.Basic.Qos(prefetch_count=3))
    peer.got()
    wide(peer, 10)
    peer.consume("q", "c")
    assert credits(peer.conn_requests) == [(1001, 0, 3)]


def test_a_higher_limit_gives_more(peer: Peer) -> None:
    wide(peer, 2)
    peer.consume("q", "c")
    peer.conn.deliver(1001, run(0, 2), messages(2))
    peer.got()
    wide(peer, 6)
    assert credits(peer.asked()) == [(1001, 2, 4)]


def test_what_was_held_back_is_given_back_by_cancel(peer: Peer) -> None:
    peer.consume("q", "c")
    wide(peer, 1)
    peer.conn.deliver(1001, run(0, 3), messages(3))
    assert tags(peer) == [1]
    peer.send(spec.Basic.Cancel("c"))
    made = peer.the(requests.CancelRequest)
    peer.conn.answer(made.token, requests.RequestDone())
    assert peer.asked() == [commands.Return(consumer=1001, msg_ids=((1, 2),), failed=False)]


@pytest.mark.specification("quorum-queues: Quorum queues do not support global QoS")
def test_quorum_queues_have_no_channel_wide_prefetch(peer: Peer) -> None:
    wide(peer, 10)
    peer.view.queue_types["q"] = "quorum"
    peer.view.queue_types["k"] = "classic"
    peer.consume("k", "k")
    peer.send(spec.Basic.Consume(queue="q", consumer_tag="c"))
    peer.connection_closed(
        540, "NOT_IMPLEMENTED - queue 'q' in vhost '/' does not support global qos"
    )


def counted(peer: Peer) -> int:
    """What is held back, which is also the sum over the channels."""
    state = peer.conn.state
    waiting = [each for channel in state.channels.values() for each in channel.held_back]
    total = sum(block.kept_bytes(run.first, run.last + 1) for _, run, block in waiting)
    assert state.held_back.size_bytes == total
    return total


def test_what_is_held_back_is_counted_until_it_is_sent_or_its_consumer_ends(peer: Peer) -> None:
    wide(peer, 2)
    for tag in "ab":
        peer.consume("q", tag)
    for number in (1001, 1002):
        peer.conn.deliver(number, run(0, 5), messages(5, b"x" * 1000))
    assert len(tags(peer)) == 2
    assert counted(peer) > 8_000
    peer.asked()
    peer.send(spec.Basic.Ack(2, True))
    assert counted(peer) > 0
    peer.got()
    peer.asked()
    peer.send(spec.Basic.Cancel("a"))
    (made,) = [each for each in peer.asked() if isinstance(each, requests.CancelRequest)]
    peer.conn.answer(made.token, requests.RequestDone())
    assert counted(peer) > 0
    peer.send(spec.Channel.Close(200, "", 0, 0))
    assert peer.conn.state.held_back.size_bytes == 0


def test_a_consumer_under_a_limit_gets_nothing_while_much_is_held_back(peer: Peer) -> None:
    """But one whose channel holds nothing back and has room: it waits for no other one's acks."""
    peer.open(2).open(3)
    peer.asked()
    peer.consume("q", "free", channel=3)
    peer.consume("q", "limited")
    peer.consume("q", "other", channel=2)
    wide(peer, 1)
    peer.send(spec.Basic.Qos(prefetch_count=1, global_=True), channel=2)
    peer.got()
    free, limited, other = (each.number for each in peer.conn.state.consumers.values())
    state = peer.conn.state

    def refused(level: int, bytes_max: int) -> list[bool]:
        return [crowded(state, each, level, bytes_max) for each in (free, limited, other)]

    assert refused(0, 10_000) == [False] * 3
    peer.conn.deliver(limited, run(0, 20), messages(20, b"x" * 1000))
    held = counted(peer)
    assert held > 10_000
    assert refused(0, held + 1) == [False] * 3
    assert refused(2, held + 1) == [False, True, False], "also what joined before the limit"
    assert refused(0, held // 2) == [False, True, True], "twice the bound is enough"
    assert not crowded(state, 4711, 0, 1), "one that has ended"
