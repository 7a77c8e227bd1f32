"""What the exchange types that choose a destination ask about destinations and chance."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from warren_machines.metadata.records import (
    Binding,
    BindingChange,
    BindingKey,
    Exchange,
    QueueRecord,
)
from warren_machines.routing.matcher import Destination
from warren_machines.steps import Steps, Work, pieces

Draw: TypeAlias = Callable[[int], int]
"""From a bound to a number 0 <= n < bound, each as likely; the generator is the node's."""


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


class VhostDefinitions(Protocol):
    """A vhost as routing sees it (`metadata.state.Scope`).

    version          rises with every change
    source_versions  exchange to the version of its last change; absent: none so far
    journal          the latest changes of bindings: (version, key, binding, whether it was added),
                     ascending; older ones are dropped
    """

    exchanges: dict[str, Exchange]
    queues: dict[str, QueueRecord]
    bindings: dict[str, dict[BindingKey, Binding]]
    version: int
    source_versions: dict[str, int]
    journal: deque[BindingChange]

    def alternate(self, exchange: Exchange) -> str | None:
        """Return the exchange that gets what this one cannot route."""


class RoutingNode:
    """The node that routes.

    name    of the node
    absent  the nodes that it suspects
    draw    its source of chance
    """

    __slots__ = ("absent", "draw", "name")

    def __init__(self, name: str, absent: AbsentNodes, draw: Draw) -> None:
        self.name = name
        self.absent = absent
        self.draw = draw


class Surroundings:
    """A vhost's destinations as one node sees them."""

    __slots__ = ("_definitions", "_node", "draw")

    def __init__(self, definitions: VhostDefinitions, node: RoutingNode) -> None:
        self._definitions = definitions
        self._node = node
        self.draw = node.draw

    @property
    def version(self) -> tuple[int, int]:
        """A value that changes whenever an answer of `present` or `local` may change."""
        return (self._definitions.version, self._node.absent.version)

    def present(self, destination: Destination) -> bool:
        """Return whether messages may be routed there: not to a queue that an absent node hides."""
        to_queue, name = destination
        if not to_queue:
            return True
        queue = self._definitions.queues.get(name)
        return queue is not None and not self._node.absent.hides(queue)

    def local(self, destination: Destination) -> bool:
        """Return whether it is a classic queue with a member on this node."""
        to_queue, name = destination
        queue = self._definitions.queues.get(name) if to_queue else None
        if queue is None or queue.config.kind != "classic":
            return False
        return self._node.name in queue.nodes


class Candidates:
    """The destinations of an exchange that chooses one of them, in an order equal on every node.

    A destination appears once per binding, as in RabbitMQ: with two bindings it is chosen twice as
    often.

    Invariant: `_known` is what `_wanted` left of the destinations at `_version`; None: out of date.
    """

    __slots__ = ("_bound", "_changes", "_known", "_surroundings", "_version", "_wanted")

    def __init__(
        self, surroundings: Surroundings, wanted: Callable[[Destination], bool] | None = None
    ) -> None:
        """wanted: which destinations take part; None: those that are present."""
        self._surroundings = surroundings
        self._wanted = surroundings.present if wanted is None else wanted
        self._bound: dict[BindingKey, None] = {}
        self._changes = 0
        self._known: tuple[Destination, ...] | None = None
        self._version = (-1, -1)

    def add(self, key: BindingKey) -> None:
        """Add a binding's destination."""
        self._bound[key] = None
        self._changed()

    def remove(self, key: BindingKey) -> None:
        """Remove a binding's destination."""
        del self._bound[key]
        self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self._known = None

    def current(self, steps: Steps) -> Work[tuple[Destination, ...]]:
        """Find those that can be chosen now, sorted."""
        version, changes = self._surroundings.version, self._changes
        if self._known is not None and self._version == version:
            return self._known
        # in their order, so that to sort them again takes little more than to read them
        self._bound = dict.fromkeys(sorted(self._bound))
        there: list[Destination] = []
        for piece in pieces(tuple(self._bound)):
            there += [key[:2] for key in piece if self._wanted(key[:2])]
            if steps.take(len(piece)):
                yield
        found = tuple(there)
        if self._changes == changes:
            self._known, self._version = found, version
        return found


class ChoosingMatcher:
    """The base of the matchers that choose one destination: binding keys have no meaning."""

    __slots__ = ("_candidates",)

    def __init__(
        self, surroundings: Surroundings, wanted: Callable[[Destination], bool] | None = None
    ) -> None:
        """wanted: as for `Candidates`."""
        self._candidates = Candidates(surroundings, wanted)

    def add(self, key: BindingKey, binding: Binding) -> None:
        """Add a binding's destination."""
        self._candidates.add(key)

    def remove(self, key: BindingKey, binding: Binding) -> None:
        """Remove a binding's destination."""
        self._candidates.remove(key)
