# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Formatting of ranges of blocks as AMQP 0.9.1 frames for a client.

One source for both kernels: compiled, a range is measured first, then written into `out` in place;
interpreted, it is packed message by message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.amqp091.codec import FRAME_BYTES_MIN
from warren_wire.amqp091.fitting import HEADER_FRAME_BYTES, fit
from warren_wire.block.block import Block, BlockError
from warren_wire.block.layout import FORM_AMQP091, Buffer
from warren_wire.kernel.items import Unsendable
from warren_wire.kernel.table import MessageTable

if not cython.compiled:
    from warren_wire.kernel.properties import (
        HeaderChange,
        examine,
        readable,
        sections_at,
        split_sections,
        walk,
        with_headers,
        with_sections,
    )
else:
    from cython.cimports.cpython.bytearray import (
        PyByteArray_AS_STRING,
        PyByteArray_GET_SIZE,
        PyByteArray_Resize,
    )
    from cython.cimports.cpython.bytes import (
        PyBytes_AS_STRING,
        PyBytes_GET_SIZE,
    )
    from cython.cimports.libc.string import memcmp, memcpy
    from cython.cimports.warren_wire.kernel.compiled.properties import sections_at, walk

    from warren_wire.kernel.compiled.properties import (
        HeaderChange,
        examine,
        readable,
        split_sections,
        with_headers,
        with_sections,
    )

__all__ = [
    "fitting",
    "format_confirms",
    "format_deliveries",
    "format_large",
    "format_get_ok",
    "format_return",
    "readable",
    "split_sections",
    "with_headers",
    "with_sections",
]

_METHOD = struct.Struct(">BHIHH")
_HEADER = struct.Struct(">BHIHHQ")
_BODY = struct.Struct(">BHI")
_TAG = struct.Struct(">QB")
_TAG_ONLY = struct.Struct(">Q")
_SETTLED = struct.Struct(">BHIHHQBB")


def format_deliveries(
    out: bytearray,
    block: Block,
    first: int,
    last: int,
    channel: int,
    consumer_tag: str,
    delivery_tag_first: int,
    redelivered: bool,
    frame_max: int,
    headers: dict[str, int] | None = None,
) -> tuple[int, ...]:
    """Append basic.deliver for messages first <= i < last; i has delivery_tag_first + i - first.

    block      of AMQP 0.9.1 form
    frame_max  as negotiated; no frame is larger: bodies are split, x-death is shortened (`fitting`)
    headers    64-bit integers to be added to (or replaced in) each message's headers
    returns    the messages with malformed properties, which were replaced (`properties.readable`)
    fails      Unsendable: a message fits into no frame, or its form cannot be sent
    """
    if not 0 <= first <= last <= block.count:
        raise BlockError(f"messages {first} to {last} of a block of {block.count}")
    assert frame_max >= FRAME_BYTES_MIN, frame_max
    assert 0 < channel <= 0xFFFF, channel
    if first == last:
        return ()
    if block.form != FORM_AMQP091:
        raise _other_form(block, first)
    tag = consumer_tag.encode()
    assert len(tag) <= 255, consumer_tag
    looked: _Looked = _Looked(block, first, last, frame_max)
    looked.look(HeaderChange(headers) if headers else None)
    changed: Any = looked.changed
    if cython.compiled:
        leaving: _Range = _Range(block, first, last, tag, changed)
        leaving.piece_max = frame_max - 8
        leaving.write(out, channel, delivery_tag_first, redelivered)
    else:
        for i in range(first, last):
            exchange, key = block.route(i)
            fields = b"%c%b%b%c%b%c%b" % (
                len(tag),
                tag,
                _TAG.pack(delivery_tag_first + i - first, redelivered),
                len(exchange),
                exchange,
                len(key),
                key,
            )
            properties = None if changed is None else changed[i - first]
            if properties is None:
                properties = bytes(block.properties(i))
            out += _content(channel, 60, fields, properties, block.body(i), frame_max)
    return tuple(looked.unreadable)


def format_large(
    out: list,
    block: Block,
    first: int,
    last: int,
    channel: int,
    consumer_tag: str,
    delivery_tag_first: int,
    redelivered: bool,
    frame_max: int,
    headers: dict[str, int] | None = None,
) -> tuple[int, ...]:
    """Append the same frames to a list of pieces: bodies are views of the block, not copies.

    What is between two views is one piece. For large bodies in large frames: each costs a call.
    """
    if not 0 <= first < last <= block.count:
        raise BlockError(f"messages {first} to {last} of a block of {block.count}")
    if block.form != FORM_AMQP091:
        raise _other_form(block, first)
    tag = consumer_tag.encode()
    looked: _Looked = _Looked(block, first, last, frame_max)
    looked.look(HeaderChange(headers) if headers else None)
    changed: Any = looked.changed
    end: bytes = b""  # of the frame before
    for i in range(first, last):
        properties = None if changed is None else changed[i - first]
        if properties is None:
            properties = bytes(block.properties(i))
        exchange, key = block.route(i)
        numbered = _TAG.pack(delivery_tag_first + i - first, redelivered)
        lengths = 4 + 1 + len(tag) + len(numbered) + 1 + len(exchange) + 1 + len(key)
        body = block.body(i)
        head = (
            end,
            _METHOD.pack(1, channel, lengths, 60, 60),
            b"%c%b%b%c%b%c%b\xce"
            % (len(tag), tag, numbered, len(exchange), exchange, len(key), key),
            _HEADER.pack(2, channel, 12 + len(properties), 60, 0, len(body)),
            properties,
        )
        end = b"".join(head)
        for at in range(0, len(body), frame_max - 8):
            piece = body[at : at + frame_max - 8]
            out += (b"%b\xce%b" % (end, _BODY.pack(3, channel, len(piece))), piece)
            end = b""
        end += b"\xce"
    out.append(end)
    return tuple(looked.unreadable)


def _other_form(block: Block, i: int) -> Unsendable:
    return Unsendable(i, f"its block is of form {block.form}, which no AMQP 0.9.1 client can read")


@cython.cclass
class _Looked:
    """The properties of messages first <= i < last, checked before they are sent.

    changed     None: all are sent unchanged; else per message what is sent instead, or None
    unreadable  the messages with malformed properties
    Invariant: what is sent is well formed and fits into a frame.
    """

    block: Block
    first: cython.Py_ssize_t
    last: cython.Py_ssize_t
    frame_max: cython.Py_ssize_t
    changed: Any
    unreadable: list

    def __init__(self, block: Block, first: int, last: int, frame_max: int) -> None:
        self.block = block
        self.first = first
        self.last = last
        self.frame_max = frame_max
        self.changed = None
        self.unreadable = []

    @cython.cfunc
    def look(self, change: HeaderChange | None) -> None:
        """Check all properties; equal ones that follow one another are checked once."""
        ends: cython.const[cython.uint][::1] = self.block.properties_offsets
        area: Buffer = self.block.properties_data
        limit: cython.Py_ssize_t = len(area)
        bodies: cython.const[cython.uint][::1] = self.block.body_offsets
        body_limit: cython.Py_ssize_t = len(self.block.body_data)
        routed: cython.bint = self.block.route_column is not None
        column: cython.const[cython.uint][::1] = self.block.route_column
        routes: cython.uint = len(self.block.routes)
        data: cython.const[cython.uchar][::1] = area
        i: cython.Py_ssize_t
        size: cython.Py_ssize_t
        good: cython.bint
        own: cython.bint  # there are no sections of AMQP 1.0
        raw: bytes
        p: cython.p_uchar
        if cython.compiled:
            p = cython.NULL
            if limit:
                p = cython.cast(cython.p_uchar, cython.address(data[0]))
        else:
            p = area
        fits: cython.Py_ssize_t = self.frame_max - HEADER_FRAME_BYTES if change is None else -1
        seen: cython.Py_ssize_t = -1  # the message of the last checked properties
        for i in range(self.first, self.last):
            if ends[i] > ends[i + 1] or ends[i + 1] > limit:
                raise Unsendable(i, "its properties lie outside of its block")
            if bodies[i] > bodies[i + 1] or bodies[i + 1] > body_limit:
                raise Unsendable(i, "its body lies outside of its block")
            if routed and column[i] >= routes:
                raise Unsendable(i, "it has none of its block's routes")
            size = ends[i + 1] - ends[i]
            if cython.compiled:
                if seen >= 0 and size == ends[seen + 1] - ends[seen]:
                    if not memcmp(p + ends[seen], p + ends[i], size):
                        continue
                good = walk(p + ends[i], size) >= 0
                own = not good or not sections_at(p + ends[i], size)
            else:
                if seen >= 0 and p[ends[seen] : ends[seen + 1]] == p[ends[i] : ends[i + 1]]:
                    continue
                raw = bytes(p[ends[i] : ends[i + 1]])
                good = examine(raw) >= 0
                own = not good or not sections_at(raw, size)
            if good and own and size <= fits:
                seen = i
                continue
            raw = bytes(area[ends[i] : ends[i + 1]])
            if not good:
                self.unreadable.append(i)
                raw = readable(raw)
            self.replace(i, raw, change)

    @cython.cfunc
    def replace(self, i: cython.Py_ssize_t, raw: bytes, change: HeaderChange | None) -> None:
        """Set what is sent instead of the message's own properties; raw: well formed."""
        own: bytes = split_sections(raw)[0]
        leaving = own if change is None else change.apply(own)
        if self.changed is None:
            self.changed = [None] * (self.last - self.first)
        if len(leaving) > self.frame_max - HEADER_FRAME_BYTES:
            leaving = fitting(i, leaving, self.frame_max)
        self.changed[i - self.first] = leaving


def fitting(i: int, properties: bytes, frame_max: int) -> bytes:
    """Return message i's properties shortened to fit into a frame; raises Unsendable."""
    fitted = fit(properties, frame_max - HEADER_FRAME_BYTES)
    if fitted is None:
        raise Unsendable(
            i,
            f"its {len(properties)} bytes of properties do not fit into a frame of {frame_max} "
            "bytes, which is what this client agreed to (frame_max)",
            elsewhere=True,
        )
    return fitted


def format_get_ok(
    out: bytearray,
    block: Block,
    i: int,
    channel: int,
    delivery_tag: int,
    redelivered: bool,
    message_count: int,
    frame_max: int,
    headers: dict[str, int] | None = None,
) -> tuple[int, ...]:
    """Append basic.get-ok with message i; message_count is the number still ready in the queue.

    returns, fails  as `format_deliveries`
    """
    if not 0 <= i < block.count:
        raise BlockError(f"message {i} of a block of {block.count}")
    if block.form != FORM_AMQP091:
        raise _other_form(block, i)
    exchange, key = block.route(i)
    raw = bytes(block.properties(i))
    properties, _ = split_sections(readable(raw))
    if headers:
        properties = with_headers(properties, headers)
    properties = fitting(i, properties, frame_max)
    fields = b"%b%c%b%c%b%b" % (
        _TAG.pack(delivery_tag, redelivered),
        len(exchange),
        exchange,
        len(key),
        key,
        min(message_count, 0xFFFFFFFF).to_bytes(4, "big"),
    )
    out += _content(channel, 71, fields, properties, block.body(i), frame_max)
    return (i,) if examine(raw) < 0 else ()


def format_return(
    out: bytearray,
    table: MessageTable,
    i: int,
    channel: int,
    reply_code: int,
    reply_text: str,
    frame_max: int,
) -> None:
    """Append basic.return with message i of a table; reply_text of at most 255 bytes."""
    route = table.route(i)
    text = reply_text.encode()
    assert len(text) <= 255, reply_text
    fields = b"%b%c%b%c%b%c%b" % (
        reply_code.to_bytes(2, "big"),
        len(text),
        text,
        len(route.exchange),
        route.exchange,
        len(route.routing_key),
        route.routing_key,
    )
    out += _content(channel, 50, fields, table.properties_of(i), table.body(i), frame_max)


def format_confirms(
    out: bytearray,
    channel: int,
    up_to: int,
    tags: Iterable[tuple[int, int]] = (),
    negative: bool = False,
) -> None:
    """Append basic.ack, or basic.nack when negative.

    up_to  one frame with multiple, for all up to this delivery tag; 0: none
    tags   closed ranges (first, last) above up_to, one frame for each tag in them
    """
    method = 120 if negative else 80
    if up_to:
        out += _SETTLED.pack(1, channel, 13, 60, method, up_to, 1, 0xCE)
    for first, last in tags:
        assert up_to < first <= last, (up_to, first, last)
        frame = _SETTLED.pack(1, channel, 13, 60, method, first, 0, 0xCE)
        frames = bytearray(frame * (last - first + 1))
        if last > first:
            _number(frames, first)
        out += frames


@cython.cfunc
def _number(frames: bytearray, tag: cython.ulonglong) -> None:
    """Give settlements that follow one another the tags from that one on."""
    k: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(frames) // 21
    for k in range(count):
        if cython.compiled:
            p: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(frames))
            _put_u64(p + 21 * k + 11, tag + k)
        else:
            _TAG_ONLY.pack_into(frames, 21 * k + 11, tag + k)


def _content(
    channel: int, method: int, fields: bytes, properties: bytes, body: Any, frame_max: int
) -> bytes:
    """Return the method, header and body frames of one message; method is one of class 60."""
    size = len(body)
    head = _METHOD.pack(1, channel, 4 + len(fields), 60, method)
    header = _HEADER.pack(2, channel, 12 + len(properties), 60, 0, size)
    if size == 0:
        return b"%b%b\xce%b%b\xce" % (head, fields, header, properties)
    if size <= frame_max - 8:
        start = _BODY.pack(3, channel, size)
        return b"%b%b\xce%b%b\xce%b%b\xce" % (head, fields, header, properties, start, body)
    parts = [head, fields, b"\xce", header, properties, b"\xce"]
    for at in range(0, size, frame_max - 8):
        piece = body[at : at + frame_max - 8]
        parts += (_BODY.pack(3, channel, len(piece)), piece, b"\xce")
    return b"".join(parts)


# ------------------------------------------------------------------ compiled


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _frame(
    p: cython.p_uchar, kind: cython.uint, channel: cython.uint, size: cython.ulonglong
) -> cython.void:
    p[0] = kind
    p[1] = channel >> 8
    p[2] = channel & 0xFF
    p[3] = size >> 24 & 0xFF
    p[4] = size >> 16 & 0xFF
    p[5] = size >> 8 & 0xFF
    p[6] = size & 0xFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_u64(p: cython.p_uchar, value: cython.ulonglong) -> cython.void:
    k: cython.int
    for k in range(8):
        p[k] = value >> (56 - 8 * k) & 0xFF


@cython.cfunc
def _route_fields(block: Block, route: Any) -> bytes:
    exchange, key = block.routes[route]
    return b"%c%b%c%b\xce" % (len(exchange), exchange, len(key), key)


@cython.cclass
class _Range:
    """Messages first <= i < last of a block on their way out: measured, then written.

    known   route of the block -> its two short strings and the end octet of the method frame
    """

    block: Block
    first: cython.Py_ssize_t
    last: cython.Py_ssize_t
    piece_max: cython.Py_ssize_t
    tag: bytes
    changed: Any
    known: dict
    ends: cython.const[cython.uint][::1]
    body_ends: cython.const[cython.uint][::1]
    properties: cython.const[cython.uchar][::1]
    bodies: cython.const[cython.uchar][::1]
    column: cython.const[cython.uint][::1]
    routed: cython.bint

    def __init__(self, block: Block, first: int, last: int, tag: bytes, changed: Any) -> None:
        self.block = block
        self.first = first
        self.last = last
        self.tag = tag
        self.changed = changed
        self.known = {}
        self.ends = block.properties_offsets
        self.body_ends = block.body_offsets
        self.properties = block.properties_data
        self.bodies = block.body_data
        self.routed = block.route_column is not None
        self.column = block.route_column

    @cython.cfunc
    def measure(self) -> cython.Py_ssize_t:
        """Return the bytes of all frames; `_Looked` has checked that offsets lie in the block."""
        i: cython.Py_ssize_t
        total: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        route: cython.longlong = -1
        fields: bytes = b""
        for i in range(self.first, self.last):
            if route < 0 or (self.routed and self.column[i] != route):
                route = self.column[i] if self.routed else 0
                if route not in self.known:
                    self.known[route] = _route_fields(self.block, route)
                fields = self.known[route]
            size = self.body_ends[i + 1] - self.body_ends[i]
            total += 41 + PyBytes_GET_SIZE(self.tag) + PyBytes_GET_SIZE(fields) + size
            total += 8 * ((size + self.piece_max - 1) // self.piece_max)
            if self.changed is None or self.changed[i - self.first] is None:
                total += self.ends[i + 1] - self.ends[i]
            else:
                total += len(self.changed[i - self.first])
        return total

    @cython.cfunc
    @cython.exceptval(check=False)
    def method(
        self,
        p: cython.p_uchar,
        channel: cython.uint,
        delivery_tag: cython.ulonglong,
        redelivered: cython.bint,
        fields: bytes,
    ) -> cython.p_uchar:
        """Write basic.deliver; where it ends."""
        n: cython.Py_ssize_t = PyBytes_GET_SIZE(self.tag)
        _frame(p, 1, channel, 13 + n + PyBytes_GET_SIZE(fields))
        p[7] = 0
        p[8] = 60
        p[9] = 0
        p[10] = 60
        p[11] = n
        memcpy(p + 12, PyBytes_AS_STRING(self.tag), n)
        p += 12 + n
        _put_u64(p, delivery_tag)
        p[8] = 1 if redelivered else 0
        n = PyBytes_GET_SIZE(fields)
        memcpy(p + 9, PyBytes_AS_STRING(fields), n)
        return p + 9 + n

    @cython.cfunc
    def content(
        self, p: cython.p_uchar, channel: cython.uint, i: cython.Py_ssize_t
    ) -> cython.p_uchar:
        """Write header and body frames of message i; where they end."""
        raw: bytes
        n: cython.Py_ssize_t
        at: cython.Py_ssize_t = self.body_ends[i]
        size: cython.Py_ssize_t = self.body_ends[i + 1] - at
        if self.changed is None or self.changed[i - self.first] is None:
            n = self.ends[i + 1] - self.ends[i]
            if n:
                memcpy(p + 19, cython.address(self.properties[self.ends[i]]), n)
        else:
            raw = self.changed[i - self.first]
            n = PyBytes_GET_SIZE(raw)
            memcpy(p + 19, PyBytes_AS_STRING(raw), n)
        _frame(p, 2, channel, 12 + n)
        p[7] = 0
        p[8] = 60
        p[9] = 0
        p[10] = 0
        _put_u64(p + 11, size)
        p[19 + n] = 0xCE
        p += 20 + n
        while size > 0:
            n = size if size < self.piece_max else self.piece_max
            _frame(p, 3, channel, n)
            memcpy(p + 7, cython.address(self.bodies[at]), n)
            p[7 + n] = 0xCE
            p += 8 + n
            at += n
            size -= n
        return p

    @cython.cfunc
    def write(
        self,
        out: bytearray,
        channel: cython.uint,
        delivery_tag: cython.ulonglong,
        redelivered: cython.bint,
    ) -> None:
        """Measure and check everything, then write it: one resize, no byte twice."""
        i: cython.Py_ssize_t
        route: cython.longlong = -1
        fields: bytes = b""
        total: cython.Py_ssize_t = self.measure()
        old: cython.Py_ssize_t = PyByteArray_GET_SIZE(out)
        PyByteArray_Resize(out, old + total)
        start: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(out)) + old
        p: cython.p_uchar = start
        for i in range(self.first, self.last):
            if route < 0 or (self.routed and self.column[i] != route):
                route = self.column[i] if self.routed else 0
                fields = self.known[route]
            p = self.method(p, channel, delivery_tag + (i - self.first), redelivered, fields)
            p = self.content(p, channel, i)
        assert p - start == total, (p - start, total)
