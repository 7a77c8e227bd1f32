# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What clients send, message by message, before any other code reads it.

Blocks from outside are validated, and a header x-death is set apart from a history of the broker's.

One source for both kernels: interpreted, columns are views of 32-bit words and `p` is the
properties area; compiled, they are pointers.
"""

from __future__ import annotations

from array import array
from typing import Any

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.block.block import Block, BlockError
from warren_wire.block.layout import (
    FORM_AMQP091,
    LENGTH_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    Buffer,
)
from warren_wire.kernel.items import HAS_DEATHS, Route
from warren_wire.kernel.table import ROW, SILENT, MessageTable

if not cython.compiled:
    from warren_wire.kernel.properties import deaths_last, walk
else:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.libc.string import memcmp
    from cython.cimports.warren_wire.kernel.compiled.properties import walk

    from warren_wire.kernel.compiled.properties import deaths_last

_ROW_BYTES = ROW.size
_DEFAULT = cython.declare(cython.uint, PRIORITY_DEFAULT)
_SILENT = cython.declare(cython.uint, SILENT)
_FLAG = cython.declare(cython.uint, HAS_DEATHS << 8)


def check_structure(block: Block) -> None:
    """Raise BlockError unless every offset, route number and priority of a block is in range.

    The checks of `Block.decode(verify=True)` in one pass, for a block decoded without them.
    Afterwards nothing that reads the block's messages, columns or ranges can fail. The properties
    themselves are not checked.
    """
    count: cython.Py_ssize_t = block.count
    _check_ascending(block.properties_offsets, count, "properties")
    _check_ascending(block.body_offsets, count, "body")
    if block.route_column is not None and count:
        _check_below(block.route_column, len(block.routes), "route")
    if block.priority_column is not None and count:
        highest = max(block.priority_column)
        if highest > PRIORITY_MAX:
            raise BlockError(f"priority {highest}; the limit is {PRIORITY_MAX}")


@cython.cfunc
def _check_ascending(offsets: Buffer, count: cython.Py_ssize_t, name: str) -> None:
    ends: cython.const[cython.uint][::1] = offsets
    i: cython.Py_ssize_t
    wrong: cython.bint = ends[0] != 0
    for i in range(count):
        wrong |= ends[i] > ends[i + 1]
    if wrong:
        raise BlockError(f"{name} offsets of a block of {count} messages do not ascend")


@cython.cfunc
def _check_below(column: Buffer, limit: cython.uint, name: str) -> None:
    values: cython.const[cython.uint][::1] = column
    i: cython.Py_ssize_t
    highest: cython.uint = 0
    for i in range(len(column)):
        if values[i] > highest:
            highest = values[i]
    if highest >= limit:
        raise BlockError(f"{name} {highest} of {limit}")


def load_block(
    block: Block, mandatory: bool = False, exchange: Any = None, properties_max: int = LENGTH_MAX
) -> MessageTable:
    """Return a block from outside as a table, to be partitioned; raises BlockError.

    The bodies are not copied: the table keeps the bytes of the block, and must not be appended to.
    Every message is examined like one that arrived in AMQP 0.9.1 frames: malformed properties are
    refused, the rows have the flags of items.py. The block itself has been verified
    (`Block.decode`, `check_structure`). A message's time to live is that of its column or, without
    one there, its expiration; priorities are the block's.

    exchange        replaces the exchange of the block's routes; None: it is kept
    properties_max  bytes of one message's properties
    """
    table = MessageTable()
    entries = _routes(table, block, mandatory, exchange)
    if not block.count:
        return table
    words = array("I", bytes(_ROW_BYTES * block.count))
    rows: cython.uint[::1] = words
    routes: cython.uint[::1] = entries
    ends: cython.const[cython.uint][::1] = block.properties_offsets
    body_ends: cython.const[cython.uint][::1] = block.body_offsets
    routed: cython.bint = block.route_column is not None
    timed: cython.bint = block.ttl_column is not None
    column: cython.const[cython.uint][::1] = block.route_column
    ttl: cython.const[cython.uint][::1] = block.ttl_column
    area: Buffer = block.properties_data
    p: cython.p_uchar = _start(area)
    examined: _Examined = _Examined()
    i: cython.Py_ssize_t
    first: cython.Py_ssize_t
    last: cython.Py_ssize_t
    priority: cython.uint
    octet: cython.uint
    limit: cython.ulonglong = properties_max
    found: cython.longlong = examined.found
    sections: cython.bint = block.form != FORM_AMQP091  # AMQP 1.0 sections are not parsed here
    for first, last, priority in block.priority_runs:
        for i in range(first, last):
            if not sections:
                if ends[i + 1] - ends[i] > limit:
                    _too_long(i, ends[i + 1] - ends[i], properties_max)
                examined.look(p, i, ends[i], ends[i + 1])
                found = examined.found
            rows[5 * i] = routes[column[i]] if routed else routes[0]
            rows[5 * i + 1] = ends[i + 1]
            rows[5 * i + 2] = body_ends[i + 1]
            rows[5 * i + 3] = ttl[i] if timed else 0xFFFFFFFF
            if rows[5 * i + 3] == 0xFFFFFFFF:
                rows[5 * i + 3] = found & 0xFFFFFFFF
            octet = priority
            if priority == _DEFAULT and found >> 32 & _SILENT and not sections:
                octet |= _SILENT
            rows[5 * i + 4] = octet | (found >> 40) << 8
    table.rows += words.tobytes()
    table.properties += block.properties_data
    table.bodies = block.body_data  # a view: nothing is appended to such a table
    table.count = block.count
    return table


def set_deaths_apart(table: MessageTable, first: int, last: int) -> None:
    """Put x-death behind the other headers in messages first <= i < last, of clients.

    In place: the headers keep their bytes, so the properties keep their length. See
    `published_deaths`.
    """
    assert 0 <= first <= last <= table.count, (first, last, table.count)
    rows: cython.p_uint
    area: bytearray = table.properties
    i: cython.Py_ssize_t
    begin: cython.Py_ssize_t
    end: cython.Py_ssize_t
    assert len(table.rows) == table.count * _ROW_BYTES, (len(table.rows), table.count)
    if cython.compiled:
        rows = cython.cast(cython.p_uint, PyByteArray_AS_STRING(table.rows))
    else:
        rows = memoryview(table.rows).cast("I")
    for i in range(first, last):
        if rows[5 * i + 4] & _FLAG:
            begin = rows[5 * i - 4] if i else 0
            end = rows[5 * i + 1]
            assert begin <= end <= len(area), (i, begin, end, len(area))
            before: bytes = bytes(area[begin:end])
            after: bytes = deaths_last(before)
            if after is not before:
                assert len(after) == end - begin, (i, before, after)
                area[begin:end] = after


def _routes(table: MessageTable, block: Block, mandatory: bool, exchange: Any) -> array:
    """Map the block's route numbers to the table's."""
    entries = array("I")
    for named, key in block.routes:
        route = Route(named if exchange is None else exchange, key, mandatory)
        entries.append(table.routes.add(route))
    return entries


@cython.cfunc
def _start(area: Buffer) -> cython.p_uchar:
    """Return a pointer to the bytes of a buffer, which must outlive the pointer."""
    if cython.compiled:
        data: cython.const[cython.uchar][::1] = area
        if len(area):
            return cython.cast(cython.p_uchar, cython.address(data[0]))
        return cython.NULL
    else:
        return area


def _too_long(i: int, size: int, limit: int) -> None:
    raise BlockError(
        f"message {i} of a block has {size} bytes of properties; the limit is {limit}: "
        "put less into its headers"
    )


@cython.cclass
class _Examined:
    """The properties examined last; those of many blocks are equal.

    at, size  where they stand in the area; size -1: none yet
    """

    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    found: cython.longlong

    def __init__(self) -> None:
        self.at, self.size = 0, -1
        nothing: bytes = b"\x00\x00"
        if cython.compiled:
            self.found = walk(cython.cast(cython.p_uchar, PyBytes_AS_STRING(nothing)), 2)
        else:
            self.found = walk(nothing, 2)

    @cython.cfunc
    def look(
        self, p: cython.p_uchar, i: cython.Py_ssize_t, at: cython.uint, end: cython.uint
    ) -> None:
        """Examine p[at:end] unless they equal the last ones; BlockError when malformed."""
        size: cython.Py_ssize_t = end - at
        if cython.compiled:
            if size == self.size and not memcmp(p + self.at, p + at, size):
                return
            self.found = walk(p + at, size)
        else:
            if size == self.size and p[self.at : self.at + size] == p[at:end]:
                return
            self.found = walk(bytes(p[at:end]), size)
        if self.found < 0:
            shown = bytes(p[at:end])
            raise BlockError(f"message {i} of a block has malformed properties: {shown[:32]!r}")
        self.at, self.size = at, size
