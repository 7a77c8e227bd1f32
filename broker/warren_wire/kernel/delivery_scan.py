# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The client's side of basic.deliver: received AMQP 0.9.1 bytes cut into columns of messages.

For a client with a connection that another library keeps: deliveries on one channel become columns
that Arrow can use as they are; the frames of everything else are returned, unchanged, for that
library. One source for both kernels: interpreted, `_p` is the received bytes; compiled, a pointer.
"""

from __future__ import annotations

import struct
from typing import Any

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.kernel.items import DeliveryMalformed

if not cython.compiled:
    from warren_wire.kernel.properties import Size
else:
    from cython.cimports.cpython.bytearray import (
        PyByteArray_AS_STRING,
        PyByteArray_GET_SIZE,
        PyByteArray_Resize,
    )
    from cython.cimports.libc.string import memcpy
    from cython.cimports.warren_wire.kernel.compiled.properties import Size

AREA_BYTES_MAX = 0x7FFFFFFF
"""The most bytes of one column: Arrow's offsets of binary values are 32 bit, with a sign."""
_DELIVER = cython.declare(cython.ulonglong, 0x003C003C)
_CHANNEL_CLASS = cython.declare(cython.uint, 20)
_OFFSET = struct.Struct("=i")
_TAG = struct.Struct("=Q")
_IDLE = cython.declare(cython.uint, 0)
_WANTS_HEADER = cython.declare(cython.uint, 1)
_WANTS_BODY = cython.declare(cython.uint, 2)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _number(p: cython.p_uchar, at: Size, size: Size) -> cython.ulonglong:
    """Return the big-endian number of `size` bytes."""
    if cython.compiled:
        value: cython.ulonglong = 0
        k: Size
        for k in range(size):
            value = (value << 8) | p[at + k]
        return value
    else:
        return int.from_bytes(p[at : at + size], "big")


@cython.cclass
class ReceivedColumn:
    """Byte strings of messages: value i is data[offsets[i]:offsets[i + 1]], offsets native i32."""

    offsets = cython.declare(bytearray, visibility="readonly")
    data = cython.declare(bytearray, visibility="readonly")

    def __init__(self) -> None:
        self.offsets = bytearray(4)
        self.data = bytearray()

    @cython.cfunc
    def add(self, p: cython.p_uchar, at: Size, end: Size) -> None:
        """Append bytes to the value that is being received."""
        if cython.compiled:
            old: Size = PyByteArray_GET_SIZE(self.data)
            if old + end - at > AREA_BYTES_MAX:
                raise OverflowError("a column above 2 GiB: take() was not called in time")
            PyByteArray_Resize(self.data, old + end - at)
            memcpy(PyByteArray_AS_STRING(self.data) + old, p + at, end - at)
        else:
            self.data += p[at:end]
            if len(self.data) > AREA_BYTES_MAX:
                raise OverflowError("a column above 2 GiB: take() was not called in time")

    @cython.cfunc
    def close(self) -> None:
        """End the value that is being received."""
        self.offsets += _OFFSET.pack(len(self.data))

    @cython.cfunc
    def cut(self) -> ReceivedColumn:
        """Take off the bytes of the value that is being received; a new column has them."""
        rest: ReceivedColumn = ReceivedColumn()
        end: Size = _OFFSET.unpack_from(self.offsets, len(self.offsets) - 4)[0]
        if len(self.data) > end:
            rest.data += self.data[end:]
            del self.data[end:]
        return rest


@cython.cclass
class Deliveries:
    """Messages in columns, in the order received.

    tags         delivery tags, native 64 bit
    redelivered  one octet each, 0 or 1
    """

    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    tags = cython.declare(bytearray, visibility="readonly")
    redelivered = cython.declare(bytearray, visibility="readonly")
    exchange = cython.declare(ReceivedColumn, visibility="readonly")
    routing_key = cython.declare(ReceivedColumn, visibility="readonly")
    properties = cython.declare(ReceivedColumn, visibility="readonly")
    body = cython.declare(ReceivedColumn, visibility="readonly")

    def __init__(self) -> None:
        self.count = 0
        self.tags = bytearray()
        self.redelivered = bytearray()
        self.exchange, self.routing_key = ReceivedColumn(), ReceivedColumn()
        self.properties, self.body = ReceivedColumn(), ReceivedColumn()

    @property
    def size_bytes(self) -> int:
        """Bytes of bodies and properties, also of a message that is not complete."""
        return len(self.body.data) + len(self.properties.data)


@cython.cclass
class DeliveryScanner:
    """One connection's received bytes, from the first one on.

    channel            its basic.deliver is read here; content of other methods and channels is
                       returned like every other frame
    frame_max          largest frame accepted
    message_bytes_max  largest body accepted

    Invariant: _rest holds at most one incomplete frame.
    """

    channel = cython.declare(cython.uint, visibility="readonly")
    frame_max = cython.declare(cython.ulonglong, visibility="public")
    message_bytes_max = cython.declare(cython.ulonglong, visibility="readonly")
    filled = cython.declare(Deliveries, visibility="readonly")
    _p: cython.p_uchar
    _rest: bytearray
    _state: cython.uint
    _left: cython.ulonglong
    _tag: cython.ulonglong
    _redelivered: cython.uint
    _foreign: cython.bint

    def __init__(self, channel: int, frame_max: int, message_bytes_max: int) -> None:
        assert 0 < channel <= 0xFFFF, channel
        assert 0 < message_bytes_max < AREA_BYTES_MAX, message_bytes_max
        self.channel = channel
        self.frame_max = frame_max
        self.message_bytes_max = message_bytes_max
        self.filled = Deliveries()
        self._rest = bytearray()
        self._state, self._left, self._tag, self._redelivered = 0, 0, 0, 0
        self._foreign = False

    def take(self) -> Deliveries:
        """Return the complete messages so far; an incomplete one stays."""
        taken: Deliveries = self.filled
        fresh: Deliveries = Deliveries()
        fresh.exchange = taken.exchange.cut()
        fresh.routing_key = taken.routing_key.cut()
        fresh.properties = taken.properties.cut()
        fresh.body = taken.body.cut()
        self.filled = fresh
        return taken

    def feed(self, data: bytes) -> bytes:
        """Take received bytes; return the frames among them that are not deliveries.

        raises  DeliveryMalformed: the bytes are no frames, or frames in an order that cannot be
        """
        other: bytearray = bytearray()
        used: Size
        if self._foreign:
            return data
        if self._rest:
            self._rest += data
            used = self._scan(self._rest, other)
            if used:
                del self._rest[:used]
        else:
            used = self._scan(data, other)
            if used < len(data):
                self._rest = bytearray(memoryview(data)[used:])
        if self._foreign:
            other += self._rest  # type: ignore[unreachable]  # `_scan` has set it
            self._rest = bytearray()
        return bytes(other)

    @cython.cfunc
    def _scan(self, data: Any, other: bytearray) -> Size:
        """Cut all complete frames; return the number of bytes used."""
        p: cython.p_uchar
        at: Size = 0
        after: Size
        end: Size = len(data)
        size: cython.ulonglong
        kind: cython.uint
        if end == 0:
            return 0
        if cython.compiled:
            view: cython.const[cython.uchar][::1] = data
            p = cython.cast(cython.p_uchar, cython.address(view[0]))
        else:
            p = bytes(data)
        self._p = p
        while end - at >= 7:
            kind = p[at]
            if kind == 0x41:  # "A": a protocol header, the answer of a server of another version
                self._foreign = True
                break
            size = _number(p, at + 3, 4)
            if (kind == 0 or kind > 3) and kind != 8:
                raise DeliveryMalformed(f"a frame of type {kind}")
            if size > self.frame_max:
                raise DeliveryMalformed(f"a frame of {size} bytes, above {self.frame_max}")
            after = at + 8 + cython.cast(Size, size)
            if after > end:
                break
            if p[after - 1] != 0xCE:
                raise DeliveryMalformed(f"a frame that ends with {p[after - 1]}, not 206")
            if (
                kind == 8
                or _number(p, at + 1, 2) != self.channel
                or not self._ours(kind, at + 7, after - 1)
            ):
                other += p[at:after]
            at = after
        return at

    @cython.cfunc
    def _ours(self, kind: cython.uint, at: Size, end: Size) -> cython.bint:
        """Handle a frame of the channel; False: it is no part of a delivery."""
        p: cython.p_uchar = self._p
        if kind == 1:
            if end - at < 4:
                raise DeliveryMalformed(f"a method frame of {end - at} bytes")
            if self._state != _IDLE:
                if _number(p, at, 2) != _CHANNEL_CLASS:
                    raise DeliveryMalformed("a method in the middle of a message")
                self._drop()
            if _number(p, at, 4) != _DELIVER:
                return False
            self._deliver(at + 4, end)
            return True
        if self._state == _IDLE:
            return False
        if kind == 2:
            self._header(at, end)
        else:
            self._body(at, end)
        return True

    @cython.cfunc
    def _deliver(self, at: Size, end: Size) -> None:
        p: cython.p_uchar = self._p
        exchange: Size
        key: Size
        exchange = at + 1 + p[at] + 9 if at < end else end
        key = exchange + 1 + p[exchange] if exchange < end else end
        if key >= end or key + 1 + p[key] != end:
            raise DeliveryMalformed("malformed basic.deliver")
        self._tag = _number(p, exchange - 9, 8)
        self._redelivered = p[exchange - 1] & 1
        self.filled.exchange.add(p, exchange + 1, key)
        self.filled.routing_key.add(p, key + 1, end)
        self._state = _WANTS_HEADER

    @cython.cfunc
    def _header(self, at: Size, end: Size) -> None:
        p: cython.p_uchar = self._p
        if self._state != _WANTS_HEADER:
            raise DeliveryMalformed("a second content header")
        if end - at < 14 or _number(p, at, 2) != 60:
            raise DeliveryMalformed("malformed content header")
        self._left = _number(p, at + 4, 8)
        if self._left > self.message_bytes_max:
            raise DeliveryMalformed(
                f"a message of {self._left} bytes, above {self.message_bytes_max}"
            )
        self.filled.properties.add(p, at + 12, end)
        self._state = _WANTS_BODY
        if self._left == 0:
            self._finish()

    @cython.cfunc
    def _body(self, at: Size, end: Size) -> None:
        size: cython.ulonglong = end - at
        if self._state != _WANTS_BODY:
            raise DeliveryMalformed("a content body without its header")
        if size > self._left:
            raise DeliveryMalformed(f"{size - self._left} bytes of body above its header's size")
        self.filled.body.add(self._p, at, end)
        self._left -= size
        if self._left == 0:
            self._finish()

    @cython.cfunc
    def _finish(self) -> None:
        filled: Deliveries = self.filled
        filled.exchange.close()
        filled.routing_key.close()
        filled.properties.close()
        filled.body.close()
        filled.tags += _TAG.pack(self._tag)
        filled.redelivered.append(self._redelivered)
        filled.count += 1
        self._state = _IDLE

    @cython.cfunc
    def _drop(self) -> None:
        """Forget a message that will not be completed: its channel is being closed."""
        filled: Deliveries = self.filled
        filled.exchange.cut()
        filled.routing_key.cut()
        filled.properties.cut()
        filled.body.cut()
        self._state, self._left = _IDLE, 0
