"""`message_stats` of all that has some, beside what RabbitMQ 4.3 answered."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from proton import Message
from proton.reactor import AtLeastOnce, AtMostOnce
from proton.utils import BlockingConnection, SendException

from live import http_statistics
from live.conftest import eventually
from live.http_client import HttpClient, add_user, http_client, quoted
from live.test_http_rates import SAMPLED, opened
from tests.patience import PATIENCE_S
from warren import Admin, ClaimReader, Connection, Producer
from warren.local import LocalCluster
from warren_wire.block.block import Block

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
        Admin(connection).queues.declare("claimed")
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


def through(http: HttpClient, exchange: str) -> tuple[int, int]:
    """What came to an exchange, and what went from it."""
    found = http.get(f"/exchanges/{ROOT}/{exchange}").get("message_stats", {})
    return found.get("publish_in", 0), found.get("publish_out", 0)


def test_exchanges_count_what_comes_and_what_goes_to_queues(
    cluster: LocalCluster, http: HttpClient
) -> None:
    """In runs of messages to several exchanges, too, of clients of any node and protocol."""
    for queue in ("out-1", "out-2"):
        assert http("PUT", f"/queues/{ROOT}/{queue}", {"durable": True}).status == 201
    kinds = {"forked": "fanout", "headed": "headers", "first": "topic"}
    for name, kind in kinds.items():
        assert http("PUT", f"/exchanges/{ROOT}/{name}", {"type": kind}).status == 201
    assert "message_stats" not in http.get(f"/exchanges/{ROOT}/forked")
    known = through(http, "amq.default")
    for node in (0, 2):
        with opened(cluster, node) as connection:
            publish_mixed(connection.channel())
    address = f"amqp://guest:guest@127.0.0.1:{cluster.nodes[1].amqp_port}"
    with Connection(address) as link, Producer(link) as producer:
        for _ in range(4):
            producer.send(b"b", "out-1")
    sender = BlockingConnection(f"{address}/", timeout=PATIENCE_S)
    sender.create_sender("/exchanges/forked/any").send(Message(b"b"))
    sender.close()
    wanted = {"forked": (17, 34), "headed": (20, 10), "first": (10, 20)}
    wanted["amq.default"] = (known[0] + 16, known[1] + 16)
    for node in range(3):
        away = http_client(cluster, node)
        assert {name: through(away, name) for name in wanted} == wanted
    listed = {one["name"]: one for one in http.get(f"/exchanges/{ROOT}")}
    assert listed["forked"]["message_stats"]["publish_in"] == 17
    assert "message_stats" not in listed["amq.headers"]
    everywhere = http.get("/exchanges?disable_stats=true")
    assert not any("message_stats" in one for one in everywhere)
    ages = "msg_rates_age=60&msg_rates_incr=1"

    def sampled() -> bool:
        found = http.get(f"/exchanges/{ROOT}/forked?{ages}")["message_stats"]
        points = found["publish_out_details"]["samples"]
        return bool(points) and points[0]["sample"] == 34

    eventually(sampled, "samples of the exchange")


def publish_mixed(channel: Any) -> None:
    """Messages to several exchanges, of which some have no queue for them."""
    for queue in ("out-1", "out-2"):
        channel.queue_bind(queue, "forked")
    channel.queue_bind("out-1", "headed", arguments={"x-match": "any", "a": 1})
    channel.exchange_bind("forked", "first", "k")
    with_header = pika.BasicProperties(headers={"a": 1})
    for _ in range(5):
        channel.basic_publish("forked", "any", b"b")
        channel.basic_publish("", "out-1", b"b")
        channel.basic_publish("headed", "any", b"b", with_header)
        channel.basic_publish("headed", "any", b"b")
        channel.basic_publish("first", "k", b"b")
    for _ in range(3):
        channel.basic_publish("forked", "any", b"b")
    channel.confirm_delivery()
    channel.basic_publish("", "out-2", b"b")


def test_a_deleted_exchange_leaves_no_counts(cluster: LocalCluster, http: HttpClient) -> None:
    path, body = f"/exchanges/{ROOT}/passing", {"type": "fanout"}
    assert http("PUT", path, body).status == 201
    with opened(cluster, 1) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("passing", "any", b"b")
    assert through(http, "passing") == (1, 0)
    assert http("DELETE", path).status == 204

    def forgotten() -> bool:
        assert http("PUT", path, body).status in (201, 204)
        begun = through(http, "passing") == (0, 0)
        assert begun or http("DELETE", path).status == 204
        return begun

    eventually(forgotten, "a new exchange of that name begins at nothing")


def test_a_vhost_counts_what_its_clients_do(cluster: LocalCluster, http: HttpClient) -> None:
    """Also with queues that are deleted, and over AMQP 1.0; its users see it, and no others'."""
    assert http("PUT", "/vhosts/counted", {}).status == 201
    user = add_user(http, "ofcounted", "management", vhost="counted")
    assert "message_stats" not in user.get("/vhosts/counted")
    assert [one["name"] for one in user.get("/vhosts")] == ["counted"]
    for node in range(2):
        with opened(cluster, node, vhost="counted", user="ofcounted") as connection:
            channel = connection.channel()
            channel.queue_declare("short", durable=True)
            channel.confirm_delivery()
            for _ in range(3):
                channel.basic_publish("", "short", b"b")
            with pytest.raises(pika.exceptions.UnroutableError):
                channel.basic_publish("", "none", b"b", mandatory=True)
            channel.basic_get("short", auto_ack=True)
            channel.basic_ack(channel.basic_get("short")[0].delivery_tag)
            if node:
                channel.queue_delete("short")
    found = user.get("/vhosts/counted")["message_stats"]
    wanted = {"publish": 8, "confirm": 8, "return_unroutable": 2, "get": 2, "get_no_ack": 2}
    wanted |= {"ack": 2, "deliver_get": 4, "deliver": 0}
    assert {key: found[key] for key in wanted} == wanted

    def alike() -> bool:
        listed = {one["name"]: one for one in http.get("/vhosts")}["counted"]
        return bool(listed["message_stats"] == user.get("/vhosts/counted")["message_stats"])

    eventually(alike, "the list has it, with the same rates when these have ended")
    with opened(cluster, 2, vhost="counted", user="ofcounted") as connection:
        connection.channel().queue_declare("kept", durable=True)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "kept", b"b")
    ages = "lengths_age=60&lengths_incr=1&msg_rates_age=60&msg_rates_incr=1"

    def sampled() -> bool:
        found = user.get(f"/vhosts/counted?{ages}")
        lengths = found["messages_details"]["samples"]
        points = found["message_stats"]["confirm_details"]["samples"]
        latest = [one["sample"] for one in (*lengths[:1], *points[:1])]
        return latest == [1, 9] and found["messages"] == found["messages_ready"] == 1

    eventually(sampled, "lengths, and samples of counts and lengths")
    assert http("DELETE", "/vhosts/counted").status == 204
    eventually(lambda: http("GET", "/vhosts/counted").status == 404, "it is gone")
    assert not [one for one in http.get("/vhosts") if one["name"] == "counted"]


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
    if "age=60" in path:  # samples: of queues, one exchange, vhost …, of nodes, and of all
        one = (f"/queues/{ROOT}/", f"/queues/{ROOT}?", f"/exchanges/{ROOT}/", f"/vhosts/{ROOT}")
        return path.startswith((*one, "/connections/", "/channels/", "/nodes", "/overview"))
    return True


@pytest.mark.parametrize("path", [path for path in RECORDED["answers"] if compared(path)])
def test_statistics_are_shown_as_by_rabbitmq(
    path: str, played: tuple[HttpClient, dict[str, Any]]
) -> None:
    wanted, found = RECORDED["answers"][path], http_statistics.shape(played[1][path])
    if path.startswith("/nodes"):
        wanted[0]["name"] = found[0]["name"]
    if "age=60" in path:  # RabbitMQ shows the counts of the latest sample then
        for one in (*wanted, *found) if isinstance(wanted, list) else (wanted, found):
            stats = one.get("message_stats", {})
            one["message_stats"] = {key: value for key, value in stats.items() if "_det" in key}
    missing = missing_of(wanted, found)
    assert not missing, (missing, wanted, found)


WITHOUT = ("deliveries", "disk_reads", "disk_writes", "disk_reads_details", "disk_writes_details")
"""Keys that are not compared: with `rates_mode` basic RabbitMQ's deliveries are empty; the others
Warren does not have (compatibility.md)."""
OF_ERLANG = ("context_", "gc_", "io_", "mnesia_", "msg_store_", "proc_used", "queue_index_")
"""Beginnings of keys of nodes that Warren does not have."""


def missing_of(wanted: Any, found: Any) -> list[str]:
    """What RabbitMQ has, and this answer has not, or has another value of."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            f"{key}: {part}"
            for key in wanted
            if key not in WITHOUT and not key.startswith(OF_ERLANG)
            for part in (missing_of(wanted[key], found[key]) if key in found else ["missing"])
        ]
    if isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        return [part for pair in zip(wanted, found, strict=True) for part in missing_of(*pair)]
    return [] if wanted == found else [f"{wanted} there, {found} here"]


def test_connections_and_channels_have_rates(cluster: LocalCluster, http: HttpClient) -> None:
    """Of what their clients do, wherever they are connected, with the samples of their nodes."""
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
        ages = "msg_rates_age=60&msg_rates_incr=1&data_rates_age=60&data_rates_incr=1"

        def sampled() -> bool:
            of = http.get(f"/channels/{quoted(name)}?{ages}")["message_stats"]
            points = of["publish_details"]["samples"]
            shown = http.get(f"/connections/{quoted(own)}?{ages}")
            octets = shown["recv_oct_details"]["samples"]
            return bool(points and octets) and points[0]["sample"] == of["publish"]

        eventually(sampled, "samples of the channel and of its connection")
        channel.close()
        again = connection.channel(channel_number=1)
        assert again.channel_number == channel.channel_number
        shown = http.get(f"/channels/{quoted(name)}")
        assert "message_stats" not in shown, "another channel with that number begins at nothing"


def test_a_vhost_counts_octets_of_connections_that_have_ended_too(
    cluster: LocalCluster, http: HttpClient
) -> None:
    """Nothing is lost that comes between a look and the end of a connection."""
    assert http("PUT", "/vhosts/octets", {}).status == 201
    add_user(http, "ofoctets", "management", vhost="octets")
    for node in range(2):
        with opened(cluster, node, vhost="octets", user="ofoctets") as connection:
            connection.channel().queue_declare("q", durable=True)
            connection.channel().basic_publish("", "q", b"x" * 100_000)

    def octets() -> int | None:
        received: int = http.get("/vhosts/octets")["recv_oct"]
        return received if received > 200_000 else None

    counted = eventually(octets, "octets are counted")
    assert counted < 210_000 and 0 < http.get("/vhosts/octets")["send_oct"] < 10_000
    listed = {one["name"]: one for one in http.get("/vhosts")}["octets"]
    assert listed["recv_oct"] == counted

    def sampled() -> bool:
        found = http.get("/vhosts/octets?data_rates_age=60&data_rates_incr=1")
        points = found["recv_oct_details"]["samples"]
        return bool(points) and points[0]["sample"] == counted

    eventually(sampled, "samples of the vhost's octets")


def test_messages_for_no_queue_are_dropped_or_returned(
    cluster: LocalCluster, http: HttpClient
) -> None:
    """Of each protocol, with confirms and without, also within a run of which others have one."""
    assert http("PUT", "/vhosts/lost", {}).status == 201
    add_user(http, "oflost", "management", vhost="lost")
    before = http.get("/overview")["message_stats"]
    with opened(cluster, 1, vhost="lost", user="oflost") as connection:
        channel = connection.channel()
        channel.queue_declare("there", durable=True)
        for key in ("none", "there", "nowhere", "there", "none"):
            channel.basic_publish("", key, b"b")
        confirming = connection.channel()
        confirming.confirm_delivery()
        confirming.basic_publish("", "none", b"b")
        with pytest.raises(pika.exceptions.UnroutableError):
            confirming.basic_publish("", "none", b"b", mandatory=True)
        stats = {
            one["number"]: one["message_stats"]
            for one in http.get("/channels")
            if one["vhost"] == "lost"
        }
        keys = ("publish", "confirm", "return_unroutable", "drop_unroutable")
        assert [stats[1][key] for key in keys] == [5, 0, 0, 3]
        assert [stats[2][key] for key in keys] == [2, 2, 1, 1]
    address = f"amqp://oflost:pw@127.0.0.1:{cluster.nodes[0].amqp_port}/lost"
    sender = BlockingConnection(
        address.rpartition("/")[0] + "/",
        timeout=PATIENCE_S,
        virtual_host="vhost:lost",
        allowed_mechs="PLAIN",
    )
    for settled in (False, True):
        made = sender.create_sender(
            "/exchanges/amq.direct/none",
            name=f"settled {settled}",
            options=AtMostOnce() if settled else AtLeastOnce(),
        )
        if settled:
            made.link.send(Message(b"b"))
        else:
            with pytest.raises(SendException):
                made.send(Message(b"b"))
    found = http.get("/vhosts/lost")["message_stats"]
    sender.close()
    assert (found["return_unroutable"], found["publish"] >= 8) == (2, True)
    eventually(
        lambda: http.get("/vhosts/lost")["message_stats"]["drop_unroutable"] == 5,
        "what was sent settled is dropped",
    )
    after = http.get("/overview")["message_stats"]
    assert after["drop_unroutable"] - before["drop_unroutable"] >= 5
    assert after["return_unroutable"] - before["return_unroutable"] >= 2
    assert set(after["drop_unroutable_details"]) == {"rate"}


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
