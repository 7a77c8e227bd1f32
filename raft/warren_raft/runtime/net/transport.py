"""A node's connections to its peers: one per peer, re-established when it breaks."""

from __future__ import annotations

import errno
import logging
import socket
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from warren_raft.address_shares import shared_address
from warren_raft.messages import AnyRaftMessage
from warren_raft.runtime.config import Address, HostConfig
from warren_raft.runtime.loop import Listener, Loop, LoopTimer
from warren_raft.runtime.net.call_table import Act, Calls, CallState, Event
from warren_raft.runtime.net.connection import PeerConnection, TransportOwner
from warren_raft.runtime.net.dial import Connector
from warren_raft.runtime.net.handshake import (
    CrossedCalls,
    Hello,
    PeerRefused,
    RefusedByPeer,
    peer_key,
)
from warren_raft.runtime.net.peer_port import PeerPort
from warren_raft.runtime.net.stream import Buffer
from warren_raft.runtime.net.tls import PeerTls
from warren_raft.types import NodeId

log = logging.getLogger("warren.raft")

STARTING_MS = 10_000
"""Of a node in which a peer that cannot be reached is no warning."""
REPEAT_MS: Final = 600_000
"""A line that stays true is logged again after that long."""
SUBJECTS_MAX: Final = 256
TEXTS_MAX: Final = 8
"""Of one subject: a peer at two addresses, called by turns, has two."""


class SaidOnce:
    """What was logged about connections that are attempted again and again: once per change.

    Of too many subjects, the one logged longest ago is forgotten.
    """

    def __init__(self) -> None:
        self._said: OrderedDict[str, dict[str, int]] = OrderedDict()

    def news(self, subject: str, text: str, now_ms: int) -> bool:
        """Return whether to log the text: it was not since `forget`, or long ago."""
        texts = self._said.setdefault(subject, {})
        self._said.move_to_end(subject)
        if len(self._said) > SUBJECTS_MAX:
            self._said.popitem(last=False)
        if text in texts and now_ms - texts[text] < REPEAT_MS:
            return False
        texts.pop(text, None)
        texts[text] = now_ms
        if len(texts) > TEXTS_MAX:
            del texts[next(iter(texts))]
        return True

    def forget(self, subject: str) -> None:
        """Log the next line about it in any case: its condition has changed."""
        self._said.pop(subject, None)


@dataclass(slots=True, eq=False, repr=False)
class _Peer:
    """The transport's state of one peer.

    address    the configured address; told: the one that it advertises, if different
    seen_at    the other end of its last connection
    first      this node's name sorts before the peer's
    calls      what is attempted now, and whether `connection` is established, see `call_table`
    retry, connector, calling, called
               of the attempt: the timer, the call without a socket, this side's call in its
               handshake, the peer's
    Invariant: exactly the one that belongs to `calls.attempt` is set, once the acts are done
    """

    node: NodeId
    address: Address
    first: bool
    delay_ms: int
    calls: Calls = field(init=False)
    calls_made: int = 0
    told: Address | None = None
    connection: PeerConnection | None = None
    calling: PeerConnection | None = None
    called: PeerConnection | None = None
    connector: Connector | None = None
    retry: LoopTimer | None = None
    seen_at: str = ""

    def __post_init__(self) -> None:
        self.calls = Calls(self.first)

    def next_address(self) -> Address:
        """Return the address to call next: the configured and the advertised one alternate."""
        self.calls_made += 1
        return self.address if self.told is None or self.calls_made % 2 else self.told

    def check(self) -> None:
        """Check the invariants."""
        self.calls.check()
        attempt = self.calls.attempt
        for what, parts in (
            (CallState.WAITING, self.retry),
            (CallState.CONNECTING, self.connector),
            (CallState.CALLING, self.calling),
            (CallState.CALLED, self.called),
        ):
            assert (parts is not None) == (attempt is what), (self.node, attempt, what)


class Transport:
    """One connection with every peer, from either side; a new one replaces the old one.

    The end of the old one may be noticed by one side only. Of two nodes the first by name calls at
    once and repeatedly; the other one calls if it has not been called for a while: the first may
    not know its address yet, or not know it at all. When both call, the first one's call continues:
    1. It accepts no call of the peer while its own is in the handshake.  2. It starts no call while
    the peer's is.  So one of the two completes, and the second side's attempt is dropped. A call
    counts as the peer's from its Proof on: a stranger's Hello in the peer's name changes nothing.
    """

    def __init__(self, config: HostConfig, loop: Loop, boot_id: int, owner: TransportOwner) -> None:
        self.config = config
        self.key = peer_key(config.secret, config.cluster)
        self.tls: PeerTls | None = None
        self.boot_id = boot_id
        self._loop = loop
        self.owner = owner
        self._peers: dict[NodeId, _Peer] = {}
        self.peer_port = PeerPort(
            config, loop, lambda sock: PeerConnection(self, loop, sock, None), self._addresses
        )
        self._said = SaidOnce()
        self._starts_until_ms = loop.clock.monotonic_ms() + STARTING_MS
        self._listener: Listener | None = None
        self._closed = False

    def start(self) -> None:
        """Listen; `add_peer` calls. Raises OSError with the address, CertificatesUnusable."""
        if self.config.tls is not None:
            self.tls = PeerTls(self.config.tls)
        self._listener = Listener(self._loop, self.config.listen, self._accepted)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        assert self._listener is not None, "not started"
        return self._listener.port

    def close(self) -> None:
        """End all connections without further callbacks."""
        self._closed = True
        if self.tls is not None:
            self.tls.stop()
        if self._listener is not None:
            self._listener.close()
        self.peer_port.close()
        for peer in self._peers.values():
            self._hang_up(peer)

    def add_peer(self, node: NodeId, address: Address) -> None:
        """Keep a connection to a peer from now on, or change its address."""
        peer = self._peers.get(node)
        if peer is None:
            peer = self._known(node, address)
            self._step(peer, Event.DUE if peer.first else Event.LOST)
        elif peer.address != address:
            peer.address = address
            peer.calls_made = 0
            self._step(peer, Event.MOVED)

    def _known(self, node: NodeId, address: Address) -> _Peer:
        first = self.config.node < node
        peer = _Peer(node, address, first, self.config.reconnect_ms_min)
        self._peers[node] = peer
        return peer

    def remove_peer(self, node: NodeId) -> None:
        """End the connection with it and stop calling it; unknown ones are ignored."""
        peer = self._peers.pop(node, None)
        if peer is None:
            return
        up = peer.connection is not None
        self._hang_up(peer)
        self.peer_port.refusals.pop(node, None)
        for stranger in [each for each in self.peer_port.connections() if each.node == node]:
            stranger.stream.abort()  # its handshake, once complete, would make it a peer again
        if up:
            log.info("%s: %s is no longer a peer", self.config.node, node)
            self._down(node)

    def _down(self, node: NodeId) -> None:
        self.owner.on_drained(node)
        self.owner.on_down(node)

    def _drop_call(self, peer: _Peer) -> None:
        """Abort this side's attempt to reach the peer, and no longer regard the peer's."""
        for attempt in (peer.connector, peer.retry):
            if attempt is not None:
                attempt.cancel()
        peer.connector = peer.retry = peer.called = None
        calling, peer.calling = peer.calling, None
        if calling is not None:
            calling.stream.abort()

    def _hang_up(self, peer: _Peer) -> None:
        self._drop_call(peer)
        connection, peer.connection = peer.connection, None
        if connection is not None:
            connection.stream.flush()
            connection.stream.abort()

    # ------------------------------------------------------------ sending

    def _connection(self, node: NodeId) -> PeerConnection | None:
        peer = self._peers.get(node)
        return None if peer is None else peer.connection

    def up(self, node: NodeId) -> bool:
        """Return whether a connection to it is established."""
        return self._connection(node) is not None

    def heard_ms(self, node: NodeId) -> int:
        """Return when something was last read from an established connection; 0 without one."""
        connection = self._connection(node)
        return 0 if connection is None else connection.stream.last_read_ms

    def send_raft(
        self, node: NodeId, messages: Sequence[AnyRaftMessage], now: bool = False
    ) -> bool:
        """Send messages in one frame; they are lost without a connection.

        now  not at the end of the turn
        Return whether the connection is congested now; `TransportOwner.on_drained` ends that.
        """
        connection = self._connection(node)
        return connection is not None and connection.send_raft(messages, now)

    def send_message(self, node: NodeId, buffers: Sequence[Buffer]) -> bool:
        """Send an application message; return False when there is no connection."""
        connection = self._connection(node)
        if connection is not None:
            connection.send_message(buffers)
        return connection is not None

    def backlog_bytes(self, node: NodeId) -> int:
        """Return the bytes not yet accepted by the socket."""
        connection = self._connection(node)
        return 0 if connection is None else connection.stream.out_bytes

    def heartbeat(self) -> list[tuple[NodeId, int]]:
        """Send a heartbeat to idle peers; return when each peer last sent anything."""
        heard = []
        for peer in self._peers.values():
            connection = peer.connection
            if connection is None:
                continue
            connection.send_heartbeat()
            heard.append((peer.node, connection.stream.last_read_ms))
        return heard

    def tell_condition(self, node: NodeId | None, condition: int) -> None:
        """Send the condition of this node's disk to that peer; None: to all that are connected."""
        for peer in self._peers.values():
            if peer.connection is not None and node in (None, peer.node):
                peer.connection.send_condition(condition)

    def version(self, node: NodeId) -> int:
        """Return the version that the link with that peer speaks; 0: none is established."""
        connection = self._connection(node)
        return 0 if connection is None else connection.version

    def tell_raised(self, version: int) -> None:
        """Send the cluster's version to all that are connected, before anything of it."""
        for peer in self._peers.values():
            if peer.connection is not None:
                peer.connection.send_raised(version)

    # ------------------------------------------------------------ silence

    def renew(self, node: NodeId) -> None:
        """Replace a connection that has been silent for long.

        After a network partition has healed, the old connection may stay silent for as long again:
        TCP doubles its pause with each retransmission. The node with the first name opens a second
        connection, because the peer may merely be paused; the other one ends the old connection, so
        that the first, if it notices, calls.
        """
        peer = self._peers.get(node)
        if peer is not None:
            self._step(peer, Event.SUSPECTED)

    def heard_again(self, node: NodeId) -> None:
        """Stop renewing: the connection is no longer silent."""
        peer = self._peers.get(node)
        if peer is not None:
            self._step(peer, Event.HEARD)

    # ------------------------------------------------------------ calling

    def _step(self, peer: _Peer, event: Event, lost: bool = False, refused: bool = False) -> None:
        """Note what has happened, and do what follows from it, see `call_table`."""
        if self._closed:
            return
        for act in peer.calls.step(event):
            if act is Act.DROP:
                self._drop_call(peer)
            elif act is Act.CONNECT:
                self._connect(peer)
            elif act is Act.WAIT:
                self._wait(peer, lost, refused)
            elif act is Act.REFUSE:
                raise CrossedCalls(f"node {peer.node!r} is being called")
            elif peer.connection is not None:  # Act.END
                peer.connection.stream.abort(TimeoutError("silent for too long"))

    def _connect(self, peer: _Peer) -> None:
        peer.connector = Connector(
            self._loop,
            peer.next_address(),
            self.config.handshake_ms_max,
            lambda outcome: self._connected(peer, outcome),
        )

    def _connected(self, peer: _Peer, outcome: socket.socket | OSError) -> None:
        peer.connector = None
        if isinstance(outcome, OSError):
            self.peer_port.refusals.pop(peer.node, None)
            # While a cluster starts, not all its nodes are there: no warning, unless it lasts.
            starting = self._loop.clock.monotonic_ms() < self._starts_until_ms
            level = logging.INFO if starting else logging.WARNING
            self._say(peer, f"cannot connect: {outcome.strerror or outcome}", level)
            self._step(peer, Event.FAILED)
            if outcome.errno == errno.ECONNREFUSED:
                self.owner.on_refused(peer.node)
            return
        if peer.calls.step(Event.CONNECTED) == (Act.GREET,):
            peer.calling = PeerConnection(self, self._loop, outcome, peer.node)
            peer.seen_at = peer.calling.seen_at
        else:
            outcome.close()

    def _wait(self, peer: _Peer, lost: bool, refused: bool) -> None:
        delay = self.config.reconnect_ms_max if refused or not peer.first else peer.delay_ms
        if lost and not peer.first:
            # If the peer's process has ended, its machine refuses at once (`on_refused`): a second
            # side that waited to be called would find out after disconnect_grace_ms only. If the
            # first is up, it has called by then.
            delay = 2 * self.config.reconnect_ms_min
        peer.delay_ms = min(delay * 2, self.config.reconnect_ms_max)
        peer.retry = self._loop.call_later(delay, lambda: self._due(peer))

    def _due(self, peer: _Peer) -> None:
        peer.retry = None
        self._step(peer, Event.DUE)

    def _say(self, peer: _Peer, what: str, level: int = logging.WARNING) -> None:
        # One line for a peer that stays unreachable, not one per attempt.
        if self._said.news(f"to {peer.node}", f"{level} {what}", self._loop.now_ms):
            where = (self.config.node, peer.node, *peer.address)
            log.log(level, "%s: peer %s at %s:%s: %s", *where, what)

    def _say_of_stranger(self, connection: PeerConnection, error: Exception) -> None:
        host = connection.seen_at
        subject = f"from {connection.claimed or host}"
        if not self._said.news(subject, str(error), self._loop.now_ms):
            return
        log.warning("%s: a connection from %s was closed: %s", self.config.node, host, error)

    # ------------------------------------------------------------ being called

    def _accepted(self, sock: socket.socket, address: Any) -> None:
        self.peer_port.accepted(sock, str(address[0]))

    def _addresses(self) -> set[str]:
        """Return the addresses at which peers are known; a name counts once it was resolved."""
        hosts = set()
        for peer in self._peers.values():
            hosts |= {peer.address[0], peer.seen_at}
            if peer.told is not None:
                hosts.add(peer.told[0])
        return {shared_address(host) for host in hosts}

    def admit(self, connection: PeerConnection, hello: Hello) -> None:
        """See ConnectionOwner."""
        peer = self._peers.get(hello.node)
        if peer is None:
            return
        self._step(peer, Event.PROVEN)
        if peer.calls.attempt is CallState.CALLED:
            peer.called = connection

    # ------------------------------------------------------------ connections

    def established(self, connection: PeerConnection) -> None:
        """See ConnectionOwner."""
        hello = connection.hello
        assert hello is not None
        host, port = hello.address
        told = (host or connection.seen_at, port)
        peer = self._peers.get(hello.node) or self._known(hello.node, told)
        self.peer_port.done(connection)
        self.peer_port.refusals.pop(hello.node, None)
        peer.seen_at = connection.seen_at
        peer.told = told if told != peer.address else None
        if connection in (peer.calling, peer.called):
            peer.calling = peer.called = None
        self._step(peer, Event.ESTABLISHED)
        peer.calls_made = 0
        for subject in (f"to {peer.node}", f"from {peer.node}"):
            self._said.forget(subject)
        old, peer.connection = peer.connection, connection
        if old is not None:
            old.stream.abort()
            self._down(peer.node)
        peer.delay_ms = self.config.reconnect_ms_min
        log.info("%s: connected with %s", self.config.node, peer.node)
        self.owner.on_met(hello, told)
        self.owner.on_up(peer.node, connection.boot_id)

    def drained(self, connection: PeerConnection) -> None:
        """See ConnectionOwner."""
        if connection.up and connection.node is not None:
            self.owner.on_drained(connection.node)

    def ended(self, connection: PeerConnection, error: Exception | None) -> None:
        """See ConnectionOwner."""
        self.peer_port.done(connection)
        if self._closed:
            return
        peer = self._peers.get(connection.node) if connection.node is not None else None
        if peer is not None and connection is peer.called:
            peer.called = None
            self._step(peer, Event.FAILED)
        if peer is None or connection not in (peer.connection, peer.calling):
            if error is not None and not isinstance(error, (OSError, CrossedCalls)):
                self._say_of_stranger(connection, error)
            return
        refused = isinstance(error, PeerRefused)
        if isinstance(error, RefusedByPeer) and error.second:
            self.owner.on_second(peer.node)
        if isinstance(error, RefusedByPeer) and error.removed:
            self.owner.on_removed(peer.node)
        if connection is peer.connection:
            peer.connection = None
            self._say(peer, f"connection lost: {error or 'closed by the peer'}")
            self._step(peer, Event.LOST, lost=True)
            self._down(peer.node)
        else:
            peer.calling = None
            if isinstance(error, PeerRefused):
                self.peer_port.refusals[peer.node] = str(error)
            if error is not None or peer.first:  # else both called; the other call continues
                self._say(peer, f"no connection: {error or 'closed by the peer'}")
            self._step(peer, Event.FAILED, refused=refused)
