"""What faults may touch."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from nemesis.history import Recorder
from nemesis.nodes import Nodes

SUSPECT_AFTER_S = 2.0
DOWN_S = (0.0, 6.0)


class Scene:
    """What a fault may touch."""

    def __init__(
        self,
        nodes: Nodes,
        record: Recorder,
        queues: list[str],
        say: Callable[[str], None],
        problem: Callable[[str], None],
    ) -> None:
        self.nodes = nodes
        self.network = nodes.network
        self.record = record
        self.queues = queues
        self.say = say
        self.problem = problem
        self.stop = threading.Event()
        self.chance = random.Random(0)

    def wait(self, seconds: tuple[float, float] | float) -> None:
        """That long, or until the run stops."""
        length = seconds if isinstance(seconds, float) else self.chance.uniform(*seconds)
        self.stop.wait(length)

    def any(self) -> int:
        """One of the nodes."""
        return self.chance.randrange(len(self.nodes))

    def leader(self) -> int:
        """Return the leader of one of the queues; any node when that cannot be found out."""
        queue, other = self.chance.choice(self.queues), self.any()
        leader = self.nodes.leader_of(queue)
        return other if leader is None else leader

    def other(self, than: int) -> int:
        """Any node but that."""
        return (than + self.chance.randrange(1, len(self.nodes))) % len(self.nodes)

    def hit(self, *nodes: int) -> None:
        """From now on their own clients are cut off, too."""
        self.record("fault", kind="", phase="hit", nodes=nodes)

    def isolate(self, node: int) -> None:
        """No peer hears it, it hears none."""
        for peer in range(len(self.nodes)):
            if peer != node:
                self.network.cut(node, peer)
                self.network.cut(peer, node)

    def heal(self) -> None:
        """Every link, disk and process as it should be."""
        count = len(self.nodes)
        for sender in range(count):
            self.network.fast(sender)
            for receiver in range(count):
                self.network.heal(sender, receiver)
            self.nodes.resume(sender)
        self.nodes.mend_disks()
        for node in sorted(self.nodes.down):
            self.nodes.start(node)
