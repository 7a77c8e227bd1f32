"""Several hosts, one loop: replication, failover, catching up, restarts."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from pathlib import Path

import pytest

from tests.raft.runtime.kit import NODES, Cluster, Listing, Recorder
from warren_raft.config import RaftConfig
from warren_raft.errors import NotLeader
from warren_raft.machine import Applied, GroupSpec
from warren_raft.runtime.host import Host, UnknownGroup
from warren_raft.storage.errors import DirectoryRefused


def connected(cluster: Cluster) -> None:
    cluster.until(
        lambda: all(
            host.connected(other)
            for node, host in cluster.hosts.items()
            for other in cluster.hosts
            if other != node
        )
    )


def led_by(node: str, root: Path) -> tuple[Cluster, Host]:
    """Start three connected nodes and group 1, of which that node is the preferred leader."""
    cluster = Cluster(root)
    connected(cluster)
    cluster.start_group(1, preferred=node)
    return cluster, cluster.await_leader(1)


def everywhere(cluster: Cluster, group: int, commands: list[bytes]) -> None:
    cluster.until(lambda: all(host.state(group) == commands for host in cluster.hosts.values()))


def test_three_replicate_in_many_groups_at_once(tmp_path: Path) -> None:
    # The others wait longer than any pause of a busy machine: the preferred node leads.
    cluster = Cluster(tmp_path, raft=RaftConfig(new_group_delay_ms=60_000))
    connected(cluster)
    for group in range(1, 31):
        cluster.start_group(group, preferred=NODES[group % 3])
    cluster.until(lambda: all(cluster.leader(group) for group in range(1, 31)))
    for group in range(1, 31):
        leader = cluster.leader(group)
        assert leader is not None and leader.node_id == NODES[group % 3], "the preferred one"
        for number in range(5):
            leader.propose(group, b"%d/%d" % (group, number))
    for group in range(1, 31):
        everywhere(cluster, group, [b"%d/%d" % (group, number) for number in range(5)])
    cluster.close()


def test_the_observer_hears_everything_in_order_and_effects_only_on_the_leader(
    tmp_path: Path,
) -> None:
    cluster, leader = led_by("b", tmp_path)
    assert [leader.propose(1, b"%d" % i) for i in range(3)] == [2, 3, 4]
    everywhere(cluster, 1, [b"0", b"1", b"2"])
    for node, observer in cluster.observers.items():
        heard = [e for e in observer.events if e[0] == "applied"]
        assert heard == [("applied", 1, 2 + i, b"%d" % i, node == "b") for i in range(3)]
    heard = [e for e in cluster.observers["b"].events if e[0] in ("leader", "became", "applied")]
    assert [e for e in heard if e[2] is not None][:2] == [
        ("leader", 1, "b", True),
        ("became", 1, (0,)),
    ]
    assert ("leader", 1, "b", False) in cluster.observers["a"].events
    cluster.close()


def test_only_the_leader_takes_proposals(tmp_path: Path) -> None:
    cluster, _ = led_by("c", tmp_path)
    cluster.until(lambda: cluster.hosts["a"].leader(1) == "c")
    with pytest.raises(NotLeader, match="ask c") as refused:
        cluster.hosts["a"].propose(1, b"x")
    assert refused.value.leader == "c"
    with pytest.raises(UnknownGroup, match="start_group"):
        cluster.hosts["a"].propose(2, b"x")
    cluster.close()


def test_a_leader_that_dies_is_replaced_and_catches_up_when_it_is_back(tmp_path: Path) -> None:
    cluster, first = led_by("a", tmp_path)
    expected = [b"%d" % i for i in range(100)]
    for command in expected:
        first.propose(1, command)
    everywhere(cluster, 1, expected)
    cluster.stop("a")
    second = cluster.await_leader(1)
    assert second.node_id != "a"
    # Far more than one message holds: the one that was away is caught up in pieces.
    for i in range(40):
        command = b"%d" % i * 50_000
        expected.append(command)
        second.propose(1, command)
    everywhere(cluster, 1, expected)
    back = cluster.start("a")
    back.start_group(GroupSpec(1, NODES), Listing())
    everywhere(cluster, 1, expected)
    observer = cluster.observers[second.node_id]
    assert observer.kinds().count("restarted") == 1 and "back" in observer.kinds()
    replayed = [e for e in cluster.observers["a"].events if e[0] == "applied"]
    assert len(replayed) == len(expected) and not any(e[4] for e in replayed)
    cluster.close()


def test_a_whole_cluster_restarts_with_everything_it_committed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, memtable_bytes=10_000)
    connected(cluster)
    cluster.start_group(1)
    cluster.start_group(2)
    expected: dict[int, list[bytes]] = {1: [], 2: []}
    for round_ in range(3):
        for group in (1, 2):
            cluster.await_leader(group)
            for i in range(10):
                command = b"%d %d %d " % (group, round_, i) * 100
                leader = cluster.leader(group)
                assert leader is not None
                leader.propose(group, command)
                expected[group].append(command)
        for group in (1, 2):
            everywhere(cluster, group, expected[group])
        for node in NODES:
            cluster.stop(node)
        for node in NODES:
            cluster.start(node)
            assert cluster.hosts[node].stored_groups() == (1, 2)
            assert cluster.hosts[node].groups() == ()
        for group in (1, 2):
            cluster.start_group(group)
    cluster.close()


def test_leadership_moves_when_asked(tmp_path: Path) -> None:
    cluster, leader = led_by("a", tmp_path)
    leader.propose(1, b"x")
    everywhere(cluster, 1, [b"x"])
    cluster.hosts["a"].transfer(1, "c")
    cluster.until(lambda: cluster.hosts["c"].is_leader(1) and not cluster.hosts["a"].is_leader(1))
    cluster.hosts["c"].propose(1, b"y")
    everywhere(cluster, 1, [b"x", b"y"])
    cluster.close()


def test_without_a_majority_nothing_is_applied_and_all_of_it_afterwards(tmp_path: Path) -> None:
    cluster, leader = led_by("a", tmp_path)
    cluster.stop("b")
    cluster.stop("c")
    cluster.until(lambda: leader.suspected("b") and leader.suspected("c"))
    try:
        leader.propose(1, b"alone")
    except NotLeader:
        pass  # it may have stepped down
    for _ in range(20):
        cluster.loop.run_turn(20)
    assert leader.state(1) == []
    cluster.start("b").start_group(GroupSpec(1, NODES), Listing())
    cluster.await_leader(1).propose(1, b"together")
    cluster.until(lambda: cluster.hosts["b"].state(1)[-1:] == [b"together"])
    cluster.until(lambda: cluster.hosts["a"].state(1) == cluster.hosts["b"].state(1))
    cluster.close()


def test_a_group_of_one_serves_and_restarts_alone(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    host = cluster.hosts["a"]
    host.start_group(GroupSpec(5, ("a",)), Listing())
    cluster.until(lambda: host.is_leader(5))
    host.propose(5, b"x")
    cluster.until(lambda: host.state(5) == [b"x"])
    cluster.stop("a")
    host = cluster.start("a")
    host.start_group(GroupSpec(5, ("a",)), Listing())
    cluster.until(lambda: host.is_leader(5) and host.state(5) == [b"x"])
    assert ("applied", 5, 2, b"x", False) in cluster.observers["a"].events, "a replay"
    cluster.close()


class Counting(Listing):
    """Only the newest three entries are live."""

    def init(self) -> list[int]:  # type: ignore[override]
        return []

    def apply(self, meta, command, state):  # type: ignore[no-untyped-def]
        state.append(meta.index)
        del state[:-3]
        return Applied()

    def live_indexes(self, state: list[int]) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(state)


def test_a_volatile_group_answers_within_a_turn_and_keeps_only_what_is_live(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    host = cluster.hosts["a"]
    host.start_group(GroupSpec(9, ("a",), volatile=True), Counting())
    cluster.until(lambda: host.is_leader(9))
    log = host._groups[9].store.log
    for _ in range(3000):
        index = host.propose(9, b"x" * 100)
        cluster.loop.run_turn(0)
        assert host.applied_index(9) == index, "no disk, no wait"
        assert len(log.entries) <= 600
    assert host.read_entry(9, host.state(9)[0]).data == b"x" * 100
    cluster.stop("a")
    assert cluster.start("a").stored_groups() == ()
    cluster.close()


def test_a_deleted_group_is_gone_after_a_restart_too(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    connected(cluster)
    cluster.start_group(1)
    cluster.start_group(2)
    for group in (1, 2):
        cluster.await_leader(group).propose(group, b"x")
        everywhere(cluster, group, [b"x"])
    for host in cluster.hosts.values():
        host.delete_group(1)
        host.delete_group(77)
        assert host.groups() == (2,)
    cluster.until(lambda: all(h._logs.wal.idle for h in cluster.hosts.values()))
    for node in NODES:
        cluster.stop(node)
    for node in NODES:
        assert cluster.start(node).stored_groups() == (2,)
    cluster.start_group(2)
    cluster.await_leader(2)
    everywhere(cluster, 2, [b"x"])
    cluster.close()


def test_the_observer_hears_that_a_leader_was_deleted(tmp_path: Path) -> None:
    cluster, leader = led_by("b", tmp_path)
    cluster.until(lambda: leader.is_leader(1))
    leader.delete_group(1)
    assert cluster.observers["b"].events[-1] == ("leader", 1, None, False)
    heard = len(cluster.observers["a"].events)
    cluster.hosts["a"].delete_group(1)
    assert len(cluster.observers["a"].events) == heard, "it did not lead"
    cluster.close()


def test_members_that_hear_of_a_new_group_late_still_vote_at_once(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    connected(cluster)
    cluster.hosts["a"].start_group(GroupSpec(1, NODES, preferred="a"), Listing())
    for _ in range(5):
        cluster.loop.run_turn(5)
    cluster.hosts["b"].start_group(GroupSpec(1, NODES, preferred="a"), Listing())
    cluster.until(lambda: cluster.hosts["a"].is_leader(1))
    assert cluster.hosts["a"].term(1) == 1, "its first campaign: no election timeout has passed"
    cluster.close()


def test_an_idle_cluster_sets_no_timers_and_writes_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    connected(cluster)
    for group in range(1, 21):
        cluster.start_group(group, preferred="a")
    cluster.until(lambda: all(cluster.leader(group) for group in range(1, 21)))
    for host in cluster.hosts.values():
        cluster.until(
            lambda host=host: (
                not any(g.timer is not None and g.timer.active for g in host._groups.values())
            )
        )
    batches = [host._logs.wal.batches for host in cluster.hosts.values()]
    turns = cluster.loop.turn
    start = cluster.loop.clock.monotonic_ms()
    while cluster.loop.clock.monotonic_ms() - start < 500:
        cluster.loop.run_turn(100)
    assert [host._logs.wal.batches for host in cluster.hosts.values()] == batches
    assert cluster.loop.turn - turns < 100, "heartbeats of three nodes, ten a second each"
    cluster.close()


def test_a_node_does_not_start_in_anothers_directory(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    config = cluster.config("a")
    cluster.stop("a")
    stranger = Host(replace(config, node="z", peers={}), cluster.loop, Recorder())
    with pytest.raises(DirectoryRefused, match="belongs to node 'a'"):
        stranger.start()
    cluster.start("a")
    cluster.close()


def test_a_long_replay_is_applied_in_bounded_pieces(tmp_path: Path) -> None:
    raft = RaftConfig(apply_bytes_max=10_000)
    cluster = Cluster(tmp_path, memtable_bytes=20_000, raft=raft)
    host = cluster.hosts["a"]
    host.start_group(GroupSpec(5, ("a",)), Listing())
    cluster.until(lambda: host.is_leader(5))
    for _ in range(200):
        host.propose(5, b"x" * 1000)
    cluster.until(lambda: len(host.state(5)) == 200)
    cluster.stop("a")
    host = cluster.start("a")
    host.start_group(GroupSpec(5, ("a",)), Listing())
    group = host._groups[5]
    taken: list[int] = []
    take = group.node.ready

    class Counted:
        """The core, with the committed entries of each Ready counted before they are applied."""

        def __getattr__(self, name: str) -> object:
            return getattr(core, name)

        def ready(self, crowded: Container[str]) -> object:
            ready = take(crowded)
            if ready is not None and ready.committed:
                assert ready.committed[0].index == group.applied + 1, "taken before applied"
                taken.append(len(ready.committed))
            return ready

    core, group.node = group.node, Counted()  # type: ignore[assignment]
    cluster.until(lambda: host.is_leader(5))
    assert len(host.state(5)) == 200 and max(taken) <= 11
    cluster.close()
