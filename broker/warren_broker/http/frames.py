"""What a node and the process of its HTTP API say to each other.

A frame is its length in four bytes, then MessagePack. The node's first one is the job; then come
requests from the process, each with the credentials of its HTTP request, and answers to them.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeVar

import msgspec

from warren_wire.errors import FrameError
from warren_wire.undecodable import UNDECODABLE

T = TypeVar("T")
_LENGTH: Final = struct.Struct(">I")
FRAME_HEAD_BYTES: Final = _LENGTH.size
API_FRAME_BYTES_MAX: Final = 512 << 20
HIDDEN_CONDITION: Final = "warren:vhost-hidden"
"""Condition of a refusal: there may be such a vhost, which the user may not enter."""
REPORT: Final = "REPORT"
"""AdminRoute of a frame that is no request: what clients without a login take of the process."""
ASKS_MAX: Final = 64
"""Requests under way at once."""


class ApiListener(msgspec.Struct, frozen=True, array_like=True):
    """A port of the node: protocol is RabbitMQ's word, such as `amqp/ssl`.

    certfile, cacertfile  of a port with TLS: PEM files; "": there is none
    """

    protocol: str
    ip: str
    port: int
    certfile: str = ""
    cacertfile: str = ""


class ApiJob(msgspec.Struct, frozen=True, array_like=True):
    """What the process is to do.

    sockets   file descriptors of listening sockets, in the order of the settings' `ports`
    settings  of ManagementSettings
    amqp      where the node's clients connect: scheme, host, port
    timeout_ms  of an operation in the cluster
    connections_max  of the node's clients
    """

    node: str
    version: str
    default_queue_type: str
    listeners: tuple[ApiListener, ...]
    sockets: tuple[int, ...]
    settings: dict[str, Any]
    amqp: tuple[str, str, int]
    timeout_ms: int
    connections_max: int


class NodeAsk(msgspec.Struct, frozen=True, array_like=True):
    """A request for the node's resources.

    peer    address and port of the HTTP client
    route   names a route of `admin.resources`; REPORT: it is no request
    fields  of the route's request, by key
    vhost   of the resource; None: the request is of none
    login   the first one of an HTTP request: its login is counted
    """

    number: int
    peer: str
    user: str
    password: str
    route: str
    fields: Any = {}
    vhost: str | None = None
    login: bool = False

    def __repr__(self) -> str:
        return f"NodeAsk(user={self.user!r}, route={self.route!r})"


class ReceivedAsk(NodeAsk, frozen=True, array_like=True):
    """A request as the node receives it: its fields are decoded when the user may have that."""

    fields: msgspec.Raw = msgspec.Raw(b"\x80")


class NodeReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer of a resource, or a refusal: then its condition is not empty, and body a text."""

    number: int
    status: int
    body: Any = None
    condition: str = ""


def _plain(value: Any) -> Any:
    """Convert Proton's numbers, which are ints with a width."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"a value of type {type(value).__name__}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)


def encode_frame(message: ApiJob | NodeAsk | NodeReply) -> bytes:
    """Return a message as a frame; texts that are no Unicode are written with backslashes.

    Raises OverflowError, TypeError for a value that MessagePack does not have.
    """
    try:
        data = _ENCODER.encode(message)
    except UnicodeEncodeError:
        data = _ENCODER.encode(type(message)(*map(_readable, msgspec.structs.astuple(message))))
    return _LENGTH.pack(len(data)) + data


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_readable(key): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    return value


def frame_size(head: bytes | bytearray, at: int = 0) -> int:
    """Return the size of the frame behind its first bytes; raises FrameError."""
    (size,) = _LENGTH.unpack_from(head, at)
    if size > API_FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {size:,} bytes; {API_FRAME_BYTES_MAX:,} is the limit")
    return int(size)


class FrameReader:
    """Cuts a stream into frames.

    Invariant: `_rest` holds less than one frame.
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that are complete now; raises FrameError."""
        self._rest += data
        found, at = [], 0
        while len(self._rest) - at >= _LENGTH.size:
            end = at + _LENGTH.size + frame_size(self._rest, at)
            if len(self._rest) < end:
                break
            found.append(bytes(self._rest[at + _LENGTH.size : end]))
            at = end
        del self._rest[:at]
        return found


def decode_frame(kind: type[T], frame: bytes | msgspec.Raw) -> T:
    """Parse a frame of that type, or the fields of a ReceivedAsk; raises FrameError."""
    try:
        return msgspec.msgpack.decode(frame, type=kind)
    except UNDECODABLE as error:
        raise FrameError(f"a frame that is no message: {error}") from error
