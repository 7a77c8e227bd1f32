# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""AMQP 0.9.1 properties, converted to the sections of an AMQP 1.0 message.

One source for both kernels: interpreted, `p` is the properties; compiled, a pointer to them. They
are well formed (`properties.readable`).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_from_bytes

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

if not cython.compiled:
    from warren_wire.kernel.properties import expiration_ms, readable
    from warren_wire.kernel.section_values import put_number
else:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.warren_wire.kernel.compiled.section_values import put_number

    from warren_wire.kernel.compiled.properties import expiration_ms, readable

from warren_wire.kernel.deaths import encode_deaths
from warren_wire.kernel.section_types import ENCODED_TYPE, QUEUES, UUID_BYTES, uuid_of

STRING_BYTES_MAX = 4096
"""A longer string of a header is sent as binary, without a look at its characters."""

_OWNED = (b"x-first-death-", b"x-last-death-", b"x-delivery-count", b"x-acquired-count")
_ORDER = (0x80, 0x10, 0, 0, 0x200, 0x400, 0x8000, 0x4000, 0, 0x40, 0x08)
"""The fields of the properties section, each as the bit of its 0.9.1 property; 0: it has none."""
_OWN = (b"x-exchange", b"x-routing-key")
_MILLISECONDS_MAX = cython.declare(cython.longlong, (1 << 63) - 1)


@cython.cfunc
def _long_or_short(out: bytearray, short: cython.int, long: cython.int, text: bytes) -> cython.int:
    """Append a constructor with a size of 1 or 4 bytes, the size, and the content."""
    size: cython.Py_ssize_t = len(text)
    if size <= 255:
        out.append(short)
        out.append(size)
    else:
        out.append(long)
        put_number(out, size, 4)
    out += text
    return 0


@cython.cfunc
def _compound(
    out: bytearray, short: cython.int, long: cython.int, count: cython.uint, content: bytearray
) -> cython.int:
    """Append a list or map."""
    size: cython.Py_ssize_t = len(content)
    if size < 255 and count <= 255:
        out.append(short)
        out.append(size + 1)
        out.append(count)
    else:
        out.append(long)
        put_number(out, size + 4, 4)
        put_number(out, count, 4)
    out += content
    return 0


@cython.cfunc
def _is_text(text: bytes) -> cython.bint:
    """Return whether it is UTF-8 without NUL."""
    if text.isascii():
        return b"\x00" not in text
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return b"\x00" not in text


@cython.cfunc
def _string(out: bytearray, text: bytes) -> cython.int:
    return _long_or_short(out, 0xA1, 0xB1, text)


@cython.cfunc
def _text(out: bytearray, text: bytes) -> cython.int:
    """Append a string, or what is no text as a binary."""
    if _is_text(text):
        return _string(out, text)
    return _long_or_short(out, 0xA0, 0xB0, text)


@cython.cfunc
def _uint(out: bytearray, value: cython.ulonglong) -> cython.int:
    if value == 0:
        out.append(0x43)
    elif value < 256:
        out.append(0x52)
        out.append(value)
    else:
        out.append(0x70)
        put_number(out, value, 4)
    return 0


@cython.cfunc
def _signed(
    out: bytearray, value: cython.longlong, small: cython.int, wide: cython.int, size: cython.int
) -> cython.int:
    """Append an int or long, in one byte where it fits."""
    if -128 <= value <= 127:
        out.append(small)
        out.append(value & 0xFF)
    else:
        out.append(wide)
        put_number(out, value & 0xFFFFFFFFFFFFFFFF, size)
    return 0


@cython.cfunc
def _timestamp(out: bytearray, seconds: cython.longlong) -> cython.int:
    """Append a timestamp; one beyond 64 bits of milliseconds becomes the last or the first."""
    value: cython.longlong
    if seconds > 9223372036854775:
        value = _MILLISECONDS_MAX
    elif seconds < -9223372036854775:
        value = -_MILLISECONDS_MAX
    else:
        value = seconds * 1000
    out.append(0x83)
    put_number(out, value & 0xFFFFFFFFFFFFFFFF, 8)
    return 0


def is_owned(name: bytes) -> bool:
    """Return whether an annotation is the broker's: it does not come from what was kept."""
    return name.startswith(_OWNED) or name in _OWN or name in (b"x-opt-deaths", b"x-death")


@cython.cclass
class _MessageWriter:
    """One message that is written.

    annotations, fields, application   contents of the maps and of the list of properties, so far
    given                              names of annotations that are set by the broker
    kept_annotations, kept_application the message has its own ones: only the headers are written
                                       that the broker added
    """

    data: bytes
    p: cython.p_const_uchar
    at: cython.Py_ssize_t
    annotations: bytearray
    application: bytearray
    annotation_count: cython.uint
    application_count: cython.uint
    given: Any
    kept_annotations: cython.bint
    kept_application: cython.bint
    shorts: dict
    before: cython.Py_ssize_t

    def __init__(self, data: bytes, given: Any) -> None:
        self.data = data
        if cython.compiled:
            self.p = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data))
        else:
            self.p = data
        self.annotations = bytearray()
        self.application = bytearray()
        self.annotation_count = self.application_count = 0
        self.given = given
        self.kept_annotations = self.kept_application = False
        self.shorts = {}

    # -------------------------------------------------------------- values

    @cython.cfunc
    def number(self, at: cython.Py_ssize_t, size: cython.int) -> cython.ulonglong:
        """Return the unsigned number at `at`."""
        value: cython.ulonglong = 0
        i: cython.Py_ssize_t
        for i in range(at, at + size):
            value = value << 8 | self.p[i]
        return value

    @cython.cfunc
    def signed(self, at: cython.Py_ssize_t, size: cython.int) -> cython.longlong:
        """Return the signed number at `at`."""
        value: cython.ulonglong = self.number(at, size)
        if cython.compiled:
            if size < 8 and value >> (8 * size - 1):
                value = value | (cython.cast(cython.ulonglong, -1) << (8 * size))
            return cython.cast(cython.longlong, value)
        else:
            return value - (1 << 8 * size) if value >> 8 * size - 1 else value

    @cython.cfunc
    def value(self, at: cython.Py_ssize_t, out: bytearray) -> cython.Py_ssize_t:
        """Append the field value at `at`, nothing for a decimal; return its end."""
        p: cython.p_const_uchar = self.p
        kind: cython.uint = p[at]
        at += 1
        if kind == 0x53 or kind == 0x78 or kind == 0x46 or kind == 0x41:  # S, x, F, A
            return self.sized(kind, at, out)
        if kind == 0x6C or kind == 0x4C:  # l, L
            _signed(out, self.signed(at, 8), 0x55, 0x81, 8)
            return at + 8
        if kind == 0x49:  # I
            _signed(out, self.signed(at, 4), 0x54, 0x71, 4)
            return at + 4
        if kind == 0x74:  # t
            out.append(0x41 if p[at] else 0x42)
            return at + 1
        if kind == 0x54:  # T
            _timestamp(out, self.signed(at, 8))
            return at + 8
        if kind == 0x69:  # i
            _uint(out, self.number(at, 4))
            return at + 4
        if kind == 0x64:  # d
            out.append(0x82)
            out += bytes(p[at : at + 8])
            return at + 8
        if kind == 0x66:  # f
            out.append(0x72)
            out += bytes(p[at : at + 4])
            return at + 4
        if kind == 0x62 or kind == 0x42:  # b, B
            out.append(0x51 if kind == 0x62 else 0x50)
            out.append(p[at])
            return at + 1
        if kind == 0x73 or kind == 0x75:  # s, u
            out.append(0x61 if kind == 0x73 else 0x60)
            out += bytes(p[at : at + 2])
            return at + 2
        if kind == 0x56:  # V
            out.append(0x40)
            return at
        assert kind == 0x44, kind  # D has no equal
        return at + 5

    @cython.cfunc
    def sized(self, kind: cython.uint, at: cython.Py_ssize_t, out: bytearray) -> cython.Py_ssize_t:
        """Append a string, binary, table or array from its size at `at` on; return its end."""
        end: cython.Py_ssize_t = at + 4 + self.number(at, 4)
        at += 4
        if kind == 0x53 or kind == 0x78:
            text: bytes = bytes(self.p[at:end])
            if kind == 0x53 and end - at <= STRING_BYTES_MAX:
                _text(out, text)
            else:
                _long_or_short(out, 0xA0, 0xB0, text)
            return end
        inner: bytearray = bytearray()
        count: cython.uint = 0
        before: cython.Py_ssize_t
        if kind == 0x41:
            while at < end:
                before = len(inner)
                at = self.value(at, inner)
                count += len(inner) > before
            _compound(out, 0xC0, 0xD0, count, inner)
            return end
        while at < end:
            at = self.named(at, inner)
            count += 2 if len(inner) > self.before else 0
        _compound(out, 0xC1, 0xD1, count, inner)
        return end

    @cython.cfunc
    def named(self, at: cython.Py_ssize_t, out: bytearray) -> cython.Py_ssize_t:
        """Append a table's entry with a symbol as its key, nothing where that cannot be."""
        before: cython.Py_ssize_t = len(out)
        start: cython.Py_ssize_t = at + 1
        name: bytes = bytes(self.p[start : start + self.p[at]])
        good: cython.bint = True
        if name.isascii():
            _long_or_short(out, 0xA3, 0xB3, name)
        elif _is_text(name):
            _string(out, name)
        else:
            good = False
        between: cython.Py_ssize_t = len(out)
        at = self.value(start + len(name), out)
        if not good or len(out) == between:
            del out[before:]
        self.before = before
        return at

    # -------------------------------------------------------------- headers

    @cython.cfunc
    def headers(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Divide the headers into message annotations and application properties."""
        p: cython.p_const_uchar = self.p
        size: cython.Py_ssize_t
        start: cython.Py_ssize_t
        mark: cython.Py_ssize_t
        kind: cython.uint
        while at < end:
            size = p[at]
            start = at + 1
            kind = p[start + size]
            name: bytes = bytes(p[start : start + size])
            if size > 1 and p[start] == 0x78 and p[start + 1] == 0x2D:  # x-
                at = self.annotation(name, start + size)
                continue
            if size == 2 and kind == 0x41 and name == b"CC" and not self.kept_annotations:
                _string_key(self.annotations, b"x-cc")
                at = self.value(start + size, self.annotations)
                self.annotation_count += 2
                continue
            mark = len(self.application)
            _string(self.application, name)
            size = len(self.application)
            at = self.value(start + len(name), self.application)
            if (
                self.kept_application
                or kind == 0x41
                or kind == 0x46
                or len(self.application) == size
                or not _is_text(name)
            ):
                del self.application[mark:]
            else:
                self.application_count += 2
        return 0

    @cython.cfunc
    def annotation(self, name: bytes, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append an x- header to the annotations; return the end of its value at `at`."""
        out: bytearray = self.annotations
        mark: cython.Py_ssize_t = len(out)
        between: cython.Py_ssize_t
        end: cython.Py_ssize_t
        if name == b"x-death" and self.p[at] == 0x41:
            end = at + 5 + self.number(at + 1, 4)
            deaths = encode_deaths(self.data[at:end])
            if deaths is not None and b"x-opt-deaths" not in self.given:
                _string_key(out, b"x-opt-deaths")
                out += deaths
                self.annotation_count += 2
                return end
        _string_key(out, name)
        between = len(out)
        end = self.value(at, out)
        if (
            len(out) == between
            or name in self.given
            or name in _OWN
            or name == b"x-basic-type"
            or not name.isascii()
            or (self.kept_annotations and not is_owned(name))
        ):
            del out[mark:]
        else:
            self.annotation_count += 2
        return end

    # -------------------------------------------------------------- sections

    @cython.cfunc
    def read(self, priority: cython.int, ttl: cython.longlong, header: bytearray) -> cython.int:
        """Read the properties: the header's first fields, headers, and the other ones' values."""
        p: cython.p_const_uchar = self.p
        there: cython.uint = p[0] << 8 | p[1]
        at: cython.Py_ssize_t = 2
        bit: cython.uint = 0x8000
        size: cython.Py_ssize_t
        durable: cython.bint = False
        while bit > 2:
            if there & bit:
                if bit == 0x2000:
                    size = self.number(at, 4)
                    self.headers(at + 4, at + 4 + size)
                    at += 4 + size
                elif bit == 0x1000:
                    durable = p[at] == 2
                    at += 1
                elif bit == 0x0800:
                    priority = p[at] if priority < 0 else priority
                    at += 1
                elif bit == 0x0040:
                    self.shorts[bit] = bytes(p[at : at + 8])
                    at += 8
                else:
                    self.shorts[bit] = bytes(p[at + 1 : at + 1 + p[at]])
                    at += 1 + p[at]
            bit >>= 1
        expiration = self.shorts.get(0x0100)
        if ttl < 0 and expiration is not None:
            ttl = expiration_ms(expiration)
        header.append(0x41 if durable else 0x42)
        if priority >= 0:
            header.append(0x50)
            header.append(priority)
        else:
            header.append(0x40)
        if ttl >= 0:
            _uint(header, ttl)
        else:
            header.append(0x40)
        return 0

    @cython.cfunc
    def properties(self, fields: bytearray) -> cython.int:
        """Append the properties, without nulls at the end; return their number."""
        used: cython.int = 0
        at: cython.int
        size: cython.Py_ssize_t = 0
        bit: cython.int
        shorts: dict = self.shorts
        for at in range(11):
            bit = _ORDER[at]
            text = shorts.get(bit) if bit else None
            if text is not None and self.property(bit, text, fields):
                used = at + 1
                size = len(fields)
            else:
                fields.append(0x40)
        del fields[size:]
        return used

    @cython.cfunc
    def typed(self) -> cython.int:
        """Append the type to the annotations, unless it says that the body is encoded."""
        kind = self.shorts.get(0x20)
        if kind is not None and kind != ENCODED_TYPE and _is_text(kind):
            _string_key(self.annotations, b"x-basic-type")
            _string(self.annotations, kind)
            self.annotation_count += 2
        return 0

    @cython.cfunc
    def property(self, bit: cython.int, text: bytes, out: bytearray) -> cython.bint:
        """Append a property's value; return False where it has none."""
        if bit == 0x40:
            _timestamp(out, int.from_bytes(text, "big", signed=True))
        elif bit == 0x10:
            _long_or_short(out, 0xA0, 0xB0, text)
        elif bit == 0x200:
            _string(out, QUEUES + quote_from_bytes(text, safe="").encode())
        elif bit == 0x8000 or bit == 0x4000:
            if not text.isascii():
                return False
            _long_or_short(out, 0xA3, 0xB3, text)
        elif bit == 0x08:
            if not _is_text(text):
                return False
            _string(out, text)
        else:
            uuid = uuid_of(text) if len(text) == UUID_BYTES else None
            if uuid is not None:
                out.append(0x98)
                out += uuid
            else:
                _text(out, text)
        return True


@cython.cfunc
def _string_key(out: bytearray, name: bytes) -> cython.int:
    """Append an annotation's key."""
    return _long_or_short(out, 0xA3, 0xB3, name)


def _unlike(
    data: memoryview, there: tuple[int, int, int, int] | None, count: int, content: bytearray
) -> bool:
    """Return whether a section differs from what would be written instead of it.

    Not by the width of its size, nor by nulls at the end of a list.
    """
    if there is None:
        return count > 0
    _, at, end, own = there
    nulls = own - count
    return nulls < 0 or bytes(data[at:end]) != bytes(content) + b"\x40" * nulls


def sections_to_keep(
    properties: bytes,
    data: memoryview,
    sections: dict[int, tuple[int, int, int, int]],
    pieces: tuple[tuple[int, int], ...],
) -> bytes:
    """Return the sections of a received message that its 0.9.1 properties would not give back.

    As they came, in their order; one that must not be made of the headers is an empty one. A data
    section follows with the lengths of the message's data sections, where it has several.
    """
    kept: list = []
    empty: bytes
    if 0x72 in sections or 0x73 in sections or 0x74 in sections:
        writer: _MessageWriter = _MessageWriter(properties, {})
        fields: bytearray = bytearray()
        writer.read(-1, -1, bytearray())
        writer.typed()
        used = writer.properties(fields)
        for code, count, content, empty in (
            (0x72, writer.annotation_count, writer.annotations, b"\xc1\x01\x00"),
            (0x73, used, fields, b"\x45"),
            (0x74, writer.application_count, writer.application, b"\xc1\x01\x00"),
        ):
            there = sections.get(code)
            if _unlike(data, there, count, content):
                section = b"\x00\x53%c%b" % (code, empty)
                kept.append(section if there is None else bytes(data[there[0] : there[2]]))
    lengths = [end - start for start, end in pieces] if len(pieces) > 1 else []
    if kept or lengths or 0x78 in sections:
        kept.append(b"\x00\x53\x75\xb0" + (4 * len(lengths)).to_bytes(4, "big"))
        kept += [length.to_bytes(4, "big") for length in lengths]
    if 0x78 in sections:
        kept.append(bytes(data[sections[0x78][0] : sections[0x78][2]]))
    return b"".join(kept)


@cython.cfunc
def _annotate(
    writer: _MessageWriter, exchange: bytes, routing_key: bytes, encoded: cython.bint, kept: Any
) -> cython.int:
    """Append the annotations that do not come from headers."""
    annotations: bytearray = writer.annotations
    if writer.kept_annotations:
        annotations += kept[1]
        writer.annotation_count += kept[0]
    else:
        writer.typed()
        if writer.shorts.get(0x20) == ENCODED_TYPE and not encoded:
            _string_key(annotations, b"x-basic-type")
            _string(annotations, ENCODED_TYPE)
            writer.annotation_count += 2
    for name, value in writer.given.items():
        _string_key(annotations, name)
        annotations += value
    _string_key(annotations, b"x-exchange")
    _text(annotations, exchange)
    _string_key(annotations, b"x-routing-key")
    _text(annotations, routing_key)
    writer.annotation_count += 4 + 2 * len(writer.given)
    return 0


def write_sections(
    properties: bytes,
    exchange: bytes,
    routing_key: bytes,
    header: tuple[int, int, bool, int],
    given: dict[bytes, bytes],
    encoded: bool,
    kept: Any = None,
) -> bytes:
    """Return the sections of a message that precede its body.

    properties      AMQP 0.9.1 flags and list; malformed ones are replaced (`properties.readable`)
    header          priority, ttl_ms (-1: as the properties), first acquirer, delivery count
    given           annotations set by the broker: name -> encoded value
    encoded         the body consists of encoded sections, as the type says
    kept            a KeptSections; None: nothing was kept
    """
    writer: _MessageWriter = _MessageWriter(readable(properties), given)
    first: bytearray = bytearray()
    priority, ttl_ms, first_acquirer, delivery_count = header
    if kept is not None:
        writer.kept_annotations = kept.annotations is not None
        writer.kept_application = kept.application is not None
    writer.read(priority, ttl_ms, first)
    first.append(0x41 if first_acquirer else 0x42)
    _uint(first, delivery_count)
    _annotate(writer, exchange, routing_key, encoded, None if kept is None else kept.annotations)
    out: bytearray = bytearray(b"\x00\x53\x70")
    _compound(out, 0xC0, 0xD0, 5, first)
    out += b"\x00\x53\x72"
    _compound(out, 0xC1, 0xD1, writer.annotation_count, writer.annotations)
    if kept is not None and kept.properties is not None:
        out += kept.properties
    else:
        fields: bytearray = bytearray()
        used: cython.int = writer.properties(fields)
        if used:
            out += b"\x00\x53\x73"
            _compound(out, 0xC0, 0xD0, used, fields)
    if writer.kept_application:
        out += kept.application
    elif writer.application_count:
        out += b"\x00\x53\x74"
        _compound(out, 0xC1, 0xD1, writer.application_count, writer.application)
    return bytes(out)
