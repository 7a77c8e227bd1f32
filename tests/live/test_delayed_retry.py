"""Delayed retry as an AMQP 0.9.1 client and an operator see it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker

from live.conftest import Broker, eventually
from tests.patience import TooSlow, with_time_enough
from warren.admin import Admin
from warren.connection import Connection

pytestmark = pytest.mark.live
RETRYING = {
    "x-queue-type": "quorum",
    "x-delayed-retry-type": "failed",
    "x-delayed-retry-min": 1_500,
    "x-delayed-retry-max": 60_000,
}


def take(channel: Any, queue: str) -> Any:
    """The next message, soon."""

    def one() -> Any:
        got = channel.basic_get(queue)
        return got if got[0] is not None else None

    return eventually(one, f"a message in {queue}")


@pytest.mark.specification(
    "quorum-queues: When a message is rejected, nacked, or modified",
    "quorum-queues: Delayed retry configuration, deferred message counts",
)
def test_a_reject_is_delayed_and_a_nack_is_not(broker: Broker, queue_name: str) -> None:
    with broker.connect() as connection, Connection(broker.uri) as operator:
        channel, admin = connection.channel(), Admin(operator)
        channel.confirm_delivery()
        with_time_enough(lambda delay_s: rejected(channel, admin, queue_name, delay_s), 1.5)


def rejected(channel: Any, admin: Admin, queue_name: str, delay_s: float) -> None:
    """What happens to a message within the delay, and after it."""
    delay_ms = round(delay_s * 1000)
    channel.queue_delete(queue_name)
    arguments = {**RETRYING, "x-delayed-retry-min": delay_ms}
    channel.queue_declare(queue_name, durable=True, arguments=arguments)
    channel.basic_publish("", queue_name, b"body")
    got, _, _ = take(channel, queue_name)
    channel.basic_nack(got.delivery_tag, requeue=True)
    got, properties, _ = take(channel, queue_name)
    assert properties.headers["x-acquired-count"] == 1
    assert "x-delivery-count" not in properties.headers

    def waits(deed: Callable[[], Any], what: str) -> Any:
        """What is done while the message is delayed; TooSlow: it is not any more."""

        def done() -> Any:
            found = deed()
            if not found and admin.queues.get(queue_name).messages_ready:
                raise TooSlow(what)
            return found

        return eventually(done, what)

    begun = time.monotonic()
    channel.basic_reject(got.delivery_tag, requeue=True)
    queue = waits(
        lambda: next(
            (one for one in (admin.queues.get(queue_name),) if one.messages_delayed), None
        ),
        "the delayed message",
    )
    assert (queue.messages, queue.messages_ready, queue.messages_delayed) == (1, 0, 1)
    assert queue.next_delayed_at == queue.last_delayed_at > 0
    assert queue.delayed_retry == f"failed (min: {delay_ms}ms, max: 60000ms)"
    got, properties, _ = take(channel, queue_name)
    assert time.monotonic() - begun >= delay_s - 0.1
    assert properties.headers["x-delivery-count"] == 1

    channel.basic_reject(got.delivery_tag, requeue=True)
    waits(lambda: admin.delayed.retry(queue_name) == 1, "the message to retry")
    got, properties, _ = take(channel, queue_name)
    assert properties.headers["x-delivery-count"] == 2
    channel.basic_reject(got.delivery_tag, requeue=True)
    assert eventually(lambda: admin.queues.purge(queue_name), "the message to purge") == 1


def test_a_classic_queue_refuses_delayed_retry(broker: Broker, queue_name: str) -> None:
    with broker.connect() as connection:
        arguments = {**RETRYING, "x-queue-type": "classic"}
        with pytest.raises(ChannelClosedByBroker, match=r"\(406, .*x-delayed-retry-type"):
            connection.channel().queue_declare(queue_name, durable=True, arguments=arguments)
