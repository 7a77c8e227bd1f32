"""The clusters that are measured, behind one interface."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol

from bench.generator import PLACE, SHARED, Missing
from warren.local import LocalCluster

NODES = 3


class Peer(Protocol):
    """Three nodes on loopback; a context manager that starts them afresh, stops them at the end."""

    name: str

    def __enter__(self) -> Peer:
        """Start with empty data."""
        ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Stop."""
        ...

    def targets(self) -> str:
        """host:port of every node, comma-separated."""
        ...

    def pids(self) -> list[int]:
        """Every node's process."""
        ...

    def leader(self, queue: str) -> int:
        """The number of the node that leads that queue, from 0."""
        ...


class Warren:
    """Ours."""

    def __init__(self) -> None:
        self.name = "Warren"
        self.directory = PLACE / "cluster"
        self.cluster: LocalCluster | None = None

    def _running(self) -> LocalCluster:
        assert self.cluster is not None
        return self.cluster

    def __enter__(self) -> Warren:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.cluster = LocalCluster(nodes=NODES, directory=self.directory)
        self.cluster.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._running().stop()

    def targets(self) -> str:
        return self._running().hosts

    def pids(self) -> list[int]:
        return [self._running().pid(i) for i in range(NODES)]

    def leader(self, queue: str) -> int:
        return self._running().leader_of(queue)


class RabbitMQ:
    """RabbitMQ from the system's package, or from RMQ_ROOT."""

    def __init__(self) -> None:
        self.script = SHARED / "rabbitmq_cluster.sh"
        if not self.script.is_file():
            raise Missing(f"RabbitMQ is started by {self.script}, which is not there")
        amqp, distribution = free_ports(NODES), free_ports(NODES)
        self.environment = {
            "RMQ_DATA": "/var/tmp/warren-bench-rmq", "RMQ_PORT0": str(amqp),
            "RMQ_DIST0": str(distribution), "RMQ_EPMD": str(free_ports(1)), **os.environ,
        }
        self.name = f"RabbitMQ {self._call('version')}"

    def _call(self, *arguments: str) -> str:
        done = subprocess.run(
            ["bash", str(self.script), *arguments], capture_output=True, text=True, check=False,
            env=self.environment)
        if done.returncode != 0:
            text = (done.stderr or done.stdout).strip()
            raise Missing(f"rabbitmq_cluster.sh {' '.join(arguments)}: {text[-300:]}; "
                          "apt-get install rabbitmq-server, or set RMQ_ROOT")
        return done.stdout.strip()

    def __enter__(self) -> RabbitMQ:
        self._call("wipe")
        self._call("start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._call("wipe")

    def targets(self) -> str:
        return self._call("ports")

    def pids(self) -> list[int]:
        return [int(pid) for pid in self._call("pids").split(",") if pid]

    def leader(self, queue: str) -> int:
        table = self._call("ctl", "1", "-q", "list_queues", "name", "leader")
        for line in table.splitlines():
            name, _, node = line.partition("\t")
            if name == queue:
                return int(node.split("@")[0].removeprefix("r")) - 1
        raise RuntimeError(f"rabbitmqctl shows no queue {queue!r}")


def free_ports(count: int) -> int:
    """The first of that many free ports in a row, on loopback, below those given to clients."""
    for first in random.sample(range(12_000, 30_000, 16), 500):
        try:
            with ExitStack() as held:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        return first
    raise Missing(f"{count} free ports in a row between 12000 and 30000 on loopback")


def peers(only: str | None) -> tuple[list[Peer], list[str]]:
    """What can be measured here, and why something cannot."""
    found: list[Peer] = [] if only == "rabbitmq" else [Warren()]
    why: list[str] = []
    if only != "warren":
        try:
            found.append(RabbitMQ())
        except Missing as missing:
            why.append(str(missing))
    return found, why


