"""onBatchFailure and isolatePoison with a RabbitMQ; `test_poison_spool` has every other moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from connector.amqp.poison_query import PoisonQuery, PoisonQueue
from connector.amqp.rabbitmq import OneRabbitMQ

pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_a_driver_that_is_killed_amid_the_search(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    """Behind the sink's commit and before Spark's, and in other moments, in every batch of it.

    Every second time the receiver is killed with it, and acknowledges nothing more.
    """
    queue = PoisonQueue(rabbitmq)
    queue.publish(8)
    bad = queue.bodies[5]
    with PoisonQuery(queue, tmp_path, {bad}, batchTriesMax="1") as query:
        assert query.fails(100)
        for at, step in enumerate(("written", "latest", "offset_log", "commit_log", "settled")):
            assert query.killed(step, 100, with_receiver=at % 2 == 0)
        query.failures(100)
        queue.publish(1)  # the message alone may wait for it
        query.failures(100)
        query.check_poison()


@pytest.mark.long
def test_released_messages_are_counted_by_the_broker(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    """The queue's delivery limit dead-letters the one at fault, the others pass."""
    queue = PoisonQueue(rabbitmq, limit=9)
    queue.publish(4)
    given = {"onBatchFailure": "release", "batchTriesMax": "1"}
    with PoisonQuery(queue, tmp_path, {queue.bodies[2]}, **given) as query:
        for _ in range(9):
            query.failures(100)
            if queue.has_letters():
                break
            queue.publish(1)  # so that one passes behind it
        query.check_poison("delivery_limit")


def test_a_whole_batch_is_rejected(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    queue = PoisonQueue(rabbitmq)
    queue.publish(30)
    with PoisonQuery(queue, tmp_path, {queue.bodies[14]}, isolatePoison="false") as query:
        assert query.failures(10) == 2
        assert query.backlog["given_up"] == {
            "messages": 10,
            "position": "(index 10, ordinal 0)",
            "reader": query.offsets[0][0].reader,
            "tries": 2,
            "way": "reject",
        }
        assert query.written == queue.bodies[:10] + queue.bodies[20:]
        letters = queue.letters(10)
        assert sorted(letters) == [(body, "rejected") for body in sorted(queue.bodies[10:20])]
        queue.check_empty()
