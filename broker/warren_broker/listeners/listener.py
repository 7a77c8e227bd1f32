"""The listener for clients; the first eight bytes select the protocol."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import Any, Protocol, TypeAlias

from warren_broker.access import sasl10 as sasl
from warren_broker.cluster.definitions import Definitions
from warren_raft.runtime.address_turns import AddressTurns
from warren_raft.runtime.loop import Listener as Acceptor
from warren_raft.runtime.loop import Loop, LoopTimer
from warren_raft.runtime.net.stream import Stream
from warren_raft.runtime.net.tls import HandshakeBudget, TlsRefused, TlsStream, begins_tls
from warren_raft.runtime.open_files import SocketBound
from warren_wire.amqp091 import codec
from warren_wire.tls.certificates import WatchedFiles

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
    def logged_in(self) -> tuple[str, str] | None:
        """The user that has logged in, and the vhost, which is empty until it is opened."""

    @property
    def by_token(self) -> bool:
        """Whether it logged in with a token: no user of the definitions."""

    def received(self, data: bytes) -> None:
        """Process bytes from the socket, the header first."""

    def drained(self) -> None:
        """Handle the end of the congestion: the socket has accepted most of the output."""

    def closed(self, error: Exception | None) -> None:
        """Handle the end of the socket."""

    def shut_down(self, reason: str) -> None:
        """Close the connection with the reason: the node stops."""

    def blocked(self, reasons: tuple[str, ...]) -> None:
        """Handle a change of the resource alarms; empty: none."""


ServerCertificates: TypeAlias = WatchedFiles[ssl.SSLContext]
MakeClient = Callable[[Stream, str], Client]
"""Makes the client of one protocol from (stream, the peer's address as text)."""


@dataclass(slots=True, eq=False, repr=False)
class AcceptedSocket:
    """A socket before and after its protocol is known, and its client has logged in.

    Until the login it has a place of its address (`AddressTurns`), and is read within the budget of
    handshakes; before it has the place nothing is read.
    Invariants: `client` is None exactly until eight bytes have arrived, decrypted ones with TLS;
    `stream` is None exactly until it has its place
    """

    _listener: AmqpListener
    _sock: socket.socket
    address: InitVar[Any]
    _tls: ServerCertificates | None
    _header: bytes = b""
    _timer: LoopTimer | None = None
    host: str = ""
    peer: str = ""
    client: Client | None = None
    stream: Stream | None = None
    known: bool = False

    def __post_init__(self, address: Any) -> None:
        self.host = str(address[0])
        self.peer = f"{address[0]}:{address[1]}"

    def begin(self) -> None:
        """See `Newcomer`: read from now on."""
        listener = self._listener
        made = self._connected()
        made.budget = listener.handshakes
        self.stream = made
        self._timer = listener.loop.call_later(listener.handshake_timeout_ms, self._too_slow)

    def turn_away(self, reason: str) -> None:
        """See `Newcomer`: close, which the protocols have no word for before a login."""
        log.debug("closing %s: %s", self.peer, reason)
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        if self.stream is not None:
            self.stream.abort()
        else:
            self._sock.close()
            self._listener.ended(self)

    def _connected(self) -> Stream:
        loop = self._listener.loop
        watched = (loop, self._sock, self._on_data, self._on_closed)
        bounds: dict[str, Any] = {"high": OUT_BYTES_HIGH, "low": OUT_BYTES_LOW}
        bounds["on_drained"] = self._on_drained
        if self._tls is None:
            return Stream(*watched, **bounds)
        return TlsStream(
            *watched,
            context=self._tls.current,
            hostname=None,
            budget=self._listener.handshakes,
            on_established=self._on_established,
            **bounds,
        )

    def _on_established(self) -> None:
        assert isinstance(self.stream, TlsStream)
        log.debug("connection %s: %s", self.peer, self.stream.description)

    def _too_slow(self) -> None:
        assert self.stream is not None
        login = self.client.logged_in if self.client is not None else None
        if self.stream.closed or (self.known and (login is None or login[1])):
            return  # it has opened a vhost, and may have ended since
        shaking = isinstance(self.stream, TlsStream) and not self.stream.established
        if self.client is not None:
            missing = "login and open vhost"
        else:
            missing = "complete TLS handshake" if shaking else "protocol header"
        timeout_ms = self._listener.handshake_timeout_ms
        log.warning("closing %s: no %s within %d ms", self.peer, missing, timeout_ms)
        self.stream.abort()

    def _on_data(self, data: bytes) -> None:
        client = self.client
        if client is not None and self.known:
            self._listener.loop.heard_bytes += len(data)
            client.received(data)
            return
        begun = time.perf_counter()
        try:
            if client is None:
                self._select(data)
            else:
                self._listener.loop.heard_bytes += len(data)
                client.received(data)
                if client.logged_in is not None:
                    self._logged_in()
        finally:
            self._listener.handshakes.spend(time.perf_counter() - begun)

    def _logged_in(self) -> None:
        """Leave the place to others: the client has logged in, and said something since."""
        self.known = True
        if self.stream is not None:
            self.stream.budget = None
        self._listener.logged_in(self)

    def _select(self, data: bytes) -> None:
        assert self.stream is not None
        self._header += data
        header = self._header[:PROTOCOL_HEADER_BYTES]
        if len(header) < PROTOCOL_HEADER_BYTES and HEADER_091.startswith(header[:4]):
            return
        make = self._listener.protocols.get(header)
        if make is None:
            # Both specifications: answer with a supported header, then close.
            answer = HEADER_10_SASL if header == sasl.AMQP_HEADER else HEADER_091
            what = self._listener.tls_hint() if begins_tls(header) else ""
            log.warning("closing %s: unsupported protocol header %r%s", self.peer, header, what)
            self.stream.send(answer)
            self.stream.end()
            return
        self.client = make(self.stream, self.peer)
        received, self._header = self._header, b""
        self.client.blocked(self._listener.reasons)
        self.client.received(received)

    def _on_drained(self) -> None:
        if self.client is not None:
            self.client.drained()

    def _on_closed(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(error, TlsRefused):
            log.warning("closing %s on the TLS port: %s", self.peer, error)
        elif error is not None:
            log.log(
                logging.INFO if isinstance(error, OSError) else logging.ERROR,
                "connection from %s ended: %r",
                self.peer,
                error,
                exc_info=None if isinstance(error, OSError) else error,
            )
        self._listener.ended(self)
        if self.client is not None:
            self.client.closed(error)


class ClientPort:
    """One port for clients, which may be closed and opened again.

    tls  the certificates of a port with TLS; None: a plain one
    Invariant: `_acceptor` is None exactly while no client is accepted
    """

    def __init__(
        self, listener: AmqpListener, address: tuple[str, int], tls: ServerCertificates | None
    ) -> None:
        self._listener = listener
        self.tls = tls
        self._acceptor: Acceptor | None = Acceptor(listener.loop, address, self._accept)
        self.address = (address[0], self._acceptor.port)
        self._reopening: LoopTimer | None = None

    def close(self) -> None:
        """Accept no more; a repeat is harmless."""
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None

    def open(self) -> None:
        """Accept again, on the same port; retried while another program has it."""
        self._reopening = None
        if self._acceptor is not None:
            return
        loop = self._listener.loop
        try:
            self._acceptor = Acceptor(loop, self.address, self._accept)
        except OSError as error:
            log.error(
                "cannot listen on port %d again (%s): will be retried", self.address[1], error
            )
            self._reopening = loop.call_later(REOPEN_MS, self.open)

    def _accept(self, sock: socket.socket, address: object) -> None:
        self._listener.accept(sock, address, self.tls)


class AmqpListener:
    """The ports for clients: the plain one, and the one with TLS if it was added.

    address  of the plain one; None: there is none
    """

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int] | None,
        handshake_timeout_ms: int,
        connections_max: int,
        turns: AddressTurns,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """turns: of sockets before their login; refused: counts one (`counters.REFUSALS`)."""
        self._refused = refused
        self.loop = loop
        self.handshake_timeout_ms = handshake_timeout_ms
        self.connections_max = connections_max
        self._turns = turns
        self._known = 0
        self.connections: set[AcceptedSocket] = set()
        self.protocols: dict[bytes, MakeClient] = {}
        self.reasons: tuple[str, ...] = ()
        self.handshakes = HandshakeBudget()
        self.bound = SocketBound(for_clients=True)
        self._without_file = 0
        self._ports = [] if address is None else [ClientPort(self, address, None)]

    def add_tls(self, address: tuple[str, int], certificates: ServerCertificates) -> None:
        """Listen there with TLS, too; raises OSError with the address."""
        self._ports.append(ClientPort(self, address, certificates))

    @property
    def port(self) -> int:
        """The plain port, also while it is closed; 0: there is none."""
        return self._port_with(tls=False)

    @property
    def tls_port(self) -> int:
        """The port with TLS, also while it is closed; 0: there is none."""
        return self._port_with(tls=True)

    def _port_with(self, tls: bool) -> int:
        return next((port.address[1] for port in self._ports if (port.tls is not None) is tls), 0)

    def tls_hint(self) -> str:
        """Return what to tell of a client that speaks TLS on the plain port."""
        if not self.tls_port:
            return ": the client speaks TLS, and tls.certfile is not set: this node has no TLS port"
        return f": the client speaks TLS on the plain port; the one with TLS is {self.tls_port}"

    def accept(self, sock: socket.socket, address: Any, tls: ServerCertificates | None) -> None:
        """Handle a new connection, within the limits."""
        peer = f"{address[0]}:{address[1]}"
        if self._known >= self.connections_max:
            log.warning(
                "refusing %s: %d connections are open, limits.connections_max is %d",
                peer,
                self._known,
                self.connections_max,
            )
            self._refused("connections_max")
            sock.close()
            return
        if not self.bound.admits(sock):
            self._refuse_for_files(sock, peer)
            return
        if self._without_file:
            count, self._without_file = self._without_file, 0
            log.warning("clients are accepted again: %d were refused for want of files", count)
        made = AcceptedSocket(self, sock, address, tls)
        self.connections.add(made)
        self._turns.arrive(made)

    def logged_in(self, connection: AcceptedSocket) -> None:
        """Count a connection that no longer has a place of those before a login."""
        self._known += 1
        self._turns.limit(self.connections_max - self._known)
        self._turns.end(connection)

    def ended(self, connection: AcceptedSocket) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        if connection.known:
            self._known -= 1
            self._turns.limit(self.connections_max - self._known)
        self._turns.end(connection)

    def _refuse_for_files(self, sock: socket.socket, peer: str) -> None:
        """Close a new connection; the first one after an accepted one is a line of the log."""
        sock.close()
        self._refused("open_files")
        self._without_file += 1
        if self._without_file == 1:
            log.warning(
                "refusing %s and further clients while the %d files that connections may take are "
                "in use; %d of the process's %d are kept for its log and for other nodes: raise "
                "its limit of open files (LimitNOFILE, ulimit -n)",
                peer,
                self.bound.end,
                self.bound.limit - self.bound.end,
                self.bound.limit,
            )

    def blocked(self, reasons: tuple[str, ...]) -> None:
        """Report a change of the resource alarms to every client."""
        self.reasons = reasons
        for connection in list(self.connections):
            if connection.client is not None:
                connection.client.blocked(reasons)

    def suspend(self, reason: str) -> None:
        """Accept no client and close all connections until `resume`; a repeat is harmless.

        The ports are closed, so that client libraries try the next node at once.
        """
        for port in self._ports:
            port.close()
        for connection in list(self.connections):
            if connection.client is not None:
                connection.client.shut_down(reason)
            else:
                connection.abort()

    def abandon(self) -> None:
        """Close the ports and every connection as the end of the process would."""
        for port in self._ports:
            port.close()
        for connection in list(self.connections):
            connection.abort()

    def resume(self) -> None:
        """Accept again, on the same ports."""
        for port in self._ports:
            port.open()


LEAVING_DELAY_MS = 1_000
"""Delay from the deletion to the disconnect, so that the answer to the request is sent first: the
client that made it may be affected, too. These clients are permitted nothing in between."""


class ClientEviction:
    """The disconnection of clients of deleted users and vhosts, as in RabbitMQ.

    Invariant: at most one timer is scheduled, exactly while `_leaving` is not empty.
    """

    def __init__(self, loop: Loop, definitions: Definitions, listener: AmqpListener) -> None:
        self._loop = loop
        self._definitions = definitions
        self._listener = listener
        self._leaving: dict[Client, str] = {}
        definitions.on_access.append(self.deleted)

    def deleted(self, users: tuple[str, ...], vhosts: tuple[str, ...]) -> None:
        """Handle deleted users and vhosts, or those that a restored snapshot no longer has.

        Users of the same name with another password hash are among the deleted ones then.
        """
        # Selected now, not at the disconnect: 1. A user is deleted.  2. One of that name is added.
        # 3. A client of the new user connects: it stays, the first user's are disconnected, also
        # those that have logged in and not opened a vhost yet.
        state = self._definitions.state
        waiting = bool(self._leaving)
        for connection in self._listener.connections:
            client = connection.client
            if client is None or client.logged_in is None:
                continue
            user, vhost = client.logged_in
            gone = user in users or user not in state.users
            if gone and not client.by_token:
                self._leaving.setdefault(client, f"user '{user}' is deleted")
            elif vhost and (vhost in vhosts or vhost not in state.scopes):
                self._leaving.setdefault(client, f"vhost '{vhost}' is deleted")
        if self._leaving and not waiting:
            self._loop.call_later(LEAVING_DELAY_MS, self._send_away)

    def _send_away(self) -> None:
        leaving, self._leaving = self._leaving, {}
        for client, reason in leaving.items():
            client.shut_down(reason)
