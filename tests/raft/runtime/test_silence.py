"""A connection that carries nothing any more, although it is not closed."""

from __future__ import annotations

import select
import socket
import threading
from pathlib import Path

import pytest

from tests.raft.runtime.kit import Cluster
from warren_raft.runtime.host import Host
from warren_raft.runtime.net.connection import PeerConnection

SETTINGS = {"heartbeat_ms": 50, "suspect_after_ms": 1_500, "handshake_ms_max": 10_000}


class Wire(threading.Thread):
    """Passes bytes between a caller and `port`; connections there at `cut` stay, and carry nothing.

    to, back  which directions of theirs are cut
    hold      a new connection carries nothing
    """

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.pairs: dict[socket.socket, socket.socket] = {}
        self.mute: set[socket.socket] = set()
        self.held: set[socket.socket] = set()
        self.calls: list[socket.socket] = []
        self.ended = self.hold = False
        self.lock = threading.Lock()
        self.start()

    def cut(self, to: bool, back: bool) -> None:
        with self.lock:
            for caller in self.calls:
                if to:
                    self.mute.add(caller)
                if back and caller in self.pairs:
                    self.mute.add(self.pairs[caller])

    def speak(self) -> None:
        """End the cuts of the connections that are not on hold."""
        with self.lock:
            self.mute &= self.held

    def run(self) -> None:
        while not self.ended:
            for sock in select.select([self.listener, *self.pairs], [], [], 0.05)[0]:
                with self.lock:
                    self._serve(sock)

    def _serve(self, sock: socket.socket) -> None:
        if sock is self.listener:
            caller, _ = sock.accept()
            called = socket.create_connection(("127.0.0.1", self.target))
            self.pairs[caller], self.pairs[called] = called, caller
            self.calls.append(caller)
            if self.hold:
                self.held |= {caller, called}
                self.mute |= {caller, called}
            return
        other = self.pairs.get(sock)
        if other is None:
            return
        try:
            data = sock.recv(65536)
            if data and sock not in self.mute:
                other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for each in (sock, other):
                self.pairs.pop(each, None)
                each.close()

    def close(self) -> None:
        self.ended = True
        self.join()
        for sock in (self.listener, *self.pairs):
            sock.close()


def connections(cluster: Cluster) -> list[PeerConnection]:
    """Return both ends of the connection, or fewer while there is none."""
    peers = (cluster.hosts[one]._transport._peers[other] for one, other in ("ab", "ba"))
    return [peer.connection for peer in peers if peer.connection is not None]


def over(wire: Wire, cluster: Cluster) -> bool:
    """Return whether the connection is a call of a's; one of b's, if a was late, is ended."""
    ends = connections(cluster)
    if len(ends) < 2:
        return False
    a_called = ends[0].stream.sock.getpeername()[1] == wire.port
    if not a_called:
        ends[0].stream.abort()
    return a_called


@pytest.mark.parametrize("to, back", [(True, True), (True, False), (False, True)])
def test_a_silent_connection_is_replaced(tmp_path: Path, to: bool, back: bool) -> None:
    """The cut is over at once: only the old connection does not know, as after lost packets."""
    cluster = Cluster(tmp_path, ("a", "b"), **SETTINGS)
    wire = Wire(cluster.ports["b"])
    a, b = cluster.hosts["a"], cluster.hosts["b"]
    cluster.until(lambda: a.connected("b") and b.connected("a"))
    a.add_peer("b", ("127.0.0.1", wire.port))  # learnt now, used for the next connection
    cluster.until(lambda: over(wire, cluster))
    cluster.loop.run_turn(20)
    deaf = {(host, peer) for host, peer, is_deaf in ((b, "a", to), (a, "b", back)) if is_deaf}
    noticed: set[tuple[Host, str]] = set()
    cut: list[PeerConnection] = []

    def suspected() -> bool:
        # On a busy machine a node may be suspected, and connect again, at the moment of the cut.
        noticed.update(each for each in deaf if each[0].suspected(each[1]))
        if noticed != deaf and over(wire, cluster):
            cut.extend(end for end in connections(cluster) if end not in cut)
            wire.cut(to, back)
        return noticed == deaf

    cluster.until(suspected)
    cluster.until(lambda: not a.suspected("b") and not b.suspected("a"))
    assert cut
    cluster.until(lambda: len([end for end in connections(cluster) if end not in cut]) == 2)
    assert a.send("b", [b"heard"])
    cluster.until(lambda: ("a", b"heard") in cluster.messages["b"])
    assert b.send("a", [b"and answered"])
    cluster.until(lambda: ("b", b"and answered") in cluster.messages["a"])
    cluster.close()
    wire.close()


@pytest.mark.parametrize("gone", ["a", "b"])
def test_whichever_side_calls_the_end_of_a_process_is_noticed_at_once(
    tmp_path: Path, gone: str
) -> None:
    """Its machine says that the port is closed. The side that waits to be called must ask, too:
    it would wait out the grace of a broken connection, and its groups be without a leader."""
    long = 600_000  # far beyond what `until` waits
    late = {"disconnect_grace_ms": long, "suspect_after_ms": long, "reconnect_ms_max": long}
    cluster = Cluster(tmp_path, ("a", "b"), **late)
    other = "b" if gone == "a" else "a"
    ends = ((gone, other), (other, gone))
    cluster.until(lambda: all(cluster.hosts[one].connected(peer) for one, peer in ends))
    cluster.kill(gone)
    cluster.until(lambda: cluster.hosts[other].suspected(gone))
    cluster.close()
