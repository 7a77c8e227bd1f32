"""Single active consumer: which consumer is active, and when that changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.queue.world import Queue
from warren_machines.queue.commands import (
    Cancel,
    Checkout,
    Credit,
    Delete,
    Get,
    NodeBack,
    NodeDown,
    NodeSuspected,
    Resume,
    SessionDown,
    Settle,
)
from warren_machines.queue.effects import ActiveIs, CancelConsumer


def active(queue: Queue) -> int | None:
    return queue.state.active.id if queue.state.active is not None else None


def single() -> Queue:
    return Queue(single_active_consumer=True)


def two_consumers(prefetch: int) -> Queue:
    """The first consumer takes that many messages, the second one 10."""
    queue = single()
    queue.do(Checkout(1, 1, "a", prefetch))
    queue.do(Checkout(2, 2, "b", 10))
    return queue


def test_the_first_consumer_is_active_and_gets_everything() -> None:
    queue = two_consumers(10)
    queue.put(4)
    assert len(queue.got(1)) == 4 and queue.got(2) == []
    assert queue.stat().consumers == 2


def test_the_others_wait_even_when_the_active_one_has_no_room() -> None:
    queue = two_consumers(1)
    queue.put(4)
    assert len(queue.got(1)) == 1 and queue.got(2) == []


def test_when_it_leaves_the_longest_waiting_consumer_takes_over() -> None:
    for leave in (Cancel(1), SessionDown(1)):
        queue = single()
        for consumer in (1, 2, 3):
            queue.do(Checkout(consumer, consumer, "t", 10))
        queue.do(leave)
        assert active(queue) == 2


def test_a_cancelled_one_is_replaced_at_once_though_it_holds_messages() -> None:
    queue = two_consumers(1)
    index = queue.put(3)
    queue.do(Cancel(1))
    assert queue.names(2) == [(index, 1), (index, 2)]
    queue.do(Settle(1, ((0, 0),)))
    assert queue.stat().messages_unacknowledged == 2


def test_one_that_waits_and_goes_changes_nothing() -> None:
    queue = single()
    queue.do(Checkout(1, 1, "a"))
    queue.do(Checkout(2, 2, "b"))
    queue.do(Cancel(2))
    assert active(queue) == 1


def test_a_higher_priority_takes_over_at_once_from_one_that_holds_nothing() -> None:
    queue = single()
    queue.do(Checkout(1, 1, "a"))
    queue.do(Checkout(2, 2, "b", priority=5))
    assert active(queue) == 2
    queue.do(Cancel(2))
    assert active(queue) == 1


def test_a_higher_priority_waits_until_what_is_held_is_settled() -> None:
    queue = single()
    queue.do(Checkout(1, 1, "a", 2))
    index = queue.put(4)
    queue.do(Checkout(2, 2, "b", 10, priority=5))
    assert active(queue) == 1
    queue.do(Settle(1, ((0, 0),)))
    assert queue.names(1) == [(index, 0), (index, 1)]  # nothing more though it has room
    queue.do(Settle(1, ((1, 1),)))
    assert active(queue) == 2
    assert queue.names(2) == [(index, 2), (index, 3)]


def test_one_that_was_waited_for_and_leaves_lets_the_active_one_go_on() -> None:
    queue = single()
    queue.do(Checkout(1, 1, "a", 2))
    queue.put(4)
    queue.do(Checkout(2, 2, "b", 10, priority=5))
    queue.do(Cancel(2))
    queue.do(Settle(1, ((0, 1),)))
    assert len(queue.got(1)) == 4


def test_the_highest_priority_that_waits_is_next_then_the_oldest() -> None:
    queue = single()
    queue.do(Checkout(1, 1, "a", priority=9))
    for consumer, priority in ((2, 1), (3, 5), (4, 5)):
        queue.do(Checkout(consumer, consumer, "t", priority=priority))
    queue.do(Cancel(1))
    assert active(queue) == 3
    queue.do(Cancel(3))
    assert active(queue) == 4


def test_a_suspected_one_stays_active_until_its_messages_are_taken_back() -> None:
    queue = Queue(single_active_consumer=True, consumer_disconnected_timeout_ms=100)
    queue.submit(Checkout(1, 1, "a", 1), uplink=5, node="far")
    queue.do(Checkout(2, 2, "b", 10))
    index = queue.put(2)
    queue.do(NodeSuspected("far"))
    assert queue.got(2) == []
    queue.tick(100)
    assert active(queue) == 2
    assert queue.names(2) == [(index, 0), (index, 1)]
    queue.do(NodeBack("far"))
    assert active(queue) == 2


def two(held: int = 0, **settings: object) -> Queue:
    """Consumer 1 of node far is active and holds that many messages, consumer 2 waits."""
    queue = Queue(single_active_consumer=True, consumer_disconnected_timeout_ms=100, **settings)
    queue.submit(Checkout(1, 1, "a", 10), uplink=5, node="far")
    queue.do(Checkout(2, 2, "b", 10))
    if held:
        queue.put(held)
        queue.got(1, 5)
    return queue


def test_a_suspected_one_that_holds_nothing_is_replaced_at_once() -> None:
    queue = two()
    queue.do(NodeSuspected("far", hand_over=True))
    assert active(queue) == 2
    index = queue.put(1)
    assert queue.names(2) == [(index, 0)]


def test_one_that_was_replaced_waits_when_its_node_is_back() -> None:
    queue = two()
    queue.do(NodeSuspected("far", hand_over=True))
    queue.do(NodeBack("far"))
    queue.put(2)
    assert active(queue) == 2 and queue.got(1, 5) == []
    queue.do(Cancel(2))
    assert active(queue) == 1
    queue.put(1)
    assert len(queue.got(1, 5)) == 1


def test_a_suspected_one_that_works_on_something_is_replaced_when_that_is_settled() -> None:
    queue = two(held=2)
    queue.do(NodeSuspected("far", hand_over=True))
    queue.put(1)
    assert active(queue) == 1 and queue.got(2) == []
    queue.submit(Settle(1, ((0, 0),)), uplink=5, node="far")
    assert active(queue) == 1
    queue.submit(Settle(1, ((1, 1),)), uplink=5, node="far")
    assert active(queue) == 2 and len(queue.got(2)) == 1


@pytest.mark.specification("quorum-queues: Timeout in milliseconds for returning messages")
def test_it_is_replaced_after_the_timeout_at_the_latest_and_its_messages_come_first() -> None:
    queue = two(held=1)
    queue.do(NodeSuspected("far", hand_over=True))
    index = queue.put(1)
    queue.tick(99)
    assert active(queue) == 1
    queue.tick(1)
    assert active(queue) == 2
    assert queue.names(2) == [(index - 2, 0), (index, 0)]


def test_it_goes_on_when_its_node_is_back_in_time() -> None:
    queue = two(held=1)
    queue.do(NodeSuspected("far", hand_over=True))
    queue.do(NodeBack("far"))
    queue.submit(Settle(1, ((0, 0),)), uplink=5, node="far")
    queue.put(1)
    assert active(queue) == 1 and len(queue.got(1, 5)) == 1 and queue.got(2) == []


def test_one_whose_process_is_gone_is_replaced_at_once_whatever_it_held() -> None:
    queue = two(held=2)
    queue.do(NodeSuspected("far", hand_over=True, gone=True))
    assert active(queue) == 2
    assert [got[3:] for got in queue.got(2)] == [(0, 1), (0, 1)]  # returned, not failed


def test_one_that_is_known_to_be_gone_only_later_is_replaced_then() -> None:
    queue = two(held=1)
    queue.do(NodeSuspected("far", hand_over=True))
    queue.do(NodeSuspected("far", hand_over=True, gone=True))
    assert active(queue) == 2 and len(queue.got(2)) == 1


def test_messages_sent_to_a_suspected_no_ack_consumer_delay_none() -> None:
    queue = Queue(single_active_consumer=True)
    queue.submit(Checkout(1, 1, "a", no_ack=True), uplink=5, node="far")
    queue.do(Checkout(2, 2, "b", 10))
    queue.put(3)
    queue.do(NodeSuspected("far", hand_over=True))
    assert active(queue) == 2 and queue.got(2) == []


def test_a_suspected_sole_consumer_is_active_again_on_return() -> None:
    queue = two()
    queue.do(Cancel(2))
    queue.do(NodeSuspected("far", hand_over=True))
    assert active(queue) is None
    queue.do(NodeBack("far"))
    queue.put(1)
    assert active(queue) == 1 and len(queue.got(1, 5)) == 1


def test_one_that_waited_for_a_higher_priority_goes_on_when_that_one_is_suspected() -> None:
    queue = Queue(single_active_consumer=True)
    queue.do(Checkout(1, 1, "a", 2))
    queue.put(3)
    queue.submit(Checkout(2, 2, "b", 10, priority=5), uplink=5, node="far")
    queue.do(NodeSuspected("far", hand_over=True))
    queue.do(Settle(1, ((0, 1),)))
    assert active(queue) == 1 and len(queue.got(1)) == 3


def test_a_suspicion_that_version_2_wrote_replaces_nobody_before_the_timeout() -> None:
    queue = two()
    queue.do(NodeSuspected("far"))
    assert active(queue) == 1
    queue.tick(100)
    assert active(queue) == 2


def test_a_suspected_one_that_is_back_in_time_goes_on() -> None:
    queue = single()
    queue.submit(Checkout(1, 1, "a", 1), uplink=5, node="far")
    queue.do(Checkout(2, 2, "b", 10))
    queue.do(NodeSuspected("far"))
    queue.do(NodeBack("far"))
    queue.put(1)
    assert len(queue.got(1, 5)) == 1


def test_a_dead_node_s_consumer_is_replaced() -> None:
    queue = single()
    queue.do(Checkout(1, 1, "a", 1), uplink=5)
    queue.do(Checkout(2, 2, "b", 10))
    index = queue.put(2)
    queue.do(NodeDown(5))
    assert queue.names(2) == [(index, 0), (index, 1)]


def test_a_timed_out_one_is_replaced() -> None:
    queue = Queue(single_active_consumer=True, consumer_timeout_ms=50)
    queue.do(Checkout(1, 1, "a", 1))
    queue.do(Checkout(2, 2, "b", 10))
    index = queue.put(2)
    queue.tick(50)
    assert active(queue) == 2
    assert queue.names(2) == [(index, 0), (index, 1)]


def test_get_is_refused() -> None:
    queue = single()
    queue.put(1)
    assert queue.do(Get(1, 1)).reason == "single_active"


# ------------------------------------------------------------ what links are told


def link(queue: Queue, consumer: int, uplink: int = 1, priority: int = 0, **more: Any) -> None:
    """A consumer over AMQP 1.0 joins."""
    command = Checkout(consumer, consumer, "l", explicit_credit=True, priority=priority, **more)
    queue.submit(command, uplink=uplink, node=f"n{uplink}")


def told(queue: Queue) -> list[tuple[int, bool]]:
    """(consumer, active) that the last entry tells links, each with the entry's index."""
    found = queue.of(ActiveIs)
    assert all(effect.index == queue.index for effect in found)
    return [(effect.consumer, effect.active) for effect in found]


def test_each_link_is_told_when_it_joins_and_when_that_changes() -> None:
    queue = single()
    link(queue, 1)
    assert told(queue) == [(1, True)]
    link(queue, 2)
    assert told(queue) == [(2, False)]
    link(queue, 3, priority=5)
    assert sorted(told(queue)) == [(1, False), (3, True)]
    queue.do(Cancel(3))
    assert told(queue) == [(1, True)]
    queue.do(SessionDown(1, failed=True))
    assert told(queue) == [(2, True)]
    queue.do(Cancel(2))
    assert told(queue) == []


def test_it_is_told_before_its_first_message_and_of_its_end_once_it_has_settled() -> None:
    queue = single()
    queue.put(2)
    link(queue, 1)
    queue.do(Credit(1, 0, 1))
    link(queue, 2, priority=5)
    assert told(queue) == [(2, False)], "the first one holds a message"
    queue.do(Credit(2, 0, 1))
    assert told(queue) == []
    queue.do(Settle(1, ((0, 0),)))
    assert [type(effect).__name__ for effect in queue.effects] == ["ActiveIs"] * 2 + ["Deliver"]
    assert sorted(told(queue)) == [(1, False), (2, True)]


def test_a_link_that_holds_messages_for_too_long_makes_way() -> None:
    queue = single()
    queue.put(1)
    link(queue, 1, timeout_ms=1_000)
    link(queue, 2)
    queue.do(Credit(1, 0, 1))
    queue.tick(1_001)
    assert queue.of(CancelConsumer) and told(queue) == [(2, True)]


def test_a_suspected_node_s_link_is_told_when_the_node_is_back() -> None:
    queue = single()
    link(queue, 1, uplink=1)
    link(queue, 2, uplink=2)
    queue.do(NodeSuspected("n1", hand_over=True), uplink=9)
    assert sorted(told(queue)) == [(1, False), (2, True)]
    queue.do(NodeBack("n1"), uplink=9)
    queue.do(Resume(1, 0), uplink=1)
    assert told(queue) == [(1, False)], "what was sent to it may be lost"
    queue.do(NodeDown(2), uplink=9)
    assert told(queue) == [(1, True)]


def test_a_new_leader_s_answer_to_a_link_says_whether_it_is_active() -> None:
    queue = single()
    link(queue, 1)
    link(queue, 2)
    queue.do(Cancel(1))  # the leader dies before it tells
    queue.do(Resume(2, 0))
    assert told(queue) == [(2, True)]
    queue.do(Resume(2, 0))
    assert told(queue) == [(2, True)], "a repeat"


def test_nothing_is_told_to_others() -> None:
    """To consumers over AMQP 0.9.1; of queues without one active consumer, and of classic ones."""
    queue = two_consumers(1)
    queue.do(Cancel(1))
    assert told(queue) == [] and active(queue) == 2
    for settings in ({}, {"kind": "classic", "single_active_consumer": True}):
        queue = Queue(**settings)
        link(queue, 1)
        queue.do(Resume(1, 0))
        assert told(queue) == []


def test_a_deleted_queue_tells_no_link_that_it_is_not_active() -> None:
    queue = single()
    link(queue, 1)
    link(queue, 2)
    queue.do(Delete(False, False))
    assert len(queue.of(CancelConsumer)) == 2 and told(queue) == []
