"""Members come, go, are replaced, lose their disks, while commands flow."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.raft.runtime.kit import NODES, Cluster, Listing
from warren_raft.core.membership import AddLearner, Change, Remove
from warren_raft.errors import MembershipRefused, NotLeader
from warren_raft.machine import GroupSpec
from warren_raft.runtime.host import Host
from warren_raft.types import Membership

GROUP = 7


class Group:
    """One group that is to have the members `wanted`, and a stream of commands into it.

    told  commands that a leader has applied: they must never be lost
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.wanted: tuple[str, ...] = cluster.nodes
        self.sent = 0
        for node in cluster.nodes:
            self.begin(node)
        cluster.await_leader(GROUP)

    def begin(self, node: str) -> None:
        """As its owner does at every start: what is on disk counts, else it joins."""
        for other, known in self.cluster.hosts.items():  # the registry tells all of all
            if other != node:
                known.add_peer(node, ("127.0.0.1", self.cluster.ports[node]))
                self.cluster.hosts[node].add_peer(other, ("127.0.0.1", known.port))
        founding = node in NODES and not (self.cluster.root / node / "joined").exists()
        voters = NODES if founding else self.wanted
        host = self.cluster.hosts[node]
        host.start_group(GroupSpec(GROUP, voters, joining=not founding), Listing())

    def add(self, node: str) -> Host:
        host = self.cluster.start(node)
        (self.cluster.root / node / "joined").touch()
        self.begin(node)
        return host

    def back(self, node: str) -> Host:
        host = self.cluster.start(node)
        self.begin(node)
        return host

    def wipe(self, node: str) -> None:
        self.cluster.kill(node)
        shutil.rmtree(self.cluster.root / node)

    # ------------------------------------------------------------ what is asked of the leader

    @property
    def leader(self) -> Host | None:
        """The leader of the latest term that says so."""
        leaders = [host for host in self.cluster.hosts.values() if host.is_leader(GROUP)]
        return max(leaders, key=lambda host: host.term(GROUP), default=None)

    def speak(self) -> None:
        leader = self.leader
        if leader is not None:
            with suppress(NotLeader):
                leader.propose(GROUP, b"%06d" % self.sent)
                self.sent += 1

    def towards(self) -> bool:
        """One change towards `wanted`, if the moment allows; returns whether it is reached."""
        leader = self.leader
        if leader is None:
            return False
        members = leader.members(GROUP)
        wanted = set(self.wanted)
        if set(members.voters) == wanted and not members.learners:
            return not any(state.changing for state in leader.member_states(GROUP))
        missing = sorted(wanted - set(members.voters) - set(members.learners))
        surplus = sorted((set(members.voters) | set(members.learners)) - wanted)
        changes: list[Change] = [AddLearner(node) for node in missing]
        if not missing and not wanted & set(members.learners):
            changes += [Remove(node) for node in surplus]
        with suppress(NotLeader, MembershipRefused):
            for change in changes[:1]:
                leader.change_members(GROUP, change)
        return False

    def reach(self, *wanted: str) -> None:
        """Until those, and only those, are voters; commands flow all the time."""
        self.wanted = wanted

        def step() -> bool:
            self.speak()
            return self.towards()

        self.cluster.until(step)

    def settled(self, *nodes: str) -> list[bytes]:
        """What all of them hold in the end."""
        hosts = [self.cluster.hosts[node] for node in nodes]

        def same() -> bool:
            leader = self.leader
            return leader is not None and all(
                host.applied_index(GROUP) == leader.member_states(GROUP)[0].last for host in hosts
            )

        self.cluster.until(same)
        states = [host.state(GROUP) for host in hosts]
        assert all(state == states[0] for state in states)
        assert states[0] == sorted(states[0]), "in the order in which they were proposed"
        for host in hosts:
            host._groups[GROUP].node.check()
            host._groups[GROUP].store.log.check()
        return list(states[0])


@pytest.fixture()
def make(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    made: list[Cluster] = []

    def build(nodes: tuple[str, ...] = NODES, **settings: Any) -> Group:
        cluster = Cluster(tmp_path, nodes, suspect_after_ms=500, reconnect_ms_max=60, **settings)
        made.append(cluster)
        return Group(cluster)

    yield build
    for cluster in made:
        cluster.close()


def applied_by(cluster: Cluster) -> set[bytes]:
    """Commands that some node applied as the leader: their clients have been answered."""
    return {
        event[3]
        for observer in cluster.observers.values()
        for event in observer.events
        if event[0] == "applied" and event[4]
    }


def test_a_fourth_member_is_added_under_load_and_votes(make: Callable[..., Group]) -> None:
    group = make()
    for _ in range(50):
        group.speak()
    joined = group.add("d")
    assert joined._groups[GROUP].node.member_id and not joined._groups[GROUP].node.is_voter
    group.reach("a", "b", "c", "d")
    held = group.settled("a", "b", "c", "d")
    assert len(held) == group.sent > 50
    member = joined._groups[GROUP].node.member_id
    for node in "abcd":
        members = group.cluster.hosts[node].members(GROUP)
        assert members == Membership(("a", "b", "c", "d"), (), (("d", member),))
        told = [e[2] for e in group.cluster.observers[node].events if e[0] == "members"]
        assert told == [Membership(("a", "b", "c"), ("d",)), members]
    group.cluster.stop("a")  # three of four: d makes the majority with two others
    group.cluster.until(lambda: group.leader is not None and group.leader.node_id != "a")
    before = group.sent
    group.speak()
    group.cluster.until(lambda: len(joined.state(GROUP)) == before + 1)


def test_a_member_is_removed_and_does_not_disturb(make: Callable[..., Group]) -> None:
    group = make()
    leader = group.leader
    assert leader is not None
    gone = next(node for node in NODES if node != leader.node_id)
    rest = tuple(node for node in NODES if node != gone)
    group.reach(*rest)
    removed = group.cluster.hosts[gone]
    group.cluster.until(lambda: gone not in removed.members(GROUP))  # it hears of it
    group.cluster.until(
        lambda: any(e[0] == "members" for e in group.cluster.observers[gone].events)
    )
    term = leader.term(GROUP)
    deadline = group.cluster.loop.clock.monotonic_ms() + 1_500
    group.cluster.until(lambda: group.cluster.loop.clock.monotonic_ms() > deadline)
    assert leader.is_leader(GROUP) and leader.term(GROUP) == term == removed.term(GROUP)
    removed.delete_group(GROUP)
    assert not removed.stored(GROUP)
    group.settled(*rest)


def test_the_leader_removes_itself_and_another_one_follows_at_once(
    make: Callable[..., Group],
) -> None:
    group = make()
    leader = group.leader
    assert leader is not None
    rest = tuple(node for node in NODES if node != leader.node_id)
    leader.change_members(GROUP, Remove(leader.node_id))
    group.cluster.until(
        lambda: group.leader is not None and group.leader.node_id != leader.node_id, 2.0
    )
    group.reach(*rest)
    assert leader.node_id not in group.cluster.hosts[rest[0]].members(GROUP)
    assert applied_by(group.cluster) <= set(group.settled(*rest))


def test_a_member_is_replaced(make: Callable[..., Group]) -> None:
    group = make()
    group.add("d")
    group.reach("a", "b", "d")
    group.cluster.stop("c")
    held = group.settled("a", "b", "d")
    assert applied_by(group.cluster) <= set(held)


def test_what_would_lose_the_majority_is_refused_with_the_way_out(
    make: Callable[..., Group],
) -> None:
    group = make()
    leader = group.leader
    assert leader is not None
    away = next(node for node in NODES if node != leader.node_id)
    other = next(node for node in NODES if node not in (leader.node_id, away))
    group.cluster.stop(away)
    group.cluster.until(lambda: leader.suspected(away))
    with pytest.raises(MembershipRefused, match="no majority; first restart or remove others"):
        leader.change_members(GROUP, Remove(other))
    assert leader.members(GROUP).voters == NODES
    group.reach(leader.node_id, other)  # the one that is away can be removed


def test_one_that_nobody_knows_is_added_and_waited_for(make: Callable[..., Group]) -> None:
    group = make()
    leader = group.leader
    assert leader is not None
    leader.change_members(GROUP, AddLearner("d"))
    group.cluster.until(lambda: "d" in leader.members(GROUP).learners)
    state = next(s for s in leader.member_states(GROUP) if s.node == "d")
    assert state.suspected and not state.voter and state.match == 0
    group.add("d")
    group.reach("a", "b", "c", "d")
    group.settled("a", "b", "c", "d")


def test_a_wiped_member_is_another_voter_until_it_has_caught_up(
    make: Callable[..., Group],
) -> None:
    group = make()
    for _ in range(30):
        group.speak()
        group.cluster.loop.run_turn(5)
    leader = group.leader
    assert leader is not None
    lost = next(node for node in NODES if node != leader.node_id)
    group.wipe(lost)
    group.cluster.until(lambda: leader.suspected(lost))
    host = group.add(lost)
    seen: set[tuple[bool, bool]] = set()

    def watch() -> bool:
        group.speak()
        for state in leader.member_states(GROUP) if leader.is_leader(GROUP) else ():
            if state.node == lost:
                seen.add((state.voter, state.lost))
        return group.towards() and bool(leader.members(GROUP).ids)

    group.cluster.until(watch)
    assert (False, False) in seen, "it was a learner meanwhile"
    assert dict(leader.members(GROUP).ids) == {lost: host._groups[GROUP].node.member_id}
    held = group.settled(*NODES)
    assert applied_by(group.cluster) <= set(held)


def test_a_member_id_is_kept_over_restarts_and_snapshots(make: Callable[..., Group]) -> None:
    group = make(wal_file_bytes=8_000, snapshot_entries_min=10, snapshot_bytes_min=200)
    joined = group.add("d")
    group.reach("a", "b", "d")
    group.cluster.stop("c")
    member = joined._groups[GROUP].node.member_id

    def snapshots() -> bool:
        group.speak()
        return all(
            host._groups[GROUP].store.snapshot_index > 50 for host in group.cluster.hosts.values()
        )

    group.cluster.until(snapshots)
    held = group.settled("a", "b", "d")
    for node in ("d", "a", "b"):
        group.cluster.kill(node)
    for node in ("d", "a", "b"):
        host = group.back(node)
        assert host.members(GROUP) == Membership(("a", "b", "d"), (), (("d", member),)), node
    assert group.cluster.hosts["d"]._groups[GROUP].node.member_id == member
    group.reach("a", "b", "d")
    assert group.settled("a", "b", "d")[: len(held)] == held


def compacted(make: Callable[..., Group]) -> Group:
    """Make a group without its first 50 entries on any member: a new member needs a snapshot."""
    group = make(
        wal_file_bytes=8_000,
        snapshot_entries_min=10,
        snapshot_bytes_min=200,
        retained_bytes_max=500,
    )

    def dropped() -> bool:
        group.speak()
        return all(
            host._groups[GROUP].store.log.first > 50 for host in group.cluster.hosts.values()
        )

    group.cluster.until(dropped)
    return group


def test_a_snapshot_brings_the_members_and_its_progress_is_seen(
    make: Callable[..., Group],
) -> None:
    group = compacted(make)
    joined = group.add("d")
    seen: list[tuple[int, int]] = []

    def step() -> bool:
        group.speak()
        leader = group.leader
        if leader is not None:
            for state in leader.member_states(GROUP):
                if state.node == "d" and state.total_bytes:
                    seen.append((state.sent_bytes, state.total_bytes))
        return group.towards()

    group.wanted = ("a", "b", "c", "d")
    group.cluster.until(step)
    assert seen and all(0 <= sent <= of for sent, of in seen)
    group.settled("a", "b", "c", "d")
    assert joined._groups[GROUP].store.snapshot_index
    told = [e[2] for e in group.cluster.observers["d"].events if e[0] == "members"]
    assert told and told[-1] == joined.members(GROUP)


def test_a_transfer_to_a_member_that_is_removed_ends(make: Callable[..., Group]) -> None:
    group = compacted(make)
    leader = group.leader
    assert leader is not None
    joined = group.add("d")
    joined._transfers.take = lambda *args: False  # type: ignore[method-assign]  # it never answers
    leader.change_members(GROUP, AddLearner("d"))
    group.cluster.until(lambda: leader._transfers.sending(GROUP))
    group.reach("a", "b", "c")
    group.cluster.until(lambda: not leader._transfers.sending(GROUP))
    assert not leader._groups[GROUP].sending
    group.settled("a", "b", "c")


@pytest.mark.parametrize("seed", range(6))
def test_kills_at_any_moment_of_any_change_lose_nothing(
    make: Callable[..., Group], seed: int
) -> None:
    """One node at a time, at chance, while members come and go and snapshots are made."""
    rng = Random(seed)
    group = make(wal_file_bytes=16_000, snapshot_entries_min=20, snapshot_bytes_min=500)
    cluster = group.cluster
    group.add("d")
    group.add("e")
    down: dict[str, int] = {}
    turns = 0

    def step() -> bool:
        nonlocal turns
        turns += 1
        group.speak()
        for node in [node for node, when in down.items() if when <= turns]:
            del down[node]
            group.back(node)
        if not down and turns < 150 and rng.random() < 0.04:
            node = rng.choice(sorted(cluster.hosts))
            cluster.kill(node)
            down[node] = turns + rng.randrange(1, 40)
        return group.towards() and not down

    for wanted in (("a", "b", "c", "d"), ("b", "c", "d"), ("b", "d", "e"), ("a", "b", "d", "e")):
        group.wanted = wanted
        turns = 0
        cluster.until(step)
    held = group.settled(*group.wanted)
    assert applied_by(cluster) <= set(held)
    assert len(held) == len(set(held))
