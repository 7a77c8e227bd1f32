"""The frames on a connection between two nodes.

A frame is `u32 length of the body | u8 kind | body`, little-endian.

| kind | body |
| --- | --- |
| 0 HEARTBEAT | empty; or u8: condition of the sender's disk; or u64: position of its log: below |
| 1 RAFT | u32 length of the header, MessagePack header, blobs |
| 2 MESSAGE | an application message |
| 3 RAISED | u32: version of the cluster from here on |
| 16 HELLO | MessagePack Hello: the sender's identity |
| 17 PROOF | MessagePack Proof: that it knows the cluster's secret |
| 18 WELCOME | empty: from here on the other kinds are allowed |
| 19 REFUSED | MessagePack Refused: why; the connection is closed |

The disk's condition is 0 (quick, as on a new connection), 1 (slow) or 2 (stalled) from then on. The
log's u64 is the number of the last
write on the sender's disk; it is sent before a RAFT frame with messages that depend on that write.

The header of RAFT is an array of (message, entries): the Append there has no entries; they are
(term, kind, time_ms, length) beside it, and their data are the blobs, in order. So an entry's data
is not copied when a frame is built, and once when it is received: out of a buffer of the
connection, where a large RAFT frame is received (`Assembler.room`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from warren_raft.errors import PeerError
from warren_raft.messages import AnyRaftMessage, Append, WireEntry
from warren_raft.runtime.net.stream import Buffer
from warren_raft.types import EntryKind, Term, TimeMs
from warren_wire.undecodable import UNDECODABLE

HEARTBEAT, RAFT, MESSAGE, RAISED = 0, 1, 2, 3
HELLO, PROOF, WELCOME, REFUSED = 16, 17, 18, 19
HANDSHAKE_FRAME_BYTES_MAX = 64 << 10

_FRAME = struct.Struct("<IB")
_LENGTH = struct.Struct("<I")
_POSITION = struct.Struct("<Q")
_POSITION_FRAME = struct.Struct("<IBQ")
FRAME_HEADER_BYTES = _FRAME.size
ROOM_BYTES_MIN = 64 << 10
ROOM_BYTES_MAX = 4 << 20
"""A RAFT frame between these sizes is received into the connection's buffer.

So no more than that is allocated for a size that a header gives; a larger frame, which one very
large message makes, is joined from what has come.
"""
HEARTBEAT_FRAME = _FRAME.pack(0, HEARTBEAT)


class BadFrame(PeerError):
    """Bytes that no node sends on a link of this version."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)

    def __str__(self) -> str:
        return f"{self.detail}; look at the memory and the network of the two nodes"


class Carried(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message in a RAFT header."""

    message: AnyRaftMessage
    entries: tuple[tuple[Term, EntryKind, TimeMs, int], ...] = ()


_encoder = msgspec.msgpack.Encoder()
_carried: msgspec.msgpack.Decoder[list[Carried]] = msgspec.msgpack.Decoder(list[Carried])


def frame(kind: int, body: bytes) -> bytes:
    """Return a small frame in one buffer."""
    return _FRAME.pack(len(body), kind) + body


def disk_frame(condition: int) -> bytes:
    """Return a heartbeat with the condition of the sender's disk."""
    return frame(HEARTBEAT, bytes([condition]))


def position_frame(write: int) -> bytes:
    """Return a heartbeat with the last write of the log that is on the sender's disk."""
    return _POSITION_FRAME.pack(_POSITION.size, HEARTBEAT, write)


def raised_frame(version: int) -> bytes:
    """Return the frame that says which version the cluster has, before anything of it."""
    return frame(RAISED, _LENGTH.pack(version))


def raised(body: memoryview) -> int:
    """Return the version in the body of a RAISED frame; raises BadFrame."""
    if len(body) != _LENGTH.size:
        raise BadFrame(f"a RAISED frame of {len(body)} bytes")
    return int(_LENGTH.unpack(body)[0])


def position(body: memoryview) -> int | None:
    """Return the position in the body of a HEARTBEAT; None: it holds something else."""
    return int(_POSITION.unpack(body)[0]) if len(body) == _POSITION.size else None


def frame_around(kind: int, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Return a frame with those buffers as its body."""
    return [_FRAME.pack(sum(map(len, buffers)), kind), *buffers]


def encode_raft(messages: Sequence[AnyRaftMessage]) -> list[Buffer]:
    """Encode messages as one RAFT frame; entries' data by reference."""
    carried: list[Carried] = []
    blobs: list[Buffer] = []
    for message in messages:
        if type(message) is Append and message.entries:
            entries = []
            for term, kind, time_ms, data in message.entries:
                entries.append((term, kind, time_ms, len(data)))
                blobs.append(data)
            bare = replace(message, entries=())
            carried.append(Carried(bare, tuple(entries)))
        else:
            carried.append(Carried(message))
    header = _encoder.encode(carried)
    size = _LENGTH.size + len(header) + sum(map(len, blobs))
    start = _FRAME.pack(size, RAFT) + _LENGTH.pack(len(header)) + header
    return [start, *blobs]


def decode_raft(body: memoryview) -> list[AnyRaftMessage]:
    """Decode the messages of a RAFT frame; raises BadFrame."""
    if len(body) < _LENGTH.size:
        raise BadFrame(f"a RAFT frame of {len(body)} bytes")
    (length,) = _LENGTH.unpack_from(body)
    at = _LENGTH.size + length
    try:
        carried = _carried.decode(body[_LENGTH.size : at])
    except UNDECODABLE as error:
        raise BadFrame(f"a RAFT frame with a bad header ({error})") from None
    messages: list[AnyRaftMessage] = []
    for item in carried:
        message = item.message
        if item.entries:
            if type(message) is not Append:
                raise BadFrame(f"entries beside {type(message).__name__}")
            entries: list[WireEntry] = []
            for term, kind, time_ms, size in item.entries:
                end = at + size
                if not at <= end <= len(body):
                    raise BadFrame(f"an entry of {size} bytes, {len(body) - at} are left")
                entries.append((term, kind, time_ms, bytes(body[at:end])))
                at = end
            message = replace(message, entries=tuple(entries))
        messages.append(message)
    if at != len(body):
        raise BadFrame(f"{len(body) - at} bytes too many in a RAFT frame")
    return messages


class Assembler:
    """A parser that cuts received bytes into frames.

    Of a large RAFT frame, of `_length` bytes, `_filled` are in `_buffer`, which is used for the
    next one again: what `take` keeps of such a frame, it copies, as `decode_raft` does.

    Invariants: `_have` is the sum of `_parts`, less than `_need` between two calls of `feed`;
    _filled < _length or both are 0, and then there are no parts
    """

    __slots__ = ("_buffer", "_filled", "_have", "_length", "_need", "_parts", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._parts: list[Buffer] = []
        self._have = 0
        self._need = FRAME_HEADER_BYTES
        self._buffer = bytearray()
        self._filled = self._length = 0

    def room(self) -> memoryview | None:
        """Return where the rest of the large frame goes, for `filled`; None: use `feed`."""
        if not self._length:
            return None
        return memoryview(self._buffer)[self._filled : self._length]

    def filled(self, size: int, take: Callable[[int, memoryview], None]) -> None:
        """Take note of bytes in the room, and pass the frame to `take` when it is complete."""
        self._filled += size
        length = self._length
        assert self._filled <= length, (self._filled, length)
        if self._filled == length:
            self._filled = self._length = 0
            take(RAFT, memoryview(self._buffer)[:length])

    def _begin(self, length: int, start: memoryview) -> None:
        """Make room for a large frame, of which `start` has come."""
        if len(self._buffer) < length:
            self._buffer = bytearray(min(2 * length, ROOM_BYTES_MAX))
        self._buffer[: len(start)] = start
        self._filled, self._length = len(start), length

    def feed(self, chunk: Buffer, take: Callable[[int, memoryview], None]) -> None:
        """Pass every complete frame to `take`: kind, body; raises BadFrame."""
        room = self.room() if self._length else None
        if room is not None:
            size = min(len(room), len(chunk))
            room[:size] = memoryview(chunk)[:size]
            self.filled(size, take)
            chunk = memoryview(chunk)[size:]
            if not chunk:
                return
        self._have += len(chunk)
        if self._have < self._need:
            self._parts.append(chunk)
            return
        data = chunk
        if self._parts:
            data = b"".join((*self._parts, chunk))
            self._parts = []
        view, at, size = memoryview(data), 0, len(data)
        while True:
            left = size - at
            if left < FRAME_HEADER_BYTES:
                self._need = FRAME_HEADER_BYTES
                break
            length, kind = _FRAME.unpack_from(view, at)
            if length > self.bytes_max:
                raise BadFrame(
                    f"a frame of {length} bytes, at most {self.bytes_max} are taken "
                    "(frame_bytes_max)"
                )
            end = at + FRAME_HEADER_BYTES + length
            if end > size:
                if kind == RAFT and ROOM_BYTES_MIN <= length <= ROOM_BYTES_MAX:
                    self._begin(length, view[at + FRAME_HEADER_BYTES :])
                    at, self._need = size, FRAME_HEADER_BYTES
                else:
                    self._need = FRAME_HEADER_BYTES + length
                break
            take(kind, view[at + FRAME_HEADER_BYTES : end])
            at = end
        self._have = size - at
        if self._have:
            self._parts.append(view[at:])
