"""The classes that Spark calls for `spark.read`: a queue as a table, which is not changed by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_warren.claims.client import Connect
from pyspark_warren.claims.plan import VIEW_TASKS_MAX, ViewPiece, slices_of, spans
from pyspark_warren.claims.reader import bodies_decide, read_browsed, read_viewed
from pyspark_warren.errors import named_conditions, told, told_rows
from pyspark_warren.options.options import Options
from pyspark_warren.rows.columns import STATE_COLUMNS
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.rows.predicates import INDEX, STATE, Predicates, pushed
from pyspark_warren.source import TaskPartition, arrow_schema
from pyspark_warren.versions import OfOneVersion
from warren.errors import Conflict
from warren.queues import Queue
from warren.views import EVERYTHING
from warren_wire.message_states import CLAIMED, DEAD, DELAYED, HELD, IN_JOB, READY

_COUNTS: Final = {
    READY: "messages_ready",
    HELD: "messages_unacknowledged",
    DELAYED: "messages_delayed",
    CLAIMED: "messages_claimed",
    DEAD: "messages_dlx",
    IN_JOB: "messages_in_jobs",
}


NOTHING: Final = ViewPiece(0, 0)


class WarrenBatchReader(OfOneVersion, DataSourceReader):
    """The source of `spark.read`: looks at a queue without a change.

    A message keeps its position for as long as it is in the queue, whatever state it is in, and
    pieces are cut by position: so a read has each message at most once, also when messages move
    between states, or come back, while the read's tasks run.

    With the option filter, or pushed predicates, no body is fetched where no message is kept. Of a
    piece with bodies, the columns that decide are read first, and then only the parts with messages
    that they keep; each row is tested before Spark has it. So the last step alone decides, and the
    first needs no exactness.
    """

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._predicates = Predicates()
        self._connect = connect
        self._schema = arrow_schema(schema, options.corrupt, states=True)

    @told
    def partitions(self) -> list[InputPartition]:
        """Return one task per piece; with maxMessages one task."""
        options = self._options
        with named_conditions(f"reading queue {options.queue!r} at {options.addresses()}"):
            # Spark replaces an empty list with a partition that is not ours.
            return [TaskPartition(piece) for piece in self._pieces() or [NOTHING]]

    def _pieces(self) -> list[ViewPiece]:
        options = self._options
        broker = self._connect(options)
        first = options.first_index
        last = EVERYTHING if options.last_index is None else options.last_index + 1
        plain = (first, last) == (0, EVERYTHING) and options.states in (None, (READY,))
        plain = plain and not STATE_COLUMNS.keys() & set(self._schema.names)
        found = broker.queue(options.queue)
        if options.browse_max and plain:
            most = min(found.messages_ready, options.browse_max)
            return [ViewPiece(first, last, most, browsed=True)]
        if options.browse_max:
            return [ViewPiece(first, last, options.browse_max)]
        states = options.states or (READY,)
        wanted = options.partitions or min(VIEW_TASKS_MAX, _slices(found, states))
        try:
            edges = broker.view_edges(options.queue, states, max(1, wanted))
        except Conflict:
            if not plain:
                raise
            # Too scattered for a view: one task reads what was ready, from one answer to the next.
            return [ViewPiece(first, last, found.messages_ready, browsed=True)]
        # Spark plans a frame once, for all actions on it. Pieces that end where the queue ends now
        # would hide from a later action what is published before it.
        inner = [edge for edge in edges[1:-1] if first < edge < last]
        return [ViewPiece(*ends) for ends in pairwise([first, *inner, last])]

    @told_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece, as they are now, that every predicate keeps."""
        assert isinstance(partition, TaskPartition), partition
        for piece in self._worth_reading(partition.work):
            for rows in self._rows(piece):
                kept = rows.filter(self._predicates.mask(rows)) if self._predicates.each else rows
                if kept.num_rows:
                    yield kept

    def _rows(self, piece: ViewPiece) -> Iterator[pa.RecordBatch]:
        if piece == NOTHING:
            return
        if not piece.browsed:
            yield from read_viewed(self._connect, self._options, piece, self._schema)
        elif piece.max_messages:
            yield from read_browsed(self._connect, self._options, piece.max_messages, self._schema)

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


def _slices(queue: Queue, states: tuple[str, ...]) -> int:
    """Return how many slices of the default size there are; sizes are those of ready messages."""
    messages = sum(getattr(queue, _COUNTS[state]) for state in states)
    each = -(-queue.bytes_ready // queue.messages_ready) if queue.messages_ready else 0
    return slices_of(messages, messages * each)


class PushedBatchReader(WarrenBatchReader):
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
