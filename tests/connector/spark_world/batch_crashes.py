"""Loops of batches on Spark 3.4 and 3.5 under kills: queue to queue and to folders, exactly once.

    python3 build.py crashes --spark 3.5.9
    python3 build.py crashes --spark 3.4.4 --broker warren --steps in_function after_publish

A run is one checkpoint on queues of its own. Messages are published, the driver is killed at a
step, the next run continues and is killed at the next one; a task is killed, a driver stands still
while another one does the work, and one is told to stop. At the end each message must be in the
folder of one batch, and in the target once, and nothing is left. Brokers: `warren` reads by claims,
`spool` the same broker by AMQP 0.9.1, through a spool.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from sparks import venvs

from spark_world.batch_job import STEPS
from spark_world.runs import PATH, POLL_S, RUN_S_MAX, RealWorld, resume
from warren.local import LocalCluster

SOURCES: dict[str, dict[str, str]] = {"warren": {}, "spool": {"broker": "amqp"}}
BATCH, MESSAGES = 50, 120
OVERTAKEN = {f"overtaken_{step}": step for step in ("after_latest", "in_function")}
EVERYTHING = (*STEPS, "task", *OVERTAKEN, "stop")
"""What one run does, in this order."""


class Loop:
    """A loop with its checkpoint, run again and again by one interpreter."""

    def __init__(self, cluster: LocalCluster, directory: Path, python: str, source: str) -> None:
        self.world = RealWorld(cluster, directory)
        self.directory, self.python = directory, python
        self.bodies: list[bytes] = []
        self.plan: dict[str, Any] = {
            "hosts": cluster.hosts,
            "queue": self.world.source,
            "target": self.world.target,
            "checkpoint": str(directory / "checkpoint"),
            "out": str(directory / "out"),
            "done": str(directory / "done"),
            "source": {"maxMessagesPerTrigger": BATCH, "partitions": 2, **SOURCES[source]},
        }

    def publish(self) -> None:
        """Publish the next messages."""
        self.bodies += self.world.publish(MESSAGES, len(self.bodies))

    def start(self, **plan: Any) -> subprocess.Popen[str]:
        """Start the program."""
        (self.directory / "done").unlink(missing_ok=True)
        names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
        return subprocess.Popen(
            [self.python, "-m", "spark_world.batch_job", json.dumps({**self.plan, **plan})],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(PATH),
                **dict.fromkeys(names, self.python),
            },
            cwd=self.directory,
        )

    def finish(self, process: subprocess.Popen[str] | None = None) -> str:
        """Wait for a good end; return the version of Spark."""
        out, wrong = (process or self.start()).communicate(timeout=RUN_S_MAX)
        assert out.strip(), wrong[-4000:]
        return str(json.loads(out.strip().splitlines()[-1])["spark"])

    def dies(self, step: str) -> None:
        """Run it to its death at that step."""
        self.publish()
        process = self.start(dies=step)
        _, wrong = process.communicate(timeout=RUN_S_MAX)
        assert process.returncode == -signal.SIGKILL, wrong[-4000:]

    def loses_a_task(self) -> None:
        """Run it with a task that is killed once."""
        self.publish()
        self.finish(self.start(dies="task"))
        assert (self.directory / "done").exists()

    def overtaken(self, step: str) -> None:
        """One stands still at that step while another one does the work; then it continues."""
        self.publish()
        done = self.directory / "done"
        older = self.start(dies=step, stop=True)
        while not (done.exists() and done.read_text()):
            assert older.poll() is None, older.communicate()[1][-4000:]
            time.sleep(POLL_S)
        pids = tuple(int(pid) for pid in done.read_text().split())
        try:
            self.finish()
        finally:
            resume(pids)
        _, wrong = older.communicate(timeout=RUN_S_MAX)
        assert older.returncode == 1 and "WARREN_FENCED" in wrong, wrong[-4000:]

    def is_told_to_stop(self) -> None:
        """An endless one ends well after a SIGTERM."""
        self.publish()
        process = self.start(endless=True)
        deadline = time.monotonic() + RUN_S_MAX
        while len(self.rows()) < len(self.bodies):
            assert process.poll() is None, process.communicate()[1][-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.5)
        process.terminate()
        self.finish(process)
        assert process.returncode == 0

    def rows(self) -> list[bytes]:
        """What is in the folders."""
        found: list[bytes] = []
        for batch in (self.directory / "out").glob("*"):
            if (batch / "_SUCCESS").exists():
                table = ds.dataset(batch, format="parquet").to_table()
                found += [bytes.fromhex(text) for text in table["body"].to_pylist()]
        return found

    def check(self) -> None:
        """Lost 0, doubled 0, in the folders and in the target; nothing is left in the source."""
        assert sorted(self.rows()) == sorted(self.bodies)
        deadline = time.monotonic() + RUN_S_MAX
        while self.world.broker.queue(self.world.source).messages_unacknowledged:
            assert time.monotonic() < deadline  # a receiver's last acknowledgement
            time.sleep(POLL_S)
        self.world.check_exact(self.bodies)


def one_run(loop: Loop, steps: Sequence[str] = EVERYTHING) -> str:
    """One loop with these deaths; return a line of the table."""
    began = time.monotonic()
    for step in steps:
        if step in OVERTAKEN:
            loop.overtaken(OVERTAKEN[step])
        elif step == "task":
            loop.loses_a_task()
        elif step == "stop":
            loop.is_told_to_stop()
        else:
            loop.dies(step)
    loop.publish()
    version = loop.finish()
    loop.check()
    done = {"driver": STEPS, "overtaken": OVERTAKEN, "task": ("task",)}
    counts = {name: len(set(of) & set(steps)) for name, of in done.items()}
    kills = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    seconds = time.monotonic() - began
    return f"| {version} | {kills} | {len(loop.bodies):,} | 0 | 0 | {seconds:.0f} |"


def main() -> int:
    """Run the campaign; an assertion ends it."""
    parser = argparse.ArgumentParser(prog="build.py crashes --spark 3.5.9", description=__doc__)
    parser.add_argument("--spark", required=True)
    parser.add_argument("--runs", type=int, default=1, help="of each source")
    parser.add_argument("--broker", choices=SOURCES)
    parser.add_argument("--steps", nargs="+", choices=EVERYTHING, default=EVERYTHING)
    options = parser.parse_args()
    python = str(venvs.beside(options.spark))
    with tempfile.TemporaryDirectory(prefix="warren-batches-") as name:
        with LocalCluster(3, Path(name) / "cluster") as cluster:
            print("| source | Spark | killed | messages | lost | doubled | seconds |", flush=True)
            for number in range(options.runs):
                for source in [options.broker] if options.broker else SOURCES:
                    directory = Path(name) / f"{source}-{number}"
                    directory.mkdir()
                    loop = Loop(cluster, directory, python, source)
                    print(f"| {source} {one_run(loop, options.steps)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
