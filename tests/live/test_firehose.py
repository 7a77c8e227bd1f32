"""The firehose of a running cluster: tracing is turned on and off on one node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from typer.testing import CliRunner

from live.conftest import eventually
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.cli.app import app
from warren.errors import NotFound
from warren.local import LocalCluster

pytestmark = pytest.mark.live

EXCHANGE = "amq.rabbitmq.trace"
Trace = tuple[str, dict[str, Any], bytes]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=2) as made:
        yield made


def connect(cluster: LocalCluster, node: int = 0) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters("127.0.0.1", cluster.nodes[node].amqp_port)
    return pika.BlockingConnection(parameters)


def trace(cluster: LocalCluster, on: bool, node: int = 0) -> None:
    """As an operator does it, on one node."""
    address = f"127.0.0.1:{cluster.nodes[node].amqp_port}"
    word = "trace-on" if on else "trace-off"
    uri = f"amqp://guest:guest@{address}"
    done = CliRunner().invoke(app, ["vhosts", word, "/", "--uri", uri])
    assert done.exit_code == 0, done.output
    assert f"tracing is {'on' if on else 'off'} at {address}" in done.output


class Traces:
    """A queue bound to the traces; its own deliveries are no traces."""

    def __init__(self, cluster: LocalCluster, key: str = "#", **arguments: Any) -> None:
        self.connection = connect(cluster)
        self.channel = self.connection.channel()
        declared = self.channel.queue_declare("", exclusive=True, arguments=arguments)
        self.queue = declared.method.queue
        self.channel.queue_bind(self.queue, EXCHANGE, key)

    def take(self, count: int) -> list[Trace]:
        """Return that many; there are no more."""
        found: list[Trace] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            found += self._one()
            time.sleep(0.01)
        assert len(found) == count, found
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            more = self._one()
            assert not more, more
            time.sleep(0.01)
        return found

    def _one(self) -> list[Trace]:
        method, properties, body = self.channel.basic_get(self.queue, auto_ack=True)
        if method is None:
            return []
        assert method.exchange == EXCHANGE and properties.delivery_mode is None
        return [(method.routing_key, properties.headers, body)]


def test_publishes_and_deliveries_are_traced_while_it_is_on(cluster: LocalCluster) -> None:
    traces = Traces(cluster)
    client = connect(cluster)
    channel = client.channel()
    channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_bind("orders", "amq.topic", "order.*")
    channel.confirm_delivery()
    channel.basic_publish("amq.topic", "order.new", b"before")
    channel.basic_get("orders", auto_ack=True)
    assert traces.take(0) == []

    trace(cluster, True)
    given = pika.BasicProperties(
        content_type="text/plain", headers={"n": 7}, delivery_mode=2, message_id="m"
    )
    channel.basic_publish("amq.topic", "order.new", b"body", given)
    method, _, _ = channel.basic_get("orders")
    channel.basic_nack(method.delivery_tag)
    consumed = next(channel.consume("orders", auto_ack=True))
    channel.cancel()
    assert consumed[2] == b"body"
    published, delivered, again = traces.take(3)
    assert [one[0] for one in (published, delivered, again)] == [
        "publish.amq.topic",
        "deliver.orders",
        "deliver.orders",
    ]
    said = dict(published[1])
    name = said.pop("connection")
    assert name.startswith("127.0.0.1:") and published[2] == delivered[2] == b"body"
    sent = {"content_type": "text/plain", "headers": {"n": 7}, "delivery_mode": 2}
    common = {
        "exchange_name": "amq.topic",
        "routing_keys": ["order.new"],
        "properties": {**sent, "message_id": "m"},
        "node": cluster.nodes[0].name,
        "vhost": "/",
        "channel": 1,
        "user": "guest",
    }
    assert said == {**common, "routed_queues": ["orders"]}
    assert delivered[1] == {**common, "connection": name, "redelivered": 0}
    assert again[1]["redelivered"] == 1
    assert again[1]["properties"]["headers"] == {"n": 7, "x-acquired-count": 1}

    elsewhere = connect(cluster, node=1)
    elsewhere.channel().basic_publish("amq.topic", "order.new", b"other node")
    elsewhere.close()
    assert traces.take(0) == [], "the other node does not trace"

    trace(cluster, False)
    channel.basic_publish("amq.topic", "order.new", b"after")
    assert traces.take(0) == []
    client.close()
    traces.connection.close()


def test_a_full_queue_of_traces_fails_nothing(cluster: LocalCluster) -> None:
    limit = {"x-max-length": 2, "x-overflow": "reject-publish"}
    traces = Traces(cluster, "publish.#", **limit)
    client = connect(cluster)
    channel = client.channel()
    channel.queue_declare("flood", durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    trace(cluster, True)
    for number in range(50):
        channel.basic_publish("", "flood", b"%d" % number)
    assert channel.queue_declare("flood", passive=True).method.message_count == 50
    declared = traces.channel.queue_declare(traces.queue, passive=True)
    assert declared.method.message_count == 2
    trace(cluster, False)
    channel.queue_delete("flood")
    client.close()
    traces.connection.close()


def test_a_restart_turns_tracing_off(cluster: LocalCluster) -> None:
    def traced() -> bool:
        with cluster.connect() as connection:
            return Admin(connection).vhosts.get("/").tracing

    for node in range(2):
        trace(cluster, True, node)
    assert traced()
    for node in range(2):
        cluster.restart(node)
    eventually(lambda: not traced(), "nothing is traced")
    with cluster.connect() as connection, pytest.raises(NotFound, match="no vhost 'none'"):
        Admin(connection).vhosts.trace("none", True)
