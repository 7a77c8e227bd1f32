"""The class that Spark calls for `spark.read`: a queue as a table, which is not changed by it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_warren.columns import STATE_COLUMNS
from pyspark_warren.conditions import named_conditions
from pyspark_warren.fault_boundary import told, told_rows
from pyspark_warren.options import Options
from pyspark_warren.plan import VIEW_TASKS_MAX, ViewPiece, slices_of
from pyspark_warren.port import Connect
from pyspark_warren.reader import read_browsed, read_viewed
from pyspark_warren.source import TaskPartition
from pyspark_warren.states import check_view_columns, check_view_schema
from warren.admin import Queue
from warren.errors import Conflict
from warren.views import EVERYTHING
from warren_wire.message_states import CLAIMED, DEAD, DELAYED, HELD, READY

_COUNTS: Final = {
    READY: "messages_ready",
    HELD: "messages_unacknowledged",
    DELAYED: "messages_delayed",
    CLAIMED: "messages_claimed",
    DEAD: "messages_dlx",
}


NOTHING: Final = ViewPiece(0, 0)


class WarrenBatchReader(DataSourceReader):
    """The source of `spark.read`: looks at a queue without a change.

    A message keeps its position for as long as it is in the queue, whatever state it is in, and
    pieces are cut by position: so a read has each message at most once, also when messages move
    between states, or come back, while the read's tasks run.
    """

    def __init__(self, options: Options, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._connect = connect
        check_view_columns(schema.names, options.corrupt)
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        check_view_schema(self._schema, options.corrupt)

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
        """Yield the rows of a piece, as they are now."""
        assert isinstance(partition, TaskPartition), partition
        piece = partition.work
        if piece == NOTHING:
            return
        if not piece.browsed:
            yield from read_viewed(self._connect, self._options, piece, self._schema)
        elif piece.max_messages:
            yield from read_browsed(self._connect, self._options, piece.max_messages, self._schema)


def _slices(queue: Queue, states: tuple[str, ...]) -> int:
    """Return how many slices of the default size there are; sizes are those of ready messages."""
    messages = sum(getattr(queue, _COUNTS[state]) for state in states)
    each = -(-queue.bytes_ready // queue.messages_ready) if queue.messages_ready else 0
    return slices_of(messages, messages * each)
