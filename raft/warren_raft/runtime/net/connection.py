"""One connection to a peer: handshake, frames, end."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

import msgspec

from warren_raft.errors import PeerError
from warren_raft.messages import AnyRaftMessage
from warren_raft.runtime.config import Address, HostConfig
from warren_raft.runtime.loop import Loop, LoopTimer
from warren_raft.runtime.net import codec
from warren_raft.runtime.net.handshake import (
    HandshakeRefused,
    Hello,
    NodeRemoved,
    PeerRefused,
    Proof,
    RefusedByPeer,
    SecondProcess,
    check_hello,
    check_names,
    check_proof,
    prove,
)
from warren_raft.runtime.net.stream import Buffer, Stream
from warren_raft.runtime.net.tls import PeerTls, begins_tls
from warren_raft.types import NodeId
from warren_raft.versions import spoken
from warren_wire.undecodable import UNDECODABLE

_hello = msgspec.msgpack.Decoder(Hello)
_proof = msgspec.msgpack.Decoder(Proof)
_refused = msgspec.msgpack.Decoder(HandshakeRefused)


class TransportOwner(Protocol):
    """The callbacks of the transport."""

    def greeting(self, to: NodeId) -> Hello:
        """Return this node's Hello to that one, with a fresh nonce."""

    def judge(self, hello: Hello) -> str | None:
        """Return why an authenticated node is refused; None: it is a peer."""

    def on_met(self, hello: Hello, address: Address) -> None:
        """Handle the identity and address of a peer, perhaps a new one; `on_up` follows."""

    def on_up(self, node: NodeId, boot_id: int) -> None:
        """Handle an established connection, perhaps after an older one (after its `on_down`)."""

    def on_down(self, node: NodeId) -> None:
        """Handle the end of an established connection."""

    def on_refused(self, node: NodeId) -> None:
        """Handle a refused connection: nothing listens at the peer's address."""

    def on_second(self, node: NodeId) -> None:
        """Handle that peer's report that another process with this directory is connected."""

    def on_removed(self, node: NodeId) -> None:
        """Handle that peer's report that this node was removed from the cluster."""

    def on_raft(self, node: NodeId, messages: list[AnyRaftMessage]) -> None:
        """Handle Raft messages, in the order in which they were sent."""

    def on_message(self, node: NodeId, body: memoryview) -> None:
        """An application message."""

    def on_drained(self, node: NodeId) -> None:
        """Take note that the connection with that peer is not congested, or has ended."""

    def position(self) -> int:
        """Return the last write of this node's log that is on its disk."""

    def on_position(self, node: NodeId, disk: int, write: int, boot: int) -> None:
        """Record that the peer's process `boot` has that write of its log on that disk."""

    def on_condition(self, node: NodeId, condition: int) -> None:
        """Handle the condition of the peer's disk, see `codec`."""

    def on_raised(self, version: int) -> None:
        """Handle the cluster's version: what the peer sends from here on may be of it."""


class ConnectionOwner(Protocol):
    """The owner of the connections, and theirs: `owner` is told what comes once one is up."""

    config: HostConfig
    key: bytes
    tls: PeerTls | None
    owner: TransportOwner

    def admit(self, connection: PeerConnection, hello: Hello) -> None:
        """Handle the proof of a call; raises CrossedCalls when this side's call continues."""

    def established(self, connection: PeerConnection) -> None:
        """Handle the end of the handshake."""

    def drained(self, connection: PeerConnection) -> None:
        """Take note that the connection is congested no more."""

    def ended(self, connection: PeerConnection, error: Exception | None) -> None:
        """Handle the end of the connection; called once, established or not."""


def _peer_host(sock: socket.socket) -> str:
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return ""  # disconnected already


class PeerConnection:
    """A connected socket to a peer: handshake, then frames.

    node     the peer: known from the start on the initiator, from its Hello on the acceptor
    hello    its Hello; seen_at: the address from which it connected, or at which it was reached
    version  that the link speaks, `versions.spoken`; 0: the peer's Hello was not received yet
    claimed  the name in its Hello, also of a Hello that is refused; nothing vouches for it
    Invariant: while not `up` only handshake frames are accepted, up to HANDSHAKE_FRAME_BYTES_MAX
    """

    def __init__(
        self, owner: ConnectionOwner, loop: Loop, sock: socket.socket, to: NodeId | None
    ) -> None:
        """to: the peer that was called; None: the peer has called."""
        config = owner.config
        self._owner = owner
        self._initiator = to is not None
        self.node = to
        self.claimed = to or ""
        self.boot_id = 0
        self.up = False
        self.sent_something = False
        self._told = 0
        self._own: Hello | None = None
        self.hello: Hello | None = None
        self._heard = msgspec.Raw()
        self.version = 0
        self.seen_at = _peer_host(sock)
        self._assembler = codec.Assembler(codec.HANDSHAKE_FRAME_BYTES_MAX)
        self.stream = self._stream(loop, sock)
        self._timer: LoopTimer = loop.call_later(config.handshake_ms_max, self._too_slow)
        if to is not None:
            self._own = owner.owner.greeting(to)
            self._send(codec.HELLO, self._own)

    def _stream(self, loop: Loop, sock: socket.socket) -> Stream:
        buffer_bytes = self._owner.config.connection_buffer_bytes
        if self._owner.tls is not None:
            return self._owner.tls.stream(
                loop,
                sock,
                self._initiator,
                self._on_data,
                self._on_closed,
                self._on_error,
                self._on_drained,
                buffer_bytes,
            )
        return Stream(
            loop,
            sock,
            self._on_data,
            self._on_closed,
            on_error=self._on_error,
            on_drained=self._on_drained,
            buffer_bytes=buffer_bytes,
            into=self,
        )

    def _on_drained(self) -> None:
        self._owner.drained(self)

    # ------------------------------------------------------------ sending

    def send_raft(self, messages: Sequence[AnyRaftMessage], now: bool = False) -> bool:
        """Send them in one frame, after the position of the write that they depend on.

        now  not at the end of the turn
        Return whether the connection is congested now.
        """
        buffers = codec.encode_raft(messages)
        position = self._owner.owner.position()
        if position != self._told:
            self._told = position
            buffers.insert(0, codec.position_frame(position))
        self._write(buffers)
        if now:
            self.stream.flush()
        return self.stream.congested and not self.stream.closed

    def send_message(self, buffers: Sequence[Buffer]) -> None:
        """Send one application message."""
        self._write(codec.frame_around(codec.MESSAGE, buffers))

    def send_heartbeat(self) -> None:
        """Send a heartbeat if nothing else was sent since the last one; and the log's position."""
        self._tell_position()
        if not self.sent_something:
            self.stream.send(codec.HEARTBEAT_FRAME)
        self.sent_something = False

    def _tell_position(self) -> None:
        position = self._owner.owner.position()
        if position != self._told:
            self._told = position
            self._write([codec.position_frame(position)])

    def send_condition(self, condition: int) -> None:
        """Send a heartbeat with the condition of this node's disk."""
        self.stream.send(codec.disk_frame(condition))

    def send_raised(self, version: int) -> None:
        """Say which version the cluster has, before anything else of this turn."""
        self._write([codec.raised_frame(version)])

    def _write(self, buffers: list[Buffer]) -> None:
        assert self.up
        self.sent_something = True
        self.stream.write(buffers)
        bound = self._owner.config.peer_backlog_bytes
        if self.stream.out_bytes > bound:
            self.stream.abort(
                PeerError(
                    f"{self.stream.out_bytes} bytes wait for node {self.node!r}, which does not "
                    f"read; at most {bound} may (peer_backlog_bytes)"
                )
            )

    def _send(self, kind: int, value: msgspec.Struct) -> None:
        self.stream.send(codec.frame(kind, msgspec.msgpack.encode(value)))

    # ------------------------------------------------------------ receiving

    def _on_data(self, chunk: bytes) -> None:
        if not self.up and self.hello is None and begins_tls(chunk):
            raise PeerRefused(
                f"{self.seen_at} calls with TLS, and this node has none for peers; give all nodes "
                "the same settings of tls.between_nodes"
            )
        self._assembler.feed(chunk, self._take)

    def room(self) -> memoryview | None:
        """Return where the rest of a large frame is received; None: there is none."""
        return self._assembler.room()

    def filled(self, size: int) -> None:
        """Handle bytes that were received there."""
        self._assembler.filled(size, self._take)

    def _take(self, kind: int, body: memoryview) -> None:
        if self.stream.closed:
            return
        if self.up:
            told, node, hello = self._owner.owner, self.node, self.hello
            assert node is not None and hello is not None
            if kind == codec.RAFT:
                told.on_raft(node, codec.decode_raft(body))
            elif kind == codec.MESSAGE:
                told.on_message(node, body)
            elif kind == codec.RAISED:
                told.on_raised(codec.raised(body))
            elif kind != codec.HEARTBEAT:
                raise codec.BadFrame(f"a frame of kind {kind} on an established connection")
            elif (write := codec.position(body)) is not None:
                told.on_position(node, hello.disk, write, self.boot_id)
            elif len(body):
                told.on_condition(node, body[0])
            return
        try:
            self._shake(kind, body)
        except UNDECODABLE as error:
            raise codec.BadFrame(f"a handshake frame of kind {kind} ({error})") from None

    def _shake(self, kind: int, body: memoryview) -> None:
        if kind == codec.REFUSED:
            refused = _refused.decode(body)
            raise RefusedByPeer(refused.reason, refused.second, self._is_removed(refused))
        if kind == codec.HELLO and self.hello is None:
            self._heard = msgspec.Raw(bytes(body))
            self._greeted(_hello.decode(body))
        elif kind == codec.PROOF and self.hello is not None and not self.boot_id:
            assert self._own is not None
            self._proved(_proof.decode(body), self._own, self.hello)
        elif kind == codec.WELCOME and not self._initiator and self.boot_id:
            self._established()
        else:
            raise codec.BadFrame(f"a frame of kind {kind} in the handshake")

    def _is_removed(self, refused: HandshakeRefused) -> bool:
        """Return whether the acceptor says so, and has proved itself; raises PeerRefused."""
        if not (refused.removed and self._initiator and self._own and self.hello):
            return False
        proof = Proof(refused.removed)
        key, heard = self._owner.key, self._heard
        check_proof(proof, key, "remover", self._own, heard, self.hello)
        return True

    def _greeted(self, hello: Hello) -> None:
        if self._own is None:
            self._own = self._owner.owner.greeting(hello.node)
        check_names(hello)
        self.claimed = hello.node
        check_hello(hello, self._own)
        self.hello = hello
        self.version = spoken(hello.versions, self._own.versions)
        if self._initiator:
            if hello.node != self.node:
                raise PeerRefused(
                    f"node {hello.node!r} answers at the address given for {self.node!r}; correct "
                    f"the peers' addresses of node {self._own.node!r}"
                )
            self._send(codec.PROOF, prove(self._owner.key, "initiator", self._own, self._heard))
            return
        self.node = hello.node
        self._send(codec.HELLO, self._own)

    def _proved(self, proof: Proof, own: Hello, other: Hello) -> None:
        key, heard = self._owner.key, self._heard
        if self._initiator:
            check_proof(proof, key, "acceptor", own, heard, other)
            self._judge(other)
            self.boot_id = other.boot_id
            self.stream.send(codec.frame(codec.WELCOME, b""))
            self._established()
            return
        check_proof(proof, key, "initiator", heard, own, other)
        self._owner.admit(self, other)
        self._judge(other)
        self.boot_id = other.boot_id
        self._send(codec.PROOF, prove(key, "acceptor", heard, own))

    def _judge(self, other: Hello) -> None:
        reason = self._owner.owner.judge(other)
        if reason is not None:
            raise PeerRefused(reason)

    def _established(self) -> None:
        self._timer.cancel()
        self.up = True
        self._assembler.bytes_max = self._owner.config.frame_bytes_max
        self._owner.established(self)

    # ------------------------------------------------------------ ending

    def _too_slow(self) -> None:
        self.stream.abort(
            PeerError(
                f"no handshake within {self._owner.config.handshake_ms_max} ms "
                "(handshake_ms_max): is that a Warren node's peer port?"
            )
        )

    def _on_error(self, error: Exception) -> None:
        # A peer's fault ends its connection. This node's (an assertion in a group's core, a machine
        # that raised, a failed disk) must not look like a network fault: it propagates out of the
        # loop.
        if not isinstance(error, PeerError):
            raise error
        if isinstance(error, PeerRefused) and not isinstance(error, RefusedByPeer):
            removed = b""
            if isinstance(error, NodeRemoved) and not self._initiator and self._own and self.hello:
                removed = prove(self._owner.key, "remover", self._heard, self._own).mac
            second = isinstance(error, SecondProcess) and error.alive
            self._send(codec.REFUSED, HandshakeRefused(str(error), second, removed))
            self.stream.flush()
        self.stream.abort(error)

    def _on_closed(self, error: Exception | None) -> None:
        self._timer.cancel()
        self.up = False
        self._owner.ended(self, error)
