"""A member that lost its disk is another member: for requests, replies and majorities.

Every test drives a single member, `b` of `a b c`, with the messages the sentence speaks of.
"""

from __future__ import annotations

from sim.changing import THREE, catch_up, config, leader, sent
from sim.one import NOW, One, append
from warren_raft import messages as rpc
from warren_raft.core import membership_change
from warren_raft.core.membership import AddLearner
from warren_raft.core.ready import Role
from warren_raft.types import Membership

# ---------------------------------------------------------------- identities


def test_a_vote_is_given_only_by_the_life_it_is_asked_of() -> None:
    one = One(membership=THREE, member_id=7)
    assert one.hear(rpc.Vote(1, "a", "b", 1, 0, 0, 0)) == [rpc.VoteReply(1, "b", "a", 1, False)]
    assert one.node.vote is None
    assert one.hear(rpc.Vote(1, "a", "b", 2, 0, 0, 8)) == [rpc.VoteReply(1, "b", "a", 2, False)]
    assert one.hear(rpc.Vote(1, "a", "b", 3, 0, 0, 7)) == [rpc.VoteReply(1, "b", "a", 3, True)]
    assert one.hear(rpc.PreVote(1, "c", "b", 4, 0, 0, 0)) == [
        rpc.PreVoteReply(1, "b", "c", 3, False)
    ]
    assert one.hear(rpc.PreVote(1, "c", "b", 4, 0, 0, 7)) == [
        rpc.PreVoteReply(1, "b", "c", 4, True)
    ]


def test_a_founding_member_does_not_answer_for_a_later_life() -> None:
    one = One()
    assert one.hear(rpc.Vote(1, "a", "b", 1, 0, 0, 7)) == [rpc.VoteReply(1, "b", "a", 1, False)]


def test_a_member_votes_whose_own_log_does_not_say_yet_that_it_may() -> None:
    one = One(membership=Membership(("a", "c", "d")), member_id=7)
    assert not one.node.is_voter
    assert one.hear(rpc.Vote(1, "a", "b", 3, 9, 2, 7)) == [rpc.VoteReply(1, "b", "a", 3, True)]
    assert one.hard.vote == "a"


def test_a_vote_for_an_earlier_life_of_the_candidate_does_not_elect_this_one() -> None:
    one = One(membership=Membership(("a", "b", "c"), (), (("b", 7),)), member_id=7)
    one.node.campaign(NOW)
    one.out()
    asked = one.hear(rpc.PreVoteReply(1, "a", "b", 1, True))
    assert {m.asker for m in asked if type(m) is rpc.Vote} == {7}
    one.hear(rpc.VoteReply(1, "a", "b", 1, True, 0))
    assert one.node.role is Role.CANDIDATE
    one.hear(rpc.VoteReply(1, "a", "b", 1, True, 7))
    assert one.node.role is Role.LEADER


def test_a_candidate_asks_each_voter_under_its_id() -> None:
    one = One(membership=Membership(("a", "b", "c"), (), (("c", 9),)))
    one.node.campaign(NOW)
    assert [(m.to, m.member) for m in one.out() if type(m) is rpc.PreVote] == [("a", 0), ("c", 9)]
    asked = one.hear(rpc.PreVoteReply(1, "a", "b", 1, True))
    assert [(m.to, m.member) for m in asked if type(m) is rpc.Vote] == [("a", 0), ("c", 9)]


def test_timeout_now_is_for_one_life() -> None:
    mine = Membership(("a", "b", "c"), (), (("b", 7),))
    one = One(membership=mine, member_id=7)
    one.hear(rpc.TimeoutNow(1, "a", "b", 0, 0))
    assert one.node.role is Role.FOLLOWER
    one.hear(rpc.TimeoutNow(1, "a", "b", 0, 7))
    assert one.node.role is Role.CANDIDATE


def test_what_the_disk_before_held_is_believed_no_more() -> None:
    one = leader()
    index = one.node.propose(b"x", NOW)
    one.out(sync=False)
    one.agree("a", index)
    assert one.node.commit == 1, "on a's disk; b's own write is under way"
    one.agree("a", 1, member=7)
    one.node.durable(one.readys[-1].sequence)
    assert one.node.commit == 1, "a as it is in the membership is no more"
    states = {state.node: state for state in one.node.member_states()}
    assert not states["a"].voter and states["a"].match == 1


def test_a_voter_that_answers_under_another_id_is_demoted() -> None:
    one = leader()
    out = one.hear(rpc.AppendReply(1, "c", "b", 1, False, 1, 0, 0, 0, 7))
    assert one.node.membership == Membership(("a", "b"), ("c",))
    assert sent(out, rpc.Append, "a")
    assert [s.node for s in one.node.member_states() if s.changing] == ["c"]


def test_it_is_not_demoted_when_the_rest_is_no_majority() -> None:
    one = leader(Membership(("a", "b", "c", "d")))
    one.node.peer_suspected("a", NOW)
    one.hear(rpc.AppendReply(1, "c", "b", 1, False, 1, 0, 0, 0, 7))
    assert one.node.role is Role.FOLLOWER, "b and d of four: nothing could be committed"


def test_a_late_answer_of_a_founding_member_is_ignored() -> None:
    one = leader()
    one.hear(rpc.AppendReply(1, "c", "b", 1, False, 1, 0, 0, 0, 7))
    lead = one.node.leadership
    assert lead is not None
    one.agree("c", 1)
    assert (lead.progress["c"].member, lead.progress["c"].match) == (7, 0)


def test_a_founding_member_whose_process_is_a_new_one_is_heard_again() -> None:
    one = leader()
    one.hear(rpc.AppendReply(1, "c", "b", 1, False, 1, 0, 0, 0, 7))
    one.agree("a", 2)
    catch_up(one, "c", 7)
    one.agree("a", 3)
    assert one.node.membership == Membership(("a", "b", "c"), (), (("c", 7),))
    # 1. c has the directory again with which it founded the group.  2. It is no voter as that.
    one.node.peer_restarted("c", NOW)
    one.agree("c", 1)
    assert one.node.membership == Membership(("a", "b"), ("c",))
    one.agree("a", 4)
    catch_up(one, "c", 0)
    one.agree("a", 5)
    assert one.node.membership == THREE
    # 3. What 7 had answered before is late now, as that of a founding member was before.
    lead = one.node.leadership
    assert lead is not None and lead.progress["c"].member == 0


def test_a_founding_member_answers_a_leader_that_knows_it_by_another_id() -> None:
    one = leader(Membership(("a", "b", "c"), (), (("c", 7),)))
    lead = one.node.leadership
    assert lead is not None
    one.node.peer_restarted("c", NOW)
    one.agree("c", 1)
    assert (lead.progress["c"].member, one.node.membership.learners) == (0, ("c",))
    one.agree("c", 1, member=7)  # and then its process is another one again, or this was late
    one.agree("c", 1)
    assert (lead.progress["c"].member, lead.progress["c"].heard) == (7, True)


def test_it_is_promoted_again_under_the_new_id() -> None:
    one = leader()
    one.hear(rpc.AppendReply(1, "c", "b", 1, False, 1, 0, 0, 0, 7))
    one.agree("a", 2)
    catch_up(one, "c", 7)
    assert one.node.membership == Membership(("a", "b", "c"), (), (("c", 7),))
    one.agree("c", 3)
    assert one.node.commit == 2, "an answer under the old id counts no more"
    one.agree("c", 3, member=7)
    assert one.node.commit == 3


def test_a_read_is_not_confirmed_by_another_life() -> None:
    one = leader()
    one.node.read_index(1, NOW)
    one.out()
    one.hear(rpc.ReadIndexHeartbeatReply(1, "a", "b", 1, 1, 7))
    assert not any(ready.reads for ready in one.readys)
    one.hear(rpc.ReadIndexHeartbeatReply(1, "c", "b", 1, 1))
    assert [r.context for ready in one.readys for r in ready.reads] == [1]


def test_what_the_life_before_confirmed_does_not_answer_a_read() -> None:
    one = leader(Membership(tuple("abcde")))
    one.node.propose_change(AddLearner("x"), NOW)  # so that the lost one cannot be demoted at once
    one.node.read_index(1, NOW)
    one.out()
    one.hear(rpc.ReadIndexHeartbeatReply(1, "a", "b", 1, 1))
    one.agree("a", 1, member=7)
    one.hear(rpc.ReadIndexHeartbeatReply(1, "c", "b", 1, 1))
    assert not any(ready.reads for ready in one.readys), "b and c are two of five"
    one.hear(rpc.ReadIndexHeartbeatReply(1, "d", "b", 1, 1))
    assert [r.context for ready in one.readys for r in ready.reads] == [1]


def test_a_leader_counts_its_own_copy_only_under_its_own_id() -> None:
    one = leader(Membership(("a", "b")))
    # No change leads there while it leads; what is committed does not lean on that.
    one.node.configs.base = Membership(("a", "b"), (), (("b", 7),))
    membership_change.adopt(one.node)
    index = one.node.propose(b"x", NOW)
    one.out()
    one.agree("a", index)
    assert one.node.commit == 1, "one of two"


def test_check_quorum_does_not_count_another_life() -> None:
    one = leader()
    one.node.peer_suspected("c", NOW)
    assert one.node.role is Role.LEADER
    one.agree("a", 1, member=7)
    assert one.node.role is Role.FOLLOWER


def test_two_voters_one_of_them_lost() -> None:
    """The other continues alone if it leads: it always had the consent of its own majority."""
    one = leader(Membership(("a", "b")))
    one.hear(rpc.AppendReply(1, "a", "b", 1, False, 1, 0, 0, 0, 7))
    assert one.node.role is Role.FOLLOWER, "one of two: it cannot even demote the other"


def test_a_transfer_ends_when_the_successor_turns_out_to_be_another_life() -> None:
    one = leader()
    one.node.propose(b"x", NOW)
    one.node.transfer_leader("a", NOW)
    one.out()
    one.hear(rpc.AppendReply(1, "a", "b", 1, False, 1, 0, 0, 0, 7))
    assert one.node.leadership is not None and one.node.leadership.transfer_to is None
    one.node.propose(b"y", NOW)


def test_a_member_under_a_new_id_is_no_voter_of_its_past() -> None:
    one = One(member_id=7)
    one.hear(append(1, (0, 0), 1, commit=1))
    assert not one.node.is_voter, "the founders' membership names b, under 0"
    one.hear(config(Membership(("a", "b", "c"), ("d",)), (1, 1), 1, commit=2))
    assert one.node.membership.voters == ("a", "b", "c")
    assert not one.node.is_voter
    one.node.campaign(NOW)
    assert one.out() == []
    one.hear(config(Membership(("a", "b", "c"), ("d",), (("b", 7),)), (2, 1), 1))
    assert one.node.is_voter


def test_who_joins_does_not_know_the_members_until_it_is_told() -> None:
    one = One(member_id=7)
    one.hear(append(1, (0, 0), 1, commit=1))
    assert one.node.membership_at(1) is None, "a snapshot could not name them"
    one.hear(config(Membership(("a", "c"), ("b",)), (1, 1), 1, commit=2))
    assert one.node.membership_at(1) is None
    assert one.node.membership_at(2) == Membership(("a", "c"), ("b",))


def test_who_joins_asks_a_few_times_and_falls_silent() -> None:
    """Another member may believe that it still leads, see candidate.ask_who_leads."""
    one = One(member_id=7)
    asked = 0
    while (due := one.node.deadline_ms) is not None:
        one.node.tick(due)
        asked += len(sent(one.out(), rpc.PreVote, "a"))
        assert asked < 20
    assert asked == one.node.config.election_backoff_max + 2


def test_a_learner_asks_who_leads() -> None:
    one = One(membership=Membership(("a", "c"), ("b",)))
    due = one.node.deadline_ms
    assert due is not None
    one.node.tick(due)
    assert [(m.to, m.term) for m in one.out() if type(m) is rpc.PreVote] == [("a", 1), ("c", 1)]
    one.hear(rpc.PreVoteReply(1, "a", "b", 1, True))
    assert one.node.role is Role.FOLLOWER


def test_a_pre_vote_tells_of_the_term_that_its_sender_is_in() -> None:
    """Otherwise a follower of a removed leader would refuse for ever while that node runs."""
    one = One()
    one.hear(append(1, (0, 0), 1))
    assert one.hear(rpc.PreVote(1, "c", "b", 2, 1, 1)) == [rpc.PreVoteReply(1, "b", "c", 1, False)]
    assert one.hear(rpc.PreVote(1, "c", "b", 3, 1, 1)) == [rpc.PreVoteReply(1, "b", "c", 3, True)]
    assert (one.node.term, one.node.leader) == (2, None)


# ---------------------------------------------------------------- snapshots


def test_a_snapshot_names_the_members_as_of_its_index() -> None:
    one = One()
    one.hear(config(Membership(("a", "b", "c"), ("d",)), (0, 0), 1))
    one.hear(config(Membership(("a", "b", "c", "d")), (1, 1), 1, commit=1))
    assert one.node.membership.voters == ("a", "b", "c", "d"), "in effect, not committed"
    assert one.node.membership_at(1) == Membership(("a", "b", "c"), ("d",))


def test_a_snapshot_that_is_installed_brings_its_members() -> None:
    one = One()
    one.hear(config(Membership(("a", "b")), (0, 0), 1))
    members = Membership(("a", "b", "c", "d"), (), (("d", 5),))
    one.hear(rpc.SnapshotChunk(1, "a", "b", 1, 40, 1, 0, (), -1, b"", 0))
    one.log.begin_after(40, 1, NOW)
    one.node.installed(40, 1, NOW, members)
    assert one.node.membership == one.node.membership_at(40) == members
    assert not one.node.change_under_way
    (reply,) = one.out()
    assert isinstance(reply, rpc.AppendReply)
    assert (reply.ok, reply.index) == (True, 40)


def test_who_stands_while_a_snapshot_is_installed_stands_no_more() -> None:
    """It has asked voters of the membership before, under ids of the membership before."""
    one = One()
    one.hear(append(1, (0, 0), 1))
    one.node.peer_suspected("a", NOW)
    one.node.campaign(NOW)
    one.out()
    one.log.begin_after(40, 1, NOW)
    one.node.installed(40, 1, NOW, Membership(("a", "b", "c"), (), (("c", 9),)))
    one.hear(rpc.PreVoteReply(1, "c", "b", 2, True))
    assert one.node.role is Role.FOLLOWER
