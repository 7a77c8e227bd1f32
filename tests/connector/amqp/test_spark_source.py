"""Spark from RabbitMQ to Parquet, with drivers and tasks that are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from poison.run import SpoolSearch
from pyspark.errors import StreamingQueryException
from spark_world.rabbit import RabbitWorld, rows_until

from connector.amqp.query import Queue
from connector.amqp.rabbitmq import OneRabbitMQ
from connector.amqp.stream_query import Stream
from tests.pages import python_blocks
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow]


@pytest.mark.long
def test_a_driver_and_a_task_killed_in_one_query(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    """kill -9 of the JVM, then of a task; every run restarts from the last checkpoint.

    after_latest   nothing in the checkpoint says which rows the batch has
    before_settle  committed, nothing acknowledged

    `test_receiver` has the other steps without Spark, `build.py crashes --fault driver` with it.
    """
    world = RabbitWorld(rabbitmq.hosts, tmp_path, maxMessagesPerTrigger="100")
    for step in ("after_latest", "before_settle"):
        world.publish(150)
        world.dies(step)
    world.arm("task_in_read")
    world.finish(master="local[2,3]")
    assert world.killed
    world.check_exact()
    assert rows_until(world.offsets()) == len(world.bodies)


@pytest.mark.long
def test_one_message_at_fault_is_dead_lettered(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    """`build.py poison --broker amqp` has 1,000, and a kill."""
    search = SpoolSearch(rabbitmq, tmp_path, poison=1)
    bodies = search.publish(3)
    # Three messages, the two with it, and it alone: after the third has passed behind it.
    assert search.failures() == 4
    search.check(bodies)


def test_a_stream_as_a_stream_and_as_a_table(
    rabbitmq: OneRabbitMQ, spark: Any, tmp_path: Path
) -> None:
    """Two runs of one query from a checkpoint; then parts of it by offsets."""
    stream = Stream(rabbitmq)
    stream.publish(30)
    given = {"hosts": rabbitmq.hosts, "queue": stream.name, "startingOffset": "first"}
    out = str(tmp_path / "out")
    for partitions in ("1", "3"):
        source = spark.readStream.format("warren").options(**given, partitions=partitions)
        source = source.option("maxMessagesPerTrigger", "20")
        query = (
            source.load()
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(out)
        )
        query.awaitTermination(120)
        stream.publish(15)
    rows = spark.read.parquet(out).orderBy("position.index").collect()
    assert [bytes(row.body) for row in rows] == stream.bodies[:45]
    assert [row.headers["x-stream-offset"].long for row in rows] == list(range(45))
    assert {row.queue for row in rows} == {stream.name}
    batch = spark.read.format("warren").options(**given | {"startingOffset": "40"})
    assert [bytes(row.body) for row in batch.load().collect()] == stream.bodies[40:]
    assert batch.option("endingOffset", "50").load().count() == 10
    assert batch.option("maxMessages", "3").load().select("body").count() == 3
    with pytest.raises(Exception, match="WARREN_OPTION.*endingOffset=99.*ends at 60"):
        batch.option("endingOffset", "99").load().collect()


def test_the_page_of_streams_reads_one(rabbitmq: OneRabbitMQ, spark: Any) -> None:
    stream = Stream(rabbitmq)
    stream.publish(1_310)
    where = {"hosts": rabbitmq.hosts, "queue": stream.name}
    names = {"spark": spark, "where": where}
    for block in python_blocks("how-to/rabbitmq-streams.md"):
        uri = f"amqp://guest:guest@{rabbitmq.hosts}"
        text = block.replace("amqp://app:secret@rabbit1,rabbit2/shop", uri)
        exec(text.replace('"orders"', f'"{stream.name}"'), names)
    rows = names["orders"].writeStream.format("memory").queryName("read_all")
    rows.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
    assert spark.table("read_all").count() == 1_310
    assert names["part"].count() == 100


def test_a_batch_that_may_be_published_is_not_published_under_other_options(
    rabbitmq: OneRabbitMQ, spark: Any, tmp_path: Path
) -> None:
    """Its rows had other message_ids, or were in another queue, too; nothing said so."""
    stream, out, other = Stream(rabbitmq), Queue(rabbitmq), Queue(rabbitmq)
    stream.publish(20)
    given = {"hosts": rabbitmq.hosts, "queue": stream.name, "startingOffset": "first"}
    rows = spark.readStream.format("warren").options(**given).load().select("body")
    entry = tmp_path / "commits" / "1"

    def blocking(batches: Any) -> Any:
        entry.touch()
        yield from batches

    def drain(frame: Any, **more: str) -> None:
        options = {"hosts": rabbitmq.hosts, "routingKey": out.name, "sinkId": "mine", **more}
        writer = frame.writeStream.format("warren").options(**options)
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        assert writer.start().awaitTermination(PATIENCE_S)

    with pytest.raises(StreamingQueryException):
        drain(rows.mapInArrow(blocking, "body binary"))
    entry.unlink()
    assert out.ready() == 20
    for changed in ({"sinkId": "another"}, {"routingKey": other.name}):
        with pytest.raises(StreamingQueryException, match=r"WARREN_SINK_CHANGED.*batch 1 of"):
            drain(rows, **changed)
    assert (out.ready(), other.ready()) == (20, 0)
    drain(rows, routingKey=other.name, onSinkChange="continue")
    assert (out.ready(), other.ready()) == (20, 20)
    stream.publish(5)
    drain(rows, routingKey=out.name)  # at the end of a run they may change
    assert (out.ready(), other.ready()) == (25, 20)
