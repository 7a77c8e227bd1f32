"""One attempt to connect to an address, without blocking the loop."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Final

from warren_raft.runtime.loop import WRITE, Loop, LoopTimer, WatchedSocket

Outcome = Callable[[socket.socket | OSError], None]
_ORIGIN = struct.Struct("=IB")
"""The begin of Linux's `sock_extended_err`: error, and where it comes from."""
_ICMP: Final = (2, 3)
"""SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6."""


def _told_by_network(sock: socket.socket) -> bool:
    """Return whether an ICMP message has ended an attempt to connect: a firewall, a router.

    Of such messages the socket keeps a record, of a reset by the other machine it does not. The
    record is read after SO_ERROR, which it clears. False: none, or this system keeps no records.
    """
    try:
        _, records, _, _ = sock.recvmsg(0, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
    except (OSError, AttributeError):  # no record; not Linux
        return False
    return any(
        len(data) >= _ORIGIN.size and _ORIGIN.unpack_from(data)[1] in _ICMP
        for _, _, data in records
    )


def _failed(sock: socket.socket, code: int) -> OSError:
    """Return the error of an attempt: ECONNREFUSED only when the other machine has refused it."""
    if code == errno.ECONNREFUSED and _told_by_network(sock):
        return OSError(errno.EHOSTUNREACH, "refused by a firewall or router (ICMP)")
    return OSError(code, os.strerror(code))


class Connector:
    """A connection attempt: resolves a name (on a thread) and tries its addresses in turn.

    `done` is called once, on the loop's thread, with the connected socket or the last error;
    never after `cancel`. ECONNREFUSED means that the machine at the address has refused: nothing
    listens there. What a firewall refuses is EHOSTUNREACH, also when a further address refuses.
    """

    def __init__(
        self, loop: Loop, address: tuple[str, int], timeout_ms: int, done: Outcome
    ) -> None:
        self._loop = loop
        self._address = address
        self._done: Outcome | None = done
        self._sock: socket.socket | None = None
        self._registration: WatchedSocket | None = None
        self._left: list[Any] = []
        self._behind_firewall = False
        self._error = OSError(errno.EHOSTUNREACH, f"{address[0]!r} has no address")
        self._timer: LoopTimer = loop.call_later(timeout_ms, self._timed_out)
        try:
            found = socket.getaddrinfo(
                *address, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        except socket.gaierror:
            threading.Thread(target=self._resolve, name="resolver", daemon=True).start()
            return
        loop.call_soon(lambda: self._resolved(found))

    def cancel(self) -> None:
        """Abort the attempt; `done` will not be called."""
        self._done = None
        self._timer.cancel()
        self._drop()

    def _resolve(self) -> None:
        try:
            found = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        except OSError as error:
            failure = OSError(error.errno, f"{self._address[0]!r} cannot be resolved: {error}")
            self._loop.post(lambda: self._finish(failure))
            return
        self._loop.post(lambda: self._resolved(found))

    def _resolved(self, found: list[Any]) -> None:
        if self._done is not None:
            self._left = list(found)
            self._next()

    def _next(self) -> None:
        while self._left:
            family, kind, protocol, _, where = self._left.pop(0)
            try:
                sock = socket.socket(
                    family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol
                )
            except OSError as error:
                self._error = error
                continue
            code = sock.connect_ex(where)
            if code in (0, errno.EINPROGRESS):
                self._sock = sock
                self._registration = self._loop.register(
                    sock, self._ready, self._ready, events=WRITE
                )
                return
            self._note(_failed(sock, code))
            sock.close()
        self._finish(self._error)

    def _note(self, error: OSError) -> None:
        """Remember why an address failed; not over what a firewall has refused."""
        if error.errno != errno.ECONNREFUSED or not self._behind_firewall:
            self._error = error
        self._behind_firewall |= error.errno == errno.EHOSTUNREACH

    def _ready(self) -> None:
        sock = self._sock
        if sock is None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._note(_failed(sock, code))
            self._drop()
            self._next()
            return
        self._sock = None
        self._drop()
        self._finish(sock)

    def _timed_out(self) -> None:
        self._drop()
        self._finish(OSError(errno.ETIMEDOUT, "no answer to the attempt to connect"))

    def _drop(self) -> None:
        if self._registration is not None:
            self._registration.close()
            self._registration = None
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _finish(self, outcome: socket.socket | OSError) -> None:
        done, self._done = self._done, None
        self._timer.cancel()
        if done is not None:
            done(outcome)
        elif isinstance(outcome, socket.socket):
            outcome.close()
