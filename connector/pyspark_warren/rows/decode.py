"""Conversion of property lists to Arrow columns, for every source of rows.

The kernel splits the lists into columns in one pass; texts and numbers are wrapped without a copy.
Headers of plain values become maps likewise. Tables with values that need more (tables, arrays,
decimals, repeated names) are decoded one by one, once per distinct table.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pyspark_warren.rows import compute as pc
from pyspark_warren.rows.columns import (
    COLUMNS,
    HEADER_FIELDS,
    MICROS_PER_SECOND,
)
from pyspark_warren.rows.properties import NAMES, decode_properties
from warren_wire import kernel
from warren_wire.amqp091 import fields
from warren_wire.errors import SyntaxRefused
from warren_wire.kernel.property_columns import HEADER_KINDS

PLAIN_TYPES: Final[dict[str, pa.DataType]] = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
"""Arrow types by Spark type."""
HEADER_VALUE: Final = pa.struct([(name, PLAIN_TYPES[ddl]) for name, ddl in HEADER_FIELDS.items()])
ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    **{name: PLAIN_TYPES.get(ddl) for name, ddl in COLUMNS.items()},
    "headers": pa.map_(pa.string(), HEADER_VALUE),
    "position": pa.struct([("index", pa.int64()), ("ordinal", pa.int64())]),
}
"""The Arrow type of every column of a message."""
HEADERS_TEXT: Final = pa.map_(pa.string(), pa.string())
"""The other type of the column headers."""
_SECONDS_MAX: Final = (2**63 - 1) // MICROS_PER_SECOND


@dataclass(frozen=True)
class DecodedProperties:
    """The property columns of some messages, and what could not be decoded.

    columns    by name; null where a message lacks the property, or its list is malformed
    malformed  numbers of the messages with such lists, ascending
    raw        returns the property list of a message
    """

    columns: dict[str, pa.Array]
    malformed: Sequence[int]
    count: int
    raw: Callable[[int], bytes]

    def why(self, row: int) -> str:
        """Return why the list of a malformed message is refused."""
        try:
            found = decode_properties(self.raw(row), frozenset({"timestamp", "headers"}))
        except SyntaxRefused as wrong:
            return str(wrong)
        times = [typed.get("timestamp", 0) for _, typed in found.get("headers", ())]
        times.append(found.get("timestamp", 0))
        return f"timestamp {max(times)} is above {_SECONDS_MAX} seconds"

    def refused(self) -> pa.BinaryArray:
        """Return the lists that are malformed as a column; null for the other messages."""
        lists: list[bytes | None] = [None] * self.count
        for row in self.malformed:
            lists[row] = self.raw(row)
        return pa.array(lists, pa.binary())


def decode_columns(
    offsets: memoryview, data: memoryview, count: int, wanted: frozenset[str]
) -> DecodedProperties:
    """Decode the wanted properties of `count` property lists.

    offsets  count + 1 ascending offsets into data, 32 bits each
    """

    def raw(row: int) -> bytes:
        return bytes(data[offsets[row] : offsets[row + 1]])

    split, malformed = kernel.split_properties(
        offsets, data, count, [name in wanted for name in NAMES]
    )
    columns = {}
    late: set[int] = set()
    for name, column in zip(NAMES, split, strict=True):
        if name == "headers" and column is not None:
            columns[name], late = _headers(column, count)
        elif column is not None:
            columns[name] = _plain(name, column)
    if late:
        kept = pa.array([None if row in late else row for row in range(count)], pa.int64())
        columns = {name: values.take(kept) for name, values in columns.items()}
    return DecodedProperties(columns, sorted(late.union(malformed)), count, raw)


def _plain(name: str, column: Any) -> pa.Array:
    wanted = ARROW_TYPES[name]
    if wanted != pa.string():
        count = len(column.values) * 8 // wanted.bit_width
        return _array(wanted, count, column, pa.py_buffer(column.values))
    offsets, data = pa.py_buffer(column.offsets), pa.py_buffer(column.data)
    count = len(column.offsets) // 4 - 1
    if not column.plain:
        # Bytes that are not UTF-8 become U+FFFD; an Arrow string may not hold them.
        lists = _array(pa.binary(), count, column, offsets, data)
        texts = [
            None if raw is None else raw.decode("utf-8", "replace") for raw in lists.to_pylist()
        ]
        return pa.array(texts, wanted)
    return _array(wanted, count, column, offsets, data)


def _array(kind: pa.DataType, count: int, column: Any, *buffers: pa.Buffer) -> pa.Array:
    valid = pa.py_buffer(column.validity) if column.nulls else None
    return pa.Array.from_buffers(kind, count, [valid, *buffers], column.nulls)


# ------------------------------------------------------------------ headers


def _headers(column: Any, count: int) -> tuple[pa.MapArray, set[int]]:
    """Return the maps, and the messages that have a time which no column can hold."""
    entries: Any = kernel.header_entries(column.offsets, column.data, count)
    if entries is None:
        return _decoded_one_by_one(column, count)
    kinds = pa.Array.from_buffers(pa.uint8(), entries.total, [None, pa.py_buffer(entries.kinds)])
    members: list[pa.Array] = []
    for member in HEADER_VALUE:
        if member.name == "type":
            members.append(pa.array(HEADER_KINDS, pa.string()).take(kinds))
        elif member.name == "json":
            members.append(pa.nulls(entries.total, pa.string()))
        else:
            members.append(_member(member, entries, kinds))
    values = pa.StructArray.from_arrays(members, fields=list(HEADER_VALUE))
    names = pa.StringArray.from_buffers(
        entries.total, pa.py_buffer(entries.name_offsets), pa.py_buffer(entries.names)
    )
    kind = ARROW_TYPES["headers"]
    pairs = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    valid = pa.py_buffer(column.validity) if column.nulls else None
    buffers = [valid, pa.py_buffer(entries.ends)]
    return pa.Array.from_buffers(kind, count, buffers, column.nulls, children=[pairs]), set()


def _member(member: pa.Field, entries: Any, kinds: pa.Array) -> pa.Array:
    """Return the values of one type; null for entries of the others."""
    there = pc.equal(kinds, HEADER_KINDS.index(member.name))
    none = pa.scalar(None, member.type)
    total = entries.total
    if member.name in ("string", "binary"):
        buffers = [None, pa.py_buffer(entries.text_offsets), pa.py_buffer(entries.texts)]
        made = pa.Array.from_buffers(pa.binary(), total, buffers)
        chosen = pc.if_else(there, made, pa.scalar(None, pa.binary()))
        return chosen.cast(member.type)
    numbers = entries.doubles if member.name == "double" else entries.longs
    kind = pa.int64() if member.name == "boolean" else member.type
    made = pa.Array.from_buffers(kind, total, [None, pa.py_buffer(numbers)])
    if member.name == "boolean":
        made = made.cast(pa.bool_())
    return pc.if_else(there, made, none)


def _decoded_one_by_one(column: Any, count: int) -> tuple[pa.MapArray, set[int]]:
    offsets, data = pa.py_buffer(column.offsets), pa.py_buffer(column.data)
    coded = _array(pa.binary(), count, column, offsets, data).dictionary_encode()
    tables: list[list[tuple[str, dict[str, Any]]] | None] = []
    late: list[int] = []
    for entry, raw in enumerate(coded.dictionary.to_pylist()):
        tables.append(_table(raw))
        if tables[-1] is None:
            late.append(entry)
    rows = pc.indices_nonzero(pc.is_in(coded.indices, pa.array(late, coded.indices.type)))
    return pa.array(tables, ARROW_TYPES["headers"]).take(coded.indices), set(rows.to_pylist())


def _table(raw: bytes) -> list[tuple[str, dict[str, Any]]] | None:
    listed = decode_properties(b"\x20\x00" + fields.long_string(raw), frozenset({"headers"}))
    # A later entry of the same name wins: Spark refuses maps with a key twice.
    found: dict[str, dict[str, Any]] = {}
    for key, typed in listed["headers"]:
        if typed["type"] == "timestamp":
            if typed["timestamp"] > _SECONDS_MAX:
                return None
            typed = {"type": "timestamp", "timestamp": typed["timestamp"] * MICROS_PER_SECOND}
        found[key] = typed
    return list(found.items())


def headers_as(maps: pa.MapArray, wanted: pa.DataType) -> pa.MapArray:
    """Return headers as they are, or with each value as text.

    Numbers are decimal, booleans true or false, bytes Base64, times seconds since 1970, tables and
    arrays JSON (as within such JSON); a value of type void is null.
    """
    if wanted == maps.type:
        return maps
    values = maps.items
    longs = values.field("timestamp").cast(pa.int64())
    seconds = pc.divide(longs, pa.scalar(MICROS_PER_SECOND, pa.int64()))
    raw = values.field("binary").dictionary_encode()
    coded = [base64.b64encode(each).decode("ascii") for each in raw.dictionary.to_pylist()]
    texts = pc.coalesce(
        values.field("string"),
        values.field("json"),
        values.field("long").cast(pa.string()),
        values.field("double").cast(pa.string()),
        values.field("boolean").cast(pa.string()),
        pa.array(coded, pa.string()).take(raw.indices),
        seconds.cast(pa.string()),
    )
    pairs = pa.StructArray.from_arrays(
        [maps.keys, texts], fields=[HEADERS_TEXT.key_field, HEADERS_TEXT.item_field]
    )
    return pa.Array.from_buffers(
        HEADERS_TEXT,
        len(maps),
        maps.buffers()[:2],
        maps.null_count,
        maps.offset,
        children=[pairs],
    )
