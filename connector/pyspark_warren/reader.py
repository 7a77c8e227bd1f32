"""The executor's side of a slice: fetches messages and makes Arrow batches, never settles."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from pyspark_warren.columns import BARE_COLUMNS, PROPERTY_COLUMNS
from pyspark_warren.conditions import named_conditions
from pyspark_warren.dropping import rows_in_mode
from pyspark_warren.errors import BrokerRefusedError
from pyspark_warren.options import Options
from pyspark_warren.plan import Slice, ViewPiece
from pyspark_warren.port import Connect
from pyspark_warren.rows import ClaimedBlock, to_arrow
from pyspark_warren.sql_rows import RowFilter
from pyspark_warren.states import viewed_rows
from pyspark_warren.task_query import read_by
from warren import errors as client_errors
from warren_broker.block.layout import AREA_BODIES, AREA_PROPERTIES
from warren_broker.message_states import READY

log = logging.getLogger("pyspark_warren")

ROWS_MAX = 16_384
"""Rows of one Arrow batch: larger ones made Spark slower, not faster."""


def read_slice(
    connect: Connect, options: Options, part: Slice, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a slice that the option filter keeps, always the same in the same order.

    With onClaimLost=continue a slice of a lost claim has no rows: its messages are in the queue
    again and will be in a later batch.
    """
    chosen = RowFilter(options.row_filter, schema, options.corrupt)
    wanted = part.last - part.first
    queue = part.queue or options.queue
    got = 0
    doing = (
        f"reading claim {part.number} ({part.first} to {part.last}) of queue "
        f"{queue!r} at {options.addresses()}"
    )
    with named_conditions(doing):
        try:
            for fetched in connect(options).fetch(
                queue,
                part.reader,
                part.number,
                part.first,
                part.last,
                wanted_areas(chosen.schema, options.corrupt),
                read_by() if part.first == 0 else None,
            ):
                piece = ClaimedBlock.decode(fetched.data, fetched.runs, queue)
                got += piece.block.count
                for rows in batches_of(piece, chosen.schema, options.corrupt):
                    yield chosen.kept(rows)
        except client_errors.ClaimLost as lost:
            if options.on_claim_lost == "fail":
                raise
            log.warning("%s: %s; skipped (onClaimLost=continue)", doing, lost)
            return
    if got != wanted:
        raise BrokerRefusedError(f"{doing}: {got} messages came instead of {wanted}")


def read_browsed(
    connect: Connect, options: Options, max_messages: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield up to that many ready messages, in delivery order, without a change."""
    yield from rows_in_mode(options, schema, partial(_browsed, connect, options, max_messages))


def _browsed(
    connect: Connect, options: Options, max_messages: int, schema: pa.Schema, corrupt: str | None
) -> Iterator[pa.RecordBatch]:
    with named_conditions(f"browsing queue {options.queue!r} at {options.addresses()}"):
        areas = wanted_areas(schema, corrupt)
        for fetched in connect(options).browse(options.queue, max_messages, areas):
            piece = ClaimedBlock.decode(fetched.data, fetched.runs, options.queue)
            yield from batches_of(piece, schema, corrupt)


def read_viewed(
    connect: Connect, options: Options, piece: ViewPiece, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of one piece of a queue's view, with their states."""
    yield from rows_in_mode(options, schema, partial(_viewed, connect, options, piece))


def _viewed(
    connect: Connect, options: Options, piece: ViewPiece, schema: pa.Schema, corrupt: str | None
) -> Iterator[pa.RecordBatch]:
    columns = set(schema.names)
    with named_conditions(f"reading queue {options.queue!r} at {options.addresses()}"):
        for viewed in connect(options).view(
            options.queue,
            options.states or (READY,),
            piece,
            "entered" in columns,
            None if columns <= BARE_COLUMNS else wanted_areas(schema, corrupt),
        ):
            rows = viewed_rows(viewed, options.queue, schema, corrupt)
            for first in range(0, rows.num_rows, ROWS_MAX):
                yield rows.slice(first, ROWS_MAX)


def wanted_areas(schema: pa.Schema, corrupt: str | None) -> int:
    """Return the areas of blocks that the columns are made of; the broker sends no others.

    corrupt  the column for bytes that cannot be decoded, which needs the property lists
    """
    columns = set(schema.names)
    areas = AREA_BODIES if "body" in columns else 0
    if PROPERTY_COLUMNS & columns or corrupt in columns:
        areas |= AREA_PROPERTIES
    return areas


def batches_of(
    piece: ClaimedBlock, schema: pa.Schema, corrupt: str | None
) -> Iterator[pa.RecordBatch]:
    """Yield a piece's rows in batches of at most ROWS_MAX that share the block's memory."""
    rows = to_arrow(piece, schema, corrupt)
    for first in range(0, rows.num_rows, ROWS_MAX):
        yield rows.slice(first, ROWS_MAX)
