"""A SASL server, because Proton is built without the library for it.

The client sends a protocol header and one sasl-init frame; the bytes that follow are the
connection's.
"""

from __future__ import annotations

import struct
from enum import Enum

from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.access.sasl_login import credentials, offered
from warren_wire.amqp10.proton import Data, DataException
from warren_wire.errors import CommandInvalid, SyntaxRefused

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
EARLY_BYTES_MAX = 65_536
"""Bytes that a client may send ahead of the outcome, beside its login."""
_SASL_MECHANISMS = 0x40
_SASL_INIT = 0x41
_SASL_OUTCOME = 0x44


class SaslState(Enum):
    """The state of the exchange."""

    HEADER = "header"
    INIT = "init"
    DECIDING = "deciding"  # credentials received, the outcome is pending
    ACCEPTED = "accepted"
    FAILED = "failed"


class SaslFailed(Exception):
    """Invalid bytes of the client, which end the connection; the text says why."""


class SaslServer:
    """The server's side.

    mechanism, user, password  the client's choice and credentials, from DECIDING on
    config          which mechanisms are offered
    output          bytes to send, taken by the owner

    Invariant: early bytes are kept only in DECIDING and ACCEPTED
    """

    def __init__(self, config: ConnectionConfig) -> None:
        self.state = SaslState.HEADER
        self.config = config
        self.mechanism = ""
        self.user = ""
        self.password = ""
        self.output = bytearray()
        self._buffer = bytearray()

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Process bytes; raises SaslFailed, after which `output` is sent and the socket closed."""
        self._buffer += data
        if self.state is SaslState.HEADER and len(self._buffer) >= len(SASL_HEADER):
            self._read_header()
        if self.state is SaslState.INIT:
            self._read_init()
        most = EARLY_BYTES_MAX
        if self.state is SaslState.INIT:
            most += self.config.login_frame_max
        if len(self._buffer) > most:
            self._fail(f"more than {most} bytes before the login was decided")

    def accept(self) -> bytes:
        """Accept the credentials; return the bytes that the client has sent after them."""
        assert self.state is SaslState.DECIDING, self.state
        self.state = SaslState.ACCEPTED
        self.output += _frame(_SASL_OUTCOME, b"\x50\x00")
        self.password = ""
        return bytes(self._buffer)

    def refuse(self) -> None:
        """Refuse the credentials (outcome `auth`)."""
        self.state = SaslState.FAILED
        self.password = ""
        self.output += _frame(_SASL_OUTCOME, b"\x50\x01")

    def _read_header(self) -> None:
        header = bytes(self._buffer[:8])
        if header != SASL_HEADER:
            self.output += (
                SASL_HEADER  # the specification: answer with the supported header, then close
            )
            self._fail(f"protocol header {header!r}; this broker wants SASL first, {SASL_HEADER!r}")
        del self._buffer[:8]
        mechanisms_offered = offered(self.config)
        names = b"".join(
            struct.pack(">I", len(name)) + name.encode() for name in mechanisms_offered
        )
        mechanisms = (
            struct.pack(">BII", 0xF0, 4 + 1 + len(names), len(mechanisms_offered)) + b"\xb3"
        )
        self.output += SASL_HEADER + _frame(_SASL_MECHANISMS, mechanisms + names)
        self.state = SaslState.INIT

    def _read_init(self) -> None:
        if len(self._buffer) < 8:
            return
        size, offset, kind = struct.unpack_from(">IBB", self._buffer)
        most = self.config.login_frame_max
        if not 8 <= size <= most or kind != 1 or not 2 <= offset <= size // 4:
            self._fail(f"a SASL frame of {size} bytes, type {kind}; at most {most}, type 1")
        if len(self._buffer) < size:
            return
        body = bytes(self._buffer[offset * 4 : size])
        del self._buffer[:size]
        mechanism, response = self._decode_init(body)
        self.mechanism = mechanism
        try:
            self.user, self.password = credentials(self.config, mechanism, response)
        except (CommandInvalid, SyntaxRefused) as refusal:
            self.refuse()
            raise SaslFailed(refusal.detail) from None
        self.state = SaslState.DECIDING

    def _decode_init(self, body: bytes) -> tuple[str, bytes]:
        data = Data()
        try:
            data.decode(body)
            data.rewind()
            data.next()
            described = data.get_object()
            code, fields = int(described.descriptor), list(described.value)
            mechanism, response = str(fields[0]), fields[1] if len(fields) > 1 else b""
        except (DataException, AttributeError, TypeError, ValueError, IndexError):
            self._fail("a frame that is not sasl-init")
        if code != _SASL_INIT:
            self._fail(f"a SASL frame 0x{code:x} instead of sasl-init")
        if response is None:
            response = b""
        if not isinstance(response, (bytes, memoryview)):
            self._fail(f"sasl-init with a response of type {type(response).__name__}")
        return mechanism, bytes(response)

    def _fail(self, reason: str) -> None:
        self.state = SaslState.FAILED
        self._buffer.clear()
        raise SaslFailed(reason)


def _frame(code: int, field: bytes) -> bytes:
    """Encode a SASL frame: a described list of one field."""
    body = b"\x00\x53" + bytes([code]) + b"\xd0" + struct.pack(">II", 4 + len(field), 1) + field
    return struct.pack(">IBBH", 8 + len(body), 2, 1, 0) + body
