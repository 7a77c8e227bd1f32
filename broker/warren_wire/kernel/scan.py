# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The frame scanner: received AMQP 0.9.1 bytes cut into messages, acknowledgements, other methods.

One source for both kernels: interpreted, `_p` is the received bytes; compiled, a pointer to them.

A message with its three frames complete takes the fast path `_publish_whole`, which falls back on
anything unusual. All else is handled frame by frame by `_step`, which detects every error.
"""

from __future__ import annotations

import struct
from typing import Any

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.amqp091.codec import FRAME_BYTES_MIN
from warren_wire.block.layout import MESSAGE_BYTES_MAX
from warren_wire.kernel import items
from warren_wire.kernel.content import Content
from warren_wire.kernel.frame_rest import FILL_BYTES_MIN, complete
from warren_wire.kernel.table import MessageTable, Routes

if not cython.compiled:
    from warren_wire.kernel.octets import extend, u16, u32, u64
    from warren_wire.kernel.properties import Size, walk
else:
    from cython.cimports.cpython.bytearray import (
        PyByteArray_AS_STRING,
        PyByteArray_GET_SIZE,
        PyByteArray_Resize,
    )
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
    from cython.cimports.libc.string import memcmp
    from cython.cimports.warren_wire.kernel.compiled.octets import extend, u16, u32, u64
    from cython.cimports.warren_wire.kernel.compiled.properties import Size, walk

ROUTES_MAX = 4096
"""Maximum of routes in a connection's dictionary; the next table then starts with an empty one."""

_HEAD = struct.Struct(">BHI")
_HEADER = struct.Struct(">HHQ")
_ROW = struct.Struct("=5I")


@cython.cclass
class FrameScanner:
    """One connection's received bytes, from the first frame after the protocol header on.

    Invariants: _rest holds at most one incomplete frame, so at most frame_max + 8 bytes, and none
    while _left > 0: so much is to come of a body frame on _filled, the rest is in the body; a
    channel is in at most one of _contents and _refused; the open run ends at the last message.
    """

    frame_max = cython.declare(cython.uint, visibility="public")
    table = cython.declare(object, visibility="readonly")
    message_bytes_max = cython.declare(cython.ulonglong, visibility="readonly")
    _p: cython.p_uchar
    _count: Size
    _rows: bytearray
    _properties: bytearray
    _bodies: bytearray
    _rest: bytearray
    _left: Size
    _filled: cython.int
    _items: list
    _contents: dict
    _unfinished: cython.ulonglong
    _unfinished_max: cython.ulonglong
    _refused: set
    _unusual: cython.bint
    _dead: cython.bint
    _route_raw: bytes
    _route: cython.uint
    _route_ids: dict
    _seen: bytes
    _mixed: cython.uint
    _ttl: cython.uint
    _run_channel: cython.int
    _run_first: Size
    _run_route: cython.longlong
    _run_flags: cython.uint
    _ack_channel: cython.int
    _ack_ranges: list
    _ack_kind: cython.int
    _ack_first: cython.ulonglong
    _ack_last: cython.ulonglong
    _ack_multiple: cython.bint

    def __init__(
        self,
        frame_max: int,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        unfinished_bytes_max: int = 1 << 62,
    ) -> None:
        assert frame_max >= FRAME_BYTES_MIN, frame_max
        assert 0 < message_bytes_max < 1 << 32, message_bytes_max
        self.frame_max = frame_max
        self.message_bytes_max = message_bytes_max
        self._unfinished_max = unfinished_bytes_max
        self._rest, self._left, self._filled = bytearray(), 0, 0
        self._items = []
        self._contents = {}
        self._refused, self._unusual, self._dead, self._unfinished = set(), False, False, 0
        self._run_channel = self._ack_channel = -1
        self._ack_ranges, self._ack_multiple = [], False
        self._seen = b""
        self._start_table(Routes())

    @property
    def pending_bytes(self) -> int:
        """Bytes held of incomplete frames and messages."""
        return len(self._rest) + self._unfinished

    def take_table(self) -> MessageTable:
        """Return the table filled so far; later messages are added to a new one."""
        table = self.table
        routes = table.routes
        self._start_table(Routes() if len(routes.entries) > ROUTES_MAX else routes)
        return table

    def discard_channel(self, channel: int) -> None:
        """Drop content on that channel until channel.close or channel.close-ok comes on it.

        For a channel that was sent channel.close: its client may stop in the middle of a message.
        """
        dropped = self._contents.pop(channel, None)
        if dropped is not None:
            self._unfinished -= len(dropped.body)
        self._refused.add(channel)
        self._unusual = True

    def close(self) -> None:
        """Drop everything that is held; later input is ignored."""
        self._dead, self._unfinished = True, 0
        self._rest, self._contents = bytearray(), {}
        self._start_table(Routes())

    def feed(self, data: bytes | bytearray | memoryview) -> list:
        """Take received bytes; return the items that they complete, in order.

        After a Malformed item all input is ignored. No view of the table may be held.
        """
        used: Size = 0
        if self._dead or not len(data):
            return []
        if self._rest:
            used = complete(self._rest, memoryview(data))
            del self._rest[: self._scan(self._rest, 0)]
        if used < len(data) and not self._dead:
            used = self._scan(data, used)
            if used < len(data):
                self._rest = bytearray(memoryview(data)[used:])
        self._close_run()
        self._close_acks()
        if self._dead:  # since the call
            self._rest, self._contents = bytearray(), {}  # type: ignore[unreachable]
            self._unfinished = 0
        self.table.count = self._count
        items: list = self._items
        self._items = []
        return items

    # -------------------------------------------------------------- frames

    @cython.cfunc
    def _scan(self, data: Any, at: Size) -> Size:
        """Cut all complete frames from `at` on; return where the rest begins."""
        p: cython.p_uchar
        after: Size
        whole: Size
        end: Size = len(data)
        size: Size
        kind: cython.uint
        channel: cython.int
        if cython.compiled:
            view: cython.const[cython.uchar][::1] = data
            p = cython.cast(cython.p_uchar, cython.address(view[0]))
        else:
            p = bytes(data)
        self._p = p
        if self._left:
            at = self._fill(at, end)
        while end - at >= 7 and not self._dead:
            if cython.compiled:
                kind = p[at]
                channel = u16(p, at + 1)
                size = u32(p, at + 3)
            else:
                kind, channel, size = _HEAD.unpack_from(p, at)
            # Refused before the frame is complete: with a wrong size it would never be complete.
            if kind != 1 and kind != 2 and kind != 3 and kind != 8:
                self._frame_error(at, end, "unknown_frame")
                break
            if size > self.frame_max:  # like RabbitMQ, which accepts 8 bytes more than agreed
                self._frame_error(at, end, f"frame_too_large, {size}, {self.frame_max - 8}")
                break
            after = at + size + 8
            if after > end:
                if kind == 3 and size >= FILL_BYTES_MIN and self._takes(channel, size):
                    self._left, self._filled = size + 1, channel
                    at = self._fill(at + 7, end)
                break
            if p[after - 1] != 0xCE:
                self._frame_error(at, end, f"invalid_frame_end_marker, {p[after - 1]}")
                break
            if kind == 1 and size >= 4 and u32(p, at + 7) == 0x003C0028 and not self._unusual:
                whole = self._publish_whole(at, after, end, channel)
                if whole > 0:
                    at = whole
                    continue
            self._step(at, after, kind, channel)
            at = after
        return at

    @cython.cfunc
    def _takes(self, channel: cython.int, size: Size) -> cython.bint:
        """Return whether a body frame of that size on that channel breaks no rule."""
        content: Content | None = self._contents.get(channel)
        return content is not None and content.properties is not None and size <= content.left

    @cython.cfunc
    def _fill(self, at: Size, end: Size) -> Size:
        """Pass bytes of the incomplete frame to its body, if it still has one; return their end."""
        channel: cython.int = self._filled
        until: Size = min(end, at + self._left - 1)
        content: Content | None = self._contents.get(channel)
        if content is not None:
            extend(content.body, self._p, at, until)
            content.left -= until - at
            self._unfinished += until - at
        self._left -= until - at
        if until == end:
            return end
        self._left = 0
        if self._p[until] != 0xCE:
            text = items.frame_error(3, b"", f"invalid_frame_end_marker, {self._p[until]}")
            self._malformed(channel, items.FRAME_ERROR, text)
        elif content is not None:
            self._filled_up(content, channel)
        return until + 1

    @cython.cfunc
    def _publish_whole(self, at: Size, after: Size, end: Size, channel: cython.int) -> Size:
        """Take method, header and one body frame at once; return their end, -1: use `_step`."""
        p: cython.p_uchar = self._p
        size: Size
        body: Size
        left: cython.ulonglong
        if channel == 0 or end - after < 22 or not self._find_route(at + 11, after - 1):
            return -1
        if cython.compiled:
            if p[after] != 2 or u16(p, after + 1) != cython.cast(cython.uint, channel):
                return -1
            size = u32(p, after + 3)
            if u32(p, after + 7) != 0x003C0000:
                return -1
            left = u64(p, after + 11)
        else:
            kind, there, size = _HEAD.unpack_from(p, after)
            class_id, weight, left = _HEADER.unpack_from(p, after + 7)
            if kind != 2 or there != channel or class_id != 60 or weight:
                return -1
        if size < 14 or size > self.frame_max or size > end - after - 8:
            return -1
        body = after + 8 + size
        if p[body - 1] != 0xCE or left > self.frame_max or left > self.message_bytes_max:
            return -1
        if left == 0:
            if not self._examine(after + 19, body - 1):
                return -1
            self._append(after + 19, body - 1, body, body, channel)
            return body
        size = left
        if end - body < size + 8 or p[body + 7 + size] != 0xCE:
            return -1
        if cython.compiled:
            if p[body] != 3 or u16(p, body + 1) != cython.cast(cython.uint, channel):
                return -1
            if u32(p, body + 3) != left:
                return -1
        elif _HEAD.unpack_from(p, body) != (3, channel, left):
            return -1
        if not self._examine(after + 19, body - 1):
            return -1
        self._append(after + 19, body - 1, body + 7, body + 7 + size, channel)
        return body + 8 + size

    @cython.cfunc
    def _step(self, at: Size, after: Size, kind: cython.uint, channel: cython.int) -> None:
        """Handle one complete frame of any kind in any state."""
        start: Size = at + 7
        end: Size = after - 1
        if kind == 8:
            if end > start:
                self._frame_error(at, after, "unknown_frame")
            elif channel:
                text = f"heartbeat on channel {channel}; it goes on channel 0"
                self._malformed(channel, items.UNEXPECTED_FRAME, text)
            else:
                self._add(items.Heartbeat())
        elif kind == 1:
            if end - start < 4:
                self._frame_error(at, after, "unknown_frame")
            else:
                self._method(start, end, channel)
        elif self._unusual and channel in self._refused:
            pass
        elif channel not in self._contents:
            self._malformed(channel, items.UNEXPECTED_FRAME, items.NO_METHOD)
        elif kind == 2:
            self._header(start, end, channel)
        else:
            self._body(start, end, channel)

    @cython.cfunc
    def _method(self, start: Size, end: Size, channel: cython.int) -> None:
        class_id: cython.uint = u16(self._p, start)
        method_id: cython.uint = u16(self._p, start + 2)
        if self._unusual and channel in self._contents:
            text = items.NO_HEADER if self._contents[channel].properties is None else items.NO_BODY
            self._malformed(channel, items.UNEXPECTED_FRAME, text, 60, 40)
            return
        if class_id == 60 and channel:
            if method_id == 40:
                self._publish(start + 4, end, channel)
                return
            if method_id == 80 or method_id == 90 or method_id == 120:
                self._ack(start + 4, end, channel, method_id)
                return
        if class_id == 20 and (method_id == 40 or method_id == 41) and self._unusual:
            self._refused.discard(channel)
            self._unusual = len(self._refused) + len(self._contents) > 0
        self._add(items.MethodItem(channel, class_id, method_id, self._p[start + 4 : end]))

    @cython.cfunc
    def _ack(self, start: Size, end: Size, channel: cython.int, method_id: cython.uint) -> None:
        """Handle basic.ack, reject, nack; extend the open run of them where possible."""
        tag: cython.ulonglong
        bits: cython.uint
        kind: cython.int
        multiple: cython.bint
        single: cython.bint
        if end - start != 9:
            text = f"{end - start} bytes of arguments; this method has 9"
            self._malformed(channel, items.SYNTAX_ERROR, text, 60, method_id)
            return
        tag = u64(self._p, start)
        bits = self._p[start + 8]
        multiple = method_id != 90 and bits & 1 != 0
        single = not multiple and not self._ack_multiple
        if method_id == 80:
            kind = 0
        elif method_id == 120:
            kind = 1 if bits & 2 else 2
        else:
            kind = 3 if bits & 1 else 4
        self._close_run()
        if self._ack_channel != channel:
            self._close_acks()
            self._ack_channel = channel
        elif kind == self._ack_kind and single and tag > 0 and tag - 1 == self._ack_last:
            self._ack_last = tag
            return
        else:
            self._close_range()
        self._ack_kind = kind
        self._ack_first = 0 if multiple else tag
        self._ack_last = tag
        self._ack_multiple = multiple

    # -------------------------------------------------------------- content

    @cython.cfunc
    def _publish(self, start: Size, end: Size, channel: cython.int) -> None:
        if self._unusual and channel in self._refused:
            return
        if self._find_route(start, end):
            self._contents[channel] = Content(self.table.routes.entries[self._route])
            self._unusual = True
        elif end - start >= 5 and self._well_formed(start + 2, end) and self._p[end - 1] & 2:
            self._malformed(channel, items.NOT_IMPLEMENTED, "immediate=true", 60, 40)
        else:
            self._malformed(channel, items.SYNTAX_ERROR, "malformed basic.publish", 60, 40)

    @cython.cfunc
    def _header(self, start: Size, end: Size, channel: cython.int) -> None:
        content: Content = self._contents[channel]
        size: cython.ulonglong
        if content.properties is not None:
            self._malformed(channel, items.UNEXPECTED_FRAME, items.NO_BODY, 60, 40)
            return
        if end - start < 14:
            self._malformed(channel, items.FRAME_ERROR, "content header too short", 60, 40)
            return
        if u32(self._p, start) != 0x003C0000:
            of = u16(self._p, start)
            text = f"expected content header for class 60, got one for class {of} instead"
            self._malformed(channel, items.UNEXPECTED_FRAME, text, 60, 40)
            return
        if not self._examine(start + 12, end):
            self._malformed(channel, items.SYNTAX_ERROR, "malformed properties", 60, 40)
            return
        size = u64(self._p, start + 4)
        if size > self.message_bytes_max:
            del self._contents[channel]
            self._refused.add(channel)
            text = items.size_error(size, self.message_bytes_max)
            self._add(items.ContentRefused(channel, items.PRECONDITION_FAILED, text))
            return
        content.properties = self._p[start + 12 : end]
        content.mixed, content.ttl, content.left = self._mixed, self._ttl, size
        if size == 0:
            self._finish(content, channel)

    @cython.cfunc
    def _body(self, start: Size, end: Size, channel: cython.int) -> None:
        content: Content = self._contents[channel]
        if content.properties is None:
            self._malformed(channel, items.UNEXPECTED_FRAME, items.NO_HEADER, 60, 40)
            return
        if end - start > content.left:
            text = f"content body exceeds its header's size by {end - start - content.left} bytes"
            self._malformed(channel, items.FRAME_ERROR, text, 60, 40)
            return
        extend(content.body, self._p, start, end)
        content.left -= end - start
        self._unfinished += end - start
        self._filled_up(content, channel)

    @cython.cfunc
    def _filled_up(self, content: Content, channel: cython.int) -> None:
        """Finish the message after its last body frame; refuse too much of others."""
        if content.left == 0:
            self._finish(content, channel)
        elif self._unfinished > self._unfinished_max:
            text = items.unfinished_error(self._unfinished, self._unfinished_max)
            self._malformed(channel, items.RESOURCE_ERROR, text, 60, 40)

    @cython.cfunc
    def _finish(self, content: Content, channel: cython.int) -> None:
        """Append a message that arrived in several pieces and is now complete."""
        del self._contents[channel]
        self._unfinished -= len(content.body)
        self._unusual = len(self._refused) + len(self._contents) > 0
        self._route = self.table.routes.add(content.route)
        self._route_raw = b""
        self._mixed, self._ttl, self._seen = content.mixed, content.ttl, b""
        self._properties += content.properties  # type: ignore[arg-type]  # it has come
        if self._bodies:
            self._bodies += content.body
        else:  # its buffer becomes the table's
            self.table.bodies = self._bodies = content.body
        self._append_row(channel)

    @cython.cfunc
    def _append(self, at: Size, until: Size, body: Size, end: Size, channel: cython.int) -> None:
        """Append a message (properties at..until, body body..end), both checked, to the table."""
        extend(self._properties, self._p, at, until)
        extend(self._bodies, self._p, body, end)
        self._append_row(channel)

    @cython.cfunc
    def _append_row(self, channel: cython.int) -> None:
        if len(self._bodies) > 0xFFFFFFFF or len(self._properties) > 0xFFFFFFFF:
            raise OverflowError("a message table above 4 GiB: take_table() was not called in time")
        if cython.compiled:
            old: Size = PyByteArray_GET_SIZE(self._rows)
            PyByteArray_Resize(self._rows, old + 20)
            row: cython.p_uint = cython.cast(cython.p_uint, PyByteArray_AS_STRING(self._rows) + old)
            row[0] = self._route
            row[1] = cython.cast(cython.uint, PyByteArray_GET_SIZE(self._properties))
            row[2] = cython.cast(cython.uint, PyByteArray_GET_SIZE(self._bodies))
            row[3] = self._ttl
            row[4] = self._mixed
        else:
            ends = len(self._properties), len(self._bodies)
            self._rows += _ROW.pack(self._route, *ends, self._ttl, self._mixed)
        if self._run_channel == channel:
            if self._run_route != self._route:
                self._run_route = -1
            self._run_flags |= self._mixed >> 8
        else:
            self._close_run()
            self._close_acks()
            self._run_channel = channel
            self._run_first, self._run_route = self._count, self._route
            self._run_flags = self._mixed >> 8
        self._count += 1

    # -------------------------------------------------------------- fields

    @cython.cfunc
    def _find_route(self, at: Size, end: Size) -> cython.bint:
        """Set _route from basic.publish's arguments; False when malformed, or with immediate."""
        p: cython.p_uchar = self._p
        start: Size = at + 2
        size: Size
        raw: bytes
        if end - start < 3:
            return False
        if cython.compiled:
            raw, size = self._route_raw, end - start
            if PyBytes_GET_SIZE(raw) == size:
                if memcmp(PyBytes_AS_STRING(raw), p + start, size) == 0:
                    return True
        elif p[start:end] == self._route_raw:
            return True
        if not self._well_formed(start, end) or p[end - 1] & 2:
            return False
        # Reserved bits would make two routes of one.
        raw = p[start:end] if p[end - 1] < 2 else p[start : end - 1] + bytes((p[end - 1] & 1,))
        known = self._route_ids.get(raw)
        self._route = self.table.routes.add_raw(raw) if known is None else known
        self._route_raw = raw
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _well_formed(self, at: Size, end: Size) -> cython.bint:
        """Return whether exchange, routing key and flags fill at..end, 3 bytes or more."""
        at += 1 + self._p[at]
        if at >= end:
            return False
        return at + 1 + self._p[at] == end - 1

    @cython.cfunc
    def _examine(self, at: Size, end: Size) -> cython.bint:
        """Set _mixed and _ttl from property flags and list; False when they are malformed."""
        p: cython.p_uchar = self._p
        size: Size
        raw: bytes
        found: cython.longlong
        if cython.compiled:
            raw, size = self._seen, end - at
            if PyBytes_GET_SIZE(raw) == size and not memcmp(PyBytes_AS_STRING(raw), p + at, size):
                return True
            found = walk(p + at, size)
        else:
            if p[at:end] == self._seen:
                return True
            found = walk(p[at:end], end - at)
        if found < 0:
            return False
        self._seen = p[at:end]
        self._mixed, self._ttl = found >> 32, found & 0xFFFFFFFF
        return True

    # -------------------------------------------------------------- items

    @cython.cfunc
    def _start_table(self, routes: Routes) -> None:
        self.table = table = MessageTable(routes)
        self._rows, self._properties = table.rows, table.properties
        self._bodies = table.bodies  # type: ignore[assignment]
        self._route_ids = routes.ids
        self._count, self._route_raw = 0, b""

    @cython.cfunc
    def _add(self, item: object) -> None:
        self._close_run()
        self._close_acks()
        self._items.append(item)

    @cython.cfunc
    def _close_run(self) -> None:
        if self._run_channel >= 0:
            first, last = self._run_first, self._count
            route, flags = self._run_route, self._run_flags
            self._items.append(items.PublishRun(self._run_channel, first, last, route, flags))
            self._run_channel = -1

    @cython.cfunc
    def _close_range(self) -> None:
        multiple = bool(self._ack_multiple)
        self._ack_ranges.append((self._ack_kind, self._ack_first, self._ack_last, multiple))

    @cython.cfunc
    def _close_acks(self) -> None:
        if self._ack_channel >= 0:
            self._close_range()
            self._items.append(items.AckRun(self._ack_channel, tuple(self._ack_ranges)))
            self._ack_ranges = []
            self._ack_channel = -1

    @cython.cfunc
    def _malformed(self, channel: int, code: int, text: str, of: int = 0, at: int = 0) -> None:
        self._add(items.Malformed(channel, code, text, of, at))
        self._dead = True

    @cython.cfunc
    def _frame_error(self, at: Size, end: Size, why: str) -> None:
        """Report bytes that are not a frame."""
        shown: bytes = self._p[min(at + 7, end) : min(at + 23, end)]
        text = items.frame_error(self._p[at], shown, why)
        self._malformed(u16(self._p, at + 1), items.FRAME_ERROR, text)
