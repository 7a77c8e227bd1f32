"""Messages of a link that differ in their message-ids alone, beside their bodies.

Many publishers give each message an id of its own, and change nothing else. One such message says
where the id is in what is stored and sent of it: `StoredIds` makes the properties of the next one,
and `SentIds` its sections, by putting the id there. Both are used only after a second message was
converted in full and gave the same. An id of which the conversion depends on more than its
characters (a string that looks like a UUID, or is not ASCII) is converted in full, always.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from warren_wire.kernel import read_sections, readable, split_sections
from warren_wire.kernel.section_types import UUID_BYTES, MalformedSections, uuid_of

UNLIKE_MAX: Final = 64
"""After that many messages in a row a link no longer looks for those that differ in their id."""
_SMALL_ULONG, _ULONG, _UUID, _BINARY, _STRING = 0x53, 0x80, 0x98, 0xA0, 0xA1
_WIDTHS: Final = {_SMALL_ULONG: 1, _ULONG: 8, _UUID: 16}
SECTION_OF_ID: Final = 0x73
"""The code of the section that has the message-id first."""
_BINARY_HEADER: Final = b"\x0cx-message-idx"
_SIZED_BEFORE: Final = ((0x80, 1), (0x40, 1), (0x20, 4), (0x10, 0), (8, 0), (4, 1), (2, 1), (1, 1))
"""Properties before the message-id: (flag, bytes of the size; 0: one octet without a size)."""


class _Place(NamedTuple):
    """A message-id in encoded sections: its constructor, first byte and size."""

    code: int
    start: int
    size: int


def _place(data: bytes | bytearray, at: int) -> _Place | None:
    """Return what the constructor at `at` begins; None: no id of a type that is put in."""
    code = data[at]
    if code in _WIDTHS:
        return _Place(code, at + 1, _WIDTHS[code])
    if code in (_BINARY, _STRING):
        return _Place(code, at + 2, data[at + 1])
    return None


def _property_at(properties: bytes) -> int:
    """Return where the size of the message-id is in well-formed properties; 0: there is none."""
    if not properties[1] & 0x80:
        return 0
    at = 2
    for flag, sized in _SIZED_BEFORE:
        if properties[0] & flag:
            at += sized + int.from_bytes(properties[at : at + sized], "big") if sized else 1
    return at


def _is_plain(text: bytes) -> bool:
    """Return whether a string's conversion is its characters, in both directions."""
    return text.isascii() and len(text) != UUID_BYTES and b"\x00" not in text


def _short_text(code: int, raw: bytes) -> bytes | None:
    """Return an id as the 0.9.1 property with its size; None: it is to be converted in full."""
    if code == _STRING:
        return bytes((len(raw),)) + raw if _is_plain(raw) else None
    if code == _UUID:
        x = raw.hex()
        return b"-urn:uuid:%b" % f"{x[:8]}-{x[8:12]}-{x[12:16]}-{x[16:20]}-{x[20:]}".encode()
    text = b"%d" % int.from_bytes(raw, "big")
    return bytes((len(text),)) + text


class StoredIds:
    """The properties as stored of messages that equal each other but for the id and the body.

    head, tail  of the encoded message, before and after the id; then comes the body's size
    parts       of the properties: before the id, between its two places, after it
    kept        the id is in the sections that are kept beside the properties, too
    """

    def __init__(self, data: bytes, properties: bytes, places: tuple[int, int, int]) -> None:
        """Note a message that was converted.

        places  where its properties section, the first field in it and the value of its body begin
        """
        begin, at, end = places
        self._place = _place(data, at)
        self._properties = properties
        self._parts: tuple[bytes, bytes, bytes] | None = None
        self._kept = False
        self._proved = False
        self._raw = self._section = self.head = self.tail = b""
        if self._place is not None:
            start, size = self._place.start, self._place.size
            self._raw = data[start : start + size]
            self.head, self.tail = data[:start], data[start + size : end]
            self._section = data[begin : start + size]

    def _learn(self, place: _Place) -> None:
        """Find the id in the properties of the message that was noted."""
        properties = self._properties
        first = properties.find(self._section)
        self._kept = first >= 0
        first += len(self._section) - place.size
        if place.code == _BINARY:
            field = _BINARY_HEADER + place.size.to_bytes(4, "big")
            second = properties.find(field + self._raw) + len(field)
            after = second + place.size
            there = self._kept and second >= len(field)
        else:
            second = _property_at(properties)
            after = second + 1 + properties[second]
            there = second > 0
        if there and self._kept:
            between = properties[first + place.size : second]
            self._parts = properties[:first], between, properties[after:]
        elif there:
            self._parts = properties[:second], b"", properties[after:]

    def id_of(self, data: bytes | bytearray) -> bytes | None:
        """Return the id of a message that differs in nothing else before its body."""
        start = len(self.head)
        if self._place is None or not data.startswith(self.head):
            return None
        end = start + self._place.size
        return bytes(data[start:end]) if data.startswith(self.tail, end) else None

    def prove(self, raw: bytes, properties: bytes) -> None:
        """Compare with the properties of a second message, which was converted in full."""
        if self._place is not None and not self._proved and raw != self._raw:
            self._learn(self._place)
            self._proved = self._made(raw) == properties

    def properties(self, raw: bytes) -> bytes | None:
        """Return the properties of a message; None: it is to be converted in full."""
        return self._made(raw) if self._proved else None

    def _made(self, raw: bytes) -> bytes | None:
        if self._parts is None or self._place is None:
            return None
        code = self._place.code
        text = raw if code == _BINARY else _short_text(code, raw)
        if text is None:
            return None
        before, between, after = self._parts
        if self._kept:
            return b"".join((before, raw, between, text, after))
        return b"".join((before, text, after))


class SentIds:
    """The sections of stored messages that equal each other but for the id and the body.

    Where the properties section was kept, the id is the one in there, and the 0.9.1 property next
    to it has no effect; otherwise the id is made of the property.
    """

    def __init__(self, properties: bytes, sections: bytes) -> None:
        """Note a message that was converted: its properties as stored, and its sections."""
        self._noted = properties, sections
        self._proved = False
        self._usable = False
        # in the properties: the id from `_start` to `_end`; the second place begins at `_at`
        self._start = self._end = self._at = 0
        self._kept = self._sized = self._uuid = False
        self._before = self._between = self._after = b""
        self._sections = (b"", b"")

    def _learn(self) -> None:
        """Find the id in the message that was noted."""
        properties, sections = self._noted
        at = _property_at(properties)
        kept = _kept_place(properties)
        if kept is not None:
            self._note_kept(properties, sections, kept, at)
        elif at:
            self._note_property(properties, sections, at)

    def _note_kept(
        self, properties: bytes, sections: bytes, kept: tuple[_Place, bytes], at: int
    ) -> None:
        place, section = kept
        self._start = place.start
        end = place.start + place.size
        self._uuid = False
        self._before = properties[: place.start]
        self._sized = at > 0
        after = at
        if self._sized:
            after = at + 1 + properties[at]
        elif place.code == _BINARY:
            field = _BINARY_HEADER + place.size.to_bytes(4, "big")
            at = properties.find(field, end) + len(field)
            after = at + place.size
            if at < end + len(field):
                return
        else:
            return
        self._end, self._at = end, at
        self._between, self._after = properties[end:at], properties[after:]
        found = sections.find(section)
        if found >= 0:
            first = found + len(section) - place.size
            self._sections = sections[:first], sections[first + place.size :]
            self._kept = self._usable = True

    def _note_property(self, properties: bytes, sections: bytes, at: int) -> None:
        size = properties[at]
        text = properties[at + 1 : at + 1 + size]
        uuid = uuid_of(text) if size == UUID_BYTES else None
        if isinstance(uuid, bytes):
            written = bytes((_UUID,)) + uuid
        elif _is_plain(text):
            written = bytes((_STRING, size)) + text
        else:
            return
        self._uuid = isinstance(uuid, bytes)
        self._start, self._end = at + 1, at + 1 + size
        self._before, self._after = properties[: at + 1], properties[at + 1 + size :]
        found = sections.find(written)
        if found >= 0:
            value = len(written) - (1 if self._uuid else 2)
            end = found + len(written)
            self._sections = sections[: end - value], sections[end:]
            self._kept, self._usable = False, True

    def sections(self, properties: bytes) -> bytes | None:
        """Return the sections of such a message; None: it is another one, or nothing is proved."""
        return self._made(properties) if self._proved else None

    def prove(self, properties: bytes, sections: bytes) -> bool:
        """Compare with a second message that was converted in full; return whether it is alike."""
        if not self._proved and properties != self._noted[0]:
            self._learn()
            self._proved = self._made(properties) == sections
        return self._proved

    def _made(self, properties: bytes) -> bytes | None:
        if not self._usable or not properties.startswith(self._before):
            return None
        raw = properties[self._start : self._end]
        if self._kept:
            at = self._at
            if properties[self._end : at] != self._between or len(properties) <= at:
                return None
            after = at + (1 + properties[at] if self._sized else len(raw))
            if properties[after:] != self._after:
                return None
        elif properties[self._end :] != self._after:
            return None
        elif self._uuid:
            uuid = uuid_of(raw)
            if not isinstance(uuid, bytes):
                return None
            raw = uuid
        elif not _is_plain(raw):
            return None
        before, rest = self._sections
        return b"".join((before, raw, rest))


def _kept_place(properties: bytes) -> tuple[_Place, bytes] | None:
    """Return the id in a kept properties section, and that section up to its end; None: no such."""
    kept = split_sections(readable(properties))[1]
    if not kept:
        return None
    try:
        there = read_sections(memoryview(kept)).sections.get(SECTION_OF_ID)
    except MalformedSections:
        return None
    if there is None or not there[3]:
        return None
    begin, at = there[0], there[1]
    place = _place(kept, at)
    first = properties.find(kept)
    if place is None or first < 0:
        return None
    end = place.start + place.size
    return place._replace(start=first + place.start), kept[begin:end]
