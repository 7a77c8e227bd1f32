"""The ports of the HTTP API: connections before a login have places, with a share for an address.

Such a connection is counted from its acceptance on, so also while its TLS handshake is incomplete.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from warren_broker.http.replies import HttpRefusal, closing_answer, unavailable
from warren_raft.address_shares import AddressShares
from warren_raft.runtime.address_turns import AddressTurns
from warren_wire.tls.certificates import WatchedFiles

HTTP_BACKLOG: Final = 128
HTTP_CONNECTIONS_MAX: Final = 512
HTTP_STRANGERS_MAX: Final = 256
"""Connections before a login; the others are kept for clients that have logged in."""
HTTP_WAITING_MAX: Final = 256
HTTP_PATIENCE_MS: Final = 5_000
"""How long a connection keeps its place before a login while others wait for it."""
HTTP_WAIT_MS: Final = 15_000
TLS_HANDSHAKE_S: Final = 15.0
ACCEPTS_MAX: Final = 64
NO_FILES_S: Final = 0.2
LOGINS_NEVER_EVICTED_MS: Final = 1 << 60
HTTP_LOGINS_WAITING_MAX: Final = 512
Certificates: TypeAlias = WatchedFiles[ssl.SSLContext]


class AsyncioTurns:
    """The running loop of asyncio, and its clock, as `AddressTurns` takes them."""

    def monotonic_ms(self) -> int:
        """Return the time."""
        return int(time.monotonic() * 1000)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call in the next turn."""
        asyncio.get_running_loop().call_soon(call)

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call once, that much later."""
        asyncio.get_running_loop().call_later(delay_ms / 1000, call)


class HttpNewcomer:
    """A connection, from its acceptance to its end.

    protocol  set from the end of the TLS handshake on, if there is one: it ends the connection
    Invariant: `_connecting` is None exactly until it has its place
    """

    def __init__(
        self, doors: HttpDoors, sock: socket.socket, host: str, context: ssl.SSLContext | None
    ) -> None:
        self._doors = doors
        self._sock = sock
        self._context = context
        self._connecting: asyncio.Task[None] | None = None
        self.host = host
        self.known = False
        self.protocol: Any = None

    def begin(self) -> None:
        """See `Newcomer`: shake hands, then serve."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        limit_s = None if self._context is None else TLS_HANDSHAKE_S
        try:
            await loop.connect_accepted_socket(
                lambda: self._doors.make(self),
                self._sock,
                ssl=self._context,
                ssl_handshake_timeout=limit_s,
            )
        except (OSError, asyncio.CancelledError):  # ssl.SSLError is an OSError
            self.protocol = None
        if self.protocol is None:  # it has hung up, or was turned away, in the TLS handshake
            self._sock.close()
            self.ended()

    def turn_away(self, reason: str) -> None:
        """See `Newcomer`: answer 503 where that is possible, and close."""
        if self.protocol is not None:
            self.protocol.turn_away(reason)
            return
        if self._connecting is not None:
            self._connecting.cancel()
            return
        refuse(self._sock, self._context, reason)
        self.ended()

    def logged_in(self) -> None:
        """Leave the place to others; a repeat is harmless."""
        if not self.known:
            self.known = True
            self._doors.known(self)

    def lasts(self, seconds: float) -> None:
        """Have its answer, which continues, end unless it is said again within that time."""
        if self.protocol is not None:
            self.protocol.lasts(seconds)

    def ended(self) -> None:
        """Take note of the connection's end."""
        self._doors.ended(self)


def listening_socket(what: str, ip: str, port: int) -> socket.socket:
    """Return a listening socket; raises OSError with the address. what: the setting's table."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((ip, port))
        made.listen(HTTP_BACKLOG)
    except OSError as error:
        made.close()
        said = f"{what}: cannot listen on {ip}:{port}: {error.strerror}"
        raise OSError(error.errno, said) from error
    return made


class HttpDoors:
    """Accepts connections; `make` returns the protocol of one that is served.

    what     names those without a login, which have these shares, in the log
    wait_ms  how long one waits for a place
    """

    def __init__(
        self,
        make: Callable[[HttpNewcomer], Any],
        what: str,
        shares: AddressShares[Any],
        wait_ms: int = HTTP_WAIT_MS,
    ) -> None:
        self.make = make
        turns = AsyncioTurns()
        self.turns = AddressTurns(what, turns, turns, shares, wait_ms)
        self._known = 0

    def listen(self, sock: socket.socket, certificates: Certificates | None) -> None:
        """Accept connections of a listening socket; certificates: of one with TLS."""
        sock.setblocking(False)
        asyncio.get_running_loop().add_reader(sock, self._accept, sock, certificates)

    def _accept(self, listening: socket.socket, certificates: Certificates | None) -> None:
        context = None if certificates is None else certificates.current
        for _ in range(ACCEPTS_MAX):
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    loop = asyncio.get_running_loop()
                    loop.remove_reader(listening)
                    loop.call_later(NO_FILES_S, self.listen, listening, certificates)
                    return
                if error.errno in (errno.ECONNABORTED, errno.EPROTO, errno.EPERM):
                    continue  # that client has disconnected
                raise
            sock.setblocking(False)
            if self._known >= HTTP_CONNECTIONS_MAX:
                refuse(sock, context, f"{HTTP_CONNECTIONS_MAX} connections are open")
                continue
            self.turns.arrive(HttpNewcomer(self, sock, str(address[0]), context))

    def known(self, newcomer: HttpNewcomer) -> None:
        """Count a connection with a login."""
        self._known += 1
        self.turns.limit(HTTP_CONNECTIONS_MAX - self._known)
        self.turns.end(newcomer)

    def ended(self, newcomer: HttpNewcomer) -> None:
        """Count a connection no more."""
        if newcomer.known:
            newcomer.known = False
            self._known -= 1
            self.turns.limit(HTTP_CONNECTIONS_MAX - self._known)
        self.turns.end(newcomer)


def stranger_shares(share: int) -> AddressShares[Any]:
    """Return the shares of connections before a login; share: of one address."""
    most = HTTP_STRANGERS_MAX
    return AddressShares(min(share, most), most, HTTP_WAITING_MAX, HTTP_PATIENCE_MS)


def refuse(sock: socket.socket, context: ssl.SSLContext | None, reason: str) -> None:
    """Close a connection that is not served, after an answer where there is no TLS."""
    if context is None:
        try:
            sock.send(closing_answer(503, "service_unavailable", reason))
        except OSError:
            pass  # it has hung up
    sock.close()


class HttpLogin:
    """A login that waits for its turn, then is under way until it is answered."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """See `Newcomer`."""
        if not self.begun.done():
            self.begun.set_result(None)

    def turn_away(self, reason: str) -> None:
        """See `Newcomer`: the request is answered 503."""
        if not self.begun.done():
            self.begun.set_exception(unavailable(reason))


class HttpLogins:
    """The turns of logins over HTTP; a wrong one is under way until it is answered."""

    def __init__(self, share: int) -> None:
        turns = AsyncioTurns()
        self.turns = AddressTurns(
            "logins over HTTP",
            turns,
            turns,
            AddressShares(share, 1 << 20, HTTP_LOGINS_WAITING_MAX, LOGINS_NEVER_EVICTED_MS),
            HTTP_WAIT_MS,
        )

    async def enter(self, host: str) -> HttpLogin:
        """Wait for the turn; raises HttpRefusal. The caller ends it (`turns.end`)."""
        login = HttpLogin(host)
        self.turns.arrive(login)
        try:
            await login.begun
        except (HttpRefusal, asyncio.CancelledError):
            self.turns.end(login)
            raise
        return login
