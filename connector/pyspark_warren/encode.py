"""Conversion of a sink's Arrow columns to a block's columns, without a loop over rows.

Only `headers` is encoded row by row; everything else is whole-column arithmetic.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_warren.errors import SchemaError
from pyspark_warren.properties import FLAGS, NAMES, encode_headers
from warren_broker.block.layout import PRIORITY_DEFAULT, PRIORITY_MAX, TTL_NONE

NO_KEY: Final = (
    "rows have no routing key: give the option routingKey, or a column routing_key (to an exchange "
    "that needs none: routingKey '')"
)
_OCTETS: Final = pa.array([bytes((i,)) for i in range(256)], pa.binary())
_EMPTY: Final = pa.scalar(b"", pa.binary())


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
        return EncodedRows(
            self.bodies.take(indices),
            self.properties.take(indices),
            None if self.priorities is None else self.priorities.take(indices),
            None if self.ttls_ms is None else self.ttls_ms.take(indices),
            None if self.route_ids is None else self.route_ids.take(indices),
            self.routes,
        )

    def slice(self, first: int, count: int) -> EncodedRows:
        """Return a run of rows, which shares memory."""
        return EncodedRows(
            self.bodies.slice(first, count),
            self.properties.slice(first, count),
            None if self.priorities is None else self.priorities.slice(first, count),
            None if self.ttls_ms is None else self.ttls_ms.slice(first, count),
            None if self.route_ids is None else self.route_ids.slice(first, count),
            self.routes,
        )


def encode_rows(
    rows: pa.RecordBatch,
    exchange: str | None,
    routing_key: str | None,
    persistent: bool,
    message_ids: pa.Array | None = None,
    id_header: str | None = None,
) -> EncodedRows:
    """Encode the rows of one Arrow batch.

    exchange, routing_key  of every row; None: from the row's column, where absent or null is the
                           default exchange. With a routing key and no exchange, the default one
    message_ids            strings for rows without a message_id of their own
    id_header              name of a header that repeats the message_id, of rows that have none of
                           this name; None: none does
    raises                 SchemaError with the column, the value and the limit
    """
    columns = {name: rows.column(i) for i, name in enumerate(rows.schema.names)}
    count = rows.num_rows
    if message_ids is not None:
        own = columns.get("message_id")
        columns["message_id"] = message_ids if own is None else pc.coalesce(own, message_ids)
    mode = pa.scalar(2 if persistent else 1, pa.int32())
    given = columns.get("delivery_mode")
    columns["delivery_mode"] = (
        pa.repeat(mode, count) if given is None else pc.fill_null(given.cast(pa.int32()), mode)
    )
    if "expiration" in columns:
        columns["expiration"] = _expirations(columns["expiration"])
    routes, route_ids = _routes(columns, count, exchange, routing_key)
    return EncodedRows(
        _bodies(columns),
        _properties(columns, count, id_header),
        _priorities(columns),
        _ttls(columns),
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


def _expirations(column: pa.Array) -> pa.StringArray:
    """Convert to milliseconds as text, as in the property."""
    if pa.types.is_integer(column.type):
        low = pc.min(column).as_py()
        if low is not None and low < 0:
            raise SchemaError(f"column expiration: {low} is below 0 milliseconds")
    else:
        right = pc.match_substring_regex(column.cast(pa.string()), r"^[0-9]{1,18}$")
        if pc.all(right).as_py() is False:
            bad = column.filter(pc.invert(right))[0].as_py()
            raise SchemaError(f"column expiration: {bad!r} is not a number of milliseconds")
    return column.cast(pa.string())


def _ttls(columns: dict[str, pa.Array]) -> pa.UInt32Array | None:
    column = columns.get("expiration")
    if column is None or column.null_count == len(column):
        return None
    value = pc.min_element_wise(
        column.cast(pa.int64()), pa.scalar(TTL_NONE - 1, pa.int64()), skip_nulls=False
    )
    return pc.fill_null(value, TTL_NONE).cast(pa.uint32())


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
        _short_strings("exchange", exchanges), _short_strings("routing_key", keys), _EMPTY
    )
    coded = pairs.dictionary_encode()
    routes = tuple(_split_pair(raw.as_py()) for raw in coded.dictionary)
    return routes, coded.indices


def _split_pair(raw: bytes) -> tuple[str, str]:
    cut = 1 + raw[0]
    return raw[1:cut].decode(), raw[cut + 1 :].decode()


# ------------------------------------------------------------------ property lists


def _properties(columns: dict[str, pa.Array], count: int, id_header: str | None) -> pa.BinaryArray:
    if id_header is not None and "message_id" in columns:
        columns = {**columns, "headers": _with_ids(columns, id_header)}
    flags = pa.repeat(pa.scalar(0, pa.int32()), count)
    parts: list[pa.Array] = []
    for name in NAMES:
        column = columns.get(name)
        if column is None or column.null_count == count:
            continue
        valid = pc.cast(pc.is_valid(column), pa.int32())
        flags = pc.add(flags, pc.multiply(valid, pa.scalar(FLAGS[name], pa.int32())))
        parts.append(pc.fill_null(_encoded(name, column), _EMPTY))
    coded = flags.dictionary_encode()
    words = pa.array([struct.pack(">H", each.as_py()) for each in coded.dictionary], pa.binary())
    return pc.binary_join_element_wise(words.take(coded.indices), *parts, _EMPTY)


def _encoded(name: str, column: pa.Array) -> pa.BinaryArray:
    """Encode a property; null where the row has none."""
    if name in ("delivery_mode", "priority"):
        low, high = pc.min_max(column).values()
        if low.as_py() < 0 or high.as_py() > 255:
            bad = low.as_py() if low.as_py() < 0 else high.as_py()
            raise SchemaError(f"column {name}: {bad} is not between 0 and 255")
        return _OCTETS.take(column.cast(pa.int32()))
    if name == "timestamp":
        return _timestamps(column)
    if name == "headers":
        return column if pa.types.is_binary(column.type) else _headers(column)
    return _short_strings(name, column.cast(pa.string()))


def _short_strings(name: str, column: pa.StringArray) -> pa.BinaryArray:
    lengths = pc.binary_length(column)
    longest = pc.max(lengths).as_py()
    if longest is not None and longest > 255:
        raise SchemaError(f"column {name}: a value of {longest} bytes; AMQP 0.9.1 carries 255")
    return pc.binary_join_element_wise(_OCTETS.take(lengths), column.cast(pa.binary()), _EMPTY)


def _timestamps(column: pa.Array) -> pa.BinaryArray:
    """Encode seconds since the epoch in eight bytes, big-endian."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
        seconds = pc.divide(column.cast(pa.int64()), 1_000_000)
    else:
        seconds = column.cast(pa.int64())
    plain = pc.fill_null(seconds, 0)
    low = pc.min(plain).as_py()
    if low is not None and low < 0:
        raise SchemaError(
            f"column timestamp: {low} seconds lies before 1970; AMQP 0.9.1 cannot say that"
        )
    words = array("q", plain.to_pylist())
    words.byteswap()
    raw = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(8), len(words), [None, pa.py_buffer(words.tobytes())]
    )
    return pc.if_else(pc.is_valid(seconds), raw.cast(pa.binary()), pa.scalar(None, pa.binary()))


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
    return _tables(column.to_pylist())


def _tables(rows: Iterable[Any]) -> pa.BinaryArray:
    try:
        return pa.array(
            [None if entries is None else encode_headers(entries) for entries in rows], pa.binary()
        )
    except (ValueError, TypeError, KeyError) as wrong:
        raise SchemaError(f"column headers: {wrong}") from None
