"""When followers beyond a majority are sent small appends: several in one message, but soon."""

from __future__ import annotations

from sim.one import NOW, One
from tests.raft.core.test_commit_delay import told
from warren_raft.config import RaftConfig
from warren_raft.core.last_copies import GATHER_BYTES_MAX
from warren_raft.core.membership import AddLearner
from warren_raft.messages import AppendReply, ReadIndex, ReadIndexHeartbeat, ReadIndexHeartbeatReply

DELAY_MS = 5
GATHER_MS = 20
CONFIG = RaftConfig(last_copy_delay_ms=DELAY_MS, commit_delay_ms=GATHER_MS)


def leader(config: RaftConfig = CONFIG, voters: tuple[str, ...] = ("a", "b", "c")) -> One:
    """A leader of term 2 with entries 1 and 2, which every follower knows to be committed."""
    one = One(1, config=config, voters=voters).lead()
    others = sorted(set(voters) - {"b"}, reverse=True)
    for commit in (0, 2):
        for voter in others:
            one.agree(voter, 2, commit=commit)
    assert one.node.commit == 2
    assert one.node.deadline_ms is None
    return one


def propose(one: One, data: bytes = b"x") -> list[tuple[str, int, int]]:
    """Propose a command; return the appends that leave: receiver, entries, commit index."""
    one.node.propose(data, NOW)
    return told(one.out())


def at(one: One, now_ms: int) -> list[tuple[str, int, int]]:
    """Let the leader look at the clock; return the appends that leave."""
    one.node.tick(now_ms)
    return told(one.out())


def test_one_follower_of_two_is_sent_a_small_append_at_once_and_its_answer_commits() -> None:
    one = leader()
    assert propose(one) == [("c", 1, 2)]
    assert one.node.deadline_ms == NOW + DELAY_MS
    assert told(one.agree("c", 3)) == []
    assert one.node.commit == 3


def test_what_is_committed_gathers_until_followers_are_told_of_the_commit() -> None:
    one = leader()
    propose(one)
    one.agree("c", 3)
    assert one.node.deadline_ms == NOW + GATHER_MS
    assert propose(one) == [("c", 1, 3)]
    one.agree("c", 4)
    assert at(one, NOW + GATHER_MS - 1) == []
    assert at(one, NOW + GATHER_MS) == [("a", 2, 4), ("c", 0, 4)]
    for voter in ("a", "c"):
        one.agree(voter, 4, commit=4)
    assert one.node.deadline_ms is None  # an idle group needs no timer


def test_each_commit_may_wait_as_long() -> None:
    """One that was made in time does not count against the next one."""
    one = leader()
    propose(one)
    assert at(one, NOW + 3) == []
    one.node.propose(b"x", NOW + 3)
    assert told(one.out()) == [("c", 1, 2)]
    one.node.tick(NOW + 4)
    one.node.step(AppendReply(1, "c", "b", one.node.term, True, 3, 2), NOW + 4)
    assert told(one.out()) == [] and one.node.commit == 3
    assert at(one, NOW + 4 + DELAY_MS - 1) == []
    assert at(one, NOW + 4 + DELAY_MS) == [("a", 1, 3), ("a", 1, 3)], "in one frame"


def test_the_other_one_is_sent_what_has_gathered_when_a_commit_has_waited() -> None:
    one = leader()
    propose(one)
    one.agree("c", 3)
    assert propose(one) == [("c", 1, 3)]
    assert at(one, NOW + DELAY_MS - 1) == []
    assert at(one, NOW + DELAY_MS) == [("a", 1, 3), ("a", 1, 3)], "of the store, and of the tail"
    one.agree("c", 4)
    one.agree("a", 4)
    assert propose(one) == [("c", 1, 4)]
    for voter in ("a", "c"):
        one.agree(voter, 5, commit=5)
    assert one.node.deadline_ms is None  # an idle group needs no timer


def test_without_a_delay_both_are_sent_it_at_once() -> None:
    assert propose(leader(RaftConfig())) == [("a", 1, 2), ("c", 1, 2)]


def test_what_is_large_is_sent_to_both_at_once() -> None:
    one = leader()
    assert propose(one, bytes(GATHER_BYTES_MAX + 1)) == [("a", 1, 2), ("c", 1, 2)]
    assert propose(one) == [("c", 1, 2)], "the next small one gathers again"


def test_no_more_gathers_than_a_small_append() -> None:
    one = leader()
    half = bytes(GATHER_BYTES_MAX // 2)
    assert propose(one, half) == [("c", 1, 2)]
    assert propose(one, half) == [("c", 1, 2)]
    assert propose(one) == [("a", 3, 2), ("c", 1, 2)]


def test_a_follower_that_answers_before_the_one_that_is_waited_for_takes_its_place() -> None:
    one = leader()
    propose(one)
    assert at(one, NOW + DELAY_MS) == [("a", 1, 2)]
    one.agree("a", 3)
    assert one.node.commit == 3, "c has not answered"
    assert propose(one) == [("a", 1, 3)], "only the first commit waited"
    one.agree("c", 3)
    assert propose(one) == [("a", 1, 3)], "an answer that changes nothing changes no order"


def test_nothing_gathers_while_a_follower_is_unreachable() -> None:
    one = leader()
    one.node.peer_suspected("c", NOW)
    assert propose(one) == [("a", 1, 2)]
    one = leader()
    one.node.peer_suspected("a", NOW)
    assert propose(one) == [("c", 1, 2)]
    assert one.node.deadline_ms is not None


def test_a_follower_that_was_being_gathered_for_is_sent_it_when_the_other_is_lost() -> None:
    one = leader()
    propose(one)
    one.node.peer_suspected("c", NOW)
    assert told(one.out()) == [("a", 1, 2)]


def test_of_five_two_are_sent_it_at_once() -> None:
    one = leader(voters=("a", "b", "c", "d", "e"))
    assert len(propose(one)) == 2
    assert len(at(one, NOW + DELAY_MS)) == 2


def test_a_group_of_two_waits_for_nothing() -> None:
    one = leader(voters=("a", "b"))
    assert propose(one) == [("a", 1, 2)]


def test_a_follower_of_another_group_is_the_late_one() -> None:
    one = leader()
    one.node.leadership.late.choose(one.node.leadership.counting, 1, group=2)
    assert propose(one) == [("a", 1, 2)]


def test_what_a_read_of_a_late_follower_needs_is_sent_with_its_answer() -> None:
    one = leader()
    propose(one)
    one.agree("c", 3)
    asked = one.hear(ReadIndex(1, "a", "b", one.node.term, 7))
    (round_,) = {each.round for each in asked if isinstance(each, ReadIndexHeartbeat)}
    sent = one.hear(ReadIndexHeartbeatReply(1, "c", "b", one.node.term, round_, 0))
    assert ("a", 1, 3) in told(sent)


def test_the_target_of_a_transfer_is_sent_what_it_lacks_at_once() -> None:
    one = leader()
    propose(one)
    one.node.transfer_leader("a", NOW)
    assert ("a", 1, 2) in told(one.out())


def test_a_new_membership_is_sent_to_all_at_once() -> None:
    one = leader()
    one.node.propose_change(AddLearner("d"), NOW)
    assert {to for to, _, _ in told(one.out())} >= {"a", "c"}
