"""Which nodes a queue is to have its members on."""

from __future__ import annotations

import msgspec
import pytest

from machines.metadata.test_nodes import CLASSIC
from machines.metadata.world import World, with_nodes
from warren_machines.metadata import commands
from warren_machines.metadata.changes import QueueChanged
from warren_wire.errors import NotFound, PreconditionFailed


@pytest.fixture
def world() -> World:
    return with_nodes("abcd")


def test_members_come_and_go(world: World) -> None:
    group = world.declare("q", nodes=("a", "b", "c")).group
    now = world.do(commands.ChangeMembers(group, add=("d",), remove=("b",))).queue
    assert (now.nodes, now.leaving, now.leader) == (("a", "c", "d"), ("b",), "a")
    assert world.changes == [QueueChanged(now)] and world.state.queue("/", "q") is now
    assert now.founded_by("a") and not now.founded_by("d") and not now.founded_by("b")
    world.do(commands.Left(group, "b"))
    assert world.state.groups[group].leaving == () and len(world.changes) == 1
    world.do(commands.Left(group, "b"))
    assert world.changes == []


def test_what_is_so_already_is_no_change(world: World) -> None:
    queue = world.declare("q", nodes=("a", "b", "c"))
    again = commands.ChangeMembers(queue.group, add=("a",), remove=("d",))
    assert world.do(again).queue == queue and world.changes == []


def test_a_founder_that_was_taken_out_is_none_again(world: World) -> None:
    """It held the group once: beginning it empty, as a founder, it could vote what it forgot."""
    group = world.declare("q", nodes=("a", "b", "c")).group
    world.do(commands.ChangeMembers(group, remove=("b",)))
    now = world.do(commands.ChangeMembers(group, add=("b",))).queue
    assert now.nodes == ("a", "b", "c") and now.leaving == () and not now.founded_by("b")
    world.do(commands.Left(group, "b"))  # said before it was wanted again
    assert world.state.groups[group] == now


def test_the_preferred_leader_is_a_member(world: World) -> None:
    group = world.declare("q", nodes=("a", "b", "c")).group
    assert world.do(commands.ChangeMembers(group, remove=("a",))).queue.leader == "b"


def test_refusals(world: World) -> None:
    group = world.declare("q", nodes=("a", "b")).group
    classic = world.declare("classic", arguments=CLASSIC).group
    mine = world.declare("mine", exclusive=True).group
    for change, kind, text in (
        (commands.ChangeMembers(99, add=("a",)), NotFound, "no queue has the group 99"),
        (commands.ChangeMembers(group, add=("x",)), NotFound, "no node 'x' in the cluster"),
        (commands.ChangeMembers(group, remove=("a", "b")), PreconditionFailed, "its last member"),
        (
            commands.ChangeMembers(classic, add=("b",)),
            PreconditionFailed,
            "queue 'classic' in vhost '/' is a classic queue: it lives on node 'a' alone",
        ),
        (commands.ChangeMembers(mine, add=("b",)), PreconditionFailed, "lives on node 'a'"),
    ):
        with pytest.raises(kind, match=text):
            world.do(change)
        assert world.changes == []


def test_a_node_added_and_removed_at_once_is_not_a_member_that_remains(world: World) -> None:
    group = world.declare("q", nodes=("a",)).group
    before = world.state.groups[group]
    with pytest.raises(PreconditionFailed, match="has its last member"):
        world.do(commands.ChangeMembers(group, add=("a",), remove=("a",)))
    with pytest.raises(PreconditionFailed, match="has its last member"):
        world.do(commands.ChangeMembers(group, add=("b",), remove=("a", "b")))
    assert world.state.groups[group] == before


def test_a_change_that_follows_from_other_members_does_not_happen(world: World) -> None:
    queue = world.declare("q", nodes=("a", "b", "c"))
    late = commands.ChangeMembers(queue.group, add=("d",), expected=("a", "b"), mirrored=True)
    assert world.do(late).queue == queue and world.changes == []
    now = world.do(msgspec.structs.replace(late, expected=queue.nodes)).queue
    assert (now.nodes, now.mirrored) == (("a", "b", "c", "d"), True)
    assert world.changes == [QueueChanged(now)]
    again = msgspec.structs.replace(late, expected=now.nodes)
    assert world.do(again).queue == now and world.changes == []


def test_a_policy_replicates_a_classic_queue_and_ends_that(world: World) -> None:
    queue = world.declare("classic", arguments=CLASSIC)
    assert (queue.nodes, queue.replicated, queue.home) == (("a",), False, "a")
    marked = world.do(commands.ChangeMembers(queue.group, mirrored=True)).queue
    assert marked.mirrored and marked.replicated and world.changes == [QueueChanged(marked)]
    moved = world.do(commands.ChangeMembers(queue.group, add=("b",), mirrored=True)).queue
    assert (moved.nodes, moved.home, moved.leaving) == (("a", "b"), "", ())
    ended = commands.ChangeMembers(queue.group, remove=("a",), expected=moved.nodes, mirrored=False)
    left = world.do(ended).queue
    assert (left.nodes, left.mirrored, left.leaving) == (("b",), False, ("a",))
    assert left.replicated, "until the last former member has left"
    world.do(commands.Left(queue.group, "a"))
    alone = world.state.groups[queue.group]
    assert (alone.replicated, alone.home) == (False, "b")
    with pytest.raises(PreconditionFailed, match="lives on node 'b' alone"):
        world.do(commands.ChangeMembers(queue.group, add=("c",)))


def test_no_policy_replicates_what_belongs_to_a_node_or_a_connection(world: World) -> None:
    for queue in (world.declare("mine", exclusive=True), world.declare("short", durable=False)):
        with pytest.raises(PreconditionFailed, match="lives on node 'a' alone"):
            world.do(commands.ChangeMembers(queue.group, add=("b",), mirrored=True))
        assert world.changes == []


def test_one_member_continues_a_queue_as_another_group(world: World) -> None:
    old = world.declare("q", nodes=("a", "b", "c"))
    late = world.do(commands.RecoverQueue(old.group, "b", ("a", "b")))
    assert (late.created, late.queue) == (False, old)
    now = world.do(commands.RecoverQueue(old.group, "b", old.nodes)).queue
    assert now.group > old.group and now.continues == old.group
    assert (now.nodes, now.founders, now.leader, now.leaving) == (("b",), ("b",), "b", ())
    assert world.changes == [QueueChanged(old), QueueChanged(now)]
    assert world.state.queue("/", "q") == now and old.group not in world.state.groups
    with pytest.raises(NotFound, match="look it up again"):
        world.do(commands.RecoverQueue(old.group, "b", old.nodes))
