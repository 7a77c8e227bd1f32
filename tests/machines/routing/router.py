"""Topologies for tests of routing."""

from __future__ import annotations

from random import Random

from machines.metadata.world import World
from warren_machines.routing.surroundings import AbsentNodes, RoutingNode
from warren_machines.routing.topology import Topology


def router(
    world: World, absent: AbsentNodes | None = None, node: str = "a", seed: int = 0
) -> Topology:
    """Routing by a world's definitions on a node."""
    absent = AbsentNodes() if absent is None else absent
    return Topology(world.state.scopes, RoutingNode(node, absent, Random(seed).randrange))
