"""The failure detector: which peers are suspected, per node, for all groups together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from warren_raft.types import NodeId


class News(Enum):
    """A change of a peer's condition."""

    SUSPECTED = "suspected"
    GONE = "gone"
    BACK = "back"


@dataclass(slots=True)
class _WatchedPeer:
    connected: bool
    heard_ms: int
    suspect_at_ms: int
    suspected: bool = False
    gone: bool = False


class FailureDetector:
    """A failure detector: heartbeats in, suspicions out.

    A connected peer is suspected when nothing was received from it for `suspect_after_ms`; one with
    a broken connection, after `disconnect_grace_ms`, or at once when its port refuses: its process
    has ended, as its machine reports by a reset. `net.dial` tells the message of a firewall from
    that; a firewall that sends resets looks the same, so safety must not depend on it. A process
    that was stopped itself (a long pause between two checks) restarts the measurement instead of
    suspecting every peer: what they sent is unread in its sockets.
    Times are milliseconds of one monotonic clock.
    Invariants: a suspected peer is connected only between a message and the next check; one that is
    gone is suspected
    """

    def __init__(self, suspect_after_ms: int, disconnect_grace_ms: int, now_ms: int) -> None:
        self._suspect_after_ms = suspect_after_ms
        self._grace_ms = disconnect_grace_ms
        self._peers: dict[NodeId, _WatchedPeer] = {}
        self._checked_ms = now_ms

    def add(self, node: NodeId, now_ms: int) -> None:
        """Watch a peer; a new one has `suspect_after_ms` to connect."""
        if node not in self._peers:
            self._peers[node] = _WatchedPeer(False, now_ms, now_ms + self._suspect_after_ms)

    def remove(self, node: NodeId) -> None:
        """Stop watching a peer; unknown ones are ignored."""
        self._peers.pop(node, None)

    def knows(self, node: NodeId) -> bool:
        """Return whether it is watched."""
        return node in self._peers

    def suspected(self, node: NodeId) -> bool:
        """Return whether that peer is suspected; unknown nodes are not."""
        peer = self._peers.get(node)
        return peer is not None and peer.suspected

    def conditions(self) -> dict[str, int]:
        """Return the number of peers that are connected, suspected, and neither (connecting)."""
        found = {"connected": 0, "suspected": 0, "connecting": 0}
        for peer in self._peers.values():
            calm = "connected" if peer.connected else "connecting"
            found["suspected" if peer.suspected else calm] += 1
        return found

    def silent_since_ms(self, node: NodeId) -> int | None:
        """Return when a suspected peer was heard last, or watched first; None: not suspected."""
        peer = self._peers.get(node)
        return peer.heard_ms if peer is not None and peer.suspected else None

    def gone(self, node: NodeId) -> bool:
        """Return whether its port has refused a connection since its last message."""
        peer = self._peers.get(node)
        return peer is not None and peer.gone

    def connected(self, node: NodeId, now_ms: int) -> list[tuple[NodeId, News]]:
        """Record that a connection was established."""
        peer = self._peers[node]
        peer.connected = True
        peer.heard_ms = now_ms
        return self._back(node, peer)

    def disconnected(self, node: NodeId, now_ms: int) -> int | None:
        """Record that it broke; return how long until `check` is due for it, None: not needed."""
        peer = self._peers[node]
        peer.connected = False
        peer.suspect_at_ms = now_ms + self._grace_ms
        return None if peer.suspected else self._grace_ms

    def refused(self, node: NodeId) -> list[tuple[NodeId, News]]:
        """Record that the peer's port refused a connection."""
        peer = self._peers[node]
        news: list[tuple[NodeId, News]] = []
        if peer.connected or peer.gone:
            return news
        if not peer.suspected:
            peer.suspected = True
            news.append((node, News.SUSPECTED))
        peer.gone = True
        news.append((node, News.GONE))
        return news

    def heard(self, node: NodeId, now_ms: int) -> None:
        """Record that something arrived over its connection at that time."""
        self._peers[node].heard_ms = now_ms

    def check(self, now_ms: int) -> list[tuple[NodeId, News]]:
        """Return peers newly suspected, or back, as of now; call it at least every heartbeat."""
        paused = now_ms - self._checked_ms > self._suspect_after_ms // 2
        self._checked_ms = now_ms
        news: list[tuple[NodeId, News]] = []
        for node, peer in self._peers.items():
            if paused:
                peer.heard_ms = now_ms
                peer.suspect_at_ms = now_ms + self._grace_ms
            elif not peer.connected:
                if not peer.suspected and now_ms >= peer.suspect_at_ms:
                    peer.suspected = True
                    news.append((node, News.SUSPECTED))
            elif now_ms - peer.heard_ms >= self._suspect_after_ms:
                if not peer.suspected:
                    peer.suspected = True
                    news.append((node, News.SUSPECTED))
            else:
                news += self._back(node, peer)
        return news

    def _back(self, node: NodeId, peer: _WatchedPeer) -> list[tuple[NodeId, News]]:
        if not peer.suspected:
            return []
        peer.suspected = peer.gone = False
        return [(node, News.BACK)]
