"""A year of flights through a three-node cluster into Spark and back, with two kills (SIGKILL).

    python demo.py [--fraction 0.1] [--seed N] [--directory D]

Publishes every departure from New York in 2013 to queue `flights`, reads it with a Spark job that
writes Parquet and publishes long delays to queue `alerts`; kills the node that leads `flights` and
the Spark driver at moments drawn from the seed; ends with the proof that nothing was lost or done
twice.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import data
import demo_report
import proof
from proof import Check
from publisher import QUEUE, Publisher
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from warren.admin import Admin, Queue
from warren.connection import Connection
from warren.errors import WarrenError
from warren.local import LocalCluster
from warren.uri import Address

HERE = Path(__file__).resolve().parent
ALERTS = "alerts"
SAMPLE_S = 0.2
RUN_S_MAX = 1800
STALL_S_MAX = 180
console = Console()


@dataclass(frozen=True, slots=True)
class Plan:
    """The moments of the kills, as fractions of all messages.

    kill_node_at    at that mean of the published and the read fraction: up to about a half while
                    pika publishes, above that while Spark catches up
    kill_spark_at   at that fraction of messages read and committed
    down_s          how long the node stays down
    """

    kill_node_at: float
    kill_spark_at: float
    down_s: float

    @classmethod
    def drawn(cls, seed: int) -> Plan:
        """Draw the moments from the seed."""
        chance = random.Random(seed)
        return cls(chance.uniform(0.05, 0.9), chance.uniform(0.05, 0.8), chance.uniform(0.5, 3))


class Job:
    """The process of the Spark job."""

    def __init__(self, uri: str, directory: Path, per_batch: int) -> None:
        self._command = [sys.executable, str(HERE / "job.py"), str(directory)]
        self._directory = directory
        self._environment = {**os.environ, "FLIGHTS_URI": uri, "FLIGHTS_PER_BATCH": str(per_batch)}
        self._process: subprocess.Popen[bytes] | None = None
        self.log = directory / "job.log"

    def start(self) -> None:
        """Start the job; it continues from its checkpoint."""
        (self._directory / "job.jvm").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self._directory,
                start_new_session=True,
            )

    @property
    def started(self) -> bool:
        """Whether the job was ever started."""
        return self._process is not None

    @property
    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def kill(self) -> None:
        """Kill the driver with SIGKILL, JVM first; its workers end by themselves."""
        assert self._process is not None
        jvm = self._directory / "job.jvm"
        for pid in ([int(jvm.read_text())] if jvm.exists() else []) + [self._process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.wait()

    def stop(self, timeout_s: float = 90) -> int:
        """Stop the job; return its exit code."""
        assert self._process is not None
        (self._directory / "stop").touch()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return -1


class Demo:
    """One run: cluster, publisher and job, the samples and the kills."""

    def __init__(self, cluster: LocalCluster, directory: Path, fraction: float, plan: Plan) -> None:
        self.cluster = cluster
        self.directory = directory
        self.plan = plan
        lines = data.convert(HERE.parents[1] / ".warren" / "flights")
        self.flights = data.flights(lines, fraction)
        self.total = len(self.flights)
        self.wanted_table, self.wanted_alerts = data.expected(fraction)
        self.job = Job(cluster.uri, directory, max(1000, self.total // 20))
        self.publisher = Publisher(
            [("127.0.0.1", node.amqp_port) for node in cluster.nodes], self.flights
        )
        self.story = demo_report.Story()
        self.began = time.monotonic()
        self.read = 0
        self.alerts = 0
        self._connection = Connection(Address(hosts=cluster.address.hosts, request_timeout_s=3))
        self._node_back_at: float | None = None
        self._dead_node: int | None = None
        self._to_do: list[Callable[[], bool]] = [self._kill_node, self._kill_spark]

    # -------------------------------------------------------------- the run

    def run(self, progress: Progress) -> None:
        """Run until everything is published, read and settled."""
        self._prepare()
        published = progress.add_task("published", total=self.total)
        read = progress.add_task("read by Spark", total=self.total)
        alerts = progress.add_task("alerts", total=len(self.wanted_alerts))
        self.job.start()
        self._wait_for_spark()
        self.publisher.start()
        last_change = (0, 0, 0, 0)
        changed_at = time.monotonic()
        while not self._finished():
            self._sample()
            self._to_do = [deed for deed in self._to_do if not deed()]
            self._restart_node()
            progress.update(published, completed=self.publisher.confirmed)
            progress.update(read, completed=self.read)
            progress.update(alerts, completed=self.alerts)
            change = (self.publisher.confirmed, self.read, self.alerts, len(self.story.marks))
            if change != last_change:
                last_change, changed_at = change, time.monotonic()
            self._check_health(changed_at)
            time.sleep(SAMPLE_S)
        self._sample()
        progress.update(published, completed=self.publisher.confirmed)
        progress.update(read, completed=self.read)
        progress.update(alerts, completed=self.alerts)

    def _prepare(self) -> None:
        """Declare both queues, replicated; connect the publisher to a follower of `flights`."""
        admin = Admin(self._connection)
        for name in (QUEUE, ALERTS):
            admin.queues.declare(name, arguments={"x-queue-type": "quorum"})
        self.publisher.address = self._address(self._other_than(self.cluster.leader_of(QUEUE)))

    def _wait_for_spark(self) -> None:
        """Wait until the job reads, so that kills happen while it and the publisher work."""
        deadline = time.monotonic() + STALL_S_MAX
        while not Admin(self._connection).queues.get(QUEUE).readers:
            self._check_health(time.monotonic())
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"Spark has not started to read within {STALL_S_MAX} s; its log: {self.job.log}"
                )
            time.sleep(SAMPLE_S)
        self.began = time.monotonic()

    def _finished(self) -> bool:
        return (
            self.publisher.done
            and self.read == self.total
            and not self._to_do
            and self._node_back_at is None
        )

    def _check_health(self, changed_at: float) -> None:
        if self.publisher.failure is not None:
            raise SystemExit(f"the publisher failed: {self.publisher.failure!r}")
        if self.job.ended is not None:
            raise SystemExit(
                f"the Spark job has ended with {self.job.ended}; its log:\n"
                + "\n".join(self.job.log.read_text().splitlines()[-40:])
            )
        now = time.monotonic()
        if now - changed_at > STALL_S_MAX or now - self.began > RUN_S_MAX:
            raise SystemExit(
                f"nothing has moved for {now - changed_at:.0f} s: published "
                f"{self.publisher.confirmed}, read {self.read}, {self.queue(QUEUE)}"
            )

    def queue(self, name: str) -> Queue | None:
        """Return a queue's counts; None while no node answers."""
        try:
            return Admin(self._connection).queues.get(name)
        except WarrenError:
            return None

    def _sample(self) -> None:
        now = time.monotonic() - self.began
        confirmed = self.publisher.confirmed  # before the sample, so that `read` is never too high
        flights, alerts = self.queue(QUEUE), self.queue(ALERTS)
        if flights is not None:
            left = (
                flights.messages_ready + flights.messages_claimed + flights.messages_unacknowledged
            )
            self.read = max(self.read, min(confirmed - left, self.total))
        if alerts is not None:
            self.alerts = alerts.messages_ready
        for name, count in (
            ("published", confirmed),
            ("read by Spark", self.read),
            ("alerts", self.alerts),
        ):
            self.story.samples[name].append((now, count))

    # -------------------------------------------------------------- the kills

    def _mark(self, text: str) -> None:
        self.story.marks.append((time.monotonic() - self.began, text))
        console.log(text)

    def _kill_node(self) -> bool:
        """Kill the leader of `flights` once enough was processed; return whether it was done."""
        if self.publisher.confirmed + self.read < 2 * self.plan.kill_node_at * self.total:
            return False
        leader = self.cluster.leader_of(QUEUE)
        if self._address(leader) == self.publisher.address:
            # Leadership has moved to the publisher's node: let it confirm everything and connect
            # to another one, because what is in doubt after a lost connection must be resent.
            self.publisher.move(self._address(self._other_than(leader)))
        self.cluster.kill(leader)
        self._mark(f"kill -9 node {leader + 1} (leads {QUEUE})")
        self._dead_node = leader
        self._node_back_at = time.monotonic() + self.plan.down_s
        return True

    def _restart_node(self) -> None:
        if self._node_back_at is None or time.monotonic() < self._node_back_at:
            return
        assert self._dead_node is not None
        self.cluster.start(self._dead_node)
        self._mark(f"node {self._dead_node + 1} is back")
        self._node_back_at = None

    def _kill_spark(self) -> bool:
        """Kill the Spark driver once enough is read, and start it again."""
        if self.read < self.plan.kill_spark_at * self.total:
            return False
        self.job.kill()
        self._mark("kill -9 Spark driver")
        self.job.start()
        self._mark("Spark driver started again")
        return True

    def _address(self, node: int) -> tuple[str, int]:
        return ("127.0.0.1", self.cluster.nodes[node].amqp_port)

    def _other_than(self, node: int) -> int:
        return (node + 1) % len(self.cluster.nodes)

    # -------------------------------------------------------------- the proof

    def prove(self) -> list[Check]:
        """Stop the job and check its output and the queues."""
        code = self.job.stop()
        checks = [Check("Spark stopped cleanly", f"exit code {code}", code == 0)]
        table = proof.parquet_table(self.directory)
        proof.write_result(table, self.directory / "delays.parquet")
        checks.append(
            Check(
                "nothing published twice",
                f"{self.publisher.confirmed:,} confirmed of {self.total:,}; "
                f"{self.publisher.in_doubt} sent again in doubt",
                self.publisher.confirmed == self.total and not self.publisher.in_doubt,
            )
        )
        checks.append(proof.check_parquet(table, self.wanted_table))
        got = proof.read_alerts(self.publisher.address)
        checks += proof.check_alerts(got, self.wanted_alerts)
        for name in (QUEUE, ALERTS):
            checks.append(self._check_empty(name))
        return checks

    def _check_empty(self, name: str) -> Check:
        found = Admin(self._connection).queues.get(name)
        counts = {
            "ready": found.messages_ready,
            "unacknowledged": found.messages_unacknowledged,
            "claimed": found.messages_claimed,
            "staged": found.messages_staged,
        }
        told = ", ".join(f"{count} {what}" for what, count in counts.items())
        return Check(f"nothing left in {name}", told, not any(counts.values()))


def closing_table(checks: list[Check], seconds: float) -> Table:
    """Return the table of the checks."""
    table = Table(title=f"the proof, after {seconds:.0f} s")
    for name in ("", "claim", "found"):
        table.add_column(name)
    for check in checks:
        mark = "[green]✓[/green]" if check.worked else "[red]✗[/red]"
        table.add_row(mark, check.claim, check.found)
    return table


@contextmanager
def workplace(given: str | None) -> Iterator[Path]:
    """Return the directory of this run; a temporary one is deleted unless the run failed."""
    if given is not None:
        directory = Path(given).absolute()
        for name in ("checkpoint", "delays", "cluster"):
            shutil.rmtree(directory / name, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "stop").unlink(missing_ok=True)
        yield directory
        return
    directory = Path(tempfile.mkdtemp(prefix="warren-demo-"))
    try:
        yield directory
    except BaseException:
        console.print(f"logs and data are in {directory}")
        raise
    shutil.rmtree(directory, ignore_errors=True)


def run(options: argparse.Namespace) -> int:
    """Run once, from an empty cluster to the report."""
    plan = Plan.drawn(options.seed)
    with workplace(options.directory) as directory:
        console.print(f"cluster of three nodes, seed {options.seed}; {plan}")
        with LocalCluster(3, directory / "cluster") as cluster:
            demo = Demo(cluster, directory, options.fraction, plan)
            columns = (
                TextColumn("{task.description:>14}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            try:
                with Progress(*columns, console=console) as progress:
                    demo.run(progress)
                seconds = time.monotonic() - demo.began
                checks = demo.prove()
            finally:
                if demo.job.started and demo.job.ended is None:
                    demo.job.kill()
        path = Path(options.report).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        demo_report.write(
            path,
            "Warren: a year of flights, with two kills",
            demo.story,
            checks,
            [
                ("messages", f"{demo.total:,}"),
                ("alerts", f"{len(demo.wanted_alerts):,}"),
                ("seconds", f"{seconds:.1f}"),
                ("seed", str(options.seed)),
                ("messages per second, with both kills", f"{demo.total / seconds:,.0f}"),
                ("kills", "; ".join(f"{at:.1f} s: {text}" for at, text in demo.story.marks)),
            ],
        )
        console.print(closing_table(checks, seconds))
        console.print(f"report: {path}")
        worked = all(check.worked for check in checks)
        if not worked:
            console.print(
                f"again: python3 build.py demo --seed {options.seed} "
                f"--fraction {options.fraction} --directory somewhere"
            )
        return 0 if worked else 1


def main() -> int:
    """Run the demo with the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--fraction", type=float, default=1.0, help="of the flights, 0.001 to 1")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31), help="when to kill")
    parser.add_argument("--directory", help="where to keep data and logs (default: nowhere)")
    parser.add_argument("--report", default=str(HERE.parents[1] / "report" / "demo.html"))
    options = parser.parse_args()
    if not 0.001 <= options.fraction <= 1:
        parser.error(f"--fraction {options.fraction} is not between 0.001 and 1")
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
