"""Nodes that die or are suspected, consumers that are too slow, queues without users."""

from __future__ import annotations

import pytest

from tests.machines.queue.world import Queue, block
from warren_machines.queue.commands import (
    Cancel,
    Checkout,
    Count,
    Delete,
    Done,
    Enqueue,
    Get,
    NodeBack,
    NodeDown,
    NodeSuspected,
    OpenClaim,
    Purge,
    RegisterReader,
    Resume,
    Return,
    SessionDown,
    Settle,
    SinkStage,
    Stat,
    Timer,
)
from warren_machines.queue.effects import CancelConsumer, Expired, SetTimer


def test_a_session_takes_its_own_consumers_along_and_no_others() -> None:
    queue = Queue()
    queue.do(Checkout(1, 1, "a", 1))
    queue.do(Checkout(2, 2, "b", 1))
    queue.put(2)
    queue.do(SessionDown(1))
    assert queue.stat().consumers == 1 and queue.stat().messages_unacknowledged == 1


def test_what_a_session_held_comes_back_oldest_consumer_first() -> None:
    queue = Queue()
    queue.do(Checkout(2, 1, "b", 1))
    queue.do(Checkout(1, 1, "a", 1))
    index = queue.put(2)
    assert queue.names(2) == [(index, 0)]
    queue.do(SessionDown(1))
    assert queue.ready() == [(index, 0), (index, 1)]


def test_what_a_dead_node_held_goes_to_the_others_in_the_order_of_delivery() -> None:
    queue = Queue()
    queue.do(Checkout(1, 1, "a", 10), uplink=5)
    index = queue.put(4)
    queue.do(Checkout(1, 1, "b", 10), uplink=6)
    queue.do(NodeDown(5))
    assert [got[1:] for got in queue.got(1, 6)] == [(index, i, 1, 1) for i in range(4)]


@pytest.mark.specification("quorum-queues: When a consumer's node becomes unreachable")
def test_a_suspected_node_gets_nothing_and_keeps_what_it_holds_for_a_while() -> None:
    queue = Queue(consumer_disconnected_timeout_ms=60_000)
    queue.submit(Checkout(1, 1, "a", 2), uplink=5, node="far")
    index = queue.put(1)
    queue.do(NodeSuspected("far"))
    queue.put(1)
    assert queue.names(1, 5) == [(index, 0)]
    queue.tick(59_999)
    assert queue.stat().messages_unacknowledged == 1
    queue.tick(1)
    assert queue.stat().messages_unacknowledged == 0
    assert queue.ready() == [(index, 0), (index + 2, 0)]


@pytest.mark.specification("quorum-queues: When a consumer's node becomes unreachable")
def test_a_node_back_in_time_keeps_what_it_holds() -> None:
    queue = Queue()
    queue.submit(Checkout(1, 1, "a", 2), uplink=5, node="far")
    queue.put(1)
    queue.do(NodeSuspected("far"))
    queue.put(1)
    queue.do(NodeBack("far"))
    assert len(queue.got(1, 5)) == 2
    queue.tick(100_000)
    assert queue.stat().messages_unacknowledged == 2


def test_a_suspected_node_that_is_back_late_may_settle_what_is_no_longer_its_own() -> None:
    queue = Queue(consumer_disconnected_timeout_ms=10)
    queue.submit(Checkout(1, 1, "a", 1), uplink=5, node="far")
    queue.put(1)
    queue.do(NodeSuspected("far"))
    queue.tick(10)
    queue.do(NodeBack("far"))
    assert [got[0] for got in queue.got(1, 5)] == [0, 1]  # delivered again, under a new id
    queue.do(Settle(1, ((0, 0),)), uplink=5)
    assert queue.stat().messages_unacknowledged == 1


def test_what_a_node_holds_whose_process_is_gone_returns_at_once_and_is_not_failed() -> None:
    queue = Queue(consumer_disconnected_timeout_ms=60_000)
    queue.submit(Checkout(1, 1, "a", 2), uplink=5, node="far")
    queue.do(Checkout(2, 2, "b", 2))
    index = queue.put(4)
    queue.got(2)
    queue.do(NodeSuspected("far", hand_over=True, gone=True))
    assert queue.ready() == [(index, 0), (index, 2)]
    assert queue.stat().messages_unacknowledged == 2
    queue.do(NodeBack("far"))  # it was not gone after all: served again, under new ids
    assert [got[0] for got in queue.got(1, 5)] == [0, 1, 2, 3]


def test_an_exclusive_consumer_of_a_node_that_stays_away_does_not_lock_everybody_out() -> None:
    queue = Queue(consumer_disconnected_timeout_ms=100)
    queue.submit(Checkout(1, 1, "a", 2, exclusive=True), uplink=5, node="far")
    queue.do(NodeSuspected("far", hand_over=True))
    assert queue.do(Checkout(2, 2, "b", 2)).reason == "exclusive_use"
    queue.tick(100)
    assert queue.of(CancelConsumer) == [CancelConsumer(5, 1, "disconnected")]
    assert queue.do(Checkout(2, 2, "b", 2)) == Done()
    queue.do(NodeBack("far"))
    queue.submit(Resume(1, 0), uplink=5, node="far")
    assert [effect.consumer for effect in queue.of(CancelConsumer)] == [1]  # it is told so


# --------------------------------------------------------- consumer timeout


@pytest.mark.specification("quorum-queues: When a consumer holds unacknowledged messages beyond")
def test_a_slow_consumer_is_cancelled_and_what_it_held_too_long_comes_back() -> None:
    queue = Queue(consumer_timeout_ms=100)
    queue.do(Checkout(1, 1, "a", 10))
    index = queue.put(2)
    assert queue.of(SetTimer) == [SetTimer(queue.now + 100)]
    queue.now += 50
    queue.put(1)
    queue.tick(50)
    assert queue.of(CancelConsumer) == [CancelConsumer(1, 1, "timeout", ((0, 1),))]
    assert queue.ready() == [(index, 0), (index, 1)]
    assert queue.stat().messages_unacknowledged == 1 and queue.stat().consumers == 0
    queue.do(Settle(1, ((2, 2),)))
    assert list(queue.state.all_consumers()) == []


def test_what_else_it_holds_times_out_in_its_turn() -> None:
    queue = Queue(consumer_timeout_ms=100)
    queue.do(Checkout(1, 1, "a", 10))
    queue.put(1)
    queue.now += 50
    queue.put(1)
    queue.tick(50)
    assert queue.timers() == [queue.now + 50]
    queue.tick(50)
    assert queue.stat().messages_unacknowledged == 0 and queue.stat().messages_ready == 2


@pytest.mark.specification("quorum-queues: Set when creating a consumer to apply")
def test_the_consumer_s_own_timeout_comes_before_the_queue_s() -> None:
    queue = Queue(consumer_timeout_ms=100)
    queue.do(Checkout(1, 1, "a", 1, timeout_ms=500))
    queue.put(1)
    queue.tick(499)
    assert queue.stat().messages_unacknowledged == 1
    queue.tick(1)
    assert queue.stat().messages_unacknowledged == 0


def test_settling_in_time_prevents_it() -> None:
    queue = Queue(consumer_timeout_ms=100)
    queue.do(Checkout(1, 1, "a", 1))
    queue.put(2)
    queue.now += 99
    queue.do(Settle(1, ((0, 0),)))
    queue.tick(1)
    assert queue.stat().consumers == 1 and queue.of(CancelConsumer) == []


def test_no_ack_consumers_do_not_time_out() -> None:
    queue = Queue(consumer_timeout_ms=100)
    queue.do(Checkout(1, 1, "a", no_ack=True))
    queue.put(1)
    queue.tick(1000)
    assert queue.stat().consumers == 1


def test_a_get_times_out_too() -> None:
    queue = Queue(consumer_timeout_ms=100)
    queue.put(1)
    queue.do(Get(7, 1))
    queue.tick(100)
    assert queue.of(CancelConsumer) == [CancelConsumer(1, 7, "timeout", ((0, 0),))]
    assert queue.stat().messages_ready == 1


# ------------------------------------------------------ auto-delete, expires


def test_an_auto_delete_queue_expires_when_its_last_consumer_goes() -> None:
    queue = Queue(auto_delete=True)
    queue.do(Checkout(1, 1, "a"))
    queue.do(Checkout(2, 2, "b"))
    queue.do(Cancel(1))
    assert queue.of(Expired) == []
    queue.do(SessionDown(2))
    assert queue.of(Expired) == [Expired("auto_delete")]


def test_an_auto_delete_queue_says_that_its_last_consumer_was_lost_with_its_node() -> None:
    """A new leader says so, too: it cannot know."""
    queue = Queue(auto_delete=True)
    queue.do(Checkout(1, 1, "a"))
    assert queue.machine.leader_effects(queue.state) == ()
    queue.do(NodeDown(1))
    assert queue.of(Expired) == [Expired("disconnected")]
    assert queue.machine.leader_effects(queue.state) == (Expired("disconnected"),)


def test_so_it_does_of_an_exclusive_consumer_that_is_cancelled_because_its_node_has_ended() -> None:
    queue = Queue(auto_delete=True)
    queue.do(Checkout(1, 1, "a", exclusive=True))
    queue.do(NodeSuspected("n1", hand_over=True, gone=True))
    assert queue.of(Expired) == [Expired("disconnected")]


def test_so_it_does_of_the_clients_of_a_node_that_sends_them_away() -> None:
    queue = Queue(auto_delete=True)
    queue.do(Checkout(1, 1, "a"))
    queue.submit(NodeSuspected("n1"), SessionDown(1), NodeBack("n1"))
    assert queue.of(Expired) == [Expired("disconnected")]
    queue.do(Checkout(2, 2, "a", 1))
    queue.put(1)
    assert len(queue.got(2)) == 1


def test_an_auto_delete_queue_that_never_had_a_consumer_stays() -> None:
    queue = Queue(auto_delete=True)
    queue.put(1)
    queue.do(Get(1, 1))
    queue.do(SessionDown(1))
    assert queue.of(Expired) == [] and queue.machine.leader_effects(queue.state) == ()


def test_an_unused_queue_expires() -> None:
    queue = Queue(expires_ms=100)
    assert queue.machine.leader_effects(queue.state) == (SetTimer(1),)
    queue.do(Timer())
    assert queue.timers() == [queue.now + 100]
    queue.tick(100)
    assert queue.of(Expired) == [Expired("expires")]


def test_a_consumer_or_a_get_is_a_use_a_publish_is_not() -> None:
    queue = Queue(expires_ms=100)
    queue.put(2)
    queue.do(Checkout(1, 1, "a", 1))
    queue.tick(1000)
    assert queue.of(Expired) == []
    queue.do(Cancel(1))
    queue.now += 90
    queue.do(Get(2, 1))
    queue.tick(10)
    assert queue.of(Expired) == []
    queue.now += 80
    queue.put(1)
    queue.tick(10)
    assert queue.of(Expired) == [Expired("expires")]


def test_a_consumer_of_an_ended_node_keeps_its_queue() -> None:
    """In RabbitMQ's quorum queues it counts as none for `x-expires`; see compatibility.md."""
    queue = Queue(expires_ms=100, auto_delete=True)
    queue.submit(Checkout(1, 1, "a", 1), uplink=5, node="far")
    queue.do(NodeSuspected("far", hand_over=True, gone=True))
    queue.tick(10_000_000)
    assert queue.of(Expired) == []
    queue.do(NodeDown(5))
    assert queue.of(Expired) == [Expired("disconnected")]
    queue.tick(100)
    assert queue.of(Expired)[-1] == Expired("expires")


@pytest.mark.specification("quorum-queues: Queue TTL")
def test_a_redeclaration_is_a_use_of_a_classic_queue_only_and_looking_is_none() -> None:
    for kind, touch, expired in (
        ("classic", True, False),
        ("classic", False, True),
        ("quorum", True, True),
    ):
        queue = Queue(kind=kind, expires_ms=100)
        queue.put(1)
        queue.now += 50
        queue.do(Stat(touch))
        queue.tick(50)
        assert bool(queue.of(Expired)) == expired, (kind, touch)


def test_an_expired_queue_says_so_again_until_it_is_deleted() -> None:
    queue = Queue(expires_ms=100)
    queue.put(1)
    queue.tick(100)
    (again,) = queue.timers()
    queue.tick(again - queue.now)
    assert queue.of(Expired) == [Expired("expires")]


# ------------------------------------------------------------ purge, delete


def test_purge_drops_ready_and_returned_messages_but_not_held_ones() -> None:
    queue = Queue(dead_letter_exchange="dlx")
    queue.put(5)
    queue.do(Get(1, 1))
    queue.do(Get(1, 1))
    queue.do(Return(1, ((0, 0),), False))
    assert queue.do(Purge()) == Count(4)
    assert queue.stat().messages_unacknowledged == 1
    assert [type(effect) for effect in queue.effects] == []


def test_delete_if_unused_is_refused_while_there_are_consumers() -> None:
    queue = Queue()
    queue.do(Checkout(1, 1, "a"))
    assert queue.do(Delete(if_unused=True)).reason == "in_use"
    queue.do(Cancel(1))
    assert queue.do(Delete(if_unused=True)) == Count(0)


def test_delete_if_empty_is_refused_while_there_are_messages() -> None:
    queue = Queue()
    queue.put(1)
    assert queue.do(Delete(if_empty=True)).reason == "not_empty"
    queue.do(Purge())
    assert queue.do(Delete(if_empty=True)) == Count(0)


def test_delete_says_how_many_messages_it_took_along_and_tells_the_consumers() -> None:
    queue = Queue(expires_ms=100, message_ttl_ms=5)
    queue.do(Checkout(1, 1, "a", 1))
    queue.put(3)
    queue.do(RegisterReader("r"))
    queue.do(OpenClaim("r", 1, 1, 1, 100))
    queue.do(SinkStage("s", "r", 1, 0, 0, 0, 7), block(1))
    assert queue.do(Delete()) == Count(1)
    assert queue.of(CancelConsumer) == [CancelConsumer(1, 1, "deleted")]
    assert queue.machine.live_indexes(queue.state) == ()
    # Its leader, and the next one, see to it that the definitions forget it.
    assert queue.of(Expired) == [Expired("deleted")]
    assert queue.machine.leader_effects(queue.state) == (Expired("deleted"),)


def test_a_deleted_queue_refuses_everything_that_asks_for_something() -> None:
    queue = Queue()
    queue.do(Delete())
    for command, data in (
        (Enqueue(), block(1)),
        (Checkout(1, 1, "a"), None),
        (Get(1, 1), None),
        (Purge(), None),
        (Delete(), None),
        (Stat(), None),
        (RegisterReader("r"), None),
        (SinkStage("s", "r", 1, 0, 0, 0, 7), block(1)),
    ):
        assert queue.do(command, data).reason == "deleted"
    queue.submit(Settle(1, ((0, 0),)), Cancel(1), SessionDown(1), NodeSuspected("n1"), Timer())
    assert queue.machine.live_indexes(queue.state) == ()
