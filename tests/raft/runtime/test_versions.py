"""Nodes with programs of two versions: side by side, raised, and refused."""

from __future__ import annotations

import pytest

from tests.raft.runtime.forming import ABC, Nodes
from tests.raft.runtime.kit import Listing
from warren_raft.runtime.group_start import known_members
from warren_raft.runtime.snapshot_policy import take
from warren_raft.storage.errors import DirectoryRefused
from warren_raft.versions import VersionNeeded, Versions, spoken

OLD, NEW = Versions(1, 1), Versions(1, 2)
LATER = Versions(2, 3)


@pytest.mark.parametrize(
    ("one", "other", "version"),
    [(OLD, OLD, 1), (OLD, NEW, 1), (NEW, NEW, 2), (NEW, LATER, 2), (OLD, LATER, 0)],
)
def test_a_link_speaks_the_newest_common_version(
    one: Versions, other: Versions, version: int
) -> None:
    assert spoken(one, other) == spoken(other, one) == version


def test_two_versions_serve_and_a_node_goes_back(nodes: Nodes) -> None:
    for name, versions in zip(ABC, (OLD, NEW, NEW), strict=True):
        nodes.start(name, versions=versions)
    nodes.serves(*ABC)
    a, b = nodes.hosts["a"], nodes.hosts["b"]
    assert (a.link_version("b"), b.link_version("c")) == (1, 2)
    for versions in (OLD, NEW):
        nodes.stop("b")
        nodes.start("b", versions=versions)
        nodes.serves(*ABC)
    assert {host.version for host in nodes.hosts.values()} == {1}


def test_a_directory_is_marked_before_a_peer_writes(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry follows the raise in the same turn, and goes by way of the leader."""
    for name in ABC:
        nodes.start(name, versions=NEW)
    nodes.serves(*ABC)
    marks: list[int] = []
    leader = nodes.leader()
    assert leader is not None
    follower = next(host for host in nodes.hosts.values() if host is not leader)
    on_raft = follower.on_raft

    def received(node: str, messages: list[object]) -> None:
        if any(getattr(message, "entries", ()) for message in messages):
            marks.append(follower.version)
        on_raft(node, messages)  # type: ignore[arg-type]

    monkeypatch.setattr(follower, "on_raft", received)
    leader.raise_version(2)
    leader.propose(0, b"of version 2")
    nodes.until(lambda: follower.state(0)[-1:] == [b"of version 2"])
    assert marks and set(marks) == {2}
    nodes.until(lambda: all(host.version == 2 for host in nodes.hosts.values()))


def raised(nodes: Nodes) -> None:
    for name in ABC:
        nodes.start(name, versions=NEW)
    nodes.serves(*ABC)
    nodes.hosts["a"].raise_version(2)
    nodes.until(lambda: all(host.version == 2 for host in nodes.hosts.values()))


def test_an_old_program_refuses_a_raised_directory(nodes: Nodes) -> None:
    raised(nodes)
    nodes.stop("c")
    with pytest.raises(DirectoryRefused, match=r"may hold what version 2 wrote, .* has version 1"):
        nodes.start("c", versions=OLD)
    nodes.start("c", versions=NEW)
    nodes.serves(*ABC)


def test_after_the_raise_peers_refuse_an_old_program(nodes: Nodes) -> None:
    raised(nodes)
    nodes.wipe("c")
    old = nodes.start("c", versions=OLD)
    refusals = old.peer_port.refusals
    nodes.until(lambda: refusals)
    text = next(iter(refusals.values()))
    assert "has version 1, and the cluster of node" in text
    assert "has version 2; start it with a release that has version 2" in text


def test_a_node_that_was_away_learns_of_the_raise(nodes: Nodes) -> None:
    for name in ABC:
        nodes.start(name, versions=NEW)
    nodes.serves(*ABC)
    nodes.stop("c")
    nodes.hosts["a"].raise_version(2)
    nodes.start("c", versions=NEW)
    nodes.serves(*ABC)
    assert nodes.hosts["c"].version == 2
    assert nodes.hosts["c"].peer_hello("a").version == 2  # type: ignore[union-attr]


def test_a_version_that_a_node_has_not_ends_it(nodes: Nodes) -> None:
    nodes.start("a", (), versions=OLD)
    nodes.serves("a")
    with pytest.raises(VersionNeeded, match="the cluster is of version 2, .* has version 1"):
        nodes.hosts["a"].raise_version(2)
    nodes.hosts["a"].raise_version(1)
    assert nodes.hosts["a"].version == 1


def test_a_snapshot_of_a_later_version_is_not_read(nodes: Nodes) -> None:
    class Newer(Listing):
        def form(self, state: object) -> int:
            return 2

    host = nodes.start("a", (), versions=NEW)
    nodes.serves("a")
    group = host._groups[0]
    group.machine = Newer()
    members = group.node.membership_at(group.applied)
    assert members is not None
    taken = take(group, (), members)
    assert taken.version == 2
    with pytest.raises(VersionNeeded, match="snapshot of group 0 is of version 2"):
        known_members(taken, OLD)
