"""Client, command line, broker processes together."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.patience import PATIENCE_S, TooSlow, with_time_enough
from tests.python.test_sinks import stage
from tests.warm_nodes import COLD_NODES
from warren import Admin, ClaimReader, Connection, Producer, StageWriter
from warren.claims import browse
from warren.cli.app import app
from warren.errors import Conflict, Fenced, NotFound, StageLost, Unavailable
from warren.local import LocalCluster
from warren.stages import SettledClaim, SinkDriver, draw_epoch, publish_batch
from warren_wire.block import block as blocks

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(COLD_NODES, "1")  # as a user's start
        made = LocalCluster(nodes=1, directory=tmp_path_factory.mktemp("cluster")).start()
    with made:
        yield made


def warren(cluster: LocalCluster, *arguments: str, stdin: bytes | None = None) -> str:
    """What a command prints."""
    environment = {"WARREN_URI": cluster.uri, "COLUMNS": "200"}
    result = CliRunner().invoke(app, arguments, env=environment, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def bodies(piece_data: memoryview) -> list[bytes]:
    block = blocks.Block.decode(piece_data)
    return [bytes(block.body(i)) for i in range(block.count)]


def test_what_the_command_line_does(cluster: LocalCluster) -> None:
    said = warren(cluster, "queues", "declare", "cli", "-a", "x-max-length=1000")
    assert said.startswith("cli: classic on node-0"), said
    lines = b"".join(b"line %d\n" % i for i in range(500))
    assert "500 messages confirmed" in warren(cluster, "publish", "cli", stdin=lines)
    (shown,) = json.loads(warren(cluster, "queues", "list", "--json"))
    assert (shown["name"], shown["messages_ready"]) == ("cli", 500)
    assert shown["arguments"] == {"x-max-length": 1000}
    with cluster.connect() as connection:
        reader = ClaimReader(connection, "cli", "driver")
        first = reader.register().settled + 1
        reader.open(first, max_messages=200, max_bytes=1 << 20)
        (listed,) = json.loads(warren(cluster, "claims", "list", "cli", "--json"))
        assert (listed["name"], listed["open_claims"]) == ("driver", 1)
        assert "settled 200" in warren(cluster, "claims", "settle", "cli", "driver", str(first))
        reader.open(first + 1, max_messages=200, max_bytes=1 << 20)
        assert "released 200" in warren(cluster, "claims", "release", "cli", "driver")
        with pytest.raises(Exception, match="driver"):
            reader.settle(first + 1)
    assert "cli: 0 delayed messages are ready" in warren(cluster, "queues", "retry-delayed", "cli")
    assert "[]" in warren(cluster, "queues", "delayed", "cli", "--json")
    assert "purged cli: 300" in warren(cluster, "queues", "purge", "cli")
    with pytest.raises(Conflict, match="x-max-length"):
        warren(cluster, "queues", "declare", "cli")
    assert "deleted cli" in warren(cluster, "queues", "delete", "cli")
    with pytest.raises(NotFound, match="cli"):
        warren(cluster, "queues", "show", "cli")


def test_the_command_line_with_a_claim_that_a_batch_decides_about(cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        for name in ("bound", "out"):
            Admin(connection).queues.declare(name)
        fill = SinkDriver("fill", "run", draw_epoch(connection))
        publish_batch(connection, fill, 0, [stage(connection, fill, "bound")])
        reader = ClaimReader(connection, "bound", "driver")
        number = reader.register().settled + 1
        held = reader.open(number, max_messages=10, max_bytes=1 << 20).messages
        driver = SinkDriver("s", "r 1", draw_epoch(connection))
        part = replace(stage(connection, driver, "out", 4), queues=(("out", 99),))
        with pytest.raises(StageLost):
            publish_batch(connection, driver, 4, [part], settles=[SettledClaim.of(reader, number)])
        (listed,) = json.loads(warren(cluster, "claims", "list", "bound", "--json"))
        named = {"number": number, "queue": "out", "sink": "s", "run": "r 1", "batch": 4}
        assert listed["bound"] == [named]
        shown = warren(cluster, "claims", "list", "bound")
        assert f"{number}: batch 4 of s (run r 1) in out" in shown
        Admin(connection).queues.delete("out")
        with pytest.raises(Conflict, match="batch 4 of sink 's', run 'r 1', in queue 'out'"):
            warren(cluster, "claims", "release", "bound", "driver")
        release = ("claims", "release", "bound", "driver", "--undecided")
        assert f"released {held}" in warren(cluster, *release)
        Admin(connection).queues.delete("bound")


def test_a_claim_keeps_priorities_and_fences(cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        Admin(connection).queues.declare("priorities", arguments={"x-queue-type": "quorum"})
        with Producer(connection) as producer:
            for i in range(300):
                producer.send(b"%d" % (i % 3), "priorities", priority=i % 3)
        reader = ClaimReader(connection, "priorities", "r")
        first = reader.register().settled + 1
        claim = reader.open(first, max_messages=150, max_bytes=1 << 20)
        assert claim == reader.open(first, max_messages=7, max_bytes=1 << 20)
        fetched = [body for piece in reader.fetch(first, 0, 150) for body in bodies(piece.data)]
        assert sorted(fetched, reverse=True) == fetched
        assert fetched.count(b"2") == 100
        middle = [body for piece in reader.fetch(first, 90, 110) for body in bodies(piece.data)]
        assert middle == fetched[90:110]
        assert reader.settle(first) == 150
        assert reader.open(first + 1, max_messages=150, max_bytes=1 << 20).messages == 150
        assert reader.settle(first + 1) == 150
        assert not reader.open(first + 2, max_messages=1, max_bytes=1).open
        empty = reader.open(first + 2, max_messages=1, max_bytes=1, keep_empty=True)
        assert (empty.messages, empty.open) == (0, True)
        Producer(connection).send(b"late", "priorities").wait()
        assert reader.open(first + 2, max_messages=1, max_bytes=1) == empty
        assert reader.settle(first + 2) == 0
        ClaimReader(connection, "priorities", "r").register()
        with pytest.raises(Fenced):
            reader.open(first + 3, max_messages=1, max_bytes=1)
        assert sum(p.messages for p in browse(connection, "priorities", 1000)) == 1
        Admin(connection).queues.delete("priorities")


def cannot_connect(cluster: LocalCluster, limit_s: float) -> None:
    """A request says so, in as much time as one attempt needs on this machine."""
    address = replace(cluster.address, request_timeout_s=limit_s)
    with Connection(address) as lonely, pytest.raises(Unavailable) as told:
        Admin(lonely).queues.list()
    if "cannot connect" not in str(told.value):
        raise TooSlow(str(told.value))


def test_a_directory_keeps_its_cluster(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, directory=tmp_path) as first:
        with first.connect() as connection:
            Admin(connection).queues.declare("kept")
            Producer(connection).send(b"x", "kept").wait()
        first.kill(0)
        assert not first.is_running(0)
        with_time_enough(lambda limit_s: cannot_connect(first, limit_s), 0.3)
    again = LocalCluster(directory=tmp_path)
    assert again.addresses == first.addresses
    with again, again.connect() as connection:
        assert Admin(connection).queues.get("kept").messages_ready == 1
        assert again.leader_of("kept") == 0


def test_nodes_end_with_the_program_that_started_them(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from warren.local import LocalCluster\n"
        f"LocalCluster(nodes=1, directory={str(tmp_path)!r}).start()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    ended = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    left = LocalCluster(directory=tmp_path, detached=True)
    assert left.pid(0)
    deadline = time.monotonic() + PATIENCE_S
    while left.is_running(0):
        assert time.monotonic() < deadline, "the node has outlived its program"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_node_that_neither_answers_nor_dies_is_left(tmp_path: Path) -> None:
    with LocalCluster(nodes=3, directory=tmp_path) as cluster:
        address = replace(cluster.address, heartbeat_s=1.0)
        with Connection(address) as connection:
            admin = Admin(connection)
            admin.queues.declare("q")
            assert connection.node is not None
            ports = [node.amqp_port for node in cluster.nodes]
            stuck = ports.index(connection.node[1])
            cluster.pause(stuck)
            with Producer(connection) as producer:
                producer.send(b"x", "q").wait()
            assert connection.node != ("127.0.0.1", ports[stuck])
            cluster.resume(stuck)
            assert admin.queues.get("q").messages_ready >= 1


@pytest.mark.slow
def test_stages_are_exact_while_nodes_are_killed(tmp_path: Path) -> None:
    """Twenty batches through kill -9 of leaders and of the node that is written to."""
    rng = random.Random(3)
    stop = threading.Event()
    kills: list[int] = []
    with LocalCluster(nodes=3, directory=tmp_path) as cluster:

        def killer() -> None:
            while not stop.wait(rng.uniform(0.2, 0.8)):
                victim = cluster.leader_of("q") if rng.random() < 0.6 else rng.randrange(3)
                cluster.kill(victim)
                kills.append(victim)
                stop.wait(rng.uniform(0.1, 0.5))
                cluster.start(victim)
                stop.wait(1.5)

        with cluster.connect() as connection:
            Admin(connection).queues.declare("q")
            driver = SinkDriver("s", "run", draw_epoch(connection))
            thread = threading.Thread(target=killer)
            thread.start()
            wanted = []
            try:
                batch = 0
                while len(kills) < 3 and thread.is_alive():
                    parts = []
                    for partition in range(2):
                        name = {"batch": batch, "partition": partition, "attempt": 0}
                        with StageWriter(connection, driver, window_bytes=20_000, **name) as writer:
                            for i in range(50):
                                rows = [b"%d-%d-%d" % (batch, partition, i)] * 3
                                wanted += rows
                                writer.write(blocks.encode(rows, [b"\0\0"] * 3, (b"", b"q")))
                            parts.append(writer.finish())
                    assert publish_batch(connection, driver, batch, parts) == 300
                    batch += 1
                got = []
                reader = ClaimReader(connection, "q", "r")
                number = reader.register().settled + 1
                while (claim := reader.open(number, max_messages=2000, max_bytes=1 << 20)).messages:
                    for piece in reader.fetch(number, 0, claim.messages):
                        got += bodies(piece.data)
                    reader.settle(number)
                    number += 1
            finally:
                stop.set()
                thread.join()
        assert got == wanted
        assert len(kills) >= 3
