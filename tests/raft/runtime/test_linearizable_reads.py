"""Reads that wait for the leader's word and for this member's state, on hosts of one loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raft.runtime.kit import NODES, Cluster, Listing
from warren_raft.core.ready import ReadState
from warren_raft.errors import NotLeader
from warren_raft.machine import GroupSpec
from warren_raft.runtime.group import LinearizableReads
from warren_raft.runtime.host import Host, UnknownGroup

LONG_MS = 60_000
SHORT_MS = 50


class Answers:
    """Answers in the order in which they came, with what the reader had applied by then."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.heard: list[tuple[bool, int]] = []

    def __call__(self, current: bool) -> None:
        applied = self.host.applied_index(1) if 1 in self.host.groups() else 0
        self.heard.append((current, applied))


def led(root: Path) -> tuple[Cluster, Host, Host]:
    """Three hosts, group 1, its leader and a follower that knows it."""
    cluster = Cluster(root)
    cluster.start_group(1, preferred="a")
    leader = cluster.await_leader(1)
    cluster.until(lambda: all(h.leader(1) == leader.node_id for h in cluster.hosts.values()))
    follower = next(h for h in cluster.hosts.values() if h is not leader)
    return cluster, leader, follower


def test_every_member_reads_what_was_committed_before_and_writes_nothing(tmp_path: Path) -> None:
    cluster, leader, follower = led(tmp_path)
    for round_ in range(20):
        index = leader.propose(1, b"%d" % round_)
        cluster.until(lambda index=index: leader.applied_index(1) >= index)
        heard = [Answers(leader), Answers(follower)]
        for answers in heard:
            answers.host.read_index(1, LONG_MS, answers)
            assert not answers.heard, "not before the voters were asked"
        cluster.until(lambda heard=heard: all(answers.heard for answers in heard))
        for answers in heard:
            assert len(answers.heard) == 1 and answers.heard[0][0]
            assert answers.heard[0][1] >= index, "a state that is older than the question"
    cluster.until(lambda: follower.applied_index(1) == leader.applied_index(1))
    assert len(leader.state(1)) == 20
    assert leader.applied_index(1) == 21, "the 20 entries and the term's first"
    cluster.close()


def test_a_group_of_one_is_its_own_majority(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    host = cluster.hosts["a"]
    host.start_group(GroupSpec(1, ("a",)), Listing())
    cluster.until(lambda: host.is_leader(1))
    answers = Answers(host)
    host.read_index(1, LONG_MS, answers)
    cluster.until(lambda: answers.heard)
    assert answers.heard == [(True, 1)]
    cluster.close()


def test_without_a_majority_no_read_is_current_and_each_is_answered_once(tmp_path: Path) -> None:
    cluster, leader, _ = led(tmp_path)
    for node in NODES:
        if node != leader.node_id:
            cluster.stop(node)
    answers = Answers(leader)
    leader.read_index(1, SHORT_MS, answers)
    cluster.until(lambda: answers.heard)
    assert [current for current, _ in answers.heard] == [False]
    cluster.until(lambda: leader.leader(1) is None)
    with pytest.raises(NotLeader):
        leader.read_index(1, SHORT_MS, answers)
    assert len(answers.heard) == 1
    cluster.close()


def test_a_leader_that_loses_its_office_gives_its_reads_up(tmp_path: Path) -> None:
    cluster, leader, _ = led(tmp_path)
    for node in NODES:
        if node != leader.node_id:
            cluster.stop(node)
    answers = Answers(leader)
    leader.read_index(1, LONG_MS, answers)
    cluster.until(lambda: answers.heard)
    assert [current for current, _ in answers.heard] == [False], "long before its time is over"
    cluster.close()


def test_a_group_that_is_deleted_answers_its_reads(tmp_path: Path) -> None:
    cluster, _, follower = led(tmp_path)
    answers = Answers(follower)
    follower.read_index(1, LONG_MS, answers)
    follower.delete_group(1)
    assert [current for current, _ in answers.heard] == [False]
    with pytest.raises(UnknownGroup):
        follower.read_index(1, LONG_MS, answers)
    assert len(answers.heard) == 1
    cluster.close()


def test_an_answer_to_the_process_before_is_no_answer(tmp_path: Path) -> None:
    cluster, _, follower = led(tmp_path)
    asked: list[int] = []
    for _ in range(2):
        node = follower.node_id
        follower.read_index(1, LONG_MS, Answers(follower))
        asked += follower._groups[1].reads._asked
        cluster.stop(node)
        follower = cluster.start(node)
        follower.start_group(GroupSpec(1, NODES), Listing())
        cluster.until(lambda follower=follower: follower.leader(1) is not None)
    answers = Answers(follower)
    follower.read_index(1, LONG_MS, answers)
    follower._groups[1].reads.confirmed([ReadState(context, 1) for context in asked])
    assert not answers.heard
    cluster.until(lambda: answers.heard)
    assert answers.heard[0][0]
    cluster.close()


def test_a_confirmed_read_waits_until_its_index_is_applied() -> None:
    reads, heard = LinearizableReads(), []
    for context in (1, 2, 3):
        reads.ask(context, lambda current, context=context: heard.append((context, current)))
    reads.confirmed([ReadState(3, 9), ReadState(1, 7), ReadState(8, 1)])
    reads.applied(6)
    assert heard == []
    reads.applied(8)
    assert heard == [(1, True)]
    reads.give_up(3)
    reads.give_up(3)
    reads.applied(9)
    assert heard == [(1, True), (3, False)] and len(reads) == 1
    reads.confirmed([ReadState(2, None)])
    assert heard[-1] == (2, False) and len(reads) == 0
    reads.end()
    assert len(heard) == 3
