# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What the broker reads from AMQP 0.9.1 properties without decoding them.

One source for both kernels: interpreted, `p` is the bytes; compiled, a pointer to them.
"""

from __future__ import annotations

import struct

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

if not cython.compiled:
    from warren_wire.kernel.octets import u32

    Size = int
else:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.warren_wire.kernel.compiled.octets import u32

from warren_wire.amqp091.fields import DEPTH_MAX

EXPIRATION_MS_MAX = 2**32 - 1
_EXPIRATION_MAX = cython.declare(cython.longlong, EXPIRATION_MS_MAX)
_NOTHING = cython.declare(cython.longlong, 0xFFFFFFFF)
_REPLY_TO = cython.declare(bytes, b"amq.rabbitmq.reply-to")
_LONG = struct.Struct(">cq")


@cython.cfunc
@cython.exceptval(check=False)
def value_end(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, depth: cython.int
) -> cython.Py_ssize_t:
    """Return the end of the field value at `at` (type octet first); -1 when it is malformed."""
    kind: cython.uchar
    size: cython.Py_ssize_t
    if at >= end:
        return -1
    kind = p[at]
    at += 1
    if kind in (0x53, 0x78, 0x46, 0x41):  # S long string, x bytes, F table, A array
        if end - at < 4:
            return -1
        size = u32(p, at)
        at += 4
        if size > end - at:
            return -1
        if kind == 0x46 and _table_flags(p, at, at + size, depth + 1) < 0:
            return -1
        if kind == 0x41 and not _array_valid(p, at, at + size, depth + 1):
            return -1
        return at + size
    if kind in (0x6C, 0x4C, 0x64, 0x54):  # l, L 64 bit, d double, T timestamp
        size = 8
    elif kind in (0x49, 0x69, 0x66):  # I, i 32 bit, f float
        size = 4
    elif kind in (0x74, 0x62, 0x42):  # t boolean, b, B 8 bit
        size = 1
    elif kind in (0x73, 0x75):  # s, u 16 bit
        size = 2
    elif kind == 0x44:  # D decimal
        size = 5
    elif kind == 0x56:  # V nothing
        size = 0
    else:
        return -1
    return at + size if size <= end - at else -1


@cython.cfunc
@cython.exceptval(check=False)
def _array_valid(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, depth: cython.int
) -> cython.bint:
    if depth > DEPTH_MAX:
        return False
    while at < end:
        at = value_end(p, at, end, depth)
        if at < 0:
            return False
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_deaths(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.bint:
    """Return whether the seven octets there are `x-death`."""
    if p[at] != 0x78 or p[at + 1] != 0x2D or p[at + 2] != 0x64:  # x-d
        return False
    return p[at + 3] == 0x65 and p[at + 4] == 0x61 and p[at + 5] == 0x74 and p[at + 6] == 0x68


@cython.cfunc
@cython.exceptval(check=False)
def _table_flags(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, depth: cython.int
) -> cython.int:
    """Return CC (a field CC or BCC) | HAS_DEATHS (x-death), 0: neither, -1: malformed."""
    found: cython.int = 0
    size: cython.Py_ssize_t
    if depth > DEPTH_MAX:
        return -1
    while at < end:
        size = p[at]
        if size >= end - at:
            return -1
        if size == 2 and p[at + 1] == 0x43 and p[at + 2] == 0x43:  # CC
            found |= 4
        elif size == 3 and p[at + 1] == 0x42 and p[at + 2] == 0x43 and p[at + 3] == 0x43:  # BCC
            found |= 4
        elif size == 7 and _is_deaths(p, at + 1):
            found |= 64
        at = value_end(p, at + 1 + size, end, depth)
        if at < 0:
            return -1
    return found


@cython.cfunc
@cython.exceptval(check=False)
def milliseconds(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, most: cython.longlong
) -> cython.longlong:
    """Do `expiration_ms` for the kernel: the text is p[at : at + size], up to `most` is a value."""
    total: cython.longlong = 0
    i: cython.Py_ssize_t
    start: cython.Py_ssize_t = at
    if size > 0 and p[at] == 0x2B:
        start += 1
    if start == at + size:
        return -1
    for i in range(start, at + size):
        if p[i] < 0x30 or p[i] > 0x39:
            return -1
        total = total * 10 + (p[i] - 0x30)
        if total > most:
            return -1
    return total


@cython.cfunc
@cython.exceptval(check=False)
def _short_string(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, bit: cython.uint
) -> cython.longlong:
    """Return what a short-string property contributes: flags << 40 | ttl_ms."""
    value: cython.longlong
    k: cython.Py_ssize_t
    if bit == 0x0100:  # expiration
        value = milliseconds(p, at, size, _EXPIRATION_MAX)
        if value < 0:
            return 0x1000FFFFFFFF  # BAD_EXPIRATION
        return value if value < 0xFFFFFFFF else 0xFFFFFFFE
    if bit == 0x0010:  # user_id
        return 0x0800FFFFFFFF  # USER_ID
    if bit == 0x0200 and size >= 21:  # reply_to
        for k in range(21):
            if p[at + k] != _REPLY_TO[k]:
                return _NOTHING
        return 0x2000FFFFFFFF  # DIRECT_REPLY_TO
    return _NOTHING


@cython.cfunc
@cython.exceptval(check=False)
def walk(p: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.longlong:
    """Do `examine` for the kernel's own modules: compiled, p points to `end` bytes."""
    if end < 2:
        return -1
    there: cython.uint = (p[0] << 8) | p[1]
    bit: cython.uint = 0x8000
    at: cython.Py_ssize_t = 2
    size: cython.Py_ssize_t
    inside: cython.int
    priority: cython.longlong = 0x84  # table.SILENT | table.PRIORITY_DEFAULT
    flags: cython.longlong = 0
    found: cython.longlong
    ttl: cython.longlong = _NOTHING
    if there & 3:  # a second word of flags, or a reserved bit
        return -1
    while bit > 2:
        if there & bit:
            if at >= end:
                return -1
            if bit == 0x2000:  # headers
                if end - at < 4:
                    return -1
                size = u32(p, at)
                at += 4
                inside = _table_flags(p, at, at + size, 0) if size <= end - at else -1
                if inside < 0:
                    return -1
                flags |= 2 | inside
                at += size
            elif bit == 0x1000:  # delivery_mode
                flags |= 1 if p[at] == 2 else 0
                at += 1
            elif bit == 0x0800:  # priority
                priority = p[at] if p[at] < 31 else 31
                at += 1
            elif bit == 0x0040:  # timestamp
                at += 8
            else:
                size = p[at]
                at += 1
                if size > end - at:
                    return -1
                found = _short_string(p, at, size, bit)
                flags |= found >> 40
                if bit == 0x0100:
                    ttl = found & 0xFFFFFFFF
                at += size
        bit >>= 1
    return (flags << 8 | priority) << 32 | ttl if at == end else -1


def examine(properties: bytes) -> int:
    """Return the properties' row fields, (flags << 8 | priority) << 32 | ttl_ms; -1: malformed.

    The priority has table.SILENT added where the properties have none.

    Nested tables are checked too: a later decoder can meet no error but bytes that are not UTF-8.
    """
    if cython.compiled:
        p: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(properties))
        return walk(p, len(properties))
    else:
        return walk(properties, len(properties))


@cython.cfunc
def is_text(p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    """Return whether p[at : at + size] is UTF-8."""
    text: bytes
    if cython.compiled:
        seen: cython.uchar = 0
        i: cython.Py_ssize_t
        for i in range(at, at + size):
            seen |= p[i]
        if seen < 0x80:
            return True
        text = p[at : at + size]
    else:
        text = bytes(p[at : at + size])
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def expiration_ms(text: bytes) -> int:
    """Return an expiration's milliseconds, 0 to 2**32 - 1; -1: it is none.

    Decimal digits of ASCII, also more of them than the value needs, with or without one plus sign
    before them, which RabbitMQ takes. Whatever reads an expiration reads it with this.
    """
    if cython.compiled:
        p: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(text))
        return milliseconds(p, 0, len(text), _EXPIRATION_MAX)
    else:
        return milliseconds(text, 0, len(text), _EXPIRATION_MAX)


UNREADABLE = "x-unreadable-properties"
"""The header that replaces malformed properties; its value: their bytes."""
UNREADABLE_BYTES_MAX = 1024
"""Maximum number of their bytes shown in it."""


def readable(properties: bytes | memoryview) -> bytes:
    """Return well-formed properties unchanged, others replaced by some that only hold UNREADABLE.

    Malformed properties are refused on entry. Those stored before that check existed, or written
    into the data directory by another program, must neither stop a queue nor be lost.
    """
    data = bytes(properties)
    if examine(data) >= 0:
        return data
    name, shown = UNREADABLE.encode(), data[:UNREADABLE_BYTES_MAX]
    value = b"x%b%b" % (len(shown).to_bytes(4, "big"), shown)
    field = b"%c%b%b" % (len(name), name, value)
    return b"\x20\x00%b%b" % (len(field).to_bytes(4, "big"), field)


SECTIONS = "x-warren-sections"
"""The header, always the first one, for what 0.9.1 properties cannot say of an AMQP 1.0 message.

No AMQP 0.9.1 client and no reader of columns sees it.
"""
_SECTIONS_FIELD = cython.declare(bytes, b"%c%bx" % (len(SECTIONS), SECTIONS.encode()))


@cython.cfunc
@cython.exceptval(check=False)
def own_headers(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return where the entries of a table from at to end begin that clients see.

    end  of the table's entries; what follows them in the properties belongs to other ones
    """
    k: cython.Py_ssize_t
    if end - at < 23:
        return at
    for k in range(19):
        if p[at + k] != _SECTIONS_FIELD[k]:
            return at
    return at + 23 + u32(p, at + 19)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _headers_at(p: cython.p_const_uchar) -> cython.Py_ssize_t:
    """Return where the headers of well-formed properties, which have some, begin: their length."""
    at: cython.Py_ssize_t = 2
    if p[0] & 0x80:  # content_type
        at += 1 + p[at]
    if p[0] & 0x40:  # content_encoding
        at += 1 + p[at]
    return at


@cython.cfunc
@cython.exceptval(check=False)
def sections_at(p: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return where the headers of well-formed properties begin if SECTIONS is there; 0: it is not.

    They begin with the u32 length of their table. Only what is inside the table counts: behind an
    empty one, a publisher's correlation_id and reply_to can hold the bytes of the header SECTIONS.
    """
    at: cython.Py_ssize_t
    after: cython.Py_ssize_t
    if not p[0] & 0x20:
        return 0
    at = _headers_at(p)
    if end - at < 4:
        return 0
    after = at + 4 + u32(p, at)
    return at if after <= end and own_headers(p, at + 4, after) > at + 4 else 0


def split_sections(properties: bytes) -> tuple[bytes, bytes]:
    """Return well-formed properties without the header SECTIONS, and its value."""
    at: cython.Py_ssize_t
    if cython.compiled:
        at = sections_at(
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(properties)), len(properties)
        )
    else:
        at = sections_at(properties, len(properties))
    if not at:
        return properties, b""
    first = at + 4 + len(_SECTIONS_FIELD) + 4
    end = first + int.from_bytes(properties[first - 4 : first], "big")
    size = int.from_bytes(properties[at : at + 4], "big") - (end - at - 4)
    if not size:
        flags = bytes((properties[0] & 0xDF, properties[1]))
        return flags + properties[2:at] + properties[end:], properties[first:end]
    head = properties[:at] + size.to_bytes(4, "big")
    return head + properties[end:], properties[first:end]


def with_sections(properties: bytes, kept: bytes) -> bytes:
    """Return well-formed properties with the header SECTIONS before all others."""
    at = 2
    for bit in (0x80, 0x40):
        if properties[0] & bit:
            at += 1 + properties[at]
    field = _SECTIONS_FIELD + len(kept).to_bytes(4, "big") + kept
    size, rest = len(field), properties[at:]
    if properties[0] & 0x20:
        size, rest = size + int.from_bytes(rest[:4], "big"), rest[4:]
    flags = bytes((properties[0] | 0x20, properties[1]))
    return b"".join((flags, properties[2:at], size.to_bytes(4, "big"), field, rest))


def deaths_last(properties: bytes) -> bytes:
    """Return well-formed properties that have headers with x-death behind the others.

    The headers stay byte for byte, and the others in their order; so do several x-death.
    """
    p: cython.p_uchar
    at: cython.Py_ssize_t
    after: cython.Py_ssize_t
    end: cython.Py_ssize_t
    kept: cython.Py_ssize_t = 0  # what is before it is in `others` or `deaths`
    others: list = []
    deaths: list = []
    if cython.compiled:
        p = cython.cast(cython.p_uchar, PyBytes_AS_STRING(properties))
    else:
        p = properties
    at = _headers_at(p)
    end = at + 4 + u32(p, at)
    at += 4
    while at < end:
        after = value_end(p, at + 1 + p[at], end, 0)
        assert after > at, (at, end, properties)
        if p[at] == 7 and _is_deaths(p, at + 1):
            others.append(properties[kept:at])
            deaths.append(properties[at:after])
            kept = after
        at = after
    if kept == end and len(deaths) == 1:
        return properties  # as clients send them that got them from this broker
    others.append(properties[kept:end])
    others += deaths
    others.append(properties[end:])
    return b"".join(others)


def user_id_of(properties: bytes) -> object:
    """Return the user_id's bytes; None: there is none. The properties are well formed."""
    p: cython.p_uchar
    at: cython.Py_ssize_t = 2
    bit: cython.uint = 0x8000
    there: cython.uint
    if cython.compiled:
        p = cython.cast(cython.p_uchar, PyBytes_AS_STRING(properties))
    else:
        p = properties
    there = (p[0] << 8) | p[1]
    if not there & 0x0010:
        return None
    while bit > 0x0010:
        if there & bit:
            if bit == 0x2000:  # headers
                at += 4 + u32(p, at)
            elif bit == 0x1000 or bit == 0x0800:  # delivery_mode, priority
                at += 1
            elif bit == 0x0040:  # timestamp
                at += 8
            else:
                at += 1 + p[at]
        bit >>= 1
    return properties[at + 1 : at + 1 + p[at]]


@cython.cclass
class HeaderChange:
    """Headers to be added to (or replaced in) the properties of many messages, encoded once.

    headers   names of at most 255 bytes to 64-bit integers
    """

    _names: dict
    _lengths: bytearray
    _added: bytes

    def __init__(self, headers: dict[str, int]) -> None:
        names = {name.encode(): value for name, value in headers.items()}
        assert all(len(name) <= 255 for name in names), headers
        self._names = names
        self._lengths = bytearray(256)
        for name in names:
            self._lengths[len(name)] = 1
        fields = [bytes((len(name),)) + name + _LONG.pack(b"l", v) for name, v in names.items()]
        self._added = b"".join(fields)

    def apply(self, data: bytes) -> bytes:
        """Return the changed properties; those given are well formed, as `examine` checks."""
        p: cython.p_uchar
        at: cython.Py_ssize_t
        after: cython.Py_ssize_t
        start: cython.Py_ssize_t = 2
        bit: cython.uint
        there: cython.uint
        if cython.compiled:
            p = cython.cast(cython.p_uchar, PyBytes_AS_STRING(data))
        else:
            p = data
        there = (p[0] << 8) | p[1]
        for bit in (0x8000, 0x4000):  # content_type, content_encoding come before the headers
            if there & bit:
                start += 1 + p[start]
        end: cython.Py_ssize_t = start
        kept: bytes = b""
        if there & 0x2000:
            at = start + 4
            end = at + u32(p, start)
            kept = data[at:end]
            while at < end:
                after = value_end(p, at + 1 + p[at], end, 0)
                if self._lengths[p[at]] and data[at + 1 : at + 1 + p[at]] in self._names:
                    kept = self._others(data, start + 4, end)
                    break
                at = after
        flags = (there | 0x2000).to_bytes(2, "big")
        size = (len(kept) + len(self._added)).to_bytes(4, "big")
        return b"".join((flags, data[2:start], size, kept, self._added, data[end:]))

    @cython.cfunc
    def _others(self, data: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bytes:
        """Return the fields of a table that are not replaced."""
        p: cython.p_uchar
        after: cython.Py_ssize_t
        fields: list = []
        if cython.compiled:
            p = cython.cast(cython.p_uchar, PyBytes_AS_STRING(data))
        else:
            p = data
        while at < end:
            after = value_end(p, at + 1 + p[at], end, 0)
            if data[at + 1 : at + 1 + p[at]] not in self._names:
                fields.append(data[at:after])
            at = after
        return b"".join(fields)


def with_headers(properties: bytes | memoryview, headers: dict[str, int]) -> bytes:
    """Return the properties with these 64-bit integers added to or replaced in their headers.

    Malformed ones are replaced first (`readable`).
    """
    return HeaderChange(headers).apply(readable(properties))
