"""The classes that Spark calls for reading queues of any AMQP broker as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_warren.amqp.queue_spool import spool_location
from pyspark_warren.amqp.read import read_spooled
from pyspark_warren.amqp.spool_driver import SpoolDriver
from pyspark_warren.amqp.spool_offset import SpoolOffset
from pyspark_warren.options import Options
from pyspark_warren.password import without_secrets
from pyspark_warren.source import QueryStreamReader
from pyspark_warren.sql_rows import RowFilter
from pyspark_warren.surroundings import mint_reader


class SpoolStreamReader(QueryStreamReader):
    """The source with a spool for each queue; its receivers end when this process does."""

    _offsets = SpoolOffset

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(replace(options, spool_location=spool_location(options)), schema)

    def __getstate__(self) -> dict[str, Any]:
        # `read` needs the spool only: no secret travels with the tasks.
        return {**super().__getstate__(), "_options": without_secrets(self._options)}

    def _begin(self) -> SpoolDriver:
        return SpoolDriver(self._options, mint_reader)

    def _rows(self, work: Any) -> Iterator[pa.RecordBatch]:
        location, corrupt = self._options.spool_location, self._options.corrupt
        chosen = RowFilter(self._options.row_filter, self._schema, corrupt)
        for rows in read_spooled(location, work, chosen.schema, corrupt):
            yield chosen.kept(rows)
