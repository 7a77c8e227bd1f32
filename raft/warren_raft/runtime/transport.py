"""A node's connections to its peers: one each, kept up."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Sequence
from typing import Any, Protocol

from warren_raft.messages import AnyRaftMessage
from warren_raft.runtime.config import Address, HostConfig
from warren_raft.runtime.connector import Connector
from warren_raft.runtime.handshake import Hello, PeerRefused
from warren_raft.runtime.loop import Listener, Loop, Timer
from warren_raft.runtime.peer_connection import PeerConnection
from warren_raft.runtime.stream import Buffer
from warren_raft.types import NodeId

log = logging.getLogger("warren.raft")

STRANGERS_MAX = 256
"""Accepted connections that have not proved themselves yet; more are closed at once."""


class TransportOwner(Protocol):
    """Who hears of the connections."""

    def on_up(self, node: NodeId, boot_id: int) -> None:
        """A connection is established, perhaps in the place of an older one (`on_down` came)."""
        ...

    def on_down(self, node: NodeId) -> None:
        """An established connection ended."""
        ...

    def on_refused(self, node: NodeId) -> None:
        """Nobody listens at the peer's address."""
        ...

    def on_raft(self, node: NodeId, messages: list[AnyRaftMessage]) -> None:
        """Raft messages, in the order in which they were sent."""
        ...

    def on_message(self, node: NodeId, body: memoryview) -> None:
        """An application message."""
        ...


class _Peer:
    """What is known of one peer.

    renewing  a connection that stands is silent: another is called for
    Invariant: at most one of connector, shaking and retry is there on the calling side, and none
    beside a connection unless renewing
    """

    __slots__ = (
        "address",
        "calls",
        "connection",
        "connector",
        "delay_ms",
        "node",
        "renewing",
        "retry",
        "said",
        "shaking",
    )  # fmt: skip

    def __init__(self, node: NodeId, address: Address, calls: bool, delay_ms: int) -> None:
        self.node = node
        self.address = address
        self.calls = calls
        self.connection: PeerConnection | None = None
        self.shaking: PeerConnection | None = None
        self.connector: Connector | None = None
        self.retry: Timer | None = None
        self.delay_ms = delay_ms
        self.renewing = False
        self.said = ""


class Transport:
    """Of two nodes the one whose name sorts first calls, again and again, the other listens.

    So there is never a pair of connections to choose from; a new one replaces the old one, whose
    end the called node may not have noticed.
    """

    def __init__(self, config: HostConfig, loop: Loop, boot_id: int, owner: TransportOwner) -> None:
        self.config = config
        self.boot_id = boot_id
        self._loop = loop
        self._owner = owner
        self._peers: dict[NodeId, _Peer] = {}
        self._strangers: list[PeerConnection] = []
        self._listener: Listener | None = None
        self._closed = False

    def start(self) -> None:
        """Listen; `add_peer` calls. Raises OSError with the address."""
        self._listener = Listener(self._loop, self.config.listen, self._accepted)

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._listener is not None, "not started"
        return self._listener.port

    def close(self) -> None:
        """End all connections; the owner hears nothing more."""
        self._closed = True
        if self._listener is not None:
            self._listener.close()
        for stranger in list(self._strangers):
            stranger.stream.abort()
        for peer in self._peers.values():
            self._hang_up(peer)

    def add_peer(self, node: NodeId, address: Address) -> None:
        """Know a peer, and keep a connection to it; or learn its new address."""
        peer = self._peers.get(node)
        if peer is None:
            calls = self.config.node < node
            peer = _Peer(node, address, calls, self.config.reconnect_ms_min)
            self._peers[node] = peer
            if calls:
                self._call(peer)
        elif peer.address != address:
            peer.address = address
            if peer.calls and peer.connection is None:
                self._hang_up(peer)
                self._call(peer)

    def _hang_up(self, peer: _Peer) -> None:
        if peer.connector is not None:
            peer.connector.cancel()
            peer.connector = None
        if peer.retry is not None:
            peer.retry.cancel()
            peer.retry = None
        for connection in (peer.shaking, peer.connection):
            if connection is not None:
                connection.stream.flush()
                connection.stream.abort()

    # ------------------------------------------------------------ sending

    def up(self, node: NodeId) -> bool:
        """A connection to it is established."""
        peer = self._peers.get(node)
        return peer is not None and peer.connection is not None

    def send_raft(self, node: NodeId, messages: Sequence[AnyRaftMessage]) -> None:
        """In one frame; lost without a connection."""
        peer = self._peers.get(node)
        if peer is not None and peer.connection is not None:
            peer.connection.send_raft(messages)

    def send_message(self, node: NodeId, buffers: Sequence[Buffer]) -> bool:
        """An application message; False: there is no connection."""
        peer = self._peers.get(node)
        if peer is None or peer.connection is None:
            return False
        peer.connection.send_message(buffers)
        return True

    def backlog_bytes(self, node: NodeId) -> int:
        """Not yet taken by the socket."""
        peer = self._peers.get(node)
        return peer.connection.stream.out_bytes if peer is not None and peer.connection else 0

    def heartbeat(self) -> list[tuple[NodeId, int]]:
        """A sign of life to whom nothing was sent since the last call; when each was last heard."""
        heard = []
        for peer in self._peers.values():
            connection = peer.connection
            if connection is None:
                continue
            if not connection.sent_something:
                connection.send_heartbeat()
            connection.sent_something = False
            heard.append((peer.node, connection.stream.last_read_ms))
        return heard

    # ------------------------------------------------------------ silence

    def renew(self, node: NodeId) -> None:
        """Nothing was heard over this connection for long: look for another way to the peer.

        After a cut that is over, the old connection may stay silent for as long again: TCP doubles
        its pause with each attempt. Who calls does so beside it, for the peer may merely sleep;
        who is called ends it, so that the other side, if it hears that, calls.
        """
        peer = self._peers[node]
        if peer.connection is None or self._closed:
            return
        if not peer.calls:
            peer.connection.stream.abort(TimeoutError("silent for too long"))
        elif not peer.renewing:
            peer.renewing = True
            self._call(peer)

    def heard_again(self, node: NodeId) -> None:
        """The connection is not silent any more."""
        peer = self._peers[node]
        if not peer.renewing or peer.connection is None:
            return
        peer.renewing = False
        if peer.connector is not None:
            peer.connector.cancel()
            peer.connector = None
        if peer.retry is not None:
            peer.retry.cancel()
            peer.retry = None

    # ------------------------------------------------------------ calling

    def _call(self, peer: _Peer) -> None:
        peer.retry = None
        if self._closed or (peer.connection is not None and not peer.renewing):
            return
        assert peer.connector is None and peer.shaking is None, peer.node
        peer.connector = Connector(
            self._loop,
            peer.address,
            self.config.handshake_ms_max,
            lambda outcome: self._called(peer, outcome),
        )

    def _called(self, peer: _Peer, outcome: socket.socket | OSError) -> None:
        peer.connector = None
        if isinstance(outcome, OSError):
            self._say(peer, f"cannot connect: {outcome.strerror or outcome}")
            self._call_later(peer)
            if outcome.errno == errno.ECONNREFUSED:
                self._owner.on_refused(peer.node)
            return
        peer.shaking = PeerConnection(self, self._loop, outcome, peer.node)

    def _call_later(self, peer: _Peer, at_most: bool = False) -> None:
        if self._closed or not peer.calls or peer.retry is not None:
            return
        if peer.connector is not None or peer.shaking is not None:
            return  # under way already, beside the connection that has just ended
        if peer.connection is not None and not peer.renewing:
            return  # the old one speaks again
        delay = self.config.reconnect_ms_max if at_most else peer.delay_ms
        peer.delay_ms = min(delay * 2, self.config.reconnect_ms_max)
        peer.retry = self._loop.call_later(delay, lambda: self._call(peer))

    def _say(self, peer: _Peer, what: str) -> None:
        if what != peer.said:  # a peer that stays away is one line, not one per attempt
            peer.said = what
            log.warning(
                "%s: peer %s at %s:%s: %s", self.config.node, peer.node, *peer.address, what
            )

    # ------------------------------------------------------------ being called

    def _accepted(self, sock: socket.socket, address: Any) -> None:
        if len(self._strangers) >= STRANGERS_MAX:
            sock.close()
            return
        self._strangers.append(PeerConnection(self, self._loop, sock, None))

    def admit(self, connection: PeerConnection, hello: Hello) -> None:
        """See ConnectionOwner."""
        peer = self._peers.get(hello.node)
        own = self.config.node
        if peer is None:
            raise PeerRefused(
                f"node {own!r} has no peer {hello.node!r}; name it there, or correct the name"
            )
        if peer.calls:
            raise PeerRefused(
                f"node {own!r} calls node {hello.node!r}, not the other way round: of two nodes "
                "the one whose name sorts first calls"
            )

    # ------------------------------------------------------------ connections

    def established(self, connection: PeerConnection) -> None:
        """See ConnectionOwner."""
        assert connection.node is not None
        peer = self._peers[connection.node]
        if connection in self._strangers:
            self._strangers.remove(connection)
        peer.shaking = None
        peer.renewing = False
        old, peer.connection = peer.connection, connection
        if old is not None:
            old.stream.abort()
            self._owner.on_down(peer.node)
        peer.delay_ms = self.config.reconnect_ms_min
        peer.said = ""
        log.info("%s: connected with %s", self.config.node, peer.node)
        self._owner.on_up(peer.node, connection.boot_id)

    def received_raft(self, connection: PeerConnection, messages: list[AnyRaftMessage]) -> None:
        """See ConnectionOwner."""
        assert connection.node is not None
        self._owner.on_raft(connection.node, messages)

    def received_message(self, connection: PeerConnection, body: memoryview) -> None:
        """See ConnectionOwner."""
        assert connection.node is not None
        self._owner.on_message(connection.node, body)

    def ended(self, connection: PeerConnection, error: Exception | None) -> None:
        """See ConnectionOwner."""
        if connection in self._strangers:
            self._strangers.remove(connection)
        if self._closed:
            return
        peer = self._peers.get(connection.node) if connection.node is not None else None
        refused = isinstance(error, PeerRefused)
        if peer is None or (connection is not peer.connection and connection is not peer.shaking):
            if error is not None and not isinstance(error, OSError):
                log.warning("%s: a connection was closed: %s", self.config.node, error)
            return
        if connection is peer.connection:
            peer.connection = None
            self._say(peer, f"connection lost: {error or 'closed by the peer'}")
            self._call_later(peer)
            self._owner.on_down(peer.node)
        else:
            peer.shaking = None
            self._say(peer, f"no connection: {error or 'closed by the peer'}")
            self._call_later(peer, at_most=refused)
