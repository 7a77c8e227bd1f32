# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""A block from a client's columns, in one pass over each.

One source for both kernels: interpreted, `block_encoding.encode_columns` does it; compiled, the
same bytes are made without a Python object per message. What the one pass does not take, or finds
wrong, is given to `encode_columns`, which has the checks' texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warren_wire.block.layout import Buffer

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.block.block_encoding import encode_columns
from warren_wire.block.layout import (
    BLOCK_BYTES_MAX,
    COLUMN_ROUTE,
    COLUMN_TTL,
    FORM_AMQP091,
    HEADER_BYTES,
    MESSAGE_BYTES_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    RUN,
    descending,
    encode_head,
    encode_routes,
    runs_of,
)
from warren_wire.checksum import crc32

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy, memset

_head = cython.declare(cython.Py_ssize_t, HEADER_BYTES)
_bytes_max = cython.declare(cython.ulonglong, BLOCK_BYTES_MAX)


def block_of_columns(
    *,
    count: int,
    properties_offsets: Buffer,
    properties_data: Buffer,
    body_offsets: Buffer,
    body_data: Buffer,
    routes: Sequence[tuple[bytes, bytes]],
    route_column: Buffer | None = None,
    ttl_column: Buffer | None = None,
    priorities: Any = PRIORITY_DEFAULT,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
) -> bytes:
    """Encode a block of AMQP 0.9.1 messages as `encode_columns` does; raises what it raises."""
    if cython.compiled:
        making: _Making = _Making(count, route_column, ttl_column)
        if (
            making.takes(routes, priorities)
            and making.properties.measure(properties_offsets, properties_data, count, _bytes_max)
            and making.bodies.measure(body_offsets, body_data, count, message_bytes_max)
            and making.properties.size + making.bodies.size <= _bytes_max
        ):
            return making.block()
    return encode_columns(
        count=count,
        properties_offsets=properties_offsets,
        properties_data=properties_data,
        body_offsets=body_offsets,
        body_data=body_data,
        routes=routes,
        route_column=route_column,
        ttl_column=ttl_column,
        priorities=priorities,
        message_bytes_max=message_bytes_max,
    )


@cython.cclass
class _Area:
    """One area of the block: the offsets and the data that it is copied from."""

    _held: tuple
    _words: cython.p_const_uchar
    _data: cython.p_const_uchar
    size: cython.ulonglong

    @cython.cfunc
    def measure(
        self, offsets: Buffer, data: Buffer, count: cython.Py_ssize_t, largest: cython.ulonglong
    ) -> cython.bint:
        """Take the buffers; False: they contradict each other, or a value is above `largest`."""
        numbers = memoryview(offsets).cast("B")
        area = memoryview(data).cast("B") if len(data) else memoryview(b"")
        if len(numbers) != 4 * (count + 1):
            return False
        self._held = (numbers, area)
        words: cython.const[cython.uchar][::1] = numbers
        self._words = cython.cast(cython.p_const_uchar, cython.address(words[0]))
        self._data = cython.NULL
        if len(area):
            octets: cython.const[cython.uchar][::1] = area
            self._data = cython.cast(cython.p_const_uchar, cython.address(octets[0]))
        first: cython.uint = _word(self._words)
        at: cython.uint = first
        end: cython.uint
        i: cython.Py_ssize_t
        for i in range(1, count + 1):
            end = _word(self._words + 4 * i)
            if end < at or end - at > largest:
                return False
            at = end
        self.size = at - first
        return at <= len(area)

    @cython.cfunc
    def copy(
        self, count: cython.Py_ssize_t, offsets: cython.p_uchar, out: cython.p_uchar
    ) -> cython.bint:
        """Write offsets from 0 on, and the data; False: the buffers have changed since."""
        first: cython.uint = _word(self._words)
        shifted: cython.uint = 0
        i: cython.Py_ssize_t
        for i in range(count + 1):
            shifted = _word(self._words + 4 * i) - first
            memcpy(offsets + 4 * i, cython.address(shifted), 4)
        if shifted != self.size or first + self.size > len(self._held[1]):
            return False
        if self.size:
            memcpy(out, self._data + first, self.size)
        return True


@cython.cclass
class _Making:
    """The block being made."""

    count: cython.Py_ssize_t
    properties: _Area
    bodies: _Area
    _route_column: Buffer | None
    _ttl_column: Buffer | None
    _routes: Sequence[tuple[bytes, bytes]]
    _runs: Sequence[tuple[int, int, int]]

    def __init__(self, count: int, route_column: Buffer | None, ttl_column: Buffer | None) -> None:
        self.count = count
        self.properties, self.bodies = _Area(), _Area()
        self._route_column, self._ttl_column = route_column, ttl_column

    @cython.cfunc
    def takes(self, routes: Sequence[tuple[bytes, bytes]], priorities: Any) -> cython.bint:
        """Take the small columns; False: `encode_columns` is to look at them."""
        count = self.count
        if count <= 0 or not routes:
            return False
        if len(routes) < 2:
            self._route_column = None
        elif not _is_route_column(self._route_column, count, len(routes)):
            return False
        if self._ttl_column is not None and memoryview(self._ttl_column).nbytes != 4 * count:
            return False
        if isinstance(priorities, int):
            self._runs = ((0, count, priorities),)
        else:
            self._runs = runs_of(priorities)
            if len(priorities) != count or not descending(self._runs):
                return False
        if not 0 <= self._runs[0][2] <= PRIORITY_MAX:  # the highest: they descend
            return False
        self._routes = routes
        return True

    @cython.cfunc
    def block(self) -> bytes:
        """Return the block; everything fits."""
        columns: int = 0
        pieces: list = [RUN.pack(first, priority) for first, _, priority in self._runs]
        pieces.append(bytes(8 * (self.count + 1)))  # the offsets: written below
        if self._route_column is not None:
            columns |= COLUMN_ROUTE
            pieces.append(self._route_column)
        if self._ttl_column is not None:
            columns |= COLUMN_TTL
            pieces.append(self._ttl_column)
        routes: bytes = encode_routes(self._routes)
        pieces.append(routes)
        head: bytes = b"".join(pieces)
        head_end: cython.Py_ssize_t = _head + len(head)
        start: cython.Py_ssize_t = head_end + 7 & ~7
        offsets_at: cython.Py_ssize_t = _head + RUN.size * len(self._runs)
        length: cython.Py_ssize_t = start + self.properties.size + self.bodies.size
        made: bytes = PyBytes_FromStringAndSize(cython.NULL, length)
        p: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
        memcpy(p + _head, PyBytes_AS_STRING(head), len(head))
        memset(p + head_end, 0, start - head_end)
        unchanged: cython.bint = self.properties.copy(self.count, p + offsets_at, p + start)
        offsets_at += 4 * (self.count + 1)
        if not unchanged or not self.bodies.copy(
            self.count, p + offsets_at, p + start + self.properties.size
        ):
            raise ValueError("a column has changed while it was read")
        first_bytes: bytes = encode_head(
            form=FORM_AMQP091,
            columns=columns,
            count=self.count,
            crc=crc32(memoryview(made)[_head:]),
            length=length,
            routes=len(self._routes),
            runs=len(self._runs),
            routes_bytes=len(routes),
        )
        memcpy(p, PyBytes_AS_STRING(first_bytes), _head)
        return made


@cython.cfunc
def _is_route_column(
    column: Buffer | None, count: cython.Py_ssize_t, routes: cython.uint
) -> cython.bint:
    if column is None:
        return False
    numbers = memoryview(column).cast("B")
    if len(numbers) != 4 * count:
        return False
    octets: cython.const[cython.uchar][::1] = numbers
    p: cython.p_const_uchar = cython.cast(cython.p_const_uchar, cython.address(octets[0]))
    i: cython.Py_ssize_t
    highest: cython.uint = 0
    for i in range(count):
        highest = max(highest, _word(p + 4 * i))
    return highest < routes


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _word(p: cython.p_const_uchar) -> cython.uint:
    """Return the u32 there, wherever it lies; blocks are written on little-endian machines only."""
    value: cython.uint = 0
    memcpy(cython.address(value), p, 4)
    return value
