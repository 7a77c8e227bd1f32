"""An operator's day at the shell, from the first start to a node replaced."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from live.conftest import eventually
from tests.patience import PATIENCE_S
from tests.warm_nodes import COLD_NODES
from warren import Connection, Producer
from warren.cli.app import app
from warren.errors import Conflict
from warren.local import LocalCluster, existing_cluster

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.long]
WAIT = ("--wait", "--timeout", "60")


class Shell:
    """The command `warren`, with one directory's cluster."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, *words: str, stdin: bytes | None = None) -> Result:
        """A command's result; an error of ours is raised."""
        directory = ("--directory", str(self.directory)) if words[0] == "cluster" else ()
        environment = {"COLUMNS": "200", "TERM": "dumb"}
        if words[0] != "cluster":
            environment["WARREN_URI"] = existing_cluster(self.directory).uri
        found = CliRunner().invoke(app, [*words, *directory], env=environment, input=stdin)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found

    def json(self, *words: str) -> Any:
        """What it prints as JSON."""
        found = self(*words, "--json")
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)

    @property
    def cluster(self) -> LocalCluster:
        """Its nodes."""
        return existing_cluster(self.directory)


@pytest.fixture
def warren(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell with an empty directory; what was started there is stopped."""
    monkeypatch.setenv(COLD_NODES, "1")  # a later command knows a node by its command line
    made = Shell(tmp_path / "cluster")
    yield made
    if (made.directory / "cluster.json").exists():
        made("cluster", "stop", "--delete")


def states(warren: Shell, queue: str) -> dict[str, str]:
    """Each member's state."""
    found = warren.json("queues", "members", queue)
    return {member["node"]: member["state"] for member in found["members"]}


@pytest.mark.specification("quorum-queues: Several CLI commands are provided")
def test_a_day(warren: Shell) -> None:
    assert "cluster of 3" in warren("cluster", "start").stdout
    overview = warren.json("cluster", "overview")
    assert [(node["name"], node["alive"]) for node in overview["nodes"]] == [
        ("node-0", True),
        ("node-1", True),
        ("node-2", True),
    ]
    warren("queues", "declare", "orders")
    lines = b"".join(b"order %d\n" % i for i in range(300))
    assert "300 messages confirmed" in warren("publish", "orders", stdin=lines).stdout
    a_fourth_node_comes(warren)
    it_is_taken_into_maintenance(warren)
    it_dies_for_good(warren)
    healed = another_one_loses_its_disk(warren)
    one_is_stopped_and_forgotten(warren, next(f"node-{i}" for i in (0, 1) if f"node-{i}" != healed))


def a_fourth_node_comes(warren: Shell) -> None:
    """Added, grown, it leads."""
    assert "node-3 has joined" in warren("cluster", "add-node").stdout
    grown = warren("queues", "grow", "node-3", "all", *WAIT)
    assert "node-3: 1 of 1 queues grown" in grown.stdout
    assert "growing node-3: 0 queues left" in grown.stderr
    assert states(warren, "orders") == {f"node-{i}": "running" for i in range(4)}
    assert "node-3 leads" in warren("queues", "transfer-leader", "orders", "node-3").stdout
    (row,) = [n for n in warren.json("nodes", "list") if n["name"] == "node-3"]
    assert (row["members"], row["running"], row["metadata"]) == (1, True, "follower")


def it_is_taken_into_maintenance(warren: Shell) -> None:
    """Drained, checked, revived."""
    drained = warren("nodes", "drain", "node-3", *WAIT)
    assert "in maintenance" in drained.stdout
    assert warren("nodes", "check-if-quorum-critical", "node-3").exit_code == 0
    assert warren.json("queues", "members", "orders")["leader"] != "node-3"
    assert "running" in warren("nodes", "revive", "node-3", *WAIT).stdout


def it_dies_for_good(warren: Shell) -> None:
    """Of four with one down no other one may stop; then it is forgotten."""
    warren("cluster", "kill", "node-3")
    critical = eventually(
        lambda: (
            (found := warren("nodes", "check-if-quorum-critical", "node-0")).exit_code
            and "definitions" in found.stderr
            and "orders" in found.stderr
            and found
        ),
        "it is noticed",
    )
    assert critical.exit_code == 69
    assert "queue 'orders' in vhost '/' becomes unavailable if node-0 stops" in critical.stderr
    assert "definitions become unavailable" in critical.stderr
    with pytest.raises(Conflict, match="is running"):
        warren("nodes", "forget", "node-0")
    assert "node-3 is forgotten" in warren("nodes", "forget", "node-3", *WAIT).stdout
    warren.cluster.remove_node("node-3")
    eventually(
        lambda: states(warren, "orders") == {f"node-{i}": "running" for i in range(3)}, "three"
    )


def another_one_loses_its_disk(warren: Shell) -> str:
    """It comes back empty, is healed, leads; which one."""
    leader = warren.json("queues", "members", "orders")["leader"]
    victim = next(f"node-{i}" for i in range(3) if f"node-{i}" != leader)
    warren("cluster", "wipe-node", victim)
    warren("cluster", "start")
    eventually(lambda: set(states(warren, "orders").values()) == {"running"}, "it is healed")
    warren("queues", "transfer-leader", "orders", victim)
    assert warren.json("queues", "show", "orders")["messages_ready"] == 300
    return victim


def one_is_stopped_and_forgotten(warren: Shell, name: str) -> None:
    """In one go."""
    assert f"removed {name}" in warren("cluster", "remove-node", name).stdout
    assert len(warren.json("nodes", "list")) == 2
    assert warren.json("queues", "show", "orders")["messages_ready"] == 300
    assert set(states(warren, "orders")) == {f"node-{i}" for i in range(3)} - {name}


@pytest.mark.specification("quorum-queues: To re-balance use")
def test_leaders_are_spread_while_clients_publish(warren: Shell) -> None:
    warren("cluster", "start")
    for i in range(12):
        warren("queues", "declare", f"q{i}")
    uri = warren.cluster.uri

    def publish(queue: str) -> None:
        with Connection(uri) as connection, Producer(connection) as producer:
            for i in range(200):
                producer.send(b"%d" % i, queue)

    held = [threading.Thread(target=publish, args=(f"q{i}",)) for i in range(3)]
    for thread in held:
        thread.start()
    moved = warren("queues", "rebalance", *WAIT)
    for thread in held:
        thread.join(PATIENCE_S)
    assert "leaders then" in moved.stdout
    leads = [node["leaders"] for node in warren.json("nodes", "list")]
    assert sum(leads) == 12 and max(leads) - min(leads) <= 1, leads
    assert [
        queue["messages_ready"]
        for queue in warren.json("queues", "list")
        if queue["name"] in ("q0", "q1", "q2")
    ] == [200] * 3
