"""Numbers and rates of `/api/overview` and `/api/nodes`, on three nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pika
import pytest

from live.conftest import eventually
from live.http_client import HttpClient, add_user, http_client, quoted
from warren.local import LocalCluster

pytestmark = pytest.mark.live
ROOT = quoted("/")
SAMPLED: dict[str, Any] = {
    "management": {"enabled": True, "tcp": {"port": 0}, "collect_statistics_interval": 100}
}
MESSAGE_KEYS = {
    *("publish", "confirm", "deliver_get", "deliver", "deliver_no_ack", "get", "get_no_ack"),
    *("get_empty", "redeliver", "ack", "return_unroutable", "drop_unroutable"),
}
CHURN_KEYS = {
    *("connection_created", "connection_closed", "channel_created", "channel_closed"),
    *("queue_declared", "queue_created", "queue_deleted"),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, settings=SAMPLED) as made:
        yield made


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


def opened(
    cluster: LocalCluster, node: int, vhost: str = "/", user: str = "guest"
) -> pika.BlockingConnection:
    """A connection to a node; user: guest, or one of `add_user`."""
    port = cluster.nodes[node].amqp_port
    login = pika.PlainCredentials(user, "guest" if user == "guest" else "pw")
    at = pika.ConnectionParameters("127.0.0.1", port, vhost, login)
    return pika.BlockingConnection(at)


def with_details(keys: set[str]) -> set[str]:
    """Keys, each with that of its rate."""
    return keys | {f"{key}_details" for key in keys}


def counts(http: HttpClient) -> dict[str, int]:
    """What the cluster has counted of messages."""
    return {key: http.get("/overview")["message_stats"][key] for key in MESSAGE_KEYS}


def test_messages_of_clients_of_all_nodes_are_counted(
    cluster: LocalCluster, http: HttpClient
) -> None:
    before, churn = counts(http), http.get("/overview")["churn_rates"]
    with opened(cluster, 0) as publishing, opened(cluster, 1) as taking:
        channel, other = publishing.channel(), taking.channel()
        channel.confirm_delivery()
        channel.queue_declare("counted", durable=True)
        for _ in range(5):
            channel.basic_publish("", "counted", b"body")
        assert other.basic_get("counted")[0] is not None
        other.basic_nack(1, requeue=True)
        tag, _, _ = other.basic_get("counted")
        other.basic_ack(tag.delivery_tag)
        assert other.basic_get("counted", auto_ack=True)[0] is not None
        assert other.basic_get("counted")[0] is not None
        totals = http.get("/overview")
        assert set(totals["message_stats"]) == with_details(MESSAGE_KEYS)
        assert set(totals["churn_rates"]) == with_details(CHURN_KEYS)
        assert totals["rates_mode"] == "basic"
        more = {key: value - before[key] for key, value in counts(http).items()}
        assert (more["publish"], more["confirm"]) == (5, 5)
        assert (more["get"], more["get_no_ack"], more["deliver_get"]) == (3, 1, 4)
        assert (more["redeliver"], more["ack"]) == (1, 1)
        assert totals["churn_rates"]["queue_created"] == churn["queue_created"] + 1
        assert totals["churn_rates"]["queue_declared"] == churn["queue_declared"] + 1
        assert totals["object_totals"]["connections"] == 2 == totals["object_totals"]["channels"]
        eventually(
            lambda: http.get("/overview")["queue_totals"]["messages_unacknowledged"] == 1,
            "one is held",
        )
        assert http.get("/overview")["queue_totals"]["messages"] == 3
        nodes = {one["name"]: one for one in http.get("/nodes")}
        assert with_details(CHURN_KEYS) < set(nodes["node-1"])
        assert nodes["node-1"]["mem_used"] > 1 << 20 < nodes["node-1"]["disk_free"]
        assert len({one["os_pid"] for one in nodes.values()}) == 3
        channel.queue_delete("counted")
    churned = http.get("/overview")["churn_rates"]
    assert churned["queue_deleted"] == churn["queue_deleted"] + 1


def test_a_rate_follows_what_is_published_and_ends_with_it(
    cluster: LocalCluster, http: HttpClient
) -> None:
    def rate() -> float:
        stats = http.get("/overview")["message_stats"]
        return float(stats["publish_details"]["rate"])

    with opened(cluster, 2) as connection:
        channel = connection.channel()
        channel.queue_declare("steady", durable=True)

        def publish() -> None:
            for _ in range(20):
                channel.basic_publish("", "steady", b"body")
            connection.process_data_events(0)

        def published() -> bool:
            publish()
            return rate() > 0

        def grows() -> bool:
            publish()
            shown = http.get(f"/queues/{ROOT}/steady")
            return bool(shown["messages_details"]["rate"] > 0)

        eventually(published, "messages of another node have a rate")
        eventually(grows, "the queue grows from one look to the next")
        node = http.get("/nodes/node-2")
        assert node["connection_created"] >= 1
        eventually(lambda: rate() == 0, "none are published any more")
        asked = "msg_rates_age=60&msg_rates_incr=1&lengths_age=60&lengths_incr=1"

        def sampled() -> bool:
            shown = http.get(f"/overview?{asked}")
            publish = shown["message_stats"]["publish_details"]["samples"]
            length = shown["queue_totals"]["messages_details"]["samples"]
            found = [one["sample"] for one in publish]
            assert found == sorted(found, reverse=True), "the latest is first, and none is lost"
            return len(publish) > 1 and len(length) > 1 and length[0]["sample"] >= 20

        eventually(sampled, "there are samples of two seconds")
        assert http("GET", "/overview?msg_rates_age=60&msg_rates_incr=0").status == 400


def test_a_node_that_is_killed_leaves_no_negative_rate(
    cluster: LocalCluster, http: HttpClient
) -> None:
    with opened(cluster, 0) as connection:
        channel = connection.channel()
        channel.queue_declare("survives", durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        for _ in range(10):
            channel.basic_publish("", "survives", b"body")

    def rates() -> list[float]:
        shown = http.get("/overview")
        parts = (shown["message_stats"], shown["churn_rates"])
        return [value["rate"] for part in parts for key, value in part.items() if "_det" in key]

    cluster.kill(2)
    http.get("/overview")
    cluster.start(2)

    def back() -> bool:
        assert min(rates()) >= 0
        return len([one for one in http.get("/nodes") if "mem_used" in one]) == 3

    eventually(back, "the node that is back is counted again")
    assert min(rates()) >= 0
    eventually(
        lambda: http.get(f"/queues/{ROOT}/survives")["messages"] == 10, "its queue has a leader"
    )
    eventually(
        lambda: http.get("/overview")["queue_totals"]["messages"] >= 10, "its messages are counted"
    )


def test_users_see_totals_of_their_vhosts_and_rates_with_monitoring(
    cluster: LocalCluster, http: HttpClient
) -> None:
    http("PUT", "/vhosts/own", {})
    http("PUT", f"/queues/{ROOT}/theirs", {"durable": True})
    user = add_user(http, "ofown", "management", vhost="own")
    user("PUT", "/queues/own/q", {"durable": True})
    user(
        "POST",
        "/exchanges/own/amq.default/publish",
        {"properties": {}, "routing_key": "q", "payload": "p", "payload_encoding": "string"},
    )
    shown = user.get("/overview")
    assert shown["object_totals"]["queues"] == 1
    assert shown["queue_totals"] == {
        "messages": 1,
        "messages_ready": 1,
        "messages_unacknowledged": 0,
    }
    assert shown["message_stats"] == shown["churn_rates"] == {}
    onlooker = add_user(http, "watching", "monitoring", vhost=None)
    seen = onlooker.get("/overview")
    assert seen["object_totals"]["queues"] >= 2 and seen["message_stats"]["publish"] >= 1
    cheap = http.get("/overview?disable_stats=true")
    assert set(cheap["object_totals"]) == {"queues", "exchanges"}
    assert "message_stats" not in cheap and "queue_totals" not in cheap
    assert "mem_used" not in http.get("/nodes?disable_stats=true")[0]


def test_without_rates_mode_there_are_none() -> None:
    without = {"management": {**SAMPLED["management"], "rates_mode": "none"}}
    with LocalCluster(nodes=1, settings=without) as cluster:
        http = http_client(cluster)
        http("PUT", f"/queues/{ROOT}/q", {"durable": True})
        assert "messages_details" not in http.get(f"/queues/{ROOT}/q")
        shown = http_client(cluster).get("/overview")
        assert shown["rates_mode"] == "none" and shown["message_stats"] == {}
        assert set(shown["queue_totals"]) == {
            *("messages", "messages_ready", "messages_unacknowledged")
        }


def test_detailed_rates_are_of_channels_exchanges_and_queues() -> None:
    detailed = {"management": {**SAMPLED["management"], "rates_mode": "detailed"}}
    with LocalCluster(nodes=3, settings=detailed) as cluster, ExitStack() as clients:
        http = http_client(cluster)
        assert http.get("/overview")["rates_mode"] == "detailed"
        quorum = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
        for name in ("q", "other"):
            assert http("PUT", f"/queues/{ROOT}/{name}", quorum).status == 201
        assert http("PUT", f"/exchanges/{ROOT}/x", {"type": "fanout"}).status == 201
        assert http("POST", f"/bindings/{ROOT}/e/x/q/q", {}).status == 201
        channels = [clients.enter_context(opened(cluster, node)).channel() for node in (0, 1, 2)]
        for channel in channels[:2]:
            channel.confirm_delivery()
            for _ in range(3):
                channel.basic_publish("x", "k", b"body")
            channel.basic_publish("", "q", b"body")
            channel.basic_publish("", "nowhere", b"dropped")
        for _ in range(2):
            channels[2].basic_ack(channels[2].basic_get("q")[0].delivery_tag)

        def of(path: str, key: str, end: str) -> dict[Any, dict[str, int]]:
            return {
                one[end].get("connection_name", one[end]["name"]): one["stats"]
                for one in http.get(path)[key]
            }

        def counted() -> bool:
            given = of(f"/queues/{ROOT}/q", "incoming", "exchange")
            return {name: one["publish"] for name, one in given.items()} == {"x": 6, "": 2}

        eventually(counted, "the nodes' sums")
        (taken,) = of(f"/queues/{ROOT}/q", "deliveries", "channel_details").values()
        assert (taken["get"], taken["ack"], taken["deliver_get"]) == (2, 2, 2)
        came = of(f"/exchanges/{ROOT}/x", "incoming", "channel_details")
        assert len(came) == 2 and all(
            one["publish"] == 3 == one["confirm"] for one in came.values()
        )
        assert of(f"/exchanges/{ROOT}/x", "outgoing", "queue")["q"]["publish"] == 6
        default = of(f"/exchanges/{ROOT}/amq.default", "incoming", "channel_details")
        assert {one["drop_unroutable"] for one in default.values()} == {1}
        listed = {one["name"]: one["publishers"] for one in http.get("/queues")}
        assert listed == {"q": 2, "other": 0}
        first = next(one["name"] for one in http.get("/channels") if one["node"] == "node-0")
        shown = of(f"/channels/{quoted(first)}", "publishes", "exchange")
        assert (shown["x"]["publish"], shown[""]["publish"]) == (3, 2)
        onlooker = add_user(http, "onlooker", "management", vhost="/")
        seen = onlooker.get(f"/queues/{ROOT}/q")
        assert len(seen["incoming"]) == 2 and not seen["deliveries"], "channels of others"
        assert http("DELETE", f"/queues/{ROOT}/q").status == 204
        eventually(lambda: not http.get(f"/exchanges/{ROOT}/x")["outgoing"], "it is deleted")
        clients.close()
        eventually(lambda: not http.get(f"/exchanges/{ROOT}/x")["incoming"], "they have ended")


def test_nodes_have_samples_of_what_they_use(cluster: LocalCluster, http: HttpClient) -> None:
    ages = "node_stats_age=60&node_stats_incr=1"

    def sampled() -> bool:
        used = [
            one[f"{key}_details"]["samples"]
            for one in http.get(f"/nodes?{ages}")
            for key in ("mem_used", "disk_free", "fd_used", "connection_created")
        ]
        return all(used) and all(one[0]["sample"] > 0 for one in used[:3])

    eventually(sampled, "samples of each node")
    one = http.get(f"/nodes/node-2?{ages}")
    assert one["mem_used"] > 0 < one["fd_used"] and "samples" in one["sockets_used_details"]
    assert "samples" not in http.get("/nodes")[0]["mem_used_details"]
    assert http("GET", "/nodes?node_stats_age=60&node_stats_incr=0").status == 400


def test_queues_of_pages_have_samples_and_those_of_long_lists_have_none(
    cluster: LocalCluster, http: HttpClient
) -> None:
    """A list of all would have each node send up to 17 KB of each queue."""
    assert http("PUT", "/vhosts/listed", {}).status == 201
    add_user(http, "oflisted", "management", vhost="listed")
    ages = "lengths_age=60&lengths_incr=1&msg_rates_age=60&msg_rates_incr=1"
    with opened(cluster, 0, vhost="listed", user="oflisted") as connection:
        channel = connection.channel()
        for number in range(101):
            channel.queue_declare(f"q{number:03}", exclusive=True)
        channel.basic_publish("", "q100", b"body")

        def sampled(query: str) -> list[str]:
            found = http.get(f"/queues/listed?{ages}{query}")
            items = found if isinstance(found, list) else found["items"]
            with_lengths = [one for one in items if one["messages_details"].get("samples")]
            for one in items:
                assert ("samples" in one["messages_details"]) is (len(items) <= 100), query
            return [one["name"] for one in with_lengths]

        for order in ("name", "messages", "message_stats.publish"):
            page = f"&page=1&page_size=2&sort={order}&sort_reverse=true"
            eventually(lambda page=page: "q100" in sampled(page) or None, f"samples by {order}")
        assert sampled("") == []
        assert "samples" not in str(http.get(f"/queues/listed?{ages}&columns=name"))
        channel.queue_delete("q000")
        assert "q100" in sampled("")
    assert http("DELETE", "/vhosts/listed").status == 204
