"""Messages received over AMQP 1.0, as rows of the spool: the columns of `kernel.Deliveries`.

Properties and application properties become those of AMQP 0.9.1 by the kernel's conversion, which
is RabbitMQ's. What differs is what a reader of rows needs more than a consumer of 0.9.1: a body
that is one string is its text, message annotations of any name are headers, and the delivery count
of the header section is one, too.

An identity (`recognise.identities_of`) is of what no broker may change: the properties section and
the body, and without an id the application properties. A broker's own number of a message
(`SEQUENCE`) is an id that every message has.
"""

from __future__ import annotations

import struct
from array import array
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from pyspark_warren.rows.identities import DELIVERY_COUNT, IDENTITY_BYTES, WITH_ID, WITHOUT_ID
from warren_wire.amqp091.properties import NONE, Properties, encode
from warren_wire.kernel import map_entries, read_sections, with_headers
from warren_wire.kernel.section_types import (
    ENCODED_TYPE,
    SIZE1,
    SIZE4,
    WIDTHS,
    MalformedSections,
    SectionsRead,
)

SEQUENCE: Final = b"x-opt-sequence-number"
"""Annotation of Azure Service Bus and Event Hubs: the number of the message in its queue."""
LOCKED_UNTIL: Final = b"x-opt-locked-until"
"""Annotation of Azure Service Bus: until when the message is this receiver's."""
PROPERTIES_CODE: Final = 0x73
_ANNOTATIONS, _APPLICATION = 0x72, 0x74
_MESSAGE_ID, SUBJECT = 0, 3
NULL: Final = 0x40
_NUMBER: Final = struct.Struct(">q")
_MAP: Final = struct.Struct(">4sII")
_APPLICATION_MAP: Final = b"\x00\x53\x74\xd1"
_EMPTY_DATA: Final = b"\x00\x53\x75\xa0\x00"
_AS_DATA: Final = {0xA1: 0xA0, 0xB1: 0xB0, 0xA0: 0xA0, 0xB0: 0xB0}
"""Constructors of strings and binaries, to those of a data section."""
_AS_STRING: Final = {0xA3: 0xA1, 0xB3: 0xB1}


class ByteStrings:
    """Byte strings: value i is data[offsets[i]:offsets[i + 1]]."""

    def __init__(self) -> None:
        self.offsets, self.data = array("i", [0]), bytearray()

    def add(self, value: bytes | memoryview) -> None:
        """Append a value."""
        self.data += value
        self.offsets.append(len(self.data))


class ReceivedMessages:
    """Messages in columns, in the order received; see `kernel.Deliveries`.

    identities  IDENTITY_BYTES of each
    """

    def __init__(self) -> None:
        self.tags, self.redelivered, self.identities = array("Q"), bytearray(), bytearray()
        self.exchange, self.routing_key = ByteStrings(), ByteStrings()
        self.properties, self.body = ByteStrings(), ByteStrings()

    @property
    def count(self) -> int:
        """How many."""
        return len(self.tags)

    @property
    def size_bytes(self) -> int:
        """Bytes of bodies and properties."""
        return len(self.body.data) + len(self.properties.data)

    def add(self, tag: int, message: MessageRead, redelivered: bool) -> None:
        """Append a message."""
        self.tags.append(tag)
        self.redelivered.append(redelivered)
        self.identities += message.identity
        self.exchange.add(message.exchange)
        self.routing_key.add(message.routing_key)
        self.properties.add(message.properties)
        self.body.add(message.body)


class MessageRead(NamedTuple):
    """A message as a row.

    first_acquirer, delivery_count  of its header
    locked_until_ms                 since 1970; 0: it is not locked for a time
    """

    properties: bytes
    body: bytes | memoryview
    exchange: bytes
    routing_key: bytes
    identity: bytes
    first_acquirer: bool
    delivery_count: int
    locked_until_ms: int

    @property
    def has_id(self) -> bool:
        """Whether it is told from others that are equal."""
        return self.identity.endswith(WITH_ID)


def read_message(data: bytearray, queue: bytes) -> MessageRead:
    """Read a message; one that cannot be read is a body of its bytes, of the type `amqp-1.0`.

    queue  its routing key, when it does not say another one
    """
    try:
        data, read = _sections(data)
        if ENCODED_TYPE in read.properties and _made_data(data, read.pieces[0][0]):
            read = read_sections(memoryview(data))
        told = _annotations(data, read)
        if told.foreign:
            moved = _with_annotations(data, read)
            properties = read_sections(memoryview(moved)).properties
        else:
            properties = read.properties
        first, delivered = _header(data)
        if delivered and DELIVERY_COUNT.encode() not in properties:
            properties = with_headers(properties, {DELIVERY_COUNT: delivered})
        fields = _fields(data, read)
        key = told.routing_key or _text(fields, SUBJECT) or read.to or queue
    except (MalformedSections, IndexError, struct.error):
        digest = blake2b(data, digest_size=IDENTITY_BYTES - 1).digest()
        raw = encode(Properties(type=ENCODED_TYPE.decode()))
        return MessageRead(raw, bytes(data), b"", queue, digest + WITHOUT_ID, False, 0, 0)
    view = memoryview(data)
    pieces = [view[start:end] for start, end in read.pieces]
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    identity = _identity(view, read, told.sequence, fields, body)
    counts = first, delivered, told.locked_until_ms
    return MessageRead(properties or NONE, body, told.exchange, key, identity, *counts)


def _sections(data: bytearray) -> tuple[bytearray, SectionsRead]:
    """Read the sections; a message without a body gets an empty one: clients do send such."""
    try:
        return data, read_sections(memoryview(data))
    except MalformedSections:
        whole = data + _EMPTY_DATA
        return whole, read_sections(memoryview(whole))


def _made_data(data: bytearray, at: int) -> bool:
    """Make a body that is one string or binary a data section, which has the same size."""
    code = _AS_DATA.get(data[at + 3]) if data[at : at + 3] == b"\x00\x53\x77" else None
    if code is not None:
        data[at + 2], data[at + 3] = 0x75, code
        return True
    if data[at:] == b"\x00\x53\x77\x40":  # null, which JMS sends for a message without a body
        data[at:] = _EMPTY_DATA
        return True
    return False


def _identity(
    data: memoryview,
    read: SectionsRead,
    sequence: bytes,
    fields: list[bytes],
    body: bytes | memoryview,
) -> bytes:
    has_id = bool(sequence) or bool(fields and fields[_MESSAGE_ID][0] != NULL)
    digest = blake2b(sequence, digest_size=IDENTITY_BYTES - 1)
    for code in (PROPERTIES_CODE,) if has_id else (PROPERTIES_CODE, _APPLICATION):
        begin, _, end, _ = read.sections.get(code, (0, 0, 0, 0))
        digest.update((end - begin).to_bytes(4, "big"))
        digest.update(data[begin:end])
    digest.update(body)
    return digest.digest() + (WITH_ID if has_id else WITHOUT_ID)


# ------------------------------------------------------------------ sections


class _Annotations(NamedTuple):
    exchange: bytes = b""
    routing_key: bytes = b""
    sequence: bytes = b""
    locked_until_ms: int = 0
    foreign: bool = False


def _annotations(data: bytearray, read: SectionsRead) -> _Annotations:
    there = read.sections.get(_ANNOTATIONS)
    if there is None or not there[3]:
        return _NONE_TOLD
    begin, first, end, count = there
    return _read_annotations(bytes(data[begin:end]), first - begin, count)


@lru_cache(maxsize=1024)
def _read_annotations(section: bytes, first: int, count: int) -> _Annotations:
    found: dict[bytes, bytes] = {}
    for name, entry in map_entries(memoryview(section), first, count):
        found[name] = entry[value_end(entry, 0) :]
    locked = found.get(LOCKED_UNTIL, b"")
    return _Annotations(
        _string(found.get(b"x-exchange", b"")),
        _string(found.get(b"x-routing-key", b"")),
        found.get(SEQUENCE, b""),
        _NUMBER.unpack_from(locked, 1)[0] if locked[:1] == b"\x83" else 0,
        any(not name.startswith(b"x-") for name in found),
    )


_NONE_TOLD: Final = _Annotations()


def _with_annotations(data: bytearray, read: SectionsRead) -> bytes:
    """Return the message with annotations of any name as application properties.

    The conversion leaves out those that do not begin with `x-`, as RabbitMQ does.
    """
    _, first, _, count = read.sections[_ANNOTATIONS]
    view = memoryview(data)
    entries = []
    for name, entry in map_entries(view, first, count):
        if not name.startswith(b"x-") and entry[0] in _AS_STRING:
            entries.append(bytes((_AS_STRING[entry[0]],)) + entry[1:])
    there = read.sections.get(_APPLICATION)
    if there is None:
        at = end = read.sections[PROPERTIES_CODE][2] if PROPERTIES_CODE in read.sections else 0
        at = end = at or read.sections[_ANNOTATIONS][2]
    else:
        at, own, end, own_count = there
        entries = [entry for _, entry in map_entries(view, own, own_count)] + entries
    content = b"".join(entries)
    head = _MAP.pack(_APPLICATION_MAP, len(content) + 4, 2 * len(entries))
    return b"".join((view[:at], head, content, view[end:]))


def _header(data: bytearray) -> tuple[bool, int]:
    """Return first-acquirer and delivery-count of the header."""
    if data[:3] != b"\x00\x53\x70":
        return False, 0
    found = elements(data, 3)
    first = len(found) > 3 and found[3] in (b"\x41", b"\x56\x01")
    counted = found[4] if len(found) > 4 else b"\x43"
    return first, int.from_bytes(counted[1:], "big")


def _fields(data: bytearray, read: SectionsRead) -> list[bytes]:
    """Return the fields of the properties, each with its constructor."""
    there = read.sections.get(PROPERTIES_CODE)
    return [] if there is None else _elements(data, there[1], there[3])


def elements(data: bytes | bytearray, at: int) -> list[bytes]:
    """Return the elements of the list at `at`, each with its constructor."""
    code = data[at]
    if code == 0xC0:
        return _elements(data, at + 3, data[at + 2])
    if code == 0xD0:
        return _elements(data, at + 9, int.from_bytes(data[at + 5 : at + 9], "big"))
    return []


def _elements(data: bytes | bytearray, at: int, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        end = value_end(data, at)
        found.append(bytes(data[at:end]))
        at = end
    return found


def value_end(data: bytes | bytearray, at: int) -> int:
    """Return the end of a primitive value."""
    width = WIDTHS[data[at]]
    if width == SIZE1:
        return at + 2 + data[at + 1]
    if width == SIZE4:
        return at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
    return at + 1 + width


def _string(value: bytes) -> bytes:
    """Return a string or symbol without its constructor; b"" for anything else."""
    if value[:1] in (b"\xa1", b"\xa3"):
        return value[2:]
    return value[5:] if value[:1] in (b"\xb1", b"\xb3") else b""


def _text(fields: list[bytes], at: int) -> bytes:
    return _string(fields[at]) if len(fields) > at else b""
