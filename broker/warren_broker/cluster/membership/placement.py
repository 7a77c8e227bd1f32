"""Placement: the choice of nodes for a new queue or member, and of its first leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.config import parse_address
from warren_wire.arguments import GROUP_SIZE_MAX

BALANCED_QUEUES_MAX = 1_000
"""From this number of queues on, leaders are drawn at random instead of counted, as in RabbitMQ."""


class Placement:
    """Chooses among nodes; a node that is in maintenance or unreachable is the last choice.

    rng  `random`, or a test's substitute
    """

    def __init__(self, cluster: Cluster, definitions: Definitions, rng: Any) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._rng = rng

    def fit(self, node: str) -> bool:
        """Return whether something new may be placed there now.

        The node is reachable, not in maintenance, not leaving, and its disk answers quickly.
        """
        known = self._definitions.state.nodes.get(node)
        if known is not None and (known.drained or known.forgetting):
            return False
        return self.running(node) and not self._cluster.host.disk_slow(node)

    def running(self, node: str) -> bool:
        """Return whether the node is reachable."""
        host = self._cluster.host
        return node == host.node_id or (host.connected(node) and not host.suspected(node))

    def machine(self, node: str) -> str:
        """Return the machine of a node, which is the host of its address; unknown: the node."""
        known = self._definitions.state.nodes.get(node)
        return node if known is None else parse_address(known.address)[0]

    def spread(self, nodes: Sequence[str], beside: Iterable[str]) -> list[str]:
        """Order nodes so that members on the first of them share a machine as little as can be.

        beside  nodes that have a member already; among equal ones the order given is kept
        """
        members = Counter(map(self.machine, beside))
        sharing: dict[str, int] = {}
        for node in nodes:
            machine = self.machine(node)
            sharing[node] = members[machine]
            members[machine] += 1
        return sorted(nodes, key=sharing.__getitem__)

    def members(self, size: int) -> tuple[str, ...]:
        """Draw the members of a queue: this node and, where it has several, random others.

        Of nodes that share a machine with a member one comes after all that share none, even
        those that are down: two copies on one machine would be lost together. Then fit ones.

        size  asked for; cut to the number of nodes and to GROUP_SIZE_MAX
        """
        own = self._cluster.host.node_id
        if size == 1:
            return (own,)
        others = list(self._definitions.others())
        self._rng.shuffle(others)
        others.sort(key=lambda node: (not self.fit(node), not self.running(node)))
        others = self.spread(others, [own])
        return tuple(sorted([own, *others[: min(size, GROUP_SIZE_MAX) - 1]]))

    def drawn(self, beside: Iterable[str]) -> tuple[str, ...]:
        """Draw an order of the nodes on which a member may be placed now; see `spread`.

        beside  nodes that have a member; they are in the order, too
        """
        held = list(beside)
        free = [node for node in self._definitions.nodes() if self.fit(node)]
        self._rng.shuffle(free)
        more = self.spread([node for node in free if node not in held], held)
        return (*more, *(node for node in free if node in held))

    def leader(
        self, nodes: Sequence[str], locator: str, counts: dict[str, int] | None = None
    ) -> str:
        """Choose the first leader among `nodes`, by `client-local` or `balanced`.

        counts  of `leader_counts`, for many queues at once; the choice is added to it
        """
        own = self._cluster.host.node_id
        fit = [node for node in nodes if self.fit(node)] or list(nodes)
        if len(fit) == 1 or (locator == "client-local" and own in fit):
            return own if own in fit else fit[0]
        if counts is None:
            if len(self._definitions.state.groups) >= BALANCED_QUEUES_MAX:
                return str(self._rng.choice(fit))
            counts = self.leader_counts()
        chosen = min(fit, key=lambda node: (counts.get(node, 0), node != own))
        counts[chosen] = counts.get(chosen, 0) + 1
        return chosen

    def leader_counts(self) -> dict[str, int]:
        """Return how many queues each node leads; one that leads none may be missing."""
        counts: dict[str, int] = {}
        for queue in self._definitions.state.queues():
            leader = self._cluster.leader_of(queue.group) or queue.leader
            counts[leader] = counts.get(leader, 0) + 1
        return counts

    def to_add(self, nodes: Sequence[str], target: int) -> tuple[str, ...]:
        """Draw nodes for the members that a queue lacks.

        As in RabbitMQ, a group of odd size does not grow to an even one without a node for the
        next.
        """
        free = [node for node in self.drawn(nodes) if node not in nodes]
        size, added = len(nodes), 0
        while size + added < target and added < len(free):
            if (size + added) % 2 and len(free) - added == 1:
                break
            added += 1
        return tuple(sorted(free[:added]))


def balanced(
    leaders: Mapping[int, str], candidates: Mapping[int, Iterable[str]], nodes: Iterable[str]
) -> list[tuple[int, str]]:
    """Return moves (group, new leader), each of which narrows the gap between two nodes.

    leaders     the leader of each group; candidates: nodes that could lead it; nodes: to be used
    """
    counts = dict.fromkeys(sorted(nodes), 0)
    if not counts:
        return []
    able = set(counts)
    where = dict(sorted(leaders.items()))  # terminates: the sum of squares falls with each move
    for leader in where.values():
        counts.setdefault(leader, 0)
        counts[leader] += 1
    moved: dict[int, str] = {}
    narrowed = True
    while narrowed:
        narrowed = False
        for group, source in where.items():
            free = [one for one in candidates[group] if one in able and one != source]
            target = min(free, key=lambda one: (counts[one], one), default=None)
            # 3 and 1 become 2 and 2; but 2 and 1 would only be swapped.
            if target is not None and (source not in able or counts[source] - counts[target] > 1):
                counts[source] -= 1
                counts[target] += 1
                moved[group] = where[group] = target
                narrowed = True
    return list(moved.items())
