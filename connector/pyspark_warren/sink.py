"""The classes that Spark calls for writing: stream and batch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_warren.conditions import named_conditions
from pyspark_warren.errors import Unsupported
from pyspark_warren.loop import refuse_checkpoint_queues
from pyspark_warren.options import Options
from pyspark_warren.port import Connect
from pyspark_warren.rim import told
from pyspark_warren.sink_schema import check_sink_schema
from pyspark_warren.writer import Attempt, WrittenPart, write_direct, write_staged

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark gives to every task of a streaming query."""


class Written(WriterCommitMessage):
    """What a task's attempt has written, on its way to the driver."""

    def __init__(self, part: WrittenPart) -> None:
        self.part = part


class _Sink:
    """What both writers share: write a partition, publish the winners, drop the rest."""

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._connect = connect
        self._doing = f"publishing to {_target(options)} at {options.addresses()}"
        check_sink_schema({field.name: field.dataType.simpleString() for field in schema}, options)

    def write_as(self, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Written:
        """All rows of a partition, confirmed when this returns."""
        with named_conditions(f"{self._doing}, partition {attempt.partition}"):
            broker = self._connect(self._options)
            write = write_staged if self._options.atomic_batch else write_direct
            return Written(write(broker, self._options, attempt, rows))

    def publish(self, messages: list[Any]) -> None:
        """Make the batch visible: the winning attempts, in partition order, or nothing."""
        parts = sorted((each.part for each in messages if each is not None),
                       key=lambda part: part.partition)
        staged = [stage for part in parts for stage in part.stages]
        if not staged:
            return
        with named_conditions(self._doing):
            queues = {queue for stage in staged for queue in stage.queues}
            refuse_checkpoint_queues(
                self._options, parts[0].batch, queues, self._connect(self._options).queue)
            self._connect(self._options).publish_batch(
                parts[0].sink, parts[0].batch, staged, self._options.confirm_timeout_ms / 1000)

    def drop(self, messages: list[Any]) -> None:
        """Forget what the finished attempts of a failed batch have staged.

        What unfinished attempts have staged stays invisible, and goes with the batch's next run, or
        when the broker's time limit for stages is over.
        """
        parts = [each.part for each in messages if each is not None and each.part.stages]
        if not parts:
            return
        queues = {queue for part in parts for stage in part.stages for queue in stage.queues}
        with named_conditions(self._doing):
            self._connect(self._options).drop_batch(parts[0].sink, parts[0].batch, queues)


def _target(options: Options) -> str:
    if options.exchange:
        return f"exchange {options.exchange!r}"
    if options.routing_key is not None:
        return f"queue {options.routing_key!r}"
    return "the default exchange" if options.exchange == "" else "the rows' exchanges"


class WarrenStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query's sink: a micro-batch appears in its queues entirely, and once."""

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        self._sink = _Sink(options, schema, connect)
        self._sink_id = options.sink_id

    @told
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage one partition; another attempt at it may be running at the same time."""
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise Unsupported(f"this Spark gives no {_QUERY_ID} and {_BATCH_ID} to its tasks; "
                              "the sink needs them to publish a batch once: use Spark 4.2 or 4.3")
        attempt = Attempt.drawn(self._sink_id or query, int(batch), context.partitionId())
        return self._sink.write_as(attempt, iterator)

    @told
    def commit(self, messages: list[Any], batchId: int) -> None:
        """All partitions are staged: publish."""
        self._sink.publish(messages)

    @told
    def abort(self, messages: list[Any], batchId: int) -> None:
        """The batch failed: forget it."""
        self._sink.drop(messages)


class WarrenBatchWriter(DataSourceArrowWriter):
    """`df.write`: published entirely or not at all; once, if sinkId and batchId say which it is."""

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        self._sink = _Sink(options, schema, connect)
        self._sink_id = options.sink_id or f"spark-{uuid.uuid4().hex}"
        self._batch_id = options.batch_id or 0

    @told
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage one partition."""
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        attempt = Attempt.drawn(self._sink_id, self._batch_id, context.partitionId())
        return self._sink.write_as(attempt, iterator)

    @told
    def commit(self, messages: list[Any]) -> None:
        """All partitions are staged: publish."""
        self._sink.publish(messages)

    @told
    def abort(self, messages: list[Any]) -> None:
        """The job failed: forget it."""
        self._sink.drop(messages)
