"""AMQP 0.9.1 bytes for the kernel's tests, packed by hand."""

from __future__ import annotations

import functools
import struct

PLAIN = b"\x10\x00\x02"
"""Properties: delivery_mode 2."""


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Any frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def short(text: bytes) -> bytes:
    """A short string."""
    return bytes((len(text),)) + text


def method(channel: int, class_id: int, method_id: int, args: bytes = b"") -> bytes:
    """A method frame."""
    return frame(1, channel, struct.pack(">HH", class_id, method_id) + args)


def publish_method(channel: int, exchange: bytes, key: bytes, flags: int = 0) -> bytes:
    """The method frame of basic.publish; flags 1: mandatory, 2: immediate."""
    return method(channel, 60, 40, b"\0\0" + short(exchange) + short(key) + bytes((flags,)))


def header(channel: int, size: int, properties: bytes = PLAIN) -> bytes:
    """A content header frame."""
    return frame(2, channel, struct.pack(">HHQ", 60, 0, size) + properties)


def publish(
    channel: int,
    exchange: bytes,
    key: bytes,
    body: bytes,
    properties: bytes = PLAIN,
    flags: int = 0,
    piece: int = 0,
) -> bytes:
    """All frames of a message; its body in pieces of that many bytes, 0: in one."""
    frames = [publish_method(channel, exchange, key, flags), header(channel, len(body), properties)]
    step = piece or max(1, len(body))
    frames += [frame(3, channel, body[at : at + step]) for at in range(0, len(body), step)]
    return b"".join(frames)


def ack(channel: int, tag: int, multiple: bool = False) -> bytes:
    """basic.ack."""
    return method(channel, 60, 80, struct.pack(">QB", tag, multiple))


def nack(channel: int, tag: int, multiple: bool = False, requeue: bool = True) -> bytes:
    """basic.nack."""
    return method(channel, 60, 120, struct.pack(">QB", tag, multiple | requeue << 1))


def reject(channel: int, tag: int, requeue: bool = True) -> bytes:
    """basic.reject."""
    return method(channel, 60, 90, struct.pack(">QB", tag, requeue))


def table(*fields: tuple[bytes, bytes]) -> bytes:
    """A field table from names and encoded values (type octet first)."""
    inside = b"".join(short(name) + value for name, value in fields)
    return struct.pack(">I", len(inside)) + inside


def properties(
    headers: bytes | None = None,
    priority: int | None = None,
    expiration: bytes | None = None,
    reply_to: bytes | None = None,
    user_id: bytes | None = None,
    timestamp: int | None = None,
    message_id: bytes | None = None,
) -> bytes:
    """Property flags and list."""
    flags = 0
    parts = []
    for bit, value, coded in (
        (0x2000, headers, headers),
        (0x0800, priority, None if priority is None else bytes((priority,))),
        (0x0200, reply_to, None if reply_to is None else short(reply_to)),
        (0x0100, expiration, None if expiration is None else short(expiration)),
        (0x0080, message_id, None if message_id is None else short(message_id)),
        (0x0040, timestamp, None if timestamp is None else struct.pack(">Q", timestamp)),
        (0x0010, user_id, None if user_id is None else short(user_id)),
    ):
        if value is not None and coded is not None:
            flags |= bit
            parts.append(coded)
    return struct.pack(">H", flags) + b"".join(parts)


@functools.cache
def nested(depth: int) -> bytes:
    """A field table with one table in another, `depth` of them."""
    inside = table((b"t", b"V"))
    for _ in range(depth):
        inside = table((b"t", b"F" + inside))
    return inside


def death(queue: bytes, reason: bytes = b"expired", more: bytes = b"") -> bytes:
    """An entry of x-death, with its type octet."""
    return b"F" + table(
        (b"queue", b"S" + struct.pack(">I", len(queue)) + queue),
        (b"reason", b"S" + struct.pack(">I", len(reason)) + reason),
        (b"more", b"x" + struct.pack(">I", len(more)) + more),
    )


def deaths(*entries: bytes) -> bytes:
    """An array of them, with its type octet."""
    inside = b"".join(entries)
    return b"A" + struct.pack(">I", len(inside)) + inside
