"""The classic contract of queues without a type."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.queue.world import Queue, block
from warren_machines.queue import commands as c
from warren_machines.queue.effects import DeadLetter

UNTYPED: dict[str, Any] = {
    "kind": "classic",
    "replicated": True,
    "delivery_limit": -1,
    "priority_max": 0,
    "priority_default": 0,
}
DLX: dict[str, Any] = {"overflow": "reject-publish-dlx", "dead_letter_exchange": "dlx"}


def died(queue: Queue) -> list[tuple[str, int, tuple[tuple[int, int, int], ...]]]:
    return [(each.reason, each.delivery_count, each.runs) for each in queue.of(DeadLetter)]


def test_a_message_that_was_rejected_more_often_than_a_quorum_queue_bears_is_kept() -> None:
    queue = Queue(**UNTYPED)
    index = queue.put(1)
    for number in range(50):
        got = queue.do(c.Get(1, 1, False))
        assert got.delivery.index == index
        queue.do(c.Return(1, ((number, number),), True))
    assert queue.ready() == [(index, 0)]


def test_a_declaration_renews_the_lease() -> None:
    queue = Queue(**UNTYPED, expires_ms=100)
    queue.put(1)
    for _ in range(5):
        queue.now += 60
        queue.do(c.Stat(True))
        assert not queue.state.deleted and queue.state.unused_ms == queue.now


def test_what_a_limit_refuses_is_dead_lettered() -> None:
    queue = Queue(**UNTYPED, **DLX, max_length=3)
    assert queue.do(c.Enqueue(), block(2)) == c.Done()
    reply = queue.do(c.Enqueue(), block(5))
    assert (reply.reason, reply.accepted) == ("queue_full", 1)
    assert died(queue) == [("maxlen", 0, ((queue.index, 1, 4),))]
    reply = queue.do(c.Enqueue(), block(2))
    assert (reply.reason, reply.accepted) == ("queue_full", 0)
    assert died(queue) == [("maxlen", 0, ((queue.index, 0, 1),))]
    assert queue.stat().messages_ready == 3


def test_without_a_dead_letter_exchange_it_is_refused_alone() -> None:
    queue = Queue(**UNTYPED, max_length=1, overflow="reject-publish-dlx")
    assert queue.do(c.Enqueue(), block(3)).accepted == 1
    assert queue.effects == ()


def test_what_is_refused_after_priorities_and_served_consumers() -> None:
    queue = Queue(**{**UNTYPED, "priority_max": 9}, **DLX, max_length=1)
    queue.do(c.Checkout(1, 1, "t", 1))
    assert queue.do(c.Enqueue(), block(4, priorities=[9, 9, 3, 0])).accepted == 2
    assert died(queue) == [("maxlen", 0, ((queue.index, 2, 3),))]
    assert queue.names() == [(queue.index, 0)]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_get_beside_a_single_active_consumer(kind: str) -> None:
    queue = Queue(kind=kind, single_active_consumer=True)
    queue.do(c.Checkout(1, 1, "t", 1))
    first, second = queue.put(1), queue.put(1)
    assert queue.names() == [(first, 0)]
    reply = queue.do(c.Get(2, 1, True))
    if kind == "quorum":
        assert isinstance(reply, c.Refused) and reply.reason == "single_active"
        return
    assert isinstance(reply, c.GetReply) and reply.delivery is not None
    assert reply.delivery.index == second


def test_dead_letters_stay_where_a_policy_asks_for_it() -> None:
    kept = {"dead_letter_exchange": "dlx", "dead_letter_strategy": "at-least-once"}
    queue = Queue(**UNTYPED, **kept, overflow="reject-publish")
    queue.put(1)
    queue.do(c.Get(1, 1, False))
    queue.do(c.Discard(1, ((0, 0),), True))
    assert queue.stat().messages_dlx == 1
    named = Queue(**{**UNTYPED, "replicated": False}, **kept, overflow="reject-publish")
    assert not named.state.config.keeps_letters


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_single_active_consumer_and_one_of_higher_priority(kind: str) -> None:
    queue = Queue(kind=kind, single_active_consumer=True)
    queue.do(c.Checkout(1, 1, "first", 9))
    queue.do(c.Checkout(2, 1, "urgent", 9, priority=5))
    queue.do(c.Checkout(3, 1, "last", 9))
    index = queue.put(1)
    stays = kind == "classic"
    assert queue.names(1 if stays else 2) == [(index, 0)]
    if stays:
        queue.do(c.Cancel(1))
        index = queue.put(1)
        assert queue.names(2) == [(index, 0)], "the next one is that of the highest priority"
