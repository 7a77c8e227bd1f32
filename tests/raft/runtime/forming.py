"""Nodes that find or form their cluster when they start."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.raft.runtime.kit import Listing, Recorder, until
from warren.ports import ReservedPorts
from warren_raft.machine import GroupSpec
from warren_raft.runtime.bootstrap import BootstrapPlan
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop

ABC = ("a", "b", "c")


class Nodes:
    """Nodes as a broker starts them: each finds its cluster, then begins with group 0."""

    def __init__(self, root: Path, names: tuple[str, ...] = ABC) -> None:
        self.loop = Loop()
        self.root = root
        self.names = names
        self.reserved = ReservedPorts()
        self.ports = {name: self.reserved.take() for name in "abcde"}
        self.hosts: dict[str, Host] = {}
        self.found: dict[str, BootstrapPlan] = {}

    def start(self, name: str, peers: tuple[str, ...] | None = None, **settings: Any) -> Host:
        others = [other for other in (self.names if peers is None else peers) if other != name]
        values: dict[str, Any] = {
            "node": name,
            "cluster": "test",
            "secret": b"a secret of the tests",
            "listen": ("127.0.0.1", self.ports[name]),
            "peers": {other: ("127.0.0.1", self.ports[other]) for other in others},
            "data_dir": self.root / name,
            "reconnect_ms_max": 60,
            "suspect_after_ms": 500,
        }
        host = Host(HostConfig(**{**values, **settings}), self.loop, Recorder())
        host.start()
        self.hosts[name] = host
        self.found.pop(name, None)

        def begin(formation: BootstrapPlan) -> None:
            self.found[name] = formation
            spec = GroupSpec(0, formation.voters, joining=formation.joining)
            host.start_group(spec, Listing())

        host.formation(begin)
        return host

    def stop(self, *names: str) -> None:
        for name in names:
            self.hosts.pop(name).stop()

    def wipe(self, name: str) -> None:
        """Its disk is another one from now on."""
        if name in self.hosts:
            self.stop(name)
        shutil.rmtree(self.root / name)

    def form(self) -> None:
        """Start the three and wait until they serve."""
        for name in ABC:
            self.start(name)
        self.serves(*ABC)

    def until(self, condition: Any) -> None:
        until(self.loop, condition)

    def leader(self) -> Host | None:
        return next((host for host in self.hosts.values() if host.is_leader(0)), None)

    def serves(self, *names: str) -> None:
        """The cluster takes a command, and these nodes apply it, as voters."""
        asked: list[tuple[str, int, bytes]] = []  # leader, its term, command

        def applied() -> bool:
            leader = self.leader()
            if leader is None:
                return False
            place = (leader.node_id, leader.term(0))
            if not asked or asked[-1][:2] != place:  # with another leader it may be lost
                asked.append((*place, b"%d in term %d" % (len(leader.state(0)), place[1])))
                leader.propose(0, asked[-1][2])
            return all(
                name in self.found
                and self.hosts[name].state(0)[-1:] == [asked[-1][2]]
                and name in self.hosts[name].members(0).voters
                and self.hosts[name].cluster_id
                for name in names
            )

        self.until(applied)
