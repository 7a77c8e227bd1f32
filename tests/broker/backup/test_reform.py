"""Directories rewritten for another cluster: what stays, what ends, and what a crash leaves."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from tests.machines.metadata.world import World
from tests.machines.queue.world import Queue, config
from tests.sim.whole.files import MemoryFiles
from warren_broker.backup.recover import Recovery, RecoveryRefused
from warren_broker.backup.reform import (
    GroupImage,
    NewCluster,
    draw_cluster_id,
    move_definitions,
    write_directory,
)
from warren_machines.metadata import commands
from warren_machines.metadata.machine import MetadataMachine
from warren_machines.metadata.records import ClusterNode, numbered_above
from warren_machines.metadata.state import MetadataState
from warren_machines.queue.commands import OpenClaim, RegisterReader
from warren_machines.queue.machine import QueueMachine
from warren_raft.errors import StorageError
from warren_raft.index_set import Indexes
from warren_raft.runtime.offline import OfflineLogs
from warren_raft.storage.files import Files
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import Entry, EntryKind, HardState, Membership

DISKS = {"a": 0xA, "b": 0xB, "c": 0xC}
QUORUM = {"x-queue-type": "quorum"}
TERM = 3
HOME = Path("/node-a")


def definitions() -> World:
    """Queue `all` on a, b, c; `others` on b, c; `mine`, exclusive to a connection of c."""
    world = World()
    for number, (name, disk) in enumerate(DISKS.items(), 1):
        started = commands.NodeStarted(name, number, disk, f"{name}:1", (5672,))
        world.submit(started, uplink=number, node=name)
    world.declare("all", arguments=QUORUM, nodes=("a", "b", "c"), uplink=1)
    world.declare("others", arguments=QUORUM, nodes=("b", "c"), uplink=1)
    world.declare("mine", exclusive=True, nodes=("c",), uplink=3, node="c")
    return world


def queue() -> Queue:
    """Nine messages, three of them in a claim."""
    made = Queue()
    made.machine = QueueMachine(config(), numbered_above(1))
    made.state = made.machine.init()
    for _ in range(3):
        made.put(3)
    registered = made.do(RegisterReader("spark"))
    number, epoch = registered.settled + 1, registered.epoch
    assert made.do(OpenClaim("spark", number, epoch, 3, 1 << 20)).messages == 3
    return made


def kept(files: Files, world: World | None = None) -> None:
    """The directory of node a in the cluster of a, b and c."""
    world, held = world or definitions(), queue()
    with OfflineLogs(files, HOME, "c", "a", lambda: DISKS["a"]) as logs:
        for group, datas in ((0, world.log), (1, [data for _, data in held.log])):
            logs.create(group, ("a", "b", "c"))
            logs.groups[group].append(
                HardState(TERM, "b"),
                [
                    Entry(index, TERM, EntryKind.COMMAND, 1_000_000, data)
                    for index, data in enumerate(datas, 1)
                ],
            )
        logs.sync()
        logs.directory.change(formed=True, cluster_id="1" * 16, peers={"b": ("b", 1)})


def recovered(files: Files) -> None:
    with OfflineLogs(files, HOME, "c", "a") as logs:
        Recovery(logs).carry_out()


def check(files: Files) -> None:
    """Node a is the only one, and has everything that it had."""
    with OfflineLogs(files, HOME, "c", "a") as logs:
        identity = logs.directory.identity
        assert identity.formed and identity.cluster_id != "1" * 16
        assert (identity.peers, identity.founders, identity.disk) == ({}, {}, f"{DISKS['a']:016x}")
        assert logs.members(0) == logs.members(1) == Membership(("a",))
        # A new node takes the cluster id from the first entry of the definitions, if it gets it.
        assert logs.groups[0].first_index() > 1
        state = logs.replay(0, MetadataMachine())
        assert isinstance(state, MetadataState)
        assert list(state.nodes) == ["a"] and not state.lives
        assert set(state.removed) == {DISKS["b"], DISKS["c"]}
        assert [(one.name, one.nodes) for one in state.queues()] == [("all", ("a",))]
        held, wanted = logs.replay(1, queue().machine), queue()
        assert wanted.machine.snapshot(held) == wanted.machine.snapshot(wanted.state)


def test_what_is_given_up_is_found_before() -> None:
    files = MemoryFiles(Random(1))
    kept(files)
    before = copy.deepcopy(files.image())
    with OfflineLogs(files, HOME, "c", "a") as logs:
        found = Recovery(logs).found
    (here,) = found.groups
    assert (here.queue.name, here.messages, here.claims) == ("all", 9, 1)
    assert (here.last, here.others, here.complete) == (5, ("b", "c"), True)
    assert [one.name for one in found.lost] == ["others"]
    assert {name for name in before if name.endswith(".wal")} <= set(files.image())


@pytest.mark.parametrize("begun", [False, True])
def test_a_queue_not_yet_continued_keeps_its_log(begun: bool) -> None:
    """Its new group has no entry yet: nothing would have been left of it."""
    files = MemoryFiles(Random(1))
    world, held = definitions(), queue()
    world.submit(commands.RecoverQueue(1, "a", ("a", "b", "c")), uplink=1)
    record = world.state.queue("/", "all")
    assert record is not None
    assert (record.continues, record.nodes) == (1, ("a",))
    kept(files, world)
    with OfflineLogs(files, HOME, "c", "a") as logs:
        if begun:
            logs.create(record.group, ("a",))
            logs.sync()
        (here,) = Recovery(logs).found.groups
        assert (here.queue.name, here.messages, here.claims) == ("all", 9, 1)
    recovered(files)
    with OfflineLogs(files, HOME, "c", "a") as logs:
        state = logs.replay(0, MetadataMachine())
        (after,) = state.queues()
        assert (after.group, after.nodes, after.continues) == (record.group, ("a",), 1)
        assert after.founded_by("a"), "so the node continues it when it starts"
        assert after.group not in logs.groups or not logs.groups[after.group].last_index()
        found = logs.replay(1, queue().machine)
        assert held.machine.snapshot(found) == held.machine.snapshot(held.state)


def test_a_directory_becomes_the_only_member() -> None:
    files = MemoryFiles(Random(1))
    kept(files)
    recovered(files)
    check(files)


def test_a_crash_at_any_point_is_made_good_by_repeating() -> None:
    steps = 0
    while True:
        files = MemoryFiles(Random(steps))
        kept(files)
        files.kernel.steps_left = steps
        try:
            recovered(files)
        except (OSError, StorageError):
            files.crash()
            files.kernel.steps_left = None
            recovered(files)
            check(files)
            steps += 1
            continue
        break
    assert steps > 20, steps


def test_a_node_that_had_not_joined_is_refused() -> None:
    files = MemoryFiles(Random(1))
    with OfflineLogs(files, HOME, "c", "a") as logs, pytest.raises(RecoveryRefused):
        Recovery(logs)


def test_snapshots_become_directories_of_other_nodes(tmp_path: Path) -> None:
    world, held = definitions(), queue()
    nodes = tuple(ClusterNode(name, f"{name}:1", 100 + at) for at, name in enumerate("xy"))
    cluster = NewCluster("c", draw_cluster_id(), nodes)
    places = {"all": ("y", "x"), "others": ("x",)}
    taken = Snapshot(0, len(world.log), TERM, 5, (0, 0), 1, ("a", "b", "c"), (), b"", b"")
    moved = move_definitions(
        replace(taken, state=MetadataMachine().snapshot(world.state)),
        cluster,
        lambda one: places.get(one.name, ()),
    )
    assert [one.name for one in moved.lost] == []
    live = held.machine.live_indexes(held.state)
    image = Snapshot(
        1,
        held.index,
        TERM,
        5,
        (7, 7),
        1,
        ("a", "b", "c"),
        (),
        Indexes.of(live).tobytes(),
        held.machine.snapshot(held.state),
    )
    entries = [
        Entry(meta.index, meta.term, EntryKind.COMMAND, meta.time_ms, data)
        for meta, data in held.log
        if meta.index in live
    ]
    for name in "xy":
        write_directory(
            tmp_path / name, cluster, name, moved, [GroupImage(image, lambda: iter(entries))]
        )
        with OfflineLogs(Files(), tmp_path / name, "c", name) as logs:
            assert logs.directory.identity.cluster_id == cluster.cluster_id
            assert int(logs.directory.identity.disk, 16) == 100 + "xy".index(name)
            assert logs.members(0) == logs.members(1) == Membership(("x", "y"))
            assert [logs.groups[1].read(index) for index in live] == entries
            again = logs.replay(1, held.machine)
            assert held.machine.snapshot(again) == image.state
    with pytest.raises(FileExistsError):
        write_directory(tmp_path / "x", cluster, "x", moved, [])
    with pytest.raises(ValueError, match="not the entries"):
        write_directory(
            tmp_path / "z",
            NewCluster("c", "1" * 16, nodes),
            "x",
            moved,
            [GroupImage(image, lambda: iter(entries[1:]))],
        )
    assert not (tmp_path / "z").exists()
