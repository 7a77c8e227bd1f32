"""`format("warren")`: the data source class that Spark finds by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSource

from pyspark_warren.errors import UnsupportedError, WarrenSparkError, told
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.options.reading import PUSH_ALWAYS, PUSH_NOTHING
from pyspark_warren.options.specs import AUTO, WARREN
from pyspark_warren.rows.columns import CORRUPT_DDL, STATE_DDL, schema_ddl
from pyspark_warren.spark_line import FILTERS_BY_SCAN, PUSHES_FILTERS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_warren.claims.client import WarrenBroker
    from pyspark_warren.sink.sink import WarrenBatchWriter, WarrenStreamWriter
    from pyspark_warren.source import QueryStreamReader
    from pyspark_warren.streams.batch_reader import OffsetBatchReader
    from pyspark_warren.table import WarrenBatchReader


def check_pushing(said: str) -> None:
    """Refuse pushFilters where Spark offers no predicates, or those of another use of a frame."""
    if not PUSHES_FILTERS:
        raise UnsupportedError(
            f"option pushFilters={said}: Spark {pyspark.__version__} offers no predicates to a "
            "data source in Python, 4.1 and later do; leave it out, or give the option filter"
        )
    if said == PUSH_ALWAYS and not FILTERS_BY_SCAN:
        raise UnsupportedError(
            f"option pushFilters=true: Spark {pyspark.__version__} reads every use of a frame with "
            "the predicates of the last one, so a frame that is used twice would lose rows; give "
            "pushFilters=once and call load() for each use, or the option filter"
        )


def connect(options: Options) -> WarrenBroker:
    """Connect to the broker of the options; see `client.connect`."""
    from pyspark_warren.claims import client

    return client.connect(options)


def detect(options: Options) -> Options:
    """Find out what broker the options lead to; see `amqp.detect`."""
    if options.broker != AUTO:
        return options
    from pyspark_warren.amqp import detect as detection

    return detection.detect(options)


class WarrenDataSource(DataSource):
    """A queue of a broker as a stream or a table; an exchange as a sink.

    Modules that need the client or Arrow are imported at their first use: Spark imports this module
    in every session to look for sources, whether the session uses Warren or not.

    connect  opens a connection; a class attribute, so that a subclass can replace it
    detect   returns the options with the kind of broker, likewise
    """

    connect = staticmethod(connect)
    detect = staticmethod(detect)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "warren"

    @told
    def schema(self) -> str:
        """Return every column; a query with `.schema(...)` reads fewer, which is cheaper."""
        options = self._parsed("read")
        columns = [schema_ddl(options.header_values == "string")]
        if options.states:
            columns.append(STATE_DDL)
        if options.corrupt is not None:
            columns.append(f"`{options.corrupt}` {CORRUPT_DDL}")
        return ", ".join(columns)

    @told
    def reader(self, schema: StructType) -> WarrenBatchReader | OffsetBatchReader:
        """`spark.read`."""
        from pyspark_warren.table import WarrenBatchReader

        options = self._detected("read", "batch")
        if options.starting_offset is not None:
            from pyspark_warren.streams.batch_reader import OffsetBatchReader

            return OffsetBatchReader(options, schema)
        if options.broker != WARREN:
            raise UnsupportedError(
                f"spark.read with broker={options.broker}: AMQP cannot look at messages of a queue "
                "without taking them; use spark.readStream with trigger(availableNow=True), or "
                "startingOffset where it is a stream"
            )
        if options.push_filters != PUSH_NOTHING:
            from pyspark_warren.table import PushedBatchReader

            check_pushing(options.push_filters)
            return PushedBatchReader(options, schema, self.connect)
        return WarrenBatchReader(options, schema, self.connect)

    def streamReader(self, schema: StructType) -> QueryStreamReader:
        """`spark.readStream`."""
        from pyspark_warren.source import RefusedStreamReader

        try:
            return self._stream_reader(schema)
        except WarrenSparkError as wrong:
            return RefusedStreamReader(wrong)

    def _stream_reader(self, schema: StructType) -> QueryStreamReader:
        from pyspark_warren.source import QueryStreamReader, WarrenStreamReader, arrow_schema

        options = self._detected("read", "stream")
        if options.starting_offset is None and options.broker == WARREN:
            return WarrenStreamReader(options, schema, self.connect)
        from pyspark_warren.kinds import reading_of

        reading = reading_of(options, arrow_schema(schema, options.corrupt), self.connect)
        return QueryStreamReader(reading)

    @told
    def writer(self, schema: StructType, overwrite: bool) -> WarrenBatchWriter:
        """`df.write`."""
        if overwrite:
            raise UnsupportedError(
                'mode "overwrite": a queue cannot be overwritten; use mode "append" '
                "(to empty it first: warren queues purge)"
            )
        from pyspark_warren.sink.sink import WarrenBatchWriter

        return WarrenBatchWriter(self._detected("write", "batch"), schema, self.connect)

    @told
    def streamWriter(self, schema: StructType, overwrite: bool) -> WarrenStreamWriter:
        """`df.writeStream`."""
        if overwrite:
            raise UnsupportedError(
                'output mode "complete" would publish the whole result again with '
                'every batch; use "append" or "update"'
            )
        from pyspark_warren.sink.sink import WarrenStreamWriter

        return WarrenStreamWriter(self._detected("write", "stream"), schema, self.connect)

    def _parsed(self, where: str, how: str = "both") -> Options:
        given: dict[str, Any] = dict(self.options)
        return parse_options(given, where, how)

    def _detected(self, where: str, how: str) -> Options:
        """Parse the options, and find out what broker they lead to."""
        return self.detect(self._parsed(where, how))
