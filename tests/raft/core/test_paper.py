"""One test per sentence of the paper (and of the thesis) that a member must keep.

Every test drives a single member, `b` of `a b c`, with the messages the sentence speaks of.
"""

from __future__ import annotations

from random import Random

import pytest

from sim.disk import Log
from sim.one import NOW, VOTERS, One, append
from warren_raft import messages as rpc
from warren_raft.config import RaftConfig
from warren_raft.core.raft_node import RaftNode
from warren_raft.core.ready import Role
from warren_raft.errors import NotLeader, TooManyReads, UsageError
from warren_raft.types import Entry, EntryKind, HardState, Membership


def terms_of(one: One) -> list[int]:
    return [one.node.log.term(index) for index in range(1, one.node.last_index + 1)]


# ---------------------------------------------------------------- figure 2, RequestVote


def test_reply_false_if_term_is_older() -> None:
    one = One(term=5)
    assert one.hear(rpc.Vote(1, "a", "b", 4, 9, 4)) == [rpc.VoteReply(1, "b", "a", 5, False)]


def test_grant_if_the_vote_is_free_and_the_log_is_up_to_date() -> None:
    one = One(1, 2)
    assert one.hear(rpc.Vote(1, "a", "b", 3, 2, 2)) == [rpc.VoteReply(1, "b", "a", 3, True)]
    assert one.hard == HardState(3, "a")


@pytest.mark.parametrize(
    ("last", "granted"),
    [
        ((1, 2), False),
        ((2, 1), False),
        ((9, 1), False),
        ((2, 2), True),
        ((3, 2), True),
        ((1, 3), True),
    ],
)
@pytest.mark.specification("mirrored-queues: The longest running mirror is promoted")
def test_the_later_last_term_wins_then_the_longer_log(last: tuple[int, int], granted: bool) -> None:
    one = One(1, 2, term=3)
    assert one.hear(rpc.Vote(1, "a", "b", 4, *last)) == [rpc.VoteReply(1, "b", "a", 4, granted)]


def test_one_vote_per_term() -> None:
    one = One(term=3, vote="a")
    assert one.hear(rpc.Vote(1, "c", "b", 3, 9, 3)) == [rpc.VoteReply(1, "b", "c", 3, False)]
    assert one.hear(rpc.Vote(1, "a", "b", 3, 9, 3)) == [rpc.VoteReply(1, "b", "a", 3, True)]


def test_a_vote_given_again_is_looked_at_again() -> None:
    """The candidate may have lost the end of its log between the two requests."""
    one = One(1, 2, term=3, vote="a")
    assert one.hear(rpc.Vote(1, "a", "b", 3, 1, 1)) == [rpc.VoteReply(1, "b", "a", 3, False)]


def test_a_vote_leaves_after_it_is_on_disk() -> None:
    one = One()
    assert one.hear(rpc.Vote(1, "a", "b", 1, 0, 0), sync=False) == []
    ready = one.readys[-1]
    assert ready.hard_state == HardState(1, "a")
    assert ready.messages_after_sync == (rpc.VoteReply(1, "b", "a", 1, True),)


# ---------------------------------------------------------------- figure 2, AppendEntries


def test_refuse_an_older_leader() -> None:
    one = One(1, term=5)
    (reply,) = one.hear(append(4, (1, 1), 4))
    assert (reply.term, reply.ok) == (5, False)  # type: ignore[union-attr]
    assert terms_of(one) == [1]


def test_refuse_without_the_entry_before() -> None:
    one = One(1, 1)
    (reply,) = one.hear(append(2, (5, 2), 2))
    assert reply == rpc.AppendReply(1, "b", "a", 2, False, 5, 0, 2, 1)


def test_refuse_if_the_entry_before_is_of_another_term() -> None:
    one = One(1, 1, 2, 2)
    (reply,) = one.hear(append(5, (4, 3), 5))
    assert isinstance(reply, rpc.AppendReply)
    assert (reply.ok, reply.hint_index, reply.hint_term) == (False, 4, 2)


def test_delete_what_conflicts_and_all_that_follows() -> None:
    one = One(1, 1, 2, 2)
    one.hear(append(3, (2, 1), 3))
    assert terms_of(one) == [1, 1, 3]
    assert len(one.log.held) == 3


def test_what_is_there_already_is_not_deleted() -> None:
    """An older message, overtaken: cutting the log at its end would drop acknowledged entries."""
    one = One(1, 1, 1)
    (reply,) = one.hear(append(1, (0, 0), 1))
    assert terms_of(one) == [1, 1, 1]
    assert isinstance(reply, rpc.AppendReply)
    assert (reply.ok, reply.index) == (True, 1), "only what was sent is known to match"


def test_commit_is_at_most_the_last_new_entry() -> None:
    one = One(1, 1, 1)
    one.hear(append(2, (1, 1), commit=3))
    assert one.node.commit == 1


def test_an_append_reply_leaves_after_the_entries_are_on_disk() -> None:
    one = One()
    assert one.hear(append(1, (0, 0), 1), sync=False) == []
    assert one.readys[-1].messages_after_sync == (rpc.AppendReply(1, "b", "a", 1, True, 1, 0),)


def test_a_repeat_waits_for_the_write_that_is_under_way() -> None:
    one = One()
    one.hear(append(1, (0, 0), 1), sync=False)
    one.hear(append(1, (0, 0), 1), sync=False)
    assert not one.readys[-1].writes
    assert one.readys[-1].sequence == one.readys[-2].sequence > one.node.synced


def test_what_is_below_the_commit_is_taken_as_matching() -> None:
    one = One(1, 1, 1)
    one.hear(append(1, (3, 1), commit=3))
    (reply,) = one.hear(append(1, (0, 0), 1, 1, 1, 1))
    assert isinstance(reply, rpc.AppendReply)
    assert (reply.ok, reply.index) == (True, 4)


# ---------------------------------------------------------------- figure 2, all servers


def test_a_higher_term_makes_a_follower() -> None:
    one = One().lead()
    one.hear(rpc.AppendReply(1, "c", "b", 9, False, 0, 0))
    assert (one.node.role, one.node.term, one.hard) == (Role.FOLLOWER, 9, HardState(9, None))


def test_committed_entries_are_applied_once_in_order() -> None:
    one = One()
    one.hear(append(1, (0, 0), 1, 1, 1, commit=2))
    one.hear(append(1, (3, 1), commit=3))
    one.hear(append(1, (3, 1), commit=3))
    assert [entry.index for entry in one.committed] == [1, 2, 3]


# ---------------------------------------------------------------- figure 2, candidates and leaders


def test_a_candidate_votes_for_itself_once_that_is_on_disk() -> None:
    one = One(voters=("b",))
    one.node.tick(NOW)
    first = one.node.ready()
    assert first is not None and first.hard_state == HardState(1, "b")
    assert one.node.role is Role.CANDIDATE
    one.node.durable(first.sequence)
    assert one.node.role is Role.LEADER


def candidate() -> One:
    """A member that has the consent of `a` to campaign, and asks for votes."""
    one = One()
    one.node.campaign(NOW)
    one.out()
    one.hear(rpc.PreVoteReply(1, "a", "b", 1, True))
    return one


def test_votes_make_a_leader_and_its_first_entry_leaves_at_once() -> None:
    one = candidate()
    one.node.step(rpc.VoteReply(1, "a", "b", 1, True), NOW)
    sent = one.out(sync=False)
    assert [(type(m), m.to) for m in sent] == [(rpc.Append, "a"), (rpc.Append, "c")]
    assert one.readys[-1].writes, "its own write is under way meanwhile"


def test_a_vote_counts_once() -> None:
    one = One(voters=("a", "b", "c", "d", "e"))
    one.node.campaign(NOW)
    one.out()
    for voter in ("a", "c"):
        one.hear(rpc.PreVoteReply(1, voter, "b", 1, True))
    for _ in range(3):
        one.hear(rpc.VoteReply(1, "a", "b", 1, True))
    assert one.node.role is Role.CANDIDATE


def test_a_candidate_that_hears_a_leader_of_its_term_follows_it() -> None:
    one = candidate()
    assert one.node.role is Role.CANDIDATE
    one.hear(append(1, (0, 0), 1))
    assert (one.node.role, one.node.leader) == (Role.FOLLOWER, "a")


@pytest.mark.specification("quorum-queues: All operations (state changes) on a quorum queue")
def test_a_leader_commits_what_a_majority_holds() -> None:
    one = One().lead()
    index = one.node.propose(b"x", NOW)
    one.out()
    one.agree("a", 1)
    assert one.node.commit == 1
    one.agree("c", index)
    assert one.node.commit == index


def test_its_own_copy_counts_when_it_is_on_disk() -> None:
    one = One().lead()
    index = one.node.propose(b"x", NOW)
    one.out(sync=False)
    one.agree("a", index)
    assert one.node.commit == 1
    one.agree("c", index)
    assert one.node.commit == index, "two followers are a majority without it"


def test_entries_of_earlier_terms_are_committed_by_one_of_its_own() -> None:
    one = One(1, 1, term=1).lead()
    one.agree("a", 2)
    assert one.node.commit == 0
    one.agree("a", 3)
    assert one.node.commit == 3


def test_a_refusal_backs_up_and_repeats() -> None:
    one = One(1, 1, 2, 2, 4, 4).lead()
    (again,) = one.hear(rpc.AppendReply(1, "a", "b", one.node.term, False, 6, 0, 6, 3))
    assert isinstance(again, rpc.Append)
    assert (again.prev_index, again.prev_term) == (4, 2), "term 4 is skipped in one step"


# ---------------------------------------------------------------- thesis: pre-vote, transfer, reads


def test_a_pre_vote_changes_nothing() -> None:
    one = One(1, term=3, vote="c")
    (reply,) = one.hear(rpc.PreVote(1, "a", "b", 4, 1, 1))
    assert reply == rpc.PreVoteReply(1, "b", "a", 4, True)
    assert (one.node.term, one.node.vote) == (3, "c")
    assert not any(ready.writes for ready in one.readys)


def test_a_pre_vote_is_refused_while_a_leader_is_believed_in() -> None:
    one = One()
    one.hear(append(1, (0, 0), 1))
    assert one.hear(rpc.PreVote(1, "c", "b", 2, 9, 1)) == [rpc.PreVoteReply(1, "b", "c", 1, False)]
    one.node.peer_suspected("a", NOW)
    assert one.hear(rpc.PreVote(1, "c", "b", 2, 9, 1)) == [rpc.PreVoteReply(1, "b", "c", 2, True)]


def test_a_leader_that_asks_for_a_pre_vote_leads_no_longer() -> None:
    one = One()
    one.hear(append(1, (0, 0), 1))
    assert one.hear(rpc.PreVote(1, "a", "b", 2, 1, 1)) == [rpc.PreVoteReply(1, "b", "a", 2, True)]
    assert one.node.leader is None
    assert one.node.deadline_ms is not None


def test_a_leader_answers_a_pre_vote_with_an_append() -> None:
    one = One().lead()
    one.agree("a", 1)
    refusal, news = one.hear(rpc.PreVote(1, "c", "b", 2, 0, 0))
    assert refusal == rpc.PreVoteReply(1, "b", "c", 1, False)
    assert news == rpc.Append(1, "b", "c", 1, 0, 0, 0)


def test_consent_to_an_earlier_attempt_does_not_count() -> None:
    one = One(term=4)
    one.node.campaign(NOW)
    one.out()
    one.hear(rpc.PreVoteReply(1, "a", "b", 4, True))
    assert one.node.role is Role.PRE_CANDIDATE


def test_a_pre_vote_refused_for_an_old_term_brings_the_new_one() -> None:
    one = One(term=2)
    one.node.campaign(NOW)
    one.out()
    one.hear(rpc.PreVoteReply(1, "a", "b", 7, False))
    assert (one.node.role, one.node.term) == (Role.FOLLOWER, 7)


def test_transfer_waits_until_the_successor_has_everything() -> None:
    one = One().lead()
    one.agree("a", 1)
    index = one.node.propose(b"x", NOW)
    one.node.transfer_leader("a", NOW)
    assert not any(isinstance(m, rpc.TimeoutNow) for m in one.out())
    with pytest.raises(NotLeader):
        one.node.propose(b"y", NOW)
    assert rpc.TimeoutNow(1, "b", "a", 1) in one.agree("a", index)


def test_a_transfer_that_takes_too_long_is_given_up() -> None:
    one = One().lead()
    one.node.transfer_leader("a", NOW)
    one.node.tick(NOW + one.node.config.transfer_timeout_ms)
    one.node.propose(b"y", NOW)


def test_a_transfer_to_a_stranger_is_refused() -> None:
    with pytest.raises(UsageError, match="choose one of a, b, c"):
        One().lead().node.transfer_leader("x", NOW)


def test_timeout_now_campaigns_without_a_pre_vote() -> None:
    one = One()
    one.hear(append(1, (0, 0), 1))
    sent = one.hear(rpc.TimeoutNow(1, "a", "b", 1))
    assert {(type(m), m.term) for m in sent} == {(rpc.Vote, 2)}


def test_who_leads_no_longer_sends_no_snapshot() -> None:
    b = One(1, 1).lead()
    b.node.step(rpc.SnapshotWanted(1, "a", "b", b.node.term, 1, 1, 0, 0, False), NOW)
    b.node.snapshots.append("c")
    ready = b.node.ready()
    assert ready is not None and ready.snapshots == ("c",) and len(ready.chunks) == 1
    b.node.step(rpc.SnapshotWanted(1, "a", "b", b.node.term, 1, 1, 0, 0, False), NOW)
    b.node.snapshots.append("c")
    # What the host sends for these says which term it is in, and that is c's by then.
    b.node.step(rpc.Vote(1, "c", "b", b.node.term + 1, 9, 9), NOW)
    ready = b.node.ready()
    assert ready is not None and ready.snapshots == () and ready.chunks == ()


def test_a_read_waits_for_an_entry_of_the_leaders_own_term() -> None:
    one = One(1).lead()
    one.node.read_index(77, NOW)
    assert not any(isinstance(m, rpc.ReadIndexHeartbeat) for m in one.out())
    sent = one.agree("a", 2)
    assert rpc.ReadIndexHeartbeat(1, "b", "a", 2, 1) in sent
    one.hear(rpc.ReadIndexHeartbeatReply(1, "a", "b", 2, 1))
    assert [(r.context, r.index) for r in one.readys[-1].reads] == [(77, 2)]


def test_a_round_confirms_the_reads_asked_before_it_only() -> None:
    one = One().lead()
    one.agree("a", 1)
    one.node.read_index(1, NOW)
    one.out()
    one.node.read_index(2, NOW)
    one.out()
    one.hear(rpc.ReadIndexHeartbeatReply(1, "a", "b", 1, 1))
    assert [r.context for ready in one.readys for r in ready.reads] == [1]


def test_reads_that_wait_are_bounded() -> None:
    one = One(config=RaftConfig(reads_pending_max=2)).lead()
    one.node.read_index(1, NOW)
    one.node.read_index(2, NOW)
    with pytest.raises(TooManyReads, match="reads_pending_max"):
        one.node.read_index(3, NOW)


def test_a_group_of_one_answers_reads_by_itself() -> None:
    one = One(voters=("b",))
    one.node.tick(NOW)
    one.out()
    one.node.read_index(5, NOW)
    one.out()
    assert [(r.context, r.index) for r in one.readys[-1].reads] == [(5, 1)]


# ---------------------------------------------------------------- failure detection is the node's


def test_an_idle_group_has_no_deadline() -> None:
    one = One().lead()
    assert one.node.deadline_ms is not None
    for follower in ("a", "c"):
        one.agree(follower, 1)
    for follower in ("a", "c"):
        one.agree(follower, 1, commit=1)
    assert one.node.deadline_ms is None
    follower = One()
    follower.hear(append(1, (0, 0), 1))
    assert follower.node.deadline_ms is None


def test_what_is_not_answered_is_repeated() -> None:
    one = One().lead()
    due = one.node.deadline_ms
    assert due == NOW + one.node.config.retransmit_ms
    one.node.tick(due)
    assert {(type(m), m.to) for m in one.out()} == {(rpc.Append, "a"), (rpc.Append, "c")}


def test_nothing_is_sent_to_a_suspected_follower_until_it_is_back() -> None:
    one = One().lead()
    one.node.peer_suspected("c", NOW)
    one.node.propose(b"x", NOW)
    assert all(message.to == "a" for message in one.out())
    one.node.peer_connected("c", NOW)
    assert [message.to for message in one.out()] == ["c"]


def test_a_crowded_follower_is_sent_appends_when_it_no_longer_is() -> None:
    one = One().lead()
    for follower in ("a", "c"):
        one.agree(follower, 1, 1)
    one.node.propose(b"x", NOW)
    ready = one.node.ready({"c"})
    assert ready is not None and one.node.ready({"c"}) is None
    assert [message.to for message in ready.messages] == ["a"]
    one.log.put(ready.entries)
    one.node.durable(ready.sequence)
    appends = [message for message in one.out() if isinstance(message, rpc.Append)]
    assert [message.to for message in appends if message.entries] == ["c"]


def test_a_leader_without_a_majority_in_hearing_steps_down() -> None:
    one = One().lead()
    one.node.read_index(9, NOW)
    one.node.peer_suspected("a", NOW)
    assert one.node.role is Role.LEADER
    one.node.peer_suspected("c", NOW)
    assert (one.node.role, one.node.leader) == (Role.FOLLOWER, None)
    one.out()
    assert [(r.context, r.index) for r in one.readys[-1].reads] == [(9, None)]


def test_a_suspected_leader_is_replaced_after_a_short_random_delay() -> None:
    one = One()
    one.hear(append(1, (0, 0), 1))
    one.node.peer_suspected("a", NOW)
    low, high = one.node.config.election_delay_ms
    assert one.node.deadline_ms is not None
    assert NOW + low <= one.node.deadline_ms < NOW + high


def test_a_restarted_leader_leads_no_longer() -> None:
    one = One()
    one.hear(append(1, (0, 0), 1))
    one.node.peer_restarted("c", NOW)
    assert one.node.leader == "a"
    one.node.peer_restarted("a", NOW)
    assert one.node.leader is None
    assert one.node.deadline_ms is not None


def test_attempts_in_vain_come_less_and_less_often_and_end_when_nobody_would_hear() -> None:
    one = One()
    one.node.peer_suspected("a", NOW)
    one.node.peer_suspected("c", NOW)
    waits, now = [], NOW
    while (due := one.node.deadline_ms) is not None:
        waits.append(due - now)
        now = due
        one.node.tick(now)
        one.out()
        assert len(waits) < 20
    assert waits[-1] > 4 * waits[0]
    one.node.peer_connected("c", now)
    assert one.node.deadline_ms is not None


def test_in_a_new_group_the_preferred_one_stands_at_once() -> None:
    def first(preferred: str | None, last: int = 0) -> int:
        log = Log([Entry(1 + at, 1, EntryKind.NOOP, NOW, b"") for at in range(last)])
        node = RaftNode(
            1,
            "b",
            Membership(VOTERS),
            HardState(min(last, 1)),
            log,
            RaftConfig(),
            Random(1),
            NOW,
            preferred,
        )
        assert node.deadline_ms is not None
        return node.deadline_ms - NOW

    assert first("b") == 0
    assert first("a") > RaftConfig().new_group_delay_ms
    assert 0 < first("b", last=1) < RaftConfig().new_group_delay_ms, "the group is not new"


def test_a_proposal_names_the_leader_it_should_have_gone_to() -> None:
    one = One()
    with pytest.raises(NotLeader) as leaderless:
        one.node.propose(b"x", NOW)
    assert leaderless.value.leader is None
    one.hear(append(1, (0, 0), 1))
    with pytest.raises(NotLeader, match="ask a") as somebody:
        one.node.propose(b"x", NOW)
    assert somebody.value.leader == "a"


# ---------------------------------------------------------------- flow control


def test_the_window_is_bounded_in_messages_and_refilled_by_answers() -> None:
    one = One(config=RaftConfig(inflight_messages_max=2)).lead()
    one.agree("a", 1)
    sent = []
    for _ in range(4):
        one.node.propose(b"x", NOW)
        sent += [m for m in one.out() if m.to == "a"]
    assert [m.prev_index for m in sent if m.entries] == [1, 2]  # type: ignore[union-attr]
    (more,) = [m for m in one.agree("a", 2) if m.to == "a"]
    assert isinstance(more, rpc.Append)
    assert (more.prev_index, len(more.entries)) == (3, 2)


def test_the_window_is_bounded_in_bytes() -> None:
    bounds = RaftConfig(probe_bytes_max=80, append_bytes_max=80, inflight_bytes_max=80)
    one = One(config=bounds).lead()
    one.agree("a", 1)
    sent = []
    for _ in range(4):
        one.node.propose(b"x" * 40, NOW)
        sent += [m for m in one.out() if m.to == "a"]
    assert [m.prev_index for m in sent if m.entries] == [1, 2]  # type: ignore[union-attr]


def test_one_append_is_bounded_in_bytes() -> None:
    one = One(config=RaftConfig(append_bytes_max=100, probe_bytes_max=50)).lead()
    one.agree("a", 1)
    for _ in range(5):
        one.node.propose(b"x" * 40, NOW)
    sizes = [len(m.entries) for m in one.out() if m.to == "a"]  # type: ignore[union-attr]
    assert sizes == [2, 2, 1]


def test_followers_in_step_share_one_batch() -> None:
    one = One().lead()
    one.agree("a", 1)
    one.agree("c", 1)
    one.node.propose(b"x" * 1000, NOW)
    first, second = (m for m in one.out() if isinstance(m, rpc.Append))
    assert first.entries is second.entries
