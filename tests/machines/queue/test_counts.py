"""x-delivery-count and x-acquired-count, exactly as the specification's table has them."""

from __future__ import annotations

import pytest

from tests.machines.queue.world import Queue, config
from warren_broker.cluster.client.read_ahead import MSG_ID_MAX
from warren_machines.queue.commands import (
    AnyCommand,
    Cancel,
    Checkout,
    Discard,
    Get,
    NodeDown,
    NodeSuspected,
    OpenClaim,
    RegisterReader,
    ReleaseClaim,
    Return,
    SessionDown,
    Settle,
    Timer,
)
from warren_machines.queue.effects import DeadLetter


def held(**settings: object) -> Queue:
    """A queue with one message, which consumer 1 of uplink 1 holds."""
    queue = Queue(config(**settings))
    queue.put(1)
    queue.do(Checkout(1, 1, "t", 1))
    queue.got()
    return queue


def counts(queue: Queue) -> tuple[int, int]:
    """(delivery count, acquired count) of the message at the head."""
    head = queue.state.order.head()
    assert head is not None
    return head[3], head[4]


@pytest.mark.parametrize(
    ("what", "failed"),
    [
        ("AMQP 1.0 released", False),
        ("AMQP 1.0 modified, not failed", False),
        ("basic.nack", False),
        ("basic.recover", False),
        ("AMQP 1.0 modified, failed", True),
        ("basic.reject", True),
    ],
)
@pytest.mark.specification("quorum-queues: AMQP 0.9.1 basic.reject")
def test_a_return_counts_as_acquired_and_if_failed_as_delivered(what: str, failed: bool) -> None:
    queue = held()
    queue.do(Cancel(1))
    queue.do(Return(1, ((0, 0),), failed))
    assert counts(queue) == (int(failed), 1), what


@pytest.mark.specification("quorum-queues: Client crash / Connection loss")
def test_a_lost_connection_counts_as_failed() -> None:
    queue = held()
    queue.do(SessionDown(1, True))
    assert counts(queue) == (1, 1)


def test_a_session_that_ends_without_failure_does_not() -> None:
    queue = held()
    queue.do(SessionDown(1, False))
    assert counts(queue) == (0, 1)


def test_a_dead_node_counts_as_failed() -> None:
    queue = held()
    queue.do(NodeDown(1), uplink=2)
    assert counts(queue) == (1, 1)
    assert 1 not in queue.state.uplinks


@pytest.mark.specification("quorum-queues: Intra-cluster network partition")
def test_a_suspected_node_does_not_count_as_failed() -> None:
    queue = held(consumer_disconnected_timeout_ms=100)
    queue.do(NodeSuspected("n1"), uplink=2)
    assert queue.stat().messages_unacknowledged == 1
    queue.tick(100)
    assert counts(queue) == (0, 1)


@pytest.mark.specification("quorum-queues: Consumer timeout (consumer doesn't ack")
def test_a_consumer_timeout_does_not_count_as_failed() -> None:
    queue = held(consumer_timeout_ms=100)
    queue.tick(100)
    assert counts(queue) == (0, 1)


@pytest.mark.specification("quorum-queues: The header x-acquired-count has been introduced")
def test_counts_are_said_as_they_were_before_the_delivery() -> None:
    queue = held()
    queue.do(Return(1, ((0, 0),), True))
    assert queue.got() == [(1, 1, 0, 1, 1)]
    queue.do(Return(1, ((1, 1),), False))
    assert queue.got() == [(2, 1, 0, 1, 2)]


@pytest.mark.specification("quorum-queues: this counter is incremented when a message is assigned")
def test_a_get_counts_like_a_delivery() -> None:
    queue = Queue()
    queue.put(1)
    queue.do(Get(1, 1))
    queue.do(Return(1, ((0, 0),), False))
    delivery = queue.do(Get(1, 1)).delivery
    assert (delivery.delivery_count, delivery.acquired_count) == (0, 1)


def test_a_claim_counts_as_acquired_when_it_is_released() -> None:
    queue = Queue()
    queue.put(1)
    queue.do(RegisterReader("r"))
    queue.do(OpenClaim("r", 1, 1, 1, 100))
    queue.do(ReleaseClaim("r", 1, 1))
    assert counts(queue) == (0, 1)


@pytest.mark.parametrize("limit", [0, 1, 3])
@pytest.mark.specification(
    "quorum-queues: When a message has been redelivered more times",
    "quorum-queues: When a message's delivery count exceeds this limit",
)
def test_the_message_is_dropped_when_its_delivery_count_exceeds_the_limit(limit: int) -> None:
    queue = held(delivery_limit=limit, dead_letter_exchange="dlx")
    for failure in range(limit):
        queue.do(Return(1, ((failure, failure),), True))
        assert len(queue.got()) == 1
    queue.do(Return(1, ((limit, limit),), True))
    assert queue.of(DeadLetter) == [DeadLetter("delivery_limit", ((1, 0, 0),), limit + 1)]
    assert queue.state.contents.table == {}


@pytest.mark.specification("quorum-queues: Starting with RabbitMQ 4.0, the delivery limit")
def test_the_limit_is_20_by_default() -> None:
    queue = held()
    for failure in range(20):
        queue.do(Return(1, ((failure, failure),), True))
    assert queue.stat().messages_unacknowledged == 1
    queue.do(Return(1, ((20, 20),), True))
    assert queue.stat().messages_unacknowledged == queue.stat().messages_ready == 0


@pytest.mark.specification("quorum-queues: The 3.13.x era behavior")
def test_a_limit_of_minus_1_is_none() -> None:
    queue = held(delivery_limit=-1)
    for failure in range(60):
        queue.do(Return(1, ((failure, failure),), True))
    assert queue.stat().messages_unacknowledged == 1


@pytest.mark.specification(
    "quorum-queues: Starting with RabbitMQ 4.3, the delivery limit is based",
    "quorum-queues: Requeues without incrementing the counter",
    "quorum-queues: Unlimited explicit returns",
)
def test_returns_that_did_not_fail_are_unlimited() -> None:
    queue = held(delivery_limit=2)
    for turn in range(30):
        queue.do(Return(1, ((turn, turn),), False))
    assert queue.got()[-1][3:] == (0, 30)


@pytest.mark.specification("quorum-queues: When a message's delivery count exceeds this limit")
def test_nothing_is_dead_lettered_without_an_exchange() -> None:
    queue = held(delivery_limit=0)
    queue.do(Return(1, ((0, 0),), True))
    assert queue.of(DeadLetter) == []
    assert queue.state.contents.table == {}


def test_a_discarded_message_is_dead_lettered_as_rejected() -> None:
    queue = Queue(dead_letter_exchange="dlx")
    index = queue.put(3)
    queue.do(Checkout(1, 1, "t", 3))
    queue.do(Discard(1, ((0, 1),)))
    assert queue.of(DeadLetter) == [DeadLetter("rejected", ((index, 0, 1),))]
    assert queue.stat().messages_unacknowledged == 1


def test_a_dead_letter_has_the_count_of_its_failed_deliveries() -> None:
    """basic.reject counts, basic.nack does not; as measured on RabbitMQ 4.3.6."""
    queue = Queue(dead_letter_exchange="dlx")
    index = queue.put(5)
    queue.do(Checkout(1, 1, "t", 5))
    queue.do(Return(1, ((4, 4),), True))
    queue.do(Discard(1, ((0, 1),), True))
    assert queue.of(DeadLetter) == [DeadLetter("rejected", ((index, 0, 1),), 1)]
    queue.do(Discard(1, ((2, 2),), False))
    assert queue.of(DeadLetter) == [DeadLetter("rejected", ((index, 2, 2),), 0)]
    queue.do(Discard(1, ((3, 3), (5, 5)), True))
    assert queue.of(DeadLetter) == [
        DeadLetter("rejected", ((index, 3, 3),), 1),
        DeadLetter("rejected", ((index, 4, 4),), 2),
    ]


@pytest.mark.parametrize(
    "command",
    [
        Settle(1, ((5, 9),)),
        Return(1, ((5, 9),), True),
        Discard(1, ((5, 9),)),
        Settle(77, ((0, 0),)),
        Cancel(77),
        SessionDown(77),
        Timer(),
    ],
)
def test_what_is_unknown_is_ignored(command: AnyCommand) -> None:
    queue = held(dead_letter_exchange="dlx")
    queue.do(command)
    assert queue.stat().messages_unacknowledged == 1
    assert queue.got() == [] and queue.of(DeadLetter) == []


@pytest.mark.specification("reliability-guide: Once it does so, the broker is free to forget")
def test_settling_twice_settles_once() -> None:
    queue = held()
    queue.put(1)
    queue.do(Settle(1, ((0, 0),)))
    queue.do(Settle(1, ((0, 0),)))
    assert queue.stat().messages_unacknowledged == 1


def test_all_deliveries_from_one_on_go_back_from_a_consumer_that_was_cancelled() -> None:
    """As a node asks for those that did not reach it; what reached it stays with the consumer."""
    queue = Queue(config())
    queue.put(5)
    queue.do(Checkout(1, 1, "t", 5))
    queue.got()
    queue.do(Cancel(1))
    queue.do(Return(1, ((2, MSG_ID_MAX),), failed=False))
    assert (queue.state.order.count, queue.state.unacked) == (3, 2)
    assert counts(queue) == (0, 1)
    queue.do(Settle(1, ((0, 1),)))
    assert (queue.state.order.count, queue.state.unacked) == (3, 0)
