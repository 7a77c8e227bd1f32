"""The leader: replication, commit, leader transfer."""

from __future__ import annotations

from collections.abc import Container

from warren_raft.core import leader_transfer, membership_change, read_rounds
from warren_raft.core.progress import Progress
from warren_raft.core.quorum import held_by_majority
from warren_raft.core.ready import Role
from warren_raft.core.role_state import Leadership
from warren_raft.core.state import NodeState
from warren_raft.core.transitions import become_follower
from warren_raft.errors import ImpossibleMessage
from warren_raft.messages import (
    Append,
    AppendReply,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexHeartbeatReply,
    SnapshotWanted,
    WireEntry,
)
from warren_raft.types import EntryKind, Index, NodeId


def become_leader(node: NodeState) -> None:
    """Lead this term; its first entry commits what earlier terms left behind."""
    assert node.role is Role.CANDIDATE, node.role
    node.role = Role.LEADER
    node.leader = node.id
    node.candidacy = None
    node.election_at_ms = None
    node.attempts = 0
    node.leadership = Leadership(node.log.last)
    membership_change.adopt_as_leader(node, node.leadership)
    node.log.lead_from(node.now_ms)
    node.log.append_new(node.term, EntryKind.NOOP, b"", node.now_ms)


# ---------------------------------------------------------------------- sending


def fan_out(node: NodeState, lead: Leadership, crowded: Container[NodeId]) -> None:
    """Put into the outbox what may be sent to each follower now; crowded ones get no appends."""
    log = node.log
    if lead.reads.asked and log.committed >= lead.first:
        read_rounds.begin_round(node, lead)
    told_now = told_at_once(node, lead)
    late = lead.late
    gathers: bool | None = None
    untold = waits = False
    for member, progress in lead.progress.items():
        if progress.paused or progress.snapshotting or member in crowded:
            continue
        if progress.next > log.last and progress.commit_sent >= told_now and not progress.probing:
            untold |= progress.commit_sent < log.committed  # most often: it was sent everything
            continue
        if progress in late.followers and progress.commit_sent >= told_now:
            if gathers is None:
                gathers = may_gather(node, lead, crowded)
            if gathers and not progress.probing:
                waits = True
                continue
        untold |= feed(node, lead, member, progress, told_now)
    if waits or late.due_ms is not None or late.size_bytes:
        late.wait(waits, log, node.config, node.now_ms)
    if not untold:
        lead.commit_due_ms = None
    elif lead.commit_due_ms is None:
        lead.commit_due_ms = node.now_ms + node.config.commit_delay_ms


def may_gather(node: NodeState, lead: Leadership, crowded: Container[NodeId]) -> bool:
    """Return whether new entries may gather for the followers in `lead.late`.

    Not while what is sent at once might not make a majority, or a member is waited for.
    """
    return bool(
        node.config.last_copy_delay_ms
        and not lead.unsettled
        and lead.transfer_to is None
        and not crowded
        and lead.late.may_wait(node.log, lead.counting, node.now_ms)
    )


def feed(
    node: NodeState, lead: Leadership, to: NodeId, progress: Progress, told_now: Index
) -> bool:
    """Send a follower the entries that its window allows, and a new commit index.

    told_now  see `told_at_once`
    returns   whether it is to be told of a new commit index at `commit_due_ms`, as nothing else
              was to be sent
    """
    config = node.config
    log = node.log
    if progress.next < log.store.first_index():
        if progress.leaving:
            return False  # not worth a snapshot
        # The term before `next` may be unknown, too, except at the beginning of the log.
        progress.become_snapshotting()
        node.snapshots.append(to)
        return False
    if progress.probing:
        if not progress.unanswered:
            certain = progress.match == progress.next - 1
            size = config.append_bytes_max if certain else config.probe_bytes_max
            send(node, lead, to, progress, size)
        return False
    while (
        progress.next <= log.last
        and len(progress.inflight) < config.inflight_messages_max
        and progress.inflight_bytes < config.inflight_bytes_max
    ):
        if not send(node, lead, to, progress, config.append_bytes_max):
            break
    if progress.commit_sent >= min(log.committed, progress.next - 1):
        return False
    if progress.commit_sent >= told_now:
        return True
    send(node, lead, to, progress, 0)
    return False


def told_at_once(node: NodeState, lead: Leadership) -> Index:
    """Return up to where followers are told now what is committed, in a message of its own.

    No client waits for it: what is committed is applied and answered here, and the next entries
    tell the followers. At a steady pace such messages and their answers would be half of all, and
    each costs a turn of a node. What a member waits for is told at once: the first commit of a
    term, a new membership, and what a follower's read needs (see read_rounds.answer_reads).
    """
    due = lead.commit_due_ms
    if (
        (due is not None and node.now_ms >= due)
        or lead.transfer_to is not None
        or not node.config.commit_delay_ms
    ):
        return node.log.committed
    return max(lead.first, node.configs.latest_index)


def send(node: NodeState, lead: Leadership, to: NodeId, progress: Progress, bytes_max: int) -> bool:
    """Send one Append from progress.next on; bytes_max 0: without entries.

    returns  False: the entries cannot be read now, so nothing was sent
    """
    log = node.log
    prev = progress.next - 1
    entries: tuple[WireEntry, ...] = ()
    size = 0
    if bytes_max and prev < log.last:
        key = (progress.next, log.last, bytes_max)
        if key != lead.wire_key:
            batch = log.slice(progress.next, log.last, bytes_max)
            if not batch:
                return False
            assert batch[0].index == progress.next, (batch[0].index, progress.next)
            wire = []
            for entry in batch:
                wire.append((entry.term, entry.kind, entry.time_ms, entry.data))
                size += len(entry.data)
            lead.wire = tuple(wire), size
            lead.wire_key = key
        entries, size = lead.wire
    last = prev + len(entries)
    commit = log.committed
    prev_term = node.term if prev >= lead.first else log.term(prev)
    node.messages.append(
        Append(node.group, node.id, to, node.term, prev, prev_term, commit, entries)
    )
    progress.sent(last, size, min(commit, last), node.now_ms)
    return True


# ---------------------------------------------------------------------- receiving


def on_append_reply(node: NodeState, message: AppendReply) -> None:
    """Record a follower's progress, or probe further back after a rejection."""
    lead = node.leadership
    assert lead is not None
    progress = lead.progress.get(message.sender)
    if progress is None:
        return
    if message.member != progress.member:
        progress = membership_change.heard_as(node, lead, message.sender, message.member)
        if progress is None:
            return
    progress.heard = True
    if not message.ok:
        if progress.rejected(message.index):
            match_at, _ = node.log.hint(message.hint_index, message.hint_term)
            progress.back_up_to(min(message.index, match_at + 1))
    else:
        if message.index > node.log.last:
            what = f"acknowledges entry {message.index} of a log that ends with {node.log.last}"
            raise ImpossibleMessage(node.group, message.sender, what)
        if progress.accepted(message.index, message.commit, node.now_ms):
            if message.index > node.log.committed and progress in lead.late.followers:
                lead.late.overtaken(lead.counting, progress)
            advance_commit(node, lead)
            if lead.transfer_to is not None:
                leader_transfer.hand_over(node, lead)
    if lead.unsettled:
        membership_change.settle(node, lead)


def on_pre_vote(node: NodeState, message: PreVote) -> None:
    """Refuse a member that does not know this leader, and tell it that this one leads.

    The append claims only what is known to match, so it can be sent outside the window, even to a
    suspected member; and to one that was removed and does not know it yet: it learns what is
    committed of what it holds, and follows this leader from then on.
    """
    lead = node.leadership
    assert lead is not None
    node.messages.append(PreVoteReply(node.group, node.id, message.sender, node.term, False))
    progress = lead.progress.get(message.sender)
    log = node.log
    if progress is not None:
        match = progress.match if progress.match >= log.store.first_index() else 0
    elif message.last_index >= log.store.first_index() and log.has(
        message.last_index, message.last_term
    ):
        match = message.last_index
    else:
        return
    node.messages.append(
        Append(
            node.group,
            node.id,
            message.sender,
            node.term,
            match,
            log.term(match),
            min(log.committed, match),
        )
    )


def advance_commit(node: NodeState, lead: Leadership) -> None:
    """Commit what a majority holds if its last entry is of this term.

    1. S1 leads term 2 and replicates entry 2 to one other.  2. S5 leads term 3 elsewhere.
    3. S1 leads term 4 and completes entry 2 on a majority.  Were it committed now, by counting,
    S5 could still win with its term 3 entry and overwrite it (Raft paper, figure 8). An entry of
    term 4 on a majority makes that impossible and commits entry 2 with it.
    """
    log = node.log
    if log.committed == log.last:
        return  # most often: the slowest follower acknowledges what the others held already
    held = [progress.match for progress in lead.counting]
    if node.is_voter:
        held.append(log.durable)
    held += lead.absent
    index = held_by_majority(held)
    if index > log.committed and index >= lead.first:
        log.commit_to(index)


# ---------------------------------------------------------------------- transfer


def on_snapshot_wanted(node: NodeState, message: SnapshotWanted) -> None:
    """Handle a member's request for the next part of a snapshot, or for an entry that it lacks."""
    if message.last_term:
        node.chunks.append(message)
        return
    lead = node.leadership
    assert lead is not None
    progress = lead.progress.get(message.sender)
    if progress is None or progress.paused:
        return
    gone = message.index < node.log.store.first_index()
    progress.lacks = message.index if gone else 0
    if progress.lacks:
        node.snapshots.append(message.sender)


# ---------------------------------------------------------------------- reads


def on_confirm_reply(node: NodeState, message: ReadIndexHeartbeatReply) -> None:
    """Count a voter's confirmation of a round."""
    lead = node.leadership
    assert lead is not None
    progress = lead.progress.get(message.sender)
    if progress is not None and message.member != progress.member:
        progress = membership_change.heard_as(node, lead, message.sender, message.member)
    if progress is None:
        return
    progress.heard = True
    if message.round > lead.reads.round:
        what = f"confirms round {message.round} of {lead.reads.round}"
        raise ImpossibleMessage(node.group, message.sender, what)
    if node.membership.votes(message.sender, message.member):
        read_rounds.answer_reads(node, lead, message.sender, message.round)
    elif progress.vouching and message.round >= progress.asked:
        progress.vouched = True
        read_rounds.end_rounds(lead)
    if lead.unsettled:
        membership_change.settle(node, lead)


def on_read_index(node: NodeState, message: ReadIndex) -> None:
    """Take a follower's read-index request; over the bound it gets no answer, and is repeated."""
    lead = node.leadership
    assert lead is not None
    if lead.reads.pending < node.config.reads_pending_max:
        lead.reads.asked.append((message.sender, message.context))


# ---------------------------------------------------------------------- time


def deadline(node: NodeState, lead: Leadership) -> int | None:
    """Return when something unanswered must be repeated or aborted; None: nothing is pending."""
    due: int | None = lead.confirm_due_ms
    for at in (lead.commit_due_ms, lead.late.due_ms):
        if at is not None and (due is None or at < due):
            due = at
    for progress in lead.progress.values():
        if not progress.paused and (
            progress.inflight
            or progress.unanswered
            or progress.commit_known < progress.commit_sent  # as `Progress.waiting`
        ):
            at = progress.waiting_since + node.config.retransmit_ms
            if due is None or at < due:
                due = at
    if lead.transfer_to is not None and (due is None or lead.transfer_by_ms < due):
        due = lead.transfer_by_ms
    return due


def tick(node: NodeState, lead: Leadership) -> None:
    """Repeat what was not answered; abort a leader transfer that takes too long."""
    now_ms = node.now_ms
    for member, progress in list(lead.progress.items()):
        if (
            not progress.paused
            and progress.waiting
            and now_ms >= progress.waiting_since + node.config.retransmit_ms
        ):
            if progress.leaving and progress.leaving <= node.log.committed:
                del lead.progress[member]  # told once, no longer tracked
            else:
                progress.become_probe()
    if lead.confirm_due_ms is not None and now_ms >= lead.confirm_due_ms:
        read_rounds.ask_confirm(node, lead)
    if lead.transfer_to is not None and now_ms >= lead.transfer_by_ms:
        lead.transfer_to = None
        if not node.is_voter and not node.change_under_way:
            become_follower(node, node.term)
            return
    membership_change.settle(node, lead)
