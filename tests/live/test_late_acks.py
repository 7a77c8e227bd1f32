"""Acknowledgements that wait for company are neither forgotten nor overtaken."""

from __future__ import annotations

from typing import Any

import pytest

from live.conftest import Broker, eventually
from live.test_shovel import fill
from tests.patience import PATIENCE_S
from warren.admin import Admin

pytestmark = pytest.mark.live
QUEUE = "late-acks"


@pytest.fixture
def queue(broker: Broker, admin: Admin) -> Any:
    admin.queues.declare(QUEUE)
    yield QUEUE
    admin.queues.delete(QUEUE)


def consuming(broker: Broker, node: int, prefetch: int) -> Any:
    """A connection, its channel, and an iterator over deliveries."""
    connection = broker.connect(node)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=prefetch)
    return connection, channel, channel.consume(QUEUE, inactivity_timeout=PATIENCE_S)


@pytest.mark.parametrize("node", [0, 1, 2])
def test_with_credit_left_an_acknowledgement_leaves_by_itself(
    broker: Broker, admin: Admin, queue: str, node: int
) -> None:
    fill(broker, queue, 5)
    connection, channel, messages = consuming(broker, node, 100)
    with connection:
        tags = [next(messages)[0].delivery_tag for _ in range(5)]
        for left, tag in reversed(list(enumerate(reversed(tags)))):
            channel.basic_ack(tag)
            connection.process_data_events(0)
            eventually(
                lambda left=left: admin.queues.get(queue).messages_unacknowledged == left or None,
                "nothing else is sent",
            )


def test_what_was_acknowledged_right_before_a_cut_never_comes_again(
    broker: Broker, admin: Admin, queue: str
) -> None:
    for turn in range(20):
        bodies = fill(broker, queue, 4)
        connection, channel, messages = consuming(broker, turn % 3, 100)
        for _ in range(3):
            channel.basic_ack(next(messages)[0].delivery_tag)
        connection._impl._transport._sock.shutdown(1)  # what was written arrives, and no close
        eventually(
            lambda: admin.queues.get(queue).messages_ready == 1 or None, "the fourth is back"
        )
        with broker.connect(turn % 3) as again:
            method, _, body = again.channel().basic_get(queue, auto_ack=True)
        assert method is not None and body == bodies[3]
        assert admin.queues.get(queue).messages == 0


def test_a_rejection_after_acknowledgements_does_not_overtake_them(
    broker: Broker, admin: Admin, queue: str
) -> None:
    bodies = fill(broker, queue, 10)
    connection, channel, messages = consuming(broker, 0, 100)
    with connection:
        tags = [next(messages)[0].delivery_tag for _ in range(10)]
        for tag in tags[:9]:
            channel.basic_ack(tag)
        channel.basic_nack(tags[9], requeue=True)
        method, _, body = next(messages)
        assert method.redelivered and body == bodies[9]
        assert admin.queues.get(queue).messages == 1, "the acknowledgements went before it"
