"""When followers hear of what is committed: with the next entries, or `commit_delay_ms` later."""

from __future__ import annotations

from sim.one import NOW, One
from warren_raft.config import RaftConfig
from warren_raft.core.membership import AddLearner
from warren_raft.messages import Append, ReadIndex, ReadIndexHeartbeat, ReadIndexHeartbeatReply

DELAY_MS = 10


def leader(delay_ms: int = DELAY_MS) -> One:
    """A leader of term 2 that has entries 1 and 2; both followers know that 2 is committed."""
    one = One(1, config=RaftConfig(commit_delay_ms=delay_ms)).lead()
    for voter in ("a", "c"):
        one.agree(voter, 2)
    for voter in ("a", "c"):
        one.agree(voter, 2, commit=2)
    assert one.node.commit == 2
    return one


def told(sent: list[object]) -> list[tuple[str, int, int]]:
    """The appends among the messages: receiver, number of entries, commit index."""
    return [(one.to, len(one.entries), one.commit) for one in sent if isinstance(one, Append)]


def propose(one: One) -> list[tuple[str, int, int]]:
    """Propose a command; return the appends that leave."""
    one.node.propose(b"x", NOW)
    return told(one.out())


def test_the_first_commit_of_a_term_is_told_at_once() -> None:
    one = One(1, config=RaftConfig(commit_delay_ms=DELAY_MS)).lead()
    assert told(one.agree("a", 2)) == [("a", 0, 2)]
    assert told(one.agree("c", 2)) == [("c", 0, 2)]


def test_a_commit_waits_for_its_time_and_is_told_once() -> None:
    one = leader()
    assert propose(one) == [("a", 1, 2), ("c", 1, 2)]
    assert told(one.agree("a", 3)) == []
    assert one.node.commit == 3
    assert one.node.deadline_ms == NOW + DELAY_MS
    assert told(one.agree("c", 3)) == []
    one.node.tick(NOW + DELAY_MS - 1)
    assert told(one.out()) == []
    one.node.tick(NOW + DELAY_MS)
    assert told(one.out()) == [("a", 0, 3), ("c", 0, 3)]
    for voter in ("a", "c"):
        one.agree(voter, 3, commit=3)
    assert one.node.deadline_ms is None  # an idle group needs no timer


def test_the_next_entries_tell_it() -> None:
    one = leader()
    propose(one)
    one.agree("a", 3)
    one.agree("c", 3)
    assert propose(one) == [("a", 1, 3), ("c", 1, 3)]
    due = one.node.deadline_ms
    assert due is not None and due > NOW + DELAY_MS  # only that of the repetition is left


def test_a_follower_that_was_told_nothing_is_told_although_another_one_was() -> None:
    one = leader()
    propose(one)
    one.agree("a", 3)  # c has not answered, but the entry was sent to it
    one.node.tick(NOW + DELAY_MS)
    assert told(one.out()) == [("a", 0, 3), ("c", 0, 3)]


def test_without_a_delay_it_is_told_at_once() -> None:
    one = leader(delay_ms=0)
    propose(one)
    assert told(one.agree("a", 3)) == [("a", 0, 3), ("c", 0, 3)]


def test_what_a_read_of_a_follower_needs_is_told_with_its_answer() -> None:
    one = leader()
    propose(one)
    assert told(one.agree("a", 3)) == []
    asked = one.hear(ReadIndex(1, "c", "b", one.node.term, 7))
    (round_,) = {each.round for each in asked if isinstance(each, ReadIndexHeartbeat)}
    sent = one.hear(ReadIndexHeartbeatReply(1, "a", "b", one.node.term, round_, 0))
    assert ("c", 0, 3) in told(sent)


def test_a_new_membership_is_told_at_once() -> None:
    one = leader()
    one.node.propose_change(AddLearner("d"), NOW)
    one.out()
    assert ("a", 0, 3) in told(one.agree("a", 3))


def test_a_paused_follower_is_not_waited_for() -> None:
    one = leader()
    propose(one)
    one.node.peer_suspected("c", NOW)
    one.agree("a", 3)
    one.node.tick(NOW + DELAY_MS)
    assert told(one.out()) == [("a", 0, 3)]
    one.agree("a", 3, commit=3)
    assert one.node.deadline_ms is None
