"""`spark.read` with filter or pushFilters: bodies that are not wanted are not fetched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_warren.decode import ARROW_TYPES
from pyspark_warren.fault_boundary import told, told_rows
from pyspark_warren.options import Options
from pyspark_warren.plan import ViewPiece, spans
from pyspark_warren.port import Connect
from pyspark_warren.predicates import INDEX, STATE, Predicates, pushed
from pyspark_warren.reader import bodies_decide, read_viewed
from pyspark_warren.source import TaskPartition
from pyspark_warren.table import WarrenBatchReader
from warren.errors import Conflict
from warren.views import EVERYTHING
from warren_wire.message_states import READY


class FilteredBatchReader(WarrenBatchReader):
    """A source of `spark.read` that fetches no body where no message is kept.

    Of a piece with bodies, the columns that decide are read first, and then only the parts with
    messages that they keep; each row is tested before Spark has it. So the last step alone decides,
    and the first needs no exactness.
    """

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        super().__init__(options, schema, connect)
        self._predicates = Predicates()

    @told_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece that every predicate keeps."""
        assert isinstance(partition, TaskPartition), partition
        for part in self._worth_reading(partition.work):
            for rows in super().read(TaskPartition(part)):
                kept = rows.filter(self._predicates.mask(rows))
                if kept.num_rows:
                    yield kept

    def _worth_reading(self, piece: ViewPiece) -> list[ViewPiece]:
        """Return the parts of a piece outside which nothing is kept."""
        options = self._options
        if (
            piece.max_messages
            or piece.first >= piece.last
            or options.drops_malformed
            or "body" not in self._schema.names
            or "body" in self._predicates.columns
            or not (self._predicates.columns or options.row_filter)
            or bodies_decide(options, self._schema)
        ):
            return [piece]
        names = self._predicates.columns - {INDEX[0]}
        fields = [field for field in self._schema if field.name in (*names, options.corrupt)]
        position = pa.field(INDEX[0], ARROW_TYPES[INDEX[0]])
        kept: set[int] = set()
        outline = pa.schema([*fields, position])
        for rows in read_viewed(self._connect, options, piece, outline):
            found = rows.filter(self._predicates.mask(rows)).column(INDEX[0])
            kept.update(found.field("index").to_pylist())
        return [replace(piece, first=first, last=last + 1) for first, last in spans(kept)]


class PushedBatchReader(FilteredBatchReader):
    """A source of `spark.read` that applies Spark's predicates, too.

    A class of its own: Spark refuses one with this method unless its setting allows it. Predicates
    over `state` and `position.index` limit what is planned, as far as that leaves out nothing else.
    """

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        super().__init__(options, schema, connect)
        self._types = schema
        self._whole = options

    @told
    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Take what can be applied here exactly; return what Spark must apply."""
        self._predicates, left = pushed(filters, self._types)
        self._options = narrowed(self._whole, self._predicates)
        return left

    def _pieces(self) -> list[ViewPiece]:
        options = self._options
        if options.states == () or (
            options.last_index is not None and options.last_index < options.first_index
        ):
            # No message can be kept; a queue that does not exist is an error all the same.
            self._connect(options).queue(options.queue)
            return []
        try:
            return super()._pieces()
        except Conflict:
            if options == self._whole:
                raise
            # A plain read continues where a view is refused; what is narrower is not plain.
            self._options = self._whole
            return super()._pieces()


def narrowed(options: Options, predicates: Predicates) -> Options:
    """Return options that read fewer messages, and every message that the predicates keep.

    With maxMessages they are what they were: which messages are the first so many would change.
    """
    if options.browse_max:
        return options
    first, last = predicates.index_range()
    given = EVERYTHING - 1 if options.last_index is None else options.last_index
    last = min(last, given)
    wanted = options.states
    if any(one.path == STATE for one in predicates.each):
        possible = predicates.states()
        wanted = tuple(state for state in wanted or (READY,) if state in possible)
    return replace(
        options,
        first_index=max(first, options.first_index),
        last_index=None if last == EVERYTHING - 1 else last,
        states=wanted,
    )
