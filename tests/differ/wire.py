"""An AMQP 0.9.1 connection that hides nothing: every frame that arrives is an event."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pamqp.commands as spec
import pamqp.encode
import pamqp.frame
from pamqp.header import ContentHeader

from live.raw_client import PROTOCOL_HEADER
from tests.patience import PATIENCE_S

ANSWER_S = PATIENCE_S
"""How long a broker may take to answer a method."""
FRAME_MAX = 131_072
CONTENT = (spec.Basic.Deliver, spec.Basic.GetOk, spec.Basic.Return)
CAPABILITIES = {"consumer_cancel_notify": True, "publisher_confirms": True, "basic.nack": True}


_encode = pamqp.encode.encode_table_value


def _as_most_clients_do(value: Any) -> bytes:
    """Encode a field's value: integers in 32 bits where they fit, floats in 64.

    pamqp would send the narrowest integers. Brokers name the width in some texts, and Warren keeps
    none.
    """
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    if isinstance(value, int) and not isinstance(value, bool):
        narrow = -(1 << 31) <= value < 1 << 31
        return struct.pack(">ci", b"I", value) if narrow else struct.pack(">cq", b"l", value)
    return bytes(_encode(value))


pamqp.encode.encode_table_value = _as_most_clients_do


def _any_name(frame: Any) -> None:
    """Check nothing: pamqp would refuse names that no broker does."""


_kinds: Iterable[Any] = spec.INDEX_MAPPING.values()
for _kind in _kinds:
    _kind.validate = _any_name


class NoAnswer(Exception):
    """The broker did not answer in time, or not as expected.

    event  what came instead; None: nothing
    """

    def __init__(self, text: str, event: Event | None = None) -> None:
        super().__init__(text)
        self.event = event


@dataclass
class Event:
    """A method that arrived, with its message where it carries one.

    channel  0 for the connection's own methods
    """

    channel: int
    method: Any
    properties: Any = None
    body: bytes = b""
    missing: int = 0


class Wire:
    """One connection: sends methods, collects events; `closed` once the broker has ended it."""

    def __init__(
        self,
        address: tuple[str, int],
        vhost: str,
        capabilities: dict[str, bool] | None = None,
        user: str = "guest",
    ) -> None:
        self.closed = False
        self._socket = socket.create_connection(address, timeout=ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""
        self._events: deque[Event] = deque()
        self._unfinished: dict[int, Event] = {}
        self._socket.sendall(PROTOCOL_HEADER)
        self._expect(spec.Connection.Start)
        properties = {"capabilities": CAPABILITIES if capabilities is None else capabilities}
        self.send(0, spec.Connection.StartOk(properties, "PLAIN", f"\0{user}\0guest", "en_US"))
        self._expect(spec.Connection.Tune)
        self.send(0, spec.Connection.TuneOk(2047, FRAME_MAX, 0))
        self.send(0, spec.Connection.Open(vhost))
        self._expect(spec.Connection.OpenOk)

    def send(
        self, channel: int, method: Any, body: bytes | None = None, properties: Any = None
    ) -> None:
        """Send a method, with a message where `body` is given."""
        frames = pamqp.frame.marshal(method, channel)
        if body is not None:
            header = ContentHeader(0, len(body), properties or spec.Basic.Properties())
            frames += pamqp.frame.marshal(header, channel)
            if body:
                frames += struct.pack(">BHI", 3, channel, len(body)) + body + b"\xce"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(frames)

    def event(self, within_s: float = ANSWER_S) -> Event | None:
        """Return the next event; None when there is none in time, or the connection has ended."""
        deadline = time.monotonic() + within_s
        while not self._events:
            left_s = deadline - time.monotonic()
            if self.closed or left_s <= 0:
                return None
            self._receive(left_s)
        return self._events.popleft()

    def close(self) -> None:
        """Close like a client that has had enough: with a close, and without waiting long."""
        if not self.closed:
            self.send(0, spec.Connection.Close(200, "", 0, 0))
            while (event := self.event(5.0)) is not None:
                if isinstance(event.method, spec.Connection.CloseOk):
                    break
        self.drop()

    def drop(self) -> None:
        """End the socket without a word."""
        self.closed = True
        self._socket.close()

    def _expect(self, kind: type) -> Any:
        event = self.event()
        if event is None or not isinstance(event.method, kind):
            text = f"{event and event.method} in place of {kind.__name__}"
            raise NoAnswer(text, event)
        return event.method

    def _receive(self, within_s: float) -> None:
        self._socket.settimeout(within_s)
        try:
            data = self._socket.recv(65536)
        except TimeoutError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
            return
        self._left += data
        while len(self._left) >= 7:
            size = struct.unpack(">I", self._left[3:7])[0] + 8
            if len(self._left) < size:
                return
            taken, self._left = self._left[:size], self._left[size:]
            if taken[0] == 3:
                self._body(struct.unpack(">H", taken[1:3])[0], taken[7:-1])
            elif taken[0] != 8:
                self._frame(*pamqp.frame.unmarshal(taken)[1:])

    def _frame(self, channel: int, frame: Any) -> None:
        if isinstance(frame, ContentHeader):
            unfinished = self._unfinished[channel]
            unfinished.properties, unfinished.missing = frame.properties, frame.body_size
            self._body(channel, b"")
        elif isinstance(frame, CONTENT):
            self._unfinished[channel] = Event(channel, frame)
        else:
            self._events.append(Event(channel, frame))

    def _body(self, channel: int, piece: bytes) -> None:
        unfinished = self._unfinished[channel]
        unfinished.body += piece
        unfinished.missing -= len(piece)
        if unfinished.missing == 0:
            self._events.append(self._unfinished.pop(channel))
