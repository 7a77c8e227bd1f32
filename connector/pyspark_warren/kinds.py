"""Which reading the options ask for."""

from __future__ import annotations

import pyarrow as pa

from pyspark_warren.claims.client import Connect
from pyspark_warren.options.options import Options
from pyspark_warren.options.specs import WARREN
from pyspark_warren.source_reading import SourceReading


def reading_of(options: Options, schema: pa.Schema, connect: Connect) -> SourceReading:
    """Return the reading of a stream; what only another kind needs is not imported.

    options  with the kind of broker
    connect  returns a process's connection to a Warren broker
    """
    if options.starting_offset is not None:
        from pyspark_warren.streams.reading import OffsetReading

        return OffsetReading(options, schema)
    if options.broker != WARREN:
        from pyspark_warren.spool.reading import SpoolReading

        return SpoolReading(options, schema)
    from pyspark_warren.claims.reading import ClaimReading

    return ClaimReading(options, schema, connect)
