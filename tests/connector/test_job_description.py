"""What Spark says of a query's jobs, and that a Python source cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext, TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from spark_world.fake import FakeServer

from pyspark_warren.surroundings import query_name

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Looking(InputPartition):
    """What the planning process knew of Spark."""

    def __init__(self) -> None:
        super().__init__(None)
        self.context = SparkContext._active_spark_context is not None
        self.task = TaskContext.get() is not None


class LookingReader(DataSourceReader):
    """One row: whether planning and reading had a SparkContext or a task."""

    def partitions(self) -> list[InputPartition]:
        """Look where the driver plans."""
        return [Looking()]

    def read(self, partition: InputPartition) -> Iterator[tuple[bool, bool, bool, bool]]:
        """Look where a task reads."""
        assert isinstance(partition, Looking)
        task = TaskContext.get() is not None
        context = SparkContext._active_spark_context is not None
        yield partition.context, partition.task, context, task


class LookingSource(DataSource):
    """`format("warren_looking")`."""

    @classmethod
    def name(cls) -> str:
        """Its name."""
        return "warren_looking"

    def schema(self) -> str:
        """See LookingReader."""
        return "context boolean, task boolean, read_context boolean, read_task boolean"

    def reader(self, schema: Any) -> LookingReader:
        """See LookingReader."""
        return LookingReader()


def test_a_python_source_has_no_spark_context_where_it_plans_and_reads(spark: Any) -> None:
    spark.dataSource.register(LookingSource)
    (row,) = spark.read.format("warren_looking").load().collect()
    assert tuple(row) == (False, False, False, True)


def test_jobs_of_a_query_are_described_with_name_id_and_batch(spark: Any, tmp_path: Path) -> None:
    described: list[tuple[str, int]] = []

    def note(frame: Any, batch: int) -> None:
        described.append((spark.sparkContext.getLocalProperty("spark.job.description"), batch))

    with FakeServer() as server:
        server.broker.declare("in")
        server.broker.publish("in", [b"x"])
        hosts = f"127.0.0.1:{server.port}"
        rows = spark.readStream.format("warren_dying").options(hosts=hosts, queue="in").load()
        query = (
            rows.writeStream.foreachBatch(note)
            .queryName("flights of broker1")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    text, batch = described[-1]
    assert query_name(text) == "flights of broker1"
    assert f"id = {query.id}\n" in text and text.endswith(f"batch = {batch}"), text


def test_a_program_describes_the_jobs_of_a_table(spark: Any) -> None:
    context = spark.sparkContext
    with FakeServer() as server:
        server.broker.declare("in")
        server.broker.publish("in", [b"x"])
        hosts = f"127.0.0.1:{server.port}"
        context.setJobDescription("looks at flights")
        context.setLocalProperty("spark.jobGroup.id", "looking")
        try:
            rows = spark.read.format("warren_dying").options(hosts=hosts, queue="in").load()
            assert len(rows.collect()) == 1
        finally:
            context.setJobDescription(None)
            context.setLocalProperty("spark.jobGroup.id", None)
    jobs = context.statusTracker().getJobIdsForGroup("looking")
    store = context._jsc.sc().statusStore()
    assert {store.job(job).description().get() for job in jobs} == {"looks at flights"}
