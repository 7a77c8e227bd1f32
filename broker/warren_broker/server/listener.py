"""The listener for clients; the first eight bytes select the protocol."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any, Protocol

from warren_broker.amqp091.wire import codec
from warren_broker.amqp10.wire import sasl
from warren_raft.runtime.loop import Listener as Acceptor
from warren_raft.runtime.loop import Loop, LoopTimer
from warren_raft.runtime.net.stream import Stream

log = logging.getLogger(__name__)

PROTOCOL_HEADER_BYTES = 8
HEADER_091 = codec.PROTOCOL_HEADER
HEADER_10_SASL = sasl.SASL_HEADER
OUT_BYTES_HIGH = 4 << 20
OUT_BYTES_LOW = 1 << 20
REOPEN_MS = 1_000


class Client(Protocol):
    """One connection of either protocol, after its header."""

    @property
    def opened_as(self) -> tuple[str, str] | None:
        """The user and vhost, once the vhost is opened."""
        ...

    def received(self, data: bytes) -> None:
        """Process bytes from the socket, the header first."""
        ...

    def closed(self, error: Exception | None) -> None:
        """Handle the end of the socket."""
        ...

    def shut_down(self, reason: str) -> None:
        """Close the connection with the reason: the node stops."""
        ...

    def blocked(self, reasons: tuple[str, ...]) -> None:
        """Handle a change of the resource alarms; empty: none."""
        ...


MakeClient = Callable[[Stream, str], Client]
"""Makes the client of one protocol from (stream, the peer's address as text)."""


class AcceptedSocket:
    """A socket before and after its protocol is known.

    Invariant: `client` is None exactly until eight bytes have arrived.
    """

    __slots__ = ("_header", "_listener", "_timer", "client", "peer", "stream")

    def __init__(self, listener: AmqpListener, sock: socket.socket, peer: str) -> None:
        self._listener = listener
        self._header = b""
        self.peer = peer
        self.client: Client | None = None
        self.stream = Stream(
            listener.loop,
            sock,
            self._on_data,
            self._on_closed,
            high=OUT_BYTES_HIGH,
            low=OUT_BYTES_LOW,
        )
        self._timer: LoopTimer | None = listener.loop.call_later(
            listener.handshake_timeout_ms, self._too_slow
        )

    def _too_slow(self) -> None:
        if self.client is None:
            log.warning(
                "closing %s: no protocol header within %d ms",
                self.peer,
                self._listener.handshake_timeout_ms,
            )
            self.stream.abort()

    def _on_data(self, data: bytes) -> None:
        if self.client is not None:
            self.client.received(data)
            return
        self._header += data
        header = self._header[:PROTOCOL_HEADER_BYTES]
        if len(header) < PROTOCOL_HEADER_BYTES and HEADER_091.startswith(header[:4]):
            return
        make = self._listener.protocols.get(header)
        if make is None:
            # Both specifications: answer with a supported header, then close.
            answer = HEADER_10_SASL if header == sasl.AMQP_HEADER else HEADER_091
            log.warning("closing %s: unsupported protocol header %r", self.peer, header)
            self.stream.send(answer)
            self.stream.end()
            return
        if self._timer is not None:
            self._timer.cancel()
        self.client = make(self.stream, self.peer)
        received, self._header = self._header, b""
        self.client.blocked(self._listener.reasons)
        self.client.received(received)

    def _on_closed(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if error is not None:
            log.log(
                logging.INFO if isinstance(error, OSError) else logging.ERROR,
                "connection from %s ended: %r",
                self.peer,
                error,
                exc_info=None if isinstance(error, OSError) else error,
            )
        self._listener.connections.discard(self)
        if self.client is not None:
            self.client.closed(error)


class AmqpListener:
    """The port for clients.

    Invariant: `_acceptor` is None exactly while no client is accepted (`suspend`, `stop`).
    """

    def __init__(
        self, loop: Loop, address: tuple[str, int], handshake_timeout_ms: int, connections_max: int
    ) -> None:
        self.loop = loop
        self.handshake_timeout_ms = handshake_timeout_ms
        self.connections_max = connections_max
        self.connections: set[AcceptedSocket] = set()
        self.protocols: dict[bytes, MakeClient] = {}
        self.reasons: tuple[str, ...] = ()
        self._acceptor: Acceptor | None = Acceptor(loop, address, self._accept)
        self._address = (address[0], self._acceptor.port)
        self._reopening: LoopTimer | None = None

    @property
    def port(self) -> int:
        """The port, also after `stop`."""
        return self._address[1]

    def _accept(self, sock: socket.socket, address: Any) -> None:
        peer = f"{address[0]}:{address[1]}"
        if len(self.connections) >= self.connections_max:
            log.warning(
                "refusing %s: %d connections are open, limits.connections_max is %d",
                peer,
                len(self.connections),
                self.connections_max,
            )
            sock.close()
            return
        self.connections.add(AcceptedSocket(self, sock, peer))

    def blocked(self, reasons: tuple[str, ...]) -> None:
        """Report a change of the resource alarms to every client."""
        self.reasons = reasons
        for connection in list(self.connections):
            if connection.client is not None:
                connection.client.blocked(reasons)

    def suspend(self, reason: str) -> None:
        """Accept no client and close all connections until `resume`; a repeat is harmless.

        The port is closed, so that client libraries try the next node at once.
        """
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        for connection in list(self.connections):
            if connection.client is not None:
                connection.client.shut_down(reason)
            else:
                connection.stream.abort()

    def abandon(self) -> None:
        """Close the port and every connection as the end of the process would."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        for connection in list(self.connections):
            connection.stream.abort()

    def resume(self) -> None:
        """Accept again, on the same port; retried while another program has it."""
        self._reopening = None
        if self._acceptor is not None:
            return
        try:
            self._acceptor = Acceptor(self.loop, self._address, self._accept)
        except OSError as error:
            log.error("cannot listen on port %d again (%s): will be retried", self.port, error)
            self._reopening = self.loop.call_later(REOPEN_MS, self.resume)

    def stop(self, reason: str) -> None:
        """Do as `suspend`, permanently: the node ends."""
        self.suspend(reason)
