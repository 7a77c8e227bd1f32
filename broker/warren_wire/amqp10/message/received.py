"""An AMQP 1.0 message as it arrives: what is stored of it, and what routing needs.

It is stored in AMQP 0.9.1 form, converted as RabbitMQ converts it (compatibility.md). What the
0.9.1 properties cannot express is kept beside them, in a header that only `sent` reads: a message
leaves to an AMQP 1.0 client as it came.
"""

from __future__ import annotations

from typing import NamedTuple

from warren_wire.amqp091.properties import headers
from warren_wire.amqp10.message.message_ids import SECTION_OF_ID, UNLIKE_MAX, StoredIds
from warren_wire.block.layout import FORM_AMQP091, PRIORITY_MAX, TTL_NONE, Buffer
from warren_wire.kernel import CC, HEADERS, read_sections, sections_to_keep, with_sections
from warren_wire.kernel.section_types import ENCODED_TYPE, MalformedSections, SectionsRead
from warren_wire.sender_selected import has_keys

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
    so equal bytes mean equal sections. Where only the message-id differs, it is put into the
    properties of the last one.

    Invariant: `_head` is empty, or all that precedes the value of the only data section of a
    message that was accepted; `_read` is that of the one read last. While `_ids` makes properties,
    `_head` is empty: the last message's properties are not those of an earlier one
    """

    def __init__(self) -> None:
        self._head = self._read = b""
        self._ids: StoredIds | None = None
        self._read_ids: StoredIds | None = None
        self._unlike = 0  # messages in a row that differed from the one before in more than the id

    @property
    def head(self) -> bytes:
        """What precedes the constructor of the body in messages that equal the last one."""
        return self._head

    def body_like_last(self, data: bytes | bytearray) -> bytes | bytearray | None:
        """Return the body of a message that equals the remembered one before it; else None."""
        head = self._head
        return _body(data, len(head)) if head and data.startswith(head) else None

    def like_last_but_id(self, data: bytes | bytearray) -> tuple[bytes, bytes | bytearray] | None:
        """Return (properties, body) of a message that differs from the last in its id; else None.

        All other fields are those of the last one.
        """
        ids = self._ids
        raw = None if ids is None else ids.id_of(data)
        if ids is None or raw is None:
            return None
        body = _body(data, len(ids.head) + len(raw) + len(ids.tail))
        properties = None if body is None else ids.properties(raw)
        if body is None or properties is None:
            return None
        self._head = b""
        return properties, body

    def read(self, data: bytes | bytearray) -> ReceivedMessage:
        """Read a message; raises MalformedSections."""
        self._head = self._read = b""
        self._read_ids = None
        read = read_sections(memoryview(data))
        start, end = read.pieces[0] if len(read.pieces) == 1 else (0, 0)
        short = start <= REMEMBERED_BYTES_MAX
        if short and end == len(data) and ENCODED_TYPE not in read.properties:
            # the section's descriptor in its usual form, then a size of one byte or of four
            if start >= 5 and data[start - 5 : start - 1] == _DATA_DESCRIPTOR + b"\xa0":
                self._read = bytes(data[: start - 2])
            elif start >= 8 and data[start - 8 : start - 4] == _DATA_DESCRIPTOR + b"\xb0":
                self._read = bytes(data[: start - 5])
        message = _received(read, memoryview(data))
        if self._read and self._unlike <= UNLIKE_MAX:
            self._read_ids = self._learn(bytes(data), read, len(self._read), message.properties)
        return message

    def _learn(
        self, data: bytes, read: SectionsRead, body_at: int, properties: bytes
    ) -> StoredIds | None:
        """Compare a message with the last one, or note where it has its message-id."""
        there = read.sections.get(SECTION_OF_ID)
        if there is None or not there[3]:
            return None
        last = self._ids
        raw = None if last is None else last.id_of(data)
        if last is not None and raw is not None and len(last.head) + len(raw) < body_at:
            last.prove(raw, properties)
            self._unlike = 0
            return last
        self._unlike += 1
        return StoredIds(data, properties, (there[0], there[1], body_at))

    def remember(self) -> None:
        """Have the message read last be what the next ones are compared with: it was accepted."""
        self._head, self._ids = self._read, self._read_ids

    @property
    def remembers(self) -> bool:
        """Whether the next message is compared with an earlier one."""
        return bool(self._head) or self._ids is not None


def _body(data: bytes | bytearray, at: int) -> bytes | bytearray | None:
    """Return the value of the data section of which the constructor is at `at`, up to the end."""
    if len(data) < at + 2:
        return None
    if data[at] == 0xA0:
        start, size = at + 2, data[at + 1]
    elif data[at] == 0xB0:
        start, size = at + 5, int.from_bytes(data[at + 1 : at + 5], "big")
    else:
        return None
    return data[start:] if start + size == len(data) else None


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
    if flags & CC and not has_keys(headers(properties)):
        flags ^= CC  # an application property of that name: keys are given by the annotation x-cc
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
