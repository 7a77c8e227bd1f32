"""Conversion between AMQP 0.9.1 properties and Spark columns: text, typed header values.

The bytes are read and written by the broker's own codec, so that every message that a node accepts
can be read here, with one limit on nesting (`fields.DEPTH_MAX`). This module converts between that
codec's values and the columns.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from decimal import Decimal, DecimalException
from typing import Any, Final

from pyspark_warren.rows.columns import HEADER_FIELDS
from warren_wire.amqp091 import fields, properties
from warren_wire.amqp091.fields import Field
from warren_wire.kernel.properties import SECTIONS

NAMES: Final = properties.NAMES
_MEMBERS: Final = tuple(HEADER_FIELDS)[1:]
"""Those that hold a value."""
_KINDS: Final[dict[str, str]] = {
    **dict.fromkeys("bBsuIilL", "long"),
    "f": "double",
    "d": "double",
    "t": "boolean",
    "S": "string",
    "x": "binary",
    "T": "timestamp",
    "V": "void",
    "D": "decimal",
    "F": "table",
    "A": "array",
}
"""The `type` of a header value by the type octet of a field table."""


def decode_properties(data: bytes, wanted: frozenset[str]) -> dict[str, Any]:
    """Decode the wanted properties that are present; headers as (name, typed value) in order.

    A typed value has only the HEADER_FIELDS that apply. Bytes of a text that are not UTF-8 become
    U+FFFD.
    raises  SyntaxRefused, as the broker's codec
    """
    found = properties.select(data, wanted)
    for name, value in found.items():
        if name == "headers":
            found[name] = [(_text(key), _typed(field)) for key, field in value if key != SECTIONS]
        elif isinstance(value, str):
            found[name] = _text(value)
    return found


def _text(value: str) -> str:
    if value.isascii():
        return value
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _typed(field: Field) -> dict[str, object]:
    kind = "binary" if isinstance(field.value, bytes) else _KINDS[field.code]
    if kind == "void":
        return {"type": "void"}
    if kind in ("table", "array"):
        return {"type": kind, "json": json.dumps(_jsonable(field.value), sort_keys=True)}
    if kind == "decimal":
        return {"type": kind, "string": format(field.value, "f")}
    return {"type": kind, kind: field.value}


def _jsonable(value: object) -> object:
    if isinstance(value, dict):
        return {_text(name): _jsonable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_jsonable(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return format(value, "f") if isinstance(value, Decimal) else value


# ------------------------------------------------------------------ values to bytes


def encode_headers(entries: Mapping[str, object] | list[tuple[str, object]] | None) -> bytes:
    """Encode a field table, with its length; of entries with one name the last is used.

    entries  name to str, int, float, Decimal, bool, bytes, None, or a typed value (HEADER_FIELDS)
    raises   ValueError: a name above 255 bytes, a value of another type, a number above 64 bits,
             tables and arrays nested deeper than the broker accepts
    """
    return fields.table({_name(name): _field(value) for name, value in dict(entries or ()).items()})


def _name(text: str) -> str:
    size = len(text.encode())
    if size > fields.SHORT_STRING_BYTES_MAX:
        raise ValueError(
            f"{text[:40]!r}… has {size} bytes; a header's name holds "
            f"{fields.SHORT_STRING_BYTES_MAX}"
        )
    return text


def _field(value: object) -> Field:
    if isinstance(value, Mapping):
        return _from_typed(value)
    if value is None:
        return Field("V", None)
    if isinstance(value, bool):
        return Field("t", value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"header value {value} does not fit into 64 bits")
        return Field("l", value)
    if isinstance(value, float):
        return Field("d", value)
    if isinstance(value, str):
        return Field("S", value)
    if isinstance(value, Decimal):
        text = format(value, "f")  # Spark pads it to the scale of its type
        return _decimal(text.rstrip("0").rstrip(".") if "." in text else text)
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ValueError(
            f"a value of type {type(value).__name__}; strings, numbers, booleans and bytes are "
            "taken, and the typed values of a source: cast it"
        )
    return Field("x", bytes(value))


def _from_typed(value: Mapping[str, Any]) -> Field:
    kind = value.get("type")
    if kind is None:
        present = [each for each in _MEMBERS if value.get(each) is not None]
        kind = present[0] if present else "void"
    if kind == "void":
        return Field("V", None)
    if kind in ("table", "array", "json"):
        return _from_json(value["json"])
    if kind == "decimal":
        return _decimal(str(value["string"]))
    if kind == "timestamp":
        return Field("T", _seconds(value["timestamp"]))
    if kind not in HEADER_FIELDS:
        raise ValueError(f"header type {kind!r} is none of {', '.join(_MEMBERS)}")
    return _field(value[kind])


def _seconds(value: Any) -> int:
    seconds = math.floor(value.timestamp()) if hasattr(value, "timestamp") else int(value)
    if not 0 <= seconds < 2**64:
        raise ValueError(f"timestamp {seconds} is not between 0 and 2^64 seconds")
    return seconds


def _decimal(text: str) -> Field:
    try:
        value = Decimal(text)
    except DecimalException:
        raise ValueError(f"{text[:40]!r} is no decimal number") from None
    exponent = value.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) else 256
    number = int(value.scaleb(max(0, scale))) if scale <= 255 else 2**31
    if not -(2**31) <= number < 2**31:
        raise ValueError(
            f"decimal {text[:40]!r} does not fit: 32 bits of digits, 255 of them "
            "after the point; send it as a string"
        )
    return Field("D", value)


def _from_json(text: str) -> Field:
    try:
        return _nested(json.loads(text), 1)
    except RecursionError:
        raise ValueError(f"tables are nested deeper than {fields.DEPTH_MAX}") from None


def _nested(value: object, depth: int) -> Field:
    if not isinstance(value, dict | list):
        return _field(value)
    if depth > fields.DEPTH_MAX:
        raise ValueError(f"tables are nested deeper than {fields.DEPTH_MAX}")
    if isinstance(value, dict):
        return Field("F", {_name(name): _nested(inner, depth + 1) for name, inner in value.items()})
    return Field("A", [_nested(inner, depth + 1) for inner in value])
