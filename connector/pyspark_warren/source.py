"""The classes that Spark calls for reading: stream and batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_warren.claims.reading import ClaimReading
from pyspark_warren.errors import (
    BrokerUnavailableError,
    ClaimLostError,
    UnsupportedError,
    WarrenSparkError,
    named_conditions,
    told,
    told_rows,
)
from pyspark_warren.options.options import Options
from pyspark_warren.rows.rows import check_columns, check_schema
from pyspark_warren.source_reading import SourceReading
from pyspark_warren.spark_line import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    utc_schema,
)
from pyspark_warren.surroundings import Renewer, before_termination
from pyspark_warren.versions import OfOneVersion

if TYPE_CHECKING:
    from pyspark_warren.claims.client import Connect

log = logging.getLogger("pyspark_warren")


def arrow_schema(schema: StructType, corrupt: str | None, states: bool = False) -> pa.Schema:
    """Convert the schema for comparison with the source's batches; raises SchemaError."""
    check_columns(schema.names, corrupt, states)
    made = utc_schema(schema)
    check_schema(made, corrupt, states)
    return made


class TaskPartition(InputPartition):
    """A Spark partition: the work of one task."""

    def __init__(self, work: Any) -> None:
        super().__init__(work)
        self.work = work


class QueryStreamReader(OfOneVersion, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's source.

    One exists in the query's driver-side process, where its source begins a driver, which holds
    connections; pickled copies without one are sent to the executors, which only call `read`. Spark
    does not call `stop` when a query stops, but terminates the process: nothing may depend on
    either.

    Spark 4.0 and 4.1 do not tell `latestOffset` where the query stands, but their calls do:
    1. A run that continues a checkpoint begins with `partitions(last, last)`, where `last` is the
       end of the newest batch in the offset log. If that batch is not committed, its
       `partitions(start, last)` follows, and `latestOffset` only after it.
    2. A batch that fails ends the run, so when `latestOffset` is called again, the batch that was
       planned last is committed.
    3. A run without a checkpoint begins with `latestOffset`; `initialOffset` comes later.
    So the end of the batch that was returned or planned last is the start of the next one.

    Spark's wrapper of the trigger availableNow, which is off by default, asks twice before a batch
    is planned, and before 1. The first is answered with the same end, and nothing is settled. A
    batch that needs no row of the source (a join with nothing) is committed unplanned, too, so what
    is asked a third time is the next one. The second is refused.
    Replayed by tests/connector/test_untold_start.py

    reading   its kind: what driver it has, and what a task does
    _at       where the next batch starts, as Spark's calls have shown; None: they have not yet
    _asked    whether `latestOffset` was called
    _answers  how often `_at` was returned as a new end that is not planned yet
    """

    _at: dict[str, Any] | None = None
    _asked = False
    _answers = 0

    def __init__(self, reading: SourceReading) -> None:
        self._reading = reading
        self._driver: Any = None
        self._renewer: Renewer | None = None
        self._doing = reading.doing

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None, "_renewer": None}

    # -------------------------------------------------------------- on the driver

    @told
    def initialOffset(self) -> dict[str, Any]:
        """Return the offset for a query without a checkpoint."""
        with named_conditions(self._doing):
            found: dict[str, Any] = self._run().initial().to_dict()
            return found

    @told
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return maxMessagesPerTrigger; the bytes are limited where a batch is cut."""
        return ReadMaxRows(self._reading.options.max_messages)

    @told
    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Settle up to `start`, the end of a committed batch, and return the next one's end.

        start  None: Spark 4.0 and 4.1, which tell no limit either. The trigger may allow one batch
               in a run, so the first one has what is ready, up to the source's own limits
        """
        if start is None and self._answers == 1:
            assert self._at is not None
            self._answers = 2
            return self._at
        with named_conditions(self._doing):
            driver = self._run()
            rows_max: int | None = self._reading.options.max_messages
            untold = start is None
            alone = not self._asked if untold else self._reading.first_has_rows
            if isinstance(limit, ReadAllAvailable):
                rows_max = None
            elif isinstance(limit, ReadMaxRows):
                rows_max = limit.max_rows
            if start is None:
                start = self._at or driver.initial().to_dict()
            offset = self._reading.offsets.from_dict(start)
            end = driver.latest(offset, rows_max, alone)
        self._called()
        if untold and alone:
            self._tell_what_is_left(0 if offset.registered else self._reading.options.max_messages)
        self._asked = True
        self._answers = int(end != offset)
        self._at = start if end == offset else dict(end.to_dict())
        return self._at

    @told
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the backlog, shown as `latestOffset` in the query's progress.

        None when there is none: what keeps the query from reading on, `latestOffset` is told, too.
        """
        try:
            with named_conditions(self._doing):
                found: dict[str, Any] | None = self._run().backlog()
                return found
        except WarrenSparkError as wrong:
            log.info("no backlog to report: %s", wrong)
            return None

    @told
    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to what is ready now."""
        with named_conditions(self._doing):
            self._run().prepare_available_now()

    @told
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the slices of a batch; after a crash this is the first call."""
        if start == end:  # of Spark 4.0 and 4.1, or a first batch that found nothing
            self._check_order(end)
            return []
        self._at, self._answers = end, 0
        with named_conditions(self._doing):
            driver = self._run()
            slices = driver.plan(
                self._reading.offsets.from_dict(start), self._reading.offsets.from_dict(end)
            )
        self._called()
        return [TaskPartition(each) for each in self._reading.tasks(slices)]

    @told
    def commit(self, end: dict[str, Any]) -> None:
        """Settle once more, which is harmless: this call may be late, or never come."""
        try:
            with named_conditions(self._doing):
                driver = self._run()
                driver.settle(self._reading.offsets.from_dict(end))
        except (BrokerUnavailableError, ClaimLostError) as wrong:
            log.warning("not settled yet, the next poll will retry: %s", wrong)

    def stop(self) -> None:
        """Stop; Spark calls it only when the query failed or its JVM ended."""
        if self._renewer is not None:
            self._renewer.stop()
        if self._driver is not None:
            self._driver.close()

    # -------------------------------------------------------------- on an executor

    @told_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice; may be called repeatedly and concurrently for one."""
        assert isinstance(partition, TaskPartition), partition
        yield from self._reading.rows(partition.work)

    # -------------------------------------------------------------- steps

    def _tell_what_is_left(self, planned: int) -> None:
        """Log what a run with one batch leaves to the next one.

        planned  most messages that the batch will take when it is planned
        """
        left = (self.reportLatestOffset() or {}).get("messages_ready", 0) - planned
        if left > 0:
            log.warning(
                "%s: %d messages are ready beyond the first micro-batch, and Spark %s makes no "
                "other one with the triggers availableNow and once: raise maxMessagesPerTrigger "
                "and maxBytesPerTrigger, or run the query again",
                self._doing,
                left,
                pyspark.__version__,
            )

    def _check_order(self, last: dict[str, Any]) -> None:
        """Note where a run continues; raises UnsupportedError where it was asked before that."""
        if self._asked and self._at != last:
            raise UnsupportedError(
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled=true: this Spark then asks "
                "a source for its latest offset before it says where the checkpoint stands; leave "
                "that setting out, and availableNow makes one micro-batch"
            )
        self._at = last

    def _run(self) -> Any:
        if self._driver is None:
            self._driver = self._reading.begin()
        return self._driver

    def _called(self) -> None:
        """Renew claims and reader while this process runs, with claimTtl or readerExpires."""
        every_ms = self._reading.renewed_every_ms()
        if every_ms and self._driver.attached and not (self._renewer and self._renewer.alive):
            self._renewer = Renewer(self._driver.renew, every_ms)


class WarrenStreamReader(QueryStreamReader):
    """The source over queues of Warren, which gives back what it holds ahead."""

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        super().__init__(ClaimReading(options, arrow_schema(schema, options.corrupt), connect))

    def _called(self) -> None:
        before_termination(self._driver.close)
        super()._called()


class RefusedStreamReader(QueryStreamReader):
    """A substitute for a reader that could not be made; raises the reason at its first call.

    Spark's process for streaming sources calls `stop` on the reader even when there is none because
    `streamReader` raised, and shows the UnboundLocalError of that last.
    """

    def __init__(self, wrong: WarrenSparkError) -> None:
        self._wrong = wrong
        self._driver = self._renewer = None
        self._doing = ""

    def _run(self) -> Any:
        raise self._wrong

    @told
    def getDefaultReadLimit(self) -> ReadLimit:
        """Refused."""
        raise self._wrong
