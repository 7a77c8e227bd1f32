"""Methods from bytes, as bytes, in frames."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, get_type_hints

from warren_broker.amqp091.wire import fields, methods
from warren_broker.amqp091.wire.methods import Method
from warren_broker.errors import NotImplementedHere, SyntaxRefused

FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
FRAME_OVERHEAD_BYTES = 8
"""Type, channel, size in front of a frame's payload, the end octet behind."""
FRAME_BYTES_MIN = 4096
"""No limit may be negotiated below."""
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
CLASS_BASIC = 60

_HEADER = struct.Struct(">BHI")
_CONTENT = struct.Struct(">HHQ")

_READ: dict[str, Callable[[fields.Reader], Any]] = {
    "octet": lambda reader: reader.unsigned(1),
    "short": lambda reader: reader.unsigned(2),
    "long": lambda reader: reader.unsigned(4),
    "longlong": lambda reader: reader.unsigned(8),
    "shortstr": fields.Reader.short_string,
    "longstr": fields.Reader.long_string,
    "table": fields.Reader.table,
}
_WRITE: dict[str, Callable[[Any], bytes]] = {
    "octet": lambda value: value.to_bytes(1, "big"),
    "short": lambda value: value.to_bytes(2, "big"),
    "long": lambda value: value.to_bytes(4, "big"),
    "longlong": lambda value: value.to_bytes(8, "big"),
    "shortstr": fields.short_string,
    "longstr": fields.long_string,
    "table": fields.table,
}


def _wire_types(method: type[Method]) -> tuple[tuple[str, str], ...]:
    hints = get_type_hints(method, include_extras=True)
    return tuple((name, hints[name].__metadata__[0]) for name in method.__struct_fields__)


METHODS: dict[int, type[Method]] = {
    value.code: value
    for value in vars(methods).values()
    if isinstance(value, type) and issubclass(value, Method) and value is not Method
}
"""All methods by code."""
_LAYOUT: dict[int, tuple[tuple[str, str], ...]] = {
    code: _wire_types(method) for code, method in METHODS.items()
}


def method_name(code: int) -> str:
    """`queue.declare` for its code; "" for none, or one that is not known."""
    method = METHODS.get(code)
    return "" if method is None else method.name


def decode_method(payload: bytes | memoryview) -> Method:
    """The method in a method frame's payload.

    fails  SyntaxRefused: its fields cannot be read, or bytes are left over;
           NotImplementedHere: there is no such method
    """
    reader = fields.Reader(payload)
    code = reader.unsigned(4)
    method = METHODS.get(code)
    if method is None:
        raise NotImplementedHere(f"unknown method {code >> 16}.{code & 0xFFFF}")
    values = []
    bit = 8
    octet = 0
    for _, kind in _LAYOUT[code]:
        if kind != "bit":
            bit = 8
            values.append(_READ[kind](reader))
            continue
        if bit == 8:
            octet, bit = reader.unsigned(1), 0
        values.append(bool(octet >> bit & 1))
        bit += 1
    if reader.position != reader.end:
        raise SyntaxRefused(
            f"{method.name}: {reader.end - reader.position} bytes after its last field"
        )
    return method(*values)


def encode_method(method: Method) -> bytes:
    """A method frame's payload."""
    parts = [method.code.to_bytes(4, "big")]
    bit = 8
    for name, kind in _LAYOUT[method.code]:
        value = getattr(method, name)
        if kind != "bit":
            bit = 8
            parts.append(_WRITE[kind](value))
            continue
        if bit == 8:
            parts.append(b"\0")
            bit = 0
        if value:
            parts[-1] = bytes((parts[-1][0] | 1 << bit,))
        bit += 1
    return b"".join(parts)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """A frame around a payload."""
    return b"".join((_HEADER.pack(kind, channel, len(payload)), payload, b"\xce"))


def method_frame(channel: int, method: Method) -> bytes:
    """A method in its frame."""
    return frame(FRAME_METHOD, channel, encode_method(method))


def content_frames(
    channel: int, properties: bytes | memoryview, body: bytes | memoryview, frame_max: int
) -> list[bytes]:
    """A content header and its body frames.

    properties  flags and list, as in a content header
    frame_max   bytes of the largest frame; 0: no limit
    """
    frames = [
        frame(FRAME_HEADER, channel, _CONTENT.pack(CLASS_BASIC, 0, len(body)) + bytes(properties))
    ]
    step = (frame_max - FRAME_OVERHEAD_BYTES) if frame_max else max(1, len(body))
    frames.extend(
        frame(FRAME_BODY, channel, bytes(body[start : start + step]))
        for start in range(0, len(body), step)
    )
    return frames
