"""The classes that Spark calls for writing, stream and batch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_warren.claims.client import Connect
from pyspark_warren.errors import OptionError, UnsupportedError, told
from pyspark_warren.options.options import Options
from pyspark_warren.sink.batch_sink import RUN_DEFAULT, WRITES, BatchSink, StreamSink
from pyspark_warren.sink.writer import WrittenPart
from pyspark_warren.surroundings import BATCH_ID, QUERY_ID, streaming_batch


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The commit message of a task's attempt, sent to the driver."""

    part: WrittenPart


def parts_of(messages: list[Any]) -> list[WrittenPart]:
    """Return what the finished attempts have written."""
    return [each.part for each in messages if each is not None]


class WarrenStreamWriter(StreamSink, DataSourceStreamWriter, DataSourceArrowWriter):
    """A streaming query's sink: a micro-batch appears in each of its queues entirely, and once.

    Every Spark from 4.0 on hands Arrow batches to a `DataSourceArrowWriter`, streaming or not;
    4.0 has no other class for it.
    """

    @told
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage one partition; another attempt at it may be running at the same time."""
        found = streaming_batch()
        if found is None:
            raise UnsupportedError(
                f"this Spark gives no {QUERY_ID} and {BATCH_ID} to its tasks; "
                "the sink needs them to publish a batch once: use Spark 4.0 to 4.3"
            )
        query, batch = found
        given = self._options
        part = self.write_as(given.sink_id or query, given.run_id or query, batch, iterator)
        return Written(part)

    @told
    def commit(self, messages: list[Any], batchId: int) -> None:
        """Publish the batch: all partitions are staged."""
        self.publish(parts_of(messages))

    @told
    def abort(self, messages: list[Any], batchId: int) -> None:
        """Drop a batch that failed."""
        self.drop(parts_of(messages))


class WarrenBatchWriter(BatchSink, DataSourceArrowWriter):
    """The sink of `df.write`: rows are published as a whole or not at all.

    Once, if sinkId names the output, and the surrounding micro-batch or batchId gives the number.
    """

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        super().__init__(options, schema, connect)
        self._alone = uuid.uuid4().hex
        self.register()

    @told
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage one partition."""
        return Written(self.write_as(*self._named(), iterator))

    def _named(self) -> tuple[str, str, int]:
        """Return sink, run and batch of this write, as its tasks see them.

        Without a number it is a batch of its own, published whenever it is run.
        """
        given, found = self._options, streaming_batch()
        if not given.sink_id:
            return WRITES, self._alone, 0
        if found is not None:
            query, batch = found
            number = batch if given.batch_id is None else given.batch_id
            return given.sink_id, given.run_id or query, number
        if given.batch_id is not None:
            return given.sink_id, given.run_id or RUN_DEFAULT, given.batch_id
        if given.run_id:
            raise OptionError(
                f"option runId={given.run_id!r} without batchId outside a streaming query: give "
                "the number of this batch, or leave runId out, and each write is published"
            )
        return given.sink_id, self._alone, 0

    @told
    def commit(self, messages: list[Any]) -> None:
        """Publish the batch: all partitions are staged."""
        self.publish(parts_of(messages))

    @told
    def abort(self, messages: list[Any]) -> None:
        """Drop the output of a job that failed."""
        self.drop(parts_of(messages))
