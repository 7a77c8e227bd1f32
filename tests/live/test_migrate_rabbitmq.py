"""`warren migrate` from a real RabbitMQ with its HTTP API, where one is installed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from bench.ports import free_ports
from connector.amqp.rabbitmq import OneRabbitMQ
from live.conftest import Broker, eventually
from live.http_client import HttpClient
from live.test_shovel import taken
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.long]
MESSAGES = 6_000
NAMES = [f"moved.{i}" for i in range(5)]
KINDS = ("classic", "quorum")


class Peer:
    """A RabbitMQ with its HTTP API."""

    def __init__(self, node: OneRabbitMQ, http: int) -> None:
        self.broker = Broker((f"amqp://guest:guest@{node.host}:{node.port}/%2F",))
        self.api = f"http://127.0.0.1:{http}"

    def command(self, cluster: LocalCluster, *more: str) -> list[str]:
        """The command that moves from it into the cluster."""
        ends = ["--from", self.broker.uri, "--management", self.api, "--uri", cluster.address.uri()]
        return [sys.executable, "-m", "warren.cli", "migrate", *ends, *more]

    def run(self, cluster: LocalCluster, *more: str, code: int = 0) -> str:
        """Run it to its end; its standard output and then its errors."""
        command = self.command(cluster, *more)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if "--json" in more else done.stdout + done.stderr


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    """One for the module; each test has queues of its own there."""
    http = free_ports(1)
    settings = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {http}\n"
    with OneRabbitMQ(settings, ("rabbitmq_management",)) as node:
        yield Peer(node, http)


def fill_queues(broker: Broker, names: list[str], count: int) -> dict[str, set[bytes]]:
    """Declare queues of both types in turn, with as many messages in each."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.tx_select()
        for i, name in enumerate(names):
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": KINDS[i % 2]})
            for number in range(count):
                body = f"{name} {number}".encode()
                channel.basic_publish("", name, body, pika.BasicProperties(delivery_mode=2))
            channel.tx_commit()
    return {name: {f"{name} {number}".encode() for number in range(count)} for name in names}


def test_everything_moves_though_command_and_node_are_killed(peer: Peer, tmp_path: Path) -> None:
    bodies = fill_queues(peer.broker, NAMES, MESSAGES // len(NAMES))
    with LocalCluster(nodes=3, directory=tmp_path) as cluster, cluster.connect() as connection:
        admin = Admin(connection)
        words = ("--queues", "^moved", "--report", str(tmp_path / "counts"), "--prefetch", "2")
        first = subprocess.Popen(peer.command(cluster, *words), stdout=subprocess.DEVNULL)
        eventually(
            lambda: sum(one.messages for one in admin.queues.list()) > 50 or None, "it moves"
        )
        os.kill(first.pid, signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
        running = eventually(admin.shovels.list, "shovels continue without the command")
        victim = running[0].node
        cluster.kill(victim)
        second = subprocess.Popen(
            peer.command(cluster, *words, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        eventually(
            lambda: all(one.node != victim for one in admin.shovels.list()) or None,
            "no shovel is on the dead node",
        )
        cluster.restart(victim)  # a classic queue is on one node, as in RabbitMQ
        output, errors = second.communicate(timeout=300)
        assert second.returncode == 0, output.decode() + errors.decode()
        counted = {one["name"]: one for one in json.loads(output)}
        assert {one["state"] for one in counted.values()} == {"moved"} and not admin.shovels.list()
        here = Broker(tuple(f"amqp://guest:guest@{at}/%2F" for at in cluster.addresses), cluster)
        for i, name in enumerate(NAMES):
            found = [body for _, body in taken(here, name)]
            assert set(found) == bodies[name] and len(found) == counted[name]["arrived"]
            assert len(found) - len(bodies[name]) <= 4 * 2, "what was under way at each kill"
            assert admin.queues.get(name).type == KINDS[i % 2]
            assert not taken(peer.broker, name)


def test_queues_that_a_shovel_would_destroy_stay_and_what_consumers_hold_is_counted(
    peer: Peer, tmp_path: Path
) -> None:
    chosen = ("--queues", "^kinds", "--json")
    with peer.broker.connect() as held, LocalCluster(nodes=1, directory=tmp_path) as cluster:
        channel = held.channel()
        channel.queue_declare("kinds-log", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("kinds-mine", exclusive=True)
        channel.queue_declare("kinds-passing", durable=True, auto_delete=True)
        channel.queue_declare("kinds-work", durable=True, arguments={"x-max-length": 50})
        channel.confirm_delivery()
        for number in range(7):
            channel.basic_publish("", "kinds-work", f"{number}".encode())
            channel.basic_publish("", "kinds-passing", f"{number}".encode())
        channel.basic_qos(prefetch_count=3)
        taking: Any = channel.consume("kinds-work")
        assert next(taking)[2] == b"0"

        def shown() -> str | None:
            found = peer.run(cluster, *chosen[:2], "--dry-run")
            return found if re.search(r"kinds-work\W+4\W+3\b", found) else None

        told = eventually(shown, "the HTTP API shows what is unacknowledged")
        for name, why in (("log", "a stream"), ("mine", "exclusive"), ("passing", "auto-delete")):
            assert f"queue kinds-{name}: it is {why}" in told
        (moved,) = json.loads(peer.run(cluster, *chosen))
        assert (moved["state"], moved["before"], moved["arrived"], moved["held"]) == (
            "moved",
            4,
            4,
            3,
        )
        assert channel.queue_declare("kinds-passing", passive=True).method.message_count == 7
        channel.close()  # what was unacknowledged is ready again, and moved by the next run
        (moved,) = json.loads(peer.run(cluster, *chosen))
        assert (moved["before"], moved["arrived"]) == (3, 3)
        with cluster.connect() as connection:
            assert [one.name for one in Admin(connection).queues.list()] == ["kinds-work"]


def test_a_queue_that_refuses_fails_in_time_and_nothing_is_lost(peer: Peer, tmp_path: Path) -> None:
    bodies = fill_queues(peer.broker, ["full"], 30)
    with LocalCluster(nodes=1, directory=tmp_path) as cluster, cluster.connect() as connection:
        admin = Admin(connection)
        limit = {"max-length": 10, "overflow": "reject-publish"}
        admin.policies.put("/", "small", "^full$", limit, apply_to="queues")
        chosen = ("--queues", "^full$", "--json")
        (failed,) = json.loads(peer.run(cluster, *chosen, "--give-up", "3", code=1))
        assert failed["state"] == "failed" and "length limit" in failed["reason"]
        assert not admin.shovels.list()
        admin.policies.delete("/", "small")
        (moved,) = json.loads(peer.run(cluster, *chosen))
        assert moved["state"] == "moved"
        here = Broker((f"amqp://guest:guest@{cluster.addresses[0]}/%2F",), cluster)
        assert {body for _, body in taken(here, "full")} == bodies["full"]


def test_a_user_that_is_refused_meanwhile_ends_it_at_once(peer: Peer, tmp_path: Path) -> None:
    fill_queues(peer.broker, ["refused"], 5_000)
    http = HttpClient(f"{peer.api}/api")
    every = {"configure": ".*", "write": ".*", "read": ".*"}
    tags = {"password": "first", "tags": "administrator"}
    assert http("PUT", "/users/mover", tags).status == 201
    assert http("PUT", "/permissions/%2F/mover", every).status == 201
    with LocalCluster(nodes=1, directory=tmp_path) as cluster, cluster.connect() as connection:
        words = peer.command(cluster, "--queues", "^refused$", "--prefetch", "1")
        place = words.index("--from") + 1
        words[place] = words[place].replace("guest:guest", "mover:first")
        running = subprocess.Popen(
            [*words, "--give-up", "3600"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            admin = Admin(connection)
            eventually(
                lambda: sum(one.messages for one in admin.queues.list()) > 20 or None, "it moves"
            )
            assert http("DELETE", "/users/mover").status == 204, "and closes its connections"
            output, errors = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
            running.wait()
    told = " ".join((output + errors).split())
    assert running.returncode == 1 and "user or password is refused" in told, told
    assert "What is left is at the source" in told and "run this again" in told
