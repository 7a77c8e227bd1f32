"""Transitions that every role shares: the election timer, and becoming a follower.

Becoming a candidate and a leader are in candidate and leader.
"""

from __future__ import annotations

from warren_raft.core.ready import ReadState, Role
from warren_raft.core.state import NodeState
from warren_raft.errors import ImpossibleMessage
from warren_raft.messages import SnapshotChunk
from warren_raft.types import NodeId, Term

# ---------------------------------------------------------------------- the election timer


def set_election(node: NodeState, delay_ms: int) -> None:
    """Schedule a campaign (a learner: a search for the leader) that much later.

    Without a reachable majority, or when it is not known to be a member at all, it stops after a
    few attempts until another member is reachable: the first attempts tell members that still
    follow this one that it no longer leads.
    """
    many = node.attempts > node.config.election_backoff_max
    hopeless = many and not (node.configs.known and node.majority_heard())
    node.election_at_ms = None
    if node.asks and not hopeless:
        node.election_at_ms = node.now_ms + delay_ms


def next_attempt(node: NodeState) -> None:
    """Schedule the next attempt in case this one fails."""
    delay_ms = node.rng.randrange(*node.config.election_timeout_ms)
    set_election(node, delay_ms << min(node.attempts, node.config.election_backoff_max))
    node.attempts += 1


def stand_soon(node: NodeState) -> None:
    """Campaign within one more `election_timeout_ms` unless a leader appears before.

    Called when a majority has become more likely.
    """
    if node.leadership is None and node.leader is None and node.asks:
        node.attempts = 0
        soon = node.now_ms + node.rng.randrange(*node.config.election_timeout_ms)
        if node.election_at_ms is None or soon < node.election_at_ms:
            node.election_at_ms = soon


# ---------------------------------------------------------------------- following


def follow(node: NodeState, sender: NodeId) -> None:
    """Follow `sender`, which has shown that it leads this term.

    raises  ImpossibleMessage: another one does. Two processes of one voter, each with a copy of its
            directory, may have voted for one each; that must not end a node that did nothing wrong
    """
    if node.leader == sender:
        return
    if node.role is Role.LEADER or node.leader is not None:
        what = f"leads term {node.term}, which {node.leader} leads"
        raise ImpossibleMessage(node.group, sender, what)
    node.candidacy = None
    node.role = Role.FOLLOWER
    node.attempts = 0
    if sender in node.suspected:
        # It is reachable again, or this is an old message: the host will report which.
        return
    node.leader = sender
    node.election_at_ms = None


def lose_leader(node: NodeState, delay_ms: tuple[int, int] | None = None) -> None:
    """Forget the leader, and schedule a campaign after a delay out of that range."""
    assert node.leadership is None
    node.leader = None
    delay_ms = delay_ms or node.config.election_timeout_ms
    set_election(node, node.rng.randrange(*delay_ms))


def grant(node: NodeState, candidate_id: NodeId) -> None:
    """Vote in this term, and give the candidate time to win."""
    assert node.vote in (None, candidate_id), (node.vote, candidate_id)
    if node.vote is None:
        node.vote = candidate_id
        node.hard_changed = True
    set_election(node, node.rng.randrange(*node.config.election_timeout_ms))


def become_follower(node: NodeState, term: Term) -> None:
    """Follow in `term`, without a leader yet; ends any candidacy or leadership."""
    assert term >= node.term, (term, node.term)
    if node.leadership is not None:
        asked = node.leadership.reads.drain()
        node.reads += [ReadState(context, None) for asker, context in asked if asker == node.id]
        node.leadership = None
        # A snapshot chunk carries the sender's term when it is sent:
        # 1. b asks a for the next chunk, and c asks a for a vote.  2. a's chunk is of c's term:
        # b takes a for that term's leader. So the transfers end here.
        node.snapshots = []
        node.chunks = [part for part in node.chunks if isinstance(part, SnapshotChunk)]
    if term > node.term:
        node.term = term
        node.vote = None
        node.hard_changed = True
    node.candidacy = None
    node.role = Role.FOLLOWER
    lose_leader(node)
