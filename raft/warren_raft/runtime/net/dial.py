"""One attempt to connect to an address, without blocking the loop."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from warren_raft.runtime.loop import WRITE, Loop, LoopTimer, WatchedSocket

Outcome = Callable[[socket.socket | OSError], None]


class Connector:
    """A connection attempt: resolves a name (on a thread) and tries its addresses in turn.

    `done` is called once, on the loop's thread, with the connected socket or the last error;
    never after `cancel`.
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
            sock.close()
            self._error = OSError(code, os.strerror(code))
        self._finish(self._error)

    def _ready(self) -> None:
        sock = self._sock
        if sock is None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._drop()
            self._error = OSError(code, os.strerror(code))
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
