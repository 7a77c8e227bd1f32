"""Pipelines as processes of their own: started, killed from inside, started again."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_warren.claims.client import WarrenBroker, connect
from pyspark_warren.options.options import parse_options
from pyspark_warren.rows.rows import ClaimedBlock
from pyspark_warren.sink.writer import Attempt, write_direct
from spark_world.fake import FakeServer
from spark_world.warm_python import INTERPRETER_VARIABLES, interpreter
from warren.admin import Admin
from warren.local import LocalCluster
from warren.stages import SinkDriver

ROOT = Path(__file__).resolve().parents[3]
PATH = [str(ROOT / name) for name in ("tests/connector", "connector", "python", "broker", "raft")]
RUN_S_MAX = 600
POLL_S = 0.05


class Runs:
    """Runs of one query with its checkpoint in a directory.

    where  what a plan says of the broker: hosts, format, names of the two queues
    """

    def __init__(self, directory: Path, where: dict[str, Any]) -> None:
        self.directory = directory
        self.where = where

    @property
    def kill_plan(self) -> Path:
        """Where the next kill is written."""
        return self.directory / "kill"

    def arm(self, point: str, number: int = 1, action: str = "kill") -> None:
        """The number-th arrival at that point kills, or with "stop" freezes the driver."""
        self.kill_plan.write_text(f"{point} {number} {action}")

    @property
    def killed(self) -> bool:
        """Whether the armed kill was carried out."""
        done = self.kill_plan.with_name("kill.done")
        was = done.exists()
        done.unlink(missing_ok=True)
        return was

    def start(self, **plan: Any) -> subprocess.Popen[str]:
        """One run of the query, under way."""
        return subprocess.Popen(
            [interpreter(), "-m", "spark_world.pipeline", json.dumps(self.plan(plan))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
            cwd=self.directory,
        )

    def run(self, **plan: Any) -> subprocess.CompletedProcess[str]:
        """One run of the query, to its end or its death."""
        return ended(self.start(**plan))

    def finish(self, **plan: Any) -> list[dict[str, Any]]:
        """A run that must end well, in a driver that earlier ones had, too; its batches.

        With a `master` it has a driver of its own, and an armed kill may end one of its tasks.
        """
        if "master" not in plan:
            assert not self.kill_plan.exists(), "a driver of others does not carry out this kill"
            return DRIVER.finish(self.plan(plan))
        done = self.run(**plan)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.strip().splitlines()[-1])["batches"]

    def plan(self, more: dict[str, Any]) -> dict[str, Any]:
        """Return what a driver is told: where the broker is, the checkpoint, and more."""
        return {**self.where, "checkpoint": str(self.directory / "checkpoint"), **more}

    def frozen(self, process: subprocess.Popen[str]) -> tuple[int, ...]:
        """Wait until the armed stop was carried out; the processes that stand still."""
        stopped = self.kill_plan.with_name("kill.stopped")
        deadline = time.monotonic() + RUN_S_MAX
        while not stopped.exists():
            assert time.monotonic() < deadline and process.poll() is None, ended(process).stderr
            time.sleep(POLL_S)
        pids = tuple(int(pid) for pid in stopped.read_text().split())
        stopped.unlink()
        return pids

    def environment(self) -> dict[str, str]:
        """For a driver of its own and everything that it starts."""
        return driver_environment(self.kill_plan)


class LastingDriver:
    """A driver that runs one query after the other: most of a short run is the start of its JVM.

    session  returns the session of this process, where it is to be the driver; None: the driver is
             a process of its own
    """

    def __init__(self) -> None:
        self.session: Callable[[], Any] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    @property
    def kill_plan(self) -> Path:
        """What its processes have in their environment as the place of kills."""
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="warren-driver-")
        return Path(self._directory.name) / "kill"

    def finish(self, plan: dict[str, Any]) -> list[dict[str, Any]]:
        """Run a query that must end well; its batches."""
        done = self.attempt(plan)
        assert "failed" not in done, done["failed"][-4000:]
        batches: list[dict[str, Any]] = done["batches"]
        return batches

    def attempt(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Run a query; its batches, or under `failed` why it failed."""
        if self.session is not None:
            from spark_world import pipeline

            return pipeline.attempt(self.session(), plan)
        directory = self.kill_plan.parent
        if self._process is None:
            with (directory / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    [interpreter(), "-m", "spark_world.pipeline"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=driver_environment(self.kill_plan),
                    cwd=directory,
                )
            atexit.register(self.close)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(plan) + "\n")
        self._process.stdin.flush()
        answered, _, _ = select.select([self._process.stdout], [], [], RUN_S_MAX)
        assert answered, f"no answer to {plan}"
        line = self._process.stdout.readline()
        assert line, (directory / "log").read_text()[-4000:]
        done: dict[str, Any] = json.loads(line)
        return done

    def close(self) -> None:
        """End the driver; the next query starts another."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(RUN_S_MAX)
            self._process = None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


DRIVER = LastingDriver()


def driver_environment(kill_plan: Path) -> dict[str, str]:
    """For a driver and everything that it starts."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(PATH),
        **dict.fromkeys(INTERPRETER_VARIABLES, interpreter()),
        "WARREN_TEST_KILL": str(kill_plan),
    }


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for a run's end; kills it, and what it started, when that takes too long."""
    try:
        out, err = process.communicate(timeout=RUN_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def resume(pids: tuple[int, ...]) -> None:
    """Resume the frozen processes."""
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


class World(Runs):
    """A fake broker with queues `in` and `out`, and a directory for checkpoints and outputs."""

    def __init__(self, server: FakeServer, directory: Path) -> None:
        super().__init__(directory, {"hosts": f"127.0.0.1:{server.port}"})
        self.server = server

    def publish(self, count: int, first: int = 0) -> list[bytes]:
        """Numbered messages of three priorities into `in`."""
        bodies = [b"message %06d" % i for i in range(first, first + count)]
        self.server.broker.publish("in", bodies, [4 + i % 3 for i in range(count)])
        return bodies

    def check_exact(self, bodies: list[bytes]) -> None:
        """Every message once in `out`, none left in `in`, nothing claimed, nothing staged."""
        out = self.server.broker.bodies("out")
        assert len(out) == len(bodies), (len(out), len(bodies))
        assert sorted(out) == sorted(bodies)
        state = self.server.broker.state("in")
        assert (state["ready"], state["claims"]) == (0, {}), state
        assert state["acknowledged"] == len(bodies)
        assert self.server.broker.state("out")["staged"] == 0


class RealWorld(Runs):
    """Two quorum queues of a cluster of real processes, and a directory for checkpoints."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        mark = uuid.uuid4().hex[:8]
        self.source, self.target = f"in-{mark}", f"out-{mark}"
        super().__init__(
            directory,
            {
                "hosts": cluster.hosts,
                "format": "warren_dying_real",
                "source_queue": self.source,
                "target_queue": self.target,
            },
        )
        self.cluster = cluster
        self.broker: WarrenBroker = connect(
            parse_options({"hosts": cluster.hosts, "queue": self.source}, "read")
        )
        with cluster.connect() as connection:
            for name in (self.source, self.target):
                Admin(connection).queues.declare(name, arguments={"x-queue-type": "quorum"})

    def publish(self, count: int, first: int = 0, queue: str = "") -> list[bytes]:
        """Numbered messages of three priorities into the source, or into a queue it declares."""
        if queue:
            with self.cluster.connect() as connection:
                Admin(connection).queues.declare(queue, arguments={"x-queue-type": "quorum"})
        bodies = [b"message %06d" % i for i in range(first, first + count)]
        rows = pa.record_batch(
            {
                "body": pa.array(bodies, pa.binary()),
                "priority": pa.array([4 + i % 3 for i in range(count)]),
            }
        )
        options = parse_options(
            {
                "hosts": self.cluster.hosts,
                "routingKey": queue or self.source,
                "blockBytes": "16k",
            },
            "write",
        )
        attempt = Attempt.drawn(SinkDriver(self.source, "run", 1), 0, first)
        write_direct(self.broker, options, attempt, iter([rows]))
        return bodies

    def release_others(self, reader: str) -> None:
        """Release what other readers of the source hold, as `warren claims release` does."""
        with self.cluster.connect() as connection:
            claims = Admin(connection).claims
            for each in claims.readers(self.source):
                if each.name != reader:
                    claims.release(self.source, each.name)

    def bodies(self) -> list[bytes]:
        """What is in the target, in delivery order."""
        found = []
        for fetched in self.broker.browse(self.target, 1 << 30):
            block = ClaimedBlock.decode(fetched.data, fetched.runs, self.target).block
            found += [bytes(block.body(i)) for i in range(block.count)]
        return found

    def check_exact(self, bodies: list[bytes]) -> None:
        """Lost 0, doubled 0; nothing is left in the source."""
        out = self.bodies()
        lost, strange = set(bodies) - set(out), set(out) - set(bodies)
        doubled = len(out) - len(set(out))
        assert (len(lost), doubled, strange) == (0, 0, set()), (len(lost), doubled, len(bodies))
        self.check_source_empty()

    def check_source_empty(self) -> None:
        """Nothing ready, claimed or unacknowledged in the source, nothing staged in the target."""
        left = self.broker.queue(self.source)
        assert (left.messages_ready, left.messages_claimed, left.messages_unacknowledged) == (
            0,
            0,
            0,
        ), left
        assert self.broker.queue(self.target).messages_staged == 0
