"""A machine that only adds up, and hosts for it on one loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S
from warren_raft.machine import Applied, GroupSpec, Meta
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.observer import Observer

NODES = ("a", "b", "c")
UNDISTURBED_MS = 60_000
"""The default of `suspect_after_ms` here. The usual second is less than a sync takes on a machine
that is busy enough, and then the leadership moves away from the disk that hangs. A test about
silence, or about hanging disks, sets its own; a connection that ends is seen at once anyway."""


class Listing:
    """The state is the list of commands."""

    def init(self) -> list[bytes]:
        return []

    def apply(self, meta: Meta, command: bytes, state: list[bytes]) -> Applied:
        state.append(command)
        return Applied(reply=len(state), effects=(command[:8],))

    def leader_effects(self, state: list[bytes]) -> tuple[Any, ...]:
        return (len(state),)

    def snapshot(self, state: list[bytes]) -> bytes:
        return b"\0".join(state)

    def form(self, state: object) -> int:
        return 1

    def restore(self, data: bytes) -> list[bytes]:
        return data.split(b"\0")

    def live_indexes(self, state: list[bytes]) -> tuple[int, ...]:
        return ()


class Recorder(Observer):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.leading: dict[int, bool] = {}

    def applied(self, group, meta, data, applied, leading) -> None:  # type: ignore[no-untyped-def]
        self.events.append(("applied", group, meta.index, data, leading))

    def leader_changed(self, group, leader, term, leading) -> None:  # type: ignore[no-untyped-def]
        self.events.append(("leader", group, leader, leading))

    def members_changed(self, group, membership) -> None:  # type: ignore[no-untyped-def]
        self.events.append(("members", group, membership))

    def became_leader(self, group, effects) -> None:  # type: ignore[no-untyped-def]
        self.events.append(("became", group, effects))

    def peer_up(self, node: str, boot_id: int) -> None:
        self.events.append(("up", node))

    def peer_down(self, node: str) -> None:
        self.events.append(("down", node))

    def peer_suspected(self, node: str) -> None:
        self.events.append(("suspected", node))

    def peer_back(self, node: str) -> None:
        self.events.append(("back", node))

    def peer_restarted(self, node: str, old_boot_id: int, new_boot_id: int) -> None:
        self.events.append(("restarted", node))

    def kinds(self) -> list[str]:
        return [event[0] for event in self.events]


def until(loop: Loop, condition: Callable[[], Any], seconds: float = PATIENCE_S) -> None:
    """Turn until the condition holds; fails at the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        loop.run_turn(20)


class Cluster:
    """Hosts on one loop, each with its own directory and port."""

    def __init__(self, root: Path, nodes: tuple[str, ...] = NODES, **settings: Any) -> None:
        self.loop = Loop()
        self.root = root
        self.nodes = nodes
        self.settings = {"suspect_after_ms": UNDISTURBED_MS, **settings}
        self.ports: dict[str, int] = {}
        self.hosts: dict[str, Host] = {}
        self.observers: dict[str, Recorder] = {}
        self.messages: dict[str, list[tuple[str, bytes]]] = {node: [] for node in nodes}
        for node in nodes:
            self.start(node)
        for node in nodes:
            for other in nodes:
                if other != node:
                    self.hosts[node].add_peer(other, ("127.0.0.1", self.ports[other]))

    def config(self, node: str) -> HostConfig:
        return replace(
            HostConfig(
                node=node,
                cluster="test",
                secret=b"a secret of the tests",
                listen=("127.0.0.1", self.ports.get(node, 0)),
                peers={
                    other: ("127.0.0.1", self.ports[other])
                    for other in self.nodes
                    if other != node and self.ports.keys() >= set(self.nodes)
                },
                data_dir=self.root / node,
            ),
            **self.settings,
        )

    def start(self, node: str) -> Host:
        observer = self.observers[node] = Recorder()
        inbox = self.messages.setdefault(node, [])
        host = Host(
            self.config(node),
            self.loop,
            observer,
            lambda sender, body: inbox.append((sender, bytes(body))),
        )
        host.start()
        self.ports[node] = host.port
        self.hosts[node] = host
        return host

    def stop(self, node: str) -> None:
        self.hosts.pop(node).stop()

    def kill(self, node: str) -> None:
        """As SIGKILL: what was not handed to the operating system is lost."""
        host = self.hosts.pop(node)
        host._logs.wal._failed = True  # nothing that only collects is written any more
        host.stop()

    def start_group(self, group: int, preferred: str | None = None) -> None:
        for host in self.hosts.values():
            host.start_group(GroupSpec(group, self.nodes, preferred=preferred), Listing())

    def leader(self, group: int) -> Host | None:
        for host in self.hosts.values():
            if host.is_leader(group):
                return host
        return None

    def await_leader(self, group: int) -> Host:
        self.until(lambda: self.leader(group) is not None)
        leader = self.leader(group)
        assert leader is not None
        return leader

    def until(self, condition: Callable[[], Any], seconds: float = PATIENCE_S) -> None:
        until(self.loop, condition, seconds)

    def close(self) -> None:
        for host in self.hosts.values():
            host.stop()
        self.loop.close()
