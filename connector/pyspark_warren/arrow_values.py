"""Arrow arrays as the kernel takes them: their buffers, without a copy.

What Arrow can convert by itself is converted here, so that the kernel has one form of each kind of
value.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_warren.properties import HEADER_FIELDS
from warren_wire import kernel
from warren_wire.kernel.property_columns import HEADER_KINDS

_VOID: Final = HEADER_KINDS.index("void")
_KINDS: Final = pa.array(HEADER_KINDS, pa.string())
_MEMBER_TYPES: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(("type", "string", "json"), pa.string()),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
"""The types of a typed header value's members; `timestamp` has a time zone of the session."""


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


def binary_array(count: int, made: tuple[Any, Any]) -> pa.BinaryArray:
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
    if tuple(field.name for field in items.type) != HEADER_FIELDS:
        return None
    for field in items.type:
        if field.name == "timestamp":
            if not pa.types.is_timestamp(field.type) or field.type.tz is None:
                return None
        elif field.type != _MEMBER_TYPES[field.name]:
            return None
    there = pc.is_valid(items)
    kinds = pc.index_in(items.field("type"), value_set=_KINDS)
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
