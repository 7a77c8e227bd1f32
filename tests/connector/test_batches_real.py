"""Loops of batches on a real broker and this environment's Spark: kills, streams that continue.

`build.py crashes --spark 3.5.9` has the same kills on the Sparks that loops are made for.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from spark_world.batch_crashes import SOURCES, Loop, one_run
from spark_world.runs import RealWorld

from pyspark_warren import errors
from pyspark_warren.batches import BatchLoop, for_each_batch, write_batch
from warren.local import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow]


@pytest.mark.long
@pytest.mark.parametrize("source", SOURCES)
def test_drivers_and_tasks_of_a_loop_die_at_every_step(
    cluster: LocalCluster, tmp_path: Path, source: str
) -> None:
    assert "| 0 | 0 |" in one_run(Loop(cluster, tmp_path, sys.executable, source))


class Died(Exception):
    """The function failed where a driver may be killed."""


class Continued:
    """A checkpoint that loops and streams continue by turns.

    fails  the next batch fails when it is written
    seen   the numbers of the batches with rows, in their order
    """

    def __init__(self, spark: Any, cluster: LocalCluster, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.world = RealWorld(cluster, directory)
        self.bodies: list[bytes] = []
        self.options = {
            "hosts": cluster.hosts,
            "queue": self.world.source,
            "maxMessagesPerTrigger": 40,
        }
        self.checkpoint = str(directory / "checkpoint")
        self.fails = False
        self.seen: list[int] = []

    def publish(self) -> None:
        self.bodies += self.world.publish(100, len(self.bodies))

    def write(self, frame: Any, number: int) -> None:
        rows = [row.body.hex() for row in frame.select("body").collect()]
        if not rows:
            return
        self.seen.append(number)
        folder = self.directory / "out"
        folder.mkdir(exist_ok=True)
        (folder / str(number)).write_text("\n".join(rows))
        if self.fails:
            self.fails = False
            raise Died("Died")

    def loop(self) -> None:
        for_each_batch(self.spark, self.options, self.write, self.checkpoint, available_now=True)

    def stream(self) -> None:
        source = self.spark.readStream.format("warren").options(**self.options).load()
        writer = source.writeStream.foreachBatch(self.write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", self.checkpoint).start()
        query.awaitTermination()

    def check(self) -> None:
        found = [
            bytes.fromhex(line)
            for each in (self.directory / "out").iterdir()
            for line in each.read_text().splitlines()
        ]
        assert sorted(found) == sorted(self.bodies)
        left = self.world.broker.queue(self.world.source)
        assert (left.messages_ready, left.messages_claimed) == (0, 0)


def test_loops_and_streams_continue_one_checkpoint(
    spark: Any, cluster: LocalCluster, tmp_path: Path
) -> None:
    case = Continued(spark, cluster, tmp_path)
    turns = (case.loop, case.stream, case.loop, case.stream)
    for turn, after in zip(turns, (*turns[1:], case.loop), strict=True):
        case.publish()
        turn()  # between two batches
        case.publish()
        case.fails = True
        with pytest.raises(Exception, match="Died"):
            turn()  # and in the middle of one
        failed = case.seen[-1]
        after()
        assert case.seen[case.seen.index(failed) + 1] == failed
    case.check()
    assert case.seen[0] == 1 and sorted(set(case.seen)) == list(range(1, max(case.seen) + 1))


def test_a_stream_continues_a_published_batch(
    spark: Any, cluster: LocalCluster, tmp_path: Path
) -> None:
    case = Continued(spark, cluster, tmp_path)
    sink = {"hosts": cluster.hosts, "routingKey": case.world.target}
    case.publish()

    def publish(frame: Any, number: int) -> None:
        assert write_batch(frame.select("body", "priority"), number, **sink) == 40
        raise Died("Died")

    with pytest.raises(Died):
        for_each_batch(spark, case.options, publish, case.checkpoint, available_now=True)
    source = spark.readStream.format("warren").options(**case.options).load()
    writer = source.select("body", "priority").writeStream.format("warren").options(**sink)
    query = writer.option("checkpointLocation", case.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    case.world.check_exact(case.bodies)


def test_what_publishes_a_batch_is_named(spark: Any, cluster: LocalCluster, tmp_path: Path) -> None:
    case = Continued(spark, cluster, tmp_path)
    sink = {"hosts": cluster.hosts, "routingKey": case.world.target}
    rows = spark.createDataFrame([(b"one",), (b"two",)], "body binary")
    with pytest.raises(errors.OptionError, match="needs the option sinkId"):
        write_batch(rows, 1, **sink)
    for _ in range(2):
        assert write_batch(rows, 1, sinkId="mine", **sink) == 2
    assert sorted(case.world.bodies()) == [b"one", b"two"]
    with pytest.raises(errors.BatchConflictError):
        write_batch(rows.limit(1), 1, sinkId="mine", **sink)
    with pytest.raises(errors.SchemaError, match="no column body"):
        write_batch(spark.range(1), 2, sinkId="mine", **sink)
    case.publish()
    said: list[str] = []

    def twice(frame: Any, number: int) -> None:
        for name in ("", "second"):
            write_batch(frame.select("body"), number, sinkId=name, **sink)
        try:
            write_batch(frame.select("body"), number, **sink)
        except errors.OptionError as wrong:
            said.append(wrong.text)

    for_each_batch(spark, case.options, twice, case.checkpoint, available_now=True)
    assert len(said) == 3 and "a sinkId of its own" in said[0]
    assert len(case.world.bodies()) == 2 + 2 * len(case.bodies)


def test_foreach_batch_publishes_once(spark: Any, cluster: LocalCluster, tmp_path: Path) -> None:
    case = Continued(spark, cluster, tmp_path)
    sink = {"hosts": cluster.hosts, "routingKey": case.world.target}
    fails = [True]

    def publish(frame: Any, number: int) -> None:
        write_batch(frame.select("body"), number, **sink)
        if number == 1 and fails:
            fails.clear()
            raise Died("Died")

    def stream() -> None:
        source = spark.readStream.format("warren").options(**case.options).load()
        writer = source.writeStream.foreachBatch(publish).trigger(availableNow=True)
        writer.option("checkpointLocation", case.checkpoint).start().awaitTermination()

    case.publish()
    with pytest.raises(Exception, match="Died"):
        stream()
    stream()
    case.world.check_exact(case.bodies)


def test_a_batch_that_settles_its_claim_when_it_is_published(
    spark: Any, cluster: LocalCluster, tmp_path: Path
) -> None:
    case = Continued(spark, cluster, tmp_path)
    both = {"hosts": cluster.hosts, "settleWithBatch": True}
    sink = {**both, "routingKey": case.world.target}
    case.options |= both
    case.publish()
    fails = [2, 1]

    def publish(frame: Any, number: int) -> None:
        write_batch(frame.select("body", "priority"), number, **sink)
        assert case.world.broker.queue(case.world.source).messages_claimed == 0
        if fails:
            fails.pop()
            raise Died("Died")

    for _ in range(2):
        with pytest.raises(Died):
            for_each_batch(spark, case.options, publish, case.checkpoint, available_now=True)
    for_each_batch(spark, case.options, publish, case.checkpoint, available_now=True)
    case.world.check_exact(case.bodies)


def test_columns_of_a_loop(spark: Any, cluster: LocalCluster, tmp_path: Path) -> None:
    case = Continued(spark, cluster, tmp_path)
    case.publish()
    found: list[Any] = []

    def keep(frame: Any, number: int) -> None:
        found.append(frame.schema.simpleString())
        assert frame.count() == frame.count() == len(frame.collect())

    schema = "body string, position struct<index: bigint, ordinal: bigint>"
    loop = BatchLoop(spark, case.options, keep, case.checkpoint, available_now=True, schema=schema)
    assert loop.run() == 3
    assert found[0] == "struct<body:string,position:struct<index:bigint,ordinal:bigint>>"
    for wrong, said in (("body int", "the schema says int"), ("bodi binary", "did you mean body")):
        with pytest.raises(errors.SchemaError, match=said):
            BatchLoop(spark, case.options, keep, case.checkpoint, schema=wrong)
