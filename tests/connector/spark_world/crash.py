"""Spark on real brokers, crashed at moments that a seed draws: the crash matrix of the connector.

    python3 build.py crashes                                  300 runs over the whole matrix
    python3 build.py crashes --broker warren --fault driver --sink queue --runs 20 --seed 7
    python3 build.py crashes --spark 4.0.5 --broker warren      with another PySpark from PyPI
    python3 build.py crashes --spark 3.5.9                      loops of batches: `batch_crashes`

A run is one query on queues of its own. The matrix: brokers (a Warren cluster of three nodes, the
system's RabbitMQ, RabbitMQ 4 in the chroot that `build.py bench` makes, ActiveMQ Artemis over
AMQP 1.0) x faults x sinks. At its end every message must have arrived, and once, except in a queue
of another broker, which is promised rows at least once: there repeats must have the same
message_id. A failure prints the command that draws the same run again.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import pyspark
from sparks import venvs

from bench import rabbitmq
from connector.amqp.rabbitmq import OneRabbitMQ
from connector.amqp10.brokers import Artemis
from pyspark_warren.spark_line import TELLS_START
from spark_world.artemis import ArtemisNode
from spark_world.crash_faults import FAULTS, Scene
from spark_world.crash_world import SINKS, CrashWorld
from spark_world.rabbit import RabbitWorld
from spark_world.runs import DRIVER, RealWorld
from spark_world.warm_python import warm
from warren.local import LocalCluster

RUNS = 300
SYSTEM = Path("/")


class WarrenNodes:
    """A cluster of three nodes."""

    name = "warren"

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def ports(self) -> list[int]:
        """Return the port of each node."""
        return [node.amqp_port for node in self.cluster.nodes]

    def kill_a_node(self, rng: random.Random) -> Callable[[], None]:
        """Kill one node; return what starts it again."""
        which = rng.randrange(len(self.cluster.nodes))
        self.cluster.kill(which)
        return lambda: (self.cluster.start(which), None)[1]

    def kill_the_leader(self, queue: str) -> Callable[[], None]:
        """Kill the node that leads a queue; return what starts it again."""
        which = self.cluster.leader_of(queue)
        self.cluster.kill(which)
        return lambda: (self.cluster.start(which), None)[1]

    def world(self, directory: Path) -> RealWorld | RabbitWorld:
        """Return two queues of their own."""
        return RealWorld(self.cluster, directory)


class WarrenAsAmqp(WarrenNodes):
    """The same cluster, read as any AMQP broker is: with a spool. Its sink is Warren's."""

    name = "warren-amqp"

    def world(self, directory: Path) -> RabbitWorld:
        """Return queues of their own."""
        return RabbitWorld(self.cluster.hosts.split(",")[0], directory, broker="amqp")


class RabbitNode:
    """One node of a RabbitMQ."""

    def __init__(self, name: str, broker: OneRabbitMQ) -> None:
        self.name, self.broker = name, broker

    def ports(self) -> list[int]:
        """Return its port."""
        return [self.broker.port]

    def kill_a_node(self, rng: random.Random) -> Callable[[], None]:
        """Kill it; return what starts it again."""
        self.broker.kill()
        return self.broker.restart

    def kill_the_leader(self, queue: str) -> Callable[[], None]:
        """Kill it: there is one."""
        self.broker.kill()
        return self.broker.restart

    def world(self, directory: Path) -> RabbitWorld:
        """Return queues of their own."""
        return RabbitWorld(self.broker.hosts, directory)


AnyNodes: TypeAlias = WarrenNodes | RabbitNode | ArtemisNode


@dataclass(frozen=True)
class Cell:
    """One field of the matrix."""

    broker: str
    fault: str
    sink: str

    def command(self, seed: int) -> str:
        """Return what draws that run again."""
        return (
            f"python3 build.py crashes --spark {pyspark.__version__} --broker {self.broker} "
            f"--fault {self.fault} "
            f"--sink {self.sink} --runs 1 --seed {seed}"
        )


def exact(cell: Cell) -> bool:
    """Return whether the sink promises each row once."""
    return cell.broker.startswith("warren") or cell.sink != "queue"


@dataclass
class Counts:
    """What the runs of a cell gave."""

    runs: int = 0
    failed: int = 0
    lost: int = 0
    doubled: int = 0

    def __str__(self) -> str:
        text = f"{self.runs} runs, {self.lost} lost, {self.doubled} doubled"
        return f"{text}, {self.failed} FAILED" if self.failed else text


@dataclass
class Brokers:
    """The brokers that were needed so far; they run until the end."""

    place: Path
    stack: ExitStack
    made: dict[str, AnyNodes] = field(default_factory=dict)

    def get(self, name: str) -> AnyNodes:
        """Return the broker of that name, started."""
        if name not in self.made:
            if name.startswith("warren"):
                cluster = self.stack.enter_context(LocalCluster(3, self.place / name))
                self.made[name] = (WarrenNodes if name == "warren" else WarrenAsAmqp)(cluster)
            elif name == "artemis":
                self.made[name] = ArtemisNode(self.stack.enter_context(Artemis()))
            else:
                root = SYSTEM if name == "rabbitmq-system" else rabbitmq.find([])
                node = self.stack.enter_context(OneRabbitMQ(root=root))
                self.made[name] = RabbitNode(name, node)
        return self.made[name]


FAULTS_OF_SINK = ("driver", "python", "executor", "node", "connection")
"""What is done to a query that reads files."""
BROKERS = ("warren", "warren-amqp", "rabbitmq-system", "rabbitmq-4", "artemis")


def one_run(broker: AnyNodes, cell: Cell, directory: Path, seed: int) -> tuple[str, int, int]:
    """One query, start to end; what was done to it, rows lost, rows doubled.

    raises AssertionError: a query did not end as it must, or what arrived is not what was sent
    """
    rng = random.Random(f"{cell} {seed}")
    endless = not TELLS_START and rng.random() < 0.5  # they have one batch in a run otherwise
    world = CrashWorld(broker.world(directory), cell.sink, endless)
    done = FAULTS[cell.fault](Scene(world, broker, rng, seed))
    world.finish()
    lost, doubled = world.check()
    return done, lost, doubled


def cells(options: argparse.Namespace) -> list[Cell]:
    """Return the fields that the options leave; others have receivers, and no exact sink."""
    return [
        Cell(broker, fault, sink)
        for fault in FAULTS
        for sink in SINKS
        for broker in BROKERS
        if options.broker in (None, broker)
        if fault in (options.fault or FAULTS)
        if options.sink in (None, sink)
        if (broker, fault) != ("warren", "receiver")
        if fault != "checkpoint" or sink == "queue"
        if sink != "files" or (broker == "warren" and fault in FAULTS_OF_SINK)
    ]


def table(results: dict[Cell, Counts]) -> None:
    """Print what each cell gave."""
    print(f"\nPySpark {pyspark.__version__}")
    print(f"{'broker':16} {'fault':11} {'sink':8} rows of all runs")
    for cell in sorted(results, key=lambda each: (each.broker, each.fault, each.sink)):
        print(f"{cell.broker:16} {cell.fault:11} {cell.sink:8} {results[cell]}")
    print("\n| PySpark | broker | source | sink | queue to queue |")
    for broker in sorted({cell.broker for cell in results}):
        parts = [
            str(total(each for cell, each in results.items() if (cell.broker, role(cell)) == part))
            for part in ((broker, "source"), (broker, "sink"), (broker, "both"))
        ]
        print(f"| {pyspark.__version__} | {broker} | {' | '.join(parts)} |")
    print(f"{'in all':37} {total(results.values())}", flush=True)


def role(cell: Cell) -> str:
    """Return what of a query is the connector's: its source, its sink, both."""
    return {"queue": "both", "files": "sink"}.get(cell.sink, "source")


def total(every: Iterable[Counts]) -> Counts:
    """Add counts up."""
    counts = list(every)
    return Counts(*(sum(getattr(each, name) for each in counts) for name in Counts.__annotations__))


def parsed() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        prog="build.py crashes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=RUNS, help="in all, spread over the cells")
    parser.add_argument("--minutes", type=float, help="begin no run after that time")
    parser.add_argument("--seed", type=int, default=1, help="of each cell's first run")
    parser.add_argument("--spark", default=pyspark.__version__, help="version of PySpark")
    parser.add_argument(
        "--warm", action="store_true", help="Spark's Python processes begin as copies of one"
    )
    parser.add_argument("--broker", choices=BROKERS)
    parser.add_argument("--fault", nargs="+", choices=tuple(FAULTS))
    parser.add_argument("--sink", choices=SINKS)
    options = parser.parse_args()
    if not cells(options):
        parser.error("Warren has no receivers: give --broker rabbitmq-system or rabbitmq-4")
    if any(each.broker == "rabbitmq-system" for each in cells(options)) and not rabbitmq.server(
        SYSTEM
    ):
        parser.error(
            "rabbitmq-system is not there: apt-get install rabbitmq-server, or give --broker"
        )
    return options


def main() -> int:
    """Run the matrix; the exit code is 1 if a run failed."""
    if any(pair[0] == "--spark" and pair[1][:2] == "3." for pair in pairwise(sys.argv)):
        os.execv(sys.executable, [sys.executable, "-m", "spark_world.batch_crashes", *sys.argv[1:]])
    options = parsed()
    if options.spark != pyspark.__version__:
        python = str(venvs.beside(options.spark))
        os.execv(python, [python, "-m", "spark_world.crash", *sys.argv[1:]])
    chosen = cells(options)
    results: dict[Cell, Counts] = defaultdict(Counts)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="warren-crash-") as name, ExitStack() as stack:
        stack.callback(table, results)
        if options.warm:
            stack.enter_context(warm())
        stack.callback(DRIVER.close)
        brokers = Brokers(Path(name), stack)
        for number in range(options.runs):
            if options.minutes is not None and time.monotonic() - began > 60 * options.minutes:
                break
            cell = chosen[number % len(chosen)]
            seed = options.seed + number // len(chosen)
            directory = Path(name) / f"run-{number}"
            directory.mkdir()
            _counted(brokers.get(cell.broker), cell, directory, seed, results[cell])
            shutil.rmtree(directory)
    return 1 if any(each.failed for each in results.values()) else 0


def _counted(broker: AnyNodes, cell: Cell, directory: Path, seed: int, counts: Counts) -> None:
    """Make one run, print its line, add it up."""
    began = time.monotonic()
    counts.runs += 1
    where = f"{cell.broker} {cell.fault} {cell.sink} seed {seed}"
    try:
        done, lost, doubled = one_run(broker, cell, directory, seed)
    except Exception:
        counts.failed += 1
        traceback.print_exc()
        print(f"{where} FAILED; again: {cell.command(seed)}", flush=True)
        DRIVER.close()
        return
    counts.lost += lost
    counts.doubled += doubled
    took = time.monotonic() - began
    print(f"{where}: {done}: lost {lost}, doubled {doubled}, {took:.0f} s", flush=True)
    if lost or (doubled and exact(cell)):
        counts.failed += 1
        print(f"{where} FAILED; again: {cell.command(seed)}", flush=True)


if __name__ == "__main__":
    code = main()
    DRIVER.close()
    sys.exit(code)
