"""The class that Spark calls for `spark.read` of a stream."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_warren.errors import OptionError, told, told_rows
from pyspark_warren.options.options import Options
from pyspark_warren.options.specs import END
from pyspark_warren.source import TaskPartition, arrow_schema
from pyspark_warren.streams.ends import StreamEnds
from pyspark_warren.streams.offset import offset_slices
from pyspark_warren.streams.read import read_offsets
from pyspark_warren.versions import OfOneVersion


class OffsetBatchReader(OfOneVersion, DataSourceReader):
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
