"""Conversion of a sink's Arrow columns to a block's columns, without an object per row.

Columns are checked as a whole. Arrow arrays are given to the kernel as their buffers, without a
copy, and it makes the property lists of them. What Arrow can convert by itself is converted here,
so that the kernel has one form of each kind of value. Headers with values that it does not take
(decimals, tables, arrays) are encoded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pyarrow as pa

from pyspark_warren.errors import SchemaError
from pyspark_warren.rows import compute as pc
from pyspark_warren.rows.columns import HEADER_FIELDS, MICROS_PER_SECOND
from pyspark_warren.rows.decode import HEADER_VALUE
from pyspark_warren.rows.properties import NAMES, encode_headers
from warren_wire import kernel
from warren_wire.amqp091.fields import SHORT_STRING_BYTES_MAX
from warren_wire.block.layout import PRIORITY_DEFAULT, PRIORITY_MAX
from warren_wire.kernel.properties import EXPIRATION_MS_MAX
from warren_wire.kernel.property_columns import HEADER_KINDS

_VOID: Final = HEADER_KINDS.index("void")


def texts(column: pa.Array) -> kernel.Values:
    """Return strings or binaries, large or not."""
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    validity, offsets, data = column.buffers()
    return kernel.Values(
        len(column),
        column.offset,
        validity if column.null_count else None,
        b"" if offsets is None else offsets,
        8 if large else 4,
        b"" if data is None else data,
    )


def numbers(column: pa.Array) -> kernel.Values:
    """Return values of 1 or 8 bytes."""
    validity, words = column.buffers()
    return kernel.Values(
        len(column),
        column.offset,
        validity if column.null_count else None,
        b"" if words is None else words,
        column.type.bit_width // 8,
    )


def binary_array(count: int, made: tuple[object, object]) -> pa.BinaryArray:
    """Wrap what the kernel has made: offsets and data."""
    offsets, data = map(pa.py_buffer, made)
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, data])


def header_tables(column: pa.MapArray) -> pa.BinaryArray | None:
    """Encode maps as field tables with their lengths; null where the row has none.

    None: some of them need the codec of single values (`properties.encode_headers`), which may
    refuse them.
    """
    keys, count = column.keys, len(column)
    members = _members(column.items)
    if members is None or not pa.types.is_string(keys.type):
        return None
    validity, offsets = column.buffers()[:2]
    if offsets is None:
        return pa.nulls(count, pa.binary()) if not count else None
    valid = validity if column.null_count else None
    rows = kernel.Values(count, column.offset, valid, offsets, 4, None, len(keys))
    made = kernel.header_tables(rows, texts(keys), members)
    if made is None:
        return None
    encoded = binary_array(count, made)
    if valid is None:
        return encoded
    return pc.if_else(pc.is_valid(column), encoded, pa.scalar(None, pa.binary()))


def _members(items: pa.Array) -> kernel.Members | None:
    kind = items.type
    if pa.types.is_struct(kind):
        return _typed_members(items)
    if pa.types.is_null(kind):
        return kernel.Members(None, _VOID, [None] * len(HEADER_KINDS))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _plain_members("string", items)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _plain_members("binary", items)
    if pa.types.is_signed_integer(kind):
        return _plain_members("long", items.cast(pa.int64()))
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return _plain_members("double", items.cast(pa.float64()))
    if pa.types.is_boolean(kind):
        return _plain_members("boolean", items)
    return None


def _plain_members(name: str, items: pa.Array) -> kernel.Members:
    values = [_member(each, items) if each == name else None for each in HEADER_KINDS]
    return kernel.Members(None, HEADER_KINDS.index(name), values)


def _typed_members(items: pa.StructArray) -> kernel.Members | None:
    """Return the values that a source gives, if each of them is of one of HEADER_KINDS."""
    if [field.name for field in items.type] != list(HEADER_FIELDS):
        return None
    for field in items.type:
        if field.name == "timestamp":  # with a time zone of the session
            if not pa.types.is_timestamp(field.type) or field.type.tz is None:
                return None
        elif field.type != HEADER_VALUE.field(field.name).type:
            return None
    there = pc.is_valid(items)
    kinds = pc.index_in(items.field("type"), value_set=pa.array(HEADER_KINDS, pa.string()))
    if pc.any(pc.and_(there, pc.is_null(kinds))).as_py():
        return None
    kinds = pc.if_else(there, kinds, pa.scalar(None, kinds.type)).cast(pa.uint8())
    values = [None if name == "void" else _member(name, items.field(name)) for name in HEADER_KINDS]
    return kernel.Members(numbers(kinds), 0, values)


def _member(name: str, values: pa.Array) -> kernel.Values:
    if name in ("string", "binary"):
        return texts(values)
    if name == "boolean":
        return numbers(values.cast(pa.uint8()))
    if name == "timestamp":
        return numbers(values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()))
    return numbers(values)


NO_KEY: Final = (
    "rows have no routing key: give the option routingKey, or a column routing_key (to an exchange "
    "that needs none: routingKey '')"
)
_SMALLER_BATCHES: Final = "lower spark.sql.execution.arrow.maxRecordsPerBatch"


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """A run of rows in a block's columns, in their order; all arrays have the same length.

    bodies      binary
    properties  binary: 0.9.1 flags and list of each row
    priorities  uint8, at most PRIORITY_MAX; None: all PRIORITY_DEFAULT
    ttls_ms     uint32, TTL_NONE for none; None: none has any
    routes      dictionary of (exchange, routing key) with int32 indices: see `route_ids`
    """

    bodies: pa.BinaryArray
    properties: pa.BinaryArray
    priorities: pa.UInt8Array | None
    ttls_ms: pa.UInt32Array | None
    route_ids: pa.Int32Array | None
    routes: tuple[tuple[str, str], ...]

    def __len__(self) -> int:
        return len(self.bodies)

    def take(self, indices: pa.Array) -> EncodedRows:
        """Return those rows, in that order."""
        return self._selected(lambda column: column.take(indices))

    def slice(self, first: int, count: int) -> EncodedRows:
        """Return a run of rows, which shares memory."""
        return self._selected(lambda column: column.slice(first, count))

    def _selected(self, of: Callable[[pa.Array], pa.Array]) -> EncodedRows:
        return EncodedRows(
            of(self.bodies),
            of(self.properties),
            None if self.priorities is None else of(self.priorities),
            None if self.ttls_ms is None else of(self.ttls_ms),
            None if self.route_ids is None else of(self.route_ids),
            self.routes,
        )


def encode_rows(
    rows: pa.RecordBatch,
    exchange: str | None,
    routing_key: str | None,
    persistent: bool,
    message_ids: pa.Array | None = None,
    id_header: str | None = None,
    expiration_ms_max: int = EXPIRATION_MS_MAX,
) -> EncodedRows:
    """Encode the rows of one Arrow batch.

    exchange, routing_key  of every row; None: from the row's column, where absent or null is the
                           default exchange. With a routing key and no exchange, the default one
    message_ids            strings for rows without a message_id of their own
    id_header              name of a header that repeats the message_id, of rows that have none of
                           this name; None: none does
    expiration_ms_max      the longest expiration that the broker takes
    raises                 SchemaError with the column, the value and the limit
    """
    columns = {name: rows.column(i) for i, name in enumerate(rows.schema.names)}
    count = rows.num_rows
    if message_ids is not None:
        own = columns.get("message_id")
        columns["message_id"] = message_ids if own is None else pc.coalesce(own, message_ids)
    mode = pa.scalar(2 if persistent else 1, pa.int64())
    given = columns.get("delivery_mode")
    columns["delivery_mode"] = (
        pa.repeat(mode, count) if given is None else pc.fill_null(given.cast(pa.int64()), mode)
    )
    ttls = None
    if "expiration" in columns:
        columns["expiration"], ttls = _expirations(columns["expiration"], expiration_ms_max)
    routes, route_ids = _routes(columns, count, exchange, routing_key)
    return EncodedRows(
        _bodies(columns),
        _properties(columns, count, id_header),
        _priorities(columns),
        ttls,
        route_ids,
        routes,
    )


def _bodies(columns: dict[str, pa.Array]) -> pa.BinaryArray:
    body = columns["body"]
    if body.null_count:
        raise SchemaError(
            f"column body: {body.null_count} of {len(body)} rows are null; a "
            "message has a body, if only an empty one: filter them, or fill in ''"
        )
    return body if pa.types.is_binary(body.type) else body.cast(pa.binary())


def _priorities(columns: dict[str, pa.Array]) -> pa.UInt8Array | None:
    column = columns.get("priority")
    if column is None or column.null_count == len(column):
        return None
    filled = pc.fill_null(column.cast(pa.int64()), PRIORITY_DEFAULT)
    return pc.min_element_wise(filled, pa.scalar(PRIORITY_MAX, pa.int64())).cast(pa.uint8())


def _expirations(column: pa.Array, ms_max: int) -> tuple[pa.Array, pa.UInt32Array | None]:
    """Return milliseconds as text, as in the property, and the times to live."""
    if pa.types.is_integer(column.type):
        low = pc.min(column).as_py()
        if low is not None and low < 0:
            raise SchemaError(f"column expiration: {low} is below 0 milliseconds")
        column = column.cast(pa.string())
    count = len(column)
    if column.null_count == count:
        return column, None
    made, bad = kernel.expirations(texts(column), ms_max)
    if bad >= 0:
        text = column[bad].as_buffer().to_pybytes().decode("utf-8", "replace")
        raise SchemaError(
            f"column expiration: {text!r} is not a number of milliseconds from 0 to {ms_max}"
        )
    ttls = pa.UInt32Array.from_buffers(pa.uint32(), count, [None, pa.py_buffer(made)])
    return column, ttls


def _routes(
    columns: dict[str, pa.Array], count: int, exchange: str | None, routing_key: str | None
) -> tuple[tuple[tuple[str, str], ...], pa.Int32Array | None]:
    """Return each row's route. An option applies to every row (`Options`)."""
    if routing_key is not None:
        return ((exchange or "", routing_key),), None
    keys = columns.get("routing_key")
    exchanges = columns.get("exchange") if exchange is None else None
    if keys is None:
        raise SchemaError(NO_KEY)
    if keys.null_count:
        raise SchemaError(
            f"column routing_key: {keys.null_count} of {count} rows are null; fill "
            "them, or give the option routingKey, which then routes every row"
        )
    keys = keys.cast(pa.string())
    if exchanges is None:
        exchanges = pa.repeat(pa.scalar(exchange or ""), count)
    else:
        exchanges = pc.fill_null(exchanges.cast(pa.string()), "")
    pairs = pc.binary_join_element_wise(
        _short_strings("exchange", exchanges), _short_strings("routing_key", keys), b""
    )
    coded = pairs.dictionary_encode()
    routes = tuple(_split_pair(raw.as_py()) for raw in coded.dictionary)
    return routes, coded.indices


def _split_pair(raw: bytes) -> tuple[str, str]:
    cut = 1 + raw[0]
    try:
        return raw[1:cut].decode(), raw[cut + 1 :].decode()
    except UnicodeDecodeError:
        shown = raw[1:cut], raw[cut + 1 :]
        raise SchemaError(
            f"columns exchange and routing_key: {shown} is not UTF-8; names of exchanges and "
            "routing keys are"
        ) from None


# ------------------------------------------------------------------ property lists


def _properties(columns: dict[str, pa.Array], count: int, id_header: str | None) -> pa.BinaryArray:
    if id_header is not None and "message_id" in columns:
        columns = {**columns, "headers": _with_ids(columns, id_header)}
    given: list[kernel.Values | None] = []
    for name in NAMES:
        column = columns.get(name)
        absent = column is None or column.null_count == count
        given.append(None if absent else _values(name, column))
    try:
        return binary_array(count, kernel.property_lists(count, given))
    except OverflowError as wrong:
        raise SchemaError(f"properties of {count} rows: {wrong}; {_SMALLER_BATCHES}") from None


def _values(name: str, column: pa.Array) -> kernel.Values:
    """Check a property's values and return them for the kernel."""
    if name in ("delivery_mode", "priority"):
        low, high = pc.min_max(column).values()
        if low.as_py() < 0 or high.as_py() > 255:
            bad = low.as_py() if low.as_py() < 0 else high.as_py()
            raise SchemaError(f"column {name}: {bad} is not between 0 and 255")
        return numbers(column.cast(pa.uint8()))
    if name == "timestamp":
        return numbers(_seconds(column))
    if name == "headers":
        return texts(column if pa.types.is_binary(column.type) else _headers(column))
    _check_lengths(name, column)
    return texts(column)


def _check_lengths(name: str, column: pa.Array) -> None:
    longest = pc.max(pc.binary_length(column)).as_py()
    if longest is not None and longest > SHORT_STRING_BYTES_MAX:
        raise SchemaError(
            f"column {name}: a value of {longest} bytes; AMQP 0.9.1 carries "
            f"{SHORT_STRING_BYTES_MAX}"
        )


@cache
def _octets() -> pa.BinaryArray:
    """Return every octet, made at its first use: pyarrow imports pandas for its first value."""
    return pa.array([bytes((i,)) for i in range(256)], pa.binary())


def _short_strings(name: str, column: pa.StringArray) -> pa.BinaryArray:
    _check_lengths(name, column)
    lengths = _octets().take(pc.binary_length(column))
    return pc.binary_join_element_wise(lengths, column.cast(pa.binary()), b"")


def _seconds(column: pa.Array) -> pa.Int64Array:
    """Return seconds since the epoch."""
    if pa.types.is_timestamp(column.type):
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        # Arrow's division rounds towards zero, which the last second before 1970 must not.
        low = pc.min(micros).as_py()
        low = None if low is None else low // MICROS_PER_SECOND
        seconds = pc.divide(micros, MICROS_PER_SECOND)
    else:
        seconds = column.cast(pa.int64())
        low = pc.min(seconds).as_py()
    if low is not None and low < 0:
        raise SchemaError(
            f"column timestamp: {low} seconds lies before 1970; AMQP 0.9.1 cannot say that"
        )
    return seconds


def _with_ids(columns: dict[str, pa.Array], id_header: str) -> pa.BinaryArray:
    """Encode the rows' headers with one more: the message_id, where that is not null."""
    ids = columns["message_id"].to_pylist()
    given = columns.get("headers")
    entries = [None] * len(ids) if given is None else given.to_pylist()
    return _tables(
        own if one is None else {id_header: one, **dict(own or ())}
        for own, one in zip(entries, ids, strict=True)
    )


def _headers(column: pa.Array) -> pa.BinaryArray:
    try:
        made = header_tables(column)
    except OverflowError as wrong:
        raise SchemaError(f"column headers: {wrong}; {_SMALLER_BATCHES}") from None
    return _tables(_listed(column)) if made is None else made


def _listed(column: pa.MapArray) -> Iterator[Any]:
    """Yield the rows; an error of Arrow's (a text that is not UTF-8) comes with the first one."""
    yield from column.to_pylist()


def _tables(rows: Iterable[Any]) -> pa.BinaryArray:
    try:
        return pa.array(
            [None if entries is None else encode_headers(entries) for entries in rows], pa.binary()
        )
    except (ValueError, TypeError, KeyError) as wrong:
        raise SchemaError(f"column headers: {wrong}") from None
