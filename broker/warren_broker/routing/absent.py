"""Nodes that are not heard of, as routing sees them."""

from __future__ import annotations

from warren_broker.metadata.records import QueueRecord


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
        """It is suspected."""
        self.nodes[node] = None
        self.version += 1

    def remove(self, node: str) -> None:
        """It is heard of again, or has left the cluster."""
        if node in self.nodes:
            del self.nodes[node]
            self.version += 1

    def holds(self, queue: QueueRecord) -> bool:
        """Whether the queue lives on such a node, and nowhere else."""
        return bool(self.nodes) and queue.home in self.nodes

    def hides(self, queue: QueueRecord) -> bool:
        """Whether the queue takes no part in routing: it is there for as long as its node is."""
        return self.holds(queue) and queue.passing
