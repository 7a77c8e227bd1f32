"""Operators without a plan, over nodes that come and go: in the end all is as it is to be."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from broker.cluster.membership.clusters import QUORUM, declaration, gone, settled
from broker.cluster.universe import Universe
from warren_wire.admin import members as values

SEEDS = int(os.environ.get("WARREN_MEMBERSHIP_SEEDS", "12"))
MOVES = 60
NODES = "abcdef"


class Operators:
    """Orders and misfortunes drawn from one seed.

    At most a minority is down at a time, and a disk is lost, or a node forgotten, only where the
    cluster says that nothing depends on it: what is lost with a majority of disks is lost.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.universe = Universe("abc")
        self.universe.until(self.universe.ready, "formed")
        for name in "de":
            self.universe.start(name)
            self.universe.until(self.universe.ready, f"{name} has joined")
        self.queues = 0
        self.forgotten: set[str] = set()

    def ask(self, call: Any, allowed: Any = None) -> Any:
        """Ask any node that knows the definitions; None: no node does."""
        able = [
            name
            for name, one in sorted(self.universe.running.items())
            if one.broker.definitions.ready
        ]
        return self.universe.call(self.rng.choice(able), call) if able else None

    def members(self, call: Any) -> Any:
        """A question about members."""
        return self.ask(lambda broker, done: call(broker.membership, done))

    def safe(self, name: str) -> bool:
        """Nothing depends on the node, down or not."""
        found = self.members(lambda m, done: m.nodes.quorum_critical(name, done))
        return isinstance(found, values.QuorumCritical) and found.safe

    def move(self) -> None:
        """One thing."""
        self.rng.choice(
            (
                self.declare,
                self.add,
                self.add,
                self.remove,
                self.remove,
                self.stop,
                self.back,
                self.back,
                self.lose,
                self.forget,
                self.drain,
                self.transfer,
                self.wait,
            )
        )()

    def wait(self) -> None:
        for _ in range(self.rng.randrange(40)):
            self.universe.step()

    def node(self) -> str:
        return self.rng.choice(NODES)

    def queue(self) -> str:
        return f"q{self.rng.randrange(max(1, self.queues))}"

    def declare(self) -> None:
        name, self.queues = f"q{self.queues}", self.queues + 1
        size = self.rng.choice((1, 2, 3, 3))
        self.ask(declaration(name, {**QUORUM, "x-quorum-initial-group-size": size}))

    def add(self) -> None:
        queue, node = self.queue(), self.node()
        self.members(lambda m, done: m.add_member("/", queue, node, done))

    def remove(self) -> None:
        queue, node = self.queue(), self.node()
        self.members(lambda m, done: m.delete_member("/", queue, node, done))

    def transfer(self) -> None:
        queue, node = self.queue(), self.node()
        self.members(lambda m, done: m.transfer_leadership("/", queue, node, done))

    def drain(self) -> None:
        node, drained = self.node(), self.rng.random() < 0.5
        self.members(
            lambda m, done: m.nodes.drain(node, done) if drained else m.nodes.revive(node, done)
        )

    def stop(self) -> None:
        name = self.node()
        if name in self.universe.running and self.safe(name):
            self.universe.kill(name)

    def back(self) -> None:
        away = sorted(set(NODES) - self.universe.running.keys() - self.forgotten)
        if away:
            self.universe.start(away[0])

    def lose(self) -> None:
        name = self.node()
        if name not in self.universe.running and name in self.universe.disks and self.safe(name):
            self.universe.wipe(name)

    def forget(self) -> None:
        name = self.node()
        if name in self.universe.running or not self.safe(name):
            return
        if isinstance(self.members(lambda m, done: m.nodes.forget(name, done)), values.Forgetting):
            self.forgotten.add(name)

    def end(self) -> None:
        """Bring every node back; then all is as it is to be."""
        universe = self.universe
        while set(NODES) - universe.running.keys() - self.forgotten:
            self.back()
        for name in sorted(self.forgotten):
            universe.until(lambda n=name: gone(universe, n), f"{name} is gone")
        universe.until(universe.ready, "all are back")
        state = universe.running[min(universe.running)].broker.definitions.state
        for queue in state.queues():
            if not universe.logs[queue.group].term:
                # Declared on nodes that were down, most of which came back with other disks: it
                # never began. Nothing of it is lost; it is deleted by force.
                continue
            universe.until(
                lambda q=queue: settled(universe, q.nodes, q.name), f"{queue.name} is settled"
            )
        for name in sorted(self.forgotten):
            universe.wipe(name)
            universe.start(name)
        universe.until(universe.ready, "the node that was forgotten comes back as a new node")
        universe.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_operators_without_a_plan(seed: int) -> None:
    operators = Operators(seed)
    for _ in range(MOVES):
        operators.move()
    operators.end()
