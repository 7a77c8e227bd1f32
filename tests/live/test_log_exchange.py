"""The log exchange of a running cluster: what is in the log can be consumed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ProbableAuthenticationError

from live.conftest import eventually
from warren.local import LocalCluster

pytestmark = pytest.mark.live

EXCHANGE = "amq.rabbitmq.log"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=2, settings={"log": {"exchange": {"level": "info"}}}) as made:
        yield made


def parameters(cluster: LocalCluster, node: int, **more: object) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", cluster.nodes[node].amqp_port, **more)


def test_the_lines_of_all_nodes_can_be_consumed(cluster: LocalCluster) -> None:
    connection = pika.BlockingConnection(parameters(cluster, 0))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue

    def bound(key: str) -> bool:
        nonlocal channel
        try:
            channel.queue_bind(queue, EXCHANGE, key)
        except ChannelClosedByBroker as closed:
            assert closed.reply_code == 404, closed
            channel = connection.channel()
            return False
        return True

    for key in ("warning", "error"):
        eventually(partial(bound, key), f"{EXCHANGE} exists")
    with pytest.raises(ProbableAuthenticationError):
        wrong = pika.PlainCredentials("nobody", "wrong")
        pika.BlockingConnection(parameters(cluster, 1, credentials=wrong))
    seen = []

    def read() -> bool:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            seen.append((method, properties, body))
        return method is not None and b"login refused" in body

    eventually(read, "the refused login")
    method, properties, body = seen[-1]
    assert (method.exchange, method.routing_key) == (EXCHANGE, "error")
    assert properties.headers == {"node": cluster.nodes[1].name}
    assert properties.content_type == "text/plain" and properties.delivery_mode is None
    assert abs(properties.timestamp - time.time()) < 60
    assert b" ERROR warren_broker.clients" in body and body.endswith(b"\n")
    eventually(lambda: body.decode() in cluster.log(1), "the log's file has the same line")
    assert {one.routing_key for one, _, _ in seen} <= {"warning", "error"}
    connection.close()


def test_clients_cannot_publish_lines(cluster: LocalCluster) -> None:
    connection = pika.BlockingConnection(parameters(cluster, 0))
    channel = connection.channel()
    channel.basic_publish(EXCHANGE, "error", b"forged")
    with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
        channel.queue_declare("", exclusive=True)
    connection.close()


def test_a_stop_and_a_start_do_not_end_it(cluster: LocalCluster) -> None:
    connection = pika.BlockingConnection(parameters(cluster, 0))
    channel = connection.channel()
    arguments = {"x-queue-type": "quorum"}
    channel.queue_declare("kept-lines", durable=True, arguments=arguments)
    channel.queue_bind("kept-lines", EXCHANGE, "info")
    cluster.restart(1)

    def served() -> bool:
        _, _, body = channel.basic_get("kept-lines", auto_ack=True)
        return body is not None and b"serves clients" in body

    eventually(served, "the node says that it serves clients")
    connection.close()
