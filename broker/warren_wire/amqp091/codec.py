"""The encoder and decoder of methods, derived from their fields; frames."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeAlias, get_type_hints

from warren_wire.amqp091 import fields, methods
from warren_wire.amqp091.methods import Method
from warren_wire.errors import NotImplementedHere, SyntaxRefused

FRAME_METHOD, FRAME_HEADER, FRAME_BODY = 1, 2, 3
FRAME_END = 0xCE
FRAME_OVERHEAD_BYTES = 8
"""Type, channel and size before a frame's payload, and the end octet after it."""
FRAME_BYTES_MIN = 4096
"""The lowest frame_max that may be negotiated."""
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
CLASS_BASIC = 60

_HEADER = struct.Struct(">BHI")
_CONTENT = struct.Struct(">HHQ")

_READ: dict[str, Callable[[fields.FieldReader], Any]] = {
    "octet": fields.FieldReader.octet,
    "short": lambda reader: reader.unsigned(2),
    "long": lambda reader: reader.unsigned(4),
    "longlong": lambda reader: reader.unsigned(8),
    "shortstr": fields.FieldReader.short_string,
    "longstr": fields.FieldReader.long_string,
    "table": fields.FieldReader.table,
}
_Write: TypeAlias = Callable[[Any], bytes]
_WRITE: dict[str, _Write] = {
    "octet": lambda value: value.to_bytes(1, "big"),
    "short": struct.Struct(">H").pack,
    "long": struct.Struct(">I").pack,
    "longlong": struct.Struct(">Q").pack,
    "shortstr": fields.short_string,
    "longstr": fields.long_string,
    "table": fields.table,
}


METHODS: dict[int, type[Method]] = {
    value.code: value
    for value in vars(methods).values()
    if isinstance(value, type) and issubclass(value, Method) and value is not Method
}
"""All methods by code."""


def wire_types(method: type[Method]) -> tuple[tuple[str, str], ...]:
    """Return (field, wire type) of a method's fields, in wire order."""
    hints = get_type_hints(method, include_extras=True)
    return tuple((name, hints[name].__metadata__[0]) for name in method.__struct_fields__)


class _Layout(NamedTuple):
    """The layout of a method, derived from its fields.

    Consecutive bits share octets, eight in each, the first bit lowest. Steps in wire order:

    writes  attrgetter of the step's fields, then their value (a tuple for several bits) to bytes
    reads   whether the function yields the values of several bits, then the function
    """

    method: type[Method]
    prefix: bytes
    writes: tuple[tuple[attrgetter[Any], _Write], ...]
    reads: tuple[tuple[bool, Callable[[fields.FieldReader], Any]], ...]


def _bits(count: int) -> tuple[_Write, Callable[[fields.FieldReader], Any]]:
    """Return the writer and the reader of an octet that holds `count` bits."""
    values = [tuple(bool(octet >> bit & 1) for bit in range(count)) for octet in range(256)]
    if count == 1:
        return (b"\0", b"\1").__getitem__, lambda reader: bool(reader.octet() & 1)
    octets = {values[octet]: bytes((octet,)) for octet in range(1 << count)}
    return octets.__getitem__, lambda reader: values[reader.octet()]


def _octets(names: list[str]) -> list[list[str]]:
    return [names[start : start + 8] for start in range(0, len(names), 8)]


def _layout(method: type[Method]) -> _Layout:
    writes: list[tuple[attrgetter[Any], _Write]] = []
    reads: list[tuple[bool, Callable[[fields.FieldReader], Any]]] = []
    for kind, run in groupby(wire_types(method), itemgetter(1)):
        names = [name for name, _ in run]
        for group in _octets(names) if kind == "bit" else [[name] for name in names]:
            write, read = _bits(len(group)) if kind == "bit" else (_WRITE[kind], _READ[kind])
            writes.append((attrgetter(*group), write))
            reads.append((len(group) > 1, read))
    return _Layout(method, method.code.to_bytes(4, "big"), tuple(writes), tuple(reads))


class _Layouts(dict[int, _Layout]):
    """The layouts by code, each derived at its first use: most programs use a few."""

    def __missing__(self, code: int) -> _Layout:
        self[code] = made = _layout(METHODS[code])
        return made


_LAYOUTS = _Layouts()


def method_name(code: int) -> str:
    """Return a method's name by its code, as `queue.declare`; "" for an unknown code."""
    method = METHODS.get(code)
    return "" if method is None else method.name


def decode_method(payload: bytes | memoryview) -> Method:
    """Decode the method in a method frame's payload.

    fails  SyntaxRefused: its fields cannot be read, or bytes are left over;
           NotImplementedHere: there is no such method
    """
    reader = fields.FieldReader(payload)
    code = reader.unsigned(4)
    if code not in METHODS:
        raise NotImplementedHere(f"unknown method {code >> 16}.{code & 0xFFFF}")
    method, _, _, reads = _LAYOUTS[code]
    values: list[Any] = []
    for several, read in reads:
        if several:
            values += read(reader)
        else:
            values.append(read(reader))
    if reader.position != reader.end:
        raise SyntaxRefused(
            f"{method.name}: {reader.end - reader.position} bytes after its last field"
        )
    return method(*values)


def encode_method(method: Method) -> bytes:
    """Encode a method as a method frame's payload."""
    _, prefix, writes, _ = _LAYOUTS[method.code]
    return prefix + b"".join([write(get(method)) for get, write in writes])


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Return a frame with that payload."""
    return b"".join((_HEADER.pack(kind, channel, len(payload)), payload, b"\xce"))


def method_frame(channel: int, method: Method) -> bytes:
    """Encode a method in its frame."""
    return frame(FRAME_METHOD, channel, encode_method(method))


def content_frames(
    channel: int, properties: bytes | memoryview, body: bytes | memoryview, frame_max: int
) -> list[bytes]:
    """Encode a content header and its body frames.

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
