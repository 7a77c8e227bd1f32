"""Rows of reads that leave messages where they are: by option filter, and mode=DROPMALFORMED."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_warren.decode import ARROW_TYPES
from pyspark_warren.options import Options
from pyspark_warren.sql_rows import RowFilter

log = logging.getLogger("pyspark_warren")

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
