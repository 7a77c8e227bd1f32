"""The classes that Spark calls for reading a stream from any AMQP broker."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_warren.amqp.plan import SpoolSlice
from pyspark_warren.amqp.queues_spool_driver import QueueSlice, QueuesSpoolDriver
from pyspark_warren.amqp.queues_spool_offset import QueuesSpoolOffset
from pyspark_warren.amqp.read import read_spooled
from pyspark_warren.amqp.spool_driver import SpoolDriver, spool_location
from pyspark_warren.amqp.spool_offset import SpoolOffset
from pyspark_warren.batch_limit import LimitedStreamReader
from pyspark_warren.errors import BrokerUnavailableError
from pyspark_warren.fault_boundary import told, told_rows
from pyspark_warren.options import Options
from pyspark_warren.password import without_secrets
from pyspark_warren.source import arrow_schema
from pyspark_warren.sql_rows import RowFilter
from pyspark_warren.surroundings import mint_reader

log = logging.getLogger("pyspark_warren")


class SpoolPartition(InputPartition):
    """A Spark partition: rows of the spool."""

    def __init__(self, part: SpoolSlice) -> None:
        super().__init__(part)
        self.part = part


class PositionStreamReader(LimitedStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's source with positions that can be read again.

    One exists in the query's driver-side process, where `_begin` makes its driver; pickled copies
    without one are sent to the executors, which only call `read`. Spark does not call `stop` when a
    query stops.

    _offsets    the class of its offsets
    _partition  the class of its Spark partitions
    """

    _offsets: type[Any]
    _partition: type[Any]

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema, options.corrupt)
        self._driver: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

    @told
    def initialOffset(self) -> dict[str, Any]:
        """Return the offset for a query without a checkpoint."""
        found: dict[str, Any] = self._run().initial().to_dict()
        return found

    @told
    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Take note of `start`, the end of a committed batch, and return the next one's end."""
        assert start is not None, "Spark 4.2 and later pass the start"
        offset = self._offsets.from_dict(start)
        end = self._run().latest(offset, self.rows_max(limit))
        return start if end == offset else dict(end.to_dict())

    @told
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the backlog, shown as `latestOffset` in the query's progress."""
        found: dict[str, Any] | None = self._run().backlog()
        return found

    @told
    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to what is ready now."""
        self._run().prepare_available_now()

    @told
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the slices of a batch; after a crash this is the first call."""
        found = self._run().plan(self._offsets.from_dict(start), self._offsets.from_dict(end))
        return [self._partition(part) for part in found]

    @told
    def commit(self, end: dict[str, Any]) -> None:
        """Settle once more, which is harmless: this call may be late, or never come."""
        try:
            self._run().settle(self._offsets.from_dict(end))
        except BrokerUnavailableError as wrong:
            log.warning("not settled yet, the next poll will retry: %s", wrong)

    def stop(self) -> None:
        """Stop; Spark calls it only when the query failed or its JVM ended."""
        if self._driver is not None:
            self._driver.close()

    @told_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice; may be called repeatedly and concurrently for one."""
        assert isinstance(partition, self._partition), partition
        yield from self._rows(partition)

    @abstractmethod
    def _rows(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a `_partition`."""

    def _run(self) -> Any:
        if self._driver is None:
            self._driver = self._begin()
        return self._driver

    @abstractmethod
    def _begin(self) -> Any:
        """Return the driver's side: what SpoolDriver and StreamDriver have in common."""


class SpoolStreamReader(PositionStreamReader):
    """The source with a spool; its receiver ends when this process does."""

    _offsets: type[Any] = SpoolOffset
    _partition: type[Any] = SpoolPartition

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(replace(options, spool_location=spool_location(options)), schema)

    def __getstate__(self) -> dict[str, Any]:
        # `read` needs the spool only: no secret travels with the tasks.
        return {**super().__getstate__(), "_options": without_secrets(self._options)}

    def _rows(self, partition: Any) -> Iterator[pa.RecordBatch]:
        yield from self._slice(partition.part, self._options.queue)

    def _slice(self, part: SpoolSlice, queue: str) -> Iterator[pa.RecordBatch]:
        location, corrupt = self._options.spool_location, self._options.corrupt
        chosen = RowFilter(self._options.row_filter, self._schema, corrupt)
        for rows in read_spooled(location, part, queue, chosen.schema, corrupt):
            yield chosen.kept(rows)

    def _begin(self) -> SpoolDriver | QueuesSpoolDriver:
        return SpoolDriver(self._options, mint_reader)


class QueueSpoolPartition(InputPartition):
    """A Spark partition: rows of the spool of one of several queues."""

    def __init__(self, part: QueueSlice) -> None:
        super().__init__(part)
        self.queue, self.part = part


class QueuesSpoolStreamReader(SpoolStreamReader):
    """The source of several queues, each with a spool and a receiver of its own."""

    _offsets = QueuesSpoolOffset
    _partition = QueueSpoolPartition

    def _rows(self, partition: Any) -> Iterator[pa.RecordBatch]:
        yield from self._slice(partition.part, partition.queue)

    def _begin(self) -> QueuesSpoolDriver:
        return QueuesSpoolDriver(self._options, mint_reader)
