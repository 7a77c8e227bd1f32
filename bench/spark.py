"""Rows per second through the Spark source, compared with a source in memory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

from bench import generator
from bench.peers import Warren
from bench.report import show

BODY_BYTES = 1024
BATCH_ROWS = 100_000
PARTITIONS = 2
ARROW_ROWS = 10_000


class MemoryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that repeats the same Arrow batch: the upper bound for a Python source."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        return None

    def getDefaultReadLimit(self) -> Any:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"at": min(self.rows, start["at"] + BATCH_ROWS)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        each = (end["at"] - start["at"]) // PARTITIONS
        return [InputPartition(each) for _ in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = int(partition.value)
        body = pa.array([b"x" * BODY_BYTES] * ARROW_ROWS, pa.binary())
        batch = pa.RecordBatch.from_arrays([body], names=["body"])
        while left > 0:
            yield batch.slice(0, min(left, ARROW_ROWS))
            left -= ARROW_ROWS


class MemorySource(DataSource):
    """`format("memory_arrow")`."""

    @classmethod
    def name(cls) -> str:
        return "memory_arrow"

    def schema(self) -> str:
        return "body binary"

    def streamReader(self, schema: Any) -> MemoryReader:
        return MemoryReader(int(self.options["rows"]))


def session() -> SparkSession:
    """Start a Spark session with two cores and little logging."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("warren-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MemorySource)
    return spark


def timed(frame: Any) -> tuple[int, float]:
    """Run a stream into the noop sink until it has read everything; return rows, seconds."""
    with tempfile.TemporaryDirectory(prefix="warren-bench-") as checkpoint:
        began = time.monotonic()
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.monotonic() - began
        return sum(progress.numInputRows for progress in query.recentProgress), seconds


def source(rows: int) -> list[dict[str, Any]]:
    """Fill a queue, read it with Spark; then the same number of rows from memory."""
    program = generator.find()
    spark = session()
    results: list[dict[str, Any]] = []
    timed(spark.readStream.format("memory_arrow").option("rows", 2 * BATCH_ROWS).load())  # warm
    with Warren() as warren:
        filled = generator.run(
            program,
            "fill",
            targets=warren.targets(),
            queue="rows",
            size=BODY_BYTES,
            count=rows,
        )
        frame = (
            spark.readStream.format("warren")
            .option("hosts", warren.targets())
            .option("queue", "rows")
            .option("maxMessagesPerTrigger", BATCH_ROWS)
            .load()
        )
        for name, stream in (
            ("Warren source, every column", frame),
            (
                "Arrow batches from memory",
                spark.readStream.format("memory_arrow").option("rows", rows).load(),
            ),
        ):
            read, seconds = timed(stream)
            results.append(
                {"source": name, "rows": read, "seconds": seconds, "rows_per_s": read / seconds}
            )
        results[0]["filled_per_s"] = filled["published_per_s"]
    spark.stop()
    show(
        f"Spark: rows of {BODY_BYTES} B, {BATCH_ROWS:,} a batch, local[2], noop sink",
        [
            {
                "source": one["source"],
                "rows": f"{one['rows']:,}",
                "seconds": f"{one['seconds']:.1f}",
                "rows/s": f"{one['rows_per_s']:,.0f}",
            }
            for one in results
        ],
        [],
    )
    assert results[0]["rows"] == rows, (results[0]["rows"], rows)
    return results
