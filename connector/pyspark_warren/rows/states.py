"""Conversion of a queue's view to Arrow columns: messages with the states that they are in."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from pyspark_warren.errors import BrokerRefusedError
from pyspark_warren.rows.columns import STATE_COLUMNS
from pyspark_warren.rows.rows import ClaimedBlock, to_arrow
from warren.views import ViewedBlock
from warren_wire.amqp10.viewed import Row, ViewHead
from warren_wire.block.block import encode
from warren_wire.message_states import CLAIMED, DEAD, HELD, IN_JOB, STATES


def viewed_rows(
    viewed: ViewedBlock, queue: str, schema: pa.Schema, corrupt: str | None
) -> pa.RecordBatch:
    """Make the columns that the schema names, one row per message, in the view's order."""
    head = viewed.head
    sizes = [row[4] - row[3] + 1 for row in head.rows]
    if any(size < 1 for size in sizes):
        raise BrokerRefusedError(f"queue {queue!r}: a view with a run that ends before it begins")
    data = viewed.data
    if not len(data):
        # Only what needs no message was asked for: stand-ins are enough.
        empty = [b""] * sum(sizes)
        data = memoryview(encode(empty, empty, (b"", b"")))
    piece = ClaimedBlock.decode(data, [row[2:7] for row in head.rows], queue)
    of_messages = pa.schema([field for field in schema if field.name not in STATE_COLUMNS])
    messages = to_arrow(piece, of_messages, corrupt)
    run_of = array("i")
    for run, size in enumerate(sizes):
        run_of.extend(array("i", (run,)) * size)
    runs = pa.Int32Array.from_buffers(pa.int32(), len(run_of), [None, pa.py_buffer(run_of)])
    columns = []
    for field in schema:
        make = _MAKERS.get(field.name)
        if make is None:
            columns.append(messages.column(messages.schema.get_field_index(field.name)))
        else:
            columns.append(pa.array(make(head), field.type).take(runs))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# ------------------------------------------------------------------ one maker per column


def _named(*states: str) -> Callable[[ViewHead], list[object]]:
    """Return the names of rows in these states; null for others."""
    places = {STATES.index(state) for state in states}

    def make(head: ViewHead) -> list[Any]:
        return [
            head.names[row[1]] if row[0] in places and row[1] >= 0 else None for row in head.rows
        ]

    return make


def _number(at: int, times: int = 1) -> Callable[[ViewHead], list[Any]]:
    """Return a number of each row; null where it is 0."""

    def make(head: ViewHead) -> list[Any]:
        return [row[at] * times or None for row in head.rows]

    return make


def _entered(head: ViewHead) -> list[object]:
    times = dict(head.times)
    found = (times.get(row[2]) for row in head.rows)
    return [None if time_ms is None else time_ms * 1000 for time_ms in found]


def _state(head: ViewHead) -> list[Any]:
    return [_state_of(row) for row in head.rows]


def _state_of(row: Row) -> str:
    if not 0 <= row[0] < len(STATES):
        raise BrokerRefusedError(f"state {row[0]} of a message is not known to this connector")
    return STATES[row[0]]


_MAKERS: Final[dict[str, Callable[[ViewHead], list[object]]]] = {
    "state": _state,
    "holder": _named(HELD, CLAIMED, IN_JOB),
    "claim": _number(9),
    "since": _number(7, 1000),
    "next_try": _number(8, 1000),
    "reason": _named(DEAD),
    "entered": _entered,
}
