# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""AMQP 0.9.1 property lists as columns: one pass, without a Python object per message.

The columns have Arrow's layout (offsets and values in the machine's order, validity bitmaps with
the least significant bit first): the connector wraps them without a copy. See
https://arrow.apache.org/docs/format/Columnar.html

One source for both kernels: interpreted, `p` is the bytes; compiled, a pointer to them.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import Any

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.block.layout import Buffer

if not cython.compiled:
    from warren_wire.kernel.properties import Size, is_text, own_headers, value_end, walk
else:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.libc.string import memcmp, memcpy
    from cython.cimports.warren_wire.kernel.compiled.properties import (
        Size,
        is_text,
        own_headers,
        value_end,
        walk,
    )

_PROPERTIES = 14
_HEADERS, _DELIVERY_MODE, _PRIORITY, _TIMESTAMP = 2, 3, 4, 9
"""Numbers of the properties that are not short strings: content_type is 0, cluster_id 13."""
_MICROS = cython.declare(cython.ulonglong, 1_000_000)
_SECONDS_MAX = cython.declare(cython.ulonglong, (2**63 - 1) // 1_000_000)
_WIDTH_BYTES = {_DELIVERY_MODE: 4, _PRIORITY: 4, _TIMESTAMP: 8}

HEADER_KINDS = ("string", "long", "double", "boolean", "binary", "timestamp", "void")
"""What a header value can be; `Entries.kinds` has positions in this."""
_STRING = cython.declare(cython.longlong, 0)
_LONG = cython.declare(cython.longlong, 1)
_DOUBLE = cython.declare(cython.longlong, 2)
_BOOLEAN = cython.declare(cython.longlong, 3)
_BINARY = cython.declare(cython.longlong, 4)
_TIME = cython.declare(cython.longlong, 5)
_VOID = cython.declare(cython.longlong, 6)
_ENTRIES_MAX = cython.declare(cython.longlong, 64)
"""Maximum of headers of a message, which are compared with each other for repeated names."""


@cython.cclass
class Column:
    """One property of every message.

    validity  bit i: message i has it; nulls: how many have not
    values    numbers: 4 bytes each (delivery_mode, priority) or 8 (timestamp, microseconds)
    offsets   texts and headers: count + 1 offsets of 4 bytes into `data`
    plain     texts: all of ASCII
    """

    validity = cython.declare(bytearray, visibility="readonly")
    values = cython.declare(bytearray, visibility="readonly")
    offsets = cython.declare(bytearray, visibility="readonly")
    data = cython.declare(bytearray, visibility="readonly")
    nulls = cython.declare(cython.Py_ssize_t, visibility="readonly")
    plain = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _starts: bytearray
    _total: cython.Py_ssize_t

    def __init__(self, number: int, count: int) -> None:
        self.validity = bytearray((count + 7) // 8)
        self.nulls, self.plain, self._total = count, True, 0
        width: Size = _WIDTH_BYTES.get(number, 0)
        self.values = bytearray(width * count)
        self.offsets = bytearray(0 if width else 4 * (count + 1))
        self._starts = bytearray(0 if width else 4 * count)
        self.data = bytearray()

    @cython.cfunc
    def span(self, i: Size, start: Size, size: Size) -> None:
        """Note where a present text of message `i` stands."""
        _put4(self._starts, i, start)
        self._total += size
        self.present(i)

    @cython.cfunc
    def present(self, i: Size) -> None:
        """Mark message `i` as one that has the property."""
        if cython.compiled:
            bits: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.validity))
            bits[i >> 3] |= 1 << (i & 7)
        else:
            self.validity[i >> 3] |= 1 << (i & 7)
        self.nulls -= 1

    @cython.cfunc
    def number(self, i: Size, value: cython.ulonglong, width: cython.int) -> None:
        """Put the number of message `i`."""
        if width == 4:
            _put4(self.values, i, value)
        else:
            _put8(self.values, i, value)
        self.present(i)

    @cython.cfunc
    def end(self, i: Size) -> None:
        """Put the offset behind message `i`."""
        _put4(self.offsets, i + 1, self._total)

    @cython.cfunc
    def gather(self, p: cython.p_const_uchar, count: Size) -> None:
        """Copy the noted texts behind one another."""
        i: Size
        at: Size
        end: Size = 0
        begin: Size
        self.data = bytearray(self._total)
        if cython.compiled:
            starts: cython.p_uint = cython.cast(cython.p_uint, PyByteArray_AS_STRING(self._starts))
            ends: cython.p_uint = cython.cast(cython.p_uint, PyByteArray_AS_STRING(self.offsets))
            target: cython.p_char = PyByteArray_AS_STRING(self.data)
            seen: cython.uchar = 0
            k: Size
            for i in range(count):
                begin = end
                end = ends[i + 1]
                if end > begin:
                    at = starts[i]
                    memcpy(target + begin, p + at, end - begin)
                    for k in range(at, at + end - begin):
                        seen |= p[k]
            self.plain = seen < 128
        else:
            begins, all_ends = memoryview(self._starts).cast("I"), memoryview(self.offsets)
            all_ends = all_ends.cast("I")
            for i in range(count):
                begin, end = end, all_ends[i + 1]
                self.data[begin:end] = p[begins[i] : begins[i] + end - begin]
            self.plain = self.data.isascii()
        self._starts = bytearray()


def split_properties(offsets: Any, data: Buffer, count: int, wanted: Sequence[bool]) -> tuple:
    """Return the wanted properties of `count` property lists, and the lists that are malformed.

    offsets  count + 1 ascending offsets of 32 bits into data, a memoryview of format "I" or "i"
    data     the property lists, bytes-like
    wanted   14 booleans, one per property in the order of `properties.NAMES`
    returns  (14 Columns, None where not wanted; list of message numbers). A list is malformed if
             the broker's codec refuses it, or if its timestamp exceeds what microseconds in 64 bits
             can hold. A malformed list has no property.
    """
    area: bytes = bytes(data)
    ends: list = offsets.tolist()
    columns: list = [Column(k, count) if wanted[k] else None for k in range(_PROPERTIES)]
    used: list = [c for c in columns if c is not None and len(c.offsets)]
    bad: list = []
    p: cython.p_uchar
    i: Size
    total: Size = count
    at: Size
    end: Size = ends[0]
    column: Column
    if cython.compiled:
        p = cython.cast(cython.p_uchar, PyBytes_AS_STRING(area))
    else:
        p = area
    for i in range(total):
        at = end
        end = ends[i + 1]
        if not _one(p, at, end, i, columns):
            bad.append(i)
        for column in used:
            column.end(i)
    for column in used:
        column.gather(p, total)
    return columns, bad


@cython.cfunc
def _one(p: cython.p_const_uchar, at: Size, end: Size, i: Size, columns: list) -> cython.bint:
    """Read one list; False: malformed, and nothing of it was noted."""
    there: cython.uint
    k: Size
    size: Size
    value: cython.ulonglong
    column: Column
    if cython.compiled:
        if walk(p + at, end - at) < 0:
            return False
    else:
        if walk(p[at:end], end - at) < 0:
            return False
    there = (p[at] << 8) | p[at + 1]
    at += 2
    if there & 0x0040 and columns[9] is not None and not _in_range(p, at, there):
        return False
    for k in range(14):
        if not there & (0x8000 >> k):
            continue
        column = columns[k]
        if k == 2:  # headers
            size = _unsigned(p, at, 4)
            if column is not None:
                column.span(i, at + 4, size)
            at += 4 + size
        elif k == 3 or k == 4:  # delivery_mode, priority
            if column is not None:
                column.number(i, p[at], 4)
            at += 1
        elif k == 9:  # timestamp
            if column is not None:
                value = _unsigned(p, at, 8)
                column.number(i, value * _MICROS, 8)
            at += 8
        else:
            size = p[at]
            if column is not None:
                column.span(i, at + 1, size)
            at += 1 + size
    return True


@cython.cfunc
def _in_range(p: cython.p_const_uchar, at: Size, there: cython.uint) -> cython.bint:
    """Return whether the timestamp of a well-formed list fits microseconds in 64 bits."""
    k: Size
    for k in range(9):
        if there & (0x8000 >> k):
            if k == 2:
                at += 4 + _unsigned(p, at, 4)
            elif k == 3 or k == 4:
                at += 1
            else:
                at += 1 + p[at]
    return _unsigned(p, at, 8) <= _SECONDS_MAX


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _unsigned(p: cython.p_const_uchar, at: Size, size: cython.int) -> cython.ulonglong:
    value: cython.ulonglong = 0
    i: cython.int
    for i in range(size):
        value = value << 8 | p[at + i]
    return value


# ------------------------------------------------------------------ headers


@cython.cclass
class Entries:
    """The entries of many header tables, one after another.

    ends    count + 1 offsets of 4 bytes: the entries of message i are ends[i] to ends[i + 1]
    kinds   an octet per entry: a position in HEADER_KINDS
    names   the names behind one another, and total + 1 offsets of 4 bytes
    texts   the same of the strings and binaries, empty for the others
    longs   8 bytes per entry: integers, 0 or 1 of a boolean, microseconds; otherwise 0
    doubles 8 bytes per entry; 0 for what is none
    """

    ends = cython.declare(bytearray, visibility="readonly")
    kinds = cython.declare(bytearray, visibility="readonly")
    name_offsets = cython.declare(bytearray, visibility="readonly")
    names = cython.declare(bytearray, visibility="readonly")
    text_offsets = cython.declare(bytearray, visibility="readonly")
    texts = cython.declare(bytearray, visibility="readonly")
    longs = cython.declare(bytearray, visibility="readonly")
    doubles = cython.declare(bytearray, visibility="readonly")
    total = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _names_end: cython.Py_ssize_t
    _texts_end: cython.Py_ssize_t

    def __init__(self, count: int, total: int, names_bytes: int, texts_bytes: int) -> None:
        self.total = total
        self.ends = bytearray(4 * (count + 1))
        self.kinds = bytearray(total)
        self.name_offsets, self.names = bytearray(4 * (total + 1)), bytearray(names_bytes)
        self.text_offsets, self.texts = bytearray(4 * (total + 1)), bytearray(texts_bytes)
        self.longs, self.doubles = bytearray(8 * total), bytearray(8 * total)
        self._names_end = self._texts_end = 0

    @cython.cfunc
    def entry(self, e: Size, p: cython.p_const_uchar, at: Size) -> Size:
        """Put entry `e`, which stands at `at`; return the position of the next one."""
        size: Size = p[at]
        _copy(self.names, self._names_end, p, at + 1, size)
        self._names_end += size
        _put4(self.name_offsets, e + 1, self._names_end)
        at += 1 + size
        code: cython.uchar = p[at]
        kind: cython.int = _kind(p, at)
        at += 1
        if kind in (_STRING, _BINARY):
            size = _unsigned(p, at, 4)
            at += 4
            _copy(self.texts, self._texts_end, p, at, size)
            self._texts_end += size
        elif kind == _DOUBLE:
            size = 4 if code == 0x66 else 8
            _put_double(self.doubles, e, p, at, size)
        elif kind != _VOID:
            size = _integer_bytes(code)
            _put8(self.longs, e, _integer(p, at, size, code))
        else:
            size = 0
        self.kinds[e] = kind
        _put4(self.text_offsets, e + 1, self._texts_end)
        return at + size


def header_entries(offsets: Buffer, data: Buffer, count: int) -> Entries | None:
    """Return the Entries of `count` well-formed header tables, without their u32 lengths.

    None when one of them has what needs more than a column each: a value of type D, F or A, a
    timestamp beyond what microseconds in 64 bits can hold, a name that is not UTF-8 or stands
    twice in its table, more than 64 entries.

    offsets  count + 1 offsets of 4 bytes
    """
    area: bytes = bytes(data)
    bounds: list = memoryview(offsets).cast("I").tolist()
    p: cython.p_uchar
    i: Size
    at: Size
    end: Size
    e: Size = 0
    total: Size = 0
    names_bytes: Size = 0
    texts_bytes: Size = 0
    inside: Size
    if cython.compiled:
        p = cython.cast(cython.p_uchar, PyBytes_AS_STRING(area))
    else:
        p = area
    for i in range(count):
        end = bounds[i + 1]
        at = own_headers(p, bounds[i], end)
        inside = _simple_entries(p, at, end)
        if inside < 0:
            return None
        total += inside
        while at < end:
            names_bytes += p[at]
            at += 1 + p[at]
            if p[at] == 0x53 or p[at] == 0x78:  # S, x
                texts_bytes += _unsigned(p, at + 1, 4)
            at = value_end(p, at, end, 0)
    made: Entries = Entries(count, total, names_bytes, texts_bytes)
    for i in range(count):
        end = bounds[i + 1]
        at = own_headers(p, bounds[i], end)
        while at < end:
            at = made.entry(e, p, at)
            e += 1
        _put4(made.ends, i + 1, e)
    return made


@cython.cfunc
def _simple_entries(p: cython.p_const_uchar, at: Size, end: Size) -> Size:
    """Return the number of entries of a table; -1 when one needs more than columns."""
    seen: Size = 0
    start: Size = at
    other: Size
    size: Size
    while at < end:
        size = p[at]
        seen += 1
        if seen > _ENTRIES_MAX or _kind(p, at + 1 + size) < 0:
            return -1
        if not is_text(p, at + 1, size):
            return -1
        other = start
        while other < at:
            if p[other] == size and _same(p, other + 1, at + 1, size):
                return -1
            other = value_end(p, other + 1 + p[other], end, 0)
        at = value_end(p, at + 1 + size, end, 0)
    return seen


@cython.cfunc
def _kind(p: cython.p_const_uchar, at: Size) -> cython.int:
    """Return the position in HEADER_KINDS of a value with its type octet at `at`; -1: none."""
    code: cython.uchar = p[at]
    if code == 0x53:  # S
        size: Size = _unsigned(p, at + 1, 4)
        return _STRING if is_text(p, at + 5, size) else _BINARY
    if code == 0x78:  # x
        return _BINARY
    if code == 0x66 or code == 0x64:  # f, d
        return _DOUBLE
    if code == 0x74:  # t
        return _BOOLEAN
    if code == 0x54:  # T
        return _TIME if _unsigned(p, at + 1, 8) <= _SECONDS_MAX else -1
    if code == 0x56:  # V
        return _VOID
    return _LONG if _integer_bytes(code) else -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _integer_bytes(code: cython.uchar) -> cython.int:
    """Return the bytes of a type that is read as an integer; 0: it is none."""
    if code in (0x62, 0x42, 0x74):  # b, B, t
        return 1
    if code in (0x73, 0x75):  # s, u
        return 2
    if code in (0x49, 0x69):  # I, i
        return 4
    if code in (0x6C, 0x4C, 0x54):  # l, L, T
        return 8
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _integer(
    p: cython.p_const_uchar, at: Size, size: cython.int, code: cython.uchar
) -> cython.longlong:
    """Return an integer, microseconds of a timestamp, 0 or 1 of a boolean."""
    value: cython.ulonglong = _unsigned(p, at, size)
    if code == 0x74:
        return 1 if value else 0
    if code == 0x54:
        return value * _MICROS
    if code in (0x62, 0x73, 0x49, 0x6C, 0x4C) and p[at] & 0x80:  # signed: b, s, I, l, L
        if not cython.compiled:
            return value - (1 << 8 * size)
        if size < 8:
            return cython.cast(cython.longlong, value) - (
                cython.cast(cython.longlong, 1) << 8 * size
            )
    return cython.cast(cython.longlong, value)


@cython.cfunc
@cython.exceptval(check=False)
def _same(p: cython.p_const_uchar, a: Size, b: Size, size: Size) -> cython.bint:
    if cython.compiled:
        return memcmp(p + a, p + b, size) == 0
    else:
        return p[a : a + size] == p[b : b + size]


@cython.cfunc
def _copy(area: bytearray, to: Size, p: cython.p_const_uchar, at: Size, size: Size) -> None:
    if cython.compiled:
        memcpy(PyByteArray_AS_STRING(area) + to, p + at, size)
    else:
        area[to : to + size] = p[at : at + size]


@cython.cfunc
def _put4(area: bytearray, i: Size, value: Size) -> None:
    if cython.compiled:
        cython.cast(cython.p_uint, PyByteArray_AS_STRING(area))[i] = value
    else:
        memoryview(area).cast("I")[i] = value


@cython.cfunc
def _put8(area: bytearray, i: Size, value: cython.longlong) -> None:
    if cython.compiled:
        cython.cast(cython.p_longlong, PyByteArray_AS_STRING(area))[i] = value
    else:
        memoryview(area).cast("q")[i] = value


@cython.cfunc
def _put_double(
    area: bytearray, i: Size, p: cython.p_const_uchar, at: Size, size: cython.int
) -> None:
    bits: cython.ulonglong = _unsigned(p, at, size)
    if cython.compiled:
        small: cython.float = 0
        low: cython.uint = cython.cast(cython.uint, bits)
        if size == 4:
            memcpy(cython.address(small), cython.address(low), 4)
            cython.cast(cython.p_double, PyByteArray_AS_STRING(area))[i] = small
        else:
            cython.cast(cython.p_ulonglong, PyByteArray_AS_STRING(area))[i] = bits
    else:
        (memoryview(area).cast("d"))[i] = struct.unpack(
            "f" if size == 4 else "d", bits.to_bytes(size, sys.byteorder)
        )[0]
