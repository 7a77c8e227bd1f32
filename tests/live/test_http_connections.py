"""Connections and channels of clients over HTTP, on three nodes."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pika
import pytest
from proton import ConnectionException, symbol
from proton.utils import BlockingConnection

from live.conftest import eventually
from live.http_client import SETTINGS, HttpClient, add_user, http_client, quoted
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = pytest.mark.live
ROOT = quoted("/")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, settings=SETTINGS) as made:
        yield made


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


@pytest.fixture
def user(http: HttpClient) -> HttpClient:
    return add_user(http, "connected", "management")


@pytest.fixture
def opened(cluster: LocalCluster, user: HttpClient) -> Iterator[list[Any]]:
    """A connection of that user to each node."""
    made = [
        pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                cluster.nodes[node].amqp_port,
                credentials=pika.PlainCredentials("connected", "pw"),
                heartbeat=600,
                client_properties={"connection_name": f"mine {node}"},
            )
        )
        for node in range(3)
    ]
    yield made
    for one in made:
        if one.is_open:
            one.close()
    eventually(lambda: user.get("/connections") == [], "none is shown to the next test")


def named(http: HttpClient) -> dict[str, Any]:
    """The user's connections by the names that the client gave them."""
    return {one["user_provided_name"]: one for one in http.get("/connections/username/connected")}


def test_connections_of_all_nodes_are_shown(
    cluster: LocalCluster, http: HttpClient, user: HttpClient, opened: list[Any]
) -> None:
    channels = [opened[0].channel(), opened[0].channel()]
    mine = named(user)
    assert set(mine) == {"mine 0", "mine 1", "mine 2"}
    one = mine["mine 0"]
    assert (one["node"], one["user"], one["vhost"]) == ("node-0", "connected", "/")
    assert (one["protocol"], one["channels"], one["timeout"]) == ("AMQP 0-9-1", len(channels), 600)
    assert one["port"] == cluster.nodes[0].amqp_port and one["peer_host"] == "127.0.0.1"
    assert one["name"] == f"127.0.0.1:{one['peer_port']} -> 127.0.0.1:{one['port']}"
    assert one["client_properties"]["product"].startswith("Pika") and not one["ssl"]
    assert one["recv_oct"] > 100 and one["send_oct"] > 100
    assert 3 < one["recv_cnt"] < one["recv_oct"] and 3 < one["send_cnt"] < one["send_oct"]
    assert one["auth_mechanism"] == "PLAIN" and one["channel_max"] == 2047
    assert user.get(f"/connections/{quoted(one['name'])}")["name"] == one["name"]
    with cluster.connect() as connection:
        Admin(connection).overview()
        every = http.get("/connections")
        assert {"AMQP 0-9-1", "AMQP 1-0"} == {each["protocol"] for each in every}
        assert len(http.get(f"/vhosts/{ROOT}/connections")) == len(every) == 4
        page = http.get("/connections?page=1&page_size=2&columns=name&name=127")
        assert (page["total_count"], page["item_count"]) == (4, 2)
        totals = http.get("/overview")["object_totals"]
        assert (totals["connections"], totals["channels"]) == (4, 2)


def still(channel: dict[str, Any]) -> dict[str, Any]:
    """A channel without what changes from one look to the next: its rates."""
    return {key: value for key, value in channel.items() if key != "message_stats"}


def test_channels_are_shown_with_their_consumers(
    http: HttpClient, user: HttpClient, opened: list[Any]
) -> None:
    consuming, other = opened[0].channel(), opened[0].channel()
    consuming.basic_qos(prefetch_count=7)
    consuming.queue_declare("watched", durable=True)
    consuming.basic_consume("watched", lambda *given: None, consumer_tag="watching")
    other.confirm_delivery()
    for _ in range(2):
        other.basic_publish("", "watched", b"held")
    eventually(
        lambda: user.get("/channels")[0]["messages_unacknowledged"] == 2, "both are delivered"
    )
    first, second = user.get("/channels")
    mine = named(user)
    one = mine["mine 0"]
    assert first["name"] == f"{one['name']} (1)" and first["number"] == 1
    assert (first["prefetch_count"], first["consumer_count"]) == (7, 1)
    assert first["consumer_details"] == [
        {"consumer_tag": "watching", "queue": {"name": "watched", "vhost": "/"}}
    ]
    assert first["connection_details"]["name"] == one["name"]
    assert (second["confirm"], second["transactional"], second["vhost"]) == (True, False, "/")
    alone = user.get(f"/channels/{quoted(second['name'])}")
    assert still(alone) == still(second) | {"deliveries": [], "publishes": []}
    shown = user.get(f"/connections/{quoted(one['name'])}/channels")
    assert list(map(still, shown)) == [still(first), still(second)]
    assert user.get(f"/connections/{quoted(mine['mine 1']['name'])}/channels") == []
    assert len(http.get(f"/vhosts/{ROOT}/channels")) == len(http.get("/channels")) == 2
    assert user("GET", "/channels/none").status == 404


def test_connections_are_closed_by_their_user_and_by_administrators(
    http: HttpClient, user: HttpClient, opened: list[Any]
) -> None:
    stranger = add_user(http, "stranger", "management")
    assert stranger.get("/connections") == stranger.get("/channels") == []
    path = f"/connections/{quoted(named(user)['mine 2']['name'])}"
    assert stranger("GET", path).status == 404
    assert stranger("DELETE", path).status == 401
    watcher = add_user(http, "onlooker", "monitoring")
    assert len(watcher.get("/connections")) == 3
    assert watcher("DELETE", path).status == 401
    assert user("DELETE", path).status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="via management plugin"):
        opened[2].process_data_events(PATIENCE_S)
    eventually(lambda: http("GET", path).status == 404, "it is shown no more")
    assert http("DELETE", path).status == 404
    assert http("DELETE", "/connections/username/connected").status == 204
    eventually(lambda: user.get("/connections") == [], "all of the user's are closed")
    for one in opened[:2]:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            one.process_data_events(PATIENCE_S)


def test_clients_of_amqp_10_did_not_find_their_connection_to_close_it(
    cluster: LocalCluster, http: HttpClient, opened: list[Any]
) -> None:
    """RabbitMQ's clients in Go and Java look for their container_id."""
    address = cluster.addresses[1]
    made = BlockingConnection(
        address,
        user="guest",
        password="guest",
        allowed_mechs="PLAIN",
        container_id="recovers",
        properties={symbol("connection_name"): "named", symbol("platform"): "Python"},
        timeout=PATIENCE_S,
    )
    made.create_sender("/exchanges/amq.fanout")  # it begins a session

    def found() -> list[dict[str, Any]]:
        return [one for one in http.get("/connections") if one.get("container_id") == "recovers"]

    (one,) = eventually(found, "the connection is listed")
    assert (one["protocol"], one["node"], one["user_provided_name"]) == (
        *("AMQP 1-0", "node-1", "named"),
    )
    assert one["client_properties"] == {"connection_name": "named", "platform": "Python"}
    assert (one["auth_mechanism"], one["channels"], one["channel_max"]) == ("PLAIN", 1, 63)
    assert one["frame_max"] == 32_768 and 1 < one["recv_cnt"] < 20 and 1 < one["send_cnt"] < 20
    with cluster.connect() as connection:
        (same,) = [
            each for each in Admin(connection).connections.list() if each.name == one["name"]
        ]
    assert (same.auth_mechanism, same.channels, same.channel_max) == ("PLAIN", 1, 63)
    assert all("container_id" not in other for other in named(http).values())
    assert http("DELETE", f"/connections/{quoted(one['name'])}").status == 204
    eventually(lambda: not found(), "it is gone")
    with suppress(ConnectionException):
        made.close()


def test_logins_are_counted_by_node_and_protocol(cluster: LocalCluster, http: HttpClient) -> None:
    def counted(node: int, asking: HttpClient = http) -> dict[str, tuple[int, ...]]:
        found = asking.get(f"/auth/attempts/node-{node}")
        order = ("auth_attempts", "auth_attempts_succeeded", "auth_attempts_failed")
        return {one["protocol"]: tuple(one[key] for key in order) for one in found}

    before = counted(1)
    for password in ("guest", "wrong"):
        login = pika.PlainCredentials("guest", password)
        address = ("127.0.0.1", cluster.nodes[1].amqp_port)
        with suppress(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.ConnectionParameters(*address, credentials=login)).close()
    there = http_client(cluster, 1)
    assert there("GET", "/overview").status == 200
    assert there.as_user("guest:wrong")("GET", "/overview").status == 401
    after = counted(1)
    for protocol in ("amqp091", "http"):
        earlier = before.get(protocol, (0, 0, 0))
        more = tuple(map(operator.sub, after[protocol], earlier))
        assert more == (2, 1, 1), f"{protocol}: one login of each request, whatever it asks for"
    assert http.get("/auth/attempts/node-1/source") == []
    assert http("GET", "/auth/attempts/none").status == 404
    assert http("GET", "/auth/attempts").status == 404
    seen = add_user(http, "attempts", "management")
    assert seen("GET", "/auth/attempts/node-1").status == 401


def test_the_name_under_which_the_cluster_is_shown(cluster: LocalCluster, http: HttpClient) -> None:
    parameter = "/global-parameters/cluster_name"
    assert http("GET", parameter).status == 404
    assert http("PUT", "/cluster-name", {"name": "orders"}).status == 204
    assert http.get(parameter) == {"name": "cluster_name", "value": "orders"}
    for node in range(3):
        there = http_client(cluster, node)
        assert there.get("/cluster-name") == {"name": "orders"}
        assert there.get("/overview")["cluster_name"] == "orders"
    assert http.get("/definitions")["original_cluster_name"] == "orders"
    for wrong in ({}, {"name": 5}, {"name": None}):
        assert http("PUT", "/cluster-name", wrong).status == 400
    assert http("PUT", parameter, {"value": "billing"}).status == 204
    assert http.get("/cluster-name") == {"name": "billing"}
    address = pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].amqp_port)
    with pika.BlockingConnection(address) as connection:
        told = connection._impl.server_properties["cluster_name"]
    assert told == "local", "the name by which federation knows a cluster is the configuration's"
    for nameless in ("", 5):
        assert http("PUT", parameter, {"value": nameless}).status == 204
        assert http.get("/cluster-name") == {"name": "local"}
    assert http("DELETE", parameter).status == 204
    assert http.get("/cluster-name") == {"name": "local"}
