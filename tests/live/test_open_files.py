"""A node with few open files, and more clients than it can accept."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pika
import pytest

from live.conftest import eventually
from tests.patience import PATIENCE_S
from warren import local
from warren.local import LocalCluster

pytestmark = pytest.mark.live
LIMIT = 160
REFUSING = "and further clients while the 80 files that connections may take are in use"


def limited(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
    """Start the cluster with this limit of open files."""
    start = local.spawn_node
    inside = ("prlimit", f"--nofile={soft}:{hard}")
    monkeypatch.setattr(local, "spawn_node", lambda node: start(node, inside))
    cluster.start()


def flood(port: int, count: int) -> list[socket.socket]:
    """Connections, of which the node may close some at once."""
    return [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(count)]


def logged_in(port: int) -> list[pika.BlockingConnection]:
    """Connections with a login, as many as the node takes."""
    made = []
    try:
        for _ in range(LIMIT):
            parameters = pika.ConnectionParameters("127.0.0.1", port)
            made.append(pika.BlockingConnection(parameters))
    except pika.exceptions.AMQPError:
        return made
    raise AssertionError("more connections than files")


def test_a_flood_of_connections_leaves_files_for_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next file of the log could not be opened, which ended the node."""
    settings = {"raft": {"wal_max_size_bytes": 1 << 20, "wal_recycle": False}}
    cluster = LocalCluster(nodes=1, directory=tmp_path, settings=settings)
    try:
        limited(cluster, monkeypatch, LIMIT, LIMIT)
        port = cluster.nodes[0].amqp_port
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
            sockets = flood(port, 2 * LIMIT)
            eventually(lambda: "connections before their login turned away" in cluster.log(0), "it")
            assert REFUSING not in cluster.log(0), "what has not logged in takes half of the files"
            known = logged_in(port)
            eventually(lambda: REFUSING in cluster.log(0), "the line")
            for _ in range(40):  # many files of the log
                channel.basic_publish("", "q", bytes(256 << 10))
            assert channel.queue_declare("q", passive=True).method.message_count == 40
        for sock in (*sockets, *known):
            sock.close()

        def served() -> bool:
            parameters = pika.ConnectionParameters("127.0.0.1", port)
            try:
                pika.BlockingConnection(parameters).close()
            except pika.exceptions.AMQPError:
                return False
            return True

        eventually(served, "clients are accepted again")
        eventually(lambda: "clients are accepted again: " in cluster.log(0), "that it says so")
        assert cluster.log(0).count(REFUSING) <= 3, "a line for a flood"
        assert cluster.is_running(0)
    finally:
        cluster.stop()


def test_a_node_raises_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LocalCluster(nodes=1, directory=tmp_path)
    try:
        limited(cluster, monkeypatch, 200, 700)
        assert resource.prlimit(cluster.pid(0), resource.RLIMIT_NOFILE) == (700, 700)
        eventually(lambda: "open files raised from 200 to 700" in cluster.log(0), "the line")
    finally:
        cluster.stop()
