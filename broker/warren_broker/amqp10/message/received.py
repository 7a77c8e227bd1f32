"""An AMQP 1.0 message as it arrives: what is stored of it, and what routing needs.

It is stored in AMQP 0.9.1 form, converted as RabbitMQ converts it (docs/compatibility.md). What the
0.9.1 properties cannot express is kept beside them, in a header that only `sent` reads: a message
leaves to an AMQP 1.0 client as it came.
"""

from __future__ import annotations

from typing import NamedTuple

from warren_broker.block.layout import FORM_AMQP091, PRIORITY_MAX, TTL_NONE, Buffer
from warren_broker.kernel import HEADERS, read_sections, sections_to_keep, with_sections
from warren_broker.kernel.section_types import MalformedSections

__all__ = ["MalformedSections", "ReceivedMessage", "read_message"]


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


def read_message(data: memoryview) -> ReceivedMessage:
    """Read a whole message: the payload of its transfers.

    data   a contiguous view of bytes, on which the body is a view
    fails  MalformedSections: the message; its condition is the error of the link
    """
    read = read_sections(data)
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
