"""Standing for election."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren_raft.core.quorum import decided
from warren_raft.core.ready import Role
from warren_raft.messages import PreVote, PreVoteReply, Vote, VoteReply
from warren_raft.types import NodeId

if TYPE_CHECKING:
    from warren_raft.core.node import Node


class Candidacy:
    """The answers to one attempt.

    sequence  the write that holds this member's vote for itself; None: not handed out yet.
              The vote counts once that write is done, like anybody's
    """

    __slots__ = ("answers", "sequence")

    def __init__(self) -> None:
        self.answers: dict[NodeId, bool] = {}
        self.sequence: int | None = None


def ask_whether(node: Node) -> None:
    """Ask everybody for a pre-vote; nothing rests on it, so it may leave at once."""
    log = node.log
    for voter in node.others(node.membership.voters):
        node.messages.append(
            PreVote(
                node.group, node.id, voter, node.term + 1, log.last, log.last_term,
                node.membership.id_of(voter),
            )
        )


def ask_who_leads(node: Node) -> None:
    """What a learner does instead: a pre-vote for a term that is over is granted by nobody, and
    the leader answers it like any other.

    One that led this term until it was removed or demoted asks for the next: whoever believes in
    it still learns that it leads no longer. It does not count what is granted.
    """
    log = node.log
    term = node.term + 1 if node.vote == node.id else node.term
    for voter in node.others(node.membership.voters):
        node.messages.append(
            PreVote(
                node.group, node.id, voter, term, log.last, log.last_term,
                node.membership.id_of(voter),
            )
        )


def ask(node: Node) -> None:
    """Ask everybody for a vote, once term, own vote and log are on disk.

    1. A asks for votes in term 5 with entries 8, 9 unsynced.  2. It crashes and comes back with 7,
    in term 4, and campaigns in term 5 again.  3. A vote for its first life arrives: it would lead
    with a log that the voter would have refused. So the request waits for the write.
    """
    log = node.log
    for voter in node.others(node.membership.voters):
        node.after_sync.append(
            Vote(
                node.group, node.id, voter, node.term, log.last, log.last_term,
                node.membership.id_of(voter), node.member_id,
            )
        )


def on_pre_vote_reply(node: Node, message: PreVoteReply) -> None:
    """With a majority's consent, campaign in earnest."""
    if message.granted != (message.term == node.term + 1):
        return  # consent to an earlier attempt
    assert node.candidacy is not None
    node.candidacy.answers[message.sender] = message.granted
    if decided(node.candidacy.answers, node.membership.voters):
        node.become_candidate()


def on_vote_reply(node: Node, message: VoteReply) -> None:
    """With a majority's votes, lead; refused by a majority, wait for the next attempt."""
    if message.asker == node.member_id:
        count(node, message.sender, message.granted)


def count(node: Node, voter: NodeId, granted: bool) -> None:
    """Count one vote of this term, once per voter."""
    assert node.candidacy is not None
    assert node.role is Role.CANDIDATE, node.role
    node.candidacy.answers.setdefault(voter, granted)
    if decided(node.candidacy.answers, node.membership.voters):
        node.become_leader()
