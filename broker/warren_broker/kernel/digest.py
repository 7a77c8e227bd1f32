# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# mypy: ignore-errors
"""An order-independent digest of the messages of a block.

One source for both kernels: interpreted, `map` runs the CRC-32 over the messages; compiled, the
same checksum is computed here, eight bytes at a time, without an object per message, but for large
bodies.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, repeat, starmap
from operator import mul

from warren_raft.checksum import crc32

try:
    import cython
except ImportError:
    from warren_broker.kernel import no_cython as cython

from warren_broker.block.block import Block

_MODULUS = 1 << 63
_WEIGHT = 0x1E3779B97F4A7C15
_LARGE_BYTES = 512
"""A body from which on the library's checksum is faster, the call of Python included."""

if cython.compiled:
    _tables = cython.declare(cython.uint[2048])


def content_digest(data: bytes | memoryview) -> int:
    """Return a digest below 2^63 of an encoded block's messages: routes, properties, bodies.

    The digests of blocks added up, modulo 2^63, are the digest of all their messages, however they
    are cut into blocks and whatever their order: after a shuffle Spark runs a batch again with the
    same rows in another order. Each message counts by its CRC-32 and the square of it, so that two
    changes that cancel each other in a sum of checksums do not cancel here. It detects accidental
    differences; it does not resist an attacker, but a sink's writer could only deceive itself.
    """
    block = Block.decode(data, verify=False)
    if not block.count:
        return 0
    routes = [crc32(key, crc32(exchange)) for exchange, key in block.routes]
    if cython.compiled:
        return _compiled(block, routes)
    column = block.route_column
    seeds = repeat(routes[0]) if column is None else map(routes.__getitem__, column)
    heads = map(crc32, _items(block.properties_data, block.properties_offsets), seeds)
    sums = list(map(crc32, _items(block.body_data, block.body_offsets), heads))
    return (sum(map(mul, sums, sums)) + _WEIGHT * sum(sums)) % _MODULUS


def _items(area: memoryview, offsets: memoryview) -> Iterable[memoryview]:
    """Iterate over the items of an area, as views."""
    return map(area.__getitem__, starmap(slice, pairwise(offsets)))


@cython.cfunc
def _compiled(block: object, routes: list) -> object:
    """Compute the digest per message; sums wrap at 2^64, a multiple of the modulus 2^63."""
    heads: cython.const[cython.uint][::1] = block.properties_offsets
    ends: cython.const[cython.uint][::1] = block.body_offsets
    properties: cython.const[cython.uchar][::1] = bytes(block.properties_data) + b"\0"
    bodies: cython.const[cython.uchar][::1] = (
        block.body_data if len(block.body_data) else memoryview(b"\0")
    )
    several: cython.bint = block.route_column is not None
    column: cython.const[cython.uint][::1] = block.route_column if several else heads
    seed: cython.uint = routes[0]
    area: object = block.body_data
    large: cython.uint = _LARGE_BYTES
    i: cython.Py_ssize_t
    count: cython.Py_ssize_t = block.count
    crc: cython.uint
    total: cython.ulonglong = 0
    squares: cython.ulonglong = 0
    for i in range(count):
        if several:
            seed = routes[column[i]]
        crc = _crc32(cython.address(properties[0]) + heads[i], heads[i + 1] - heads[i], seed)
        if ends[i + 1] - ends[i] >= large:
            crc = crc32(area[ends[i] : ends[i + 1]], crc)
        else:
            crc = _crc32(cython.address(bodies[0]) + ends[i], ends[i + 1] - ends[i], crc)
        total += crc
        squares += cython.cast(cython.ulonglong, crc) * crc
    return (squares + _WEIGHT * total) % _MODULUS


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
