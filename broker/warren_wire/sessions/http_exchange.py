"""One request over HTTP or HTTPS and its answer, bounded in time and size, without redirects.

A node fetches an issuer's keys so (`key_fetch`), and the connector a token (`token_endpoint`).
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit


class ExchangeFailed(Exception):
    """There is no whole answer; its cause is the error, of which no text came from the server.

    late  the time was over
    """

    def __init__(self, late: bool) -> None:
        super().__init__("no answer")
        self.late = late


class ExchangeAnswer(NamedTuple):
    """Status, content type and content; None: it is larger than allowed."""

    status: int
    kind: str
    data: bytes | None


class HttpExchange:
    """One request on a connection of its own; may be made on any thread, which it blocks.

    The limits of sockets are those of single calls: a server that sends a byte now and then
    would be waited for without end. So a timer ends the connection, by a descriptor of its own,
    because that of the socket changes its owner when TLS begins.

    context     for https
    limit_s     for connecting, and for the request and its answer
    bytes_max   of the answer's content
    """

    def __init__(
        self, url: str, context: ssl.SSLContext | None, limit_s: float, bytes_max: int
    ) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and (context is not None) == (parts.scheme == "https")
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._context = context
        self._limit_s = limit_s
        self._bytes_max = bytes_max
        kind = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
        self._connection = kind(parts.hostname, parts.port)
        self._spare: socket.socket | None = None
        self._late = False

    def ask(
        self, method: str, headers: Mapping[str, str], body: str | None = None
    ) -> ExchangeAnswer:
        """Return the answer, whatever its status is.

        raises  ExchangeFailed
        """
        timer = threading.Timer(self._limit_s, self._end)
        timer.daemon = True
        try:
            self._connect(timer)
            self._connection.request(method, self._path, body, headers)
            answer = self._connection.getresponse()
            data = answer.read(self._bytes_max + 1)
            if answer.length and len(data) <= self._bytes_max:
                raise http.client.IncompleteRead(b"")
        except (OSError, ValueError, http.client.HTTPException) as wrong:
            raise ExchangeFailed(self._late or isinstance(wrong, TimeoutError)) from wrong
        finally:
            timer.cancel()
            self._connection.close()
            if self._spare is not None:
                self._spare.close()
        whole = data if len(data) <= self._bytes_max else None
        return ExchangeAnswer(answer.status, answer.headers.get_content_type(), whole)

    def _connect(self, timer: threading.Timer) -> None:
        host, port = self._connection.host, self._connection.port
        made = socket.create_connection((host, port), self._limit_s)
        self._connection.sock = made
        self._spare = made.dup()
        timer.start()
        if self._context is not None:
            self._connection.sock = self._context.wrap_socket(made, server_hostname=host)

    def _end(self) -> None:
        self._late = True
        try:
            if self._spare is not None:
                self._spare.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended by itself
