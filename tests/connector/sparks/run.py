"""The wheel of Warren wherever Spark runs: exactly once from queue to queue, with kills.

    python3 build.py sparks
    python3 build.py sparks 4.0.5 standalone connect-4.1.4 kubernetes

For each deployment: numbered messages in a queue of a three-node cluster, a streaming query into
another queue, and a kill when a third of the messages is there: of the driver, of an executor, of
the Spark Connect server. At the end each message must be in the target once and nowhere else.
`lines` continues one checkpoint with each PySpark after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from spark_world.runs import POLL_S, RUN_S_MAX, RealWorld

from sparks import job, kubernetes, places, venvs
from sparks.places import Place, Process
from warren.local import LocalCluster

SPARKS = {"4.0.5": "4.0.4", "4.1.4": "4.1.3", "4.2.1": "4.2.0", "4.3.0": "4.2.0"}
"""PySpark's versions, and the latest pyspark-client on PyPI for each."""
LATEST = "4.3.0"
MESSAGES, BATCH = 4_000, 250


def _places() -> dict[str, Callable[[str, Path], AbstractContextManager[Place]]]:
    """Return what makes each deployment, by its name on the command line."""
    made: dict[str, Callable[[str, Path], AbstractContextManager[Place]]] = {}
    for version, client in SPARKS.items():
        made[version] = partial(places.local, version)
        made[f"connect-{version}"] = partial(places.connect, version, client)
    made["standalone"] = partial(places.standalone, LATEST)
    made["kubernetes"] = partial(kubernetes.cluster, LATEST)
    return made


PLACES = _places()


class Query:
    """The query of one place, from one queue to another, run again after a kill."""

    def __init__(self, place: Place, cluster: LocalCluster, directory: Path) -> None:
        self.place, self.directory = place, directory
        self.world = RealWorld(cluster, directory)
        self.bodies: list[bytes] = []

    def publish(self) -> None:
        """Publish the next messages into the source."""
        self.bodies += self.world.publish(MESSAGES, len(self.bodies))

    def start(self) -> Process:
        """Start the program; the checkpoint says where it continues."""
        plan = {
            "hosts": self.world.cluster.hosts,
            "source": self.world.source,
            "target": self.world.target,
            "checkpoint": str(self.directory / "checkpoint"),
            "batch": BATCH,
            "options": self.place.options,
        }
        command = [*self.place.command, f"{self.place.scheme}{job.__file__}", json.dumps(plan)]
        log = self.directory / "job.log"
        log.unlink(missing_ok=True)
        return Process(command, self.place.env, log)

    def wait_for_a_third(self, process: Process) -> int:
        """Wait until a third of the latest messages is in the target; return how many are."""
        wanted = len(self.bodies) - MESSAGES * 2 // 3
        deadline = time.monotonic() + RUN_S_MAX
        while True:
            there = self.world.broker.queue(self.world.target).messages_ready
            assert process.popen.poll() is None and time.monotonic() < deadline, process.tail()
            if there >= wanted:
                assert there < len(self.bodies), "the query was done before the kill"
                return there
            time.sleep(POLL_S)

    def finish(self, process: Process) -> str:
        """Wait for the program's end, check both queues; return what it printed."""
        process.popen.wait(RUN_S_MAX)
        assert process.popen.returncode == 0, process.tail()
        output = self.place.output() if self.place.output is not None else process.log
        printed = output.read_text(encoding="utf-8").splitlines()
        said = json.loads(next(line for line in reversed(printed) if line.startswith("{")))
        assert said["rows"] == len(self.bodies), said
        self.world.check_exact(self.bodies)
        return f"Spark {said['spark']}"


def end_executor(query: Query, end: Callable[[], str]) -> str:
    """End an executor; Spark starts another one and repeats its tasks."""
    query.publish()
    with query.start() as program:
        there = query.wait_for_a_third(program)
        done = end()
        query.finish(program)
    return f"{done} at {there:,}"


def end_driver(query: Query) -> str:
    """End the process with the driver; the program is started again and continues."""
    query.publish()
    with query.start() as program:
        there = query.wait_for_a_third(program)
        done = query.place.end_driver(program)
    with query.start() as program:
        query.finish(program)
    return f"{done} at {there:,}"


def lines(cluster: LocalCluster, directory: Path) -> str:
    """Kill a driver of each line, and continue its checkpoint with the next one, up and down."""
    query: Query | None = None
    began, done = time.monotonic(), []
    with ExitStack() as stack:
        made = {
            version: stack.enter_context(places.local(version, os.environ["JAVA_HOME"], directory))
            for version in SPARKS
        }
        oldest, *others = SPARKS
        for version in (oldest, others.pop(), *others):
            query = query or Query(made[version], cluster, directory)
            query.place = made[version]
            query.publish()
            with query.start() as program:
                done.append(f"{version} at {query.wait_for_a_third(program):,}")
        assert query is not None
        query.place = made[oldest]
        with query.start() as program:
            query.finish(program)
    seconds = time.monotonic() - began
    return (
        f"| one checkpoint, PySpark after PySpark | drivers of {', '.join(done)} | "
        f"{len(query.bodies):,} | 0 | 0 | {seconds:.0f} |"
    )


def one_place(name: str, cluster: LocalCluster, directory: Path) -> str:
    """Run the query with kills in that deployment; return the line that says what held."""
    if name == "lines":
        return lines(cluster, directory)
    with PLACES[name](os.environ["JAVA_HOME"], directory) as place:
        began = time.monotonic()
        query = Query(place, cluster, directory)
        done = [] if place.end_executor is None else [end_executor(query, place.end_executor)]
        done.append(end_driver(query))
        seconds = time.monotonic() - began
        return (
            f"| {place.name} | {', then '.join(done)} | {len(query.bodies):,} | 0 | 0 | "
            f"{seconds:.0f} |"
        )


def main() -> int:
    """Run the named deployments, or all; the first failure ends it."""
    parser = argparse.ArgumentParser(prog="build.py sparks", description=__doc__)
    known = [*PLACES, "lines"]
    parser.add_argument("places", nargs="*", metavar="PLACE", help=f"of {', '.join(known)}")
    wanted = parser.parse_args().places or known
    for name in wanted:
        if name not in known:
            parser.error(f"unknown place {name!r}; there are {', '.join(known)}")
    with tempfile.TemporaryDirectory(prefix="warren-sparks-") as top:
        venvs.make_wheels()
        with LocalCluster(nodes=3) as cluster:
            print("| where | killed | messages | lost | doubled | seconds |", flush=True)
            for name in wanted:
                directory = Path(top) / name
                directory.mkdir()
                print(one_place(name, cluster, directory), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
