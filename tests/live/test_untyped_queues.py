"""Durable queues without a type: RabbitMQ's classic contract, on several nodes.

All but those that look at members run against RabbitMQ, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, NackError

from live.conftest import Broker, eventually
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = pytest.mark.live
PERSISTENT = pika.BasicProperties(delivery_mode=2)
TTL_MS, LEASE_MS = 300, 1_500
MESSAGES = 12


def taken(channel: Any, queue: str) -> Any:
    """A message that is bound to come, not acknowledged: (method, properties, body)."""

    def one() -> Any:
        got = channel.basic_get(queue)
        return got if got[0] is not None else None

    return eventually(one, f"a message in {queue}")


def depth(channel: Any, queue: str) -> int:
    found: int = channel.queue_declare(queue, passive=True).method.message_count
    return found


def test_a_delay_queue_that_every_publisher_declares_again_lost_six_of_twelve(
    broker: Broker, queue_name: str
) -> None:
    """As Symfony Messenger and Laravel do it: each publish declares the queue, which renews it."""
    delayed = f"{queue_name}.delay"
    arguments = {
        "x-message-ttl": TTL_MS,
        "x-expires": LEASE_MS,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue_name,
    }
    connections = [broker.connect(number) for number in range(3)]
    publishers = [connection.channel() for connection in connections]
    reader = connections[0].channel()
    reader.queue_declare(queue_name, durable=True)
    for publisher in publishers:
        publisher.confirm_delivery()
    arrived: list[bytes] = []

    def arrives(wanted: int) -> Callable[[], bool]:
        def has() -> bool:
            method, _, body = reader.basic_get(queue_name, auto_ack=True)
            if method is not None:
                arrived.append(body)
            return len(arrived) >= wanted

        return has

    for number in range(MESSAGES):
        publisher = publishers[number % len(publishers)]
        publisher.queue_declare(delayed, durable=True, arguments=arguments)
        publisher.basic_publish("", delayed, b"%d" % number, PERSISTENT)
        # The one before it has come: so the queue is there for longer than its first lease.
        eventually(arrives(number), f"message {number - 1} after its delay")
    eventually(arrives(MESSAGES), "the last message after its delay")
    assert sorted(map(int, arrived)) == list(range(MESSAGES))
    for connection in connections:
        connection.close()


def test_a_message_that_was_rejected_21_times_was_dropped(channel: Any, queue_name: str) -> None:
    channel.queue_declare(queue_name, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", queue_name, b"kept", PERSISTENT)
    for number in range(30):
        method, _, body = taken(channel, queue_name)
        assert (body, method.redelivered) == (b"kept", number > 0)
        channel.basic_reject(method.delivery_tag, requeue=True)
    assert taken(channel, queue_name)[2] == b"kept"


def test_what_comes_back_is_where_it_was(channel: Any, queue_name: str) -> None:
    channel.queue_declare(queue_name, durable=True)
    for number in range(4):
        channel.basic_publish("", queue_name, b"%d" % number, PERSISTENT)
    tags = [taken(channel, queue_name)[0].delivery_tag for _ in range(3)]
    for tag in (tags[1], tags[0], tags[2]):
        channel.basic_nack(tag, requeue=True)
    assert [taken(channel, queue_name)[2] for _ in range(4)] == [b"0", b"1", b"2", b"3"]


def test_a_refused_message_is_dead_lettered(channel: Any, queue_name: str) -> None:
    letters = channel.queue_declare("", exclusive=True).method.queue
    arguments = {
        "x-max-length": 1,
        "x-overflow": "reject-publish-dlx",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": letters,
    }
    channel.queue_declare(queue_name, durable=True, arguments=arguments)
    channel.confirm_delivery()
    channel.basic_publish("", queue_name, b"first", PERSISTENT)
    with pytest.raises(NackError):
        channel.basic_publish("", queue_name, b"second", PERSISTENT)
    _, properties, body = taken(channel, letters)
    death = properties.headers["x-death"][0]
    assert (body, death["queue"], death["reason"]) == (b"second", queue_name, "maxlen")
    assert taken(channel, queue_name)[2] == b"first"


def test_a_get_beside_a_single_active_consumer(channel: Any, queue_name: str) -> None:
    arguments = {"x-single-active-consumer": True}
    channel.queue_declare(queue_name, durable=True, arguments=arguments)
    channel.basic_publish("", queue_name, b"got", PERSISTENT)
    assert taken(channel, queue_name)[2] == b"got"


@pytest.mark.parametrize(
    "asked, reply_code",
    [
        ({}, 0),
        ({"x-queue-type": "classic"}, 0),
        ({"x-queue-type": "quorum"}, 406),
    ],
)
def test_declared_again_with_a_type(
    channel: Any, queue_name: str, asked: dict[str, str], reply_code: int
) -> None:
    channel.queue_declare(queue_name, durable=True)
    if not reply_code:
        channel.queue_declare(queue_name, durable=True, arguments=asked)
        return
    with pytest.raises(ChannelClosedByBroker, match="inequivalent arg 'x-queue-type'"):
        channel.queue_declare(queue_name, durable=True, arguments=asked)


def test_it_has_several_members_and_is_shown_as_classic(
    channel: Any, queue_name: str, admin: Admin
) -> None:
    channel.queue_declare(queue_name, durable=True)
    shown = admin.queues.get(queue_name)
    assert (shown.type, len(shown.replicas)) == ("classic", 3)
    channel.queue_declare(
        f"{queue_name}.alone", durable=True, arguments={"x-queue-type": "classic"}
    )
    alone = admin.queues.get(f"{queue_name}.alone")
    assert (alone.type, len(alone.replicas)) == ("classic", 1)
    channel.queue_delete(f"{queue_name}.alone")


def test_a_policy_that_asks_for_a_delivery_limit_is_followed(
    channel: Any, queue_name: str, admin: Admin
) -> None:
    channel.queue_declare(queue_name, durable=True)
    admin.policies.put("/", queue_name, f"^{queue_name}$", {"delivery-limit": 1})
    eventually(lambda: admin.queues.get(queue_name).policy == queue_name, "the policy")
    channel.basic_publish("", queue_name, b"dropped", PERSISTENT)
    for _ in range(2):
        channel.basic_reject(taken(channel, queue_name)[0].delivery_tag, requeue=True)
    eventually(lambda: depth(channel, queue_name) == 0, "the message to be dropped")
    admin.policies.delete("/", queue_name)


def test_its_messages_outlive_the_loss_of_its_leader(tmp_path: Any) -> None:
    with LocalCluster(nodes=3, directory=tmp_path) as cluster:
        uris = tuple(f"amqp://guest:guest@{host}/%2F" for host in cluster.addresses)
        broker = Broker(uris, cluster)
        with broker.connect(0) as connection:
            channel = connection.channel()
            channel.queue_declare("kept", durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", "kept", b"kept", PERSISTENT)
        cluster.kill(0)
        with broker.connect(1) as connection:
            assert taken(connection.channel(), "kept")[2] == b"kept"
