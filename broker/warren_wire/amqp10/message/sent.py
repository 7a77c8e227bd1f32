"""A stored message as it is sent to an AMQP 1.0 client."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from warren_wire.amqp091 import properties as codec
from warren_wire.amqp10.message.message_ids import UNLIKE_MAX, SentIds
from warren_wire.amqp10.message.received import REMEMBERED_BYTES_MAX
from warren_wire.block.block import Block
from warren_wire.block.layout import FORM_AMQP091, Buffer
from warren_wire.kernel import (
    is_body,
    is_owned,
    map_entries,
    read_sections,
    readable,
    split_sections,
    write_sections,
)
from warren_wire.kernel.properties import SECTIONS
from warren_wire.kernel.section_types import ENCODED_TYPE, KeptSections, MalformedSections

Annotation: TypeAlias = bool | int | str | bytes
"""true or false, a long of 64 bits, a string, or a binary."""

_SIZED = struct.Struct(">BI")
_LONG = struct.Struct(">Bq")
_LENGTH = struct.Struct(">I")
_MAP = struct.Struct(">4sII")
_ANNOTATIONS = 0x72
_SECTIONS = SECTIONS.encode()
_TYPE = frozenset({"type"})
_USER_ID = frozenset({"user_id"})
_USER_ID_BIT = 0x10
"""In the second octet of the flags: the property is there."""
_NONE: dict[bytes, bytes] = {}
_NO_LENGTHS = b"\x00\x53\x75\xb0" + bytes(4)
"""The data section with the lengths of a message's data sections, of which it has one."""


def encode_message(
    form: int,
    properties: Buffer,
    body: Buffer,
    *,
    exchange: bytes,
    routing_key: bytes,
    priority: int | None = None,
    ttl_ms: int | None = None,
    acquired_count: int = 0,
    delivery_count: int = 0,
    annotations: Mapping[bytes, bytes] | None = None,
) -> list[Buffer]:
    """Encode a stored message: its sections, of which the body is not copied.

    exchange, routing_key  for the annotations x-exchange and x-routing-key
    priority, ttl_ms       for the header; None: as the message was published
    acquired_count         deliveries before this one
    delivery_count         unsuccessful ones among them, as the header counts them
    annotations            (name, encoded value) set by the broker, instead of those of the message
                           with their names; the counts are set by it, too
    """
    assert form == FORM_AMQP091, form
    given = _counted(acquired_count, delivery_count)
    if annotations:
        given = {**annotations, **given}
    counts = (
        -1 if priority is None else priority,
        -1 if ttl_ms is None else ttl_ms,
        acquired_count == 0,
        delivery_count,
    )
    return _parts(_head(bytes(properties), body, (exchange, routing_key), counts, given), body)


def _parts(head: _Head, body: Buffer) -> list[Buffer]:
    if head.encoded:
        return [head.sections, body]
    lengths, sections = head.lengths, head.sections
    if sum(lengths) != len(body):
        lengths = (len(body),)
    parts: list[Buffer] = []
    start = 0
    for length in lengths or (0,):
        parts += (sections + _data_head(length), memoryview(body)[start : start + length])
        sections, start = b"", start + length
    return [part for part in (*parts, head.footer) if len(part)]


class MessageWriter:
    """Encodes a link's messages; what equals the last one's up to its body is not encoded again.

    Where only the message-id differs, it is put into the sections of an earlier one.
    """

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._sections = self._properties = b""
        self._rest: tuple[object, ...] = ()
        self._ids: SentIds | None = None
        self._unlike = 0  # messages in a row that differed from the one before in more than the id

    def like_last(
        self, block: Block, at: int, acquired_count: int, delivery_count: int
    ) -> tuple[bytes, bytes] | None:
        """Return (properties, sections) of the last message, if all else of this one is as there.

        A message with these properties has these sections before its data section, which is all of
        the rest. None: that is not so of the last message.
        """
        if not self._key or self._key[1] != (
            block.form,
            block.route(at),
            acquired_count,
            delivery_count,
        ):
            return None
        return self._properties, self._sections

    def encode(
        self, block: Block, at: int, acquired_count: int, delivery_count: int
    ) -> list[Buffer]:
        """Encode message `at` of a block as `encode_message` does, without annotations."""
        properties, body = bytes(block.properties(at)), block.body(at)
        route = block.route(at)
        rest = (block.form, route, acquired_count, delivery_count)
        key = (properties, rest)
        if key == self._key:
            return [self._sections, _data_head(len(body)), body]
        ids = self._ids if rest == self._rest else None
        made = None if ids is None else ids.sections(properties)
        if made is not None and ENCODED_TYPE not in properties:
            return [made, _data_head(len(body)), body]
        counts = (-1, -1, acquired_count == 0, delivery_count)
        assert block.form == FORM_AMQP091, block.form
        given = _counted(acquired_count, delivery_count)
        head = _head(properties, body, route, counts, given)
        if head.lengths or head.footer or ENCODED_TYPE in properties:
            self._key = ()
        elif len(properties) > REMEMBERED_BYTES_MAX:
            self._key, self._sections = (), b""
        else:
            self._key, self._sections, self._properties = key, head.sections, properties
            self._learn(properties, rest, head.sections)
        return _parts(head, body)

    def _learn(self, properties: bytes, rest: tuple[object, ...], sections: bytes) -> None:
        """Compare a message that was encoded in full with the last one, or note it."""
        if self._unlike > UNLIKE_MAX:
            return
        if self._ids is not None and rest == self._rest and self._ids.prove(properties, sections):
            self._unlike = 0
            return
        self._unlike += 1
        self._rest, self._ids = rest, SentIds(properties, sections)


def _counted(acquired_count: int, delivery_count: int) -> dict[bytes, bytes]:
    """Return the annotations of a message that was delivered before, each unless it is 0."""
    if not (acquired_count or delivery_count):
        return _NONE
    counts = ((b"x-acquired-count", acquired_count), (b"x-delivery-count", delivery_count))
    return {name: encode_annotation(count) for name, count in counts if count}


class _Head(NamedTuple):
    """What a message has beside its body.

    sections  all before the body
    encoded   the body is sections itself
    lengths   of the data sections, where it had several; footer: after them
    """

    sections: bytes
    encoded: bool
    lengths: tuple[int, ...]
    footer: bytes


def _head(
    raw: bytes,
    body: Buffer,
    route: tuple[bytes, bytes],
    counts: tuple[int, int, bool, int],
    given: dict[bytes, bytes],
) -> _Head:
    kept, footer = None, b""
    lengths: tuple[int, ...] = ()
    if _SECTIONS in raw:
        raw, sections = split_sections(readable(raw))
        if sections:
            kept, lengths, footer = _kept(sections, raw, given)
    encoded = ENCODED_TYPE in raw and is_body(memoryview(body))
    if encoded:
        encoded = codec.select(readable(raw), _TYPE).get("type") == ENCODED_TYPE.decode()
    written = write_sections(raw, *route, counts, given, encoded, kept)
    return _Head(written, encoded, lengths, footer)


def head_for_filters(properties: Buffer) -> bytes:
    """Return the sections before the body of a stored message, as `encode_message` has them.

    Without annotations of the broker: filters look at the header, properties and application
    properties alone.
    """
    raw, kept = bytes(properties), None
    if _SECTIONS in raw:
        raw, sections = split_sections(readable(raw))
        if sections:
            kept = _kept(sections, raw, _NONE)[0]
    return write_sections(raw, b"", b"", (-1, -1, True, 0), _NONE, True, kept)


def _data_head(length: int) -> bytes:
    if length <= 255:
        return b"\x00\x53\x75\xa0" + bytes((length,))
    return b"\x00\x53\x75" + _SIZED.pack(0xB0, length)


def _kept(
    sections: bytes, raw: bytes, given: dict[bytes, bytes]
) -> tuple[KeptSections | None, tuple[int, ...], bytes]:
    """Return what was kept of a message: sections, lengths of the data sections, the footer.

    Nothing of it is used when it is malformed, or has another user-id than the properties: then an
    AMQP 0.9.1 client made it.
    """
    data = memoryview(sections)
    try:
        read = read_sections(data)
    except MalformedSections:
        return None, (), b""
    if len(read.pieces) != 1:
        return None, (), b""
    if read.user_id is not None or raw[1] & _USER_ID_BIT:
        user_id = codec.select(readable(raw), _USER_ID).get("user_id")
        said = None if read.user_id is None else read.user_id.decode("utf-8", "surrogateescape")
        if said != (user_id if 0x73 in read.sections else None):
            return None, (), b""
    annotations = None
    there = read.sections.get(0x72)
    if there is not None:
        entries = map_entries(data, there[1], there[3])
        own = [entry for name, entry in entries if not is_owned(name) and name not in given]
        annotations = (2 * len(own), b"".join(own))
    whole = {
        code: sections[begin:end] if count else b""
        for code, (begin, _, end, count) in read.sections.items()
    }
    start, end = read.pieces[0]
    lengths = tuple(
        length for (length,) in _LENGTH.iter_unpack(sections[start : end - (end - start) % 4])
    )
    return (
        KeptSections(annotations, whole.get(0x73), whole.get(0x74)),
        lengths,
        whole.get(0x78, b""),
    )


def encode_annotation(value: Annotation) -> bytes:
    """Return a value with its constructor."""
    if isinstance(value, bool):
        return b"\x41" if value else b"\x42"
    if isinstance(value, int):
        return _LONG.pack(0x81, value)
    code, raw = (0xB1, value.encode()) if isinstance(value, str) else (0xB0, value)
    return _SIZED.pack(code, len(raw)) + raw


def annotated_sections(
    properties: bytes, sections: bytes, given: Mapping[bytes, bytes], *, typed: bool
) -> bytes:
    """Return what was kept of a message (`with_sections`), with these annotations among its own.

    properties  of the message, without what was kept
    sections    which was kept, b"": nothing
    given       name -> encoded value
    typed       its headers cannot say the same

    As it is, when nothing is kept of its annotations and its headers can say the same, or when it
    is malformed.
    """
    if not sections:
        sections = _NO_LENGTHS
    data = memoryview(sections)
    try:
        there = read_sections(data).sections.get(_ANNOTATIONS)
    except MalformedSections:
        return sections
    begin = end = 0
    if there is None:
        if not typed:
            return b"" if sections is _NO_LENGTHS else sections
        shown = write_sections(properties, b"", b"", (-1, -1, True, 0), _NONE, True, None)
        data = memoryview(shown + _NO_LENGTHS)
        _, first, _, count = read_sections(data).sections[_ANNOTATIONS]
    else:
        begin, first, end, count = there
    entries = [
        entry
        for name, entry in map_entries(data, first, count)
        if name not in given and (there is not None or not is_owned(name))
    ]
    for name, value in given.items():
        entries.append(b"\xa3%c%b%b" % (len(name), name, value))
    content = b"".join(entries)
    head = _MAP.pack(b"\x00\x53\x72\xd1", len(content) + 4, 2 * len(entries))
    return sections[:begin] + head + content + sections[end:]
