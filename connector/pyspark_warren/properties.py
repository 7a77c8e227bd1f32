"""The codec of AMQP 0.9.1 property lists with their header tables.

A property list is a 16 bit word of flags, highest bit first in the order of `NAMES`, then the
values whose flag is set (AMQP 0.9.1, 4.2.6.1). A field table is a u32 length and (short string,
type octet, value) triples; types are those of RabbitMQ's errata.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any, Final

NAMES: Final = (
    "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id",
    "reply_to", "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)
FLAGS: Final[dict[str, int]] = {name: 1 << (15 - i) for i, name in enumerate(NAMES)}
_OCTETS: Final = frozenset({"delivery_mode", "priority"})
HEADER_FIELDS: Final = ("type", "string", "long", "double", "boolean", "binary", "timestamp",
                        "json")
"""The members of a typed header value; `type` says which of the others holds the value."""
_NESTING_MAX: Final = 32
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_FIXED: Final[dict[int, tuple[struct.Struct, str]]] = {
    ord(code): (struct.Struct(layout), kind)
    for code, layout, kind in (
        ("b", ">b", "long"), ("B", ">B", "long"), ("s", ">h", "long"), ("u", ">H", "long"),
        ("I", ">i", "long"), ("i", ">I", "long"), ("l", ">q", "long"), ("L", ">q", "long"),
        ("f", ">f", "double"), ("d", ">d", "double"),
    )
}


class MalformedProperties(ValueError):
    """Bytes that are not a property list."""


def decode_properties(data: bytes, wanted: frozenset[str]) -> dict[str, Any]:
    """The wanted properties that are present; headers as `decode_headers` gives them.

    raises  MalformedProperties
    """
    try:
        (flags,) = _U16.unpack_from(data, 0)
        at = 2
        found: dict[str, Any] = {}
        left = len(wanted)
        for i, name in enumerate(NAMES):
            if not flags & (0x8000 >> i):
                continue
            if name == "headers":
                end = at + 4 + _U32.unpack_from(data, at)[0]
                value: Any = decode_headers(data[at + 4 : end]) if name in wanted else None
                at = end
            elif name in _OCTETS:
                value = data[at]
                at += 1
            elif name == "timestamp":
                (value,) = _U64.unpack_from(data, at)
                at += 8
            else:
                end = at + 1 + data[at]
                value = data[at + 1 : end].decode("utf-8", "replace") if name in wanted else None
                at = end
            if at > len(data):
                raise MalformedProperties(f"property {name} ends at {at} of {len(data)} bytes")
            if name in wanted:
                found[name] = value
                left -= 1
                if not left:
                    break
    except (struct.error, IndexError) as wrong:
        raise MalformedProperties(f"{wrong} in {data[:64]!r}") from None
    return found


def decode_headers(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """A table's entries with typed values (HEADER_FIELDS; absent members are left out)."""
    entries: list[tuple[str, dict[str, Any]]] = []
    at = 0
    while at < len(data):
        end = at + 1 + data[at]
        name = data[at + 1 : end].decode("utf-8", "replace")
        value, at = _decode_value(data, end, 0)
        entries.append((name, _typed(value)))
    return entries


def _typed(value: tuple[str, Any]) -> dict[str, Any]:
    kind, plain = value
    if kind == "void":
        return {"type": "void"}
    if kind in ("table", "array"):
        return {"type": kind, "json": json.dumps(_jsonable(value), sort_keys=True)}
    if kind == "decimal":
        return {"type": kind, "string": plain}
    return {"type": kind, kind: plain}


def _jsonable(value: tuple[str, Any]) -> Any:
    kind, plain = value
    if kind == "table":
        return {name: _jsonable(inner) for name, inner in plain}
    if kind == "array":
        return [_jsonable(inner) for inner in plain]
    if kind == "binary":
        return base64.b64encode(plain).decode("ascii")
    return plain


def _decode_value(data: bytes, at: int, depth: int) -> tuple[tuple[str, Any], int]:
    code = data[at]
    at += 1
    if code == 0x53 or code == 0x78:  # S: long string, x: byte array
        end = at + 4 + _U32.unpack_from(data, at)[0]
        if end > len(data):
            raise MalformedProperties(f"a header value ends at {end} of {len(data)} bytes")
        raw = data[at + 4 : end]
        if code == 0x78:
            return ("binary", raw), end
        try:
            return ("string", raw.decode("utf-8")), end
        except UnicodeDecodeError:
            return ("binary", raw), end
    fixed = _FIXED.get(code)
    if fixed is not None:
        return (fixed[1], fixed[0].unpack_from(data, at)[0]), at + fixed[0].size
    if code == 0x74:  # t
        return ("boolean", data[at] != 0), at + 1
    if code == 0x54:  # T: seconds
        return ("timestamp", _U64.unpack_from(data, at)[0]), at + 8
    if code == 0x56:  # V
        return ("void", None), at
    if code == 0x44:  # D: scale, then a signed number
        scale, number = struct.unpack_from(">Bi", data, at)
        digits = str(abs(number)).rjust(scale + 1, "0")
        text = digits if not scale else f"{digits[:-scale]}.{digits[-scale:]}"
        return ("decimal", ("-" if number < 0 else "") + text), at + 5
    if code in (0x46, 0x41):  # F: table, A: array
        return _decode_nested(data, at, code == 0x46, depth)
    raise MalformedProperties(f"header value of unknown type {chr(code)!r}")


def _decode_nested(
    data: bytes, at: int, table: bool, depth: int
) -> tuple[tuple[str, Any], int]:
    if depth >= _NESTING_MAX:
        raise MalformedProperties(f"headers nested deeper than {_NESTING_MAX}")
    end = at + 4 + _U32.unpack_from(data, at)[0]
    at += 4
    if end > len(data):
        raise MalformedProperties(f"a header value ends at {end} of {len(data)} bytes")
    inner: list[Any] = []
    while at < end:
        name = ""
        if table:
            after = at + 1 + data[at]
            name, at = data[at + 1 : after].decode("utf-8", "replace"), after
        value, at = _decode_value(data, at, depth + 1)
        inner.append((name, value) if table else value)
    return ("table" if table else "array", inner), end


# ------------------------------------------------------------------ values to bytes


def encode_headers(entries: Mapping[str, Any] | list[tuple[str, Any]] | None) -> bytes:
    """A field table, with its length.

    entries  name to str, int, float, bool, bytes, None, or a typed value (HEADER_FIELDS)
    raises   ValueError: a name above 255 bytes, a value of another type, a number above 64 bits
    """
    pairs = entries.items() if isinstance(entries, Mapping) else entries or ()
    body = b"".join(_short(name) + _encode_value(value) for name, value in pairs)
    return _U32.pack(len(body)) + body


def _short(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 255:
        raise ValueError(f"{text[:40]!r}… has {len(raw)} bytes; short strings hold 255")
    return bytes((len(raw),)) + raw


def _encode_value(value: Any) -> bytes:
    if isinstance(value, Mapping):
        return _encode_typed(value)
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"header value {value} does not fit into 64 bits")
        return b"l" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    raw = value.encode() if isinstance(value, str) else bytes(value)
    return (b"S" if isinstance(value, str) else b"x") + _U32.pack(len(raw)) + raw


def _encode_typed(value: Mapping[str, Any]) -> bytes:
    kind = value.get("type")
    if kind is None:
        present = [each for each in HEADER_FIELDS[1:] if value.get(each) is not None]
        kind = present[0] if present else "void"
    if kind == "void":
        return b"V"
    if kind in ("table", "array", "json"):
        return _encode_json(json.loads(value["json"]))
    if kind == "decimal":
        return _encode_decimal(str(value["string"]))
    if kind == "timestamp":
        return b"T" + _U64.pack(_seconds(value["timestamp"]))
    if kind not in HEADER_FIELDS:
        raise ValueError(f"header type {kind!r} is none of {', '.join(HEADER_FIELDS[1:])}")
    return _encode_value(value[kind])


def _seconds(value: Any) -> int:
    return int(value.timestamp()) if hasattr(value, "timestamp") else int(value)


def _encode_decimal(text: str) -> bytes:
    whole, _, fraction = text.partition(".")
    return b"D" + struct.pack(">Bi", len(fraction), int(whole + fraction))


def _encode_json(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"F" + encode_headers_json(value)
    if isinstance(value, list):
        body = b"".join(_encode_json(inner) for inner in value)
        return b"A" + _U32.pack(len(body)) + body
    return _encode_value(value)


def encode_headers_json(value: dict[str, Any]) -> bytes:
    """A nested table from plain JSON values, with its length."""
    body = b"".join(_short(name) + _encode_json(inner) for name, inner in value.items())
    return _U32.pack(len(body)) + body
