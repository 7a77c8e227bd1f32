"""The classes that Spark calls for reading: stream and batch."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_warren.claims.client import Connect
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.claims.plan import Slice, pack
from pyspark_warren.claims.reader import read_task
from pyspark_warren.errors import (
    BrokerUnavailableError,
    ClaimLostError,
    WarrenSparkError,
    named_conditions,
    told,
    told_rows,
)
from pyspark_warren.options.options import Options
from pyspark_warren.rows.rows import check_columns, check_schema
from pyspark_warren.surroundings import Renewer, Surroundings, before_termination

log = logging.getLogger("pyspark_warren")


def arrow_schema(schema: StructType, corrupt: str | None, states: bool = False) -> pa.Schema:
    """Convert the schema for comparison with the source's batches; raises SchemaError."""
    check_columns(schema.names, corrupt, states)
    made = to_arrow_schema(schema, timezone="UTC")
    check_schema(made, corrupt, states)
    return made


class TaskPartition(InputPartition):
    """A Spark partition: the work of one task."""

    def __init__(self, work: Any) -> None:
        super().__init__(work)
        self.work = work


class QueryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's source.

    One exists in the query's driver-side process, where `_begin` makes its driver, which holds
    connections; pickled copies without one are sent to the executors, which only call `read`. Spark
    does not call `stop` when a query stops, but terminates the process: nothing may depend on
    either.

    _offsets  the class of its offsets
    """

    _offsets: type[Any]

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema, options.corrupt)
        self._driver: Any = None
        self._doing = f"reading {options.read_text()} at {options.addresses()}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

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
        return ReadMaxRows(self._options.max_messages)

    @told
    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Settle up to `start`, the end of a committed batch, and return the next one's end."""
        assert start is not None, "Spark 4.2 and later pass the start"
        with named_conditions(self._doing):
            driver = self._run()
            rows_max: int | None = self._options.max_messages
            if isinstance(limit, ReadAllAvailable):
                rows_max = None
            elif isinstance(limit, ReadMaxRows):
                rows_max = limit.max_rows
            offset = self._offsets.from_dict(start)
            end = driver.latest(offset, rows_max)
        self._called()
        return start if end == offset else dict(end.to_dict())

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
        with named_conditions(self._doing):
            driver = self._run()
            slices = driver.plan(self._offsets.from_dict(start), self._offsets.from_dict(end))
        self._called()
        return [TaskPartition(each) for each in self._tasks(slices)]

    @told
    def commit(self, end: dict[str, Any]) -> None:
        """Settle once more, which is harmless: this call may be late, or never come."""
        try:
            with named_conditions(self._doing):
                driver = self._run()
                driver.settle(self._offsets.from_dict(end))
        except (BrokerUnavailableError, ClaimLostError) as wrong:
            log.warning("not settled yet, the next poll will retry: %s", wrong)

    def stop(self) -> None:
        """Stop; Spark calls it only when the query failed or its JVM ended."""
        if self._driver is not None:
            self._driver.close()

    # -------------------------------------------------------------- on an executor

    @told_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice; may be called repeatedly and concurrently for one."""
        assert isinstance(partition, TaskPartition), partition
        yield from self._rows(partition.work)

    # -------------------------------------------------------------- of a kind of source

    def _run(self) -> Any:
        if self._driver is None:
            self._driver = self._begin()
        return self._driver

    @abstractmethod
    def _begin(self) -> Any:
        """Return the driver's side, which has the calls of `driver.ClaimDriver`."""

    @abstractmethod
    def _rows(self, work: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""

    def _tasks(self, slices: Sequence[Any]) -> Sequence[Any]:
        """Return the work of each task."""
        return slices

    def _called(self) -> None:
        """Do what is due after a call that may have begun something."""


class WarrenStreamReader(QueryStreamReader):
    """The source over queues of Warren."""

    _offsets = Offset

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        super().__init__(options, schema)
        self._connect = connect
        self._renewer: Renewer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_renewer": None}

    def stop(self) -> None:
        """Stop; Spark calls it only when the query failed or its JVM ended."""
        if self._renewer is not None:
            self._renewer.stop()
        super().stop()

    def _begin(self) -> ClaimDriver:
        broker = self._connect(self._options)
        return ClaimDriver(broker, self._options, Surroundings.of_this_process())

    def _rows(self, work: Any) -> Iterator[pa.RecordBatch]:
        yield from read_task(self._connect, self._options, work, self._schema)

    def _tasks(self, slices: Sequence[Slice]) -> Sequence[Sequence[Slice]]:
        whole = self._options.partitions or not self._options.several
        return [(each,) for each in slices] if whole else pack(slices)

    def _called(self) -> None:
        """Renew claims and reader while this process runs, with claimTtl or readerExpires."""
        driver: ClaimDriver = self._run()
        before_termination(driver.close)
        times = (self._options.claim_ttl_ms, self._options.reader_expires_ms)
        every_ms = min((each for each in times if each), default=0)
        if every_ms and driver.attached and not (self._renewer and self._renewer.alive):
            self._renewer = Renewer(driver.renew, every_ms)


class RefusedStreamReader(QueryStreamReader):
    """A substitute for a reader that could not be made; raises the reason at its first call.

    Spark's process for streaming sources calls `stop` on the reader even when there is none because
    `streamReader` raised, and shows the UnboundLocalError of that last.
    """

    def __init__(self, wrong: WarrenSparkError) -> None:
        self._wrong = wrong
        self._driver = None
        self._doing = ""

    @told
    def getDefaultReadLimit(self) -> ReadLimit:
        """Refused."""
        raise self._wrong

    def _begin(self) -> Any:
        raise self._wrong

    def _rows(self, work: Any) -> Iterator[pa.RecordBatch]:
        raise self._wrong
