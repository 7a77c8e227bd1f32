"""A committed entry that a member cannot read, and that no other member has in its log."""

from __future__ import annotations

import pytest

from sim.one import NOW, One, append
from warren_raft.core.ready import Role
from warren_raft.messages import AppendReply, SnapshotChunk, SnapshotWanted, TimeoutNow
from warren_raft.types import Membership

THREE = Membership(("a", "b", "c"))


def wants(one: One, index: int, to: str = "a") -> SnapshotWanted:
    return SnapshotWanted(1, "b", to, one.node.term, index, 0, 0, 0, True)


def chunk(index: int, last_term: int, term: int = 1) -> SnapshotChunk:
    return SnapshotChunk(1, "a", "b", term, index, last_term, 0, (), -1, b"", 5)


def committed(one: One, index: int) -> One:
    """`a` leads and says that everything up to there is committed; nothing of it is applied."""
    node = one.node
    node.step(append(node.term, (node.last_index, 1), commit=index), NOW)
    assert node.commit == index and node.log.applying == 0
    return one


def test_a_follower_asks_its_leader_and_says_when_it_needs_nothing_any_more() -> None:
    one = committed(One(1, 1, 1), 3)
    one.node.entry_lost(2, NOW)
    assert one.node.messages[-1] == wants(one, 2)
    one.node.installed(3, 1, NOW, THREE)
    assert wants(one, 0) in one.out(), "the leader need not send it again"
    assert (one.node.applied, one.node.last_index) == (3, 3)


@pytest.mark.parametrize("index", [1, 4])
def test_what_is_applied_or_not_committed_is_not_asked_for(index: int) -> None:
    one = One(1, 1, 1, 1)
    one.hear(append(1, (4, 1), commit=1))
    assert one.node.applied == 1
    one.node.entry_lost(index, NOW)
    assert one.out() == []
    assert not one.node.may_install(index, 1)


def test_only_a_snapshot_that_has_it_helps() -> None:
    one = committed(One(1, 1, 1, 1), 4)
    one.node.entry_lost(3, NOW)
    assert [one.node.may_install(index, 1) for index in (1, 2, 3, 4)] == [False, False, True, True]
    assert not one.node.may_install(0, 0)


def test_a_snapshot_of_what_is_applied_does_not_help() -> None:
    one = One(1, 1, 1)
    one.hear(append(1, (3, 1), commit=2))
    one.node.step(append(1, (3, 1), commit=3), NOW)
    one.node.entry_lost(3, NOW)
    assert not one.node.may_install(2, 1)
    assert one.node.may_install(3, 1)


def test_a_leader_takes_no_snapshot_and_hands_over_instead() -> None:
    one = One(1, 1).lead()
    one.agree("a", 3)
    one.agree("c", 3)
    node = one.node
    node.log.applying = node.log.applied = 0
    node.entry_lost(1, NOW)
    assert not node.may_install(3, 1)
    lead = node.leadership
    assert lead is not None and lead.transfer_to in ("a", "c")


def test_a_leader_asks_nobody_when_all_others_are_suspected() -> None:
    one = One(1, 1, voters=("a", "b", "c", "d", "e")).lead()
    for voter in ("a", "c", "d", "e"):
        one.agree(voter, 3)
    for voter in ("a", "c"):
        one.node.peer_suspected(voter, NOW)
    one.node.log.applying = one.node.log.applied = 0
    one.node.entry_lost(1, NOW)
    lead = one.node.leadership
    assert lead is not None and lead.transfer_to in ("d", "e")


def test_a_leader_gives_way_when_a_majority_lacks_what_it_cannot_read() -> None:
    """Uncommitted: no member will ever send it, and nothing after it can be committed."""
    one = One(1, 1, 1).lead()
    one.agree("a", 1)
    one.node.entry_lost(2, NOW)
    assert not any(isinstance(each, TimeoutNow) for each in one.out()), "c may have it"
    one.agree("c", 1)
    one.node.entry_lost(2, NOW)
    (asked,) = (each for each in one.out() if isinstance(each, TimeoutNow))
    assert asked.to in ("a", "c") and one.node.role is Role.LEADER
    one.agree("a", 2)
    one.node.entry_lost(2, NOW)
    assert not any(isinstance(each, TimeoutNow) for each in one.out()), "a has it"


def test_what_follows_the_snapshot_in_the_log_stays() -> None:
    """This member has vouched for it: dropped, it could help to elect one that lacks it."""
    one = committed(One(1, 1, 1, 1, 1), 3)
    one.node.entry_lost(2, NOW)
    one.node.installed(3, 1, NOW, THREE)
    assert (one.node.applied, one.node.last_index) == (3, 5)


def test_a_snapshot_that_is_not_needed_is_answered_with_what_is_there() -> None:
    one = One(1, 1, 1)
    one.hear(append(1, (3, 1), commit=2))
    (reply,) = one.hear(chunk(3, 1))
    assert reply == AppendReply(1, "b", "a", 1, True, 3, 3, 0, 0, 0), "and 3 is committed"
    assert one.node.commit == 3


def test_a_snapshot_that_is_needed_goes_to_the_host() -> None:
    one = One(1, 1, 1)
    assert one.hear(chunk(9, 1)) == []
    assert [ready.chunks for ready in one.readys if ready.chunks] == [(chunk(9, 1),)]
    one.node.installed(9, 1, NOW, THREE)
    assert AppendReply(1, "b", "a", 1, True, 9, 9, 0, 0, 0) in one.out()


def test_who_sends_a_snapshot_leads() -> None:
    """The first that a new leader of this term sends may be a snapshot."""
    one = One(1, 1, 1, term=4)
    assert one.node.leader is None
    one.hear(chunk(9, 3, term=4))
    assert one.node.leader == "a"


def test_a_leader_makes_a_snapshot_for_what_it_no_longer_has_as_entries() -> None:
    one = One(1, 1).lead()
    one.agree("a", 3, commit=3)
    one.agree("c", 3, commit=3)
    wanted = SnapshotWanted(1, "a", "b", one.node.term, 2, 0, 0, 0, True)
    one.hear(wanted)
    assert not any(ready.snapshots for ready in one.readys), "it has entry 2: it can be fetched"
    one.log.base, one.log.base_term, one.log.held = 2, 1, one.log.held[2:]
    one.hear(wanted)
    assert [ready.snapshots for ready in one.readys if ready.snapshots] == [("a",)]
    assert one.hear(SnapshotWanted(1, "x", "b", one.node.term, 2, 0, 0, 0, True)) == []


def test_a_transfer_goes_on_when_another_node_is_suspected() -> None:
    one = One(1, voters=("a", "b", "c", "d", "e")).lead()
    for voter in ("a", "c", "d", "e"):
        one.agree(voter, 1)
    one.node.transfer_leader("a", NOW)
    one.node.peer_suspected("c", NOW)
    lead = one.node.leadership
    assert lead is not None and lead.transfer_to == "a"
    one.node.peer_suspected("a", NOW)
    assert lead.transfer_to is None


def test_a_bare_majority_in_hearing_is_enough_to_keep_trying() -> None:
    """Attempts end only when no majority would hear them: two of three are one."""
    one = One(1)
    one.node.peer_suspected("a", NOW)
    assert one.node.majority_heard()
    one.node.peer_suspected("c", NOW)
    assert not one.node.majority_heard()
    assert one.node.role is not Role.LEADER


def test_an_entry_is_found_by_index_and_term_only() -> None:
    one = One(1, 2)
    found = one.node.entry(2, 2)
    assert found is not None and (found.index, found.term) == (2, 2)
    assert one.node.entry(2, 1) is None and one.node.entry(3, 2) is None
