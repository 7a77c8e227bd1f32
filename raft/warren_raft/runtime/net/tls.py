"""A connection with TLS over the loop: a `Stream` with encrypted bytes on its socket.

OpenSSL works on two buffers in memory (`ssl.MemoryBIO`), never on the socket. So reads and writes
stay as large as those of a connection without TLS, nothing that OpenSSL has decrypted can wait
unnoticed while the socket is silent, and a socket that accepts no more is felt where it always is.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from warren_raft.errors import PeerError
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net.stream import Buffer, Stream, _nothing
from warren_wire.quoting import quoted
from warren_wire.tls.certificates import WatchedFiles
from warren_wire.tls.contexts import TlsFiles, peer_context, server_context

RECORD_BYTES_MAX = 16 << 10
"""Of plaintext in one TLS record."""
SEAL_BYTES_MAX = 16 * RECORD_BYTES_MAX
"""Plaintext that is encrypted ahead of what the socket accepts."""
HANDSHAKE_S_PER_TURN = 0.02
"""CPU time of handshakes in one turn of the loop; further ones wait for the next turn."""
STEPS_PER_TURN = 32
"""Steps of clients before their login in one turn, each with some bytes: as above."""
HANDSHAKE_RECORD = 0x16
"""The first byte that a TLS client sends."""
_DISTRUST = ("unknown ca", "bad certificate", "certificate expired", "certificate unknown")
_REASONS_SERVER = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has given no certificate, and one is required "
    "(fail_if_no_peer_cert); give it a certificate and key",
    "UNSUPPORTED_PROTOCOL": "it speaks only TLS versions below 1.2; upgrade it",
    "NO_SHARED_CIPHER": "it has no cipher in common with this node; upgrade it",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
}
_REASONS_CLIENT = {
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS; give both the same settings",
    "UNSUPPORTED_PROTOCOL": "the other side speaks only TLS versions below 1.2; upgrade it",
}
TLS_VERSIONS = ((3, 1), (3, 2), (3, 3))
"""The second and third byte that a TLS client sends."""


class TlsRefused(PeerError):
    """A TLS connection that cannot be: a handshake that failed, or bytes that are not TLS."""


class HandshakeBudget:
    """What handshakes may take in one turn, over all connections that share it: time, and steps.

    1. A node restarts, and a thousand clients connect within a second.  2. Each handshake signs
    with the node's key, which takes a millisecond or five.  3. Carried out in one turn of the loop,
    they would delay the heartbeats to the other nodes for seconds, and this node would be
    suspected. So a turn carries out some; the others' bytes stay in their sockets until the next.
    """

    def __init__(self, turn_s: float = HANDSHAKE_S_PER_TURN, steps: int = STEPS_PER_TURN) -> None:
        self._turn_s = turn_s
        self._steps = steps
        self._turn = -1
        self._spent_s = 0.0
        self._made = 0

    def left(self, turn: int) -> bool:
        """Return whether another step of a handshake may be made in this turn of the loop."""
        if turn != self._turn:
            self._turn, self._spent_s, self._made = turn, 0.0, 0
        return self._spent_s < self._turn_s and self._made < self._steps

    def spend(self, seconds: float) -> None:
        """Count a step, and what it took."""
        self._spent_s += seconds
        self._made += 1


class TlsStream(Stream):
    """A stream with TLS; the handshake begins at once, and `write` may be called before its end.

    context         of a server or a client, as `hostname` says
    hostname        client: the name that is asked for, checked where the context checks names; "":
                    none is asked for. None: this is the server's side
    budget          shared by the connections that are accepted together
    on_established  called once, when the handshake is complete
    `on_closed` is told TlsRefused when the handshake failed; its text names the reason.
    Invariants: `_out` keeps plaintext until its ciphertext was accepted by the socket, so that
    out_bytes, congestion and closing are those of any stream;  `_sealed_bytes` <= out_bytes
    """

    __slots__ = (
        "_budget",
        "_deliver",
        "_farewell",
        "_incoming",
        "_on_established",
        "_outgoing",
        "_refusal",
        "_sealed",
        "_sealed_bytes",
        "_server",
        "_tls",
        "established",
    )

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_data: Callable[[bytes], None],
        on_closed: Callable[[Exception | None], None],
        *,
        context: ssl.SSLContext,
        hostname: str | None,
        budget: HandshakeBudget,
        on_established: Callable[[], None] | None = None,
        high: int = 8 << 20,
        low: int = 2 << 20,
        on_drained: Callable[[], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        buffer_bytes: int | None = None,
    ) -> None:
        super().__init__(
            loop,
            sock,
            self._decrypt,
            on_closed,
            high=high,
            low=low,
            on_drained=on_drained,
            on_error=on_error,
            buffer_bytes=buffer_bytes,
        )
        self.established = False
        self._deliver: Callable[[bytes], None] = on_data
        self._on_established = on_established
        self._budget = budget
        self._server = hostname is None
        self._refusal: TlsRefused | None = None
        self._farewell = False
        self._sealed = memoryview(b"")
        self._sealed_bytes = 0
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self._server,
            server_hostname=hostname or None,
        )
        if not self._server:
            loop.call_soon(self._shake)

    @property
    def peer_certificate(self) -> dict[str, Any]:
        """The peer's verified certificate, as `ssl` decodes it; empty: it gave none."""
        return dict(self._tls.getpeercert() or {}) if self.established else {}

    @property
    def description(self) -> str:
        """Version and cipher, for the log."""
        cipher = self._tls.cipher()
        return f"{self._tls.version()}, {cipher[0] if cipher else 'no cipher'}"

    # ------------------------------------------------------------ writing

    def _transmit(self) -> bool:
        try:
            while True:
                if self._sealed:
                    self._sealed = self._sealed[self.sock.send(self._sealed) :]
                    self.writes += 1
                    if self._sealed:
                        return True
                    sent, self._sealed_bytes = self._sealed_bytes, 0
                    self._sent(sent)
                if not self._out or not self.established or self._refusal is not None:
                    return False
                self._seal()
        except BlockingIOError:
            return True

    def _seal(self) -> None:
        """Encrypt what is first to be sent, small writes together in one record."""
        if len(self._out) > 8:
            self._join_small()
        pieces: list[Buffer] = []
        size = 0
        for buffer in self._out:
            room = SEAL_BYTES_MAX - size
            piece = buffer if len(buffer) <= room else memoryview(buffer)[:room]
            pieces.append(piece)
            size += len(piece)
            if size == SEAL_BYTES_MAX:
                break
        data = memoryview(b"".join(pieces) if len(pieces) > 1 else pieces[0])
        done = 0
        while done < size:
            done += self._tls.write(data[done:])
        self._sealed_bytes = size
        self._take_sealed()

    def _take_sealed(self) -> None:
        """Move what OpenSSL has to send behind what is being sent."""
        if self._outgoing.pending:
            more = self._outgoing.read()
            self._sealed = memoryview(bytes(self._sealed) + more if self._sealed else more)

    # ------------------------------------------------------------ reading

    def _readable(self) -> None:
        # Out of budget nothing is read: the socket stays ready, and the next turn comes at once.
        if self.established or self._budget.left(self.loop.turn):
            super()._readable()

    def _decrypt(self, data: bytes) -> None:
        if self._server and self.bytes_in == len(data) and data[0] != HANDSHAKE_RECORD:
            self._refuse(f"it does not speak TLS; its first bytes are {quoted(data[:8])}")
            return
        self._incoming.write(data)
        if not self.established:
            self._shake()
            if not self.established:
                return
        pieces, over = self._plaintext()
        if self._outgoing.pending and self._refusal is None:
            self._take_sealed()
            self._send_out()
        if pieces and not self._closing:
            self._deliver(b"".join(pieces) if len(pieces) > 1 else pieces[0])
        if over and self._refusal is None:
            self._finish(None)

    def _dropped(self, data: bytes) -> None:
        """End when the peer says that no more follows: it waits for the answer, not for a hang-up.

        1. A client has closed its connection, and the answer was sent; the client is to hang up.
        2. It says so in TLS, and keeps the socket until the answer to that: asyncio's for 30 s.
        """
        if self.established and self._refusal is None:
            self._incoming.write(data)
            if self._plaintext()[1]:
                self._finish(None)

    def _plaintext(self) -> tuple[list[bytes], bool]:
        """Return what can be decrypted now, and whether the peer has said that no more follows."""
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(RECORD_BYTES_MAX):
                pieces.append(piece)
            return pieces, True
        except ssl.SSLWantReadError:
            return pieces, False
        except ssl.SSLZeroReturnError:
            return pieces, True
        except ssl.SSLError as error:
            self._refuse(reason_of(error, self._server))
            return pieces, False

    # ------------------------------------------------------------ handshake

    def _shake(self) -> None:
        """Take the handshake as far as the bytes that have come allow."""
        if self.closed or self._closing or self.established:
            return
        begun = time.perf_counter()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._refuse(reason_of(error, self._server))
            return
        else:
            self.established = True
        finally:
            self._budget.spend(time.perf_counter() - begun)
        self._take_sealed()
        self._send_out()  # also what was written before
        if self.established and not self.closed and self._on_established is not None:
            self._on_established()

    def _refuse(self, why: str) -> None:
        """End the connection: send the alert, if there is one, so that the peer says why, too."""
        self._refusal = TlsRefused(why)
        self._out.clear()
        self.out_bytes = self._sealed_bytes = 0
        self._take_sealed()
        self.end()

    # ------------------------------------------------------------ ending

    def _say_no_more(self) -> None:
        if not self._farewell:
            self._say_goodbye()
            if self._sealed:
                self._send_out()  # which calls this again when it has been sent
                return
        super()._say_no_more()

    def _say_goodbye(self) -> None:
        """Have OpenSSL say that nothing follows; after a refusal its alert has said it."""
        self._farewell = True
        if self.established and self._refusal is None:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # it waits for the peer's answer, which is not needed
            self._take_sealed()

    def _finish(self, error: Exception | None) -> None:
        if self.closed:
            return
        if self._refusal is not None:
            error = self._refusal
        elif error is None and not self.established and not self._closing and self.bytes_in:
            error = TlsRefused("it hung up during the TLS handshake")
        elif error is None and not self._farewell and not self._out:
            self._say_goodbye()
            try:
                self.sock.send(self._sealed)
            except OSError:
                pass  # the peer has gone, or does not read
        self._sealed = memoryview(b"")
        self._deliver = _nothing
        self._on_established = None
        super()._finish(error)


def reason_of(error: ssl.SSLError, server: bool) -> str:
    """Return why a TLS connection failed, with what to do where that is known.

    server  whether this is the side that was called
    """
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is refused: {error.verify_message}; it must be valid now, signed by "
            "the certificate authority in cacertfile, and for this name"
        )
    if "ALERT" in reason:
        said = reason[reason.index("ALERT") + len("ALERT") :].strip("_").replace("_", " ").lower()
        hint = " (it does not trust this node's certificate)" if said in _DISTRUST else ""
        return f"the other side ended the TLS connection: {said or 'no reason'}{hint}"
    known = _REASONS_SERVER.get(reason) if server else _REASONS_CLIENT.get(reason)
    return known or f"TLS failed: {(reason or str(error)).replace('_', ' ').lower()}"


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
