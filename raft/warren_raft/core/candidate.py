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


def first_delay(node: Node, preferred: NodeId | None) -> int:
    """How long a member that has just started waits for a leader to speak up."""
    if node.is_voter and len(node.membership.voters) == 1:
        return 0
    delay = node.rng.randrange(*node.config.election_timeout_ms)
    if node.term == 0 and node.log.last == 0 and preferred is not None:
        return 0 if preferred == node.id else node.config.new_group_delay_ms + delay
    return delay


def set_election(node: Node, delay_ms: int) -> None:
    """Stand for election (a learner: ask who leads) that much later.

    Without a majority in hearing, or when it is not known to be a member at all, it gives up
    after a few attempts, until somebody is heard: the first ones tell members that still
    believe in this one that it leads no longer.
    """
    many = node.attempts > node.config.election_backoff_max
    hopeless = many and not (node.configs.known and node.majority_heard())
    node.election_at_ms = None
    if node.asks and not hopeless:
        node.election_at_ms = node.now_ms + delay_ms


def next_attempt(node: Node) -> None:
    """When to try again if this attempt comes to nothing."""
    delay_ms = node.rng.randrange(*node.config.election_timeout_ms)
    set_election(node, delay_ms << min(node.attempts, node.config.election_backoff_max))
    node.attempts += 1


def stand_soon(node: Node) -> None:
    """Something has changed for the better: a leader, if there is one, has one more
    `election_timeout_ms` to say so."""
    if node.leadership is None and node.leader is None and node.asks:
        node.attempts = 0
        soon = node.now_ms + node.rng.randrange(*node.config.election_timeout_ms)
        if node.election_at_ms is None or soon < node.election_at_ms:
            node.election_at_ms = soon


def on_stalled(node: Node) -> None:
    """The node's disk has stopped answering, or answers again.

    A candidate gives up, because a leader needs its disk for its own vote and for every vote after
    that. A leader goes on: it commits what the other members have on their disks. Its host hands
    the leadership over where another member can take it.
    Replayed by tests/raft/transcripts/stalled_disk.txt
    """
    if not node.stalled:
        stand_soon(node)
    elif node.candidacy is not None:
        node.become_follower(node.term)


def ask_whether(node: Node) -> None:
    """Ask everybody for a pre-vote; nothing rests on it, so it may leave at once."""
    log = node.log
    for voter in node.others(node.membership.voters):
        node.messages.append(
            PreVote(
                node.group,
                node.id,
                voter,
                node.term + 1,
                log.last,
                log.last_term,
                node.membership.id_of(voter),
            )
        )


def ask_who_leads(node: Node) -> None:
    """What one that may not stand does instead: it asks for a pre-vote, and counts no answer.

    The leader answers it like any other, with an append. And whoever believes in the asker learns
    that it does not lead: 1. a leads and loses its disk.  2. It is back under another id before
    anybody misses it.  3. An append of its life before comes late: b follows a, which will never
    send another.
    """
    log = node.log
    for voter in node.others(node.membership.voters):
        node.messages.append(
            PreVote(
                node.group,
                node.id,
                voter,
                node.term + 1,
                log.last,
                log.last_term,
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
                node.group,
                node.id,
                voter,
                node.term,
                log.last,
                log.last_term,
                node.membership.id_of(voter),
                node.member_id,
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
