"""`message_stats` of queues, connections and channels beside what RabbitMQ 4.3 answered."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from live import http_statistics
from live.conftest import eventually
from live.http_client import HttpClient, add_user, http_client, quoted
from live.test_http_rates import SAMPLED, opened
from warren import Admin, ClaimReader, Connection, Producer
from warren.local import LocalCluster
from warren_broker.block.block import Block

pytestmark = pytest.mark.live
ROOT = quoted("/")
RECORDED = json.loads(http_statistics.RECORDED.read_text())


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, settings=SAMPLED) as made:
        yield made


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


def stats(http: HttpClient, queue: str) -> dict[str, Any]:
    """The statistics of a queue."""
    found: dict[str, Any] = http.get(f"/queues/{ROOT}/{queue}").get("message_stats", {})
    return found


def rates(found: Any) -> Iterator[float]:
    """Every rate in an answer."""
    if isinstance(found, dict):
        if "rate" in found:
            yield found["rate"]
        for one in found.values():
            yield from rates(one)
    elif isinstance(found, list):
        for one in found:
            yield from rates(one)


def publish(connection: pika.BlockingConnection, queue: str, count: int) -> None:
    """Publish and wait for the confirms."""
    channel = connection.channel()
    channel.confirm_delivery()
    for _ in range(count):
        channel.basic_publish("", queue, b"body")
    channel.close()


def test_queues_of_clients_of_all_nodes_are_counted(
    cluster: LocalCluster, http: HttpClient
) -> None:
    """Each node counts what its clients do; the leader of the queue is one of them."""
    assert http("PUT", f"/queues/{ROOT}/of-all", {"durable": True}).status == 201
    assert "message_stats" not in http.get(f"/queues/{ROOT}/of-all")
    for node in range(3):
        with opened(cluster, node) as connection:
            publish(connection, "of-all", 5)
            channel = connection.channel()
            for _ in range(node):
                tag, _, _ = channel.basic_get("of-all")
                channel.basic_ack(tag.delivery_tag)
            channel.basic_get("of-all", auto_ack=True)
    for node in range(3):
        found = stats(http_client(cluster, node), "of-all")
        assert (found["publish"], found["get"], found["get_no_ack"]) == (15, 3, 3)
        assert (found["ack"], found["deliver_get"], found["deliver"]) == (3, 6, 0)
    listed = {one["name"]: one for one in http.get(f"/queues/{ROOT}")}
    assert listed["of-all"]["message_stats"]["publish"] == 15
    page = http.get("/queues?page=1&page_size=100&name=of-all")
    assert page["items"][0]["message_stats"]["publish"] == 15
    cut = http.get(f"/queues/{ROOT}?columns=name,message_stats.publish")
    assert {"name": "of-all", "message_stats": {"publish": 15}} in cut
    assert "message_stats" not in http.get(f"/queues/{ROOT}/of-all?disable_stats=true")
    assert set(http.get(f"/queues/{ROOT}/of-all?columns=messages")) == {"messages"}


def test_a_queue_has_rates_at_the_first_look_while_it_is_used(
    cluster: LocalCluster, http: HttpClient
) -> None:
    assert http("PUT", f"/queues/{ROOT}/rated", {"durable": True}).status == 201
    with opened(cluster, 1) as connection:
        channel = connection.channel()

        def rated() -> bool:
            for _ in range(20):
                channel.basic_publish("", "rated", b"body")
            connection.process_data_events(0)
            found = http.get(f"/queues/{ROOT}/rated")
            published = found.get("message_stats", {}).get("publish_details", {"rate": 0})
            return bool(published["rate"] > 0 and found["messages_details"]["rate"] > 0)

        eventually(rated, "rates of publishing and of the length")
    eventually(lambda: not any(rates(http.get(f"/queues/{ROOT}/rated"))), "they end")


def test_a_queue_that_is_declared_again_begins_at_nothing(
    cluster: LocalCluster, http: HttpClient
) -> None:
    for count in (7, 3):
        assert http("PUT", f"/queues/{ROOT}/again", {"durable": True}).status == 201
        assert stats(http, "again") == {}
        with opened(cluster, 0) as connection:
            publish(connection, "again", count)
        assert stats(http, "again")["publish"] == count
        assert min(rates(http.get(f"/queues/{ROOT}/again"))) >= 0
        assert http("DELETE", f"/queues/{ROOT}/again").status == 204


def test_a_leader_that_is_killed_leaves_no_negative_rate(cluster: LocalCluster) -> None:
    """Counts are of the clients' nodes: those of a node that restarts begin at nothing."""
    alive = http_client(cluster, 0)
    quorum = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    assert alive("PUT", f"/queues/{ROOT}/survives", quorum).status == 201
    assert alive("POST", "/rebalance/queues", {}).status == 204
    for node in (0, 2):
        with opened(cluster, node) as connection:
            publish(connection, "survives", 10)
    assert stats(alive, "survives")["publish"] == 20
    cluster.kill(2)

    def looked(count: int) -> bool:
        found = alive.get(f"/queues/{ROOT}/survives")
        assert min(rates(found)) >= 0 or found["messages_details"]["rate"] < 0
        assert min(rates(found["message_stats"])) >= 0
        assert max(rates(found)) <= 200_000
        return bool(found["message_stats"]["publish"] == count)

    eventually(lambda: looked(10), "what the clients of node-2 did is gone with it")
    cluster.start(2)
    with opened(cluster, 2) as connection:
        publish(connection, "survives", 5)
    eventually(lambda: looked(15), "node-2 counts again")
    eventually(lambda: alive.get(f"/queues/{ROOT}/survives")["messages"] == 25, "all are there")


def test_a_queue_without_a_leader_shows_what_was_counted(
    cluster: LocalCluster, http: HttpClient
) -> None:
    """A classic queue is on one node alone, which does not run; its clients were elsewhere."""
    classic = {"durable": True, "arguments": {"x-queue-type": "classic"}}
    assert http("PUT", f"/queues/{ROOT}/alone", classic).status == 201
    home = http.get(f"/queues/{ROOT}/alone")["node"]
    at = int(home.rpartition("-")[2])
    other = (at + 1) % 3
    with opened(cluster, other) as connection:
        publish(connection, "alone", 4)
    cluster.kill(at)
    away = http_client(cluster, other)

    def seen() -> bool:
        shown = {one["name"]: one for one in away.get(f"/queues/{ROOT}")}["alone"]
        assert shown["message_stats"]["publish"] == 4
        return bool(shown["state"] == "down")

    eventually(seen, "the queue is down, and its counts are shown")
    cluster.start(at)


def test_messages_in_blocks_and_claims_are_counted(cluster: LocalCluster, http: HttpClient) -> None:
    """Published when a block arrives, delivered when read, acknowledged when settled."""
    with Connection(f"amqp://guest:guest@127.0.0.1:{cluster.nodes[0].amqp_port}") as connection:
        Admin(connection).declare_queue("claimed")
        with Producer(connection) as producer:
            for number in range(100):
                producer.send(b"%d" % number, "claimed")
        reader = ClaimReader(connection, "claimed", "reader")
        first = reader.register().settled + 1
        claim = reader.open(first, max_messages=60, max_bytes=1 << 20)
        count = sum(Block.decode(one.data).count for one in reader.fetch(claim.number, 0, 60))
        found = stats(http, "claimed")
        assert (found["publish"], found["deliver"], found["ack"]) == (100, count, 0)
        reader.settle(claim.number)
        found = stats(http, "claimed")
        assert (found["deliver"], found["ack"], found["deliver_get"]) == (60, 60, 60)


def test_users_see_statistics_of_queues_in_their_vhosts(http: HttpClient) -> None:
    assert http("PUT", "/vhosts/own", {}).status == 201
    user = add_user(http, "ofown", "management", vhost="own")
    assert user("PUT", "/queues/own/q", {"durable": True}).status == 201
    message = {"properties": {}, "routing_key": "q", "payload": "p", "payload_encoding": "string"}
    assert user("POST", "/exchanges/own/amq.default/publish", message).status == 200
    assert user.get("/queues/own/q")["message_stats"]["publish"] == 1
    assert [one["vhost"] for one in user.get("/queues")] == ["own"]
    onlooker = add_user(http, "onlooker", "management", vhost=None)
    assert onlooker("GET", "/queues/own/q").status == 404


@pytest.fixture(scope="module")
def played() -> Iterator[tuple[HttpClient, dict[str, Any]]]:
    """A node of its own on which the recorded work was done, and its answers."""
    with LocalCluster(nodes=1, settings=SAMPLED) as one:
        http = http_client(one)
        with opened(one, 0) as connection:
            http_statistics.work(connection)
            eventually(lambda: http_statistics.settled(http), "the statistics are complete")
            yield http, http_statistics.looked(http)


def compared(path: str) -> bool:
    """Whether the answer has what is compared by now."""
    if "age=60" in path:  # samples: of one queue, and of all
        return path.startswith((f"/queues/{ROOT}/", "/overview"))
    return path.startswith(("/queues", "/connections", "/channels"))


@pytest.mark.parametrize("path", [path for path in RECORDED["answers"] if compared(path)])
def test_statistics_are_shown_as_by_rabbitmq(
    path: str, played: tuple[HttpClient, dict[str, Any]]
) -> None:
    wanted, found = RECORDED["answers"][path], http_statistics.shape(played[1][path])
    if "age=60" in path:  # RabbitMQ shows the counts of the latest sample then
        for one in (wanted, found):
            stats = one.get("message_stats", {})
            one["message_stats"] = {key: value for key, value in stats.items() if "_det" in key}
    missing = missing_of(wanted, found)
    assert not missing, (missing, wanted, found)


WITHOUT = (
    *("deliveries", "drop_unroutable", "drop_unroutable_details", "disk_reads", "disk_writes"),
    *("return_unroutable_details", "disk_reads_details", "disk_writes_details"),
)
"""Keys that are not compared: with `rates_mode` basic RabbitMQ's deliveries are empty; the others
Warren does not have (compatibility.md)."""


def missing_of(wanted: Any, found: Any) -> list[str]:
    """What RabbitMQ has, and this answer has not, or has another value of."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            f"{key}: {part}"
            for key in wanted
            if key not in WITHOUT
            for part in (missing_of(wanted[key], found[key]) if key in found else ["missing"])
        ]
    if isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        return [part for pair in zip(wanted, found, strict=True) for part in missing_of(*pair)]
    return [] if wanted == found else [f"{wanted} there, {found} here"]


def test_connections_and_channels_have_rates(cluster: LocalCluster, http: HttpClient) -> None:
    """Of what their clients do between two looks, wherever they are connected."""
    assert http("PUT", f"/queues/{ROOT}/flows", {"durable": True}).status == 201
    with opened(cluster, 1) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "flows", b"body")
        shown = next(one for one in http.get("/channels") if one["node"] == "node-1")
        assert shown["message_stats"]["publish"] == 1
        name, own = shown["name"], shown["connection_details"]["name"]

        def rated() -> bool:
            channel.basic_publish("", "flows", b"body")
            channel.basic_ack(channel.basic_get("flows")[0].delivery_tag)
            of = http.get(f"/channels/{quoted(name)}")
            octets = http.get(f"/connections/{quoted(own)}")
            found = of["message_stats"]
            assert found["confirm"] <= found["publish"] and min(rates([of, octets])) >= 0
            assert of["deliveries"][0]["queue"] == {"name": "flows", "vhost": "/"}
            keys = ("publish_details", "confirm_details", "get_details", "ack_details")
            return all(found[key]["rate"] > 0 for key in keys) and all(
                octets[f"{key}_details"]["rate"] > 0 for key in ("recv_oct", "send_oct")
            )

        eventually(rated, "rates of the channel and of its connection")
        channel.close()
        again = connection.channel(channel_number=1)
        assert again.channel_number == channel.channel_number
        shown = http.get(f"/channels/{quoted(name)}")
        assert "message_stats" not in shown, "another channel with that number begins at nothing"


@pytest.mark.parametrize("asked", RECORDED["ranges"])
def test_ages_are_taken_or_refused_as_by_rabbitmq(
    asked: str, played: tuple[HttpClient, dict[str, Any]]
) -> None:
    answer = played[0]("GET", asked)
    error = answer.body.get("error")
    assert [answer.status, error, '"samples"' in json.dumps(answer.body)] == RECORDED["ranges"][
        asked
    ]
    if error is not None:
        assert "_age=" in answer.body["reason"] and "500" in answer.body["reason"]


def test_samples_of_the_cluster_leave_out_what_exchanges_keep(
    cluster: LocalCluster, http: HttpClient
) -> None:
    """As the totals do: the store of an exchange is no queue of a client."""
    body = {"type": "x-recent-history", "durable": True}
    assert http("PUT", f"/exchanges/{ROOT}/keeping", body).status == 201
    with opened(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(5):
            channel.basic_publish("keeping", "key", b"body")
        assert http("PUT", f"/queues/{ROOT}/beside", {"durable": True}).status == 201
        before = http.get("/overview")["queue_totals"]["messages"]
        publish(connection, "beside", 3)

    def alike() -> bool:
        found = http.get("/overview?lengths_age=60&lengths_incr=1")["queue_totals"]
        points = found["messages_details"]["samples"]
        grown = found["messages"] >= before + 3
        return grown and bool(points) and points[0]["sample"] == found["messages"]

    eventually(alike, "the latest sample is the total")


def test_a_queue_has_samples_of_what_was_before_the_first_look(
    cluster: LocalCluster, http: HttpClient
) -> None:
    """They are taken also while nothing asks, by the nodes: of the leader and the clients' one."""
    quorum = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    assert http("PUT", f"/queues/{ROOT}/sampled", quorum).status == 201
    ages = "lengths_age=500&lengths_incr=1&msg_rates_age=500&msg_rates_incr=1"

    def sampled(node: int, count: int) -> bool:
        stats_of = http_client(cluster, node).get(f"/queues/{ROOT}/sampled?{ages}")
        points = stats_of.get("message_stats", {}).get("publish_details", {}).get("samples", [])
        return count in [one["sample"] for one in points]

    with opened(cluster, 2) as connection:
        publish(connection, "sampled", 10)
        eventually(lambda: sampled(2, 10), "a sample of the first ones")
        publish(connection, "sampled", 5)

    def looked() -> bool:
        found = http.get(f"/queues/{ROOT}/sampled?{ages}")
        published = found["message_stats"]["publish_details"]
        points = [one["sample"] for one in published["samples"]]
        assert points == sorted(points, reverse=True), "the latest is first; no count goes down"
        times = [one["timestamp"] for one in published["samples"]]
        assert all(a - b == 1000 for a, b in itertools.pairwise(times))
        lengths = [one["sample"] for one in found["messages_details"]["samples"]]
        handed = found["message_stats"].get("deliver_get_details", {})
        assert "samples" not in handed
        return 10 in points and points[0] == 15 and lengths[:1] == [15] and 10 in lengths

    eventually(looked, "samples of the time before")
    for at in range(2):
        away = http_client(cluster, at).get(f"/queues/{ROOT}/sampled?{ages}")
        assert away["message_stats"]["publish_details"]["samples"][0]["sample"] == 15
