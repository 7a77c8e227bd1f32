"""A connection of pika with a thread: it sends heartbeats while the task waits for its rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast

import pika

from pyspark_warren.amqp.connection import ClientName, of_sink, open_any
from pyspark_warren.amqp.renewing import keep_renewed
from pyspark_warren.login.tokens import Login, login_of
from pyspark_warren.options.options import Options
from pyspark_warren.surroundings import read_by
from warren.errors import ConnectionLost
from warren.uri import Address
from warren_wire.sessions.pika_connections import IOServices

_KEPT_MAX: Final = 8
_kept: dict[tuple[Address, Login, ClientName, str], KeptLink] = {}
"""Kept while the process runs, because Spark reuses its Python workers; each query has its own,
because the broker shows its name."""


class KeptLink(Protocol):
    """An open connection.

    alive  whether it is open, and of this process
    """

    @property
    def alive(self) -> bool: ...

    def close(self) -> None: ...


K = TypeVar("K", bound=KeptLink)


def linked(options: Options, doing: str, make: Callable[[pika.ConnectionParameters], K]) -> K:
    """Return this process's connection of that query, or a new one; raises like `open_any`."""
    name = of_sink(options, read_by())
    key = options.address(), login_of(options), name, options.broker
    link = _kept.pop(key, None)
    if link is None or not link.alive:
        while len(_kept) >= _KEPT_MAX:
            _kept.pop(next(iter(_kept))).close()
        link = open_any(options, doing, make, name)
    _kept[key] = link
    return cast(K, link)


class KeptConnection:
    """An open connection and its thread.

    one      one host
    at       host and port, for texts
    blocked  why the broker has blocked publishers; "": it has not
    raises  AMQPError, AMQPConnectorException, OSError, ConnectionLost: it could not be opened
    """

    def __init__(self, one: pika.ConnectionParameters) -> None:
        self.at = f"{one.host}:{one.port}"
        self._pid = os.getpid()
        self._opened = threading.Event()
        self._failure: Exception | None = None
        self.blocked = ""
        self.connection: Any = pika.SelectConnection(
            one,
            on_open_callback=self._on_open,
            on_open_error_callback=self._ended,
            on_close_callback=self._ended,
            custom_ioloop=IOServices(),
        )
        self.connection.add_on_connection_blocked_callback(self._on_blocked)
        self.connection.add_on_connection_unblocked_callback(self._on_unblocked)
        self._thread = threading.Thread(target=self._run, name="warren-sink", daemon=True)
        self._thread.start()
        # pika ends an attempt after stack_timeout by itself, for each address of the host.
        if not self._opened.wait(10 * one.stack_timeout):
            self.close()
            raise ConnectionLost("the handshake did not end in time")
        if self._failure is not None:
            raise self._failure

    @property
    def alive(self) -> bool:
        """Whether it is open, and of this process: a fork has no thread."""
        return self._failure is None and self._pid == os.getpid() and self.connection.is_open

    @property
    def ended(self) -> bool:
        """Whether its thread has ended: after that nothing is told any more."""
        return not self._thread.is_alive()

    @property
    def failure(self) -> Exception:
        """Return why it ended."""
        return self._failure or ConnectionLost("the connection is closed")

    @property
    def frame_max(self) -> int:
        """Bytes of the largest frame, as negotiated."""
        return int(self.connection.params.frame_max)

    def call(self, action: Callable[[], None]) -> None:
        """Run `action` in the connection's thread, soon; not at all when that has ended."""
        self.connection.ioloop.add_callback_threadsafe(action)

    def close(self) -> None:
        """Close without waiting for the end."""

        def closing() -> None:
            if self.connection.is_open:
                self.connection.close()
            elif not (self.connection.is_closed or self.connection.is_closing):
                self.connection.ioloop.stop()

        if self._pid == os.getpid():
            self.call(closing)

    def _ended(self, _connection: Any, reason: Exception) -> None:
        self._failure = self._failure or reason
        self._opened.set()
        self.connection.ioloop.stop()

    def _on_open(self, connection: Any) -> None:
        keep_renewed(connection)
        self._opened.set()

    def _on_blocked(self, _connection: Any, frame: Any) -> None:
        self.blocked = str(frame.method.reason)

    def _on_unblocked(self, _connection: Any, _frame: Any) -> None:
        self.blocked = ""

    def _run(self) -> None:
        loop = self.connection.ioloop
        try:
            loop.start()
        except Exception as wrong:  # the thread's end: the task is told
            self._failure = self._failure or wrong
        finally:
            self._failure = self._failure or ConnectionLost("the connection's thread has ended")
            self._opened.set()
            loop.close()
