"""The keys of the HTTP API's answers beside RabbitMQ's: what is missing has its reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from live.conftest import eventually
from live.http_client import add_user, http_client
from live.http_keys import Place, looked, scene
from live.load import connect
from live.test_tls import TlsBroker
from tools.http_keys import REASONS, reason_of, recorded
from warren.local import LocalCluster

pytestmark = pytest.mark.live
SETTINGS = {
    "enabled": True,
    "tcp": {"port": 0},
    "collect_statistics_interval": 500,
    "rates_mode": "detailed",
}


def test_every_key_that_is_missing_has_a_reason(tmp_path: Path) -> None:
    tls = {"verify": "verify_peer", "fail_if_no_peer_cert": True}
    with TlsBroker(tmp_path, {"management": SETTINGS}, **tls) as broker:
        http, client = http_client(broker.cluster), broker.authority.issue("client")
        with scene(Place(http, broker.plain_port, broker.port, broker.authority.cert, client)):
            found = looked(http)
    wrong, used = [], set()
    for answer, paths in recorded().items():
        here = set(found[answer])
        for path in paths:
            rule = reason_of(answer, path)
            if path not in here:
                used.add(rule)
            if rule is None and path not in here:
                wrong.append(f"{answer}: {path} is missing")
    assert not wrong, "\n".join([f"{len(wrong)} without a reason:", *wrong])
    assert used - {None} == REASONS.keys(), "explains nothing any more: remove it"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, settings={"management": SETTINGS}) as made:
        yield made


def test_a_queue_has_priorities_a_head_and_preferred_consumers(cluster: LocalCluster) -> None:
    http = http_client(cluster, 1)
    quorum = {"x-queue-type": "quorum"}
    for name, more in (("said", {}), ("single", {"x-single-active-consumer": True})):
        given = {"durable": True, "arguments": {**quorum, **more}}
        assert http("PUT", f"/queues/%2F/{name}", given).status == 201
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for priority in (0, 5, 5):
            about = pika.BasicProperties(priority=priority, timestamp=1_700_000_000 + priority)
            channel.basic_publish("", "said", b"12345", about)
        channel.basic_nack(channel.basic_get("said")[0].delivery_tag)
        eventually(lambda: http.get("/queues/%2F/said")["messages_ready_returned"] == 1, "one back")
        found = http.get("/queues/%2F/said")
        assert found["messages_by_priority"] == {"0": 1, "5": 1}, "the returned one is apart"
        assert found["messages_active_priorities"] == 2
        assert found["messages_persistent"] == found["messages"] == 3
        assert found["message_bytes_persistent"] == found["message_bytes"] >= 15
        assert found["head_message_timestamp"] == 1_700_000_005
        assert (found["consumer_utilisation"], found["single_active_consumer_tag"]) == (0, None)
        for queue, tag in (("single", "first"), ("single", "second"), ("said", "takes")):
            channel.basic_consume(queue, lambda *given: None, consumer_tag=tag)

        def preferred() -> bool:
            return bool(http.get("/queues/%2F/single")["single_active_consumer_tag"] == "first")

        eventually(preferred, "the first one is active")
        listed = {one["name"]: one for one in http.get("/queues/detailed")}
        assert listed["single"]["single_active_consumer_tag"] == "first"
        assert listed["said"]["single_active_consumer_tag"] is None
        eventually(lambda: http.get("/queues/%2F/said")["consumer_utilisation"] > 0, "all is held")
        assert http.get("/queues/%2F/said")["head_message_timestamp"] is None
    eventually(lambda: "idle_since" in http.get("/queues/%2F/said"), "nothing changes")


def test_each_member_says_how_far_its_log_is(cluster: LocalCluster) -> None:
    http = http_client(cluster, 2)
    quorum = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    assert http("PUT", "/queues/%2F/logged", quorum).status == 201
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(5):
            channel.basic_publish("", "logged", b"x")

    def levels() -> list[dict[str, Any]]:
        return http.get("/queues/quorum/%2F/logged/status")

    def level() -> bool:
        ends = {(one["Last Log Index"], one["Last Written"], one["Term"]) for one in levels()}
        return len(ends) == 1 and ends.pop()[0] > 5

    eventually(level, "all members are equal")
    found = levels()
    assert sorted(one["Node Name"] for one in found) == ["node-0", "node-1", "node-2"]
    assert sorted(one["Raft State"] for one in found) == ["follower", "follower", "leader"]
    assert {one["Membership"] for one in found} == {"voter"}
    assert {one["Snapshot Index"] for one in found} == {-1}
    assert http("GET", "/queues/quorum/%2F/none/status").status == 404
    own = http.get("/queues/%2F/logged/members")
    assert own["leader"] in ("node-0", "node-1", "node-2") and len(own["members"]) == 3


def test_each_node_says_its_files_and_ports(cluster: LocalCluster) -> None:
    found = {one["name"]: one for one in http_client(cluster).get("/nodes")}
    assert len({one["db_dir"] for one in found.values()}) == 3
    for name, one in found.items():
        assert one["config_files"][0].endswith(f"{name}/warren.toml")
        assert one["contexts"][0]["node"] == name and one["io_sync_count"] > 0
        assert one["applications"][0]["name"] == "warren"
    assert "rabbitmq_management" in found["node-1"]["enabled_plugins"]
    totals = add_user(http_client(cluster), "looks", "management").get("/overview")
    assert "contexts" not in totals, "files and ports of nodes are for those that monitor"
