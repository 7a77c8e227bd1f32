"""The clusters that are measured, behind one interface."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Protocol

from bench import rabbitmq
from bench.generator import PLACE, Missing
from bench.processes import disk_bytes
from warren.connection import Connection
from warren.local import LocalCluster
from warren_wire.node_files import READY_FILE

NODES = 3


class Peer(Protocol):
    """Three nodes on loopback; a context manager that starts them empty and stops them."""

    name: str
    tls: bool

    def __enter__(self) -> Peer:
        """Start with empty data."""
        ...

    def __exit__(self, *failure: object) -> None:
        """Stop."""
        ...

    def targets(self) -> str:
        """Return host:port of every node, comma-separated."""
        ...

    def pids(self) -> list[int]:
        """Return the pid of every node."""
        ...

    def leader(self, queue: str) -> int:
        """Return the number, from 0, of the node that leads that queue."""
        ...

    def data_bytes(self) -> list[int]:
        """Return the bytes that each node's data take on disk."""
        ...

    def stop(self) -> None:
        """Stop every node and wait for that; the data stay."""
        ...

    def stop_node(self, i: int) -> None:
        """Stop one node, as `stop` does."""
        ...

    def spawn(self, which: range) -> None:
        """Start these nodes' processes without waiting."""
        ...


class Warren:
    """A cluster of Warren."""

    tls = False

    def __init__(self, nodes: int = NODES) -> None:
        self.name = "Warren"
        self._count = nodes
        self.directory: Path = PLACE / "cluster"
        self.cluster: LocalCluster | None = None

    def _running(self) -> LocalCluster:
        assert self.cluster is not None
        return self.cluster

    def __enter__(self) -> Warren:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.cluster = LocalCluster(
            nodes=self._count, directory=self.directory, settings=self._settings()
        )
        self.cluster.start()
        return self

    def _settings(self) -> dict[str, Any] | None:
        return None

    def __exit__(self, *failure: object) -> None:
        self._running().stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def targets(self) -> str:
        return self._running().hosts

    def pids(self) -> list[int]:
        return [self._running().pid(i) for i in range(self._count)]

    def connect(self) -> Connection:
        """Open a connection to the cluster."""
        return self._running().connect()

    def leader(self, queue: str) -> int:
        return self._running().leader_of(queue)

    def data_bytes(self) -> list[int]:
        return [disk_bytes(node.data_dir) for node in self._running().nodes]

    def stop(self) -> None:
        self._running().stop()

    def stop_node(self, i: int) -> None:
        self._running().stop_node(i)

    def spawn(self, which: range) -> None:
        for i in which:
            self._running().spawn(i)


class WarrenTls(Warren):
    """The same, with TLS between clients and nodes."""

    tls = True

    def __init__(self) -> None:
        super().__init__()
        self.name = "Warren, TLS"
        self._place = PLACE / "certificates"

    def _settings(self) -> dict[str, Any]:
        self._place.mkdir(parents=True, exist_ok=True)
        cert, key = self._place / "node.pem", self._place / "node.key"
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        command = ["openssl", "req", "-x509", *curve, "-subj", "/CN=localhost", "-days", "30"]
        command += ["-keyout", str(key), "-out", str(cert)]
        subprocess.run(command, check=True, capture_output=True)
        return {
            "listen": {"amqps": "127.0.0.1:0"},
            "tls": {"certfile": str(cert), "keyfile": str(key)},
        }

    def targets(self) -> str:
        ready = [node.data_dir / READY_FILE for node in self._running().nodes]
        return ",".join(json.loads(path.read_text())["amqps"] for path in ready)


class WarrenSet(Warren):
    """The same with other settings."""

    def __init__(self, settings: str) -> None:
        """settings: lines of a configuration file, such as `raft.wal_recycle = false`."""
        super().__init__()
        self.name = f"Warren, {settings}"
        self._given = tomllib.loads(settings)

    def _settings(self) -> dict[str, Any]:
        return self._given


def peers(only: str | None, tls: bool = False, other: str = "") -> tuple[list[Peer], list[str]]:
    """Return the clusters that can be measured, and notes on those that cannot."""
    found: list[Peer] = [] if only == "rabbitmq" else [Warren()]
    if tls and found:
        found.append(WarrenTls())
    if other and found:
        found.append(WarrenSet(other))
    notes: list[str] = []
    if only != "warren":
        try:
            found.append(rabbitmq.RabbitMQ(rabbitmq.find(notes)))
        except Missing as missing:
            notes.append(f"RabbitMQ is not measured: {missing}")
    return found, notes
