"""AMQP 1.0 sections and constructors, and what the kernel reads from a message's sections."""

from __future__ import annotations

import re
from typing import NamedTuple

HEADER = 0x70

SECTION_NAMES = (
    "header",
    "delivery-annotations",
    "message-annotations",
    "properties",
    "application-properties",
    "data",
    "amqp-sequence",
    "amqp-value",
    "footer",
)
"""From HEADER on."""
SECTION_SYMBOLS = {
    b"amqp:%b:%b" % (name.encode(), kind): HEADER + at
    for at, (name, kind) in enumerate(
        zip(
            SECTION_NAMES,
            (b"list", b"map", b"map", b"list", b"map", b"binary", b"list", b"*", b"map"),
            strict=True,
        )
    )
}
"""The sections' symbolic descriptors."""
PROPERTY_NAMES = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)
"""The fields of the properties section, in order."""
HEADER_NAMES = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
"""The fields of the header section, in order."""

ENCODED_TYPE = b"amqp-1.0"
"""The 0.9.1 type of a message with a body of encoded AMQP 1.0 sections instead of data."""
UUID_BYTES = 45
"""Length of a UUID as text, with `urn:uuid:`."""
QUEUES = b"/queues/"
"""What precedes a queue's name in an AMQP 1.0 address."""

UNKNOWN_WIDTH, SIZE1, SIZE4 = 0xFF, 0x81, 0x84


def _widths() -> bytes:
    table = bytearray([UNKNOWN_WIDTH] * 256)
    for codes, width in (
        (b"\x40\x41\x42\x43\x44\x45", 0),
        (b"\x50\x51\x52\x53\x54\x55\x56", 1),
        (b"\x60\x61", 2),
        (b"\x70\x71\x72\x73\x74", 4),
        (b"\x80\x81\x82\x83\x84", 8),
        (b"\x94\x98", 16),
        (b"\xa0\xa1\xa3\xc0\xc1\xe0", SIZE1),
        (b"\xb0\xb1\xb3\xd0\xd1\xf0", SIZE4),
    ):
        for code in codes:
            table[code] = width
    return bytes(table)


WIDTHS = _widths()
"""Constructor to bytes of its value; SIZE1, SIZE4: a size of 1 or 4 bytes precedes the value."""


_UUID = re.compile(rb"urn:uuid:" + rb"-".join(rb"([0-9a-fA-F]{%d})" % n for n in (8, 4, 4, 4, 12)))


def uuid_of(text: bytes) -> bytes | None:
    """Return the 16 bytes of `urn:uuid:` and a UUID; None for anything else."""
    found = _UUID.fullmatch(text)
    return None if found is None else bytes.fromhex(b"".join(found.groups()).decode("ascii"))


class MalformedSections(ValueError):
    """An AMQP 1.0 message that cannot be read: which section, at which byte, what is wrong.

    condition  the AMQP error of the link
    """

    def __init__(self, text: str, condition: str = "amqp:decode-error") -> None:
        super().__init__(text)
        self.condition = condition


class SectionsRead(NamedTuple):
    """What the kernel reads from a message.

    properties  AMQP 0.9.1 flags and list
    row         of a table: (flags << 8 | priority) << 32 | ttl_ms
    pieces      (start, end) of the body's parts in the message
    durable     None: the header does not say
    sections    descriptor -> (first byte, first after the count, end, count): annotations,
                properties, application properties, and the footer of a body of data
    to, user_id fields of the properties section; None: not set
    """

    properties: bytes
    row: int
    pieces: tuple[tuple[int, int], ...]
    durable: bool | None
    sections: dict[int, tuple[int, int, int, int]]
    to: bytes | None
    user_id: bytes | None


class KeptSections(NamedTuple):
    """What is written instead of what the properties would give; None: what they give.

    annotations  (count, content) of the map
    properties, application   the whole section, nothing for none
    """

    annotations: tuple[int, bytes] | None = None
    properties: bytes | None = None
    application: bytes | None = None
