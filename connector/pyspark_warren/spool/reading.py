"""The source with a spool for each queue; its receivers end when the driver's process does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyspark_warren.login.tokens import without_secrets
from pyspark_warren.options.options import Options
from pyspark_warren.rows.sql_rows import RowFilter
from pyspark_warren.source_reading import SourceReading
from pyspark_warren.spool.driver import SpoolDriver
from pyspark_warren.spool.offset import SpoolOffset
from pyspark_warren.spool.queue_spool import spool_location
from pyspark_warren.spool.read import read_spooled
from pyspark_warren.surroundings import mint_reader


class SpoolReading(SourceReading):
    """A micro-batch is a range of rows of each queue's spool."""

    offsets = SpoolOffset

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        super().__init__(replace(options, spool_location=spool_location(options)), schema)

    def __getstate__(self) -> dict[str, object]:
        # `rows` needs the spool only: no secret travels with the tasks.
        return {**self.__dict__, "options": without_secrets(self.options)}

    def begin(self) -> SpoolDriver:
        """Return the driver's side."""
        return SpoolDriver(self.options, mint_reader)

    def rows(self, work: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice that the option filter keeps."""
        location, corrupt = self.options.spool_location, self.options.corrupt
        chosen = RowFilter(self.options.row_filter, self.schema, corrupt)
        for rows in read_spooled(location, work, chosen.schema, corrupt):
            yield chosen.kept(rows)
