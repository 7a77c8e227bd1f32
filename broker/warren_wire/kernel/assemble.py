# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Selection of messages by route, and assembly of messages into blocks.

One source for both kernels: interpreted, rows and columns are views of 32-bit words; compiled,
they are pointers. The row is that of `table.ROW`: 0 route, 1 end of properties, 2 end of body,
3 ttl_ms, 4 priority | flags << 8.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from warren_wire.checksum import crc32

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.block.block import BlockError
from warren_wire.block.layout import (
    COLUMN_ROUTE,
    COLUMN_TTL,
    FORM_AMQP091,
    HEADER_BYTES,
    LENGTH_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    RUN,
    encode_head,
    encode_routes,
)
from warren_wire.kernel.items import USER_ID
from warren_wire.kernel.table import ROW, MessageTable, Selection, lanes

if not cython.compiled:
    from warren_wire.kernel.properties import user_id_of
else:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy

    from warren_wire.kernel.compiled.properties import user_id_of

_ROW_BYTES = ROW.size


@cython.cfunc
def _rows_of(table: MessageTable) -> cython.p_uint:
    """Return the table's rows as words."""
    rows: bytearray = table.rows
    assert len(rows) == table.count * _ROW_BYTES, (len(rows), table.count)
    if cython.compiled:
        return cython.cast(cython.p_uint, PyByteArray_AS_STRING(rows))
    else:
        return memoryview(rows).cast("I")


def _check_range(table: MessageTable, first: int, last: int) -> None:
    assert 0 <= first <= last <= table.count, (first, last, table.count)


def distinct_routes(table: MessageTable, first: int, last: int) -> list[int]:
    """Return the route ids of messages first <= i < last, in the order first seen."""
    _check_range(table, first, last)
    rows: cython.p_uint = _rows_of(table)
    i: cython.Py_ssize_t
    route: cython.uint
    before: cython.longlong = -1
    seen: bytearray = bytearray(len(table.routes.entries))
    found: list = []
    for i in range(first, last):
        route = rows[5 * i]
        if route != before:
            before = route
            if not seen[route]:
                seen[route] = 1
                found.append(route)
    return found


def flags_of(table: MessageTable, first: int, last: int) -> int:
    """Return the flags of messages first <= i < last, or-ed (items.py)."""
    _check_range(table, first, last)
    rows: cython.p_uint = _rows_of(table)
    i: cython.Py_ssize_t
    found: cython.uint = 0
    for i in range(first, last):
        found |= rows[5 * i + 4]
    return found >> 8


def first_other_user(table: MessageTable, first: int, last: int, user: bytes) -> int:
    """Return the first message of the range with a user_id other than `user`; `last`: none."""
    _check_range(table, first, last)
    rows: cython.p_uint = _rows_of(table)
    i: cython.Py_ssize_t
    begin: cython.Py_ssize_t
    same: bytes = b""  # the properties examined last, which were allowed
    for i in range(first, last):
        if rows[5 * i + 4] >> 8 & USER_ID:
            begin = rows[5 * i - 4] if i else 0
            properties = bytes(table.properties[begin : rows[5 * i + 1]])
            if properties != same:
                found = user_id_of(properties)
                if found is not None and found != user:
                    return i
                same = properties
    return last


def select(table: MessageTable, first: int, last: int, route_ids: Iterable[int]) -> Selection:
    """Select the messages of first <= i < last with one of these routes, in the order received."""
    _check_range(table, first, last)
    rows: cython.p_uint = _rows_of(table)
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    wanted: bytearray = bytearray(len(table.routes.entries))
    for route in route_ids:
        wanted[route] = 1
    indices = array("I", bytes(4 * (last - first)))
    if last == first:
        return Selection(table, first, last)
    out: cython.uint[::1] = indices
    for i in range(first, last):
        if wanted[rows[5 * i]]:
            out[at] = i
            at += 1
    return _selection(table, first, last, indices[:at])


@cython.cfunc
def _selection(table: MessageTable, first: Any, last: Any, indices: Any) -> Any:
    """Return a Selection, without indices where it is one range."""
    if not indices:
        return Selection(table, first, first)
    low, high = indices[0], indices[len(indices) - 1] + 1
    if high - low == len(indices):
        return Selection(table, low, high)
    return Selection(table, first, last, indices)


def partition(
    table: MessageTable, first: int, last: int, targets: Sequence[Iterable[int]], count: int
) -> list[Selection]:
    """Return one Selection per target 0 <= t < count, each in the order received, possibly empty.

    targets   route id -> the targets of a message with this route, each at most once; read for the
              routes that occur
    """
    routes: list = distinct_routes(table, first, last)
    if len(routes) <= 1:
        hit = set(targets[routes[0]]) if routes else ()
        return [Selection(table, first, last if t in hit else first) for t in range(count)]
    chosen: list = [[] for _ in range(count)]
    for route in routes:
        for target in targets[route]:
            chosen[target].append(route)
    whole = len(routes)
    return [
        Selection(table, first, last)
        if len(some) == whole
        else select(table, first, last, some)
        if some
        else Selection(table, first, first)
        for some in chosen
    ]


def count_groups(selections: list[Selection], groups: array[int], count: int) -> list[int]:
    """Return how many messages of the selections are of each group 0 <= g < count.

    groups  array("I"): route id -> the group of a message with this route; below count for the
            routes that occur
    """
    found = array("Q", bytes(8 * count))
    if not count:
        return []
    totals: cython.ulonglong[::1] = found
    group: cython.uint[::1] = groups
    indices: cython.uint[::1]
    rows: cython.p_uint
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    first: cython.Py_ssize_t
    last: cython.Py_ssize_t
    for selection in selections:
        table = selection.table
        assert len(groups) == len(table.routes.entries), (len(groups), len(table.routes.entries))
        rows = _rows_of(table)
        if selection.indices is None:
            first = selection.first
            last = selection.last
            for i in range(first, last):
                totals[group[rows[5 * i]]] += 1
        elif selection.indices:
            indices = selection.indices
            last = len(selection)
            for k in range(last):
                totals[group[rows[5 * cython.cast(cython.Py_ssize_t, indices[k])]]] += 1
    return list(found)


def count_unselected(selections: list[Selection], first: int, last: int) -> int:
    """Return how many of the messages first <= i < last are in none of the selections."""
    begin: cython.Py_ssize_t = first
    low: cython.Py_ssize_t
    high: cython.Py_ssize_t
    k: cython.Py_ssize_t
    count: cython.Py_ssize_t = last - first
    left: cython.Py_ssize_t = count
    indices: cython.uint[::1]
    if not selections or count <= 0:
        return max(count, 0)
    seen: bytearray = bytearray(last - first)
    for selection in selections:
        assert first <= selection.first and selection.last <= last, (first, last)
        if selection.indices is None:
            low = selection.first - first
            high = selection.last - first
            if high - low == count:
                return 0
            for k in range(low, high):
                if not seen[k]:
                    seen[k] = 1
                    left -= 1
        elif selection.indices:
            indices = selection.indices
            high = len(selection)
            for k in range(high):
                low = indices[k] - begin
                if not seen[low]:
                    seen[low] = 1
                    left -= 1
    return left


# ------------------------------------------------------------------ block


@cython.cclass
class _Gathering:
    """The block being assembled: its contents, then the position of the next message.

    maps   per dictionary of routes: its ids to the block's, -1 for those not seen
    lane   a row's priority octet -> the queue's priority, `table.lanes`
    """

    lanes: bytes
    lane: cython.p_uchar
    count: cython.Py_ssize_t
    properties_bytes: cython.ulonglong
    body_bytes: cython.ulonglong
    priorities: list
    has_ttl: cython.bint
    routes: dict
    maps: dict
    p: cython.p_uchar
    words: cython.p_uint
    at: cython.Py_ssize_t
    properties_column: cython.Py_ssize_t
    body_column: cython.Py_ssize_t
    route_column: cython.Py_ssize_t
    ttl_column: cython.Py_ssize_t
    properties_area: cython.Py_ssize_t
    body_area: cython.Py_ssize_t
    properties_at: cython.Py_ssize_t
    body_at: cython.Py_ssize_t

    def __init__(self, of_queue: bytes) -> None:
        self.lanes = of_queue
        if cython.compiled:
            self.lane = cython.cast(cython.p_uchar, PyBytes_AS_STRING(of_queue))
        else:
            self.lane = of_queue
        self.count = 0
        self.properties_bytes = 0
        self.body_bytes = 0
        self.priorities = [0] * 32
        self.has_ttl = False
        self.routes = {}
        self.maps = {}
        self.at = 0
        self.properties_at = 0
        self.body_at = 0

    @cython.cfunc
    def measure(self, selection: Selection) -> cython.uint:
        """Add a selection to the totals; return the set of its priorities, as bits."""
        table = selection.table
        rows: cython.p_uint = _rows_of(table)
        lane: cython.p_uchar = self.lane
        entries: list = table.routes.entries
        if table.routes not in self.maps:
            self.maps[table.routes] = array("i", [-1]) * len(entries)
        mapping: cython.int[::1] = self.maps[table.routes]
        each: object = selection.indices
        k: cython.Py_ssize_t
        i: cython.Py_ssize_t
        size: cython.Py_ssize_t = len(selection)
        first: cython.Py_ssize_t = selection.first
        route: cython.uint
        before: cython.longlong = -1
        priority: cython.uint
        run: cython.Py_ssize_t = 0
        run_priority: cython.uint = 0
        found: cython.uint = 0
        indices: cython.uint[::1] = each
        listed: cython.bint = each is not None
        for k in range(size):
            i = indices[k] if listed else first + k
            route = rows[5 * i]
            if route != before:
                before = route
                if mapping[route] < 0:
                    entry = entries[route]
                    pair = (entry.exchange, entry.routing_key)
                    mapping[route] = self.routes.setdefault(pair, len(self.routes))
            if rows[5 * i + 3] != 0xFFFFFFFF:
                self.has_ttl = True
            priority = lane[rows[5 * i + 4] & 0xFF]
            if priority != run_priority:
                self.priorities[run_priority] += run
                run = 0
                run_priority = priority
            run += 1
            found |= 1 << priority
            if listed:
                self.properties_bytes += rows[5 * i + 1] - (rows[5 * i - 4] if i else 0)
                self.body_bytes += rows[5 * i + 2] - (rows[5 * i - 3] if i else 0)
        if run:
            self.priorities[run_priority] += run
        if size and not listed:
            i = first + size - 1
            self.properties_bytes += rows[5 * i + 1] - (rows[5 * first - 4] if first else 0)
            self.body_bytes += rows[5 * i + 2] - (rows[5 * first - 3] if first else 0)
        self.count += size
        return found

    @cython.cfunc
    def runs(self) -> list:
        """Return (first, priority) of the block's priority runs."""
        found: list = []
        at = 0
        for priority in range(31, -1, -1):
            if self.priorities[priority]:
                found.append((at, priority))
                at += self.priorities[priority]
        return found

    @cython.cfunc
    def place(self, p: cython.p_uchar, words: cython.p_uint, properties: int) -> None:
        """Set the offsets of the columns in `words`, and of the areas in p, from properties on."""
        self.p = p
        self.words = words
        self.properties_column = 0
        self.body_column = self.count + 1
        at: cython.Py_ssize_t = self.body_column + self.count + 1
        self.route_column = at if len(self.routes) > 1 else 0
        if self.route_column:
            at += self.count
        self.ttl_column = at if self.has_ttl else 0
        self.properties_area = properties
        self.body_area = properties + self.properties_bytes
        self.words[self.properties_column] = 0
        self.words[self.body_column] = 0

    @cython.cfunc
    def take(self, selection: Selection, priority: cython.int) -> None:
        """Write the messages of one priority; -1: of all."""
        table = selection.table
        rows: cython.p_uint = _rows_of(table)
        mapping: cython.int[::1] = self.maps[table.routes]
        each: object = selection.indices
        indices: cython.uint[::1] = each
        listed: cython.bint = each is not None
        words: cython.p_uint = self.words
        lane: cython.p_uchar = self.lane
        only: cython.bint = priority >= 0
        wanted: cython.uint = priority if only else 0
        k: cython.Py_ssize_t
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = self.at
        size: cython.Py_ssize_t = len(selection)
        first: cython.Py_ssize_t = selection.first
        # Messages that follow one another in the table are copied together: open .. i
        start: cython.Py_ssize_t = -1
        until: cython.Py_ssize_t = -1
        shift_properties: cython.longlong = 0
        shift_body: cython.longlong = 0
        for k in range(size):
            i = indices[k] if listed else first + k
            if only and lane[rows[5 * i + 4] & 0xFF] != wanted:
                continue
            if i != until:
                if start >= 0:
                    self.copy(table, rows, start, until)
                start = i
                shift_properties = self.properties_at
                shift_body = self.body_at
                if i:
                    shift_properties -= rows[5 * i - 4]
                    shift_body -= rows[5 * i - 3]
            until = i + 1
            words[self.properties_column + at + 1] = rows[5 * i + 1] + shift_properties
            words[self.body_column + at + 1] = rows[5 * i + 2] + shift_body
            if self.route_column:
                words[self.route_column + at] = mapping[rows[5 * i]]
            if self.ttl_column:
                words[self.ttl_column + at] = rows[5 * i + 3]
            at += 1
        if start >= 0:
            self.copy(table, rows, start, until)
        self.at = at

    @cython.cfunc
    def copy(
        self,
        table: MessageTable,
        rows: cython.p_uint,
        first: cython.Py_ssize_t,
        last: cython.Py_ssize_t,
    ) -> None:
        """Append the bytes of messages first <= i < last to the two areas."""
        properties: bytearray = table.properties
        bodies: Any = table.bodies
        start: cython.Py_ssize_t = rows[5 * first - 4] if first else 0
        size: cython.Py_ssize_t = rows[5 * last - 4] - start
        to: cython.Py_ssize_t = self.properties_area + self.properties_at
        assert start + size <= len(properties), (start, size, len(properties))
        if cython.compiled:
            memcpy(self.p + to, PyByteArray_AS_STRING(properties) + start, size)
        else:
            self.p[to : to + size] = properties[start : start + size]
        self.properties_at += size
        start = rows[5 * first - 3] if first else 0
        size = rows[5 * last - 3] - start
        to = self.body_area + self.body_at
        assert start + size <= len(bodies), (start, size, len(bodies))
        if cython.compiled:
            if isinstance(bodies, bytearray):
                memcpy(self.p + to, PyByteArray_AS_STRING(bodies) + start, size)
            elif size:
                view: cython.const[cython.uchar][::1] = bodies
                memcpy(self.p + to, cython.address(view[start]), size)
        else:
            self.p[to : to + size] = bodies[start : start + size]
        self.body_at += size


def assemble(
    selections: Sequence[Selection],
    form: int = FORM_AMQP091,
    priority_max: int = PRIORITY_MAX,
    priority_default: int = PRIORITY_DEFAULT,
    before: bytes = b"",
) -> bytes:
    """Assemble all selected messages into one block: higher priorities first, else in order.

    form              of the properties of all of them
    priority_max      the queue's: higher ones count as this
    priority_default  the queue's, for messages without a priority
    before            bytes that the result begins with; the block follows them
    """
    gathering: _Gathering = _Gathering(lanes(priority_max, priority_default))
    present: list = [gathering.measure(selection) for selection in selections]
    runs: list = gathering.runs()
    count: int = gathering.count
    routes = encode_routes(gathering.routes)
    columns = COLUMN_ROUTE if len(gathering.routes) > 1 else 0
    columns |= COLUMN_TTL if gathering.has_ttl else 0
    start: int = HEADER_BYTES + RUN.size * len(runs)
    wide: int = 2 * (count + 1) + count * (columns & 1) + count * (columns >> 1)
    routes_at: int = start + 4 * wide
    properties: int = (routes_at + len(routes) + 7) // 8 * 8
    length: int = properties + gathering.properties_bytes + gathering.body_bytes
    if length > LENGTH_MAX:
        raise BlockError(f"a block of {length} bytes; the limit is {LENGTH_MAX}: submit less")
    # The columns are written apart: behind `before` they are not aligned to their words.
    numbers: bytearray = bytearray(4 * wide)
    offset: cython.Py_ssize_t = len(before)
    if cython.compiled:
        block: bytes = PyBytes_FromStringAndSize(cython.NULL, offset + length)
        p: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(block)) + offset
        gathering.place(p, cython.cast(cython.p_uint, PyByteArray_AS_STRING(numbers)), properties)
    else:
        block = bytearray(offset + length)  # type: ignore[assignment]
        p = memoryview(block)[offset:]
        gathering.place(p, memoryview(numbers).cast("I"), properties)
    several: bool = len(runs) > 1
    for _, priority in runs:
        for k in range(len(selections)):
            if present[k] >> priority & 1:
                # Messages of a single priority are copied in one piece, without a check of each.
                gathering.take(selections[k], priority if several else -1)
    assert gathering.at == count, (gathering.at, count)
    heads = b"".join([RUN.pack(first, priority) for first, priority in runs])
    tail = routes + bytes(properties - routes_at - len(routes))
    _put(p, HEADER_BYTES, b"".join((heads, numbers, tail)))
    crc = crc32(memoryview(block)[offset + HEADER_BYTES :])
    _put(p, 0, _head_of(gathering, form, columns, len(runs), len(routes), length, crc))
    if cython.compiled:
        _put(p, -offset, before)
        return block
    else:
        block[:offset] = before  # type: ignore[index]
        return bytes(block)


@cython.cfunc
def _head_of(
    gathering: _Gathering,
    form: int,
    columns: int,
    runs: int,
    routes_bytes: int,
    length: int,
    crc: int,
) -> bytes:
    """Return the header of a block that is otherwise complete."""
    return encode_head(
        form=form,
        columns=columns,
        count=gathering.count,
        crc=crc,
        length=length,
        routes=len(gathering.routes),
        runs=runs,
        routes_bytes=routes_bytes,
    )


@cython.cfunc
def _put(p: cython.p_uchar, at: cython.Py_ssize_t, data: bytes) -> None:
    if cython.compiled:
        memcpy(p + at, PyBytes_AS_STRING(data), len(data))
    else:
        p[at : at + len(data)] = data
