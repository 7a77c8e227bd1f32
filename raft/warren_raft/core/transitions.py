"""Moves that are open to a member in every role: its election timer, and to follow.

To stand for election and to lead are in candidate and leader.
"""

from __future__ import annotations

from warren_raft.core.ready import ReadState, Role
from warren_raft.core.state import NodeState
from warren_raft.messages import SnapshotChunk
from warren_raft.types import NodeId, Term

# ---------------------------------------------------------------------- the election timer


def set_election(node: NodeState, delay_ms: int) -> None:
    """Stand for election (a learner: ask for the leader) that much later.

    Without a majority in hearing, or when it is not known to be a member at all, it gives up
    after a few attempts, until another member is heard: the first ones tell members that still
    believe in this one that it leads no longer.
    """
    many = node.attempts > node.config.election_backoff_max
    hopeless = many and not (node.configs.known and node.majority_heard())
    node.election_at_ms = None
    if node.asks and not hopeless:
        node.election_at_ms = node.now_ms + delay_ms


def next_attempt(node: NodeState) -> None:
    """Set the time of the next attempt, should this one come to nothing."""
    delay_ms = node.rng.randrange(*node.config.election_timeout_ms)
    set_election(node, delay_ms << min(node.attempts, node.config.election_backoff_max))
    node.attempts += 1


def stand_soon(node: NodeState) -> None:
    """Stand within one more `election_timeout_ms` unless a leader is heard before.

    Called when a majority has become more likely.
    """
    if node.leadership is None and node.leader is None and node.asks:
        node.attempts = 0
        soon = node.now_ms + node.rng.randrange(*node.config.election_timeout_ms)
        if node.election_at_ms is None or soon < node.election_at_ms:
            node.election_at_ms = soon


# ---------------------------------------------------------------------- following


def follow(node: NodeState, sender: NodeId) -> None:
    """Follow `sender`, which has shown that it leads this term."""
    if node.leader == sender:
        return
    assert node.role is not Role.LEADER, (node.term, node.id, sender)
    assert node.leader is None, (node.term, node.leader, sender)
    node.candidacy = None
    node.role = Role.FOLLOWER
    node.attempts = 0
    if sender in node.suspected:
        # It can be heard again, or it is an old message: the host will say which.
        return
    node.leader = sender
    node.election_at_ms = None


def lose_leader(node: NodeState, delay_ms: tuple[int, int] | None = None) -> None:
    """Believe in no leader, and stand for election after a delay out of that range."""
    assert node.leadership is None
    node.leader = None
    delay_ms = delay_ms or node.config.election_timeout_ms
    set_election(node, node.rng.randrange(*delay_ms))


def grant(node: NodeState, candidate_id: NodeId) -> None:
    """Vote in this term, and leave the candidate time to win."""
    assert node.vote in (None, candidate_id), (node.vote, candidate_id)
    if node.vote is None:
        node.vote = candidate_id
        node.hard_changed = True
    set_election(node, node.rng.randrange(*node.config.election_timeout_ms))


def become_follower(node: NodeState, term: Term) -> None:
    """Follow in `term`, without a leader yet; ends whatever this member was."""
    assert term >= node.term, (term, node.term)
    if node.leadership is not None:
        asked = node.leadership.reads.drain()
        node.reads += [ReadState(context, None) for asker, context in asked if asker == node.id]
        node.leadership = None
        # A snapshot that it sends is stamped with the term that it is in by then:
        # 1. b asks a for the next chunk, and c asks a for a vote.  2. a's chunk is of c's term:
        # b takes a for that term's leader.
        node.snapshots = []
        node.chunks = [part for part in node.chunks if isinstance(part, SnapshotChunk)]
    if term > node.term:
        node.term = term
        node.vote = None
        node.hard_changed = True
    node.candidacy = None
    node.role = Role.FOLLOWER
    lose_leader(node)
