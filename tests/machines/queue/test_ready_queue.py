"""The order in which messages are delivered, and the consumer that gets each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.queue.world import Queue, block
from warren_machines.queue.commands import (
    Cancel,
    Checkout,
    Count,
    Credit,
    Done,
    Enqueue,
    Get,
    Resume,
    Resumed,
    Return,
    SessionDown,
    Settle,
)
from warren_machines.queue.effects import CancelConsumer
from warren_machines.queue.ready import limits
from warren_machines.queue.ready.ready_queue import PRIORITIES, Order
from warren_wire.block.block import encode


def consume(queue: Queue, consumer: int = 1, prefetch: int = 0, **how: Any) -> None:
    joined = queue.do(Checkout(consumer, consumer, f"c{consumer}", prefetch, **how))
    assert joined == Done(), joined


@pytest.mark.specification("quorum-queues: Unlike the previous")
def test_higher_priorities_are_always_delivered_first() -> None:
    queue = Queue()
    low, high = queue.put(2, priorities=0), queue.put(2, priorities=31)
    middle = queue.put(priorities=5)
    consume(queue)
    assert queue.names() == [(high, 0), (high, 1), (middle, 0), (low, 0), (low, 1)]


def test_within_a_priority_messages_keep_the_order_they_came_in() -> None:
    queue = Queue()
    first, second = queue.put(3), queue.put(2)
    consume(queue)
    assert queue.names() == [(first, 0), (first, 1), (first, 2), (second, 0), (second, 1)]


@pytest.mark.specification("quorum-queues: Each priority level maintains separate message counts")
def test_one_block_of_several_priorities_goes_to_several_lanes() -> None:
    queue = Queue()
    queue.put(4, priorities=[9, 9, 4, 0])
    queue.put(1, priorities=4)
    assert queue.stat().by_priority == ((0, 1), (4, 2), (9, 2))
    assert queue.ready() == [(1, 0), (1, 1), (1, 2), (2, 0), (1, 3)]


@pytest.mark.specification("quorum-queues: Priority values higher than 31 will be clamped")
def test_priorities_above_31_count_as_31() -> None:
    queue = Queue()
    queue.state.order.append(200, 0, 0, 0)
    assert queue.state.order.by_priority() == ((31, 1),)


def test_a_queue_without_priorities_is_first_in_first_out() -> None:
    queue = Queue(kind="classic", priority_max=0, priority_default=0)
    first = queue.put(1, priorities=0)
    second = queue.put(2, priorities=[9, 4])
    assert queue.ready() == [(first, 0), (second, 0), (second, 1)]
    assert queue.stat().by_priority == ((0, 3),)


def test_priorities_above_the_queue_s_own_maximum_count_as_that() -> None:
    queue = Queue(priority_max=10, priority_default=0)
    first, second = queue.put(1, priorities=10), queue.put(1, priorities=20)
    assert queue.ready() == [(first, 0), (second, 0)]


def test_a_message_that_says_no_priority_has_the_queue_s_default() -> None:
    """Blocks say 4 of such messages; only their properties tell them from those that say 4."""
    silent, says_4 = b"\x10\x00\x02", b"\x08\x00\x04"
    data = encode([b"x"] * 4, [silent, says_4, says_4, silent], (b"", b"q"))
    for default, expected in ((0, [1, 2, 0, 3]), (4, [0, 1, 2, 3])):
        queue = Queue(priority_max=10, priority_default=default)
        queue.do(Enqueue(), data)
        assert [ordinal for _, ordinal in queue.ready()] == expected


@pytest.mark.specification("quorum-queues: they do not retain their original priority")
def test_returned_messages_are_ahead_of_all_priorities_in_the_order_they_were_returned() -> None:
    queue = Queue()
    index = queue.put(4, priorities=[4, 4, 4, 4])
    consume(queue, prefetch=4)
    high = queue.put(1, priorities=31)
    queue.got()
    queue.do(Cancel(1))
    queue.do(Return(1, ((2, 2),), False))
    queue.do(Return(1, ((0, 1),), False))
    assert queue.ready() == [(index, 2), (index, 0), (index, 1), (high, 0)]
    assert queue.stat().returned == 3


def test_messages_returned_one_by_one_are_kept_as_one_run() -> None:
    queue = Queue()
    index = queue.put(100)
    consume(queue, prefetch=100)
    queue.do(Cancel(1))
    for number in range(100):
        queue.do(Return(1, ((number, number),), False))
    assert list(queue.state.order.returned) == [(index, 0, 99, 0, 1)]


def test_msg_ids_of_a_consumer_are_0_1_2_without_gaps() -> None:
    queue = Queue()
    consume(queue, 1, 2)
    consume(queue, 2, 2)
    for _ in range(4):
        queue.put(3)
        for consumer in (1, 2):
            ids = [got[0] for got in queue.got(consumer)]
            if ids:
                queue.do(Settle(consumer, ((ids[0], ids[-1]),)))
    for one in queue.state.all_consumers():
        assert one.next_msg_id > 0


def test_prefetch_bounds_the_unsettled_messages_and_a_settlement_frees_room() -> None:
    queue = Queue()
    index = queue.put(10)
    consume(queue, prefetch=3)
    assert queue.names() == [(index, 0), (index, 1), (index, 2)]
    assert queue.stat().messages_unacknowledged == 3
    queue.do(Settle(1, ((1, 1),)))
    assert queue.names() == [(index, 3)]
    queue.do(Settle(1, ((0, 3),)))
    assert queue.names() == [(index, 4), (index, 5), (index, 6)]


def test_prefetch_0_is_a_window_of_messages() -> None:
    queue = Queue()
    queue.put(limits.UNLIMITED_WINDOW + 5)
    consume(queue)
    assert len(queue.got()) == limits.UNLIMITED_WINDOW
    assert queue.stat().messages_ready == 5
    queue.do(Settle(1, ((0, 2),)))
    assert len(queue.got()) == 3


@pytest.mark.usefixtures("window_of_100_bytes")
def test_prefetch_0_is_a_window_of_bytes_too_but_one_message_always_goes() -> None:
    queue = Queue()
    for _ in range(4):
        queue.put(1, size=51)
    consume(queue)
    assert len(queue.got()) == 2  # the second one crosses the bound, the third may not start
    queue.do(Settle(1, ((0, 0),)))
    assert len(queue.got()) == 1


@pytest.mark.usefixtures("window_of_100_bytes")
def test_a_consumer_that_holds_nothing_gets_a_message_of_any_size() -> None:
    queue = Queue()
    queue.put(2, size=101)
    consume(queue)
    assert len(queue.got()) == 1


def test_a_no_ack_consumer_gets_more_once_its_node_drained() -> None:
    queue = Queue()
    queue.put(limits.NO_ACK_WINDOW + 10)
    consume(queue, no_ack=True)
    assert len(queue.got()) == limits.NO_ACK_WINDOW
    assert queue.stat().messages_unacknowledged == 0
    queue.do(Credit(1, 4, 0))
    assert len(queue.got()) == 4
    queue.do(Credit(1, limits.NO_ACK_WINDOW + 4, 0))
    assert len(queue.got()) == 6
    queue.do(Credit(1, limits.NO_ACK_WINDOW + 10, 0))
    assert queue.state.contents.table == {}


def test_what_was_on_its_way_to_a_no_ack_consumer_is_not_delivered_twice() -> None:
    for end in (Cancel(1), SessionDown(1)):
        queue = Queue()
        queue.put(5)
        consume(queue, no_ack=True)
        queue.do(end)
        assert queue.stat().messages_ready == 0
        assert queue.state.contents.table == {}


def test_what_never_left_for_a_no_ack_consumer_can_be_given_back() -> None:
    queue = Queue()
    index = queue.put(5)
    consume(queue, no_ack=True)
    queue.submit(Return(1, ((3, 4),), False), Cancel(1))
    assert queue.ready() == [(index, 3), (index, 4)]


def test_explicit_credit_counts_from_the_deliveries_the_client_has_seen() -> None:
    queue = Queue()
    consume(queue, explicit_credit=True)
    index = queue.put(10)
    assert queue.got() == []
    queue.do(Credit(1, 0, 2))
    assert queue.names() == [(index, 0), (index, 1)]
    queue.do(Credit(1, 1, 3))  # it has seen one of the two: one is on its way, two more may go
    assert queue.names() == [(index, 2), (index, 3)]
    queue.do(Settle(1, ((0, 3),)))  # settling gives no credit
    assert queue.got() == []


def test_drain_delivers_what_there_is_and_gives_the_rest_of_the_credit_back() -> None:
    queue = Queue()
    consume(queue, explicit_credit=True)
    index = queue.put(2)
    assert queue.do(Credit(1, 0, 10, True)) == Count(2)
    assert queue.names() == [(index, 0), (index, 1)]
    queue.put(1)
    assert queue.got() == []


@pytest.mark.specification("quorum-queues: Quorum queues support consumer priorities")
def test_consumers_of_a_higher_priority_are_served_first_while_they_have_room() -> None:
    queue = Queue()
    consume(queue, 1, 10, priority=0)
    consume(queue, 2, 2, priority=7)
    index = queue.put(5)
    assert queue.names(2) == [(index, 0), (index, 1)]
    assert queue.names(1) == [(index, 2), (index, 3), (index, 4)]


def test_equal_consumers_take_turns_message_by_message_when_there_are_few() -> None:
    queue = Queue()
    for consumer in (1, 2, 3):
        consume(queue, consumer, 100)
    index = queue.put(6)
    assert queue.names(1) == [(index, 0), (index, 3)]
    assert queue.names(2) == [(index, 1), (index, 4)]
    assert queue.names(3) == [(index, 2), (index, 5)]


def test_turns_go_on_from_entry_to_entry() -> None:
    queue = Queue()
    consume(queue, 1, 100)
    consume(queue, 2, 100)
    for _ in range(6):
        queue.put(1)
    assert len(queue.got(1)) == len(queue.got(2)) == 3


def test_a_backlog_is_shared_fairly_in_runs() -> None:
    queue = Queue()
    consume(queue, 1, 10_000)
    consume(queue, 2, 10_000)
    queue.put(1000)
    runs = [effect.deliveries for effect in queue.effects if hasattr(effect, "deliveries")]
    assert 400 <= len(queue.got(1)) <= 600
    assert sum(map(len, runs)) <= 12


def test_an_exclusive_consumer_is_refused_while_there_are_others() -> None:
    queue = Queue()
    consume(queue, 1)
    reply = queue.do(Checkout(2, 2, "x", exclusive=True))
    assert reply.reason == "exclusive_use"
    assert queue.stat().consumers == 1


def test_others_are_refused_while_there_is_an_exclusive_consumer() -> None:
    queue = Queue()
    consume(queue, 1, exclusive=True)
    assert queue.do(Checkout(2, 2, "x")).reason == "exclusive_use"
    queue.do(Cancel(1))
    consume(queue, 3)


def test_a_cancelled_consumer_gets_nothing_more_and_may_still_settle() -> None:
    queue = Queue()
    index = queue.put(2)
    consume(queue, 1, 1)
    queue.do(Cancel(1))
    assert queue.stat().consumers == 0
    assert queue.stat().messages_unacknowledged == 1
    queue.put(1)
    assert queue.names() == [(index, 0)]
    queue.do(Settle(1, ((0, 0),)))
    assert list(queue.state.all_consumers()) == []


def test_get_takes_one_message_and_says_how_many_are_left() -> None:
    queue = Queue()
    index = queue.put(3, priorities=[9, 4, 4])
    reply = queue.do(Get(5, 1))
    assert (reply.delivery.index, reply.delivery.first, reply.delivery.last) == (index, 0, 0)
    assert reply.delivery.first_msg_id == 0 and reply.messages_ready == 2
    assert queue.do(Get(5, 1)).delivery.first_msg_id == 1
    assert queue.stat().messages_unacknowledged == 2 and queue.stat().consumers == 0
    queue.do(Settle(5, ((0, 0),)))
    assert queue.stat().messages_unacknowledged == 1


def test_get_with_no_ack_settles_at_once() -> None:
    queue = Queue()
    queue.put(1)
    assert queue.do(Get(5, 1, True)).delivery is not None
    assert queue.state.contents.table == {}


def test_get_of_an_empty_queue_gets_nothing() -> None:
    assert Queue().do(Get(5, 1)).delivery is None


def test_a_waiting_consumer_comes_before_a_get_of_the_same_submission() -> None:
    queue = Queue()
    consume(queue, 1, 1)
    index = queue.put(2)
    queue.got()
    settled, got = queue.submit(Settle(1, ((0, 0),)), Get(5, 1)).replies
    assert queue.names(1) == [(index, 1)]
    assert got.delivery is None and settled is not None


def test_resume_sends_again_what_was_not_seen_and_is_not_settled() -> None:
    queue = Queue()
    consume(queue, 1, 10)
    index = queue.put(6)
    queue.got()
    queue.do(Settle(1, ((4, 4),)))
    queue.do(Resume(1, 3))
    assert queue.got() == [(3, index, 3, 0, 0), (5, index, 5, 0, 0)]
    assert queue.stat().messages_unacknowledged == 5


def test_resume_says_from_where_on_deliveries_are_still_the_consumers() -> None:
    """What was lost on the way and taken back never comes: a receiver must not wait for it."""
    queue = Queue()
    consume(queue, 1, 10)
    queue.put(6)
    queue.got()
    assert queue.do(Resume(1, 2)) == Resumed(2)
    queue.do(Settle(1, ((0, 3),)))
    assert queue.do(Resume(1, 2)) == Resumed(4)
    queue.do(Settle(1, ((4, 5),)))
    assert queue.do(Resume(1, 2)) == Resumed(6)


def test_resume_of_a_consumer_that_has_gone_says_so() -> None:
    queue = Queue()
    queue.do(Resume(1, 0))
    assert queue.of(CancelConsumer) == [CancelConsumer(1, 1, "timeout")]


def test_publish_and_settle_in_one_submission_are_both_applied() -> None:
    queue = Queue()
    consume(queue, 1, 2)
    first = queue.put(2)
    queue.submit(Enqueue(), Settle(1, ((0, 1),)), data=block(2))
    assert queue.names() == [(first, 0), (first, 1), (queue.index, 0), (queue.index, 1)]


def test_a_classic_queue_has_returned_messages_in_their_old_place() -> None:
    queue = Queue(kind="classic", priority_max=0, priority_default=0)
    index = queue.put(6)
    queue.do(Checkout(1, 1, "t", prefetch=6))
    queue.do(Cancel(1))
    for number in (4, 1, 5, 0, 3, 2):
        queue.do(Return(1, ((number, number),), False))
    assert queue.ready() == [(index, i) for i in range(6)]
    later = queue.put(1)
    assert queue.ready()[-1] == (later, 0)


@pytest.mark.parametrize("lane", [-1, PRIORITIES, 1 << 35])
def test_a_lane_that_there_is_not_is_refused_before_it_takes_memory(lane: int) -> None:
    """A snapshot of 556 bytes took 3.5 GB: found by the fuzzer."""
    with pytest.raises(AssertionError, match=str(lane)):
        Order().load([(lane, 1, [])])
