"""Handling of the messages of leaders and candidates."""

from __future__ import annotations

from warren_raft.core import candidate, lost, membership_change
from warren_raft.core.membership import decode
from warren_raft.core.ready import Role
from warren_raft.core.state import NodeState
from warren_raft.core.transitions import become_follower, follow, grant, lose_leader
from warren_raft.messages import (
    Append,
    AppendReply,
    PreVote,
    PreVoteReply,
    ReadIndexHeartbeat,
    ReadIndexHeartbeatReply,
    SnapshotChunk,
    TimeoutNow,
    Vote,
    VoteReply,
    WireEntry,
)
from warren_raft.types import Entry, EntryKind, Index, Membership, NodeId, Term

CONFIG = EntryKind.CONFIG
"""A constant here because every incoming entry is compared with it."""


def on_append(node: NodeState, message: Append) -> None:
    """Handle AppendEntries of this term (Raft paper, figure 2, receiver implementation)."""
    follow(node, message.sender)
    log = node.log
    prev = message.prev_index
    entries = message.entries
    if prev < log.committed:
        # What is committed here is in every leader's log, so that part matches without a check.
        # Checking it would be harmless, but the store may no longer hold it.
        entries = entries[log.committed - prev :]
        prev = min(log.committed, prev + len(message.entries))
    elif not log.has(prev, message.prev_term):
        hint_index, hint_term = log.hint(prev, message.prev_term)
        node.after_sync.append(
            AppendReply(
                node.group,
                node.id,
                message.sender,
                node.term,
                False,
                message.prev_index,
                log.committed,
                hint_index,
                hint_term,
                node.member_id,
            )
        )
        return
    if entries:
        take(node, prev + 1, entries)
        prev += len(entries)
    log.commit_to(min(message.commit, prev))
    # Not log.last: what follows `prev` here may be another leader's, and must not be acknowledged.
    acknowledge(node, message.sender, prev)


def acknowledge(node: NodeState, leader: NodeId, index: Index) -> None:
    """Acknowledge the leader's log up to `index`, once it is on disk here."""
    node.after_sync.append(
        AppendReply(
            node.group,
            node.id,
            leader,
            node.term,
            True,
            index,
            node.log.committed,
            member=node.member_id,
        )
    )


def take(node: NodeState, first: Index, wire: tuple[WireEntry, ...]) -> None:
    """Append entries that follow a matching one: keep equal ones, replace those that differ."""
    log = node.log
    skip = 0
    cut = False
    if first <= log.last:
        for skip, (term, _, _, _) in enumerate(wire):
            index = first + skip
            if index > log.last:
                break
            if log.term(index) != term:
                log.truncate_from(index)
                cut = node.configs.truncate_from(index)
                break
        else:
            return  # all present: a repeat, or a message that was delayed
    entries, configs = [], []
    for at in range(skip, len(wire)):
        term, kind, time_ms, data = wire[at]
        entry = Entry(first + at, term, kind, time_ms, data)
        entries.append(entry)
        if kind is CONFIG:
            configs.append(entry)
    log.append(entries)
    if cut or configs:
        node.configs.forget_below(log.store.first_index() - 1)
        for entry in configs:
            node.configs.append(entry.index, decode(entry.data))
        membership_change.adopt(node)


def on_snapshot_chunk(node: NodeState, message: SnapshotChunk) -> None:
    """Handle InstallSnapshot of this term (Raft paper, figure 13): the host collects the chunks.

    A snapshot of no more than what is committed here is not needed: the answer says so and ends the
    transfer. Nor is one that ends with an entry of this log: 1. A leader commits 60 with this
    member's acknowledgement.  2. The next leader does not know that, and sends a snapshot up to 53.
    3. If installing it dropped 54 … 60, this member could help to elect one that lacks 60. A
    member that lacks an entry (`lost`) may need it all the same: it skips what it has not applied,
    and keeps what follows.
    """
    follow(node, message.sender)
    log = node.log
    if lost.may_install(node, message.index, message.last_term):
        node.chunks.append(message)
        return
    log.commit_to(max(log.committed, message.index))
    acknowledge(node, message.sender, log.committed)
    lost.found(node)


def installed(
    node: NodeState, index: Index, term: Term, time_ms: int, membership: Membership
) -> None:
    """See Node.installed."""
    assert lost.may_install(node, index, term), (index, term, node.log.committed)
    if node.candidacy is not None:
        # The voters asked, and their ids, are no longer those that would be counted.
        become_follower(node, node.term)
    if node.log.has(index, term):
        lost.skipped(node, index, membership)
        return
    node.log.reset_to(index, term, time_ms)
    node.configs.reset_to(index, membership)
    membership_change.adopt(node)
    if node.leader is not None:
        reply = AppendReply(
            node.group,
            node.id,
            node.leader,
            node.term,
            True,
            index,
            index,
            0,
            0,
            node.member_id,
        )
        node.after_sync.append(reply)
    lost.found(node)


def on_confirm(node: NodeState, message: ReadIndexHeartbeat) -> None:
    """Answer the leader's question whether it still leads."""
    follow(node, message.sender)
    node.after_sync.append(
        ReadIndexHeartbeatReply(
            node.group, node.id, message.sender, node.term, message.round, node.member_id
        )
    )


def on_vote(node: NodeState, message: Vote) -> None:
    """Handle RequestVote of this term (Raft paper, 5.2 and 5.4.1).

    A vote is requested from one member id of this node, and only that id may grant it: a member
    that lost its disk may have voted in this term, or hold less than the earlier id acknowledged.
    The id alone decides, not the membership in effect here: the CONFIG that made this member a
    voter may not have arrived yet.
    """
    granted = (
        message.member == node.member_id
        and node.vote in (None, message.sender)
        and node.leader is None
        and not node.log.newer_than(message.last_index, message.last_term)
    )
    if granted:
        # A vote given before is checked again, too: the sender may have crashed since and restarted
        # with a shorter log than the one that was voted for.
        grant(node, message.sender)
    node.after_sync.append(
        VoteReply(node.group, node.id, message.sender, node.term, granted, message.asker)
    )


def on_pre_vote(node: NodeState, message: PreVote) -> None:
    """Answer whether this member would vote for the sender (thesis, 9.6).

    Refused while a leader is known: a member that merely lost its link to the leader must not
    depose it. A pre-vote from that leader itself shows that it no longer leads.
    """
    newer_term = message.term > node.term
    if newer_term and node.leader == message.sender:
        lose_leader(node)
    granted = (
        newer_term
        and message.member == node.member_id
        and node.leader is None
        and not node.log.newer_than(message.last_index, message.last_term)
    )
    node.messages.append(
        PreVoteReply(
            node.group,
            node.id,
            message.sender,
            message.term if granted else node.term,
            granted,
        )
    )


def on_timeout_now(node: NodeState, message: TimeoutNow) -> None:
    """Campaign at once: the leader transfers the leadership to this member."""
    assert node.role is not Role.LEADER
    if node.is_voter and node.stands and message.member == node.member_id:
        candidate.become_candidate(node)


def refuse_stale(node: NodeState, message: object) -> None:
    """Reject a message of an earlier term and report the current term.

    Replies and TimeoutNow of earlier terms are ignored. The term must be on disk before it is sent.
    """
    group, term, own = node.group, node.term, node.member_id
    reply: AppendReply | VoteReply | PreVoteReply
    match message:
        case Append(sender=sender, prev_index=index):
            reply = AppendReply(
                group, node.id, sender, term, False, index, node.log.committed, member=own
            )
        case ReadIndexHeartbeat(sender=sender) | SnapshotChunk(sender=sender):
            reply = AppendReply(
                group, node.id, sender, term, False, 0, node.log.committed, member=own
            )
        case Vote(sender=sender, asker=asker):
            reply = VoteReply(group, node.id, sender, term, False, asker)
        case PreVote(sender=sender):
            reply = PreVoteReply(group, node.id, sender, term, False)
        case _:
            return
    node.after_sync.append(reply)
