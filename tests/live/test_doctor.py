"""`warren health`, `warren doctor`, its bundle, `get` and `consume` on a cluster with faults."""

from __future__ import annotations

import json
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from typer.testing import CliRunner, Result

from live.conftest import eventually
from live.http_client import SETTINGS
from warren.admin import Admin
from warren.cli.app import app
from warren.connection import Connection
from warren.errors import NotFound, WarrenError
from warren.local import LocalCluster

pytestmark = pytest.mark.live
CLUSTER_SECRET = "the-secret-of-this-cluster"
PASSWORD = "the-password-of-ann"
LINK = "the-password-of-a-link"
STATIC = "the-password-of-a-static-shovel"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    static = {"src_uri": "amqp:///", "src_queue": "a", "dest_uri": f"amqp://b:{STATIC}@h/"}
    shovels = {"shovels": {"static": {**static, "dest_queue": "c"}}}
    with LocalCluster(nodes=3, settings={**SETTINGS, "secret": CLUSTER_SECRET, **shovels}) as made:
        yield made


def uri(cluster: LocalCluster) -> str:
    return f"amqp://guest:guest@{cluster.addresses[0]}/%2F"


def run(cluster: LocalCluster, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--uri", uri(cluster)])


def found(cluster: LocalCluster, command: str) -> set[tuple[str, str]]:
    """Check and level of what is found, but for what a busy machine's disk gives."""
    said = json.loads(run(cluster, command, "--json").stdout)
    return {(one["check"], one["level"]) for one in said if one["check"] != "disks"}


def test_a_good_cluster_has_no_findings(cluster: LocalCluster) -> None:
    assert found(cluster, "health") == set()
    assert run(cluster, "health").exit_code == 0
    assert "ok: nodes, alarms" in run(cluster, "health").stdout


def test_each_fault_is_found_with_its_remedy(cluster: LocalCluster) -> None:
    parameters = pika.URLParameters(uri(cluster))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        quorum = {"x-queue-type": "quorum"}
        two = {**quorum, "x-quorum-initial-group-size": 2}
        channel.queue_declare("two", durable=True, arguments=two)
        letters = {**quorum, "x-dead-letter-exchange": "", "x-delivery-limit": 5}
        channel.queue_declare("letters", durable=True, arguments=letters)
        timeout = {"x-consumer-timeout": 10_000}
        channel.queue_declare("short", durable=True, arguments={**quorum, **timeout})
        channel.basic_consume("two", lambda *_: None, consumer_tag="unlimited")
        channel.basic_qos(prefetch_count=50)
        channel.basic_consume("letters", lambda *_: None, consumer_tag="above")
        channel.basic_consume("short", lambda *_: None, consumer_tag="hasty")
        shown = eventually(
            lambda: (said := run(cluster, "doctor").stdout).count("hasty") and said, "consumers"
        )
    for text in (
        "prefetch: unlimited of two in /: its prefetch is unlimited",
        "prefetch: above of letters in /: its prefetch of 50 is above the queue's delivery limit",
        "timeouts: hasty of short in /: what it holds for 10,000 ms returns",
        "members: two in /: it has two members",
        "dead letters: letters in /: dead letters are published at most once",
    ):
        assert f"warning: {text}" in shown, (text, shown)
    assert shown.count("\n    ") >= 5  # a remedy below each
    assert found(cluster, "health") == set()


def test_the_bundle_has_no_secret(cluster: LocalCluster, tmp_path: Path) -> None:
    with Connection(uri(cluster)) as connection:
        admin = Admin(connection)
        admin.users.put("ann", password=PASSWORD)
        hashed = admin.users.get("ann").password_hash
        link = {"uri": f"amqp://u:{LINK}@h/"}
        admin.parameters.put("federation-upstream", "/", "up", link)
        admin.global_parameters.put("site", {"note": LINK})
    path = tmp_path / "bundle.zip"
    assert run(cluster, "doctor", "--bundle", str(path)).exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as bundle:
        files = {name: bundle.read(name).decode() for name in bundle.namelist()}
    for secret in (CLUSTER_SECRET, PASSWORD, hashed, LINK, STATIC, "guest:guest"):
        assert not [name for name, text in files.items() if secret in text], secret
    settings = json.loads(files["settings.json"])
    shown = {one["name"]: one["value"] for one in settings["node-0"]}
    assert shown["secret"] == "(hidden)" == shown["shovels.static.dest_uri"]
    assert "not_known" not in "".join(files.values())
    assert {"queues.json", "conditions.json", "findings.json"} <= set(files)
    assert "File exists" in str(run(cluster, "doctor", "--bundle", str(path)).exception)


def test_messages_are_taken_shown_and_returned(cluster: LocalCluster) -> None:
    with pika.BlockingConnection(pika.URLParameters(uri(cluster))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("taken", durable=True)
        for body in (b"one", b"\xff\xfe", b"three"):
            said = pika.BasicProperties(headers={"n": 1, "raw": b"x"}, type="t")
            channel.basic_publish("", "taken", body, said)
    first = json.loads(run(cluster, "get", "taken", "--count", "2", "--json").stdout)
    assert [(one["body"], one["encoding"]) for one in first] == [
        ("one", "utf-8"),
        ("//4=", "base64"),
    ]
    assert first[0]["properties"] == {"headers": {"n": 1, "raw": "x"}, "type": "t"}
    again = json.loads(run(cluster, "get", "taken", "--ack", "--json").stdout)
    assert (again[0]["body"], again[0]["redelivered"]) == ("one", True)
    consumed = run(cluster, "consume", "taken", "--count", "1", "--jsonl")
    assert json.loads(consumed.stdout)["bytes"] == 2
    assert "1 consumed" in consumed.stderr
    rest = run(cluster, "consume", "taken", "--idle", "0.5")
    assert rest.stdout == "three\n"
    with pytest.raises(NotFound, match="no queue 'absent'"):
        raise run(cluster, "get", "absent").exception or AssertionError
    wrong = CliRunner().invoke(
        app, ["get", "taken", "--uri", uri(cluster).replace(":guest@", ":no@")]
    )
    assert isinstance(wrong.exception, WarrenError) and wrong.exit_code == 1


def test_each_node_is_asked_wherever_one_connects(cluster: LocalCluster) -> None:
    there = f"amqp://guest:guest@{cluster.addresses[1]}/%2F"
    with Connection(there) as connection:
        Admin(connection).exchanges.declare("made-at-node-1")
    with Connection(uri(cluster)) as connection:
        admin = Admin(connection)
        assert [one.node for one in admin.cluster.conditions()] == ["node-0", "node-1", "node-2"]
        page = admin.audit.page(contains="made-at-node-1")
        assert [one.node for one in page.records] == ["node-1"] and not page.missing
        assert not admin.audit.page(contains="made-at-node-1", node="node-2").records
        assert admin.audit.page(count=1).next and admin.cluster.settings("node-2")
        levels = admin.logs.set_level("raft", "error")
        assert {one.node for one in levels} == {"node-0", "node-1", "node-2"}
        assert {one.level for one in levels if one.category == "raft"} == {"error"}
        admin.logs.set_level("raft", "default", "node-1")
        known = {one.node: one.level for one in admin.logs.levels() if one.category == "raft"}
        assert known == {"node-0": "error", "node-1": "default", "node-2": "error"}
        assert {one.node for one in admin.logs.lines(300).lines} == set(known)
        with pytest.raises(NotFound, match="node-9"):
            admin.cluster.settings("node-9")


def test_top_shows_rates_of_nodes_and_growth_of_queues(cluster: LocalCluster) -> None:
    with pika.BlockingConnection(pika.URLParameters(uri(cluster))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("busy", durable=True, arguments={"x-max-priority": 3})
        for _ in range(20):
            channel.basic_publish("", "busy", b"", pika.BasicProperties(priority=2))
        once = ("top", "--sort", "messages_ready", "--samples")
        lines = [json.loads(one) for one in run(cluster, *once, "1", "--jsonl").stdout.splitlines()]
        assert lines[0]["queues"][0]["name"] == "busy" and lines[0]["queues"][0]["ready"] == 20
        shown = run(cluster, *once, "2", "--interval", "0.2").stdout
    assert shown.count("node-1") >= 2 and "busy" in shown and "queues (" in shown


def test_a_node_that_is_down_is_an_error(cluster: LocalCluster) -> None:
    cluster.kill(2)
    errors = {("nodes", "error")}
    eventually(lambda: found(cluster, "health") >= errors, "the node is suspected")
    assert run(cluster, "health").exit_code == 69
    cluster.start(2)
