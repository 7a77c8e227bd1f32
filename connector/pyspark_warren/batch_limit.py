"""The limit of a micro-batch that Spark asks a streaming source for."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from pyspark_warren.options import Options


class LimitedStreamReader(DataSourceStreamReader):
    """A streaming source with maxMessagesPerTrigger; the bytes are limited where rows are read."""

    _options: Options

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return maxMessagesPerTrigger."""
        return ReadMaxRows(self._options.max_messages)

    def rows_max(self, limit: ReadLimit | None) -> int | None:
        """Return the most rows of a batch with this limit; None: all that are there."""
        if isinstance(limit, ReadAllAvailable):
            return None
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_messages
