"""One test per sentence of the thesis's chapter 4.

Every test drives a single member, `b` of `a b c`, with the messages the sentence speaks of.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from sim.changing import HOLD, THREE, catch_up, config, leader, sent
from sim.one import NOW, One, append
from warren_raft import messages as rpc
from warren_raft.config import RaftConfig
from warren_raft.core import membership_change
from warren_raft.core.membership import AddLearner, Change, Demote, Promote, Remove, decode
from warren_raft.core.raft_node import RaftNode
from warren_raft.core.ready import Role
from warren_raft.errors import MembershipRefused, NotLeader
from warren_raft.types import Membership

# ---------------------------------------------------------------- 4.1, safety


def test_a_membership_is_in_effect_as_soon_as_it_is_in_the_leaders_log() -> None:
    one = leader()
    assert one.node.propose_change(Remove("c"), NOW) == 2
    assert one.node.membership == Membership(("a", "b"))
    assert one.node.change_under_way
    one.out()
    one.agree("c", 2)
    assert one.node.commit == 1, "c's copy is none of the majority any more"
    one.agree("a", 2)
    assert one.node.commit == 2 and not one.node.change_under_way


def test_a_follower_uses_the_latest_membership_in_its_log() -> None:
    one = One()
    one.hear(config(Membership(("a", "b", "c", "d")), (0, 0), 1))
    assert one.node.commit == 0
    assert one.node.membership.voters == ("a", "b", "c", "d")
    one.node.peer_suspected("a", NOW)
    one.node.campaign(NOW)
    asked = one.out()
    assert [m.to for m in asked if type(m) is rpc.PreVote] == ["a", "c", "d"]


def test_a_membership_falls_when_its_entry_is_cut() -> None:
    one = One()
    one.hear(append(1, (0, 0), 1, commit=1))
    one.hear(config(Membership(("a", "b")), (1, 1), 1))
    assert one.node.membership == Membership(("a", "b"))
    one.hear(append(2, (1, 1), 2, sender="c"))
    assert one.node.membership == THREE
    assert one.node.is_voter


def test_a_log_that_is_read_again_at_start_gives_the_same_membership() -> None:
    one = One()
    one.hear(config(Membership(("a", "b", "c"), ("d",)), (0, 0), 1))
    one.hear(config(Membership(("a", "b", "c", "d"), (), (("d", 5),)), (1, 1), 1))
    assert one.log.configs() == [(1, one.log.held[0].data), (2, one.log.held[1].data)]
    again = RaftNode(
        1, "b", THREE, one.hard, one.log, RaftConfig(), Random(1), NOW, configs=one.log.configs()
    )
    assert again.membership == one.node.membership
    assert again.membership_at(0) == THREE
    assert again.membership_at(1) == Membership(("a", "b", "c"), ("d",))


def granted_after(one: One, member: str, change: Any, why: str) -> None:
    """Refused for now; granted when the member has the second entry."""
    with pytest.raises(MembershipRefused, match=why):
        one.node.propose_change(change, NOW)
    one.out()
    one.agree(member, 2)
    one.node.propose_change(change, NOW)


def test_the_next_change_waits_until_the_one_before_is_committed() -> None:
    one = leader()
    one.node.propose_change(AddLearner("d"), NOW)
    granted_after(one, "a", Remove("c"), "another change is under way")


def test_no_change_before_an_entry_of_the_leaders_own_term_is_committed() -> None:
    """The single-server bug."""
    one = One(1, 1).lead()
    with pytest.raises(MembershipRefused, match="nothing of this leader's term is committed"):
        one.node.propose_change(Remove("c"), NOW)
    one.agree("a", 3)
    one.node.propose_change(Remove("c"), NOW)


def test_no_change_while_leadership_is_handed_over() -> None:
    one = leader()
    one.node.propose(b"x", NOW)
    one.node.transfer_leader("a", NOW)
    with pytest.raises(MembershipRefused, match="handed to a"):
        one.node.propose_change(Remove("c"), NOW)


def test_only_a_leader_changes_members() -> None:
    one = One()
    with pytest.raises(NotLeader):
        one.node.propose_change(Remove("c"), NOW)
    with pytest.raises(NotLeader):
        one.node.member_states()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (AddLearner("a"), "it is a member already"),
        (Promote("a"), "it votes already"),
        (Promote("x"), "add it as a learner first"),
        (Demote("x"), "it is no member"),
        (Remove("x"), "it is no member"),
    ],
)
def test_refusals_say_why(change: Change, why: str) -> None:
    one = leader()
    with pytest.raises(MembershipRefused, match=why):
        one.node.propose_change(change, NOW)
    assert one.node.last_index == 1


def test_the_last_voter_stays() -> None:
    one = One(voters=("b",))
    one.node.tick(NOW)
    one.out()
    for change in (Remove("b"), Demote("b")):
        with pytest.raises(MembershipRefused, match="last voter"):
            one.node.propose_change(change, NOW)


# ---------------------------------------------------------------- 4.2, availability


def test_a_change_that_would_lose_the_majority_is_refused() -> None:
    one = leader()
    one.node.peer_suspected("c", NOW)
    with pytest.raises(MembershipRefused, match=r"\(b, c\) only b would be reachable"):
        one.node.propose_change(Remove("a"), NOW)
    one.node.propose_change(Remove("c"), NOW)
    assert one.node.membership == Membership(("a", "b"))


@pytest.mark.specification(
    "quorum-queues: When a new member is added, the same log replication",
    "mirrored-queues: At this point, the new mirror will be empty",
)
def test_a_new_server_is_sent_the_log_before_it_counts() -> None:
    one = leader()
    one.node.propose_change(AddLearner("d"), NOW)
    (probe,) = sent(one.out(), rpc.Append, "d")
    assert isinstance(probe, rpc.Append)
    assert probe.prev_index == 2
    one.agree("a", 2)
    (retry,) = sent(
        one.hear(rpc.AppendReply(1, "d", "b", 1, False, 2, 0, 0, 0, 9)), rpc.Append, "d"
    )
    assert isinstance(retry, rpc.Append)
    assert (retry.prev_index, len(retry.entries)) == (0, 2)
    assert one.node.membership.learners == ("d",)


def test_a_learner_is_promoted_under_the_id_by_which_it_answers() -> None:
    one = leader()
    one.node.propose_change(AddLearner("d"), NOW)
    one.out()
    one.agree("a", 2)
    (config_,) = sent(catch_up(one, "d", 9), rpc.Append, "d")
    assert isinstance(config_, rpc.Append)
    assert decode(config_.entries[0][3]) == Membership(("a", "b", "c", "d"), (), (("d", 9),))
    assert one.node.membership.id_of("d") == 9


def test_a_learner_says_who_it_is_once_more_before_it_is_promoted() -> None:
    """Otherwise a late reply of its earlier life could make it a voter under an id of no member."""
    one = leader()
    one.node.propose_change(AddLearner("d"), NOW)
    one.out()
    one.agree("a", 2)
    (asked,) = sent(one.agree("d", 2, 2, 9), rpc.ReadIndexHeartbeat, "d")
    assert isinstance(asked, rpc.ReadIndexHeartbeat)
    one.hear(rpc.ReadIndexHeartbeatReply(1, "d", "b", 1, asked.round, 11))
    assert one.node.membership.learners == ("d",), "it was 9 that held everything"
    assert one.node.leadership is not None
    assert (one.node.leadership.progress["d"].member, one.node.leadership.progress["d"].match) == (
        11,
        0,
    )
    catch_up(one, "d", 11)
    assert one.node.membership.id_of("d") == 11


def test_who_is_asked_is_asked_again_until_it_answers_or_is_suspected() -> None:
    one = leader(Membership(("a", "b", "c"), ("d",)))
    before = one.node.deadline_ms
    assert before == NOW + one.node.config.retransmit_ms, "d was asked"
    one.node.tick(before)
    assert sent(one.out(), rpc.ReadIndexHeartbeat, "d")
    one.node.peer_suspected("d", NOW)
    one.node.tick(NOW + 10_000)
    assert one.node.deadline_ms is None


def test_a_voter_that_is_demoted_says_who_it_is_before_it_is_promoted_again() -> None:
    one = leader(Membership(("a", "b", "c"), ("d",)))
    catch_up(one, "d", 9)
    one.agree("a", 2)
    one.agree("c", 2)
    assert one.node.membership.id_of("d") == 9
    one.node.propose_change(Demote("d"), NOW)
    one.out()
    one.agree("a", 3)
    one.agree("c", 3)
    out = one.agree("d", 3, member=9)
    assert one.node.membership.learners == ("d",), "what it said then may be of a life that is over"
    assert sent(out, rpc.ReadIndexHeartbeat, "d")


def test_memberships_below_the_beginning_of_the_log_are_not_kept() -> None:
    one = One()
    one.hear(config(Membership(("a", "b")), (0, 0), 1))
    one.hear(config(THREE, (1, 1), 1, commit=2))
    one.log.drop_to(2)
    one.hear(config(Membership(("b", "c")), (2, 1), 1))
    assert (one.node.configs.base_index, one.node.configs.base) == (2, THREE)
    assert len(one.node.configs.entries) == 1
    lead = leader()
    lead.node.propose_change(AddLearner("d"), NOW)
    lead.out()
    lead.agree("a", 2)
    lead.log.drop_to(2)
    lead.node.propose_change(Remove("d"), NOW)
    assert (lead.node.configs.base_index, len(lead.node.configs.entries)) == (2, 1)


def test_rounds_a_learner_that_falls_behind_is_not_promoted() -> None:
    one = leader(Membership(("a", "b", "c"), ("d",)), HOLD)
    lead = one.node.leadership
    assert lead is not None
    one.node.config = RaftConfig()
    membership_change.count(one.node, lead)
    progress = lead.progress["d"]
    progress.asked, progress.vouched = 1, True
    later = NOW + 60_000
    progress.begin_round(5, NOW)
    for _ in range(9):
        one.node.propose(b"x", later)
    one.out()
    for follower in ("a", "c"):
        one.agree(follower, 10)
    one.node.step(rpc.AppendReply(1, "d", "b", 1, True, 5, 5), later)
    assert one.node.membership.learners == ("d",), "that round took a minute; the next begins"
    assert progress.round_end == 10
    one.node.step(rpc.AppendReply(1, "d", "b", 1, True, 10, 5), later + 10_000)
    assert one.node.membership.learners == (), "nothing came meanwhile: the last round took no time"


@pytest.mark.specification("mirrored-queues: When set to when-synced, it will make sure")
def test_a_learner_that_has_not_caught_up_is_not_promoted_by_hand() -> None:
    one = leader(Membership(("a", "b", "c"), ("d",)), HOLD)
    one.node.propose(b"x", NOW)
    lead = one.node.leadership
    assert lead is not None
    lead.progress["d"].begin_round(2, NOW)
    granted_after(one, "d", Promote("d"), "it holds 1 of 2 entries")


def test_learners_count_for_nothing() -> None:
    one = leader(Membership(("a", "b"), ("c", "d")), HOLD)
    one.node.propose(b"x", NOW)
    one.node.read_index(1, NOW)
    one.out()
    for learner in ("c", "d"):
        one.agree(learner, 2)
        one.hear(rpc.ReadIndexHeartbeatReply(1, learner, "b", 1, 1))
    assert one.node.commit == 1
    assert not any(ready.reads for ready in one.readys)
    one.node.peer_suspected("a", NOW)
    assert one.node.role is Role.FOLLOWER, "a majority of the voters is not heard"


def test_a_suspected_learner_costs_nothing() -> None:
    one = leader(Membership(("a", "b", "c"), ("d",)), HOLD)
    assert one.node.deadline_ms is None
    one.node.peer_suspected("d", NOW)
    index = one.node.propose(b"x", NOW)
    assert {m.to for m in one.out()} == {"a", "c"}
    for commit in (0, index):
        one.agree("a", index, commit)
        one.agree("c", index, commit)
    assert one.node.deadline_ms is None
    assert [m.to for m in one.out()] == []


def test_a_leader_that_is_removed_does_not_count_itself() -> None:
    one = leader()
    one.node.propose_change(Remove("b"), NOW)
    one.out()
    one.agree("a", 2)
    assert one.node.commit == 1, "b and a hold it, one of the two voters"
    assert one.node.role is Role.LEADER, "it leads until that is committed"
    one.node.propose(b"more", NOW)


def test_a_leader_that_is_removed_hands_over_when_that_is_committed() -> None:
    one = leader()
    one.node.propose_change(Remove("b"), NOW)
    one.out()
    one.agree("a", 2)
    out = one.agree("c", 2)
    assert one.node.commit == 2
    assert [m.to for m in out if type(m) is rpc.TimeoutNow] == ["a"]
    assert (one.node.role, one.node.leader) == (Role.FOLLOWER, None)


def test_a_removed_leader_waits_until_its_successor_has_everything() -> None:
    one = leader()
    one.node.propose_change(Remove("b"), NOW)
    one.node.propose(b"more", NOW)
    one.out()
    one.agree("a", 2)
    one.agree("c", 2)
    assert one.node.role is Role.LEADER
    with pytest.raises(NotLeader):
        one.node.propose(b"too late", NOW)
    assert [m.to for m in one.agree("a", 3) if type(m) is rpc.TimeoutNow] == ["a"]
    assert one.node.role is Role.FOLLOWER


def test_a_removed_leader_tells_those_who_still_believe_in_it() -> None:
    one = leader()
    one.node.propose_change(Remove("b"), NOW)
    one.out()
    one.agree("a", 2)
    one.agree("c", 2)
    due = one.node.deadline_ms
    assert due is not None
    one.node.tick(due)
    assert [(m.to, m.term) for m in one.out() if type(m) is rpc.PreVote] == [("a", 2), ("c", 2)]
    one.hear(rpc.PreVoteReply(1, "a", "b", 2, True))
    assert one.node.role is Role.FOLLOWER, "consent does not count"
    one.hear(rpc.PreVoteReply(1, "a", "b", 2, False))
    assert one.node.term == 2
    assert one.node.deadline_ms is None, "somebody is in a later term: it is known that b leads not"


def test_a_server_that_is_no_member_may_still_be_needed_until_that_is_committed() -> None:
    """Figure 4.6; it does not vote for itself unless it is a voter in its latest membership."""
    one = One()
    one.hear(append(1, (0, 0), 1, commit=1))
    one.hear(config(Membership(("a", "c")), (1, 1), 1))
    one.node.peer_suspected("a", NOW)
    one.node.campaign(NOW)
    assert one.node.role is Role.PRE_CANDIDATE
    one.out()
    one.hear(rpc.PreVoteReply(1, "c", "b", 2, True))
    assert one.node.role is Role.PRE_CANDIDATE, "one of a and c; its own consent is none"
    one.hear(rpc.PreVoteReply(1, "a", "b", 2, True))
    one.hear(rpc.VoteReply(1, "c", "b", 2, True))
    assert one.node.role is Role.CANDIDATE
    one.hear(rpc.VoteReply(1, "a", "b", 2, True))
    assert one.node.role is Role.LEADER
    one.node.check()


def test_a_removed_member_does_not_disturb() -> None:
    """Once it knows; before that, no member that has a leader grants it a pre-vote."""
    one = One()
    one.hear(config(Membership(("a", "c")), (0, 0), 1))
    one.hear(rpc.Append(1, "a", "b", 1, 1, 1, 1))
    one.node.peer_suspected("a", NOW)
    assert one.node.deadline_ms is None
    one.node.peer_connected("a", NOW)
    one.node.campaign(NOW)
    assert one.out() == []
    other = leader(Membership(("b", "c")))
    refusal, news = other.hear(rpc.PreVote(1, "a", "b", 2, 1, 1))
    assert refusal == rpc.PreVoteReply(1, "b", "a", 1, False)
    assert news == rpc.Append(1, "b", "a", 1, 1, 1, 1), "it is told what is committed of its log"


def test_a_removed_member_is_told_that_it_is_and_that_this_is_committed() -> None:
    one = leader()
    one.node.propose_change(Remove("c"), NOW)
    (last,) = sent(one.out(), rpc.Append, "c")
    assert isinstance(last, rpc.Append) and len(last.entries) == 1
    one.agree("a", 2)
    one.agree("c", 2)
    assert one.node.leadership is not None
    assert "c" in one.node.leadership.progress
    one.agree("c", 2, commit=2)
    assert "c" not in one.node.leadership.progress
    one.agree("a", 2, commit=2)
    assert one.node.deadline_ms is None


def test_a_removed_member_that_does_not_answer_is_forgotten() -> None:
    one = leader()
    one.node.propose_change(Remove("c"), NOW)
    one.out()
    for commit in (1, 2):
        one.agree("a", 2, commit)
    due = one.node.deadline_ms
    assert due is not None
    one.node.tick(due)
    one.out()
    assert one.node.deadline_ms is None


def test_reads_are_answered_when_a_removal_makes_fewer_a_majority() -> None:
    one = leader(Membership(("a", "b", "c", "d")))
    one.node.peer_suspected("c", NOW)
    one.node.read_index(4, NOW)
    one.out()
    one.hear(rpc.ReadIndexHeartbeatReply(1, "a", "b", 1, 1))
    assert not any(ready.reads for ready in one.readys), "b and a are two of four"
    one.node.propose_change(Remove("c"), NOW)
    one.out()
    assert [r.context for ready in one.readys for r in ready.reads] == [4]


# ---------------------------------------------------------------- what it costs


def test_a_group_without_learners_or_changes_settles_nothing() -> None:
    one = leader()
    assert one.node.leadership is not None
    assert not one.node.leadership.unsettled
    assert one.node.deadline_ms is None


def test_a_leader_that_left_the_group_is_believed_in_until_it_denies() -> None:
    """1. a hands over to c, and leaves; its node runs.  2. c dies before b learns of it.  3. d asks
    b for its vote: b follows a for ever, because a's node is reachable."""
    one = One(voters=("a", "b", "c", "d"))
    one.hear(rpc.Append(1, "a", "b", 1, 0, 0, 0))
    asked = rpc.PreVote(1, "d", "b", 2, 9, 1)
    assert [m.granted for m in one.hear(asked) if type(m) is rpc.PreVoteReply] == [False]
    one.node.leader_denied("c", NOW)  # which it does not follow
    assert one.node.leader == "a"
    one.node.leader_denied("a", NOW)
    assert one.node.leader is None and one.node.deadline_ms is not None
    assert [m.granted for m in one.hear(asked) if type(m) is rpc.PreVoteReply] == [True]
