"""TLS between nodes: both sides have a certificate of the cluster's authority."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace

from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net.tls import HANDSHAKE_RECORD, HandshakeBudget, TlsStream
from warren_wire.tls.certificates import WatchedFiles
from warren_wire.tls.contexts import TlsFiles, peer_context, server_context

TLS_VERSIONS = ((3, 1), (3, 2), (3, 3))
"""The second and third byte that a TLS client sends."""


@dataclass(frozen=True, slots=True)
class PeerContexts:
    """The contexts of the side that is called, and of the one that calls."""

    called: ssl.SSLContext
    calling: ssl.SSLContext


def _contexts(files: TlsFiles) -> PeerContexts:
    return PeerContexts(server_context(files), peer_context(files))


class PeerTls:
    """The certificates of one node for its connections to the others.

    A certificate proves that its owner belongs to the cluster's machines; which node it is, the
    handshake with the secret proves, on top (`handshake`).
    """

    def __init__(self, files: TlsFiles) -> None:
        """Read the files; raises CertificatesUnusable."""
        both = replace(files, verify=ssl.CERT_REQUIRED)
        self._contexts = WatchedFiles(both, _contexts, "peers")
        self._handshakes = HandshakeBudget()
        self._contexts.start()

    def stop(self) -> None:
        """Watch the files no more."""
        self._contexts.stop()

    def stream(
        self,
        loop: Loop,
        sock: socket.socket,
        calling: bool,
        on_data: Callable[[bytes], None],
        on_closed: Callable[[Exception | None], None],
        on_error: Callable[[Exception], None],
        on_drained: Callable[[], None],
        buffer_bytes: int,
    ) -> TlsStream:
        """Return the stream of a connection to a peer.

        calling  whether this node has called the other one
        """
        contexts = self._contexts.current
        return TlsStream(
            loop,
            sock,
            on_data,
            on_closed,
            context=contexts.calling if calling else contexts.called,
            hostname="" if calling else None,
            budget=self._handshakes,
            on_error=on_error,
            on_drained=on_drained,
            buffer_bytes=buffer_bytes,
        )


def begins_tls(data: bytes) -> bool:
    """Return whether these are the first bytes of a TLS client.

    A frame between nodes does not begin so: its length would be above HANDSHAKE_FRAME_BYTES_MAX.
    """
    return len(data) > 2 and data[0] == HANDSHAKE_RECORD and (data[1], data[2]) in TLS_VERSIONS
