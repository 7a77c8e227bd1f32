"""The classes that Spark calls for reading: stream and batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_warren.batch_limit import LimitedStreamReader
from pyspark_warren.claim_source import ClaimSource, claim_source
from pyspark_warren.conditions import named_conditions
from pyspark_warren.errors import BrokerUnavailableError, ClaimLostError, WarrenSparkError
from pyspark_warren.fault_boundary import told, told_rows
from pyspark_warren.options import Options
from pyspark_warren.plan import Slice
from pyspark_warren.port import Connect
from pyspark_warren.reader import read_task
from pyspark_warren.renew import Renewer
from pyspark_warren.rows import check_columns, check_schema
from pyspark_warren.surroundings import Surroundings
from pyspark_warren.termination import before_termination

log = logging.getLogger("pyspark_warren")


def arrow_schema(schema: StructType, corrupt: str | None) -> pa.Schema:
    """Convert the schema for comparison with the source's batches; raises SchemaRefused."""
    check_columns(schema.names, corrupt)
    made = to_arrow_schema(schema, timezone="UTC")
    check_schema(made, corrupt)
    return made


class SlicePartition(InputPartition):
    """A Spark partition: slices of claims, in order."""

    def __init__(self, *parts: Slice) -> None:
        super().__init__(parts)
        self.parts = parts


class WarrenStreamReader(LimitedStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's source.

    One exists in the query's driver-side process, where it holds a connection; pickled copies
    without one are sent to the executors, which only call `read`. Spark does not call `stop` when
    a query stops, but terminates the process: nothing may depend on either.
    """

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._connect = connect
        self._schema = arrow_schema(schema, options.corrupt)
        self._driver: ClaimSource | None = None
        self._renewer: Renewer | None = None
        self._doing = f"reading {options.read_text()} at {options.addresses()}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None, "_renewer": None}

    # -------------------------------------------------------------- on the driver

    @told
    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a new reader, for a query without a checkpoint."""
        with named_conditions(self._doing):
            return self._claims().initial()

    @told
    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Settle up to `start`, the end of a committed batch, and open the next claim."""
        assert start is not None, "Spark 4.2 and later pass the start"
        with named_conditions(self._doing):
            end = self._claims().latest(start, self.rows_max(limit))
        self._keep_alive()
        before_termination(self._claims().stop)
        return end

    @told
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the backlog, shown as `latestOffset` in the query's progress.

        None when there is none: what keeps the query from reading on, `latestOffset` is told, too.
        """
        try:
            with named_conditions(self._doing):
                return self._claims().backlog()
        except WarrenSparkError as wrong:
            log.info("no backlog to report: %s", wrong)
            return None

    @told
    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to what is ready now."""
        with named_conditions(self._doing):
            self._claims().prepare_available_now()

    @told
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the slices of a batch; after a crash this is the first call."""
        with named_conditions(self._doing):
            tasks = self._claims().plan(start, end)
        self._keep_alive()
        return [SlicePartition(*parts) for parts in tasks]

    @told
    def commit(self, end: dict[str, Any]) -> None:
        """Settle once more, which is harmless: this call may be late, or never come."""
        try:
            with named_conditions(self._doing):
                self._claims().settle(end)
        except (BrokerUnavailableError, ClaimLostError) as wrong:
            log.warning("claims not settled yet, the next poll will retry: %s", wrong)

    def stop(self) -> None:
        """Stop; Spark calls it only when the query failed or its JVM ended."""
        if self._renewer is not None:
            self._renewer.stop()
        if self._driver is not None:
            self._driver.stop()

    # -------------------------------------------------------------- on an executor

    @told_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice; may be called repeatedly and concurrently for one."""
        assert isinstance(partition, SlicePartition), partition
        yield from read_task(self._connect, self._options, partition.parts, self._schema)

    # -------------------------------------------------------------- steps

    def _claims(self) -> ClaimSource:
        if self._driver is None:
            broker = self._connect(self._options)
            self._driver = claim_source(broker, self._options, Surroundings.of_this_process())
        return self._driver

    def _keep_alive(self) -> None:
        """Renew claims and reader while this process runs, with claimTtl or readerExpires."""
        reader = self._claims().attached
        times = (self._options.claim_ttl_ms, self._options.reader_expires_ms)
        every_ms = min((each for each in times if each), default=0)
        if not every_ms or reader is None:
            return
        if self._renewer is None or self._renewer.reader is not reader:
            if self._renewer is not None:
                self._renewer.stop()
            self._renewer = Renewer(reader, every_ms)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A substitute for a reader that could not be made; raises the reason at its first call.

    Spark's process for streaming sources calls `stop` on the reader even when there is none because
    `streamReader` raised, and shows the UnboundLocalError of that last.
    """

    def __init__(self, wrong: WarrenSparkError) -> None:
        self._wrong = wrong

    @told
    def initialOffset(self) -> dict[str, Any]:
        """Refused."""
        raise self._wrong

    @told
    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Refused."""
        raise self._wrong

    @told
    def getDefaultReadLimit(self) -> ReadLimit:
        """Refused."""
        raise self._wrong

    @told
    def prepareForTriggerAvailableNow(self) -> None:
        """Refused."""
        raise self._wrong

    @told
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Refused."""
        raise self._wrong

    @told
    def commit(self, end: dict[str, Any]) -> None:
        """Refused."""
        raise self._wrong

    @told
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Refused."""
        raise self._wrong
