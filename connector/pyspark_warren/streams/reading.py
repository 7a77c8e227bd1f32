"""The source over a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pyspark_warren.source_reading import SourceReading
from pyspark_warren.streams.driver import StreamDriver
from pyspark_warren.streams.offset import StreamOffset
from pyspark_warren.streams.read import read_offsets


class OffsetReading(SourceReading):
    """A micro-batch is a range of the stream's offsets."""

    offsets = StreamOffset

    def begin(self) -> StreamDriver:
        """Return the driver's side."""
        return StreamDriver(self.options)

    def rows(self, work: Any) -> Iterator[pa.RecordBatch]:
        """Yield the messages between two offsets."""
        yield from read_offsets(self.options, work, self.schema)
