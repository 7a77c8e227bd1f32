"""A group that lost its majority continues as another one: with all that one member holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from tests.raft.runtime.kit import Cluster, Listing
from tests.sim.whole.files import MemoryFiles
from warren_raft.core.membership import AddLearner
from warren_raft.errors import StorageError
from warren_raft.machine import GroupSpec, Meta
from warren_raft.runtime.continued import Continuing
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.offline import OfflineLogs
from warren_raft.types import Entry, EntryKind, HardState, Membership

OLD, NEW = 7, 8
HOME = Path("/a")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def keep_all(meta: Meta, state: Any) -> None:
    """There are no sessions here."""


def continued(nodes: Cluster, host: Host) -> None:
    done: list[bool] = []
    host.continue_group(OLD, NEW, Listing(), keep_all, lambda: done.append(True))
    nodes.until(lambda: done)
    host.start_group(GroupSpec(NEW, (host.node_id,)), Listing())
    host.delete_group(OLD)
    nodes.until(lambda: host.is_leader(NEW))


def test_members_that_return_do_not_reach_the_group_that_continues(nodes: Cluster) -> None:
    nodes.start_group(OLD)
    leader = nodes.await_leader(OLD)
    for number in range(5):
        leader.propose(OLD, b"%d" % number)
    a = nodes.hosts[nodes.nodes[0]]
    nodes.until(lambda: len(a.state(OLD)) == 5)
    for name in nodes.nodes[1:]:
        nodes.kill(name)
    held = list(a.state(OLD))
    continued(nodes, a)
    assert a.state(NEW) == held and not a.stored(OLD)
    assert a.members(NEW) == Membership((a.node_id,))
    a.propose(NEW, b"here")
    nodes.until(lambda: a.state(NEW) == [*held, b"here"])

    # The others are back: two of three elect a leader, and append what a does not have.
    for name in nodes.nodes[1:]:
        nodes.start(name).start_group(GroupSpec(OLD, nodes.nodes), Listing())
    b = nodes.await_leader(OLD)
    b.propose(OLD, b"there")
    nodes.until(lambda: b.state(OLD)[-1:] == [b"there"])
    assert a.is_leader(NEW) and a.state(NEW) == [*held, b"here"]

    # By the definitions they delete that, and one becomes a member again.
    b.delete_group(OLD)
    b.start_group(GroupSpec(NEW, (a.node_id, b.node_id), joining=True), Listing())
    a.change_members(NEW, AddLearner(b.node_id))
    nodes.until(lambda: b.node_id in a.members(NEW).voters and b.state(NEW) == a.state(NEW))


def stored(files: MemoryFiles) -> None:
    with OfflineLogs(files, HOME, "c", "a") as logs:
        logs.create(OLD, ("a", "b", "c"))
        entries = [Entry(at, 2, EntryKind.COMMAND, at, b"%d" % at) for at in range(1, 10)]
        logs.groups[OLD].append(HardState(2, "b"), entries)
        logs.sync()


def written(files: MemoryFiles) -> None:
    """What a node does at its start, as far as the power lasts."""
    with OfflineLogs(files, HOME, "c", "a") as logs:
        if logs.groups.get(NEW) is None or not logs.groups[NEW].last_index():
            done: list[bool] = []
            writing = Continuing("a", logs.store, cast(Loop, None))
            writing.begin(OLD, NEW, Listing(), keep_all, lambda: done.append(True))
            while not done:
                logs._posted.get()()
        logs.store.delete(OLD)
        logs.sync()


def test_a_crash_at_any_point_loses_nothing() -> None:
    steps = 0
    while True:
        files = MemoryFiles(Random(steps))
        stored(files)
        files.kernel.steps_left = steps
        try:
            written(files)
        except (OSError, StorageError):
            files.crash()
            files.kernel.steps_left = None
            written(files)
            ended = False
        else:
            files.kernel.steps_left = None
            ended = True
        with OfflineLogs(files, HOME, "c", "a") as logs:
            assert list(logs.groups) == [NEW], steps
            assert logs.replay(NEW, Listing()) == [b"%d" % at for at in range(1, 10)]
            assert logs.members(NEW) == Membership(("a",))
        if ended:
            break
        steps += 1
    assert steps > 15, steps


def test_a_group_that_is_deleted_meanwhile_leaves_no_record() -> None:
    files = MemoryFiles(Random(1))
    stored(files)
    with OfflineLogs(files, HOME, "c", "a") as logs:
        writing = Continuing("a", logs.store, cast(Loop, None))
        writing.begin(OLD, NEW, Listing(), keep_all, lambda: pytest.fail("it was deleted"))
        while NEW not in logs.groups:
            logs._posted.get()()
        writing.drop(NEW)
        logs.store.delete(NEW)
        logs.sync()
    with OfflineLogs(files, HOME, "c", "a") as logs:
        assert list(logs.groups) == [OLD]
