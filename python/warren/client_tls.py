"""TLS for the client's socket."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence

from warren.errors import ConnectionLost, DeadlinePassed, TlsError, UsageError
from warren.uri import ClientTls
from warren_wire.tls.contexts import (
    CertificatesUnusable,
    TlsFiles,
    calling_context,
    refusal_in_words,
)

SEND_BYTES_MAX = 256 << 10
"""Bytes that are encrypted at once."""
OPTIONS = {"certfile": "certFile", "keyfile": "keyFile", "cacertfile": "caFile"}


class TlsSocket:
    """A non-blocking TLS socket with the methods of a plain one that `Wire` uses.

    `sendmsg` and `recv_into` raise BlockingIOError where a plain socket would, and TlsError when
    the node refuses this side's certificate.
    Invariant: after BlockingIOError `sendmsg` must be called with the same bytes again, in front
    """

    def __init__(self, wrapped: ssl.SSLSocket, where: str) -> None:
        self._wrapped = wrapped
        self._where = where
        self._retry = b""

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self._wrapped.fileno()

    def sendmsg(self, buffers: Sequence[memoryview]) -> int:
        """Send bytes from the first buffers; return how many."""
        data = self._retry or _first(buffers)
        try:
            sent = self._wrapped.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._retry = data  # OpenSSL wants to be called with the same bytes
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise tls_failure(error, self._where) from error
        self._retry = b""
        return sent

    def recv_into(self, buffer: bytearray) -> int:
        """Read until the buffer is full or nothing is left; return the bytes, 0 at the end."""
        size = 0
        with memoryview(buffer) as view:
            while size < len(buffer):
                try:
                    got = self._wrapped.recv_into(view[size:])
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    if not size:
                        raise BlockingIOError from None
                    return size
                except ssl.SSLError as error:
                    if size:
                        return size  # it is raised again by the next call
                    raise tls_failure(error, self._where) from error
                if not got:
                    return size
                size += got
        return size

    def close(self) -> None:
        """Close the socket at once."""
        self._wrapped.close()


def client_context(tls: ClientTls) -> ssl.SSLContext:
    """Return the context for these options; raises UsageError that names the file."""
    files = TlsFiles(tls.cert_file, tls.key_file, tls.ca_file)
    try:
        return calling_context(files, checks=tls.verify, options=OPTIONS)
    except CertificatesUnusable as error:
        raise UsageError(str(error)) from error


def secure(
    made: socket.socket, host: tuple[str, int], tls: ClientTls, deadline: float
) -> TlsSocket:
    """Carry out the TLS handshake on a connected socket; the result does not block.

    raises  TlsError, UsageError, ConnectionLost, DeadlinePassed; then the socket is closed
    """
    where = f"{host[0]}:{host[1]}"
    try:
        left = deadline - time.monotonic()
        if left <= 0:
            raise DeadlinePassed(f"no time left for the TLS handshake with {where}")
        made.settimeout(left)
        wrapped = client_context(tls).wrap_socket(made, server_hostname=host[0])
    except TimeoutError:
        made.close()
        raise ConnectionLost(f"{where} did not complete the TLS handshake in time") from None
    except ssl.SSLError as error:
        made.close()
        raise tls_failure(error, where) from error
    except OSError as error:
        made.close()
        raise ConnectionLost(
            f"{where} ended the TLS handshake: {error.strerror or error}"
        ) from error
    except BaseException:
        made.close()
        raise
    wrapped.setblocking(False)
    return TlsSocket(wrapped, where)


def _first(buffers: Sequence[memoryview]) -> bytes:
    pieces: list[memoryview] = []
    room = SEND_BYTES_MAX
    for buffer in buffers:
        pieces.append(buffer[:room])
        room -= len(pieces[-1])
        if not room:
            break
    return b"".join(pieces)


def tls_failure(error: BaseException, where: str) -> ConnectionLost | TlsError:
    """Return the error to raise: TlsError where another attempt would meet the same."""
    refused = refusal_in_words(error, where, OPTIONS)
    if refused is not None:
        return TlsError(refused)
    said = getattr(error, "strerror", None) or error
    return ConnectionLost(f"connection to {where} lost: {said}")
