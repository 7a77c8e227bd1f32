"""A node's port for peers: places for those that connect, until they have proven themselves."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final

from warren_raft.address_shares import AddressShares, shared_address
from warren_raft.runtime.address_turns import AddressTurns
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net.connection import PeerConnection
from warren_raft.runtime.open_files import SocketBound
from warren_raft.types import NodeId

PATIENCE_PART: Final = 4
"""A connection keeps its place for this part of `handshake_ms_max` while others of its address
want it: a peer that calls from an address from which a stranger calls, too, has its turn."""
PEER_PLACES: Final = 64
"""Handshakes of one peer's address at once. A peer has one; its machine, or a proxy, may have
other programs, and what they begin takes nothing from other addresses."""
PEER_FILES: Final = 64
"""Open files that strangers leave for connections from peers' addresses."""
ALL_PEER_PLACES: Final = 1 << 20


class Caller:
    """A connection that was accepted: it waits for a place, then shakes hands.

    connection  None: it waits, and nothing is read
    """

    __slots__ = ("_port", "connection", "host", "sock", "turns")

    def __init__(self, port: PeerPort, turns: AddressTurns, sock: socket.socket, host: str) -> None:
        self._port = port
        self.turns = turns
        self.sock = sock
        self.host = host
        self.connection: PeerConnection | None = None

    def begin(self) -> None:
        """See `Newcomer`."""
        self._port.begin(self)

    def turn_away(self, reason: str) -> None:
        """See `Newcomer`; a peer calls again."""
        self.close()

    def close(self) -> None:
        """End it at once."""
        if self.connection is not None:
            self.connection.stream.abort()
        else:
            self._port.waiting.discard(self)
            self.sock.close()


class PeerPort:
    """The places of connections that are not authenticated yet, and where this node is refused.

    Addresses at which peers are known have places of their own; those of all other addresses
    together, of which each has a share, are for strangers: nodes that want to join, and anyone.

    refusals  why peers refuse this node, or are refused, when it calls them
    waiting   those that wait for a place
    Invariant: a caller is in `waiting`, or in `_begun` under its connection, or it has ended
    """

    def __init__(
        self,
        config: HostConfig,
        loop: Loop,
        make: Callable[[socket.socket], PeerConnection],
        known: Callable[[], set[str]],
    ) -> None:
        """known: returns the addresses of the peers, as `shared_address` has them."""
        self._make = make
        self._known = known
        self._bound = SocketBound(for_clients=False)
        self._begun: dict[PeerConnection, Caller] = {}
        self.waiting: set[Caller] = set()
        self.refusals: dict[NodeId, str] = {}
        patience_ms = config.handshake_ms_max // PATIENCE_PART

        def turns(what: str, share: int, places: int) -> AddressTurns:
            waiting = min(places, PEER_PLACES * 4)
            shares: AddressShares[Any] = AddressShares(share, places, waiting, patience_ms)
            return AddressTurns(what, loop, loop.clock, shares, config.handshake_ms_max)

        most = config.strangers_max
        share = min(config.strangers_per_address_max, most)
        self._strangers = turns("connections of strangers to the port for peers", share, most)
        self._peers = turns("connections from the addresses of peers", PEER_PLACES, ALL_PEER_PLACES)

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        """Return of each the numbers with a place, waiting, refused and evicted."""
        return {"peer_strangers": self._strangers.counts(), "peers": self._peers.counts()}

    def connections(self) -> list[PeerConnection]:
        """Return those with a handshake under way."""
        return list(self._begun)

    def accepted(self, sock: socket.socket, host: str) -> None:
        """Let a connection shake hands, now or later, or close it."""
        known = shared_address(host) in self._known()
        if not self._bound.admits(sock, 0 if known else PEER_FILES):
            sock.close()
            return
        caller = Caller(self, self._peers if known else self._strangers, sock, host)
        self.waiting.add(caller)
        caller.turns.arrive(caller)

    def begin(self, caller: Caller) -> None:
        """Shake hands: it has its place."""
        self.waiting.discard(caller)
        caller.connection = self._make(caller.sock)
        self._begun[caller.connection] = caller

    def done(self, connection: PeerConnection) -> None:
        """Take note that a connection is established or has ended; a repeat is harmless."""
        caller = self._begun.pop(connection, None)
        if caller is not None:
            caller.turns.end(caller)

    def close(self) -> None:
        """End all of them."""
        for caller in [*self.waiting, *self._begun.values()]:
            caller.turns.end(caller)
            caller.close()
