"""`warren migrate --management` from a cluster of Warren, with the command and a node killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.conftest import Broker, eventually
from live.http_client import SETTINGS, api_address, http_client, quoted
from live.test_shovel import fill, taken
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.long]
QUEUES = ("moving-a", "moving-b", "moving-c")
COUNT = 500
ROOT = quoted("/")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The three nodes that messages are taken from."""
    directory = tmp_path_factory.mktemp("old")
    with LocalCluster(nodes=3, directory=directory, settings=SETTINGS) as cluster:
        uris = tuple(f"amqp://guest:guest@{host}/%2F" for host in cluster.addresses)
        yield Broker(uris, cluster)


@pytest.fixture
def admin(admin: Admin) -> Iterator[Admin]:
    """It removes what was migrated."""
    yield admin
    for one in admin.shovels.list():
        admin.shovels.delete(one.vhost, one.name)
    for queue in admin.queues.list("^moving-"):
        admin.queues.delete(queue.name)


def command(old: Broker, broker: Broker, *more: str) -> list[str]:
    """The command; definitions and numbers of messages come from the HTTP API of the first node."""
    api = f"http://{api_address(old.cluster, 0)}"
    ends = ["--from", old.uri, "--management", api, "--uri", broker.cluster.uri]
    words = [*ends, "--queues", "^moving-", "--json", *more]
    return [sys.executable, "-m", "warren.cli", "migrate", *words]


def run(words: list[str]) -> str:
    """Run it to its end; its standard output."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_everything_moves_from_warren_though_command_and_source_are_killed(
    broker: Broker, old: Broker, admin: Admin, tmp_path: Path
) -> None:
    http = http_client(old.cluster)
    for number, name in enumerate(QUEUES):
        kind = {"x-queue-type": "quorum"} if number else {"x-queue-type": "classic"}
        path = f"/queues/{ROOT}/{name}"
        assert http("PUT", path, {"durable": True, "arguments": kind}).status == 201
        key = {"routing_key": f"{name}.#"}
        assert http("POST", f"/bindings/{ROOT}/e/amq.topic/q/{name}", key).status == 201
    assert http("PUT", f"/queues/{ROOT}/unwanted", {"durable": True}).status == 201
    bodies = {name: set(fill(old, name, COUNT)) for name in QUEUES}
    report = ("--report", str(tmp_path / "counts"), "--prefetch", "1")
    first = subprocess.Popen(command(old, broker, *report), stdout=subprocess.DEVNULL)
    try:
        eventually(
            lambda: sum(one.messages for one in admin.queues.list("^moving-")) > 50 or None,
            "it is under way",
        )
    finally:
        first.kill()
        first.wait()
    leader = str(http.get(f"/queues/{ROOT}/moving-b")["leader"])
    victim = next(at for at, one in enumerate(old.cluster.nodes) if one.name == leader)
    old.cluster.kill(victim)
    old.cluster.start(victim)
    eventually(
        lambda: http_client(old.cluster).get(f"/queues/{ROOT}/moving-a")["state"] == "running",
        "the classic queue is back with its node",
    )
    counted = {one["name"]: one for one in json.loads(run(command(old, broker, *report)))}
    assert {one["state"] for one in counted.values()} == {"moved"} and not admin.shovels.list()
    assert {one["before"] for one in counted.values()} == {COUNT}, "the first run's counts"
    for name in QUEUES:
        found = [body for _, body in taken(broker, name)]
        assert set(found) == bodies[name] and len(found) == counted[name]["arrived"]
        assert http_client(old.cluster).get(f"/queues/{ROOT}/{name}")["messages"] == 0
    assert [admin.queues.get(name).type for name in QUEUES] == ["classic", "quorum", "quorum"]
    assert [one.name for one in admin.queues.list("^unwanted$")] == []
    assert {
        one["binding_key"] for one in admin.bindings.list(source="amq.topic", queue="moving-a")
    } == {"moving-a.#"}
