"""Which peers are suspected to be dead: per node, for all groups together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from warren_raft.types import NodeId


class News(Enum):
    """What changed about a peer."""

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
    """Signs of life in, suspicions out.

    A connected peer is suspected when nothing was heard from it for `suspect_after_ms`; one whose
    connection broke, after `disconnect_grace_ms`, or at once when its port refuses: its process
    is gone, as far as its machine says (a firewall that refuses looks the same: no promise may rest
    on it). A process that was stopped itself (a long pause between two checks) begins again rather
    than suspecting every peer: what they sent meanwhile lies unread in its sockets.
    Times are milliseconds of one monotonic clock.
    Invariants: a suspected peer is connected only between being heard and the next check; one
    that is gone is suspected
    """

    def __init__(self, suspect_after_ms: int, disconnect_grace_ms: int, now_ms: int) -> None:
        self._suspect_after_ms = suspect_after_ms
        self._grace_ms = disconnect_grace_ms
        self._peers: dict[NodeId, _WatchedPeer] = {}
        self._checked_ms = now_ms

    def add(self, node: NodeId, now_ms: int) -> None:
        """A peer that was never connected has `suspect_after_ms` to appear."""
        if node not in self._peers:
            self._peers[node] = _WatchedPeer(False, now_ms, now_ms + self._suspect_after_ms)

    def remove(self, node: NodeId) -> None:
        """Watch it no longer; unknown ones are ignored."""
        self._peers.pop(node, None)

    def knows(self, node: NodeId) -> bool:
        """It is watched."""
        return node in self._peers

    def suspected(self, node: NodeId) -> bool:
        """Unknown nodes are not."""
        peer = self._peers.get(node)
        return peer is not None and peer.suspected

    def gone(self, node: NodeId) -> bool:
        """Its port has refused a connection since it was heard last."""
        peer = self._peers.get(node)
        return peer is not None and peer.gone

    def connected(self, node: NodeId, now_ms: int) -> list[tuple[NodeId, News]]:
        """A connection was established."""
        peer = self._peers[node]
        peer.connected = True
        peer.heard_ms = now_ms
        return self._back(node, peer)

    def disconnected(self, node: NodeId, now_ms: int) -> int | None:
        """It broke; returns how long until `check` should be called for it, None: no need."""
        peer = self._peers[node]
        peer.connected = False
        peer.suspect_at_ms = now_ms + self._grace_ms
        return None if peer.suspected else self._grace_ms

    def refused(self, node: NodeId) -> list[tuple[NodeId, News]]:
        """The peer's machine says that nothing listens there."""
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
        """Something arrived over its connection at that time."""
        self._peers[node].heard_ms = now_ms

    def check(self, now_ms: int) -> list[tuple[NodeId, News]]:
        """Peers that are suspected, or back, as of now; to be called at least every heartbeat."""
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
