"""What the line of this Spark has for Python data sources: values only, which others choose by.

Spark 4.0 and 4.1 ask a source for its latest offset without saying where the checkpoint stands or
which limit the trigger has, and call it once with the triggers `once` and `availableNow`; see
`source.QueryStreamReader.latestOffset`. Predicates are pushed down from 4.1 on.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

if TYPE_CHECKING or find_spec("pyspark.sql.datasource") is not None:
    from pyspark.sql.datasource import DataSourceReader
else:  # Spark 3.4 and 3.5, where `batches` reads

    class DataSourceReader:
        """A substitute: this Spark has no data sources in Python."""


TELLS_START: Final = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether a source is told the start and the limit of a micro-batch: from Spark 4.2 on."""
PUSHES_FILTERS: Final = hasattr(DataSourceReader, "pushFilters")
"""Whether predicates are offered to `spark.read`: from Spark 4.1 on."""
FILTERS_BY_SCAN: Final = hasattr(DataSourceReader, "pushLimit")
"""Whether each use of a frame has predicates of its own.

Spark up to 4.3 keeps what a scan has pushed down at the relation, which is one for all uses of a
frame: of two branches of a query both are read with the predicates of the last one, and an action
without predicates with those of the action before. Sources can push limits where that is mended.
"""

if TYPE_CHECKING or TELLS_START:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A substitute: this Spark passes none."""

    class ReadAllAvailable(ReadLimit):
        """A substitute."""

    class ReadMaxRows(ReadLimit):
        """A substitute."""

    class SupportsTriggerAvailableNow:
        """A substitute: this Spark makes one batch of what `latestOffset` returns."""


def utc_schema(schema: StructType) -> pa.Schema:
    """Convert a schema to Arrow, with timestamps in UTC."""
    return to_arrow_schema(schema, timezone="UTC") if TELLS_START else to_arrow_schema(schema)


__all__ = [
    "FILTERS_BY_SCAN",
    "PUSHES_FILTERS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "TELLS_START",
    "utc_schema",
]
