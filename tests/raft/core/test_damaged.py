"""A member that could not read the end of its log, or its CONFIG entries, when it started."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from sim.changing import THREE, config
from sim.disk import Log
from sim.one import NOW, One, append
from warren_raft.config import RaftConfig
from warren_raft.core import damaged as core_damaged
from warren_raft.core.membership import encode
from warren_raft.core.raft_node import RaftNode
from warren_raft.core.ready import Role
from warren_raft.messages import PreVote, TimeoutNow, Vote, VoteReply
from warren_raft.types import Entry, EntryKind, HardState, Index, Membership

FOUR = Membership(("a", "b", "c", "d"))
FIVE = Membership(("a", "b", "c", "d", "e"))


class Rotten(Log):
    """Entries of it cannot be read until they are healed."""

    def __init__(self, entries: Sequence[Entry], damaged: set[Index]) -> None:
        super().__init__(entries)
        self.damaged = damaged

    def last_time_ms(self) -> int | None:  # type: ignore[override]
        return None if self.last_index() in self.damaged else super().last_time_ms()

    def configs(self) -> Sequence[tuple[Index, bytes | None]]:  # type: ignore[override]
        return [(at, None if at in self.damaged else data) for at, data in super().configs()]


def one(*damaged: Index, kinds: str = "xxx") -> tuple[One, Rotten]:
    """`b`, with COMMANDs, and 4 and 5 for a CONFIG with so many voters; an hour ahead."""
    entries = [
        Entry(at, 1, EntryKind.COMMAND, NOW + 3_600_000, b"x")
        if kind == "x"
        else Entry(at, 1, EntryKind.CONFIG, NOW, encode({"4": FOUR, "5": FIVE}[kind]))
        for at, kind in enumerate(kinds, 1)
    ]
    made, log = One(1), Rotten(entries, set(damaged))
    made.log = log
    made.node = RaftNode(
        1, "b", THREE, HardState(1, None), log, RaftConfig(), Random(5), NOW, configs=log.configs()
    )
    return made, log


def test_it_does_not_stand_before_it_knows_the_logs_time() -> None:
    b, log = one(3)
    assert b.node.unread and not b.node.stands
    b.node.campaign(NOW)
    b.hear(TimeoutNow(1, "a", "b", 1, 0))
    b.node.tick(NOW + 10_000)
    assert b.node.role is Role.FOLLOWER and b.node.term == 1
    assert {type(m) for m in b.out()} == {PreVote}, "it asks for the leader"
    log.damaged.clear()
    core_damaged.look_again(b.node)
    assert not b.node.unread
    b.lead()
    assert b.log.held[-1].time_ms == NOW + 3_600_000


def test_it_votes_and_keeps_what_it_is_sent() -> None:
    b, _ = one(3)
    answers = b.hear(Vote(1, "a", "b", 2, 3, 1))
    assert [(type(m), m.granted) for m in answers if type(m) is VoteReply] == [(VoteReply, True)]
    b.hear(append(2, (3, 1), 2, commit=4))
    assert b.node.commit == 4
    core_damaged.look_again(b.node)
    assert not b.node.unread, "the log's time is that of what came"
    b.lead()


@pytest.mark.parametrize("damaged", [(1,), (2,), (1, 2)])
def test_it_counts_by_no_membership_that_another_may_have_followed(
    damaged: tuple[Index, ...],
) -> None:
    b, log = one(*damaged, kinds="45x")
    b.node.campaign(NOW)
    b.hear(TimeoutNow(1, "a", "b", 1, 0))
    assert b.node.role is Role.FOLLOWER and not b.out()
    assert b.node.membership_at(2) is None, "a snapshot would tell others of it"
    log.damaged.clear()
    core_damaged.look_again(b.node)
    assert b.node.membership == FIVE
    assert (b.node.membership_at(1), b.node.membership_at(0)) == (FOUR, THREE)
    b.lead()


def test_it_is_promoted_by_what_it_cannot_read() -> None:
    """It asks although it may be no member, and stands as soon as it knows that it is one."""
    b, log = one(1, kinds="4xx")
    b.node = RaftNode(
        1, "d", THREE, HardState(1, None), log, RaftConfig(), Random(5), NOW, configs=log.configs()
    )
    assert not b.node.is_voter and b.node.asks
    log.damaged.clear()
    core_damaged.look_again(b.node)
    assert b.node.is_voter and b.node.stands and b.node.election_at_ms is not None


def test_one_that_was_cut_is_missed_no_longer() -> None:
    b, log = one(2, kinds="45x")
    b.hear(append(2, (1, 1), 2))
    core_damaged.look_again(b.node)
    assert not b.node.unread and b.node.membership == FOUR
    b.hear(config(FIVE, (2, 2), 2))
    assert b.node.membership == FIVE
    log.damaged.clear()
    core_damaged.look_again(b.node)
    assert b.node.membership == FIVE


def test_one_that_has_given_up_goes_on_when_all_is_known() -> None:
    b, log = one(1, kinds="4xx")
    for voter in ("a", "c"):
        b.node.peer_suspected(voter, NOW)
    now = NOW
    while b.node.election_at_ms is not None:
        now = b.node.election_at_ms
        b.node.tick(now)
        b.out()
    log.damaged.clear()
    core_damaged.look_again(b.node)
    assert b.node.election_at_ms is not None


def test_a_snapshot_takes_the_place_of_what_is_missing() -> None:
    b, _ = one(2, 3, kinds="45x")
    b.node.installed(9, 1, NOW, FIVE)
    core_damaged.look_again(b.node)
    assert not b.node.unread and b.node.membership == FIVE
    b.node.check()
