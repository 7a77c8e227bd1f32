"""RabbitMQ's HTTP API on a cluster: what is made over HTTP is seen elsewhere, and the reverse."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from live.conftest import eventually
from live.http_client import SETTINGS, HttpClient, add_user, http_client, quoted
from warren.admin import Admin
from warren.local import LocalCluster
from warren_wire.amqp091.fields import DEPTH_MAX, Timestamp
from warren_wire.sessions.pika_properties import MessageProperties

pytestmark = pytest.mark.live
NODES = {"node-0", "node-1", "node-2"}
ROOT = quoted("/")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, settings=SETTINGS) as made:
        yield made


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with cluster.connect() as connection:
        yield Admin(connection)


def connect(cluster: LocalCluster, node: int = 0) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", cluster.nodes[node].amqp_port)
    )


# ------------------------------------------------------------------ the cluster


def test_overview_nodes_and_name(cluster: LocalCluster, http: HttpClient) -> None:
    overview = http.get("/overview")
    assert overview["product_name"] == "Warren"
    assert overview["cluster_name"] == http.get("/cluster-name")["name"] == "local"
    assert overview["node"] == "node-0"
    assert overview["object_totals"]["exchanges"] >= 7
    assert {"messages", "messages_ready", "messages_unacknowledged"} < set(overview["queue_totals"])
    listening = {one["protocol"]: one["port"] for one in overview["listeners"]}
    assert listening["amqp"] == cluster.nodes[0].amqp_port
    assert {"amqp", "clustering", "http"} == set(listening)
    assert {one["name"] for one in http.get("/nodes")} == NODES
    one = http.get("/nodes/node-1")
    assert (one["name"], one["running"], one["being_drained"]) == ("node-1", True, False)
    assert not one["mem_alarm"] and not one["disk_free_alarm"]
    assert http("GET", "/nodes/nowhere").status == 404
    assert http.get("/extensions") == []


def test_every_node_answers(cluster: LocalCluster) -> None:
    http_client(cluster, 0)("PUT", f"/queues/{ROOT}/everywhere", {})
    for node in range(3):
        http = http_client(cluster, node)
        assert http.get("/overview")["node"] == f"node-{node}"
        found = eventually(lambda http=http: http.get(f"/queues/{ROOT}"), "the queue is known")
        assert "everywhere" in {one["name"] for one in found}


# ------------------------------------------------------------------ queues


def test_a_queue_is_made_shown_and_deleted(
    cluster: LocalCluster, http: HttpClient, admin: Admin
) -> None:
    path = f"/queues/{ROOT}/made"
    given = {"durable": "true", "auto_delete": False, "arguments": {"x-max-length": 10}}
    assert http("PUT", path, given).status == 201
    assert http("PUT", path, {**given, "node": None}).status == 204
    known = admin.queues.get("made")
    assert (known.type, known.arguments["x-max-length"]) == ("classic", 10)
    with connect(cluster, 1) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("", "made", b"abc")
    shown = http.get(path)
    assert (shown["name"], shown["vhost"], shown["type"]) == ("made", "/", "classic")
    assert shown["arguments"] == {"x-max-length": 10}
    assert set(shown["members"]) == set(shown["online"]) == NODES
    assert shown["node"] == shown["leader"] and shown["state"] == "running"
    assert (shown["messages"], shown["messages_ready"], shown["consumers"]) == (3, 3, 0)
    assert shown["policy"] is None and shown["effective_policy_definition"] == {}
    listed = {one["name"]: one for one in http.get("/queues")}
    assert listed["made"]["messages"] == 3

    refused = http("DELETE", f"{path}?if-empty=true")
    assert refused.status == 400 and "not empty" in refused.body["reason"]
    assert http("DELETE", f"{path}/contents").status == 204
    assert admin.queues.get("made").messages == 0
    assert http("DELETE", f"{path}?if-empty=true").status == 204
    assert http("DELETE", path).status == http("GET", path).status == 404
    assert http("GET", path).body == {"error": "Object Not Found", "reason": "Not Found"}


def test_a_declaration_that_differs_is_refused_with_rabbitmqs_text(http: HttpClient) -> None:
    path = f"/queues/{ROOT}/different"
    assert http("PUT", path, {}).status == 201
    refused = http("PUT", path, {"arguments": {"x-max-length": 1}})
    assert (refused.status, refused.body["error"]) == (400, "bad_request")
    assert refused.body["reason"].startswith(
        "inequivalent arg 'x-max-length' for queue 'different' in vhost '/'"
    )
    assert http("PUT", f"/queues/{ROOT}/other", {"arguments": {"x-max-length": -1}}).status == 400
    assert http("PUT", f"/queues/{ROOT}/other", {"arguments": [1]}).status == 400
    assert http("PUT", f"/queues/{ROOT}/other", {"durable": "perhaps"}).status == 400


def test_names_are_percent_encoded(http: HttpClient, admin: Admin) -> None:
    name = "a/b c%2F ü ../.."
    assert http("PUT", f"/vhosts/{quoted('my/vhost')}", {}).status == 201
    path = f"/queues/{quoted('my/vhost')}/{quoted(name)}"
    assert http("PUT", path, {}).status == 201
    assert http.get(path)["name"] == name
    assert [one["vhost"] for one in http.get(f"/queues/{quoted('my/vhost')}")] == ["my/vhost"]
    assert http("DELETE", f"/vhosts/{quoted('my/vhost')}").status == 204
    assert http("GET", path).status == 404
    assert "my/vhost" not in {one.name for one in admin.vhosts.list()}


def test_lists_are_paged_sorted_and_cut(http: HttpClient) -> None:
    assert http("PUT", "/vhosts/pages", {}).status == 201
    for number in range(12):
        assert http("PUT", f"/queues/pages/q{number:02}", {}).status == 201
    page = http.get("/queues/pages?page=2&page_size=5&columns=name,arguments")
    assert page.pop("items") == [{"name": f"q{n:02}", "arguments": {}} for n in range(5, 10)]
    assert page == {
        "total_count": 12,
        "item_count": 5,
        "filtered_count": 12,
        "page": 2,
        "page_size": 5,
        "page_count": 3,
    }
    page = http.get("/queues/pages?page=1&name=Q0&sort=name&sort_reverse=true")
    assert [one["name"] for one in page["items"]] == [f"q{n:02}" for n in range(9, -1, -1)]
    assert page["items"][0]["messages"] == 0, "the page's queues are counted"
    page = http.get("/queues/pages?page=1&name=q.[13]&use_regex=true")
    assert [one["name"] for one in page["items"]] == ["q01", "q03", "q11"]
    plain = http.get("/queues/pages?disable_stats=true")
    assert len(plain) == 12 and "messages" not in plain[0]
    for query in (
        "page=0",
        "page=a",
        "page=1&page_size=501",
        "page=9",
        "page=1&name=(&use_regex=true",
    ):
        assert http("GET", f"/queues/pages?{query}").status == 400, query
    http("DELETE", "/vhosts/pages")


# ------------------------------------------------------------------ exchanges, bindings


def test_exchanges_and_bindings(http: HttpClient, admin: Admin) -> None:
    assert http("PUT", f"/exchanges/{ROOT}/x", {"type": "topic", "durable": True}).status == 201
    assert http("PUT", f"/exchanges/{ROOT}/x", {"type": "topic", "durable": True}).status == 204
    assert http("PUT", f"/exchanges/{ROOT}/x", {"type": "fanout"}).status == 400
    assert http("PUT", f"/exchanges/{ROOT}/y", {"type": "fanout"}).status == 201
    shown = http.get(f"/exchanges/{ROOT}/x")
    assert shown == {
        "name": "x",
        "vhost": "/",
        "type": "topic",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
        "policy": None,
        "incoming": [],
        "outgoing": [],
    }
    assert http("PUT", f"/queues/{ROOT}/bound", {}).status == 201
    between = f"/bindings/{ROOT}/e/x/q/bound"
    made = http("POST", between, {"routing_key": "a.#", "arguments": {"k": "v"}})
    assert made.status == 201
    assert http("POST", between, {"routing_key": "", "arguments": {}}).status == 201
    assert http("POST", f"/bindings/{ROOT}/e/x/e/y", {"routing_key": "k"}).status == 201
    assert {one["binding_key"] for one in admin.bindings.list(source="x", queue="bound")} == {
        "",
        "a.#",
    }

    found = http.get(between)
    keys = {one["routing_key"]: one["properties_key"] for one in found}
    assert keys[""] == "~"
    location = made.headers["location"]
    assert location == f"bound/{quoted(keys['a.#'])}", "relative, as from RabbitMQ"
    path = f"{between.rpartition('/')[0]}/{location}"
    assert http.get(path)["arguments"] == {"k": "v"}
    of_queue = http.get(f"/queues/{ROOT}/bound/bindings")
    assert {one["source"] for one in of_queue} == {"", "x"}
    assert len(http.get(f"/exchanges/{ROOT}/x/bindings/source")) == 3
    assert [one["source"] for one in http.get(f"/exchanges/{ROOT}/y/bindings/destination")] == ["x"]
    assert http.get(f"/bindings/{ROOT}") == http.get("/bindings")

    assert http("DELETE", path).status == 204
    assert http("DELETE", path).status == http("GET", path).status == 404
    assert http("DELETE", f"{between}/~").status == 204
    assert http("POST", f"/bindings/{ROOT}/e/x/q/none", {}).status == 404
    assert http("POST", f"/bindings/{ROOT}/e/x/z/bound", {}).status == 404
    refused = http("DELETE", f"/exchanges/{ROOT}/x?if-unused=true")
    assert refused.status == 400 and "in use" in refused.body["reason"]
    assert http("DELETE", f"/exchanges/{ROOT}/x").status == 204
    assert http("GET", f"/exchanges/{ROOT}/x").status == 404
    assert http.get(f"/exchanges/{ROOT}/amq.default")["name"] == ""
    assert http("DELETE", f"/exchanges/{ROOT}/amq.direct").status == 401


# ------------------------------------------------------------------ messages


def publish(http: HttpClient, exchange: str, key: str, **fields: Any) -> Any:
    body = {"properties": {}, "routing_key": key, "payload": "p", "payload_encoding": "string"}
    return http("POST", f"/exchanges/{ROOT}/{exchange}/publish", {**body, **fields})


def test_messages_are_published_and_taken(cluster: LocalCluster, http: HttpClient) -> None:
    assert http("PUT", f"/queues/{ROOT}/taken", {}).status == 201
    properties: dict[str, Any] = {
        "delivery_mode": 2,
        "content_type": "text/plain",
        "headers": {"h": 1, "list": [True, "x"]},
        "priority": 9,
        "timestamp": 1_700_000_000,
    }
    routed = publish(http, "amq.default", "taken", payload="grüße", properties=properties)
    assert (routed.status, routed.body) == (200, {"routed": True})
    raw = base64.b64encode(b"\xff\x00").decode()
    assert publish(http, "amq.default", "taken", payload=raw, payload_encoding="base64").body == {
        "routed": True
    }
    assert publish(http, "amq.default", "nowhere").body == {"routed": False}
    with connect(cluster, 2) as connection:
        method, found, body = connection.channel().basic_get("taken")
        assert (method.routing_key, body.decode()) == ("taken", "grüße")
        assert (found.headers, found.priority) == (properties["headers"], 9)

    path = f"/queues/{ROOT}/taken/get"
    looked = http("POST", path, {"count": "5", "ackmode": "ack_requeue_true", "encoding": "auto"})
    first, second = looked.body
    assert (first["payload"], first["payload_encoding"], first["payload_bytes"]) == (
        "grüße",
        "string",
        len("grüße".encode()),
    )
    counts = {"x-acquired-count": 1, "x-delivery-count": 1}
    headers = {**properties["headers"], **counts}
    assert first["properties"] == {**properties, "headers": headers} and first["redelivered"]
    assert (second["payload"], second["payload_encoding"]) == (raw, "base64")
    assert (second["exchange"], second["routing_key"], second["message_count"]) == ("", "taken", 0)
    cut = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "base64", "truncate": 2}
    (one,) = http("POST", path, cut).body
    assert base64.b64decode(one["payload"]) == b"gr"
    http("POST", path, {"count": 1, "ackmode": "reject_requeue_false", "encoding": "auto"})
    assert http("POST", path, {**cut, "ackmode": "ack_requeue_true"}).body == []


def test_a_message_with_any_header_is_shown_and_not_lost(
    cluster: LocalCluster, http: HttpClient
) -> None:
    """pika cannot read a late date: the message was taken, and the answer was 503."""
    assert http("PUT", f"/queues/{ROOT}/typed", {}).status == 201
    headers = {
        "late": Timestamp((1 << 64) - 1),
        "half": 2.5,
        "list": [0.5, math.inf, {"\udcff": b"\xff"}],
    }
    with connect(cluster, 2) as connection:
        properties = MessageProperties(headers=headers, message_id="\udcffid")
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "typed", b"typed", properties)
    take = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (one,) = http("POST", f"/queues/{ROOT}/typed/get", take).body
    assert one["payload"] == "typed"
    assert one["properties"] == {
        "message_id": "\\xffid",
        "headers": {
            "late": (1 << 64) - 1,
            "half": 2.5,
            "list": [0.5, "inf", {"\\xff": "\\xff"}],
        },
    }


def test_headers_of_a_message_that_is_published_keep_their_values(
    cluster: LocalCluster, http: HttpClient
) -> None:
    """pika has no floats: they were refused; whole numbers of more than 64 bits were a 500."""
    assert http("PUT", f"/queues/{ROOT}/kept", {}).status == 201
    headers = {"half": 2.5, "list": [0.5, None, {"n": -(1 << 63)}], "text": "ж"}
    routed = publish(http, "amq.default", "kept", properties={"headers": headers})
    assert (routed.status, routed.body) == (200, {"routed": True})
    take = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (one,) = http("POST", f"/queues/{ROOT}/kept/get", take).body
    assert one["properties"]["headers"] == headers
    for refused in (
        {"headers": {"n": [1 << 63]}},
        {"headers": {"d": {"n": -(1 << 63) - 1}}},
        {"headers": {"ж" * 128: 1}},
        {"headers": {"list": [{"k" * 256: 1}]}},
        {"message_id": "ж" * 128},
        {"headers": {"deep": nested(DEPTH_MAX + 1)}},
        {"headers": {"deep": nested(900)}},  # it was a 500: Python's limit is 1,000 calls
    ):
        assert publish(http, "amq.default", "kept", properties=refused).status == 400, refused
    deepest = {"headers": {"deep": nested(DEPTH_MAX)}}
    assert publish(http, "amq.default", "kept", properties=deepest).status == 200


def nested(depth: int) -> list[Any]:
    """Lists inside of one another."""
    made: list[Any] = []
    for _ in range(depth - 1):
        made = [made]
    return made


def test_wrong_requests_for_messages_are_refused(http: HttpClient) -> None:
    assert http("PUT", f"/queues/{ROOT}/strict", {}).status == 201
    path = f"/queues/{ROOT}/strict/get"
    for body in (
        {},
        {"count": 1},
        {"count": 1, "ackmode": "ack_requeue_true"},
        {"count": 1, "ackmode": "maybe", "encoding": "auto"},
        {"count": -1, "ackmode": "ack_requeue_true", "encoding": "auto"},
        {"count": 10**9, "ackmode": "ack_requeue_true", "encoding": "auto"},
        {"count": 1, "ackmode": "ack_requeue_true", "encoding": "hex"},
    ):
        assert http("POST", path, body).status == 400, body
    for fields in (
        {"payload": 5},
        {"payload_encoding": "rot13"},
        {"payload": "§", "payload_encoding": "base64"},
        {"properties": {"unknown": 1}},
        {"properties": {"priority": 256}},
        {"properties": {"headers": []}},
        {"properties": {"content_type": 1}},
        {"properties": {"expiration": "soon"}},
    ):
        assert publish(http, "amq.default", "strict", **fields).status == 400, fields
    assert publish(http, "none", "strict").status == 404
    assert http("POST", f"/queues/{ROOT}/none/get", {}).status == 404


# ------------------------------------------------------------------ users, vhosts, permissions


def test_users_vhosts_permissions_and_limits(http: HttpClient, admin: Admin) -> None:
    assert http("PUT", "/users/u", {"password": "secret", "tags": "monitoring,x"}).status == 201
    assert http("PUT", "/users/u", {"password": "other", "tags": ["management"]}).status == 204
    shown = http.get("/users/u")
    assert (shown["name"], shown["tags"], shown["limits"]) == ("u", ["management"], {})
    assert shown["hashing_algorithm"] == "rabbit_password_hashing_sha256"
    assert http.as_user("u:other").get("/whoami")["tags"] == ["management"]
    copied = {"password_hash": shown["password_hash"], "tags": ""}
    assert http("PUT", "/users/copy", copied).status == 201
    assert [one["name"] for one in http.get("/users/without-permissions")] == ["copy", "u"]

    assert http("PUT", "/vhosts/v", {"description": "d", "tags": "a,b"}).status == 201
    vhost = http.get("/vhosts/v")
    assert (vhost["description"], vhost["tags"], vhost["tracing"]) == ("d", ["a", "b"], False)
    assert set(vhost["cluster_state"]) == NODES
    patterns = {"configure": "^a", "write": "^b", "read": ".*"}
    assert http("PUT", "/permissions/v/u", patterns).status == 201
    assert http.get("/permissions/v/u") == {"user": "u", "vhost": "v", **patterns}
    assert http.get("/users/u/permissions") == [{"user": "u", "vhost": "v", **patterns}]
    assert len(http.get("/vhosts/v/permissions")) == 2, "the vhost's creator has all"
    assert http("PUT", "/permissions/v/u", {"configure": "("}).status == 400
    topic = {"exchange": "amq.topic", "write": "^k", "read": ""}
    assert http("PUT", "/topic-permissions/v/u", topic).status == 201
    assert http.get("/topic-permissions/v/u") == [{"user": "u", "vhost": "v", **topic}]
    assert http.get("/topic-permissions/v/u/amq.topic")["write"] == "^k"
    assert http("DELETE", "/topic-permissions/v/u/amq.topic").status == 204

    assert http("PUT", "/vhost-limits/v/max-queues", {"value": 3}).status == 204
    assert http.get("/vhost-limits/v") == [{"vhost": "v", "value": {"max-queues": 3}}]
    assert http("PUT", "/user-limits/u/max-channels", {"value": 2}).status == 204
    assert http.get("/users/u")["limits"] == {"max-channels": 2}
    assert http("DELETE", "/user-limits/u/max-channels").status == 204
    assert http("PUT", "/vhost-limits/v/max-nothing", {"value": 3}).status == 400

    assert http("DELETE", "/permissions/v/u").status == 204
    assert http("GET", "/permissions/v/u").status == 404
    guard, flag = "/vhosts/v/deletion/protection", "protected_from_deletion"
    assert not http.get("/vhosts/v")[flag] and flag not in http.get("/vhosts/v")["metadata"]
    assert http("POST", guard).status == 204
    shown = http.get("/vhosts/v")
    assert shown[flag] is True and shown["metadata"][flag] is True
    refused = http("DELETE", "/vhosts/v")
    assert refused.status == 412 and refused.body["error"] == "precondition_failed"
    assert "because it is protected from deletion" in refused.body["reason"]
    assert http("DELETE", guard).status == 204
    assert http.get("/vhosts/v")["metadata"][flag] is False
    assert http("DELETE", "/vhosts/v").status == 204
    assert http("POST", "/users/bulk-delete", {"users": ["u", "copy"]}).status == 204
    assert {"u", "copy"}.isdisjoint(one.name for one in admin.users.list())
    refused = http("DELETE", "/users/guest")
    assert refused.status == 400 and "administrator" in refused.body["reason"]


def test_what_each_tag_may_see_and_do(http: HttpClient) -> None:
    assert http("PUT", "/vhosts/theirs", {}).status == 201
    assert http("PUT", "/queues/theirs/q", {}).status == 201
    plain = add_user(http, "tagless", "")
    assert plain("GET", "/whoami").status == 401
    assert plain("GET", "/whoami").body["reason"] == "Not management user"
    user = add_user(http, "manager", "management")
    assert user("PUT", f"/queues/{ROOT}/of-manager", {}).status == 201
    assert user("GET", "/queues/theirs").status == user("GET", "/queues/theirs/q").status == 404
    assert {one["vhost"] for one in user.get("/queues")} == {"/"}
    for path in ("/users", "/permissions", "/policies", "/definitions", "/nodes"):
        assert user("GET", path).status == 401, path
    assert "listeners" not in user.get("/overview")
    watcher = add_user(http, "watcher", "monitoring", None)
    assert "theirs" in {one["name"] for one in watcher.get("/vhosts")}
    assert (
        watcher("GET", "/queues/theirs/q").status == watcher("GET", "/queues/theirs").status == 404
    )
    assert watcher.get("/queues") == [] and watcher.get("/overview")["listeners"]
    assert watcher("PUT", "/queues/theirs/r", {}).status == 404
    assert len(watcher.get("/nodes")) == 3
    maker = add_user(http, "maker", "policymaker")
    policy = {"pattern": "^x", "definition": {"max-length": 1}}
    assert maker("PUT", f"/policies/{ROOT}/by-maker", policy).status == 201
    assert maker("PUT", f"/operator-policies/{ROOT}/by-maker", policy).status == 401
    http("DELETE", f"/policies/{ROOT}/by-maker")
    chief = add_user(http, "chief", "administrator", None)
    assert chief.get("/queues/theirs/q")["name"] == "q"
    refused = chief("PUT", "/queues/theirs/r", {})
    assert (refused.status, refused.body["error"]) == (401, "not_authorised")
    reader = add_user(http, "reader", "management")
    none = {"configure": "", "write": "", "read": "^may"}
    assert http("PUT", f"/permissions/{ROOT}/reader", none).status == 204
    assert http("PUT", f"/queues/{ROOT}/may-read", {}).status == 201
    look = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert reader("POST", f"/queues/{ROOT}/may-read/get", look).status == 200
    assert reader("POST", f"/queues/{ROOT}/of-manager/get", look).status == 401
    assert reader("DELETE", f"/queues/{ROOT}/may-read").status == 401
    assert publish(reader, "amq.default", "may-read").status == 401
    http("DELETE", "/vhosts/theirs")


def test_credentials(http: HttpClient) -> None:
    for login in ("guest:wrong", "nobody:x", ":", "guest:" + "x" * 9000):
        refused = http.as_user(login)("GET", "/queues")
        assert (refused.status, refused.body["error"]) == (401, "not_authorized"), login
        assert refused.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'
    assert http.as_user("")("GET", "/overview").status == 401


# ------------------------------------------------------------------ policies, parameters


def test_policies_parameters_and_links(http: HttpClient, admin: Admin) -> None:
    assert http("PUT", f"/queues/{ROOT}/limited", {}).status == 201
    policy = {"pattern": "^lim", "definition": {"max-length": 9}, "apply-to": "queues"}
    assert http("PUT", f"/policies/{ROOT}/p", {**policy, "priority": 2}).status == 201
    shown = {"vhost": "/", "name": "p", **policy, "priority": 2}
    assert http.get(f"/policies/{ROOT}/p") == shown
    assert http.get(f"/policies/{ROOT}") == [shown]
    assert http.get(f"/queues/{ROOT}/limited")["policy"] == "p"
    assert admin.queues.get("limited").policy == "p"
    refused = http("PUT", f"/policies/{ROOT}/p", {**policy, "definition": {"max-length": -1}})
    assert refused.status == 400 and "Validation failed" in refused.body["reason"]
    operator = {"pattern": "^lim", "definition": {"max-length": 5}, "apply-to": "queues"}
    assert http("PUT", f"/operator-policies/{ROOT}/o", operator).status == 201
    limited = http.get(f"/queues/{ROOT}/limited")
    assert limited["effective_policy_definition"] == {"max-length": 5}
    assert limited["operator_policy"] == "o"
    assert http("DELETE", f"/operator-policies/{ROOT}/o").status == 204
    assert http("DELETE", f"/policies/{ROOT}/p").status == 204
    assert http("GET", f"/policies/{ROOT}/p").status == 404

    upstream = {"uri": "amqp://guest:guest@127.0.0.1:1"}
    path = f"/parameters/federation-upstream/{ROOT}/up"
    assert http("PUT", path, {"value": upstream, "component": "x"}).status == 201
    assert http("PUT", path, {}).status == 400
    assert http.get(path)["value"]["uri"].endswith("@127.0.0.1:1")
    assert len(http.get(f"/parameters/federation-upstream/{ROOT}")) == 1
    federated = {"pattern": "^limited$", "definition": {"federation-upstream": "up"}}
    assert http("PUT", f"/policies/{ROOT}/f", {**federated, "apply-to": "queues"}).status == 201
    (link,) = eventually(lambda: http.get(f"/federation-links/{ROOT}"), "the link is shown")
    assert (link["type"], link["queue"], link["upstream"]) == ("queue", "limited", "up")
    assert http("DELETE", f"/policies/{ROOT}/f").status == http("DELETE", path).status == 204
    assert http("DELETE", path).status == 404

    value = {
        "src-uri": "amqp://",
        "src-queue": "limited",
        "dest-uri": "amqp://",
        "dest-queue": "to",
    }
    assert http("PUT", f"/parameters/shovel/{ROOT}/s", {"value": value}).status == 201
    shovel = f"/shovels/vhost/{ROOT}/s"
    eventually(lambda: http.get(shovel)["state"] == "running", "the shovel runs")
    assert publish(http, "amq.default", "limited").body == {"routed": True}
    eventually(lambda: http.get(f"/queues/{ROOT}/to")["messages"] == 1, "it is moved")
    assert [one["name"] for one in http.get(f"/shovels/{ROOT}")] == ["s"]
    assert http("DELETE", f"{shovel}/restart").status == 204
    assert http("DELETE", shovel).status == 204
    assert http("GET", shovel).status == 404
    assert http("PUT", "/global-parameters/g", {"value": [1, {"a": None}]}).status == 201
    assert http.get("/global-parameters/g") == {"name": "g", "value": [1, {"a": None}]}
    assert http("DELETE", "/global-parameters/g").status == 204


def test_definitions(http: HttpClient, admin: Admin) -> None:
    assert http("PUT", f"/queues/{ROOT}/exported", {"arguments": {"x-max-length": 7}}).status == 201
    exported = http("GET", "/definitions?download=my%22file.json")
    assert exported.headers["content-disposition"] == 'attachment; filename="myfile.json"'
    mine = [one for one in exported.body["queues"] if one["name"] == "exported"]
    assert mine[0]["arguments"]["x-max-length"] == 7
    of_vhost = http.get(f"/definitions/{ROOT}")
    assert "exported" in {one["name"] for one in of_vhost["queues"]}
    assert http("DELETE", f"/queues/{ROOT}/exported").status == 204
    assert http("POST", "/definitions", {"queues": mine}).status == 204
    assert admin.queues.get("exported").arguments["x-max-length"] == 7
    strange = {"exchanges": [{"name": "e", "vhost": "/", "type": "x-unheard-of"}]}
    left = http("POST", "/definitions", strange)
    assert (left.status, left.body["not_honoured_count"]) == (200, 1)
    assert http("POST", "/definitions", b"[1]").status == 400
    assert http("POST", "/definitions/none", {"queues": []}).status == 404


# ------------------------------------------------------------------ health


def test_health_checks(cluster: LocalCluster, http: HttpClient) -> None:
    for check in (
        "alarms",
        "local-alarms",
        "virtual-hosts",
        "is-in-service",
        "ready-to-serve-clients",
        "node-is-quorum-critical",
        "metadata-store/initialized",
        "quorum-queues-without-elected-leaders/all-vhosts/",
        f"quorum-queues-without-elected-leaders/vhost/{ROOT}/",
        "protocol-listener/amqp091,http",
        f"port-listener/{cluster.nodes[0].amqp_port}",
    ):
        assert http.get(f"/health/checks/{check}")["status"] == "ok", check
    missing = http("GET", "/health/checks/port-listener/1")
    assert (missing.status, missing.body["status"], missing.body["missing"]) == (503, "failed", 1)
    missing = http("GET", "/health/checks/protocol-listener/mqtt")
    assert (missing.status, missing.body["missing"]) == (503, ["mqtt"])
    assert http("GET", "/health/checks/port-listener/amqp").status == 400


def test_an_administrator_changes_members_and_maintenance(
    cluster: LocalCluster, http: HttpClient, admin: Admin
) -> None:
    assert http("PUT", f"/queues/{ROOT}/members", {}).status == 201
    path = f"/queues/quorum/{ROOT}/members"
    members = f"/queues/{ROOT}/members/members"
    eventually(lambda: http.get(members)["settled"], "the members are there")
    assert http("DELETE", f"{path}/replicas/delete", {"node": "node-2"}).status == 204
    eventually(lambda: len(http.get(f"/queues/{ROOT}/members")["members"]) == 2, "one has left")
    assert http("POST", f"{path}/replicas/add", {"node": "node-2"}).status == 202
    eventually(lambda: http.get(members)["settled"], "it is back")
    other = http_client(cluster, 2)
    assert http("POST", "/nodes/node-2/drain").status in (200, 202)
    eventually(
        lambda: other("GET", "/health/checks/is-in-service").status == 503, "it is in maintenance"
    )
    assert http.get("/nodes/node-2")["being_drained"]
    assert http("POST", "/nodes/node-2/revive").status in (200, 202)
    eventually(lambda: other("GET", "/health/checks/is-in-service").status == 200, "it is back")
    assert http("POST", "/rebalance/queues").status == 204
