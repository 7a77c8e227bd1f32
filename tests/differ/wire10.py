"""An AMQP 1.0 connection that hides nothing: every frame that arrives is a typed value."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proton import Array, Data, Described, symbol, timestamp, ulong

from differ.wire import ANSWER_S, NoAnswer
from warren_wire.kernel.section_types import PROPERTY_NAMES

HEAD = struct.Struct(">IBBH")
SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
SASL_INIT, SASL_OUTCOME = 0x41, 0x44
FRAME, SASL_FRAME = 0, 1
TYPES: Mapping[int, tuple[str, tuple[str, ...]]] = {
    0x10: (
        "open",
        (
            "container-id",
            "hostname",
            "max-frame-size",
            "channel-max",
            "idle-time-out",
            "outgoing-locales",
            "incoming-locales",
            "offered-capabilities",
            "desired-capabilities",
            "properties",
        ),
    ),
    0x11: (
        "begin",
        (
            "remote-channel",
            "next-outgoing-id",
            "incoming-window",
            "outgoing-window",
            "handle-max",
            "offered-capabilities",
            "desired-capabilities",
            "properties",
        ),
    ),
    0x12: (
        "attach",
        (
            "name",
            "handle",
            "role",
            "snd-settle-mode",
            "rcv-settle-mode",
            "source",
            "target",
            "unsettled",
            "incomplete-unsettled",
            "initial-delivery-count",
            "max-message-size",
            "offered-capabilities",
            "desired-capabilities",
            "properties",
        ),
    ),
    0x13: (
        "flow",
        (
            "next-incoming-id",
            "incoming-window",
            "next-outgoing-id",
            "outgoing-window",
            "handle",
            "delivery-count",
            "link-credit",
            "available",
            "drain",
            "echo",
            "properties",
        ),
    ),
    0x14: (
        "transfer",
        (
            "handle",
            "delivery-id",
            "delivery-tag",
            "message-format",
            "settled",
            "more",
            "rcv-settle-mode",
            "state",
            "resume",
            "aborted",
            "batchable",
        ),
    ),
    0x15: ("disposition", ("role", "first", "last", "settled", "state", "batchable")),
    0x16: ("detach", ("handle", "closed", "error")),
    0x17: ("end", ("error",)),
    0x18: ("close", ("error",)),
    0x1D: ("error", ("condition", "description", "info")),
    0x23: ("received", ("section-number", "section-offset")),
    0x24: ("accepted", ()),
    0x25: ("rejected", ("error",)),
    0x26: ("released", ()),
    0x27: ("modified", ("delivery-failed", "undeliverable-here", "message-annotations")),
    0x28: (
        "source",
        (
            "address",
            "durable",
            "expiry-policy",
            "timeout",
            "dynamic",
            "dynamic-node-properties",
            "distribution-mode",
            "filter",
            "default-outcome",
            "outcomes",
            "capabilities",
        ),
    ),
    0x29: (
        "target",
        (
            "address",
            "durable",
            "expiry-policy",
            "timeout",
            "dynamic",
            "dynamic-node-properties",
            "capabilities",
        ),
    ),
    0x70: ("header", ("durable", "priority", "ttl", "first-acquirer", "delivery-count")),
    0x71: ("delivery-annotations", ()),
    0x72: ("message-annotations", ()),
    0x73: ("properties", PROPERTY_NAMES),
    0x74: ("application-properties", ()),
    0x75: ("data", ()),
    0x76: ("amqp-sequence", ()),
    0x77: ("amqp-value", ()),
    0x78: ("footer", ()),
}
"""Descriptor code → name and names of the fields of a list; no fields: another value."""
CODES = {name: code for code, (name, _) in TYPES.items()}


@dataclass
class Frame:
    """A performative that arrived.

    fields   of those that are present and not null, by name
    payload  sections of a message
    """

    channel: int
    name: str
    fields: dict[str, Any]
    payload: bytes


def composite(kind: str, /, **fields: Any) -> Described:
    """Return a described list; `_` in names of fields stands for a hyphen; None: null."""
    known = TYPES[CODES[kind]][1]
    given = {key.replace("_", "-"): value for key, value in fields.items()}
    assert not set(given) - set(known), (kind, given)
    values = [given.get(key) for key in known]
    while values and values[-1] is None:
        values.pop()
    return Described(ulong(CODES[kind]), values)


def section(name: str, value: Any) -> bytes:
    """Return a section of a message that is not a list."""
    return encoded(Described(ulong(CODES[name]), value))


def encoded(value: Any) -> bytes:
    """Return a value's encoding."""
    data = Data()
    data.put_object(value)
    return bytes(data.encode())


def decoded(raw: bytes) -> tuple[Any, int]:
    """Return the first value in `raw`, and how many bytes it has."""
    data = Data()
    size = data.decode(raw)
    data.rewind()
    data.next()
    return _copied(data.get_object()), size


def _copied(value: Any) -> Any:
    """Return a value without views of the decoder's memory."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, Described):
        return Described(value.descriptor, _copied(value.value))
    if isinstance(value, dict):
        return {_copied(key): _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return value


def fields_of(value: Described) -> tuple[str, dict[str, Any]]:
    """Return the name of a described list, and its fields that are not null."""
    name, names = TYPES[int(value.descriptor)]
    return name, {
        key: each for key, each in zip(names, value.value, strict=False) if each is not None
    }


def sections(payload: bytes) -> list[Described]:
    """Return the sections of a message."""
    found = []
    while payload:
        value, size = decoded(payload)
        found.append(value)
        payload = payload[size:]
    return found


def shown(value: Any) -> str:
    """Return a value with its types; fields that are null are left out, keys of maps in order."""
    if isinstance(value, Described):
        if isinstance(value.descriptor, str) or int(value.descriptor) not in TYPES:
            return f"@{shown(value.descriptor)} {shown(value.value)}"
        name, names = TYPES[int(value.descriptor)]
        if not names and not isinstance(value.value, list):
            return f"{name} {shown(value.value)}"
        return f"{name}({shown_fields(fields_of(value)[1])})"
    if isinstance(value, Array):
        return f"array[{', '.join(map(shown, value.elements))}]"
    if isinstance(value, Mapping):
        items = sorted(f"{shown(key)}: {shown(each)}" for key, each in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, symbol):
        return f":{value}"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, bytes):
        return repr(value)
    if isinstance(value, str):
        return repr(" ".join(value.split()))
    if isinstance(value, timestamp):
        return "TIME:timestamp"  # no scenario has one that it made itself
    kind = {"int": "long", "float": "double"}.get(type(value).__name__, type(value).__name__)
    number = int(value) if isinstance(value, int) else value
    return f"{number}:{kind}"


def shown_fields(fields: Mapping[str, Any]) -> str:
    """Return fields as one line, in their order."""
    return ", ".join(f"{name}={shown(value)}" for name, value in fields.items())


class Wire10:
    """One connection: sends performatives, collects frames; `closed` once its socket has ended."""

    def __init__(self, address: tuple[str, int], user: str, password: str) -> None:
        self.closed = False
        self._socket = socket.create_connection(address, timeout=ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""
        self._frames: deque[Frame] = deque()
        self._login(user, password)

    def send(self, channel: int, performative: Described, payload: bytes = b"") -> None:
        """Send a performative, with a message where there is one."""
        self._send(FRAME, channel, encoded(performative) + payload)

    def frame(self, within_s: float = ANSWER_S) -> Frame | None:
        """Return the next frame; None when there is none in time, or the socket has ended."""
        deadline = time.monotonic() + within_s
        while not self._frames:
            left_s = deadline - time.monotonic()
            if self.closed or left_s <= 0:
                return None
            self._receive(left_s)
        return self._frames.popleft()

    def drop(self) -> None:
        """End the socket without a word."""
        self.closed = True
        self._socket.close()

    def _login(self, user: str, password: str) -> None:
        self._socket.sendall(SASL_HEADER)
        self._read(len(SASL_HEADER))
        self._sasl_frame()
        response = f"\0{user}\0{password}".encode()
        init = Described(ulong(SASL_INIT), [symbol("PLAIN"), response])
        self._send(SASL_FRAME, 0, encoded(init))
        outcome = self._sasl_frame()
        if int(outcome.descriptor) != SASL_OUTCOME or int(outcome.value[0]) != 0:
            raise NoAnswer(f"login: {shown(outcome)}")
        self._socket.sendall(AMQP_HEADER)
        self._read(len(AMQP_HEADER))

    def _sasl_frame(self) -> Described:
        (size, *_) = HEAD.unpack(self._read(HEAD.size))
        value: Described = decoded(self._read(size - HEAD.size))[0]
        return value

    def _send(self, kind: int, channel: int, body: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(HEAD.pack(HEAD.size + len(body), 2, kind, channel) + body)

    def _read(self, size: int) -> bytes:
        while len(self._left) < size:
            self._more(ANSWER_S)
            if self.closed:
                raise NoAnswer("the broker hung up")
        taken, self._left = self._left[:size], self._left[size:]
        return taken

    def _more(self, within_s: float) -> None:
        self._socket.settimeout(within_s)
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return
        except ConnectionResetError:
            data = b""
        self.closed = not data
        self._left += data

    def _receive(self, within_s: float) -> None:
        self._more(within_s)
        while len(self._left) >= HEAD.size:
            size, _, _, channel = HEAD.unpack_from(self._left)
            if len(self._left) < size:
                return
            body, self._left = self._left[HEAD.size : size], self._left[size:]
            if body:
                value, length = decoded(body)
                self._frames.append(Frame(channel, *fields_of(value), body[length:]))
