"""Equal messages without ids that an operator has looked at, at a RabbitMQ 4."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.amqp.query import Died, Query, Queue
from connector.amqp.rabbitmq import OneRabbitMQ, newest_root

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def newest() -> Iterator[OneRabbitMQ]:
    """A node of version 4 or later."""
    with OneRabbitMQ(root=newest_root()) as made:
        if made.name.startswith("RabbitMQ 3"):
            pytest.skip(f"{made.name}: mirrored queues may send a message twice to one channel")
        yield made


def look(queue: Queue, count: int) -> None:
    """Get the first messages and return them, as the management's page does."""
    with queue.broker.connect() as connection:
        channel = connection.channel()
        tags = [channel.basic_get(queue.name)[0].delivery_tag for _ in range(count)]
        channel.basic_nack(tags[-1], multiple=True, requeue=True)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_each_has_a_row(newest: OneRabbitMQ, tmp_path: Path, kind: str) -> None:
    """The first one was acknowledged for all of them."""
    queue = Queue(newest, kind, ids=False)
    with newest.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in (b"same", b"other", b"same", b"same"):
            channel.basic_publish("", queue.name, body)
    look(queue, 4)
    with Query(queue, tmp_path) as query:
        query.run(10)
        bodies = sorted(body for rows in query.sink.values() for body, _ in rows)
        assert bodies == [b"other", b"same", b"same", b"same"]
    queue.check_empty()


@pytest.mark.parametrize("kind", [pytest.param("classic", marks=pytest.mark.long), "quorum"])
def test_what_comes_again_after_a_lost_connection_has_no_second_row(
    newest: OneRabbitMQ, tmp_path: Path, kind: str
) -> None:
    queue = Queue(newest, kind, ids=False)
    queue.publish(20)
    look(queue, 5)
    with Query(queue, tmp_path) as query:
        query.die_at = ("offset_log", 1)
        with pytest.raises(Died):
            query.run(7)
        newest.control("close_all_connections", "a test")
        query.run(7)
        bodies = sorted(body for rows in query.sink.values() for body, _ in rows)
        assert bodies == queue.bodies
    queue.check_empty()
