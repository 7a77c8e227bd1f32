"""An AMQP 1.0 message as it arrives: what is stored of it, and what routing needs.

It is stored in AMQP 0.9.1 form, converted as RabbitMQ converts it (docs/compatibility.md). What the
0.9.1 properties cannot express is kept beside them, in a header that only `sent` reads: a message
leaves to an AMQP 1.0 client as it came.
"""

from __future__ import annotations

from typing import NamedTuple

from warren_broker.block.layout import FORM_AMQP091, PRIORITY_MAX, TTL_NONE, Buffer
from warren_broker.kernel import HEADERS, read_sections, sections_to_keep, with_sections
from warren_broker.kernel.section_types import ENCODED_TYPE, MalformedSections, SectionsRead

__all__ = ["MalformedSections", "MessageReader", "ReceivedMessage", "read_message"]

REMEMBERED_BYTES_MAX = 1 << 16
"""A link remembers no more of a message than this, so that it costs little while it is idle."""
_DATA_DESCRIPTOR = b"\x00\x53\x75"


class ReceivedMessage(NamedTuple):
    """A message as it is stored, in the order of a MessageTable's columns.

    form        of the block that may hold it
    properties  AMQP 0.9.1 flags and list
    body        a view of the received bytes, where it is one data section
    ttl_ms      None: it does not expire
    priority    None: not set
    flags       of a table's row (kernel.items)
    durable     False: the header does not say so
    to          address in the properties; None: not set
    user_id     None: not set
    """

    form: int
    properties: bytes
    body: Buffer
    ttl_ms: int | None
    priority: int | None
    flags: int
    durable: bool
    to: str | None
    user_id: bytes | None


class MessageReader:
    """Reads the messages of a link; what equals the last one's up to its body is not read again.

    A publisher's messages often have the same header, annotations and properties. Then one
    comparison finds the body, and all else is as it was: a section is read from its first byte on,
    so equal bytes mean equal sections.

    Invariant: `_head` is empty, or all that precedes the value of the only data section of a
    message that was accepted; `_read` is that of the one read last
    """

    def __init__(self) -> None:
        self._head: bytes | bytearray = b""
        self._read: bytes | bytearray = b""

    def body_like_last(self, data: bytes | bytearray) -> bytes | bytearray | None:
        """Return the body of a message that equals the remembered one before it; else None."""
        head = self._head
        at = len(head)
        if not at or len(data) < at + 2 or not data.startswith(head):
            return None
        if data[at] == 0xA0:
            start, size = at + 2, data[at + 1]
        elif data[at] == 0xB0:
            start, size = at + 5, int.from_bytes(data[at + 1 : at + 5], "big")
        else:
            return None
        return data[start:] if start + size == len(data) else None

    def read(self, data: bytes | bytearray) -> ReceivedMessage:
        """Read a message; raises MalformedSections."""
        self._head = self._read = b""
        read = read_sections(memoryview(data))
        start, end = read.pieces[0] if len(read.pieces) == 1 else (0, 0)
        short = start <= REMEMBERED_BYTES_MAX
        if short and end == len(data) and ENCODED_TYPE not in read.properties:
            # the section's descriptor in its usual form, then a size of one byte or of four
            if start >= 5 and data[start - 5 : start - 1] == _DATA_DESCRIPTOR + b"\xa0":
                self._read = data[: start - 2]
            elif start >= 8 and data[start - 8 : start - 4] == _DATA_DESCRIPTOR + b"\xb0":
                self._read = data[: start - 5]
        return _received(read, memoryview(data))

    def remember(self) -> None:
        """Have the message read last be what the next ones are compared with: it was accepted."""
        self._head = self._read

    @property
    def remembers(self) -> bool:
        """Whether the next message is compared with an earlier one."""
        return bool(self._head)


def read_message(data: memoryview) -> ReceivedMessage:
    """Read a whole message: the payload of its transfers.

    data   a contiguous view of bytes, on which the body is a view
    fails  MalformedSections: the message; its condition is the error of the link
    """
    return _received(read_sections(data), data)


def _received(read: SectionsRead, data: memoryview) -> ReceivedMessage:
    ttl_ms, octet = read.row & 0xFFFFFFFF, read.row >> 32 & 0xFF
    if len(read.pieces) == 1:
        ((start, end),) = read.pieces
        body: Buffer = data[start:end]
    else:
        body = b"".join([data[start:end] for start, end in read.pieces])
    properties, flags = read.properties, read.row >> 40
    if read.sections or len(read.pieces) > 1:
        kept = sections_to_keep(properties, data, read.sections, read.pieces)
        if kept:
            properties, flags = with_sections(properties, kept), flags | HEADERS
    return ReceivedMessage(
        FORM_AMQP091,
        properties,
        body,
        None if ttl_ms == TTL_NONE else ttl_ms,
        None if octet & ~PRIORITY_MAX else octet,
        flags,
        bool(read.durable),
        None if read.to is None else read.to.decode("utf-8", "surrogateescape"),
        read.user_id,
    )
