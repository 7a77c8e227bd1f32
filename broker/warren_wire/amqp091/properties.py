"""The codec of a message's properties in its content header.

`u16 flags` (bit 15 content_type … bit 2 cluster_id; bit 0, continuation, is used by no client),
then the present ones in order.
"""

from __future__ import annotations

from typing import Any

import msgspec

from warren_wire.amqp091 import fields
from warren_wire.errors import SyntaxRefused

NONE = b"\x00\x00"
"""No properties."""


class Properties(msgspec.Struct, frozen=True):
    """The fourteen properties; None: absent.

    delivery_mode  1 transient, 2 persistent
    expiration     milliseconds as decimal digits
    timestamp      seconds since the epoch
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


NAMES: tuple[str, ...] = Properties.__struct_fields__
_ALL = frozenset(NAMES)
_SIZES = {"delivery_mode": 1, "priority": 1, "timestamp": 8}
"""Sizes in bytes of the properties of fixed size."""
_KNOWN_BITS = 0xFFFC


def flag(name: str) -> int:
    """Return the bit for the presence of a property."""
    return 1 << (15 - NAMES.index(name))


def decode(data: bytes | memoryview) -> Properties:
    """Decode properties as plain values; bytes that are not UTF-8 are kept (surrogateescape).

    RabbitMQ does not inspect the publisher's properties, and what was accepted once must stay
    readable.
    fails  SyntaxRefused: unknown flags, fields past the end, bytes left over
    """
    values = select(data, _ALL)
    if "headers" in values:
        values["headers"] = {name: field.value for name, field in values["headers"]}
    return Properties(**values)


def select(data: bytes | memoryview, wanted: frozenset[str]) -> dict[str, Any]:
    """Return the wanted properties that are present, in order; the whole list is checked.

    Written for bulk reading: one pass without an object per property. `headers` is a list of
    (name, Field), in the order sent, repeated names included; a table that is not wanted is only
    measured.
    fails  SyntaxRefused, as `decode`
    """
    data = bytes(data)
    found: dict[str, Any] = {}
    for name, _, start, end in _parts(data):
        if name not in wanted:
            continue
        if name == "headers":
            found[name] = list(fields.FieldReader(data, start - 4, end).fields())
        elif name in _SIZES:
            found[name] = int.from_bytes(data[start:end], "big")
        else:
            found[name] = data[start:end].decode("utf-8", "surrogateescape")
    return found


def spans(data: bytes | memoryview) -> dict[str, tuple[int, int]]:
    """Return the position of each present property: name to (start, end)."""
    return {name: (start, end) for name, start, _, end in _parts(bytes(data))}


def _parts(data: bytes) -> list[tuple[str, int, int, int]]:
    """Return (name, start, start after its length, end) of each present property.

    fails  SyntaxRefused, as `decode`
    """
    size_all = len(data)
    flags = fields.FieldReader(data).unsigned(2) if size_all < 2 else data[0] << 8 | data[1]
    if flags & ~_KNOWN_BITS:
        raise SyntaxRefused(f"property flags {flags:#06x} have bits that mean nothing")
    found: list[tuple[str, int, int, int]] = []
    at = 2
    while flags:
        bit = flags.bit_length()
        flags ^= 1 << (bit - 1)
        name = NAMES[16 - bit]
        first = start = at
        size = _SIZES.get(name)
        if size is None:
            start += 4 if name == "headers" else 1
            size = int.from_bytes(data[at:start], "big") if start <= size_all else 0
        at = start + size
        if at > size_all:
            raise SyntaxRefused(f"property {name} ends at byte {at} of {size_all}")
        found.append((name, first, start, at))
    if at != size_all:
        raise SyntaxRefused(f"{size_all - at} bytes after the last property")
    return found


def headers(data: bytes | memoryview) -> dict[str, fields.Field]:
    """Return the headers with their types, so that they can be written back unchanged."""
    span = spans(data).get("headers")
    return {} if span is None else dict(fields.FieldReader(data, *span).fields())


def encode(properties: Properties) -> bytes:
    """Encode properties: flags, then the list."""
    flags, parts = 0, []
    for at, name in enumerate(NAMES):
        value = getattr(properties, name)
        if value is not None:
            flags |= 1 << (15 - at)
            parts.append(_write(name, value))
    return flags.to_bytes(2, "big") + b"".join(parts)


def replace(data: bytes | memoryview, **changes: Any) -> bytes:
    """Return the properties with some set (None: removed); the others stay byte for byte."""
    found = spans(data)
    flags, parts = 0, []
    for at, name in enumerate(NAMES):
        if name in changes:
            if changes[name] is None:
                continue
            parts.append(_write(name, changes[name]))
        elif name in found:
            start, end = found[name]
            parts.append(bytes(data[start:end]))
        else:
            continue
        flags |= 1 << (15 - at)
    return flags.to_bytes(2, "big") + b"".join(parts)


def _write(name: str, value: Any) -> bytes:
    if name == "headers":
        return fields.table(value)
    if name in _SIZES:
        return int(value).to_bytes(_SIZES[name], "big")
    return fields.short_string(value)
