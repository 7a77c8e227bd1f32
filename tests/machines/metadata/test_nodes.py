"""The registry of nodes: joining, coming back with another disk, leaving for good."""

from __future__ import annotations

import pytest

from machines.metadata.world import World, start, with_nodes
from warren_machines.metadata import commands
from warren_machines.metadata.changes import NodeRenewed, NodesChanged, QueueChanged
from warren_machines.metadata.node_registry import is_over
from warren_machines.metadata.records import NUMBERS_PER_GROUP, ClusterNode, numbered_above
from warren_machines.metadata.state import REMOVED_KEPT_MAX
from warren_wire.errors import NotAllowed, NotFound, PreconditionFailed, Unavailable

CLASSIC = {"x-queue-type": "classic"}


@pytest.fixture
def world() -> World:
    return with_nodes("abc")


def test_a_started_node_is_registered(world: World) -> None:
    assert world.state.nodes["b"] == ClusterNode("b", "b:1", 102)
    start(world, "b", 82, 102, "elsewhere:1")
    assert world.state.nodes["b"].address == "elsewhere:1"
    assert NodesChanged() in world.changes


def test_a_node_that_joins_holds_nothing_of_older_queues(world: World) -> None:
    world.declare("old", nodes=("a", "b", "c"))
    world.do(commands.JoinNode("d", 104, "d:1"))
    assert NodesChanged(joined="d") in world.changes
    assert world.state.nodes["d"].since_group == world.state.last_group == 1
    assert world.declare("new", nodes=("a", "d")).group > world.state.nodes["d"].since_group
    world.do(commands.JoinNode("d", 104, "d:1"))
    assert world.state.nodes["d"].since_group == 1 and world.changes == []


@pytest.mark.parametrize("joins", [False, True])
def test_a_node_founds_the_queues_declared_before_it_was_registered(
    world: World, joins: bool
) -> None:
    world.declare("old", nodes=("a", "b"))
    early = world.declare("early", nodes=("a", "d"))
    world.declare("other", nodes=("a", "b"))
    if joins:
        world.do(commands.JoinNode("d", 104, "d:1"))
    start(world, "d", 94, 104)
    assert early.founded_by("d")
    assert early.group > world.state.nodes["d"].since_group, "of two members: it has to vote"
    start(world, "d", 95, 204)
    assert early.group < world.state.nodes["d"].since_group, "its log is lost"


def test_another_disk_is_another_memory(world: World) -> None:
    world.declare("old", nodes=("a", "b", "c"))
    start(world, "b", 82, 102)
    assert world.state.nodes["b"].since_group == 0
    start(world, "b", 92, 202)
    assert world.state.nodes["b"].since_group == 1


def test_what_lay_on_a_lost_disk_alone_begins_anew(world: World) -> None:
    replicated = world.declare("replicated", nodes=("a", "b", "c"))
    lost = world.declare("lost", nodes=("b",), arguments=CLASSIC)
    single = world.declare("single", nodes=("b",))
    kept = world.declare("kept", nodes=("a",), arguments=CLASSIC)
    world.exchange("x", "fanout")
    world.bind("x", "lost")
    start(world, "b", 92, 202)
    for old in (lost, single):
        now = world.state.queue("/", old.name)
        assert now is not None and now.group > world.state.nodes["b"].since_group > old.group
        assert QueueChanged(old) in world.changes and QueueChanged(now) in world.changes
        assert now.config == old.config and now.founded_by("b")
    assert len(world.state.scopes["/"].to_queues["lost"]) == 1
    for same in (replicated, kept):
        assert world.state.groups[same.group] == same


def test_a_queue_that_begins_anew_shares_no_number_with_what_was_lost(world: World) -> None:
    lost = world.declare("lost", nodes=("b",), arguments=CLASSIC)
    world.do(commands.NodeStarted("b", 92, 202, "b:1"), uplink=92, node="b")
    now = world.state.queue("/", "lost")
    assert now is not None and now.group > lost.group
    assert numbered_above(now.group) >= numbered_above(lost.group) + NUMBERS_PER_GROUP


def test_maintenance_ends_with_a_new_life(world: World) -> None:
    world.do(commands.SetDrained("b", True))
    assert world.state.nodes["b"].drained and NodesChanged() in world.changes
    world.do(commands.JoinNode("b", 102, "b:2"))
    assert world.state.nodes["b"].drained
    start(world, "b", 82, 102)
    assert not world.state.nodes["b"].drained
    with pytest.raises(NotFound, match="no node 'x' in the cluster; its nodes are a, b, c"):
        world.do(commands.SetDrained("x", True))


@pytest.mark.specification("quorum-queues: the forget_cluster_node command will automatically")
def test_a_forgotten_node_is_taken_out_of_every_queue(world: World) -> None:
    shared = world.declare("shared", nodes=("a", "b", "c"))
    alone = world.declare("alone", nodes=("b",), arguments=CLASSIC)
    single = world.declare("single", nodes=("b",))
    lost = world.do(commands.ForgetNode("b"), uplink=73, node="c").queues
    assert {queue.name for queue in lost} == {alone.name, single.name}
    now = world.state.groups[shared.group]
    assert now.nodes == ("a", "c") and now.leaving == ("b",) and not now.founded_by("b")
    assert world.do(commands.ForgetNode("b")).queues == ()
    with pytest.raises(PreconditionFailed, match="still has members of 1 queues"):
        world.do(commands.RemoveNode("b", 102))
    with pytest.raises(PreconditionFailed, match="is being forgotten"):
        world.do(commands.ChangeMembers(shared.group, add=("b",)))
    fresh = world.declare("fresh", nodes=("a", "b", "c"))
    assert fresh.nodes == ("a", "c")


def test_a_queue_on_its_way_to_a_forgotten_node_gets_its_former_members_back(world: World) -> None:
    moving = world.declare("moving", nodes=("a", "c"))
    world.do(commands.ChangeMembers(moving.group, add=("b",), remove=("a", "c")))
    old = world.declare("old", nodes=("a",))
    world.do(commands.ChangeMembers(old.group, add=("b",), remove=("a",)))
    world.do(commands.Left(old.group, "a"))  # b has everything, and a nothing any more
    lost = world.do(commands.ForgetNode("b")).queues
    assert [queue.name for queue in lost] == ["old"]
    now = world.state.groups[moving.group]
    assert now.nodes == ("a", "c") and now.leaving == ("b",) and not now.founded_by("a")
    world.state.check()


def test_a_removed_nodes_disk_does_not_come_back(world: World) -> None:
    world.declare("mine", exclusive=True, connection=4, nodes=("b",), uplink=72, node="b")
    world.do(commands.ForgetNode("b"))
    world.do(commands.RemoveNode("b", 102))
    assert "b" not in world.state.nodes and world.state.removed == {102: "b"}
    assert NodesChanged(left="b") in world.changes and NodeRenewed("b", 0, 72) in world.changes
    assert "b" not in world.state.lives and not list(world.state.queues())
    world.do(commands.RemoveNode("b", 102))  # the node that took over submits it again
    with pytest.raises(NotAllowed, match="was removed from the cluster .* empty it"):
        world.do(commands.JoinNode("b", 102, "b:1"))
    late = world.submit(commands.Barrier(), uplink=72, node="b", seq=9)
    assert late.retired
    start(world, "b", 95, 302)
    assert world.state.nodes["b"].disk == 302
    assert world.declare("q", nodes=("a", "b")).nodes == ("a", "b")


def test_a_late_removal_does_not_hit_the_node_that_came_in_its_place(world: World) -> None:
    world.do(commands.ForgetNode("b"))
    world.do(commands.RemoveNode("b", 102))
    world.do(commands.JoinNode("b", 302, "b:1"))
    world.do(commands.RemoveNode("b", 102))
    assert world.state.nodes["b"].disk == 302


def test_a_node_that_is_being_forgotten_comes_back_new_only_after_that(world: World) -> None:
    world.do(commands.ForgetNode("b"))
    with pytest.raises(Unavailable, match="is being forgotten .* try again"):
        world.do(commands.JoinNode("b", 302, "b:1"))
    start(world, "b", 82, 102)  # with the old disk it may help to let go
    assert world.state.nodes["b"].forgetting
    world.do(commands.RemoveNode("b", 102))
    world.do(commands.JoinNode("b", 302, "b:1"))


def test_no_two_nodes_have_one_disk(world: World) -> None:
    with pytest.raises(NotAllowed, match="data directory of node 'd' is that of node 'b'"):
        world.do(commands.JoinNode("d", 102, "d:1"))


def test_the_last_node_stays(world: World) -> None:
    for node in "bc":
        world.do(commands.ForgetNode(node))
    with pytest.raises(PreconditionFailed, match="node 'a' is the last of the cluster"):
        world.do(commands.ForgetNode("a"))


def test_removed_disks_are_remembered_within_reason(world: World) -> None:
    for number in range(REMOVED_KEPT_MAX + 5):
        world.do(commands.JoinNode("d", 1000 + number, "d:1"))
        world.do(commands.ForgetNode("d"))
        world.do(commands.RemoveNode("d", 1000 + number))
    assert len(world.state.removed) == REMOVED_KEPT_MAX and 1000 not in world.state.removed


def test_a_life_is_numbered_by_the_entry_that_began_it(world: World) -> None:
    numbers = []
    for life in (82, 92):
        world.submit(commands.NodeStarted("b", life, 102, "b:1"), uplink=life, node="b")
        numbers.append(world.state.numbers["b"])
        world.submit(commands.NodeStarted("b", life, 102, "b:1"), uplink=life, node="b")
        assert world.state.numbers["b"] == numbers[-1] == len(world.log) - 1
    assert numbers == sorted(numbers)
    restored = world.machine.restore(world.machine.snapshot(world.state))
    assert restored.numbers == world.state.numbers


def test_a_node_that_returns_gets_a_higher_number(
    world: World,
) -> None:
    world.submit(commands.NodeStarted("b", 82, 102, "b:1"), uplink=82, node="b")
    before = world.state.numbers["b"]
    world.do(commands.ForgetNode("b"))
    world.do(commands.RemoveNode("b", 102))
    assert "b" not in world.state.numbers
    world.submit(commands.NodeStarted("b", 92, 202, "b:1"), uplink=92, node="b")
    assert world.state.numbers["b"] > before


def test_a_life_is_over_when_the_definitions_know_a_later_one_or_none(world: World) -> None:
    def over(life: int, number: int) -> bool:
        return is_over(world.state, len(world.log), "b", life, number)

    first = len(world.log) + 1
    for life in range(200, 240):  # more than any window
        world.submit(commands.NodeStarted("b", life, 102, "b:1"), uplink=life, node="b")
    assert all(over(200 + i, first + i) for i in range(39))
    assert not over(239, first + 39)
    assert not over(240, len(world.log) + 1), "it begins after what this node knows"
    world.do(commands.ForgetNode("b"))
    world.do(commands.RemoveNode("b", 102))
    assert over(239, first + 39)
