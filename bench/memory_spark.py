"""The peers of the connector in the bench: a source of Arrow in memory, a sink that discards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

from pyspark_warren.rows.blocks import blocks_of
from pyspark_warren.rows.encode import encode_rows
from pyspark_warren.rows.rows import ClaimedBlock, to_arrow
from pyspark_warren.spark_line import ReadAllAvailable, SupportsTriggerAvailableNow, utc_schema
from warren_wire.block.block import Block

BLOCK_ROWS = 4_000
PARTITIONS = 2


def block(body_bytes: int) -> bytes:
    """Encode BLOCK_ROWS messages with four properties, of which the message ids are unique."""
    columns = {
        "body": pa.array([b"x" * body_bytes] * BLOCK_ROWS),
        "message_id": pa.array([f"id-{row:012d}" for row in range(BLOCK_ROWS)]),
        "content_type": pa.array(["application/json"] * BLOCK_ROWS),
        "timestamp": pa.array(
            [row * 1_000_000 for row in range(BLOCK_ROWS)], pa.timestamp("us", tz="UTC")
        ),
    }
    (made,) = blocks_of(encode_rows(pa.record_batch(columns), None, "rows", True), 64 << 20)
    return bytes(made)


class MemoryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that repeats one Arrow batch: the upper bound for a Python source of these rows."""

    def __init__(self, options: dict[str, str], schema: Any) -> None:
        self.rows, self.batch = int(options["rows"]), int(options["batch"])
        self.body_bytes = int(options["body_bytes"])
        self.at = 0
        self.slices = int(options.get("partitions", PARTITIONS))
        self.wanted = utc_schema(schema)

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        return None

    def getDefaultReadLimit(self) -> Any:
        return ReadAllAvailable()

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        # Spark 4.0 and 4.1 tell no start, and ask once for each batch.
        before = self.at if start is None else start["at"]
        self.at = min(self.rows, before + self.batch)
        return {"at": self.at}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        each = (end["at"] - start["at"]) // self.slices
        return [InputPartition(each) for _ in range(self.slices)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = int(partition.value)
        runs = [(1, 0, BLOCK_ROWS - 1, 0, 0)]
        made = ClaimedBlock(Block.decode(block(self.body_bytes)), runs, "rows")
        batch = to_arrow(made, self.wanted)
        while left > 0:
            yield batch.slice(0, min(left, BLOCK_ROWS))
            left -= BLOCK_ROWS


class Discarding(DataSourceStreamWriter, DataSourceArrowWriter):
    """A writer that takes Arrow batches, on Spark 4.0, too, and does nothing with them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[Any], batchId: int) -> None:
        return None

    def abort(self, messages: list[Any], batchId: int) -> None:
        return None


class MemorySource(DataSource):
    """`format("memory_arrow")`, with a schema of the user's; as a sink it discards."""

    @classmethod
    def name(cls) -> str:
        return "memory_arrow"

    def schema(self) -> str:
        return "body binary"

    def streamReader(self, schema: Any) -> MemoryReader:
        return MemoryReader(dict(self.options), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> Discarding:
        return Discarding()
