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

    leaders   of the queues that there are
    machines  such as "ab cd e", the nodes on each; without: every node has its own
    """

    def __init__(
        self,
        own: str = "b",
        down: str = "",
        drained: str = "",
        leaders: str = "",
        machines: str = "a b c d e",
    ) -> None:
        state = SimpleNamespace(
            nodes={
                node: SimpleNamespace(
                    drained=node in drained, forgetting=False, address=f"host{number}:25{number}72"
                )
                for number, nodes in enumerate(machines.split())
                for node in nodes
            },
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
        """The members of that many queues."""
        return Counter(self.placement.members(size) for _ in range(times))


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


def test_members_are_on_as_many_machines_as_there_are() -> None:
    pairs = World(machines="ab cd e")
    assert set(pairs.drawn(3)) == {("b", "c", "e"), ("b", "d", "e")}
    assert min(pairs.drawn(3).values()) > 100
    for nodes in pairs.drawn(4):
        assert "e" in nodes and ("c" in nodes or "d" in nodes), nodes
    assert len(World(machines="abcde").drawn(3)) == 6, "one machine: every two of the four others"


def test_a_second_member_on_a_machine_comes_after_a_node_that_is_down() -> None:
    assert set(World(machines="ab c de", down="c", drained="de").drawn(3)) == {
        ("b", "c", "d"),
        ("b", "c", "e"),
    }
    assert set(World(machines="ab c de", down="d").drawn(3)) == {("b", "c", "e")}


def test_a_node_without_a_record_counts_as_a_machine() -> None:
    assert all("e" in nodes for nodes in World(machines="abcd").drawn(2))


def test_members_that_are_added_are_on_other_machines() -> None:
    world = World(machines="ab cd e")
    added = Counter(world.placement.to_add("b", 3) for _ in range(50))
    assert set(added) == {("c", "e"), ("d", "e")}
    assert {world.placement.to_add("bc", 3) for _ in range(20)} == {("e",)}
    assert {world.placement.drawn("bce")[:2] for _ in range(50)} == {("a", "d"), ("d", "a")}
    for order in (world.placement.drawn("ab") for _ in range(50)):
        assert set(order[3:]) == {"a", "b"} and "e" in order[:2], order


def test_the_only_member_is_on_this_node() -> None:
    assert World().placement.members(1) == ("b",)


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
