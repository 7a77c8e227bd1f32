"""A node that its cluster refuses says so to its clients, at once and in their protocol's form."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pika
import pytest
from pika.exceptions import AMQPConnectionError
from proton.utils import BlockingConnection, ConnectionClosed

from live.conftest import eventually
from live.http_client import SETTINGS, HttpClient
from live.test_ready import wait_for
from warren.local import LocalCluster
from warren_raft.runtime.net import codec
from warren_raft.runtime.net.handshake import HandshakeRefused

pytestmark = pytest.mark.live
REASON = (
    "node 'node-0' has version 4, node 'node-1' has version 3; run releases that have one in "
    "common: upgrade through each release between them"
)
KEPT_OUT = f"this node is kept out of its cluster: node-1: refused by the peer: {REASON}"


@contextlib.contextmanager
def refusing(port: int) -> Iterator[None]:
    """Be a node of another version: refuse every call."""
    refused = codec.frame(codec.REFUSED, msgspec.msgpack.encode(HandshakeRefused(REASON)))
    with socket.create_server(("127.0.0.1", port)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    caller, _ = server.accept()
                    with caller, contextlib.suppress(OSError):
                        caller.recv(1 << 16)
                        caller.sendall(refused)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_clients_of_a_node_that_its_peers_refuse_are_told_which_and_why(tmp_path: Path) -> None:
    cluster = LocalCluster(
        nodes=2,
        directory=tmp_path,
        settings={**SETTINGS, "limits": {"operation_timeout_ms": 600_000}},
    )
    with refusing(cluster.nodes[1].peers_port):
        try:
            cluster.spawn(0)
            listening = wait_for(cluster.nodes[0].data_dir / "listening.json")
            eventually(lambda: REASON in cluster.log(0), "that it is refused")
            address = listening["amqp"]
            with pytest.raises(AMQPConnectionError) as closed:
                pika.BlockingConnection(
                    pika.URLParameters(f"amqp://guest:guest@{address}/?connection_attempts=1")
                )
            assert f'(541) "INTERNAL_ERROR - {KEPT_OUT}"' in str(closed.value)
            with pytest.raises(ConnectionClosed, match="kept out of its cluster: node-1") as ended:
                BlockingConnection(
                    f"amqp://guest:guest@{address}", allowed_mechs="PLAIN", timeout=60
                )
            assert REASON in str(ended.value)
            (base,) = re.findall(r"HTTP API at (http://\S+)", cluster.log(0))
            answer = HttpClient(base)("GET", "/api/overview")
            assert (answer.status, answer.body["reason"]) == (503, KEPT_OUT)
            lines = [line for line in cluster.log(0).splitlines() if "warren.raft" in line]
            assert sum(REASON in line for line in lines) == 1, "one line, not one per call"
        finally:
            cluster.stop()
