"""Messages that arrive at once, in queues that make different things of their priorities."""

from __future__ import annotations

from typing import Any

import pika
import pytest

from live.conftest import Broker, eventually

pytestmark = pytest.mark.live
GIVEN = [None, 9, 4, 0, None, 31, 12, 5, None, 4]


def order_of(channel: Any, queue: str) -> list[int]:
    """Publishes GIVEN in one transaction, so that it is one block; what comes out, by place."""
    channel.tx_select()
    for i, priority in enumerate(GIVEN):
        channel.basic_publish("", queue, b"%d" % i, pika.BasicProperties(priority=priority))
    channel.tx_commit()
    return drained(channel, queue)


def drained(channel: Any, queue: str) -> list[int]:
    """Gets as many as were given."""
    got: list[int] = []

    def more() -> bool:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            got.append(int(body))
        return len(got) == len(GIVEN)

    eventually(more, f"{len(GIVEN)} messages from {queue}")
    return got


def by_priority(highest: int, default: int) -> list[int]:
    """What a queue with these settings should make of it."""

    def priority(i: int) -> int:
        said = GIVEN[i]
        return min(default if said is None else said, highest)

    return sorted(range(len(GIVEN)), key=lambda i: -priority(i))


def test_a_classic_queue_without_priorities_keeps_the_order(channel: Any, queue_name: str) -> None:
    channel.queue_declare(queue_name, durable=True, arguments={"x-queue-type": "classic"})
    assert order_of(channel, queue_name) == list(range(len(GIVEN)))


@pytest.mark.parametrize("highest", [4, 10])
def test_a_classic_queue_with_priorities_has_0_for_those_that_say_none(
    channel: Any, queue_name: str, highest: int
) -> None:
    arguments = {"x-queue-type": "classic", "x-max-priority": highest}
    channel.queue_declare(queue_name, durable=True, arguments=arguments)
    assert order_of(channel, queue_name) == by_priority(highest, 0)


def test_a_returned_message_goes_back_behind_higher_priorities_at_its_old_place(
    channel: Any, queue_name: str
) -> None:
    arguments = {"x-queue-type": "classic", "x-max-priority": 10}
    channel.queue_declare(queue_name, durable=True, arguments=arguments)
    channel.confirm_delivery()
    for body, priority in ((b"a1", 1), (b"b1", 1), (b"c1", 1), (b"d5", 5)):
        channel.basic_publish("", queue_name, body, pika.BasicProperties(priority=priority))
    held = [channel.basic_get(queue_name) for _ in range(3)]
    assert [body for _, _, body in held] == [b"d5", b"a1", b"b1"]
    channel.basic_publish("", queue_name, b"e3", pika.BasicProperties(priority=3))
    for at in (2, 0, 1):
        channel.basic_nack(held[at][0].delivery_tag, requeue=True)
    found = [channel.basic_get(queue_name) for _ in range(5)]
    assert [body for _, _, body in found] == [b"d5", b"e3", b"a1", b"b1", b"c1"]
    assert [method.redelivered for method, _, _ in found] == [True, False, True, True, False]


def test_a_dead_letter_has_the_priority_it_said_not_that_of_its_queue(
    channel: Any, queue_name: str, broker: Broker
) -> None:
    if broker.cluster is None:
        pytest.skip("strict priorities came with RabbitMQ 4.3")
    graves = queue_name + ".graves"
    channel.queue_declare(graves, durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_declare(
        queue_name,
        durable=True,
        arguments={
            "x-queue-type": "classic",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": graves,
        },
    )
    channel.tx_select()
    for i, priority in enumerate(GIVEN):
        channel.basic_publish("", queue_name, b"%d" % i, pika.BasicProperties(priority=priority))
    channel.tx_commit()
    tags = []

    def taken() -> bool:
        method, _, _ = channel.basic_get(queue_name)
        if method is not None:
            tags.append(method.delivery_tag)
        return len(tags) == len(GIVEN)

    eventually(taken, "all of them")
    channel.basic_nack(tags[-1], multiple=True, requeue=False)
    channel.tx_commit()

    def buried() -> bool:
        ready = channel.queue_declare(graves, passive=True).method.message_count
        return bool(ready == len(GIVEN))

    eventually(buried, "all of them dead")
    assert drained(channel, graves) == by_priority(31, 4)
    channel.queue_delete(graves)
