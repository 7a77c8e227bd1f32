"""Consumers over HTTP, on three nodes: where they are, and which of them is active."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from proton.utils import BlockingConnection

from live.conftest import eventually
from live.http_client import SETTINGS, HttpClient, add_user, http_client, quoted
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = pytest.mark.live
ROOT = quoted("/")
KEYS = {
    *("arguments", "ack_required", "active", "activity_status", "channel_details"),
    *("consumer_tag", "consumer_timeout", "exclusive", "prefetch_count", "queue"),
}
"""RabbitMQ 4.3's."""
Open = Callable[..., pika.BlockingConnection]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, settings=SETTINGS) as made:
        yield made


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


def opened(cluster: LocalCluster, node: int, user: str = "guest") -> pika.BlockingConnection:
    """A connection to a node."""
    login = pika.PlainCredentials(user, "guest" if user == "guest" else "pw")
    at = pika.ConnectionParameters("127.0.0.1", cluster.nodes[node].amqp_port, credentials=login)
    return pika.BlockingConnection(at)


def nothing(*given: Any) -> None:
    """Take a delivery."""


def by_tag(consumers: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Consumers by their tags."""
    return {one["consumer_tag"]: one for one in consumers}


def test_consumers_of_all_nodes_are_shown_with_rabbitmqs_keys(
    cluster: LocalCluster, http: HttpClient
) -> None:
    first, second = opened(cluster, 0), opened(cluster, 1)
    with first, second:
        one, two = first.channel(), second.channel()
        one.queue_declare("watched", durable=True, arguments={"x-queue-type": "quorum"})
        one.queue_declare("alone", durable=True)
        one.basic_qos(prefetch_count=7)
        asked = {"x-priority": 3, "x-consumer-timeout": 3_600_000}
        one.basic_consume("watched", nothing, consumer_tag="a", arguments=asked)
        one.basic_consume("alone", nothing, consumer_tag="b", exclusive=True)
        two.basic_consume("watched", nothing, consumer_tag="c", auto_ack=True)
        found = by_tag(http.get("/consumers"))
        assert set(found) == {"a", "b", "c"}
        a, b, c = found["a"], found["b"], found["c"]
        assert set(a) == KEYS
        assert a["queue"] == {"name": "watched", "vhost": "/"} and a["arguments"] == asked
        assert (a["prefetch_count"], a["ack_required"], a["exclusive"]) == (7, True, False)
        assert (a["active"], a["activity_status"]) == (True, "up")
        assert a["consumer_timeout"] == 3_600_000 and b["arguments"] == {}
        assert b["exclusive"] and not c["ack_required"]
        (mine,) = [
            each
            for each in http.get("/connections")
            if each["node"] == c["channel_details"]["node"]
        ]
        assert c["channel_details"] == {
            "name": f"{mine['name']} (1)",
            "connection_name": mine["name"],
            "number": 1,
            "node": "node-1",
            "user": "guest",
            "peer_host": "127.0.0.1",
            "peer_port": mine["peer_port"],
        }
        assert http.get(f"/consumers/{ROOT}") == http.get("/consumers")
        queue = http.get(f"/queues/{ROOT}/watched")
        assert by_tag(queue["consumer_details"]) == {"a": a, "c": c}
        assert "consumer_details" not in http.get(f"/queues/{ROOT}/watched?columns=name")
        assert "consumer_details" not in http.get(f"/queues/{ROOT}/watched?disable_stats=true")
        asked = "page=1&page_size=2&columns=consumer_tag&sort=consumer_tag"
        two = [{"consumer_tag": "a"}, {"consumer_tag": "b"}]
        assert http.get(f"/consumers?{asked}")[:2] == two, "a list, as RabbitMQ's"
        assert http.get(f"/consumers?{asked}&pagination=true")["items"] == two
        one.basic_cancel("a")
        assert set(by_tag(http.get("/consumers"))) == {"b", "c"}
    eventually(lambda: http.get("/consumers") == [], "consumers have ended with their connections")
    assert http("GET", "/consumers/none").status == 404


def test_the_single_active_consumer_is_known_on_every_node(
    cluster: LocalCluster, http: HttpClient
) -> None:
    connections = [opened(cluster, node) for node in range(3)]
    channels = [each.channel() for each in connections]
    arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    channels[0].queue_declare("single", durable=True, arguments=arguments)
    for number, channel in enumerate(channels):
        channel.basic_consume("single", nothing, consumer_tag=f"s{number}")

    def statuses(node: int) -> list[tuple[str, bool, str]]:
        found = http_client(cluster, node).get(f"/consumers/{ROOT}")
        return [(one["consumer_tag"], one["active"], one["activity_status"]) for one in found]

    waits = [("s1", False, "waiting"), ("s2", False, "waiting")]
    for node in range(3):
        assert sorted(statuses(node)) == [("s0", True, "single_active"), *waits]
    connections[0].close()
    after = [("s1", True, "single_active"), ("s2", False, "waiting")]
    eventually(lambda: sorted(statuses(2)) == after, "the next one is active")
    for each in connections[1:]:
        each.close()


def test_links_of_amqp_10_are_shown_without_a_channel(
    cluster: LocalCluster, http: HttpClient
) -> None:
    http("PUT", f"/queues/{ROOT}/linked", {"durable": True})
    port = cluster.nodes[1].amqp_port
    connection = BlockingConnection(f"amqp://guest:guest@127.0.0.1:{port}", timeout=PATIENCE_S)
    connection.create_receiver("/queues/linked", credit=5, name="my link")
    (one,) = http.get("/consumers")
    assert set(one) == {*KEYS, "connection_details"}
    assert one["channel_details"] == {} and one["queue"] == {"name": "linked", "vhost": "/"}
    assert (one["consumer_tag"], one["active"], one["ack_required"]) == ("my link", True, True)
    details = one["connection_details"]
    assert (details["user"], details["node"]) == ("guest", "node-1")
    assert http.get(f"/queues/{ROOT}/linked")["consumer_details"] == [one]
    connection.close()
    eventually(lambda: http.get("/consumers") == [], "the link has ended")


def test_users_see_their_own_consumers_and_all_of_a_queue(
    cluster: LocalCluster, http: HttpClient
) -> None:
    user, stranger = (add_user(http, name, "management") for name in ("owner", "stranger"))
    onlooker = add_user(http, "onlooker", "monitoring", vhost=None)
    with opened(cluster, 0, "owner") as connection:
        channel = connection.channel()
        channel.queue_declare("owned", durable=True)
        channel.basic_consume("owned", nothing, consumer_tag="mine")
        for each in (user, onlooker, http):
            assert set(by_tag(each.get("/consumers"))) == {"mine"}
        assert stranger.get("/consumers") == stranger.get(f"/consumers/{ROOT}") == []
        with cluster.connect() as admin:
            (shown,) = Admin(admin).consumers.list(queue="owned")
            assert (shown.user, shown.node, shown.channel) == ("owner", "node-0", 1)
        details = stranger.get(f"/queues/{ROOT}/owned")["consumer_details"]
        assert set(by_tag(details)) == {"mine"}, "as in RabbitMQ"
        assert onlooker("GET", f"/queues/{ROOT}/owned").status == 404
        assert http.as_user("guest:wrong")("GET", "/consumers").status == 401
        assert http("GET", "/consumers?disable_stats=true").status == 400


def test_the_active_one_is_known_after_the_leader_was_killed(
    cluster: LocalCluster, http: HttpClient
) -> None:
    arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    path = f"/queues/{ROOT}/led"
    assert http("PUT", path, {"durable": True, "arguments": arguments}).status == 201
    eventually(lambda: bool(http.get(path)["leader"]), "it has a leader")
    leader = str(http.get(path)["leader"])
    victim = next(at for at, one in enumerate(cluster.nodes) if one.name == leader)
    others = [node for node in range(3) if node != victim]
    connections = [opened(cluster, node) for node in others]
    for node, each in zip(others, connections, strict=True):
        each.channel().basic_consume("led", nothing, consumer_tag=f"on {node}")

    def statuses(node: int) -> list[tuple[str, str]]:
        found = http_client(cluster, node).get(path)["consumer_details"]
        return sorted((one["consumer_tag"], one["activity_status"]) for one in found)

    expected = [(f"on {others[0]}", "single_active"), (f"on {others[1]}", "waiting")]
    assert statuses(victim) == expected
    cluster.kill(victim)
    for node in others:
        eventually(lambda node=node: statuses(node) == expected, "another node leads, and says so")
    cluster.start(victim)
    eventually(lambda: statuses(victim) == expected, "the node that is back asks the others")
    for each in connections:
        each.close()
