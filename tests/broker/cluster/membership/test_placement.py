"""Where a new queue's members and its first leader are placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.cluster.membership.placement import BALANCED_QUEUES_MAX, Placement

NODES = ("a", "b", "c", "d", "e")


class World:
    """Five nodes, of which this is one; `down` ones are unreachable, `drained` ones may be asked.

    leaders  of the queues that there are
    """

    def __init__(
        self, own: str = "b", down: str = "", drained: str = "", leaders: str = ""
    ) -> None:
        state = SimpleNamespace(
            nodes={node: SimpleNamespace(drained=True, forgetting=False) for node in drained},
            groups=dict(enumerate(leaders)),
            queues=self.queues,
        )
        self.leaders = leaders
        host = SimpleNamespace(
            node_id=own,
            connected=lambda node: node not in down,
            suspected=lambda node: node in down,
            disk_slow=lambda node: False,
        )
        cluster: Any = SimpleNamespace(host=host, leader_of=lambda group: leaders[group])
        definitions: Any = SimpleNamespace(
            state=state, nodes=lambda: NODES, others=lambda: [n for n in NODES if n != own]
        )
        self.placement = Placement(cluster, definitions, Random(5))

    def queues(self) -> Iterable[Any]:
        return [SimpleNamespace(group=group, leader="") for group in range(len(self.leaders))]

    def drawn(self, size: int, times: int = 300) -> Counter[tuple[str, ...]]:
        """The members of that many quorum queues."""
        return Counter(self.placement.members("quorum", size) for _ in range(times))


@pytest.mark.specification("quorum-queues: the set of nodes that will host its members")
def test_members_are_this_node_and_others_by_chance() -> None:
    found = World().drawn(3)
    assert all("b" in nodes and len(set(nodes)) == 3 for nodes in found)
    assert len(found) == 6, "every two of the four others"
    assert min(found.values()) > 20, found


def test_unreachable_and_drained_nodes_are_the_last_choice() -> None:
    assert set(World(down="a", drained="c").drawn(3)) == {("b", "d", "e")}
    assert set(World(down="a", drained="c").drawn(4)) == {("b", "c", "d", "e")}, "drained ones run"
    assert set(World(down="acde").drawn(5)) == {NODES}


def test_a_classic_queue_is_on_this_node() -> None:
    assert World().placement.members("classic", 3) == ("b",)


@pytest.mark.specification("quorum-queues: client-local: Pick the node")
def test_a_leader_is_on_the_node_of_the_client_that_declares() -> None:
    for own in NODES:
        world = World(own, leaders=own * 9)
        assert world.placement.leader(NODES, "client-local") == own
    assert World("b", drained="b").placement.leader("bc", "client-local") == "c"
    assert World("b", drained="bcd", leaders="aa").placement.leader("abe", "client-local") == "e"


def test_a_balanced_leader_is_where_the_fewest_are() -> None:
    assert World(leaders="aabbdde").placement.leader("abe", "balanced") == "e"
    assert World(leaders="aabbddee").placement.leader("abe", "balanced") == "b", "itself"
    assert World(leaders="aabbddee", down="c").placement.leader("ac", "balanced") == "a"


def test_with_many_queues_a_balanced_leader_is_drawn() -> None:
    world = World(leaders="a" * BALANCED_QUEUES_MAX)
    drawn = Counter(world.placement.leader("abe", "balanced") for _ in range(300))
    assert set(drawn) == set("abe") and min(drawn.values()) > 50, drawn
