"""Values between the processes of a test over a socket, pickled: both ends are the test."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any


def send(stream: socket.socket, value: Any) -> None:
    """One length-prefixed pickle."""
    data = pickle.dumps(value)
    stream.sendall(struct.pack(">I", len(data)) + data)


def receive(stream: socket.socket) -> Any:
    """One length-prefixed pickle."""
    (length,) = struct.unpack(">I", _exactly(stream, 4))
    return pickle.loads(_exactly(stream, length))


def _exactly(stream: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        some = stream.recv(min(1 << 20, count - len(data)))
        if not some:
            raise ConnectionError("closed")
        data += some
    return bytes(data)
