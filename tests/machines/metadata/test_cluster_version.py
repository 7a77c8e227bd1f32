"""The cluster's version: raised when every node has it, never lowered."""

from __future__ import annotations

import pytest
from msgspec import msgpack

from machines.metadata.world import World, start, with_nodes
from warren_machines.metadata import commands
from warren_machines.metadata.changes import NodesChanged
from warren_machines.metadata.cluster_version import attainable, check_needed, held_back_by
from warren_machines.metadata.codec import encode_submission
from warren_machines.metadata.machine import MetadataMachine
from warren_raft.machine import Meta
from warren_raft.versions import NEWEST, VersionNeeded, Versions
from warren_wire.errors import NotAllowed, PreconditionFailed

OLD, NEW = Versions(1, 1), Versions(1, 2)


@pytest.fixture
def world() -> World:
    return with_nodes("abc")


def upgrade(world: World, *nodes: str, versions: Versions = NEW) -> None:
    for node in nodes:
        life = world.state.lives[node] + 10
        start(world, node, life, world.state.nodes[node].disk, versions=versions)


def do(world: World, command: commands.AnyCommand) -> None:
    world.do(command, uplink=world.state.lives["a"])


def test_every_node_must_have_the_version(world: World) -> None:
    upgrade(world, "a", "b")
    assert attainable(world.state) == 1 and held_back_by(world.state, 2) == ("c",)
    with pytest.raises(PreconditionFailed, match="stays at version 1: node 'c' has not version 2"):
        do(world, commands.RaiseVersion(2))
    upgrade(world, "c")
    assert attainable(world.state) == 2
    do(world, commands.RaiseVersion(2))
    assert world.state.version == 2 and NodesChanged() in world.changes
    do(world, commands.RaiseVersion(1))
    assert world.state.version == 2 and world.changes == []


def test_a_node_that_goes_back_before_the_raise_stops_it(world: World) -> None:
    upgrade(world, "a", "b", "c")
    upgrade(world, "b", versions=OLD)
    with pytest.raises(PreconditionFailed, match="node 'b'"):
        do(world, commands.RaiseVersion(2))


def test_a_node_without_the_version_is_refused(world: World) -> None:
    upgrade(world, "a", "b", "c")
    do(world, commands.RaiseVersion(2))
    why = "node 'b' has version 1, and the cluster has version 2; start it with a release that has"
    with pytest.raises(NotAllowed, match=why):
        upgrade(world, "b", versions=OLD)
    with pytest.raises(NotAllowed, match="node 'd' has versions 3 to 4, and the cluster has"):
        do(world, commands.JoinNode("d", 104, "d:1", Versions(3, 4)))
    assert world.state.nodes["b"].versions == NEW and "d" not in world.state.nodes


def test_a_forgotten_node_holds_nothing_back(world: World) -> None:
    upgrade(world, "a", "b")
    do(world, commands.ForgetNode("c"))
    do(world, commands.RaiseVersion(2))
    assert world.state.version == 2
    world.state.check()


def test_the_door_names_those_that_hold_back(world: World) -> None:
    upgrade(world, "b")
    check_needed(world.state, 1, "a queue")
    text = r"a queue with x needs version 2 .* has version 1; upgrade nodes 'a', 'c'"
    with pytest.raises(PreconditionFailed, match=text):
        check_needed(world.state, 2, "a queue with x")
    upgrade(world, "a", "c")
    with pytest.raises(PreconditionFailed, match="every node has it: `warren cluster finish"):
        check_needed(world.state, 2, "a queue with x")
    do(world, commands.RaiseVersion(2))
    check_needed(world.state, 2, "a queue with x")


def test_the_version_survives_in_a_snapshot(world: World) -> None:
    upgrade(world, "a", "b", "c")
    do(world, commands.RaiseVersion(2))
    machine = MetadataMachine()
    assert machine.form(world.state) == 2
    restored = machine.restore(machine.snapshot(world.state))
    assert restored.version == 2 and restored.nodes["a"].versions == NEW


def test_a_later_command_ends_the_node(world: World) -> None:
    machine, state = world.machine, world.state
    meta = Meta(1_000, 1, 1_000)
    later = NEWEST + 1
    known = encode_submission(0, "a", 0, (commands.Barrier(),), later)
    unknown = msgpack.encode([0, "a", 0, [["from_the_future", 7]], later])
    for entry in (known, unknown):
        text = f"entry of a log is of version {later}, .* start this"
        with pytest.raises(VersionNeeded, match=text):
            machine.apply(meta, entry, state)
    before = machine.snapshot(state)
    for entry in (msgpack.encode([0, "a", 0, [["from_nowhere", 7]], 1]), b"\xc1", b""):
        assert machine.apply(meta, entry, state).reply is None
    assert machine.snapshot(state) == before
