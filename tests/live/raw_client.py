"""A client that may say anything: frames by hand on a socket."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pamqp.commands as spec
import pamqp.frame
from pamqp.common import FieldTable

from tests.patience import PATIENCE_S

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
TIMEOUT_S = PATIENCE_S


def frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    """A frame, right or wrong."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def method(what: Any, channel: int = 1) -> bytes:
    """A method's frame, by pamqp."""
    return bytes(pamqp.frame.marshal(what, channel))


def raw_method(class_id: int, method_id: int, arguments: bytes = b"", channel: int = 1) -> bytes:
    """Return a method's frame with unchecked arguments."""
    return frame(1, channel, struct.pack(">HH", class_id, method_id) + arguments)


def content(size: int, properties: bytes = b"\0\0", channel: int = 1, body: bytes = b"") -> bytes:
    """A content header of a message of `size` bytes, with as much of the body as given."""
    header = frame(2, channel, struct.pack(">HHQ", 60, 0, size) + properties)
    return header + (frame(3, channel, body) if body else b"")


def short(value: bytes) -> bytes:
    """A short string."""
    return bytes((len(value),)) + value


def long(value: bytes) -> bytes:
    """A long string, or a table's bytes."""
    return struct.pack(">I", len(value)) + value


class ContentHeader(bytes):
    """A content header's payload as it came: pamqp reads no strings that are not UTF-8."""

    name = "ContentHeader"


class RawClient:
    """A connected socket; `stage` says how far the handshake is taken before the test begins.

    stages: socket, header, started (start-ok sent), tuned (tune-ok sent), open, channel
    """

    STAGES = ("socket", "header", "started", "tuned", "open", "channel")

    def __init__(
        self,
        address: tuple[str, int],
        stage: str = "channel",
        password: str = "guest",
        vhost: str = "/",
        capabilities: FieldTable | None = None,
        frame_max: int = 131_072,
        user: str = "guest",
    ) -> None:
        self.socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left = b""
        start_ok = spec.Connection.StartOk(
            {"capabilities": capabilities or {}}, "PLAIN", f"\0{user}\0{password}", "en_US"
        )
        steps: tuple[tuple[bytes, Any], ...] = (
            (PROTOCOL_HEADER, spec.Connection.Start),
            (method(start_ok, 0), spec.Connection.Tune),
            (method(spec.Connection.TuneOk(2047, frame_max, 0), 0), None),
            (method(spec.Connection.Open(vhost), 0), spec.Connection.OpenOk),
            (method(spec.Channel.Open()), spec.Channel.OpenOk),
        )
        for data, answer in steps[: self.STAGES.index(stage)]:
            self.send(data)
            if answer is not None:
                self.expect(answer)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *failure: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """All of it, or as much as the broker lets in before it hangs up."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def next(self) -> tuple[int, Any] | None:
        """The next frame (channel, pamqp's), heartbeats left out; None: the broker hung up."""
        while True:
            if self.left.startswith(b"AMQP") and len(self.left) >= 8:
                head, self.left = self.left[:8], self.left[8:]
                return 0, head
            if len(self.left) >= 7 and not self.left.startswith(b"AMQP"):
                size = struct.unpack(">I", self.left[3:7])[0] + 8
                if len(self.left) >= size:
                    taken, self.left = self.left[:size], self.left[size:]
                    if taken[0] == 2:
                        return struct.unpack(">H", taken[1:3])[0], ContentHeader(taken[7:-1])
                    _, channel, found = pamqp.frame.unmarshal(taken)
                    if found.name != "Heartbeat":
                        return channel, found
                    continue
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self.left += data

    def expect(self, kind: Any) -> Any:
        """The next frame, which is of that kind."""
        got = self.next()
        assert got is not None, f"hung up instead of {kind.__name__}"
        assert isinstance(got[1], kind), (got[1].name, dict(got[1]))
        return got[1]

    def find(self, kind: Any) -> Any:
        """The next frame of that kind, whatever comes before."""
        while True:
            got = self.next()
            assert got is not None, f"hung up before {kind}"
            if isinstance(got[1], kind):
                return got[1]

    def everything(self) -> list[Any]:
        """All frames until the broker hangs up; closes are answered."""
        frames = []
        while (got := self.next()) is not None:
            frames.append(got[1])
            if isinstance(got[1], spec.Connection.Close):
                self.send(method(spec.Connection.CloseOk(), 0))
        return frames
