# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Runs of deliveries of AMQP 1.0 links: cut, read, written and settled with one call for many.

Proton's engine keeps sessions, windows and delivery-ids, and takes a tenth of what a call of each
of its functions from Python takes. Here its functions are called one after the other for all
deliveries that are usual; where one is not, a call ends before it, and leaves it to the caller.

One source for both kernels. Links and deliveries are addresses of the engine's objects (0: none),
which are used only as long as these are there: see `warren_wire.amqp10.deliveries`.
"""

from __future__ import annotations

from typing import Any

from warren_wire.block.block import Block

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.block.layout import LENGTH_MAX
from warren_wire.kernel.items import Route
from warren_wire.kernel.table import ROW, ROW_WORDS, MessageTable

if not cython.compiled:
    from warren_wire.kernel.octets import u32
    from warren_wire.kernel.proton_calls import (
        attach,
        pn_aborted,
        pn_advance,
        pn_begin,
        pn_current,
        pn_event_of,
        pn_kind,
        pn_link_of,
        pn_partial,
        pn_peek,
        pn_pending,
        pn_pop,
        pn_recv,
        pn_send,
        pn_settle,
        pn_settled,
        pn_state,
        pn_update,
    )
else:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.cpython.bytes import (
        PyBytes_AS_STRING,
        PyBytes_FromStringAndSize,
    )
    from cython.cimports.libc.string import memcmp
    from cython.cimports.warren_wire.kernel.compiled.octets import u32
    from cython.cimports.warren_wire.kernel.compiled.proton_calls import (
        pn_aborted,
        pn_advance,
        pn_begin,
        pn_bind,
        pn_current,
        pn_event_of,
        pn_kind,
        pn_link_of,
        pn_partial,
        pn_peek,
        pn_pending,
        pn_pop,
        pn_recv,
        pn_send,
        pn_settle,
        pn_settled,
        pn_state,
        pn_update,
    )

ALIKE_BYTES_MAX = 1 << 16
"""A larger message is none of a run: what copies it costs more than what calls for it."""
DELIVERY_BYTES = 512
"""Counted for each message beside its bytes: what the engine keeps of its delivery."""

_FRAME_HEAD_BYTES = cython.declare(cython.longlong, 8)
"""Also those of the protocol's header."""
_KNOWN_BYTES = cython.declare(cython.longlong, 11)
"""Of a frame, that say what it is: its size, type and channel, and the first bytes of its body."""
_HEADER_SIZE = cython.declare(cython.longlong, 0x414D5150)
"""The protocol's header, "AMQP", as the size of a frame."""

_FUNCTIONS = (
    "collector_peek collector_pop event_type event_delivery delivery_link delivery_partial"
    " delivery_aborted delivery_settled delivery_pending delivery_remote_state delivery_update"
    " delivery_settle delivery link_current link_advance link_recv link_send"
)
"""In the order of proton_calls.pxd."""
_RECEIVED = cython.declare(cython.ulonglong, 0x23)
_ACCEPTED = cython.declare(cython.ulonglong, 0x24)
_RELEASED = cython.declare(cython.ulonglong, 0x26)


@cython.cclass
class Unsettled:
    """Deliveries that were sent and that the client has not settled; its outcomes so far.

    tags      by delivery, its tag
    plain     an outcome without fields may be taken here
    taken     deliveries that were settled since `take_count`
    _runs     since `take_outcomes`: by outcome, ranges of tags in the order in which they came
    _outcome  of the range that grows, from _first to _last; 0: none does
    """

    tags = cython.declare(dict, visibility="readonly")
    plain = cython.declare(cython.bint, visibility="public")
    taken = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _runs: dict
    _outcome: cython.ulonglong
    _first: cython.longlong
    _last: cython.longlong

    def __init__(self) -> None:
        self.tags = {}
        self.plain = True
        self.taken = 0
        self._runs = {}
        self._outcome = 0
        self._first = 0
        self._last = 0

    @cython.cfunc
    def take(self, delivery: cython.ulonglong, link: cython.ulonglong) -> cython.bint:
        """Take what is new of a delivery, and settle it; False: that is not usual."""
        key: object = delivery
        tag: Any = self.tags.get(key)
        state: cython.ulonglong
        if tag is None:  # it has been settled, unless it is a transfer of the peer
            return pn_current(link) == 0
        state = pn_state(delivery)
        if _ACCEPTED <= state <= _RELEASED:
            del self.tags[key]
            self.taken += 1
            if not pn_settled(delivery):
                pn_update(delivery, state)
            pn_settle(delivery)
            self.note(state, tag)
            return True
        return (state == 0 or state == _RECEIVED) and not pn_settled(delivery)

    def note(self, outcome: cython.ulonglong, tag: cython.longlong) -> None:
        """Note the outcome of a delivery."""
        if outcome == self._outcome and tag == self._last + 1:
            self._last = tag
            return
        self._end_run()
        self._outcome = outcome
        self._first = tag
        self._last = tag

    @cython.cfunc
    def _end_run(self) -> None:
        if not self._outcome:
            return
        ranges: list = self._runs.setdefault(self._outcome, [])
        begin: cython.longlong = self._first
        if ranges and ranges[len(ranges) - 1][1] + 1 == begin:
            begin = ranges.pop()[0]
        ranges.append((begin, self._last))
        self._outcome = 0

    def take_outcomes(self) -> dict:
        """Return and forget the outcomes: by their descriptor, ranges of tags."""
        self._end_run()
        runs: dict = self._runs
        self._runs = {}
        return runs

    def take_count(self) -> int:
        """Return how many were settled since the last call."""
        taken = self.taken
        self.taken = 0
        return taken


@cython.cclass
class Gathered:
    """Messages of a link that were read and have no outcome yet, by their positions.

    bodies  of those read last, which have the same head
    size    bytes of all that are added, with DELIVERY_BYTES for each
    """

    bodies = cython.declare(list, visibility="public")
    size = cython.declare(cython.longlong, visibility="readonly")
    _deliveries: list
    _sizes: list

    def __init__(self) -> None:
        self.bodies = []
        self.size = 0
        self._deliveries = []
        self._sizes = []

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, delivery: int, message_bytes: int) -> None:
        """Add a message; delivery 0: the client has settled it."""
        self._deliveries.append(delivery)
        self._sizes.append(message_bytes + DELIVERY_BYTES)
        self.size += message_bytes + DELIVERY_BYTES

    def append_to(
        self,
        table: MessageTable,
        route: Route,
        properties: bytes,
        priority: int,
        ttl_ms: int,
        flags: int,
    ) -> int:
        """Append messages with these bodies to a table, and forget them; return how many."""
        bodies: list = self.bodies
        count: cython.Py_ssize_t = len(bodies)
        size: cython.uint = len(properties)
        i: cython.Py_ssize_t
        at: cython.p_uint
        self.bodies = []
        if not count:
            return 0
        first: cython.Py_ssize_t = table.append(
            route, properties, bytes(bodies[0]), priority, ttl_ms, flags
        )
        words: cython.Py_ssize_t = ROW_WORDS
        row: cython.Py_ssize_t = words * first
        rest = b"".join(bodies[1:])
        assert len(table.properties) + size * (count - 1) <= LENGTH_MAX, count
        assert len(table.bodies) + len(rest) <= LENGTH_MAX, count
        table.properties += properties * (count - 1)
        assert isinstance(table.bodies, bytearray), "a block from outside is not appended to"
        table.bodies += rest
        rows: bytearray = table.rows
        rows += rows[ROW.size * first :] * (count - 1)
        if cython.compiled:
            at = cython.cast(cython.p_uint, PyByteArray_AS_STRING(rows))
        else:
            at = memoryview(rows).cast("I")
        for i in range(1, count):
            row += words
            at[row + 1] = at[row + 1 - words] + size
            at[row + 2] = at[row + 2 - words] + len(bodies[i])
        table.count += count - 1
        return count

    @property
    def settled(self) -> bool:
        """Whether the client has settled all of them."""
        return not any(self._deliveries)

    def delivery(self, at: int) -> int:
        """Return the delivery of a message; 0: the client has settled it."""
        return self._deliveries[at]

    def is_done(self, at: int) -> bool:
        """Return whether a message has its outcome."""
        return not self._sizes[at]

    def done(self, at: int) -> int:
        """Note that a message has its outcome; return its size; 0: it had one before."""
        size: int = self._sizes[at]
        self._sizes[at] = 0
        return size

    def settle(self, positions: Any, outcome: cython.ulonglong, tells: bool) -> tuple:
        """Settle messages that have no outcome yet; return how many there were, and their size.

        tells  False: the link has ended, and nothing is said of them
        """
        told: cython.bint = tells
        count: cython.Py_ssize_t = 0
        size: cython.longlong = 0
        i: cython.Py_ssize_t
        one: cython.longlong
        delivery: cython.ulonglong
        for i in positions:
            one = self._sizes[i]
            if one:
                self._sizes[i] = 0
                count += 1
                size += one
                delivery = self._deliveries[i]
                if told and delivery:
                    pn_update(delivery, outcome)
                    pn_settle(delivery)
        return count, size


@cython.cclass
class EngineCalls:
    """The engine's functions, for many deliveries with one call.

    ffi, lib  cffi's module of the engine
    """

    _delivery_event: cython.int
    _transport_event: cython.int
    _message: bytearray

    def __init__(self, ffi: Any, lib: Any) -> None:
        self._delivery_event = lib.PN_DELIVERY
        self._transport_event = lib.PN_TRANSPORT
        self._message = bytearray(ALIKE_BYTES_MAX)
        if cython.compiled:
            for i, name in enumerate(_FUNCTIONS.split()):
                pn_bind(i, int(ffi.cast("uintptr_t", ffi.addressof(lib, f"pn_{name}"))))
        else:
            attach(ffi, lib)

    def skim(
        self,
        collector: cython.ulonglong,
        sending: dict,
        all_read: cython.ulonglong,
        told: list,
    ) -> int:
        """Handle the first events, as far as they are usual; return how many there were.

        sending   by link, its `Unsettled` and what is to be told when outcomes were taken
        all_read  a link of which everything that is there was read just now; 0: none
        told      gets what is to be told
        """
        event: cython.ulonglong
        kind: cython.int
        delivery: cython.ulonglong
        link: cython.ulonglong
        last: cython.ulonglong = 0
        skimmed: cython.Py_ssize_t = 0
        entry: Any
        unsettled: Unsettled
        unsettled = None  # type: ignore[assignment]
        while True:
            event = pn_peek(collector)
            if not event:
                break
            kind = pn_kind(event)
            if kind == self._delivery_event:
                delivery = pn_event_of(event)
                link = pn_link_of(delivery)
                if link != all_read:
                    if link != last:
                        entry = sending.get(link)
                        if entry is None:
                            break
                        unsettled = entry[0]
                        last = link
                        if not unsettled.plain:
                            break
                        told.append(entry[1])
                    if not unsettled.take(delivery, link):
                        break
                elif pn_current(link):
                    break
            elif kind != self._transport_event:  # of output, which is looked for anyway
                break
            pn_pop(collector)
            skimmed += 1
        return skimmed

    def read(
        self,
        link: cython.ulonglong,
        head: bytes,
        bytes_max: cython.longlong,
        room: cython.longlong,
        into: Gathered,
    ) -> Any:
        """Read messages that are all there and begin with `head`, and with one body then.

        bytes_max  no larger message is read
        room       bytes, with DELIVERY_BYTES for each message, after which none is
        head       b"": there is none
        Returns (delivery, message, whether the client has settled it) of one that was read and has
        another head; it is not added. None: there is no other one that may be read.
        """
        size: cython.longlong
        begin: cython.Py_ssize_t
        delivery: cython.ulonglong
        settled: cython.bint
        p: cython.p_uchar
        if cython.compiled:
            p = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._message))
        else:
            p = self._message
        while room > 0:
            delivery = pn_current(link)
            if not delivery or pn_partial(delivery):
                return None
            size = pn_pending(delivery)
            if size > bytes_max or pn_aborted(delivery):
                return None
            settled = pn_settled(delivery)
            if size > ALIKE_BYTES_MAX:
                return delivery, _large(link, size), settled
            if size:
                if cython.compiled:
                    pn_recv(link, cython.cast(cython.p_char, p), size)
                else:
                    pn_recv(link, p, size)
            pn_advance(link)
            begin = _body_at(p, size, head)
            if begin < 0:
                return delivery, bytes(self._message[:size]), settled
            if cython.compiled:
                into.bodies.append(
                    PyBytes_FromStringAndSize(cython.cast(cython.p_char, p + begin), size - begin)
                )
            else:
                into.bodies.append(bytes(p[begin:size]))
            if settled:
                pn_settle(delivery)
            into.add(0 if settled else delivery, size)
            room -= size + DELIVERY_BYTES
        return None

    def write(
        self,
        link: cython.ulonglong,
        block: Block,
        first: cython.Py_ssize_t,
        last: cython.Py_ssize_t,
        like: tuple,
        tag: cython.ulonglong,
        limits: tuple,
        unsettled: Unsettled | None,
    ) -> tuple:
        """Write messages first <= i < last of a block, the first ones that are alike.

        like       (their properties in the block, sections before their bodies)
        tag        of the first one, written as decimal digits; each next one has the next number
        limits     (bytes after which no more is written, the largest message that is)
        unsettled  gets the deliveries; None: they are settled
        returns    (how many were written, their bytes)
        """
        properties: bytes = like[0]
        sections: bytes = like[1]
        room: cython.longlong = limits[0]
        size_max: cython.longlong = min(limits[1], ALIKE_BYTES_MAX)
        head: cython.Py_ssize_t = len(sections)
        i: cython.Py_ssize_t
        size: cython.longlong
        written: cython.longlong = 0
        delivery: cython.ulonglong
        if not 0 <= first < last <= block.count:
            return 0, 0
        alike: _Alike = _Alike(block, first, properties)
        for i in range(first, last):
            size = alike.size(i)
            if room <= 0 or size < 0 or head + size > size_max:
                break
            delivery = pn_begin(link, tag + i - first)
            if cython.compiled:
                pn_send(link, PyBytes_AS_STRING(sections), head)
            else:
                pn_send(link, sections, head)
            alike.send(link, i)
            size += head
            pn_advance(link)
            if unsettled is None:
                pn_settle(delivery)
            else:
                unsettled.tags[delivery] = tag + i - first
            written += size
            room -= size
        else:
            i = last
        return i - first, written


@cython.cclass
class _Alike:
    """Messages of a block that have the same properties and route."""

    ends: cython.const[cython.uint][::1]
    bodies: cython.const[cython.uint][::1]
    column: cython.const[cython.uint][::1]
    area: cython.const[cython.uchar][::1]
    data: cython.const[cython.uchar][::1]
    properties: bytes
    routed: cython.bint
    route: cython.uint

    def __init__(self, block: Block, first: int, properties: bytes) -> None:
        self.ends = block.properties_offsets
        self.bodies = block.body_offsets
        column = block.route_column
        self.column = column
        self.area = block.properties_data
        self.data = block.body_data
        self.properties = properties
        self.routed = column is not None
        self.route = 0 if column is None else column[first]

    @cython.cfunc
    def size(self, i: cython.Py_ssize_t) -> cython.longlong:
        """Return the size of message i's data section; -1: it is not like the others."""
        same: cython.Py_ssize_t = len(self.properties)
        begin: cython.Py_ssize_t = self.ends[i]
        size: cython.longlong
        if self.ends[i + 1] - begin != same or begin + same > len(self.area):
            return -1
        if self.bodies[i] > self.bodies[i + 1] or self.bodies[i + 1] > len(self.data):
            return -1
        if self.routed and self.column[i] != self.route:
            return -1
        if cython.compiled:
            if same and memcmp(
                cython.address(self.area[begin]), PyBytes_AS_STRING(self.properties), same
            ):
                return -1
        else:
            if self.area[begin : begin + same] != self.properties:
                return -1
        size = self.bodies[i + 1] - self.bodies[i]
        return size + (5 if size <= 255 else 8)

    @cython.cfunc
    def send(self, link: cython.ulonglong, i: cython.Py_ssize_t) -> None:
        """Write message i's data section."""
        begin: cython.Py_ssize_t = self.bodies[i]
        size: cython.Py_ssize_t = self.bodies[i + 1] - begin
        short: cython.bint = size <= 255
        if cython.compiled:
            p: cython.p_uchar = cython.declare(cython.uchar[8])  # type: ignore[misc]
            p[0] = 0
            p[1] = 0x53
            p[2] = 0x75
            if short:
                p[3] = 0xA0
                p[4] = size
            else:
                p[3] = 0xB0
                p[4] = size >> 24
                p[5] = size >> 16 & 0xFF
                p[6] = size >> 8 & 0xFF
                p[7] = size & 0xFF
            pn_send(link, cython.cast(cython.p_char, p), 5 if short else 8)
            if size:
                pn_send(link, cython.cast(cython.p_char, cython.address(self.data[begin])), size)
        else:
            head = bytes((0xA0, size)) if short else b"\xb0" + size.to_bytes(4, "big")
            pn_send(link, b"\0\x53\x75" + head, 3 + len(head))
            pn_send(link, self.data[begin : begin + size], size)


@cython.cfunc
def _large(link: cython.ulonglong, size: cython.Py_ssize_t) -> bytearray:
    """Read the current message, of which a copy more would be much."""
    message = bytearray(size)
    if cython.compiled:
        pn_recv(link, PyByteArray_AS_STRING(message), size)
    else:
        pn_recv(link, message, size)
    pn_advance(link)
    return message


@cython.cfunc
@cython.exceptval(check=False)
def _body_at(p: cython.p_uchar, size: cython.Py_ssize_t, head: bytes) -> cython.Py_ssize_t:
    """Return where the body of a message begins, which is all that is behind `head`; -1: not so."""
    at: cython.Py_ssize_t = len(head)
    if not at or size < at + 2:
        return -1
    if cython.compiled:
        if memcmp(p, PyBytes_AS_STRING(head), at):
            return -1
    else:
        if p[:at] != head:
            return -1
    if p[at] == 0xA0:
        return at + 2 if at + 2 + p[at + 1] == size else -1
    if p[at] == 0xB0 and size >= at + 5:
        length: cython.longlong = (
            cython.cast(cython.longlong, p[at + 1]) << 24
            | p[at + 2] << 16
            | p[at + 3] << 8
            | p[at + 4]
        )
        return at + 5 if at + 5 + length == size else -1
    return -1


@cython.cclass
class InputFrames:
    """Finds the frames in input that comes in pieces, to have few of them processed at once.

    A transfer is one event. A disposition is one for each delivery that it names, which may be all
    that there are, and any other frame may be one: its code has several encodings.

    _rest  bytes to come of the frame that has begun; at first those of the protocol's header
    _head  the beginning of a frame that has not as many bytes as say what it is
    """

    _rest: cython.longlong
    _head: bytes

    def __init__(self) -> None:
        self._rest = _FRAME_HEAD_BYTES
        self._head = b""

    def piece(
        self, view: cython.const[cython.uchar][::1], most: cython.longlong, each: cython.longlong
    ) -> int:
        """Return how many of these bytes, one at least, have so many events but transfers.

        most  events, unless the first frame alone may have more
        each  those of a frame that may name any delivery
        """
        size: cython.longlong
        end: cython.longlong = len(view)
        last: cython.longlong = end - _KNOWN_BYTES
        at: cython.longlong = self._rest
        p: cython.p_uchar
        if cython.compiled:
            p = cython.cast(cython.p_uchar, cython.address(view[0])) if end else cython.NULL
        else:
            p = view
        if self._head or (not self._rest and end < _KNOWN_BYTES):
            self._head += bytes(view[:1])
            known = len(self._head)
            size = _frame_bytes(int.from_bytes(self._head[:4], "big"))
            if known == _KNOWN_BYTES or known == _FRAME_HEAD_BYTES == size:
                self._rest = size - known
                self._head = b""
            return 1
        while at <= last:
            size = u32(p, at)
            if p[at + 4] == 2 and p[at + 8] == 0 and p[at + 9] == 0x53 and p[at + 10] == 0x14:
                at += max(size, _KNOWN_BYTES)
                continue
            size = _frame_bytes(size)
            most -= _named(p, at, min(at + size, end), each)
            if most < 0 < at:
                break
            at += size
        self._rest = max(0, at - end)
        return min(at, end)


@cython.cfunc
@cython.exceptval(check=False)
def _frame_bytes(size: cython.longlong) -> cython.longlong:
    """Return the bytes of a frame that says its size, or of a protocol header behind SASL."""
    return size if size >= _KNOWN_BYTES and size != _HEADER_SIZE else _FRAME_HEAD_BYTES


@cython.cfunc
@cython.exceptval(check=False)
def _named(
    p: cython.p_const_uchar, at: cython.longlong, end: cython.longlong, each: cython.longlong
) -> cython.longlong:
    """Return how many events a frame makes: the deliveries that it names, as far as that is clear.

    end  of what is there of the frame
    """
    first: cython.longlong
    last: cython.longlong
    if p[at + 4] != 2 or p[at + 8] or p[at + 9] != 0x53 or p[at + 10] != 0x15:
        return each
    at += 11
    if end - at >= 3 and p[at] == 0xC0 and p[at + 2] >= 2:
        at += 3
    elif end - at >= 9 and p[at] == 0xD0 and u32(p, at + 5) >= 2:
        at += 9
    else:
        return each
    if at >= end or (p[at] != 0x41 and p[at] != 0x42):  # the role
        return each
    first = _uint(p, at + 1, end)
    if first < 0:
        return each
    at += 1 + _uint_bytes(p[at + 1])
    if at < end and p[at] == 0x40:
        return 1
    last = _uint(p, at, end)
    if last < first:  # it is not clear, or they wrap
        return each
    return min(last - first + 1, each)


@cython.cfunc
@cython.exceptval(check=False)
def _uint(p: cython.p_const_uchar, at: cython.longlong, end: cython.longlong) -> cython.longlong:
    """Return a uint; -1: it is none, or not there."""
    if at >= end or at + _uint_bytes(p[at]) > end:
        return -1
    if p[at] == 0x70:
        return u32(p, at + 1)
    if p[at] == 0x52:
        return p[at + 1]
    return 0 if p[at] == 0x43 else -1


@cython.cfunc
@cython.exceptval(check=False)
def _uint_bytes(code: cython.uint) -> cython.longlong:
    """Return the bytes of a uint with its constructor."""
    return 5 if code == 0x70 else 2 if code == 0x52 else 1
