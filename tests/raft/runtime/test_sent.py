"""A leader's word that a follower has an entry holds for what it sends to it next."""

from __future__ import annotations

from pathlib import Path

from tests.raft.runtime.kit import Cluster
from warren_raft.machine import Applied, Meta
from warren_raft.runtime.host import Host
from warren_raft.runtime.observer import Observer
from warren_raft.types import GroupId


class Tell(Observer):
    """On the leader: tells the follower of each entry that it should have, as soon as applied."""

    def __init__(self, cluster: Cluster, to: str) -> None:
        self.cluster = cluster
        self.to = to
        self.told = 0

    def applied(
        self, group: GroupId, meta: Meta, data: bytes, applied: Applied, leading: bool
    ) -> None:
        leader = self.cluster.hosts["a"]
        term = leader.sent_term(group, self.to, meta.index)
        if leading and term:
            self.told += 1
            leader.send(self.to, [b"%d %d %d" % (meta.index, term, len(data))])


def led_by_a(root: Path) -> tuple[Cluster, Host]:
    """Three hosts; the first leads group 1."""
    cluster = Cluster(root)
    hosts = cluster.hosts
    cluster.until(lambda: all(h.connected(o) for n, h in hosts.items() for o in hosts if o != n))
    cluster.start_group(1, preferred="a")
    leader = cluster.await_leader(1)
    assert leader is hosts["a"]
    return cluster, leader


def holds(leader: Host, follower: str) -> int:
    """Up to where the leader knows a follower of group 1 to hold the log."""
    leadership = leader._groups[1].node.leadership
    assert leadership is not None
    return leadership.progress[follower].match


def test_what_is_said_to_be_there_is_there_when_the_message_comes(tmp_path: Path) -> None:
    cluster, leader = led_by_a(tmp_path)
    cluster.until(lambda: holds(leader, "b") == 1)
    tell = Tell(cluster, "b")
    leader._ready_loop._observer = tell
    follower = cluster.hosts["b"]
    found = []

    def look(sender: str, body: memoryview) -> None:
        index, term, size = map(int, bytes(body).split())
        entry = follower.entry(1, index, term)
        assert entry is not None and len(entry.data) == size, (index, term)
        assert follower.entry(1, index, term + 1) is None
        found.append(index)

    follower._on_message = look
    for number in range(200):
        leader.propose(1, b"x" * (number * 37 % 5000))
        if number % 3 == 0:
            cluster.loop.run_turn(0)
    cluster.until(lambda: len(follower.state(1)) == 200 and len(found) == tell.told)
    assert len(found) > 150, "most entries are on their way before a majority has them"
    assert follower.entry(1, follower.applied_index(1) + 1, 1) is None
    assert follower.entry(1, 0, 0) is None and follower.entry(2, 1, 1) is None
    cluster.close()


def test_nothing_is_said_of_a_follower_that_is_away(tmp_path: Path) -> None:
    cluster, leader = led_by_a(tmp_path)
    first = leader.propose(1, b"first")
    cluster.until(lambda: holds(leader, "c") == first)
    cluster.stop("c")
    cluster.until(lambda: leader.suspected("c"))
    later = leader.propose(1, b"later")
    cluster.until(lambda: len(leader.state(1)) == 2)
    assert not leader.sent_term(1, "c", later)
    assert not leader.sent_term(1, "c", first), "it may come back with another disk"
    assert leader.sent_term(1, "b", first)
    assert not cluster.hosts["b"].sent_term(1, "c", first), "only a leader knows"
    assert not leader.sent_term(1, "x", first) and not leader.sent_term(2, "c", first)
    cluster.close()
