"""kill -9 of the leading node in every phase of a micro-batch, on a real cluster of three.

The calls are those that Spark makes, in Spark's order, without Spark: what is tried here is the
connector on the client on the broker. tests/connector/test_spark.py has the other half.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from pyspark_warren.claims.client import WarrenBroker, connect
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.claims.reader import read_task
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.rows.rows import ARROW_TYPES, ClaimedBlock
from pyspark_warren.sink.writer import Attempt, write_direct, write_staged
from pyspark_warren.surroundings import Surroundings
from warren.admin import Admin
from warren.local import LocalCluster
from warren.stages import SinkDriver

pytestmark = [pytest.mark.live, pytest.mark.slow]

SCHEMA = pa.schema(
    [("body", pa.binary()), ("priority", pa.int32()), pa.field("position", ARROW_TYPES["position"])]
)
BATCH = 1500
BODY_BYTES = 4000
SOURCE_PHASES = ("before_open", "after_open", "in_read", "before_settle")
SINK_PHASES = ("before_stage", "in_stage", "before_publish", "after_publish")
EVERY_RUN = ("in_read", "before_settle", "in_stage", "after_publish")
"""Phases of `build.py test`: amid the work on each queue, and around what is decided there."""


class Pipeline:
    """Queue to queue, batch by batch, with a node to kill at a phase."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.phase = ""
        self.dead: int | None = None
        mark = uuid.uuid4().hex[:8]
        self.source, self.target, self.sink = f"in-{mark}", f"out-{mark}", f"sink-{mark}"
        self.writer = SinkDriver(self.sink, "run", 1)
        self.options = self.parsed(
            "read", queue=self.source, partitions="2", maxMessagesPerTrigger=str(BATCH)
        )
        self.broker: WarrenBroker = connect(self.options)
        admin = Admin(self.cluster.connect())
        for name in (self.source, self.target):
            admin.queues.declare(name, arguments={"x-queue-type": "quorum"})

    def parsed(self, where: str, **options: str) -> Options:
        return parse_options({"hosts": self.cluster.hosts, **options}, where)

    def publish(self, count: int) -> list[bytes]:
        """Numbered messages; in several blocks, so that a slice comes in several pieces."""
        bodies = [b"%06d" % i + bytes(BODY_BYTES - 6) for i in range(count)]
        rows = (
            pa.record_batch({"body": pa.array(bodies[at : at + 100], pa.binary())})
            for at in range(0, count, 100)
        )
        write_direct(
            self.broker,
            self.parsed("write", routingKey=self.source),
            Attempt.drawn(SinkDriver(self.sink, "prepare", 1), 0, 0),
            rows,
        )
        return bodies

    def at(self, phase: str) -> None:
        """kill -9 the leader of the phase's queue, if this is the phase; it stays down."""
        if phase != self.phase:
            return
        queue = self.source if phase in SOURCE_PHASES else self.target
        self.phase = ""
        self.dead = self.cluster.leader_of(queue)
        self.cluster.kill(self.dead)

    def revive(self) -> None:
        """The dead node comes back."""
        if self.dead is not None:
            self.cluster.start(self.dead)
            self.dead = None

    def driver(self) -> ClaimDriver:
        return ClaimDriver(
            self.broker,
            replace(self.options, prefetch_claims=0),
            Surroundings.of_this_process(),
        )

    def batch(self, driver: ClaimDriver, start: Offset, number: int) -> Offset:
        """One micro-batch, up to where its commit log would be written."""
        self.at("before_settle")
        self.at("before_open")
        end = driver.latest(start, BATCH)
        self.at("after_open")
        parts = []
        for n, part in enumerate(driver.plan(start, end)):
            rows = []
            for i, some in enumerate(read_task(connect, self.options, [part], SCHEMA)):
                rows.append(some)
                if i == 0:
                    self.at("in_read")
            again = list(read_task(connect, self.options, [part], SCHEMA))
            assert pa.Table.from_batches(again) == pa.Table.from_batches(rows)
            self.at("before_stage")
            options = self.parsed("write", routingKey=self.target, blockBytes="64k")
            parts.append(
                write_staged(
                    self.broker, options, Attempt.drawn(self.writer, number, n), self.staged(rows)
                )
            )
        self.at("before_publish")
        stages = [stage for part in parts for stage in part.stages]
        if stages:
            self.broker.publish_batch(self.writer, number, stages, 60)
            self.at("after_publish")
            self.broker.publish_batch(self.writer, number, stages, 60)  # as after a driver's death
        return end

    def staged(self, rows: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a slice, with the phase in the middle of them."""
        for some in rows:
            for first in range(0, some.num_rows, 100):
                if first:
                    self.at("in_stage")
                yield some.slice(first, 100).select(["body", "priority"])

    def browse(self) -> list[bytes]:
        """All bodies in the target, in delivery order."""
        found = []
        for fetched in self.broker.browse(self.target, 1_000_000):
            block = ClaimedBlock.decode(fetched.data, fetched.runs, self.target).block
            found += [bytes(block.body(i)) for i in range(block.count)]
        return found


@pytest.mark.parametrize(
    "phase",
    [
        pytest.param(phase, marks=() if phase in EVERY_RUN else pytest.mark.long)
        for phase in (*SOURCE_PHASES, *SINK_PHASES)
    ],
)
def test_the_leader_is_killed(cluster: LocalCluster, phase: str) -> None:
    pipeline = Pipeline(cluster)
    bodies = pipeline.publish(3 * BATCH)
    driver = pipeline.driver()
    at = driver.latest(driver.initial(), BATCH)
    for number in range(1, 4):
        if number == 2:
            pipeline.phase = phase
        at = pipeline.batch(driver, at, number)
        if number == 2:
            assert pipeline.dead is not None, "nothing was killed"
            driver = pipeline.driver()  # and Spark's driver has died as well
            pipeline.revive()
    assert driver.latest(at, BATCH) is at
    got = pipeline.browse()
    assert sorted(got) == bodies
    left = pipeline.broker.queue(pipeline.source)
    assert (left.messages_ready, left.messages_claimed, left.messages_unacknowledged) == (0, 0, 0)
    assert pipeline.broker.queue(pipeline.target).messages_staged == 0
