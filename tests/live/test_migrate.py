"""`warren migrate` on real nodes, with the command and a shovel's process killed amid it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from live.conftest import Broker, eventually
from live.test_shovel import fill, taken, worker_pids
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.cli.app import app
from warren.errors import NotFound
from warren.local import LocalCluster

pytestmark = pytest.mark.live
QUEUES = ("migrate-a", "migrate-b", "migrate-c")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker that messages are taken from."""
    with LocalCluster(nodes=1, directory=tmp_path_factory.mktemp("old")) as cluster:
        uris = tuple(f"amqp://guest:guest@{host}/%2F" for host in cluster.addresses)
        yield Broker(uris, cluster)


@pytest.fixture
def definitions(old: Broker, tmp_path: Path) -> Path:
    """A file of its definitions, with a queue that the shovels leave alone."""
    file = tmp_path / "definitions.json"
    with old.cluster.connect() as connection:
        admin = Admin(connection)
        for name in (*QUEUES, "unwanted"):
            admin.queues.declare(name)
            admin.bindings.put("amq.topic", destination_queue=name, routing_key=f"{name}.#")
        file.write_bytes(admin.definitions.export().data)
    return file


@pytest.fixture
def admin(admin: Admin) -> Iterator[Admin]:
    """It removes what was migrated."""
    yield admin
    for one in admin.shovels.list():
        admin.shovels.delete(one.vhost, one.name)
    for queue in admin.queues.list("^migrate-"):
        admin.queues.delete(queue.name)


def words(old: Broker, broker: Broker, definitions: Path, *more: str) -> list[str]:
    place = ["--from", old.uri, "--definitions", str(definitions), "--queues", "^migrate-"]
    return ["migrate", *place, "--uri", broker.cluster.uri, *more]


def test_queues_bindings_and_messages_are_moved_and_counted(
    broker: Broker, old: Broker, admin: Admin, definitions: Path
) -> None:
    bodies = {
        name: fill(old, name, 50 * i, priority=3, message_id="m") for i, name in enumerate(QUEUES)
    }
    dry = CliRunner().invoke(app, words(old, broker, definitions, "--dry-run"))
    assert dry.exit_code == 0 and "nothing was changed" in dry.output and "100" in dry.output
    with pytest.raises(NotFound):
        admin.queues.get(QUEUES[0])

    result = CliRunner().invoke(app, words(old, broker, definitions, "--at-once", "2", "--json"))
    assert result.exit_code == 0, result.output
    shown = {one["name"]: one for one in json.loads(result.stdout)}
    assert {name: one["arrived"] for name, one in shown.items()} == {
        name: len(found) for name, found in bodies.items()
    }
    assert all(one["state"] == "moved" and not one["compared"] for one in shown.values())
    for name in QUEUES:
        found = taken(broker, name)
        assert sorted(body for _, body in found) == sorted(bodies[name])
        assert all((one.priority, one.message_id) == (3, "m") for one, _ in found)
    with broker.connect() as connection:
        connection.channel().basic_publish("amq.topic", "migrate-b.x", b"bound")
    eventually(
        lambda: admin.queues.get("migrate-b").messages == 1 or None, "its binding came along"
    )
    with pytest.raises(NotFound):
        admin.queues.get("unwanted")
    assert not admin.shovels.list()


@pytest.mark.long
def test_a_migration_that_was_killed_is_run_again_and_loses_nothing(
    broker: Broker, old: Broker, admin: Admin, definitions: Path, tmp_path: Path
) -> None:
    count = 1_000
    bodies = {name: fill(old, name, count) for name in QUEUES}
    report = tmp_path / "counts.json"
    more = ("--at-once", "2", "--report", str(report))
    slow = words(old, broker, definitions, *more, "--prefetch", "1")
    command = [sys.executable, "-m", "warren.cli", *slow]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(
            lambda: sum(one.messages for one in admin.queues.list("^migrate-")) > 100 or None,
            "it is under way",
        )
    finally:
        running.kill()
        running.wait()
    workers = [pid for node in range(3) for pid in worker_pids(broker.cluster.pid(node))]
    assert workers, "shovels continue without the command"
    os.kill(workers[0], signal.SIGKILL)
    left = sum(one.messages for one in admin.queues.list("^migrate-"))
    assert left < 3 * count, "it was killed before the end"

    result = CliRunner().invoke(app, [*words(old, broker, definitions, *more), "--json"])
    assert result.exit_code == 0, result.output
    for one in json.loads(result.stdout):
        assert one["before"] == count, "the first run's count"
        assert 0 <= one["arrived"] - count <= 2, "what was under way may have come twice"
        found = [body for _, body in taken(broker, one["name"])]
        assert set(found) == set(bodies[one["name"]]) and len(found) == one["arrived"]
    assert not admin.shovels.list()
    with old.cluster.connect() as connection:
        assert all(Admin(connection).queues.get(name).messages == 0 for name in QUEUES)


def test_shovels_follow_until_the_last_run_and_what_consumers_held_comes_then(
    broker: Broker, old: Broker, admin: Admin, definitions: Path
) -> None:
    fill(old, "migrate-a", 5)
    follow = words(old, broker, definitions, "--follow")
    with old.connect() as connection:
        channel = connection.channel()
        held, _, _ = channel.basic_get("migrate-a")
        result = CliRunner().invoke(app, follow)
        assert result.exit_code == 0 and "follows" in result.output, result.output
        assert admin.queues.get("migrate-a").messages == 4
        channel.basic_publish("", "migrate-a", b"later")
        eventually(lambda: admin.queues.get("migrate-a").messages == 5 or None, "it follows")
        assert held is not None
    eventually(lambda: admin.queues.get("migrate-a").messages == 6 or None, "what was held follows")
    result = CliRunner().invoke(app, words(old, broker, definitions))
    assert result.exit_code == 0, result.output
    assert not admin.shovels.list() and admin.queues.get("migrate-a").messages == 6


def test_what_cannot_be_migrated_is_said_in_words(
    broker: Broker, old: Broker, admin: Admin, definitions: Path
) -> None:
    admin.queues.declare("migrate-a", arguments={"x-max-priority": 9})
    refused = subprocess.run(
        [sys.executable, "-m", "warren.cli", *words(old, broker, definitions)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1 and "migrate-a" in refused.stderr
    assert "Traceback" not in refused.stderr
    with pytest.raises(NotFound):
        admin.queues.get("migrate-b")
    nowhere = words(old, broker, definitions)
    nowhere[2] = "amqp://guest:wrong@" + old.uri.rpartition("@")[2]
    refused = subprocess.run(
        [sys.executable, "-m", "warren.cli", *nowhere], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1 and "user or password is refused" in refused.stderr
    assert "wrong" not in refused.stderr


@pytest.mark.parametrize("by_shovel", [False, True], ids=["command", "shovel"])
def test_a_password_that_is_refused_meanwhile_ends_it_at_once(
    broker: Broker, old: Broker, admin: Admin, definitions: Path, by_shovel: bool
) -> None:
    """The command's own connection meets it, or only a shovel's that begins again."""
    fill(old, "migrate-a", 3_000)
    with old.cluster.connect() as connection:
        there = Admin(connection)
        there.users.put("mover", password="first")
        there.permissions.put("/", "mover", configure=".*", write=".*", read=".*")
        began = [*words(old, broker, definitions), "--prefetch", "1", "--give-up", "3600"]
        began[2] = "amqp://mover:first@" + old.uri.rpartition("@")[2]
        running = subprocess.Popen(
            [sys.executable, "-m", "warren.cli", *began],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            eventually(
                lambda: sum(one.messages for one in admin.queues.list("^migrate-")) > 20 or None,
                "it is under way",
            )
            there.users.put("mover", password="second")
            if by_shovel:
                for node in range(3):
                    for pid in worker_pids(broker.cluster.pid(node)):
                        os.kill(pid, signal.SIGKILL)
            else:
                for one in there.connections.list(user="mover"):
                    there.connections.close(one.name)
            output, errors = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
            running.wait()
            there.queues.purge("migrate-a")
            there.users.delete("mover")
    assert running.returncode == 1
    told = " ".join((output + errors).split())
    assert "user or password is refused" in told, told
    assert "What is left is at the source" in told and "run this again" in told
    assert "first" not in told and "second" not in told
