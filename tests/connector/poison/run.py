"""Spark with a function that raises for one message of 1,000; the driver is killed in the search.

    python3 build.py poison [parquet] [queue]

The kill comes in the moment that must not double anything: the sink has a batch, and Spark's commit
log does not. `test_poison_live` runs a small search without it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from spark_world.runs import DRIVER, RealWorld

from warren import Admin
from warren.local import LocalCluster

SINKS = ("parquet", "queue")
COUNT = 1_000
POISON = 841
"""The 613th in the order of delivery, which is by priority. It is in the second half, in the first
quarter of that, the first eighth, and the second sixteenth."""
FAILURES_MAX = 60


class Search:
    """A query from a queue with one message at fault, which is searched for."""

    def __init__(self, cluster: LocalCluster, directory: Path, sink: str, poison: int) -> None:
        self.world = world = RealWorld(cluster, directory)
        self.cluster = cluster
        self.sink = sink
        self.poison = b"message %06d" % poison
        self.dead = f"dead-{world.source}"
        self.output = directory / "output"
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead}
        with cluster.connect() as connection:
            admin = Admin(connection)
            admin.declare_queue(self.dead)
            admin.delete_queue(world.source)
            admin.declare_queue(world.source, arguments={"x-queue-type": "quorum", **letters})
        settles = {"settleWithBatch": "true"} if sink == "queue" else {}
        self.given: dict[str, Any] = {
            "poison": self.poison.decode(),
            "source": {
                "onBatchFailure": "reject",
                "isolatePoison": "true",
                "batchTriesMax": "1",
                **settles,
            },
            "sink": settles,
        }
        if sink == "parquet":
            self.given["parquet"] = str(self.output)

    def fails(self) -> bool:
        """Start the query in a driver that earlier ones had; return whether it fails."""
        done = DRIVER.attempt(self.world.plan(self.given))
        assert "failed" not in done or "poison: " in done["failed"], done["failed"][-3000:]
        return "failed" in done

    def failures(self) -> int:
        """Start the query until it does not fail; return how often it did."""
        count = 0
        while self.fails():
            count += 1
            assert count < FAILURES_MAX
        return count

    def killed_in_the_window(self) -> None:
        """Kill -9 the driver behind the next batch with rows, between the sink and the commit log.

        Behind the batch that is given up the next one passes. Spark's file sink has no place to
        die at: there the driver is killed when the source is asked again, and the commit log's
        last entry is removed.
        """
        world = self.world
        world.arm(*(("before_settle", 2) if self.sink == "parquet" else ("after_publish", 1)))
        died = world.run(**self.given)
        assert world.killed and died.returncode != 0, died.stderr[-2000:]
        if self.sink == "parquet":
            commits = world.directory / "checkpoint" / "commits"
            last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
            for path in (commits / str(last), commits / f".{last}.crc"):
                path.unlink(missing_ok=True)

    def check(self, bodies: set[bytes]) -> None:
        """The message at fault is dead-lettered, every other one written once, none is left."""
        letters = [
            bytes(block.body(i)) for block in self.blocks(self.dead) for i in range(block.count)
        ]
        assert letters == [self.poison], letters
        if self.sink == "parquet":
            table = pq.read_table(self.output)
            written = [bytes.fromhex(body) for body in table.column("body").to_pylist()]
        else:
            written = self.world.bodies()
        doubled, lost = len(written) - len(set(written)), bodies - set(written) - {self.poison}
        assert (doubled, lost) == (0, set()) and self.poison not in written, (doubled, len(lost))
        self.world.check_source_empty()

    def blocks(self, queue: str) -> list[Any]:
        """The blocks of ready messages of a queue."""
        from warren_broker.block.block import Block

        return [Block.decode(each.data) for each in self.world.broker.browse(queue, 1 << 30)]


def main() -> int:
    """Search with each sink that is named, or both."""
    with tempfile.TemporaryDirectory(prefix="warren-poison-") as directory:
        with LocalCluster(3, Path(directory) / "cluster") as cluster:
            for sink in sys.argv[1:] or SINKS:
                began = time.monotonic()
                (Path(directory) / sink).mkdir()
                search = Search(cluster, Path(directory) / sink, sink, POISON)
                bodies = set(search.world.publish(COUNT))
                before = [search.fails() for _ in range(4)].count(True)
                search.killed_in_the_window()
                after = search.failures()
                search.check(bodies)
                print(
                    f"{sink}: {COUNT:,} messages, 1 at fault: {before} failures, kill -9, {after} "
                    f"failures; 1 dead-lettered, lost 0, doubled 0, "
                    f"{time.monotonic() - began:.0f} s",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
