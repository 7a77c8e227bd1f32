# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The sections of a received AMQP 1.0 message, converted to AMQP 0.9.1 properties.

One source for both kernels, as `section_values`. The values of a body are measured, not read.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes

from warren_wire.block.layout import Buffer

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.kernel.section_types import (
    ENCODED_TYPE,
    HEADER,
    HEADER_NAMES,
    PROPERTY_NAMES,
    QUEUES,
    SECTION_NAMES,
    SECTION_SYMBOLS,
    MalformedSections,
    SectionsRead,
)

if not cython.compiled:
    from warren_wire.kernel.properties import expiration_ms, walk
    from warren_wire.kernel.section_values import ValueReader, close_length, put_number
else:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.warren_wire.kernel.compiled.properties import walk
    from cython.cimports.warren_wire.kernel.compiled.section_values import (
        ValueReader,
        close_length,
        put_number,
    )

    from warren_wire.kernel.compiled.properties import expiration_ms

_STRINGS = (0xA1, 0xB1, 0xA3, 0xB3)
# Only ulong is an identifier's type; clients send others, and RabbitMQ takes them.
_UNSIGNED = (0x44, 0x53, 0x80, 0x43, 0x52, 0x70, 0x50, 0x60)
_SIGNED = (0x54, 0x55, 0x71, 0x81, 0x51, 0x61)


@cython.cclass
class _MessageReader(ValueReader):
    """One message that is read, section by section.

    headers   the entries of the headers table
    pieces    (start, end) of the contents of the data sections
    encoded   where the first section of another body begins; -1: there is none
    short     presence bit -> value of a property that is a short string
    """

    headers: bytearray
    pieces: list
    encoded: cython.Py_ssize_t
    durable: cython.int
    priority: cython.int
    ttl: cython.longlong
    short: dict
    sections: dict
    timestamp: cython.longlong
    timed: cython.bint
    to: Any
    user_id: Any
    basic_type: Any

    def __init__(self, data: Buffer) -> None:
        super().__init__(data)
        self.headers = bytearray()
        self.pieces = []
        self.encoded = -1
        self.durable = self.priority = -1
        self.ttl = -1
        self.short = {}
        self.sections = {}
        self.timed = False
        self.to = self.user_id = self.basic_type = None

    @cython.cfunc
    def descriptor(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a section's descriptor into `section`; return where its value begins."""
        p: cython.p_const_uchar = self.p
        found: cython.uint = 0
        code: cython.uint
        before: cython.uint = self.section
        self.section_at = at
        if self.end - at >= 3 and p[at] == 0 and p[at + 1] == 0x53:
            found = p[at + 2]
            self.after = at + 3
        elif p[at] == 0 and self.end - at > 1:
            code = self.element(at + 1)
            if code == 0x80 and self.integer(code, self.start, self.after) < 0x100:
                found = self.integer(code, self.start, self.after)
            elif code in (0xA3, 0xB3):
                found = SECTION_SYMBOLS.get(bytes(p[self.start : self.after]), 0)
        if not 0x70 <= found <= 0x78:
            self.section = HEADER - 1
            self.refuse("no section begins there")
        self.section = found
        if found < before or (found == before and found not in (0x75, 0x76)):
            name = SECTION_NAMES[before - HEADER]
            self.refuse(f"it follows the {name} section; a message has each once, in their order")
        if before in (0x75, 0x76, 0x77) and found not in (before, 0x78):
            self.refuse(f"the body is of {SECTION_NAMES[before - HEADER]} sections already")
        return self.after

    def read(self) -> SectionsRead:
        """Read the whole message."""
        at: cython.Py_ssize_t = 0
        code: cython.uint
        while at < self.end:
            begin: cython.Py_ssize_t = at
            at = self.descriptor(at)
            code = self.element(at)
            at = self.after
            if self.section == 0x77:
                self.encoded = begin
            elif self.section in (0x70, 0x73):
                self.listed(code)
            elif self.section == 0x75:
                if code not in (0xA0, 0xB0):
                    self.refuse(f"its value is no binary but of constructor {code:#04x}")
                self.pieces.append((self.start, self.after))
            elif self.section == 0x76:
                if code not in (0x45, 0xC0, 0xD0):
                    self.refuse(f"its value is no list but of constructor {code:#04x}")
                if self.encoded < 0:
                    self.encoded = begin
            else:
                self.mapped(code)
        if self.section < 0x75:
            self.section_at = self.end
            self.section = HEADER - 1
            raise MalformedSections(
                f"the message of {self.end} bytes has no body: a data, amqp-sequence or "
                "amqp-value section is missing"
            )
        if self.encoded >= 0:
            self.pieces = [(self.encoded, self.end)]
            self.short[0x0020] = ENCODED_TYPE
        elif self.basic_type is not None:
            self.short[0x0020] = self.basic_type
        durable = None if self.durable < 0 else self.durable == 2
        properties: bytes = self.encode()
        row: cython.longlong
        if cython.compiled:
            row = walk(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(properties)), len(properties)
            )
        else:
            row = walk(properties, len(properties))
        assert row >= 0, properties
        return SectionsRead(
            properties, row, tuple(self.pieces), durable, self.sections, self.to, self.user_id
        )

    @cython.cfunc
    def listed(self, code: cython.uint) -> cython.int:
        """Read the header or the properties."""
        if code not in (0x45, 0xC0, 0xD0):
            self.refuse(f"its value is no list but of constructor {code:#04x}")
        names = HEADER_NAMES if self.section == 0x70 else PROPERTY_NAMES
        after: cython.Py_ssize_t = self.after
        at: cython.Py_ssize_t = self.counted(code, self.start, after)
        count: cython.Py_ssize_t = min(self.count, 1 << 32)
        if self.section == 0x73:
            self.sections[0x73] = (self.section_at, at, after, count)
        if count > len(names):
            self.refuse(f"it has {count} fields; the limit is {len(names)}")
        i: cython.int
        kind: cython.uint
        for i in range(count):
            kind = self.element(at)
            at = self.after
            if kind == 0x40:
                continue
            if self.section == 0x70:
                self.header(i, kind)
            else:
                self.property(i, kind)
        return self.filled(at, after)

    @cython.cfunc
    def wrong(self, name: str, code: cython.uint) -> Any:
        """Refuse a field that has the wrong type."""
        self.refuse(f"its {name} is of a wrong type: constructor {code:#04x}")

    @cython.cfunc
    def header(self, i: cython.int, code: cython.uint) -> cython.int:
        """Read a field of the header."""
        if i == 0 or i == 3:
            if code not in (0x41, 0x42, 0x56):
                self.wrong(HEADER_NAMES[i], code)
            if i == 0:
                self.durable = 1 + self.boolean(code, self.start)
        elif i == 1:
            if code != 0x50:
                self.wrong("priority", code)
            self.priority = self.p[self.start]
        else:
            if code not in (0x43, 0x52, 0x70):
                self.wrong(HEADER_NAMES[i], code)
            if i == 2:
                self.ttl = self.integer(code, self.start, self.after)
        return 0

    @cython.cfunc
    def property(self, i: cython.int, code: cython.uint) -> cython.int:
        """Read a field of the properties."""
        text: bytes = b""
        if i == 8 or i == 9 or i == 11:
            if code != 0x83 if i < 11 else code not in (0x43, 0x52, 0x70):
                self.wrong(PROPERTY_NAMES[i], code)
            if i == 9:
                self.timestamp = self.seconds(self.start)
                self.timed = True
            return 0
        if i == 0 or i == 5:
            return self.identifier(i, code)
        if code not in ((0xA0, 0xB0) if i == 1 else _STRINGS):
            self.wrong(PROPERTY_NAMES[i], code)
        if i != 3 and i != 12:
            text = bytes(self.p[self.start : self.after])
        if i == 1:
            self.user_id = text
            if len(text) <= 255 and b"\x00" not in text and _is_utf8(text):
                self.short[0x0010] = text
        elif i == 2:
            self.to = text
        elif i == 4:
            if text.startswith(QUEUES):
                text = unquote_to_bytes(text[len(QUEUES) :])
            self.put_short(0x0200, text)
        elif i == 6 or i == 7:
            self.put_short(0x8000 if i == 6 else 0x4000, text)
        elif i == 10:
            self.put_short(0x0008, text)
        return 0

    @cython.cfunc
    def put_short(self, bit: cython.int, text: bytes) -> cython.int:
        """Set a property, unless it is longer than 255 bytes."""
        if len(text) <= 255:
            self.short[bit] = text
        return 0

    @cython.cfunc
    def identifier(self, i: cython.int, code: cython.uint) -> cython.int:
        """Read the message-id or correlation-id."""
        bit: cython.int = 0x0080 if i == 0 else 0x0400
        raw: bytes = bytes(self.p[self.start : self.after])
        if code in (0xA1, 0xB1) and len(raw) <= 255:
            self.short[bit] = raw
        elif code == 0x98:
            x = raw.hex()
            text = f"urn:uuid:{x[:8]}-{x[8:12]}-{x[12:16]}-{x[16:20]}-{x[20:]}"
            self.short[bit] = text.encode()
        elif code in _UNSIGNED:
            self.short[bit] = b"%d" % int.from_bytes(raw, "big")
        elif code in _SIGNED:
            self.short[bit] = b"%d" % int.from_bytes(raw, "big", signed=True)
        elif code in (0xA0, 0xB0, 0xA1, 0xB1):
            name = b"x-message-id" if i == 0 else b"x-correlation-id"
            self.headers.append(len(name))
            self.headers += name
            self.headers.append(0x78 if code in (0xA0, 0xB0) else 0x53)
            put_number(self.headers, len(raw), 4)
            self.headers += raw
        else:
            self.wrong(PROPERTY_NAMES[i], code)
        return 0

    @cython.cfunc
    def mapped(self, code: cython.uint) -> cython.int:
        """Read annotations, application properties or the footer."""
        if code not in (0xC1, 0xD1):
            self.refuse(f"its value is no map but of constructor {code:#04x}")
        after: cython.Py_ssize_t = self.after
        at: cython.Py_ssize_t = self.counted(code, self.start, after)
        pairs: cython.ulonglong = self.pairs(at)
        if self.section > 0x71 and self.encoded < 0:
            self.sections[self.section] = (self.section_at, at, after, self.count)
        _i: cython.ulonglong
        key: cython.uint
        for _i in range(pairs):
            key = self.element(at)
            if self.section == 0x74:
                if key not in (0xA1, 0xB1):
                    self.refuse(f"its key at byte {at} is no string but of {key:#04x}")
                at = self.entry(key, self.start, self.after, self.headers, 0)
            elif self.section == 0x72 and key in (0xA3, 0xB3):
                at = self.annotation(key, self.start, self.after)
            else:
                at = self.skip(self.after, 0)
        return self.filled(at, after)

    @cython.cfunc
    def annotation(
        self, key: cython.uint, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read a message annotation; its key, a symbol, was measured."""
        p: cython.p_const_uchar = self.p
        if end - at < 2 or p[at] != 0x78 or p[at + 1] != 0x2D:  # x-
            return self.skip(end, 0)
        name: bytes = bytes(p[at:end])
        if name == b"x-cc":
            return self.copies(end)
        if name.startswith(b"x-basic-"):
            return self.basic(name, end)
        if name in (b"x-exchange", b"x-routing-key", b"x-death", b"x-opt-deaths"):
            return self.skip(end, 0)
        if name == b"x-opt-rabbitmq-received-time" and self.element(end) == 0x83:
            self.headers += b"\x0ftimestamp_in_msl"
            self.headers += bytes(p[self.start : self.after])
            return self.after
        return self.entry(key, at, end, self.headers, 0)

    @cython.cfunc
    def basic(self, name: bytes, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read an annotation that stands for a 0.9.1 property; what the header says counts more."""
        code: cython.uint = self.element(at)
        after: cython.Py_ssize_t = self.after
        if name == b"x-basic-type" and code in (0xA1, 0xB1) and after - self.start <= 255:
            self.basic_type = bytes(self.p[self.start : after])
        elif name == b"x-basic-delivery-mode" and code == 0x50 and self.durable < 0:
            self.durable = 2 if self.p[self.start] == 2 else 1
        elif name == b"x-basic-priority" and code == 0x50 and self.priority < 0:
            self.priority = self.p[self.start]
        elif name == b"x-basic-expiration" and code in (0xA1, 0xB1) and self.ttl < 0:
            self.ttl = expiration_ms(bytes(self.p[self.start : after]))
        return after

    @cython.cfunc
    def copies(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read x-cc, a list of further routing keys, into the header CC."""
        code: cython.uint = self.element(at)
        after: cython.Py_ssize_t = self.after
        _i: cython.ulonglong
        if code not in (0x45, 0xC0, 0xD0):
            self.bad_copies()
        at = self.counted(code, self.start, after)
        self.headers += b"\x02CCA"
        mark: cython.Py_ssize_t = len(self.headers)
        put_number(self.headers, 0, 4)
        count: cython.ulonglong = self.count
        for _i in range(count):
            if self.element(at) not in (0xA1, 0xB1):
                self.bad_copies()
            at = self.value(at, self.headers, 1)
        self.filled(at, after)
        close_length(self.headers, mark)
        return after

    @cython.cfunc
    def bad_copies(self) -> object:
        """Refuse an x-cc that is no list of strings."""
        raise MalformedSections(
            "bad value for 'x-cc' message-annotation: give a list of strings", "amqp:invalid-field"
        )

    # -------------------------------------------------------------- properties

    @cython.cfunc
    def encode(self) -> bytes:
        """Return the AMQP 0.9.1 flags and property list."""
        out: bytearray = bytearray(2)
        flags: cython.int = 0
        bit: cython.int = 0x8000
        short: dict = self.short
        if self.ttl >= 0:
            short[0x0100] = b"%d" % self.ttl
        while bit > 4:
            text = short.get(bit)
            if text is not None:
                out.append(len(text))
                out += text
            elif bit == 0x2000 and self.headers:
                put_number(out, len(self.headers), 4)
                out += self.headers
            elif bit == 0x1000 and self.durable > 0:
                out.append(self.durable)
            elif bit == 0x0800 and self.priority >= 0:
                out.append(self.priority)
            elif bit == 0x0040 and self.timed:
                put_number(out, self.timestamp & 0xFFFFFFFFFFFFFFFF, 8)
            else:
                bit >>= 1
                continue
            flags |= bit
            bit >>= 1
        out[0] = flags >> 8
        out[1] = flags & 0xFF
        return bytes(out)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def map_entries(data: memoryview, at: int, count: int) -> list[tuple[bytes, bytes]]:
    """Return (key, whole entry) of a map's content; the key without its constructor."""
    reader: _MessageReader = _MessageReader(data)
    found: list = []
    begin: cython.Py_ssize_t = at
    for _ in range(count >> 1):
        reader.element(begin)
        name = bytes(data[reader.start : reader.after])
        end = reader.skip(reader.after, 0)
        found.append((name, bytes(data[begin:end])))
        begin = end
    return found


def whole_entries(data: memoryview) -> list[tuple[int, bytes, bytes]]:
    """Return (constructor of the key, key, value) of a map, of which everything is read.

    data   one value, not empty
    fails  MalformedSections, also when it is no map
    """
    reader: _MessageReader = _MessageReader(data)
    code = reader.element(0)
    end = reader.after
    if code not in (0xC1, 0xD1):
        reader.refuse(f"constructor {code:#04x} instead of a map")
    begin = reader.counted(code, reader.start, end)
    pairs = reader.pairs(begin)
    found: list = []
    for _ in range(pairs):
        kind = reader.element(begin)
        after: cython.Py_ssize_t = reader.after
        key = bytes(data[reader.start : after])
        begin = reader.read_whole(after, 0)
        found.append((kind, key, bytes(data[after:begin])))
    reader.filled(begin, end)
    reader.filled(end, len(data))
    return found


def read_sections(data: memoryview) -> SectionsRead:
    """Convert a message's header, annotations, properties and application properties.

    data   the whole message: a contiguous view of bytes
    fails  MalformedSections
    """
    if not len(data):
        raise MalformedSections("the message of 0 bytes has no body")
    return _MessageReader(data).read()


def is_body(data: memoryview) -> bool:
    """Return whether these bytes are body sections, perhaps with a footer, and nothing else."""
    if len(data) < 4 or bytes(data[:2]) != b"\x00\x53" or not 0x75 <= data[2] <= 0x77:
        return False
    try:
        _MessageReader(data).read()
    except MalformedSections:
        return False
    return True
