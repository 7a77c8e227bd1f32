"""A blocking AMQP 0.9.1 client, just large enough to test whether queues serve."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

PUBLISHED_AT_ONCE = 100
REFUSED_PAUSE_S = 0.002
PATIENCE_S = 5.0
"""After that long without an answer a client reconnects and republishes what is unconfirmed."""
TABLE_EMPTY = b"\0\0\0\0"
METHOD, HEADER, BODY, END = 1, 2, 3, 0xCE

START, TUNE, OPEN_OK, CLOSE = (10, 10), (10, 30), (10, 41), (10, 50)
CHANNEL_OPEN_OK, CHANNEL_CLOSE = (20, 11), (20, 40)
CONFIRM_OK = (85, 11)
ACK, NACK, RETURN = (60, 80), (60, 120), (60, 50)
GET_OK, GET_EMPTY = (60, 71), (60, 72)
DECLARE_OK, DELETE_OK = (50, 11), (50, 41)
DURABLE = 2
"""The flag of queue.declare."""


class NotServed(Exception):
    """The broker closed, refused, or did not answer in time."""


def short(text: str) -> bytes:
    """Encode a short string."""
    data = text.encode()
    return bytes((len(data),)) + data


class NoAnswer(NotServed):
    """No answer arrived in time."""


class Client:
    """One connection with one channel in confirm mode, as guest."""

    def __init__(self, target: str, timeout_s: float) -> None:
        """Connect and open a channel; raises NotServed."""
        host, _, port = target.rpartition(":")
        self._deadline = time.monotonic() + timeout_s
        self._buffer = b""
        try:
            self._socket = socket.create_connection((host, int(port)), timeout_s)
        except OSError as error:
            raise NotServed(f"{target}: {error}") from None
        try:
            self._open()
        except NotServed:
            self._socket.close()
            raise

    def _open(self) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._send(b"AMQP\0\0\x09\x01")
        self._expect(START)
        answer = b"\0guest\0guest"
        arguments = TABLE_EMPTY + short("PLAIN") + struct.pack(">I", len(answer)) + answer
        self._method(0, 10, 11, arguments + short("en_US"))
        self._expect(TUNE)
        self._method(0, 10, 31, struct.pack(">HIH", 8, 131_072, 0))
        self._method(0, 10, 40, short("/") + b"\0\0")
        self._expect(OPEN_OK)
        self._method(1, 20, 10, b"\0")
        self._expect(CHANNEL_OPEN_OK)
        self._method(1, 85, 10, b"\0")
        self._expect(CONFIRM_OK)
        self._tag = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def publish_to_all(self, queues: Sequence[str], body: bytes, timeout_s: float) -> list[str]:
        """Publish to each queue until each has confirmed one message.

        A message that is refused or returned as unroutable is published again.
        returns  queues without a confirm after PATIENCE_S of silence, or after the timeout
        raises   NotServed
        """
        end = time.monotonic() + timeout_s
        waiting: dict[int, str] = {}
        returned: set[str] = set()
        left = list(reversed(queues))
        while left or waiting:
            batch = bytearray()
            while left and len(waiting) < PUBLISHED_AT_ONCE:
                self._tag += 1
                waiting[self._tag] = left.pop()
                batch += _publish(waiting[self._tag], body)
            if batch:
                self._send(bytes(batch))
            self._deadline = min(end, time.monotonic() + PATIENCE_S)
            try:
                kind, data = self._next()
            except NoAnswer:
                return [*left, *waiting.values()]
            if kind == RETURN:
                at = 2 + 1 + data[2]  # code, text
                at += 1 + data[at]  # exchange
                returned.add(data[at + 1 : at + 1 + data[at]].decode())
            elif kind in (ACK, NACK):
                tag, flags = struct.unpack_from(">QB", data)
                tags = [each for each in waiting if each <= tag] if flags & 1 else [tag]
                for each in tags:
                    queue = waiting.pop(each)
                    if kind == NACK or queue in returned:
                        returned.discard(queue)
                        left.append(queue)
                        time.sleep(REFUSED_PAUSE_S)
        return []

    def get(self, queue: str, timeout_s: float) -> bool:
        """Return whether basic.get returns a message (it is acknowledged); raises NotServed."""
        self._deadline = time.monotonic() + timeout_s
        self._method(1, 60, 70, b"\0\0" + short(queue) + b"\1")
        while True:
            kind, _ = self._next()
            if kind in (GET_OK, GET_EMPTY):
                return kind == GET_OK

    def declare(self, queue: str, timeout_s: float) -> None:
        """Declare a durable quorum queue; raises NotServed."""
        self._deadline = time.monotonic() + timeout_s
        table = short("x-queue-type") + b"S" + struct.pack(">I", 6) + b"quorum"
        arguments = struct.pack(">I", len(table)) + table
        self._method(1, 50, 10, b"\0\0" + short(queue) + bytes((DURABLE,)) + arguments)
        self._expect(DECLARE_OK)

    def delete(self, queue: str, timeout_s: float) -> None:
        """Delete a queue; raises NotServed."""
        self._deadline = time.monotonic() + timeout_s
        self._method(1, 50, 40, b"\0\0" + short(queue) + b"\0")
        self._expect(DELETE_OK)

    # ------------------------------------------------------------ frames

    def _method(self, channel: int, cls: int, number: int, arguments: bytes) -> None:
        self._send(_frame(METHOD, channel, struct.pack(">HH", cls, number) + arguments))

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise NotServed(str(error)) from None

    def _expect(self, kind: tuple[int, int]) -> bytes:
        found, data = self._next()
        if found != kind:
            raise NotServed(f"{found} instead of {kind}: {data[:80]!r}")
        return data

    def _next(self) -> tuple[tuple[int, int], bytes]:
        """Return the next method; skip contents."""
        while True:
            while len(self._buffer) < 7:
                self._receive()
            kind, _, size = struct.unpack_from(">BHI", self._buffer)
            while len(self._buffer) < 8 + size:
                self._receive()
            payload, self._buffer = self._buffer[7 : 7 + size], self._buffer[8 + size :]
            if kind == METHOD:
                cls, number = struct.unpack_from(">HH", payload)
                if (cls, number) in (CLOSE, CHANNEL_CLOSE):
                    raise NotServed(payload[4:].decode("utf-8", "replace"))
                return (cls, number), payload[4:]

    def _receive(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise NoAnswer("no answer in time")
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            raise NoAnswer("no answer in time") from None
        except OSError as error:
            raise NotServed(str(error)) from None
        if not data:
            raise NotServed("the broker closed the connection")
        self._buffer += data


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes((END,))


def _publish(queue: str, body: bytes) -> bytes:
    method = struct.pack(">HHH", 60, 40, 0) + short("") + short(queue) + b"\1"  # mandatory
    header = struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2)  # persistent
    return _frame(METHOD, 1, method) + _frame(HEADER, 1, header) + _frame(BODY, 1, body)


def until_served(target: str, queues: Sequence[str], timeout_s: float) -> list[str]:
    """Wait until the node at `target` has confirmed a message for each queue.

    returns  queues that it does not serve after the timeout
    """
    began = time.monotonic()
    left = list(queues)
    while True:
        rest = began + timeout_s - time.monotonic()
        if rest <= 0:
            return left
        try:
            client = Client(target, min(rest, 5.0))
        except NotServed:
            time.sleep(0.02)
            continue
        try:
            left = client.publish_to_all(left, b"x" * 16, rest)
            if not left:
                return []
        except NotServed:
            time.sleep(0.05)
        finally:
            client.close()
