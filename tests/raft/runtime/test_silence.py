"""A connection that carries nothing any more, although it is not closed."""

from __future__ import annotations

import select
import socket
import threading
from pathlib import Path

import pytest

from tests.raft.runtime.kit import Cluster

SETTINGS = {"heartbeat_ms": 50, "suspect_after_ms": 1_500, "handshake_ms_max": 10_000}


class Wire(threading.Thread):
    """Passes bytes between a caller and `port`; connections there at `cut` stay, and carry nothing.

    to, back  which directions of theirs are cut
    """

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.pairs: dict[socket.socket, socket.socket] = {}
        self.mute: set[socket.socket] = set()
        self.calls: list[socket.socket] = []
        self.ended = False
        self.lock = threading.Lock()
        self.start()

    def cut(self, to: bool, back: bool) -> None:
        with self.lock:
            for caller in self.calls:
                if to:
                    self.mute.add(caller)
                if back and caller in self.pairs:
                    self.mute.add(self.pairs[caller])

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


@pytest.mark.parametrize("to, back", [(True, True), (True, False), (False, True)])
def test_a_silent_connection_is_replaced(tmp_path: Path, to: bool, back: bool) -> None:
    """The cut is over at once: only the old connection does not know, as after lost packets."""
    cluster = Cluster(tmp_path, ("a", "b"), **SETTINGS)
    wire = Wire(cluster.ports["b"])
    a, b = cluster.hosts["a"], cluster.hosts["b"]
    cluster.until(lambda: a.connected("b") and b.connected("a"))
    a.add_peer("b", ("127.0.0.1", wire.port))  # learnt now, used for the next connection
    b._transport._peers["a"].connection.stream.abort()
    cluster.until(lambda: wire.calls and a.connected("b") and b.connected("a"))
    cluster.loop.run_turn(20)
    deaf = [(host, peer) for host, peer, is_deaf in ((b, "a", to), (a, "b", back)) if is_deaf]

    def suspected() -> bool:
        # On a busy machine a node may be suspected, and connect again, at the moment of the cut.
        wire.cut(to, back)
        return all(host.suspected(peer) for host, peer in deaf)

    cluster.until(suspected)
    cluster.until(lambda: not a.suspected("b") and not b.suspected("a"))
    cluster.until(lambda: a.connected("b") and b.connected("a"))
    assert len(wire.calls) >= 2
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
