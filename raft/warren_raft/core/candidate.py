"""Elections: pre-votes, votes and the counting of them."""

from __future__ import annotations

from warren_raft.core import leader
from warren_raft.core.quorum import decided
from warren_raft.core.ready import Role
from warren_raft.core.role_state import Candidacy
from warren_raft.core.state import NodeState
from warren_raft.core.transitions import become_follower, next_attempt, stand_soon
from warren_raft.messages import PreVote, PreVoteReply, Vote, VoteReply
from warren_raft.types import GroupId, Index, MemberId, NodeId, Term


def become_pre_candidate(node: NodeState) -> None:
    """Ask for pre-votes: could this member win an election? Changes no persistent state."""
    assert node.stands and node.role is not Role.LEADER, node.role
    node.leader = None
    if node.is_voter and len(node.membership.voters) == 1:
        become_candidate(node)
        return
    node.role = Role.PRE_CANDIDATE
    node.candidacy = Candidacy()
    node.candidacy.answers[node.id] = True
    next_attempt(node)
    ask_whether(node)


def become_candidate(node: NodeState) -> None:
    """Stand for election in a new term (Raft paper, 5.2)."""
    assert node.stands and node.role is not Role.LEADER, node.role
    node.leader = None
    node.term += 1
    node.vote = node.id
    node.hard_changed = True
    node.role = Role.CANDIDATE
    node.candidacy = Candidacy()
    next_attempt(node)
    ask(node)


def on_stalled(node: NodeState) -> None:
    """React to a disk that has stopped answering, or that answers again.

    A candidate ends its attempt: a candidate needs its disk for its own vote, and a leader for
    every later vote. A leader continues: it commits what the other members have on their disks.
    Its host transfers the leadership where another member can take it.
    Replayed by tests/raft/transcripts/stalled_disk.txt
    """
    if not node.stalled:
        stand_soon(node)
    elif node.candidacy is not None:
        become_follower(node, node.term)


def ask_whether(node: NodeState) -> None:
    """Ask every voter for a pre-vote; it promises nothing, so it may leave before any write."""
    for voter in node.others(node.membership.voters):
        node.messages.append(PreVote(*_candidate_fields(node, voter, node.term + 1)))


def _candidate_fields(
    node: NodeState, voter: NodeId, term: Term
) -> tuple[GroupId, NodeId, NodeId, Term, Index, Term, MemberId]:
    """Return what a Vote and a PreVote for that term say alike: sender, receiver, the log's end."""
    log = node.log
    member = node.membership.id_of(voter)
    return node.group, node.id, voter, term, log.last, log.last_term, member


def ask_who_leads(node: NodeState) -> None:
    """Ask for a pre-vote without counting the answers, on a member that may not campaign.

    The leader answers it like any other pre-vote, with an append. A member that still follows the
    sender learns that the sender does not lead: 1. a leads and loses its disk.  2. It returns under
    another id before any member suspects it.  3. An append of its earlier incarnation arrives late:
    b follows a, which will never send another.
    """
    ask_whether(node)


def ask(node: NodeState) -> None:
    """Ask every voter for a vote, once term, own vote and log are on disk.

    1. A asks for votes in term 5 with entries 8, 9 unsynced.  2. It crashes, restarts with 7 in
    term 4, and campaigns in term 5 again.  3. A vote for its first attempt arrives: it would lead
    with a log that the voter would have refused. So the request waits for the write.
    """
    for voter in node.others(node.membership.voters):
        fields = _candidate_fields(node, voter, node.term)
        node.after_sync.append(Vote(*fields, asker=node.member_id))


def on_pre_vote_reply(node: NodeState, message: PreVoteReply) -> None:
    """Start the real election once a majority has granted the pre-vote."""
    if message.granted != (message.term == node.term + 1):
        return  # a pre-vote for an earlier attempt
    assert node.candidacy is not None
    node.candidacy.answers[message.sender] = message.granted
    if decided(node.candidacy.answers, node.membership.voters):
        become_candidate(node)


def on_vote_reply(node: NodeState, message: VoteReply) -> None:
    """Lead once a majority has voted; refused by a majority, wait for the next attempt."""
    if message.asker == node.member_id:
        count(node, message.sender, message.granted)


def count(node: NodeState, voter: NodeId, granted: bool) -> None:
    """Count a vote of this term; each voter counts once."""
    assert node.candidacy is not None
    assert node.role is Role.CANDIDATE, node.role
    node.candidacy.answers.setdefault(voter, granted)
    if decided(node.candidacy.answers, node.membership.voters):
        leader.become_leader(node)
