"""Rows of the messages that a SQL filter is true of.

The filter sees a message as AMQP 1.0 names its parts: fields of header and properties are columns,
application properties are headers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from pyspark_warren.rows import compute as pc
from pyspark_warren.rows.decode import ARROW_TYPES, headers_as
from warren_wire.sql_filter import APPLICATION_SECTION, FilterRefused, Identifier, SqlFilter, Value

_COLUMNS: Final = {
    "priority": "priority",
    "message_id": "message_id",
    "user_id": "user_id",
    "reply_to": "reply_to",
    "correlation_id": "correlation_id",
    "content_type": "content_type",
    "content_encoding": "content_encoding",
    "creation_time": "timestamp",
    "group_id": "app_id",
}
"""The column of a field of header or properties; AMQP 0.9.1 has no place for the others."""
_MILLIS: Final = 1_000
_AS_IT_IS: Final = ("string", "long", "double", "boolean", "binary")
"""Members of a header's value that are values of a filter as they are."""


@lru_cache(maxsize=16)
def checked_filter(text: str) -> SqlFilter:
    """Return a filter that can be asked about rows; raises ValueError with what is wrong."""
    made = SqlFilter(text)
    if made.uses_time:
        raise FilterRefused(
            "UTC() changes with the time, and a micro-batch that is run again must have the same "
            "rows: compare with a constant, or filter by time in Spark"
        )
    for one in made.identifiers:
        if one.section != APPLICATION_SECTION and one.name not in _COLUMNS:
            raise FilterRefused(
                f"AMQP 0.9.1, as which messages are read here, has no {one.section}.{one.name}: no "
                f"message could have it; there are {', '.join(_COLUMNS)}, and headers by name"
            )
    return made


class RowFilter:
    """A filter, or none, of rows of a schema.

    schema   what must be read: the columns wanted, and those that the filter needs
    decides  the latter alone
    """

    def __init__(self, text: str, wanted: pa.Schema, corrupt: str | None) -> None:
        """`corrupt` is the column for bytes that cannot be decoded; None: such bytes are errors."""
        self._filter = checked_filter(text) if text else None
        self._wanted = wanted
        self._corrupt = corrupt
        self.schema = wanted
        self.decides = pa.schema([])
        if self._filter is None:
            return
        needed = {_column_of(one): None for one in self._filter.identifiers}
        if corrupt is not None:
            needed[corrupt] = None
        self.decides = pa.schema(
            [pa.field(name, ARROW_TYPES.get(name, pa.binary())) for name in needed]
        )
        if "headers" in needed and "headers" in wanted.names:
            at = wanted.get_field_index("headers")
            self.schema = wanted.set(at, pa.field("headers", ARROW_TYPES["headers"]))
        for name in needed:
            if name not in wanted.names:
                self.schema = self.schema.append(pa.field(name, ARROW_TYPES.get(name, pa.binary())))

    def kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the wanted columns of the rows that the filter is true of.

        A message that cannot be decoded is kept, in the column for such: what the filter would say
        of it is not known.
        """
        if self._filter is None:
            return rows
        rows = rows.filter(self.mask(rows))
        made = {name: rows.column(name) for name in self._wanted.names}
        if "headers" in made:
            made["headers"] = headers_as(made["headers"], self._wanted.field("headers").type)
        return pa.RecordBatch.from_arrays(list(made.values()), schema=self._wanted)

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Return which rows are kept, of rows with the columns of `decides`; there is a filter."""
        assert self._filter is not None
        columns = [_values(rows, one) for one in self._filter.identifiers]
        each = zip(*columns, strict=True) if columns else [()] * rows.num_rows
        matches = self._filter.matches
        mask = pa.array([matches(values) for values in each], pa.bool_())
        if self._corrupt is not None:
            mask = pc.or_(mask, rows.column(self._corrupt).is_valid())
        return mask


def _column_of(one: Identifier) -> str:
    return "headers" if one.section == APPLICATION_SECTION else _COLUMNS[one.name]


def _values(rows: pa.RecordBatch, one: Identifier) -> list[Value]:
    column = rows.column(_column_of(one))
    if one.section == APPLICATION_SECTION:
        return _headers(pc.map_lookup(column, one.name, "first"))
    return _times(column) if one.name == "creation_time" else _list(column)


def _list(column: pa.Array) -> list[Value]:
    found: list[Value] = column.to_pylist()
    return found


def _times(column: pa.Array) -> list[Value]:
    """Return milliseconds since 1970."""
    return _list(pc.divide(column.cast(pa.int64()), _MILLIS))


def _headers(values: pa.StructArray) -> list[Value]:
    """Return the values of one header; tables and arrays, which no filter takes, are unknown."""
    found: list[Any] = [None] * len(values)
    for member in (*_AS_IT_IS, "timestamp"):
        column = pc.struct_field(values, member)
        if column.null_count == len(column):
            continue
        each = _times(column) if member == "timestamp" else _list(column)
        for row, value in enumerate(each):
            if value is not None:
                found[row] = value
    kinds = pc.struct_field(values, "type")
    for row in pc.indices_nonzero(pc.fill_null(pc.equal(kinds, "decimal"), False)).to_pylist():
        found[row] = float(found[row])
    return found
