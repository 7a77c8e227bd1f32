"""What programs read of the HTTP API and stumbled over: each is named in its test."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from live.conftest import eventually
from live.http_client import HttpClient, api_address, http_client
from live.load import connect
from warren.local import LocalCluster

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"management": {"enabled": True, "tcp": {"port": 0}}}
    with LocalCluster(nodes=1, settings=settings) as made:
        yield made


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


def test_nservicebus_finds_the_flags_and_the_delivery_limit(http: HttpClient) -> None:
    flags = {one["name"]: one for one in http.get("/feature-flags")}
    assert {"quorum_queue", "stream_queue", "khepri_db", "rabbitmq_4.3.0"} <= set(flags)
    assert {one["state"] for one in flags.values()} == {"enabled"}
    assert http("PUT", "/feature-flags/khepri_db/enable", {}).status == 204
    assert http("PUT", "/feature-flags/nope/enable", {}).status == 400
    for name, given, limit in (("own", 5, 5), ("none", -1, "unlimited"), ("default", None, 20)):
        arguments: dict[str, Any] = {"x-queue-type": "quorum"}
        arguments |= {} if given is None else {"x-delivery-limit": given}
        body = {"durable": True, "arguments": arguments}
        assert http("PUT", f"/queues/%2F/limit-{name}", body).status == 201
        assert http.get(f"/queues/%2F/limit-{name}")["delivery_limit"] == limit
    stream = {"durable": True, "arguments": {"x-queue-type": "stream"}}
    refused = http("PUT", "/queues/%2F/s", stream)
    assert refused.status == 400 and "stream" in refused.body["reason"]


def test_telegraf_decodes_the_memory_of_each_node(http: HttpClient) -> None:
    [node] = http.get("/nodes")
    memory = http.get(f"/nodes/{node['name']}/memory")["memory"]
    total = memory.pop("total")
    assert memory.pop("strategy") == "rss" and all(isinstance(one, int) for one in memory.values())
    assert sum(memory.values()) == total["rss"] > 1 << 20
    assert http.get(f"/nodes/{node['name']}/memory/relative")["memory"]["total"] == 100


def test_bindings_and_consumers_are_lists_also_with_a_page(http: HttpClient) -> None:
    for path in ("bindings", "bindings/%2F", "consumers", "consumers/%2F", "permissions", "nodes"):
        assert isinstance(http.get(f"/{path}?page=1"), list), path
    for path in ("queues", "queues/%2F", "exchanges", "connections", "channels", "users"):
        assert http.get(f"/{path}?page=1")["page"] == 1, path


def test_definitions_of_an_unknown_vhost_are_a_bad_request(http: HttpClient) -> None:
    refused = http("GET", "/definitions/nope")
    assert (refused.status, refused.body["reason"]) == (400, "vhost_not_found")


def test_bytes_of_messages_are_shown_wherever_the_messages_are(
    cluster: LocalCluster, http: HttpClient
) -> None:
    arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-delayed-retry-type": "all"}
    arguments |= {"x-delayed-retry-min": 600_000}
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("sized", durable=True, arguments=arguments)
        for _ in range(5):
            channel.basic_publish("", "sized", b"x" * 100)
        held = [channel.basic_get("sized")[0].delivery_tag for _ in range(3)]

        def sizes() -> tuple[int, ...]:
            shown = http.get("/queues/%2F/sized")
            names = "message_bytes", "message_bytes_ready", "message_bytes_unacknowledged"
            return tuple(shown[name] for name in names)

        each = eventually(lambda: sizes()[1], "its leader has counted them") // 2
        assert each >= 100 and sizes() == (5 * each, 2 * each, 3 * each)
        channel.basic_nack(held[0])  # waits for its next delivery
        eventually(lambda: sizes()[2] == 2 * each, "one is delayed")
        assert sizes()[0] == 5 * each
        channel.basic_ack(held[2], multiple=True)
        eventually(lambda: sizes() == (3 * each, 2 * each, 0), "two are gone")
        assert http.get("/queues/%2F/sized")["delayed_retry"].startswith("all (min: 600000ms")


class Unfollowed(urllib.request.HTTPRedirectHandler):
    """Follows no redirection."""

    def redirect_request(self, *args: object, **more: object) -> None:
        """Leave it to the caller."""


def posted_form(cluster: LocalCluster, path: str, **fields: str) -> tuple[int, str, str]:
    """Status, location and body of what a form is answered, as rabbitmqadmin and pages send it."""
    parts = "".join(
        f'--XX\r\nContent-Disposition: form-data; name="{name}"; filename="{name}.json"\r\n'
        f"Content-Type: application/json\r\n\r\n{value}\r\n"
        for name, value in fields.items()
    )
    request = urllib.request.Request(
        f"http://{api_address(cluster, 0)}/api{path}",
        method="POST",
        data=f"{parts}--XX--\r\n".encode(),
        headers={
            "authorization": f"Basic {b64encode(b'guest:guest').decode()}",
            "content-type": "multipart/form-data; boundary=XX",
        },
    )
    try:
        with urllib.request.build_opener(Unfollowed).open(request) as answer:
            return answer.status, answer.headers.get("location", ""), answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.headers.get("location", ""), refused.read().decode()


def test_definitions_are_uploaded_by_a_form(cluster: LocalCluster, http: HttpClient) -> None:
    given = json.dumps({"vhosts": [{"name": "by-form"}]})
    assert posted_form(cluster, "/definitions", file=given)[0] == 204
    assert http.get("/vhosts/by-form")["name"] == "by-form"
    there = {"configure": ".*", "write": ".*", "read": ".*"}
    assert there.items() <= http.get("/permissions/by-form/guest").items(), "as PUT gives them"
    answered = posted_form(cluster, "/definitions", file=given, redirect="../#/done")
    assert answered[:2] == (303, "../#/done")
    for elsewhere in ("https://example.org/", "//example.org/"):
        assert posted_form(cluster, "/definitions", file=given, redirect=elsewhere)[0] == 204
    queue = {"name": "formed", "durable": True, "auto_delete": False, "arguments": {}}
    document = json.dumps({"queues": [queue]})
    assert posted_form(cluster, "/definitions/by-form", file=document)[0] == 204
    assert http.get("/queues/by-form/formed")["durable"] is True
    for wrong in ({"other": given}, {"file": "{nope"}, {f"f{i}": "1" for i in range(99)}):
        status, _, body = posted_form(cluster, "/definitions", **wrong)
        assert status == 400 and json.loads(body)["error"] == "bad_request", wrong


def test_channels_show_what_waits_and_connections_their_tls(
    cluster: LocalCluster, http: HttpClient
) -> None:
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.queue_declare("waiting", durable=True)
        channel.tx_select()
        for _ in range(3):
            channel.basic_publish("", "waiting", b"later")

        def shown() -> tuple[int, int, int]:
            [found] = http.get("/channels")
            names = "messages_uncommitted", "acks_uncommitted", "messages_unconfirmed"
            uncommitted, acks, unconfirmed = (found[name] for name in names)
            return uncommitted, acks, unconfirmed

        eventually(lambda: shown() == (3, 0, 0), "three wait for the commit")
        channel.tx_commit()
        channel.basic_ack(channel.basic_get("waiting")[0].delivery_tag)
        eventually(lambda: shown() == (0, 1, 0), "the acknowledgement waits")
        [found] = http.get("/connections")
        assert found["user_who_performed_action"] == found["user"] == "guest"
        tls = ("ssl_protocol", "ssl_cipher", "ssl_hash", "peer_cert_subject")
        assert [found[key] for key in tls] == ["", "", "", ""], "as in RabbitMQ 4.3"


def test_keda_reads_lengths_and_rates_of_queues(cluster: LocalCluster, http: HttpClient) -> None:
    """Its scaler decodes numbers by these keys; a pattern takes pages of a hundred."""
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in ("keda-1", "keda-2"):
            channel.queue_declare(name, durable=True)
            for _ in range(3):
                channel.basic_publish("", name, b"x")
        channel.basic_get("keda-1")

        def lengths(queue: Any) -> tuple[Any, ...]:
            rate = queue.get("message_stats", {}).get("publish_details", {}).get("rate")
            assert rate is None or isinstance(rate, float)
            return queue["name"], queue["messages"], queue["messages_unacknowledged"]

        eventually(
            lambda: lengths(http.get("/queues/%2F/keda-1")) == ("keda-1", 3, 1), "one is held"
        )
        query = "page=1&use_regex=true&pagination=false&name=%5Ekeda-&page_size=100"
        found = http.get(f"/queues/%2F?{query}")
        assert found["page_count"] == 1
        assert sorted(map(lengths, found["items"])) == [("keda-1", 3, 1), ("keda-2", 3, 0)]
        assert len(http.get(f"/queues?{query}")["items"]) == 2, "of all vhosts"


def test_an_exporter_finds_its_numbers(cluster: LocalCluster, http: HttpClient) -> None:
    """kbudde's rabbitmq_exporter: these keys of lists; `memory` of a queue there is none."""
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.queue_declare("exported", durable=True)
        channel.basic_publish("", "exported", b"x")
        channel.basic_ack(channel.basic_get("exported")[0].delivery_tag)
        eventually(
            lambda: "message_stats" in http.get("/queues/%2F/exported"), "it has been counted"
        )
        queue = next(one for one in http.get("/queues") if one["name"] == "exported")
        parts = ("", "_ready", "_unacknowledged", "_ram", "_persistent")
        wanted = [f"{of}{part}" for of in ("messages", "message_bytes") for part in parts]
        wanted += ["messages_ready_ram", "messages_unacknowledged_ram", "consumers"]
        wanted += ["consumer_utilisation"]
        assert all(isinstance(queue[key], int | float) for key in wanted)
        stats = ("publish", "deliver", "deliver_no_ack", "deliver_get", "redeliver", "get", "ack")
        assert all(isinstance(queue["message_stats"][key], int) for key in stats)
        assert isinstance(queue["durable"], bool) and queue["policy"] is None
        [node] = http.get("/nodes")
        for key in (
            *("mem_used", "mem_limit", "disk_free", "disk_free_limit", "fd_used", "fd_total"),
            *("sockets_used", "sockets_total", "uptime"),
        ):
            assert isinstance(node[key], int), key
        assert {node["mem_alarm"], node["disk_free_alarm"]} == {False} and node["partitions"] == []
        totals = http.get("/overview")
        assert totals["object_totals"].keys() == {
            *("channels", "connections", "consumers", "exchanges", "queues")
        }
        assert {"messages", "messages_ready", "messages_unacknowledged"} <= totals[
            "queue_totals"
        ].keys()
        [connected] = http.get("/connections")
        for key in ("channels", "recv_oct", "send_oct", "recv_cnt", "send_cnt", "send_pend"):
            assert isinstance(connected[key], int), key
