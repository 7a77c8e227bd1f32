"""Writing a batch: its tasks stage, the driver publishes; and the check of its columns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from pyspark_warren.claims.client import Connect, WarrenBroker
from pyspark_warren.errors import (
    SchemaError,
    WarrenSparkError,
    named_conditions,
)
from pyspark_warren.options.options import Options
from pyspark_warren.options.specs import WARREN
from pyspark_warren.rows.columns import COLUMNS, READ_ONLY, hint_of
from pyspark_warren.rows.encode import NO_KEY
from pyspark_warren.sink.checkpoint import (
    check_checkpoint,
    claims_of_batch,
    refuse_checkpoint_queues,
)
from pyspark_warren.sink.identity import last_batch, note_identity, refuse_other_sinks
from pyspark_warren.sink.writer import Attempt, WrittenPart, write_direct, write_staged
from pyspark_warren.versions import OfOneVersion
from warren.errors import BatchConflict
from warren.stages import SettledClaim, SinkDriver

_TEXT: Final = ("string",)
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_TAKES: Final[dict[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "priority": _WHOLE,
    "delivery_mode": _WHOLE,
    "expiration": (*_WHOLE, "string"),
    "timestamp": ("timestamp", *_WHOLE),
}


def check_sink_schema(columns: Mapping[str, str], options: Options) -> None:
    """Raise SchemaError, with the remedy, for a column or type that a sink cannot publish.

    columns  name to Spark's simple type
    """
    if "body" not in columns:
        raise SchemaError(
            f"rows have no column body, in lower case (they have {', '.join(columns)}); name the "
            "message's bytes or text body, for example with to_json(struct(...))"
        )
    for name, kind in columns.items():
        if name in READ_ONLY:
            continue
        if name not in COLUMNS:
            hint = hint_of(name, [known for known in COLUMNS if known not in READ_ONLY])
            raise SchemaError(
                f"column {name!r} is none that a message has; {hint} Drop it, or "
                "put it into body or headers"
            )
        takes = _TAKES.get(name, _TEXT)
        if name == "headers":
            if not kind.startswith("map<string,"):
                raise SchemaError(f"column headers is {kind}; make it a map with string keys")
        elif kind not in takes and kind != "void":
            raise SchemaError(f"column {name} is {kind}; cast it to {' or '.join(takes)}")
    if "routing_key" not in columns and options.routing_key is None:
        raise SchemaError(NO_KEY)


log = logging.getLogger("pyspark_warren")

RUN_DEFAULT = "default"
"""The run of a batchId without a runId outside a streaming query."""
WRITES = "spark-write"
"""The sink of writes without a sinkId; each is a run."""


class BatchSink(OfOneVersion):
    """Write a partition, publish the winners, drop the rest: however Spark runs them."""

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._connect = connect
        self._doing = f"publishing to {_target(options)} at {options.addresses()}"
        self._epoch = 0
        check_sink_schema({field.name: field.dataType.simpleString() for field in schema}, options)

    def register(self) -> None:
        """Draw the epoch of this driver, before its tasks begin; it fences older drivers."""
        if self._options.atomic_batch:
            with named_conditions(self._doing):
                self._epoch = self._connect(self._options).draw_epoch(
                    self._options.request_timeout_ms / 1000
                )

    def write_as(
        self, sink: str, run: str, batch: int, rows: Iterator[pa.RecordBatch]
    ) -> WrittenPart:
        """Write all rows of a partition; they are confirmed when this returns."""
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        with named_conditions(self._doing):
            driver = SinkDriver(sink, run, self._epoch, self._options.sink_expires_ms)
        attempt = Attempt.drawn(driver, batch, context.partitionId())
        if self._options.broker != WARREN:
            from pyspark_warren.sink.others import write_published

            return write_published(self._options, attempt, rows, self._doing)
        with named_conditions(f"{self._doing}, partition {attempt.partition}", True):
            broker = self._connect(self._options)
            write = write_staged if self._options.atomic_batch else write_direct
            return write(broker, self._options, attempt, rows)

    def begin(self) -> None:
        """Note what the batch is published under that Spark plans, when its tasks publish it."""
        batch = None if self._options.atomic_batch else last_batch(self._options)
        if batch is not None:
            note_identity(self._options, batch)

    def publish(self, written: Iterable[WrittenPart]) -> None:
        """Make the batch visible: the winning attempts, in partition order, or nothing."""
        parts = sorted(written, key=lambda part: part.partition)
        staged = [stage for part in parts for stage in part.stages]
        if not staged:
            return
        with named_conditions(self._doing, True):
            queues = {queue for stage in staged for queue, _ in stage.queues}
            refuse_checkpoint_queues(
                self._options, parts[0].batch, queues, self._connect(self._options).queue
            )
            broker = self._connect(self._options)
            settles: tuple[SettledClaim, ...] = ()
            if self._options.settle_with_batch:
                settles = claims_of_batch(self._options, parts[0].batch, broker.queue)
            self._check_identity(parts[0], queues, broker)
            try:
                broker.publish_batch(
                    parts[0].driver,
                    parts[0].batch,
                    staged,
                    self._options.confirm_timeout_ms / 1000,
                    settles,
                )
            except BatchConflict as conflict:
                if self._options.on_batch_conflict == "fail":
                    raise
                log.warning(
                    "%s: %s; what was published first is kept (onBatchConflict=keep)",
                    self._doing,
                    conflict,
                )

    def _check_identity(self, part: WrittenPart, queues: set[str], broker: WarrenBroker) -> None:
        """Refuse a batch that was published under another name; of a stream alone."""

    def drop(self, written: Iterable[WrittenPart]) -> None:
        """Drop what the finished attempts of a failed batch have staged.

        The stages of unfinished attempts stay invisible, and are dropped with the batch's next
        run, or after the broker's time limit for stages. So are these when the broker does not
        drop them now, which is no error: Spark would show "Writing job failed" in the place of the
        one that has made the batch fail.
        """
        parts = [part for part in written if part.stages]
        if not parts:
            return
        staged = [stage for part in parts for stage in part.stages]
        try:
            with named_conditions(self._doing):
                self._connect(self._options).drop_batch(parts[0].driver, parts[0].batch, staged)
        except WarrenSparkError as wrong:
            log.warning("what batch %d has staged is not dropped yet: %s", parts[0].batch, wrong)


class StreamSink(BatchSink):
    """The sink of a query, of which the batch's number and name come from its checkpoint."""

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        if options.settle_with_batch:
            check_checkpoint(options)
        super().__init__(options, schema, connect)
        self.begin()
        self.register()

    def _check_identity(self, part: WrittenPart, queues: set[str], broker: WarrenBroker) -> None:
        note_identity(self._options, part.batch)
        refuse_other_sinks(self._options, part.driver, part.batch, queues, broker.last_batches)


def _target(options: Options) -> str:
    if options.exchange:
        return f"exchange {options.exchange!r}"
    if options.routing_key is not None:
        return f"queue {options.routing_key!r}"
    return "the default exchange" if options.exchange == "" else "the rows' exchanges"
