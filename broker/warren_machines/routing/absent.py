"""The suspected nodes, as routing sees them."""

from __future__ import annotations

from warren_machines.metadata.records import QueueRecord


class AbsentNodes:
    """The nodes that this one suspects.

    nodes    their names
    version  rises with every change
    """

    __slots__ = ("nodes", "version")

    def __init__(self) -> None:
        self.nodes: dict[str, None] = {}
        self.version = 0

    def add(self, node: str) -> None:
        """Add a node that is now suspected."""
        self.nodes[node] = None
        self.version += 1

    def remove(self, node: str) -> None:
        """Remove a node that is reachable again, or has left the cluster."""
        if node in self.nodes:
            del self.nodes[node]
            self.version += 1

    def holds(self, queue: QueueRecord) -> bool:
        """Return whether the queue exists on such a node, and nowhere else."""
        return bool(self.nodes) and queue.home in self.nodes

    def hides(self, queue: QueueRecord) -> bool:
        """Return whether routing skips the queue, which ends when its node stays away."""
        return self.holds(queue) and queue.passing
