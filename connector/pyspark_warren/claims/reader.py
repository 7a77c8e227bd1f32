"""The executor's side of a read: fetches messages and makes Arrow batches, never settles."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import takewhile

import pyarrow as pa

from pyspark_warren.claims.client import Connect
from pyspark_warren.claims.plan import Slice, ViewPiece, spans
from pyspark_warren.errors import BrokerRefusedError, named_conditions
from pyspark_warren.options.options import Options
from pyspark_warren.rows import compute as pc
from pyspark_warren.rows.columns import BARE_COLUMNS, PROPERTY_COLUMNS
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.rows.rows import ROWS_MAX, ClaimedBlock, to_arrow
from pyspark_warren.rows.sql_rows import RowFilter
from pyspark_warren.rows.states import viewed_rows
from pyspark_warren.surroundings import read_by
from warren import errors as client_errors
from warren.claims import ClaimSlice
from warren_wire.block.layout import AREA_BODIES, AREA_PROPERTIES
from warren_wire.message_states import READY

log = logging.getLogger("pyspark_warren")

LOOK_FIRST_BYTES = 4_096
"""Mean size of messages from which on a filter looks at their properties before their bodies."""


def read_task(
    connect: Connect, options: Options, parts: Sequence[Slice], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's slices that the option filter keeps, always in the same order.

    Neighbours that are fetched as a whole are requested at once: of many queues with a few messages
    each, one after the other, each would take a round trip.

    The slice of a claim that is given up has no rows; see `failed_batches.GivingUp.plan`. With
    onClaimLost=continue a slice of a lost claim has none: its messages are in the queue again and
    will be in a later batch.
    """
    chosen = RowFilter(options.row_filter, schema, options.corrupt)
    at = 0
    while at < len(parts):
        part = parts[at]
        whole = list(takewhile(partial(_is_whole, options, schema), parts[at:]))
        if whole:
            at += yield from _rows_of(connect, options, whole, chosen)
            continue
        if part.given_up is not None:
            with named_conditions(_doing(options, part)), _skipping(options, part):
                connect(options).give_up(part.queue, part.reader, part.number, part.given_up)
        else:
            yield from _rows_of(
                connect, options, _kept_parts(connect, options, part, chosen), chosen
            )
        at += 1


def _is_whole(options: Options, schema: pa.Schema, part: Slice) -> bool:
    return part.given_up is None and not looks_first(options, part, schema)


def _rows_of(
    connect: Connect, options: Options, parts: Sequence[Slice], chosen: RowFilter
) -> Generator[pa.RecordBatch, None, int]:
    """Yield the rows of slices that are requested at once; return how many were read or skipped."""
    pieces = _pieces_of(connect, options, parts, chosen.schema)
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            return int(end.value)
        for rows in batches_of(piece, chosen.schema, options.corrupt):
            yield chosen.kept(rows)


def _pieces_of(
    connect: Connect, options: Options, parts: Sequence[Slice], schema: pa.Schema
) -> Generator[ClaimedBlock, None, int]:
    """Yield the messages of slices, all of them, with what the columns are made of.

    returns  how many slices were read or skipped
    """
    wanted = [part.last - part.first for part in parts]
    got = [0] * len(parts)
    fetched = connect(options).fetch_slices(
        [
            ClaimSlice(
                part.queue,
                part.reader,
                part.number,
                part.first,
                part.last,
                read_by() if part.first == 0 else None,
            )
            for part in parts
        ],
        wanted_areas(schema, options.corrupt),
    )
    at = 0
    while True:
        while at < len(parts) and got[at] == wanted[at]:
            at += 1
        current = min(at, len(parts) - 1)
        number, piece = None, None
        lost = True
        with named_conditions(_doing(options, parts[current])), _skipping(options, parts[current]):
            number, piece = next(fetched, (None, None))
            lost = False
        if lost:
            return at + 1
        if number is None or piece is None:
            if at < len(parts):
                raise _other_count(options, parts[at], got[at])
            return at
        block = ClaimedBlock.decode(piece.data, piece.runs, parts[number].queue)
        got[number] += block.block.count
        if number != at or got[at] > wanted[at]:
            raise _other_count(options, parts[current], got[current])
        yield block


def _doing(options: Options, part: Slice) -> str:
    return (
        f"reading claim {part.number} ({part.first} to {part.last}) of queue "
        f"{part.queue!r} at {options.addresses()}"
    )


@contextmanager
def _skipping(options: Options, part: Slice) -> Iterator[None]:
    """Pass over a claim that is lost, with onClaimLost=continue."""
    try:
        yield
    except client_errors.ClaimLost as lost:
        if options.on_claim_lost == "fail":
            raise
        log.warning("%s: %s; skipped (onClaimLost=continue)", _doing(options, part), lost)


def _other_count(options: Options, part: Slice, got: int) -> BrokerRefusedError:
    return BrokerRefusedError(
        f"{_doing(options, part)}: {got} messages came instead of {part.last - part.first}"
    )


def looks_first(options: Options, part: Slice, schema: pa.Schema) -> bool:
    """Return whether bodies are fetched only where the filter keeps something."""
    return (
        bool(options.row_filter)
        and "body" in schema.names
        and not bodies_decide(options, schema)
        and part.size_bytes >= LOOK_FIRST_BYTES * (part.last - part.first)
    )


def bodies_decide(options: Options, schema: pa.Schema) -> bool:
    """Return whether a body that is not UTF-8 keeps its row, in the column for such."""
    return (
        options.corrupt is not None
        and "body" in schema.names
        and schema.field("body").type == pa.string()
    )


def _kept_parts(connect: Connect, options: Options, part: Slice, chosen: RowFilter) -> list[Slice]:
    """Return the parts of a slice outside which the filter keeps nothing."""
    kept: list[int] = []
    at = part.first
    for piece in _pieces_of(connect, options, [part], chosen.decides):
        mask = chosen.mask(to_arrow(piece, chosen.decides, options.corrupt))
        kept += pc.add(pc.indices_nonzero(mask), at).to_pylist()
        at += piece.block.count
    return [replace(part, first=first, last=last + 1) for first, last in spans(kept)]


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


_TOLD_MAX = 5
"""Positions in one line of the log."""


def rows_in_mode(
    options: Options,
    schema: pa.Schema,
    read: Callable[[pa.Schema, str | None], Iterable[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield what `read` gives, without the rows that the options leave out.

    Only for reads that leave the messages where they are (`options.parse_options` refuses
    mode=DROPMALFORMED for others).

    read  makes rows of a schema, with the column that takes what cannot be decoded, or None
    """
    chosen = RowFilter(options.row_filter, schema, options.corrupt)
    for rows in _well_formed(options, chosen.schema, read):
        yield chosen.kept(rows)


def _well_formed(
    options: Options,
    schema: pa.Schema,
    read: Callable[[pa.Schema, str | None], Iterable[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield what `read` gives; with mode=DROPMALFORMED without what cannot be decoded."""
    if not options.drops_malformed:
        yield from read(schema, options.corrupt)
        return
    column = options.corrupt_column
    inner = schema.append(pa.field(column, pa.binary()))
    if "position" not in schema.names:
        inner = inner.append(pa.field("position", ARROW_TYPES["position"]))
    for rows in read(inner, column):
        refused = rows.column(column)
        if refused.null_count < len(refused):
            _tell(options.queue, rows.filter(refused.is_valid()).column("position"))
            rows = rows.filter(pc.is_null(refused))
        yield rows.select(schema.names)


def _tell(queue: str, places: pa.StructArray) -> None:
    named = ", ".join(
        f"(index {place['index']}, ordinal {place['ordinal']})"
        for place in places[:_TOLD_MAX].to_pylist()
    )
    more = f" and {len(places) - _TOLD_MAX} more" if len(places) > _TOLD_MAX else ""
    log.warning(
        "queue %r: %d messages that cannot be decoded are left out, they stay in the queue: "
        "position %s%s (mode=DROPMALFORMED; mode=PERMISSIVE shows them)",
        queue,
        len(places),
        named,
        more,
    )
