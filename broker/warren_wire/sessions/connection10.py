"""An AMQP 1.0 connection in pika's loop: a socket, TLS, and the bytes of a `ClientEngine`."""

from __future__ import annotations

import socket
import ssl
import time
from abc import abstractmethod
from typing import Any, Final

from pika.adapters.utils.nbio_interface import AbstractStreamProtocol

from warren_wire.amqp10.client import ClientEngine
from warren_wire.sessions.connection091 import SPEAKS_TLS, TLS_ALERT

TICK_S: Final = 1.0
CLOSE_ANSWER_S: Final = 2.0
"""How long the peer may take to answer a close."""
UNAUTHORIZED: Final = "amqp:unauthorized-access"
NOT_AMQP: Final = "amqp:connection:framing-error"
IDLE: Final = "amqp:resource-limit-exceeded"
"""Conditions of Proton's transport: a refused login, bytes that are no AMQP, silence."""
SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"


class Stream10(AbstractStreamProtocol):  # type: ignore[misc]
    """The bytes of one connection; its owner makes the client once there is a stream.

    The owner sets `_services`, `_addresses` (of getaddrinfo) and `_tls` (context and name of the
    peer; None: no TLS), and calls `_try_next`.
    """

    def __init__(self) -> None:
        self._services: Any = None
        self._tls: Any = None
        self._addresses: list[Any] = []
        self._transport: Any = None
        self._client: ClientEngine | None = None
        self._flush_due = self._ended = self._peer_closed = False

    # ------------------------------------------------------------ the owner

    @abstractmethod
    def fail(self, error: BaseException | str) -> None:
        """Take note that the connection has failed: an error, or words."""

    def on_pass(self) -> None:
        """Handle the end of what has arrived together."""

    @abstractmethod
    def _made_client(self) -> ClientEngine:
        """Return the client for the stream that was just made."""

    def _has_ended(self) -> None:
        """Take note that nothing more comes."""

    # ------------------------------------------------------------ connecting

    def _try_next(self) -> None:
        if self._ended:
            return
        family, kind, protocol, _, address = self._addresses.pop(0)
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._services.connect_socket(made, address, lambda error: self._reached(made, error))

    def _reached(self, made: socket.socket, error: BaseException | None) -> None:
        if error is not None or self._ended:
            made.close()
            if self._addresses:
                self._try_next()
            elif error is not None:
                self.fail(error)
            return
        context, name = self._tls if self._tls is not None else (None, None)
        self._services.create_streaming_connection(
            lambda: self, made, self._linked, ssl_context=context, server_hostname=name
        )

    def _linked(self, result: Any) -> None:
        if isinstance(result, BaseException):
            self.fail(result)

    def connection_made(self, transport: Any) -> None:
        """Open the connection."""
        self._transport = transport
        if self._ended:
            transport.abort()
            return
        self._client = self._made_client()
        self._services.call_later(TICK_S, self._tick)
        self.flush()

    def connection_lost(self, error: BaseException | None) -> None:
        """Take note that the connection has ended."""
        if isinstance(error, ssl.SSLError):
            self.fail(error)  # what the peer thinks of a certificate comes late, too
        if self._client is not None and not self._ended:
            self._client.end_of_input()
        self.fail("the connection was lost")
        self._end()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._transport is not None:
            self._transport.abort()
        if self._client is not None:
            self._client.free()
        self._has_ended()

    # ------------------------------------------------------------ bytes

    def eof_received(self) -> bool:
        """Have the transport closed."""
        return False

    def data_received(self, data: bytes) -> None:
        """Process what has arrived."""
        if self._ended or self._client is None:
            return
        if data.startswith(TLS_ALERT) and not self._client.engine.connection.remote_container:
            self.fail(SPEAKS_TLS)
        self._client.receive(data)
        self.on_pass()
        self.flush()
        if self._peer_closed or self._client.engine.input_ended:
            self._end()

    def flush(self) -> None:
        """Hand what is to be sent to the operating system."""
        self._flush_due = False
        client = self._client
        while client is not None and not self._ended:
            pieces = client.engine.output()
            if not pieces:
                return
            for piece in pieces:
                self._transport.write(bytes(piece))

    def flush_later(self) -> None:
        """Do so after what else is to be sent now."""
        if not self._flush_due and not self._ended:
            self._flush_due = True
            self._services.call_later(0, self.flush)

    def unsent_bytes(self) -> int:
        """Return how much of what was written is not with the operating system yet."""
        if self._flush_due:
            self.flush()
        return 0 if self._transport is None else int(self._transport.get_write_buffer_size())

    def _tick(self) -> None:
        if self._client is None or self._ended:
            return
        self._client.engine.tick(int(time.monotonic() * 1000))
        self._client.handle()
        self.flush()
        self._services.call_later(TICK_S, self._tick)
