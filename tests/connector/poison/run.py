"""Spark with a function that raises for one message of 1,000; the driver is killed in the search.

    python3 build.py poison [parquet] [queue] [--broker warren|amqp]

The kill comes in the moment that must not double anything: the sink has a batch, and Spark's commit
log does not. With `amqp` the source is a queue of a RabbitMQ. Into a queue of RabbitMQ rows come at
least once, so there the sink is Parquet alone. `test_poison_live` and `amqp/test_spark_source` run
small searches without the kill.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from spark_world.crash_world import of_file_sink
from spark_world.rabbit import RabbitWorld
from spark_world.runs import DRIVER, RealWorld

from connector.amqp.rabbitmq import OneRabbitMQ
from warren import Admin
from warren.local import LocalCluster

SINKS = {"warren": ("parquet", "queue"), "amqp": ("parquet",)}
COUNT = 1_000
POISON = 841
"""Of the priorities of Warren's messages it is the 613th in the order of delivery: in the second
half, in the first quarter of that, the first eighth, and the second sixteenth. RabbitMQ delivers it
as the 842nd."""
FAILURES_MAX = 60


class Search:
    """A query from a queue with one message at fault, which is searched for.

    given  what its runs are told, but for where the source is
    """

    def __init__(self, world: RealWorld | RabbitWorld, sink: str, poison: int) -> None:
        self.runs = world
        self.poison = b"message %06d" % poison
        self.output = world.directory / "output"
        self.dead = f"dead-{world.where['source_queue']}"
        self.given: dict[str, Any] = {"poison": self.poison.decode()}
        if sink == "parquet":
            self.given["parquet"] = str(self.output)
        self.before_settle = ("before_settle", 2)

    def fails(self) -> bool:
        """Start the query in a driver that earlier ones had; return whether it fails."""
        done = DRIVER.attempt(self.runs.plan(self.given))
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
        runs = self.runs
        runs.arm(*(self.before_settle if "parquet" in self.given else ("after_publish", 1)))
        died = runs.run(**self.given)
        assert runs.killed and died.returncode != 0, died.stderr[-2000:]
        if "parquet" in self.given:
            commits = runs.directory / "checkpoint" / "commits"
            last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
            for path in (commits / str(last), commits / f".{last}.crc"):
                path.unlink(missing_ok=True)

    def check(self, bodies: set[bytes]) -> None:
        """The message at fault is dead-lettered, every other one written once, none is left."""
        letters = self.letters()
        assert letters == [self.poison], letters
        written = self.written()
        doubled, lost = len(written) - len(set(written)), bodies - set(written) - {self.poison}
        assert (doubled, lost) == (0, set()) and self.poison not in written, (doubled, len(lost))
        self.runs.check_source_empty()

    def letters(self) -> list[bytes]:
        """Return what was dead-lettered."""
        raise NotImplementedError

    def written(self) -> list[bytes]:
        """Return what the sink has."""
        return of_file_sink(self.output)


class ClaimSearch(Search):
    """From a queue of Warren."""

    def __init__(self, cluster: LocalCluster, directory: Path, sink: str, poison: int) -> None:
        self.world = world = RealWorld(cluster, directory)
        super().__init__(world, sink, poison)
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead}
        with cluster.connect() as connection:
            admin = Admin(connection)
            admin.queues.declare(self.dead)
            admin.queues.delete(world.source)
            admin.queues.declare(world.source, arguments={"x-queue-type": "quorum", **letters})
        settles = {"settleWithBatch": "true"} if sink == "queue" else {}
        self.given["source"] = {
            "onBatchFailure": "reject",
            "isolatePoison": "true",
            "batchTriesMax": "1",
            **settles,
        }
        self.given["sink"] = settles

    def publish(self, count: int) -> set[bytes]:
        """Publish numbered messages; return their bodies."""
        return set(self.world.publish(count))

    def letters(self) -> list[bytes]:
        """Return what was dead-lettered."""
        from warren_wire.block.block import Block

        found = self.world.broker.browse(self.dead, 1 << 30)
        blocks = [Block.decode(each.data) for each in found]
        return [bytes(block.body(i)) for block in blocks for i in range(block.count)]

    def written(self) -> list[bytes]:
        """Return what the sink has."""
        return super().written() if "parquet" in self.given else self.world.bodies()


class SpoolSearch(Search):
    """From a queue of a RabbitMQ, into Parquet."""

    def __init__(self, broker: OneRabbitMQ, directory: Path, poison: int) -> None:
        options = {
            "onBatchFailure": "reject",
            "dropRejected": "true",
            "isolatePoison": "true",
            "batchTriesMax": "1",
        }
        self.world = world = RabbitWorld(broker.hosts, directory, **options)
        world.where.pop("foreach_batch")
        super().__init__(world, "parquet", poison)
        world.declare_with_letters(self.dead)

    def fails(self) -> bool:
        """Start the query when the receiver of the one before it has left the queue."""
        self.world.wait_until_free()
        return super().fails()

    def publish(self, count: int) -> set[bytes]:
        """Publish numbered messages; return their bodies."""
        self.world.publish(count)
        return set(self.world.bodies)

    def letters(self) -> list[bytes]:
        """Return what was dead-lettered."""
        return [body for body, _ in self.world.published(self.dead)]


def searched(search: ClaimSearch | SpoolSearch, named: str) -> None:
    """Search among 1,000 messages, with a driver that is killed after four failures."""
    began = time.monotonic()
    bodies = search.publish(COUNT)
    before = [search.fails() for _ in range(4)].count(True)
    search.killed_in_the_window()
    after = search.failures()
    search.check(bodies)
    print(
        f"{named}: {COUNT:,} messages, 1 at fault: {before} failures, kill -9, {after} failures; "
        f"1 dead-lettered, lost 0, doubled 0, {time.monotonic() - began:.0f} s",
        flush=True,
    )


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's options; a sink that the broker does not have is refused."""
    parser = argparse.ArgumentParser(prog="build.py poison")
    parser.add_argument("sinks", nargs="*", choices=(*SINKS["warren"], []))
    parser.add_argument("--broker", choices=tuple(SINKS))
    options = parser.parse_args(arguments)
    known = SINKS[options.broker] if options.broker else SINKS["warren"]
    for sink in options.sinks:
        if sink not in known:
            parser.error(f"no sink {sink!r} with --broker {options.broker}: {', '.join(known)}")
    return options


def main() -> int:
    """Search with each broker and each sink, or with those that are named."""
    options = parsed()
    for broker in [options.broker] if options.broker else SINKS:
        sinks = [each for each in SINKS[broker] if each in (options.sinks or SINKS[broker])]
        with tempfile.TemporaryDirectory(prefix="warren-poison-") as directory, ExitStack() as all:
            nodes: Any = None
            for sink in sinks:
                place = Path(directory) / sink
                place.mkdir()
                if broker == "warren":
                    nodes = nodes or all.enter_context(LocalCluster(3, place / "cluster"))
                    searched(ClaimSearch(nodes, place, sink, POISON), f"warren, {sink}")
                else:
                    nodes = nodes or all.enter_context(OneRabbitMQ())
                    searched(SpoolSearch(nodes, place, POISON), f"{nodes.name}, {sink}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
