# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""An order-independent digest of messages.

One source for both kernels: interpreted, the library's CRC-32 runs over each; compiled, the
same checksum is computed here, eight bytes at a time, without an object per message, but for large
bodies.
"""

from __future__ import annotations

from typing import Any

from warren_wire.block.layout import Buffer
from warren_wire.checksum import crc32

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.kernel.table import ROW, Selection

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING

_MODULUS = 1 << 63
_WEIGHT = 0x1E3779B97F4A7C15
_LARGE_BYTES = 512
"""A body from which on the library's checksum is faster, the call of Python included."""

if cython.compiled:
    _tables = cython.declare(cython.uint[2048])  # type: ignore[misc]


def content_digest(selection: Selection) -> int:
    """Return a digest below 2^63 of messages: their routes, properties and bodies.

    The digests of selections added up, modulo 2^63, are the digest of all their messages, however
    they are cut into blocks and whatever their order: after a shuffle Spark runs a batch again with
    the same rows in another order. Each message counts by its CRC-32 and the square of it, so that
    two changes that cancel each other in a sum of checksums do not cancel here. It detects
    accidental differences; it does not resist an attacker, but a sink's writer could only deceive
    itself.
    """
    if not len(selection):
        return 0
    seeds = [
        crc32(route.routing_key, crc32(route.exchange)) for route in selection.table.routes.entries
    ]
    if cython.compiled:
        return _compiled(selection, seeds)
    table = selection.table
    rows = memoryview(table.rows).cast("I")
    properties, bodies = memoryview(table.properties), memoryview(table.bodies)
    total = squares = 0
    for i in selection:
        first = rows[5 * i - 4 : 5 * i - 2] if i else (0, 0)
        crc = crc32(properties[first[0] : rows[5 * i + 1]], seeds[rows[5 * i]])
        crc = crc32(bodies[first[1] : rows[5 * i + 2]], crc)
        total += crc
        squares += crc * crc
    return (squares + _WEIGHT * total) % _MODULUS


@cython.cfunc
def _compiled(selection: Selection, seeds: list) -> Any:
    """Compute the digest per message; sums wrap at 2^64, a multiple of the modulus 2^63."""
    table = selection.table
    words: bytearray = table.rows
    assert len(words) == table.count * ROW.size, (len(words), table.count)
    rows: cython.p_uint = cython.cast(cython.p_uint, PyByteArray_AS_STRING(words))
    area: Buffer = memoryview(table.bodies)
    properties: cython.const[cython.uchar][::1] = _never_empty(table.properties)
    bodies: cython.const[cython.uchar][::1] = _never_empty(area)
    assert rows[5 * table.count - 4] <= len(table.properties), "rows beyond the properties"
    assert rows[5 * table.count - 3] <= len(area), "rows beyond the bodies"
    each: object = selection.indices
    indices: cython.const[cython.uint][::1] = each
    listed: cython.bint = each is not None
    first: cython.Py_ssize_t = selection.first
    size: cython.Py_ssize_t = len(selection)
    large: cython.uint = _LARGE_BYTES
    k: cython.Py_ssize_t
    i: cython.Py_ssize_t
    crc: cython.uint
    route: cython.longlong = -1
    seed: cython.uint = 0
    start: cython.uint
    end: cython.uint
    total: cython.ulonglong = 0
    squares: cython.ulonglong = 0
    for k in range(size):
        i = indices[k] if listed else first + k
        start = rows[5 * i - 4] if i else 0
        if rows[5 * i] != route:
            route = rows[5 * i]
            seed = seeds[route]
        crc = _crc32(cython.address(properties[0]) + start, rows[5 * i + 1] - start, seed)
        start = rows[5 * i - 3] if i else 0
        end = rows[5 * i + 2]
        if end - start >= large:
            crc = crc32(area[start:end], crc)
        else:
            crc = _crc32(cython.address(bodies[0]) + start, end - start, crc)
        total += crc
        squares += cython.cast(cython.ulonglong, crc) * crc
    return (squares + _WEIGHT * total) % _MODULUS


def _never_empty(area: Buffer) -> Buffer:
    """Return an area, or a byte in the place of one without any, so that it has an address."""
    return area if len(area) else memoryview(b"\0")


@cython.cfunc
@cython.exceptval(check=False)
def _crc32(
    p: cython.pointer(cython.const[cython.uchar]), size: cython.uint, before: cython.uint
) -> cython.uint:
    """Return zlib's checksum of `size` bytes, continued from `before` (slicing by eight)."""
    crc: cython.uint = ~before
    at: cython.uint = 0
    while size - at >= 8:
        crc ^= (
            p[at]
            | cython.cast(cython.uint, p[at + 1]) << 8
            | cython.cast(cython.uint, p[at + 2]) << 16
            | cython.cast(cython.uint, p[at + 3]) << 24
        )
        crc = (
            _tables[1792 + (crc & 0xFF)]
            ^ _tables[1536 + (crc >> 8 & 0xFF)]
            ^ _tables[1280 + (crc >> 16 & 0xFF)]
            ^ _tables[1024 + (crc >> 24)]
            ^ _tables[768 + p[at + 4]]
            ^ _tables[512 + p[at + 5]]
            ^ _tables[256 + p[at + 6]]
            ^ _tables[p[at + 7]]
        )
        at += 8
    while at < size:
        crc = crc >> 8 ^ _tables[(crc ^ p[at]) & 0xFF]
        at += 1
    return ~crc


def _fill() -> None:
    """Fill the tables; table k holds the checksum's register after a byte and k zeros."""
    values = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        values.append(value)
    for table in range(8):
        for byte in range(256):
            _tables[256 * table + byte] = values[byte]
        values = [value >> 8 ^ _tables[value & 0xFF] for value in values]


if cython.compiled:
    _fill()
