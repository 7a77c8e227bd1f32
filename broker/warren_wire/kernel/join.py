# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Joining of many stored blocks, most of them of one message, into one for a client.

One source for both kernels: interpreted, each block is decoded, and `block.concat` joins them;
compiled, the same bytes are made without an object per block. `concat` is what both are held to.
"""

from __future__ import annotations

from collections.abc import Sequence

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.block.block import Block, BlockError, concat
from warren_wire.block.layout import (
    AREA_BODIES,
    AREA_PROPERTIES,
    AREAS,
    BLOCK_BYTES_MAX,
    COLUMN_PRIORITY,
    COLUMN_ROUTE,
    COLUMN_TTL,
    FORM_AMQP091,
    HEADER_BYTES,
    MAGIC,
    PRIORITY_MAX,
    RUN,
    VERSION,
    Buffer,
    encode_head,
)
from warren_wire.checksum import crc32

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcmp, memcpy, memset

_head = cython.declare(cython.Py_ssize_t, HEADER_BYTES)
_run = cython.declare(cython.Py_ssize_t, RUN.size)
_no_priority = cython.declare(cython.uint, PRIORITY_MAX + 1)
_area_properties = cython.declare(cython.uint, AREA_PROPERTIES)
_area_bodies = cython.declare(cython.uint, AREA_BODIES)
_START = MAGIC + bytes((VERSION,))


def join(parts: Sequence[tuple[Buffer, int, int, int]], areas: int = AREAS) -> bytes:
    """Join ranges of messages of encoded blocks to one block, as `block.concat` does.

    parts   (buffer, start, first, last): messages first <= i < last of the uncompressed block which
            is buffer[start:]; none is empty. The forms must be equal
    areas   AREA_PROPERTIES, AREA_BODIES: see `block.concat`
    raises  BlockError for a malformed block, and where `concat` does
    """
    count = 0
    for _, _, first, last in parts:
        if not 0 <= first < last:
            raise BlockError(f"messages {first} to {last} of a block")
        count += last - first
    if not cython.compiled:
        blocks = [
            (Block.decode(memoryview(buffer)[start:], verify=False), first, last)
            for buffer, start, first, last in parts
        ]
        return concat(blocks, areas=areas)
    joining: _Joining = _Joining(parts, areas, count)
    return joining.joined()


@cython.cclass
class _View:
    """A block as it is stored; `at` is its first byte, the others are bytes from there."""

    p: cython.p_uchar
    form: cython.uint
    columns: cython.uint
    count: cython.Py_ssize_t
    runs: cython.Py_ssize_t
    routes: cython.Py_ssize_t
    properties_column: cython.Py_ssize_t
    body_column: cython.Py_ssize_t
    route_column: cython.Py_ssize_t
    ttl_column: cython.Py_ssize_t
    priority_column: cython.Py_ssize_t
    routes_at: cython.Py_ssize_t
    routes_end: cython.Py_ssize_t
    properties_area: cython.Py_ssize_t
    body_area: cython.Py_ssize_t

    @cython.cfunc
    @cython.exceptval(check=False)
    def read(self, p: cython.p_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Take a block of that size; False: it is malformed, or compressed."""
        if size < _head:
            return False
        self.p = p
        self.form = p[5]
        self.columns = p[6]
        self.count = _word(p + 8)
        self.routes = _word(p + 20)
        self.runs = _word(p + 24)
        if p[7] or self.form > 1 or self.columns > 7 or _word(p + 16) != size:
            return False
        if self.runs > _no_priority or (self.count and not self.routes):
            return False
        if (self.columns & 1) != (self.routes > 1) or (self.columns & 4 and self.runs):
            return False
        at: cython.Py_ssize_t = _head + _run * self.runs
        self.properties_column = at
        at += 4 * (self.count + 1)
        self.body_column = at
        at += 4 * (self.count + 1)
        self.route_column = at
        if self.columns & 1:
            at += 4 * self.count
        self.ttl_column = at
        if self.columns & 2:
            at += 4 * self.count
        self.priority_column = at
        if self.columns & 4:
            at += self.count + 3 & ~3
        self.routes_at = at
        self.routes_end = at + _word(p + 28)
        self.properties_area = self.routes_end + 7 & ~7
        if self.properties_area > size:
            return False
        last: cython.Py_ssize_t = 4 * self.count
        self.body_area = self.properties_area + _word(p + self.properties_column + last)
        return self.body_area + _word(p + self.body_column + last) == size

    @cython.cfunc
    @cython.exceptval(check=False)
    def bytes_of(
        self, column: cython.Py_ssize_t, first: cython.Py_ssize_t, last: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Return the bytes of messages first <= i < last in that column's area; -1: their offsets
        do not ascend, or lie beyond its end."""
        begin: cython.Py_ssize_t = _word(self.p + column + 4 * first)
        end: cython.Py_ssize_t = begin
        after: cython.Py_ssize_t
        i: cython.Py_ssize_t
        for i in range(first + 1, last + 1):
            after = _word(self.p + column + 4 * i)
            if after < end:
                return -1
            end = after
        if end > _word(self.p + column + 4 * self.count):
            return -1
        return end - begin

    @cython.cfunc
    @cython.exceptval(check=False)
    def priorities(
        self, first: cython.Py_ssize_t, last: cython.Py_ssize_t, out: cython.p_uchar
    ) -> cython.bint:
        """Write the priority of messages first <= i < last; False: the runs are malformed."""
        if self.columns & 4:
            memcpy(out, self.p + self.priority_column + first, last - first)
            return True
        k: cython.Py_ssize_t
        begin: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        low: cython.Py_ssize_t
        high: cython.Py_ssize_t
        priority: cython.uint
        before: cython.uint = _no_priority
        for k in range(self.runs):
            if _word(self.p + _head + _run * k) != begin:
                return False
            priority = self.p[_head + _run * k + 4]
            end = _word(self.p + _head + _run * (k + 1)) if k + 1 < self.runs else self.count
            if end <= begin or priority >= before:
                return False
            low = begin if begin > first else first
            high = end if end < last else last
            if low < high:
                memset(out + low - first, priority, high - low)
            before = priority
            begin = end
        return begin == self.count


@cython.cclass
class _Joining:
    """The block being made: first its columns, by part, then its bytes.

    known  the block's number of each route, by its bytes
    same   the bytes of the route that the last part with a single route had, and its number
    """

    parts: Sequence[tuple[Buffer, int, int, int]]
    areas: cython.uint
    count: cython.Py_ssize_t
    form: cython.uint
    columns: cython.uint
    properties_bytes: cython.Py_ssize_t
    body_bytes: cython.Py_ssize_t
    known: dict
    same: bytes
    same_number: cython.uint
    route_column: bytearray
    ttl_column: bytearray
    priority_column: bytearray

    def __init__(
        self, parts: Sequence[tuple[Buffer, int, int, int]], areas: int, count: int
    ) -> None:
        self.parts = parts
        self.areas = areas
        self.count = count
        self.form = FORM_AMQP091
        self.columns = 0
        self.properties_bytes = 0
        self.body_bytes = 0
        self.known = {}
        self.same = b""
        self.same_number = 0
        self.route_column = bytearray(4 * self.count)
        self.ttl_column = bytearray(4 * self.count)
        self.priority_column = bytearray(self.count)

    @cython.cfunc
    def joined(self) -> bytes:
        """Return the block."""
        view: _View = _View()
        at: cython.Py_ssize_t = 0
        begun: cython.bint = False
        for buffer, start, first, last in self.parts:
            self.take(view, buffer, start, first, last, at)
            if begun and view.form != self.form:
                raise BlockError("blocks of AMQP 0.9.1 and 1.0 messages do not go into one")
            self.form = view.form
            begun = True
            at += last - first
        size = self.properties_bytes + self.body_bytes
        if size > BLOCK_BYTES_MAX:
            raise BlockError(
                f"{size} bytes of messages; a block holds {BLOCK_BYTES_MAX}: ask for fewer"
            )
        return self.written(view)

    @cython.cfunc
    def take(
        self,
        view: _View,
        buffer: Buffer,
        start: cython.Py_ssize_t,
        first: cython.Py_ssize_t,
        last: cython.Py_ssize_t,
        at: cython.Py_ssize_t,
    ) -> None:
        """Add a part to the columns; `at`: its first message in the block."""
        properties: cython.Py_ssize_t = -1
        bodies: cython.Py_ssize_t = -1
        fits: cython.bint = view.read(_bytes_of(buffer, start), len(buffer) - start)
        if fits and last > view.count:
            raise BlockError(f"messages {first} to {last} of a block of {view.count}")
        if fits:
            properties = view.bytes_of(view.properties_column, first, last)
            bodies = view.bytes_of(view.body_column, first, last)
            fits = view.priorities(first, last, _p(self.priority_column) + at)
        if not fits or properties < 0 or bodies < 0 or view.p[:5] != _START:
            Block.decode(memoryview(buffer)[start:], verify=False)  # says what is wrong
            raise BlockError(f"block of {len(buffer) - start} bytes: compressed, or damaged")
        if self.areas & _area_properties:
            self.properties_bytes += properties
        if self.areas & _area_bodies:
            self.body_bytes += bodies
        ttl: cython.p_uchar = _p(self.ttl_column) + 4 * at
        if view.columns & 2:
            self.columns |= COLUMN_TTL
            memcpy(ttl, view.p + view.ttl_column + 4 * first, 4 * (last - first))
        else:
            memset(ttl, 0xFF, 4 * (last - first))
        self.take_routes(view, first, last, at)

    @cython.cfunc
    def take_routes(
        self,
        view: _View,
        first: cython.Py_ssize_t,
        last: cython.Py_ssize_t,
        at: cython.Py_ssize_t,
    ) -> None:
        """Write the part's numbers of routes, of which those not known yet get the next ones."""
        out: cython.p_uchar = _p(self.route_column) + 4 * at
        size: cython.Py_ssize_t = view.routes_end - view.routes_at
        i: cython.Py_ssize_t
        number: cython.uint
        if view.routes > 1:
            self.take_several_routes(view, first, last, out)
            return
        same: cython.bint = size > 0 and size == len(self.same)
        if not same or memcmp(PyBytes_AS_STRING(self.same), view.p + view.routes_at, size):
            (self.same,) = _routes_of(view)
            self.same_number = self.known.setdefault(self.same, len(self.known))
        number = self.same_number
        for i in range(last - first):
            memcpy(out + 4 * i, cython.address(number), 4)

    @cython.cfunc
    def take_several_routes(
        self,
        view: _View,
        first: cython.Py_ssize_t,
        last: cython.Py_ssize_t,
        out: cython.p_uchar,
    ) -> None:
        routes: list = _routes_of(view)
        mapped: list = [-1] * len(routes)
        i: cython.Py_ssize_t
        number: cython.uint
        for i in range(first, last):
            own = _word(view.p + view.route_column + 4 * i)
            if own >= len(routes):
                raise BlockError(f"route {own} of {len(routes)}")
            if mapped[own] < 0:
                mapped[own] = self.known.setdefault(routes[own], len(self.known))
            number = mapped[own]
            memcpy(out + 4 * (i - first), cython.address(number), 4)

    @cython.cfunc
    def runs(self) -> list:
        """Return the priority runs to be stored; none: they do not descend."""
        found: list = []
        column: cython.p_uchar = _p(self.priority_column)
        i: cython.Py_ssize_t
        before: cython.int = 256
        for i in range(self.count):
            if column[i] != before:
                if column[i] > before:
                    return []
                before = column[i]
                found.append((i, before))
        return found

    @cython.cfunc
    def written(self, view: _View) -> bytes:
        """Return the block, from the columns and the areas of its parts."""
        runs: list = self.runs()
        several: cython.bint = len(self.known) > 1
        if several:
            self.columns |= COLUMN_ROUTE
        pieces: list = [RUN.pack(first, priority) for first, priority in runs]
        pieces.append(bytes(8 * (self.count + 1)))  # the offsets: written below
        if several:
            pieces.append(self.route_column)
        if self.columns & COLUMN_TTL:
            pieces.append(self.ttl_column)
        if self.count and not runs:
            self.columns |= COLUMN_PRIORITY
            pieces.append(self.priority_column)
            pieces.append(bytes(-self.count % 4))
        routes: bytes = b"".join(self.known)
        pieces.append(routes)
        head: bytes = b"".join(pieces)
        head_end: cython.Py_ssize_t = _head + len(head)
        start: cython.Py_ssize_t = head_end + 7 & ~7
        length: cython.Py_ssize_t = start + self.properties_bytes + self.body_bytes
        block: bytes = PyBytes_FromStringAndSize(cython.NULL, length)
        p: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(block))
        memcpy(p + head_end - len(head), PyBytes_AS_STRING(head), len(head))
        memset(p + head_end, 0, start - head_end)
        columns_at: cython.Py_ssize_t = _head + _run * len(runs)
        offsets: cython.p_uchar = p + columns_at
        self.copy(view, _area_properties, offsets, p + start)
        offsets += 4 * (self.count + 1)
        self.copy(view, _area_bodies, offsets, p + start + self.properties_bytes)
        first_bytes: bytes = encode_head(
            form=self.form,
            columns=self.columns,
            count=self.count,
            crc=crc32(memoryview(block)[_head:]),
            length=length,
            routes=len(self.known),
            runs=len(runs),
            routes_bytes=len(routes),
        )
        memcpy(p, PyBytes_AS_STRING(first_bytes), _head)
        return block

    @cython.cfunc
    def copy(
        self, view: _View, area: cython.uint, offsets: cython.p_uchar, out: cython.p_uchar
    ) -> None:
        """Write the offsets of one area, after the first, and its bytes."""
        if not self.areas & area:
            return
        at: cython.uint = 0
        begin: cython.uint
        end: cython.uint
        shifted: cython.uint
        i: cython.Py_ssize_t
        low: cython.Py_ssize_t
        high: cython.Py_ssize_t
        column: cython.p_uchar
        data: cython.p_uchar
        for buffer, start, first, last in self.parts:
            low, high = first, last
            view.read(_bytes_of(buffer, start), len(buffer) - start)
            if area == _area_properties:
                column = view.p + view.properties_column
                data = view.p + view.properties_area
            else:
                column = view.p + view.body_column
                data = view.p + view.body_area
            begin = _word(column + 4 * low)
            end = _word(column + 4 * high)
            for i in range(low + 1, high + 1):
                shifted = at + (_word(column + 4 * i) - begin)
                offsets += 4
                memcpy(offsets, cython.address(shifted), 4)
            memcpy(out + at, data + begin, end - begin)
            at += end - begin


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _word(p: cython.p_uchar) -> cython.uint:
    """Return the u32 there, wherever it lies; blocks are read on little-endian machines only."""
    value: cython.uint = 0
    memcpy(cython.address(value), p, 4)
    return value


@cython.cfunc
def _p(column: bytearray) -> cython.p_uchar:
    return cython.cast(cython.p_uchar, cython.cast(cython.p_char, column))


@cython.cfunc
def _bytes_of(buffer: Buffer, start: cython.Py_ssize_t) -> cython.p_uchar:
    """Return where a block begins; the buffer outlives its use."""
    if not 0 <= start < len(buffer):
        raise BlockError(f"a block from byte {start} on, of {len(buffer)}")
    if isinstance(buffer, bytes):
        return cython.cast(cython.p_uchar, PyBytes_AS_STRING(buffer)) + start
    view: cython.const[cython.uchar][::1] = buffer
    return cython.cast(cython.p_uchar, cython.address(view[0])) + start


@cython.cfunc
def _routes_of(view: _View) -> list:
    """Return the bytes of each route of a block."""
    found: list = []
    at: cython.Py_ssize_t = view.routes_at
    end: cython.Py_ssize_t = view.routes_end
    begin: cython.Py_ssize_t
    while at < end and len(found) < view.routes:
        begin = at
        at += 1 + view.p[at]
        if at < end:
            at += 1 + view.p[at]
        if at > end:
            break
        found.append(view.p[begin:at])
    if at != end or len(found) != view.routes:
        raise BlockError(f"{view.routes} routes do not take the {end - view.routes_at} bytes there")
    return found
