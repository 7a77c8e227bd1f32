"""basic.get of an empty queue: read at the node that is asked, and never out of date."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pika
import pytest

from live.conftest import DEADLINE_S, Broker, eventually
from warren.admin import Admin
from warren.connection import Connection
from warren.local import LocalCluster

pytestmark = pytest.mark.live
ROUNDS = 30


@pytest.fixture
def connections(broker: Broker) -> Iterator[list[pika.BlockingConnection]]:
    """One connection to each node."""
    made = [broker.connect(node) for node in range(len(broker.uris))]
    yield made
    for connection in made:
        connection.close()


def test_an_empty_get_adds_nothing_to_the_log(
    broker: Broker, connections: list[pika.BlockingConnection], queue_name: str
) -> None:
    channels = [connection.channel() for connection in connections]
    channels[0].queue_declare(queue_name, durable=True)
    with broker.cluster.connect() as connection:
        asker = Admin(connection)
        for channel in channels:
            assert channel.basic_get(queue_name)[0] is None
        before = asker.members.get(queue_name).last_index
        for _ in range(ROUNDS):
            for channel in channels:
                assert channel.basic_get(queue_name)[0] is None
        assert asker.members.get(queue_name).last_index == before


def test_a_confirmed_message_is_seen_through_every_node(
    connections: list[pika.BlockingConnection], queue_name: str
) -> None:
    channels = [connection.channel() for connection in connections]
    channels[0].queue_declare(queue_name, durable=True)
    for channel in channels:
        channel.confirm_delivery()
    for round_ in range(ROUNDS):
        here, there = channels[round_ % 3], channels[(round_ + 1 + round_ // 3 % 2) % 3]
        assert there.basic_get(queue_name)[0] is None
        here.basic_publish("", queue_name, b"%d" % round_)
        assert there.basic_get(queue_name, auto_ack=True)[2] == b"%d" % round_


def test_a_late_ack_of_a_deleted_queues_message_is_not_the_new_queues(
    connections: list[pika.BlockingConnection], queue_name: str
) -> None:
    channel, other = connections[0].channel(), connections[1].channel()
    other.confirm_delivery()
    for body in (b"old", b"new"):
        other.queue_declare(queue_name, durable=True)
        other.basic_publish("", queue_name, body)
        if body == b"old":
            old = channel.basic_get(queue_name)[0]
            other.queue_delete(queue_name)
    new, _, body = channel.basic_get(queue_name)
    assert body == b"new"
    channel.basic_ack(old.delivery_tag)
    channel.basic_nack(new.delivery_tag, requeue=True)
    again, _, body = channel.basic_get(queue_name)
    assert (body, again.redelivered) == (b"new", True)
    channel.close()  # returned with its channel, whichever number holds it
    eventually(
        lambda: other.basic_get(queue_name, auto_ack=True)[2] == b"new", "the message is back"
    )


def test_what_a_client_did_before_its_get_is_not_overlooked(
    connections: list[pika.BlockingConnection], queue_name: str
) -> None:
    channels = [connection.channel() for connection in connections]
    channels[0].queue_declare(queue_name, durable=True)
    for round_ in range(ROUNDS):
        channel = channels[round_ % 3]
        channel.basic_publish("", queue_name, b"%d" % round_)  # no confirm is waited for
        method, _, body = channel.basic_get(queue_name)
        assert body == b"%d" % round_
        channel.basic_nack(method.delivery_tag, requeue=True)
        method, _, body = channel.basic_get(queue_name)
        assert body == b"%d" % round_ and method.redelivered
        channel.basic_ack(method.delivery_tag)


def test_a_leader_that_was_stopped_does_not_call_a_queue_empty_that_others_filled(
    tmp_path: Path,
) -> None:
    name = "stopped"
    with LocalCluster(nodes=3, directory=tmp_path) as cluster, ThreadPoolExecutor(1) as threads:
        uris = [f"amqp://guest:guest@{address}/%2F?heartbeat=0" for address in cluster.addresses]
        with pika.BlockingConnection(pika.URLParameters(uris[0])) as first:
            first.channel().queue_declare(name, durable=True)
        old = cluster.leader_of(name)
        other = (old + 1) % 3
        with (
            pika.BlockingConnection(pika.URLParameters(uris[old])) as at_old,
            pika.BlockingConnection(pika.URLParameters(uris[other])) as at_other,
            Connection(cluster.node_address(other)) as connection,
        ):
            asker = Admin(connection)
            getting, publishing = at_old.channel(), at_other.channel()
            publishing.confirm_delivery()
            assert getting.basic_get(name)[0] is None
            cluster.pause(old)
            try:
                stopped = cluster.nodes[old].name
                eventually(
                    lambda: asker.members.get(name).leader not in (None, stopped), "a new leader"
                )
                publishing.basic_publish("", name, b"of the new leader")
                answer = threads.submit(getting.basic_get, name)  # is there when the node wakes up
            finally:
                cluster.resume(old)
            assert answer.result(DEADLINE_S)[2] == b"of the new leader"
