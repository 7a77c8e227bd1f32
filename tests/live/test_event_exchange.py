"""The event exchange of a running cluster: each event once, with its headers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ProbableAuthenticationError

from live.conftest import eventually
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = pytest.mark.live

EXCHANGE = "amq.rabbitmq.event"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"event_exchange": {"enabled": True}}
    with LocalCluster(nodes=3, settings=settings) as made:
        yield made


def connect(cluster: LocalCluster, node: int = 0, **more: Any) -> pika.BlockingConnection:
    return pika.BlockingConnection(parameters(cluster, node, **more))


def parameters(cluster: LocalCluster, node: int = 0, **more: Any) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", cluster.nodes[node].amqp_port, **more)


class Audit:
    """A queue bound to some events, as an auditing service has it."""

    def __init__(self, cluster: LocalCluster, *keys: str) -> None:
        self.connection = connect(cluster)
        self.channel = self.connection.channel()
        self.queue = self.channel.queue_declare("", exclusive=True).method.queue
        for key in keys:
            eventually(partial(self._bind, key), f"{EXCHANGE} exists")
        self.seen: list[tuple[str, pika.BasicProperties]] = []

    def _bind(self, key: str) -> bool:
        try:
            self.channel.queue_bind(self.queue, EXCHANGE, key)
        except ChannelClosedByBroker as closed:
            assert closed.reply_code == 404, closed
            self.channel = self.connection.channel()
            return False
        return True

    def more(self, until: str | None = None) -> list[str]:
        """Read until an event of that key; None: what arrives within a second."""
        deadline = time.monotonic() + (PATIENCE_S if until else 1)
        keys = []
        while time.monotonic() < deadline:
            method, properties, body = self.channel.basic_get(self.queue, auto_ack=True)
            if method is None:
                time.sleep(0.02)
                continue
            assert body == b"" and method.exchange == EXCHANGE
            keys.append(method.routing_key)
            self.seen.append((method.routing_key, properties))
            if method.routing_key == until:
                return keys
        assert until is None, (until, keys)
        return keys

    def headers(self, key: str) -> dict[str, Any]:
        """The headers of the latest event of that key."""
        return dict(next(one.headers for seen, one in reversed(self.seen) if seen == key))


def test_definitions_are_reported_once_by_the_cluster(cluster: LocalCluster) -> None:
    audit = Audit(cluster, "queue.#", "exchange.#", "binding.#")
    audit.more()
    other = connect(cluster, node=1)
    channel = other.channel()
    before_ms = int(time.time() * 1000)
    channel.exchange_declare("audited", "topic", durable=True, arguments={"a": 1})
    channel.exchange_declare("audited", "topic", durable=True, arguments={"a": 1})
    arguments = {"x-queue-type": "quorum", "x-max-length": 5}
    channel.queue_declare("audited", durable=True, arguments=arguments)
    channel.queue_bind("audited", "audited", "some.key", {"n": 1 << 40})
    channel.queue_delete("audited")
    channel.exchange_delete("audited")
    assert audit.more(until="exchange.deleted") + audit.more() == [
        "exchange.created",
        "queue.created",
        "binding.created",
        "binding.deleted",
        "queue.deleted",
        "exchange.deleted",
    ]
    created = audit.headers("queue.created")
    assert abs(created.pop("timestamp_in_ms") - before_ms) < 60_000
    assert created == {
        "name": "audited",
        "vhost": "/",
        "type": "quorum",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": arguments,
    }
    bound = audit.headers("binding.created")
    assert bound["source_name"] == bound["destination_name"] == "audited"
    assert (bound["source_kind"], bound["destination_kind"]) == ("exchange", "queue")
    assert bound["routing_key"] == "some.key" and bound["arguments"] == {"n": 1 << 40}
    properties = audit.seen[-1][1]
    assert properties.delivery_mode == 2 and abs(properties.timestamp - time.time()) < 60
    other.close()
    audit.connection.close()


def test_users_permissions_and_policies_are_reported(cluster: LocalCluster) -> None:
    audit = Audit(cluster, "user.#", "vhost.#", "permission.#", "policy.#")
    with cluster.connect() as connection:
        admin = Admin(connection)
        audit.more()
        admin.vhosts.put("audited")
        admin.users.put("auditor", password="one", tags=("monitoring",))
        admin.users.put("auditor", password="two")
        admin.permissions.put("audited", "auditor", configure="a", write="b", read="c")
        admin.policies.put("/", "p", "^x", {"max-length": 3})
        admin.policies.delete("/", "p")
        admin.vhosts.delete("audited")
        admin.users.delete("auditor")
    keys = [key for key in audit.more(until="user.deleted") if "authentication" not in key]
    assert keys == [
        "vhost.created",
        "permission.created",  # of the user that adds the vhost
        "user.created",
        "user.tags.set",
        "user.password.changed",
        "permission.created",
        "policy.set",
        "policy.cleared",
        "permission.deleted",
        "permission.deleted",
        "vhost.deleted",
        "user.deleted",
    ]
    granted = audit.headers("permission.created")
    del granted["timestamp_in_ms"]
    assert granted == {
        "user": "auditor",
        "vhost": "audited",
        "configure": "a",
        "write": "b",
        "read": "c",
    }
    assert audit.headers("policy.set")["definition"] == {"max-length": 3}
    audit.connection.close()


def test_a_connection_is_reported_by_its_node(cluster: LocalCluster) -> None:
    audit = Audit(cluster, "connection.#", "channel.#", "consumer.#", "user.authentication.#")
    audit.more()
    client = connect(cluster, node=2, client_properties={"connection_name": "billing"})
    channel = client.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_consume(queue, lambda *args: None, consumer_tag="one")
    channel.basic_consume(queue, lambda *args: None, consumer_tag="two", auto_ack=True)
    channel.basic_cancel("one")
    client.close()
    assert audit.more(until="connection.closed") + audit.more() == [
        "user.authentication.success",
        "connection.created",
        "channel.created",
        "consumer.created",
        "consumer.created",
        "consumer.deleted",
        "consumer.deleted",
        "channel.closed",
        "connection.closed",
    ]
    created = audit.headers("connection.created")
    assert created["user"] == created["user_who_performed_action"] == "guest"
    assert created["client_properties"]["connection_name"] == "billing"
    assert created["user_provided_name"] == "billing" and created["protocol"] == "0.9.1"
    assert created["node"] == cluster.nodes[2].name and created["ssl"] is False
    consumer = audit.headers("consumer.created")
    assert consumer["consumer_tag"] == "two" and consumer["queue"] == queue
    assert consumer["ack_required"] is False
    assert audit.headers("connection.closed")["name"] == created["name"]

    wrong = pika.PlainCredentials("nobody", "wrong")
    with pytest.raises(ProbableAuthenticationError):
        connect(cluster, node=1, credentials=wrong)
    audit.more(until="user.authentication.failure")
    failed = audit.headers("user.authentication.failure")
    assert failed["name"] == "nobody" and failed["auth_mechanism"] == "PLAIN"
    assert "wrong" not in str(audit.seen)
    audit.connection.close()


def test_clients_cannot_publish_events_or_delete_the_exchange(cluster: LocalCluster) -> None:
    audit = Audit(cluster, "forged")
    connection = connect(cluster)
    channel = connection.channel()
    channel.basic_publish(EXCHANGE, "forged", b"")
    with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
        channel.queue_declare("", exclusive=True)
    with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
        connection.channel().exchange_delete(EXCHANGE)
    assert audit.more() == []
    connection.close()
    audit.connection.close()


def test_a_restart_repeats_no_event_and_a_new_leader_reports(cluster: LocalCluster) -> None:
    connection = connect(cluster)
    channel = connection.channel()
    quorum = {"x-queue-type": "quorum"}
    channel.queue_declare("kept-events", durable=True, arguments=quorum)
    channel.queue_bind("kept-events", EXCHANGE, "queue.created")
    connection.close()
    for node in range(3):
        cluster.restart(node, kill=True)
        client = connect(cluster, node)
        client.channel().queue_declare(f"after-{node}", durable=True, arguments=quorum)
        client.close()
    connection = connect(cluster)
    channel = connection.channel()
    names = []

    def read() -> bool:
        method, properties, _ = channel.basic_get("kept-events", auto_ack=True)
        if method is not None:
            names.append(properties.headers["name"])
        return "after-2" in names

    eventually(read, "the last event arrives")
    # One that the leader published before it was killed may be published again by the next one.
    assert list(dict.fromkeys(names)) == ["after-0", "after-1", "after-2"]
    assert len(names) <= 6, names
    connection.close()
