"""The classes that Spark calls for reading a stream of RabbitMQ: as a stream and as a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_warren.amqp.plan import offset_slices
from pyspark_warren.amqp.streams.driver import StreamDriver
from pyspark_warren.amqp.streams.ends import StreamEnds
from pyspark_warren.amqp.streams.offset import StreamOffset
from pyspark_warren.amqp.streams.read import read_offsets
from pyspark_warren.errors import OptionError
from pyspark_warren.fault_boundary import told, told_rows
from pyspark_warren.option_values import END
from pyspark_warren.options import Options
from pyspark_warren.source import QueryStreamReader, TaskPartition, arrow_schema


class OffsetStreamReader(QueryStreamReader):
    """A streaming query's source over a stream."""

    _offsets = StreamOffset

    def _rows(self, work: Any) -> Iterator[pa.RecordBatch]:
        yield from read_offsets(self._options, work, self._schema)

    def _begin(self) -> StreamDriver:
        return StreamDriver(self._options)


class OffsetBatchReader(DataSourceReader):
    """The source of `spark.read` over a part of a stream."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema, options.corrupt)

    @told
    def partitions(self) -> list[InputPartition]:
        """Return the slices from startingOffset to endingOffset, or of maxMessages offsets."""
        options = self._options
        assert options.starting_offset is not None
        ends = StreamEnds(options)
        try:
            first = ends.place(options.starting_offset)
            last = ends.end_beyond(first) or 0
        finally:
            ends.close()
        if options.ending_offset != END:
            wanted = int(options.ending_offset)
            if not first <= wanted <= last:
                raise OptionError(
                    f"option endingOffset={wanted}: the part begins at {first} and stream "
                    f"{options.queue!r} ends at {last}; give one of these or between, or end"
                )
            last = wanted
        if options.browse_max:
            last = min(last, first + options.browse_max)
        return [TaskPartition(part) for part in offset_slices(first, last, options.partitions)]

    @told_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice."""
        assert isinstance(partition, TaskPartition), partition
        yield from read_offsets(self._options, partition.work, self._schema)
