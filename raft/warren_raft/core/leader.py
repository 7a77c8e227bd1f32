"""Leading: replicating, committing, handing over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren_raft.core import membership_change
from warren_raft.core.progress import Progress
from warren_raft.core.quorum import held_by_majority
from warren_raft.core.read_index import Reads
from warren_raft.core.ready import ReadState
from warren_raft.errors import UsageError
from warren_raft.messages import (
    Append,
    AppendReply,
    Confirm,
    ConfirmReply,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexReply,
    SnapshotWanted,
    TimeoutNow,
    WireEntry,
)
from warren_raft.types import Index, NodeId

if TYPE_CHECKING:
    from warren_raft.core.node import Node


class Leadership:
    """What a leader knows for as long as it leads.

    first           index of its NOOP: from here on every entry is of its own term, and only
                    these are committed by counting (Raft paper, 5.4.2)
    progress        of every other member, voters and learners, and of those that are leaving
    counting        of the other voters that answer under the right id; absent: a 0 for each voter
                    whose copy counts for nothing
    unsettled       whether there may be something for changes.settle to do
    transfer_to     whom leadership is being handed to; nothing is proposed meanwhile
    transfer_by_ms  when that is given up
    confirm_due_ms  when a round of reads is asked for again; None: no round is open
    wire            the last batch built, so that followers in step share it:
                    (first, last of the log, bytes_max) and (entries, size)
    """

    __slots__ = (
        "absent",
        "confirm_due_ms",
        "counting",
        "first",
        "progress",
        "reads",
        "transfer_by_ms",
        "transfer_to",
        "unsettled",
        "wire",
        "wire_key",
    )

    def __init__(self, node: Node) -> None:
        last = node.log.last
        self.first: Index = last + 1
        self.progress: dict[NodeId, Progress] = {}
        self.counting: tuple[Progress, ...] = ()
        self.absent: list[Index] = []
        self.unsettled = True
        self.reads = Reads()
        self.transfer_to: NodeId | None = None
        self.transfer_by_ms = 0
        self.confirm_due_ms: int | None = None
        self.wire_key: tuple[Index, Index, int] = (0, 0, 0)
        self.wire: tuple[tuple[WireEntry, ...], int] = ((), 0)

    def check(self, node: Node) -> None:
        """Assert that every follower's progress lies in the log."""
        for member, progress in self.progress.items():
            progress.check()
            assert progress.next <= node.log.last + 1, (member, progress.next, node.log.last)
            assert (member in node.membership) != bool(progress.leaving), member
        members = node.membership
        assert len(self.counting) + len(self.absent) + node.is_voter == len(members.voters)
        for progress in self.counting:
            (voter,) = (v for v in members.voters if self.progress.get(v) is progress)
            assert progress.member == members.id_of(voter), (voter, progress.member)
        self.reads.check()


# ---------------------------------------------------------------------- sending


def fan_out(node: Node, lead: Leadership) -> None:
    """Put into the outbox what each follower may be sent now."""
    if lead.reads.asked and node.log.committed >= lead.first:
        begin_round(node, lead)
    for member, progress in lead.progress.items():
        if not progress.paused and not progress.snapshotting:
            feed(node, lead, member, progress)


def feed(node: Node, lead: Leadership, to: NodeId, progress: Progress) -> None:
    """Send a follower what its window allows, and the news of a commit."""
    config = node.config
    log = node.log
    if progress.next < log.store.first_index():
        if progress.leaving:
            return  # not worth a snapshot
        # The entry before `next` need not be known either: where the log begins anew, it is.
        progress.become_snapshotting()
        node.snapshots.append(to)
        return
    if progress.probing:
        if not progress.unanswered:
            certain = progress.match == progress.next - 1
            size = config.append_bytes_max if certain else config.probe_bytes_max
            send(node, lead, to, progress, size)
        return
    while (
        progress.next <= log.last
        and len(progress.inflight) < config.inflight_messages_max
        and progress.inflight_bytes < config.inflight_bytes_max
    ):
        if not send(node, lead, to, progress, config.append_bytes_max):
            break
    if progress.commit_sent < min(log.committed, progress.next - 1):
        send(node, lead, to, progress, 0)


def send(node: Node, lead: Leadership, to: NodeId, progress: Progress, bytes_max: int) -> bool:
    """One Append from progress.next on; bytes_max 0: without entries.

    returns  False: the entries cannot be read now, nothing was sent
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
            wire = tuple([(e.term, e.kind, e.time_ms, e.data) for e in batch])
            lead.wire = wire, sum([len(e[3]) for e in wire])
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


# ---------------------------------------------------------------------- hearing


def on_append_reply(node: Node, message: AppendReply) -> None:
    """A follower holds more than was known, or less than was hoped."""
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
        assert message.index <= node.log.last, (message.index, node.log.last)
        if progress.accepted(message.index, message.commit, node.now_ms):
            advance_commit(node, lead)
            hand_over(node, lead)
    if lead.unsettled:
        membership_change.settle(node, lead)


def on_pre_vote(node: Node, message: PreVote) -> None:
    """Somebody has not heard of this leader: refuse, and tell it who leads.

    The append says nothing that is not known to match, so it can be sent even to a member that is
    suspected, outside its window; and to one that was removed and does not know, or not for sure:
    it is told what is committed of what it holds, and believes in this leader from then on.
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


def advance_commit(node: Node, lead: Leadership) -> None:
    """Commit what a majority holds, if it is of this term.

    1. S1 leads term 2 and replicates entry 2 to one other.  2. S5 leads term 3 elsewhere.
    3. S1 leads term 4 and completes entry 2 on a majority.  Were it committed now, by counting,
    S5 could still win with its term 3 entry and overwrite it (Raft paper, figure 8). An entry of
    term 4 on a majority makes that impossible and commits entry 2 with it.
    """
    log = node.log
    held = [progress.match for progress in lead.counting]
    if node.is_voter:
        held.append(log.durable)
    held += lead.absent
    index = held_by_majority(held)
    if index > log.committed and index >= lead.first:
        log.commit_to(index)


# ---------------------------------------------------------------------- transfer


def on_snapshot_wanted(node: Node, message: SnapshotWanted) -> None:
    """A member says which part of a snapshot it wants next, or which entry it lacks."""
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


def begin_transfer(node: Node, lead: Leadership, to: NodeId) -> None:
    """Leadership is to go to that voter; nothing happens when it could not take it now."""
    if to not in node.membership.voters:
        raise UsageError(
            f"group {node.group}: {to} cannot lead, it is no voter; "
            f"choose one of {', '.join(node.membership.voters)}"
        )
    if to != node.id and membership_change.hears(node, lead, to, node.membership):
        lead.transfer_to = to
        lead.transfer_by_ms = node.now_ms + node.config.transfer_timeout_ms
        hand_over(node, lead)


def hand_over(node: Node, lead: Leadership) -> None:
    """Send TimeoutNow once the successor has the whole log."""
    to = lead.transfer_to
    if to is None or lead.progress[to].match < node.log.last:
        return
    member = node.membership.id_of(to)
    node.messages.append(TimeoutNow(node.group, node.id, to, node.term, member))
    if not node.is_voter and not node.change_under_way:
        node.become_follower(node.term)  # and asks, until somebody else is known to lead


# ---------------------------------------------------------------------- reads


def begin_round(node: Node, lead: Leadership) -> None:
    """Ask the voters whether this is still the leader."""
    lead.reads.begin(node.log.committed)
    ask_confirm(node, lead)
    answer_reads(node, lead, node.id, 0)  # a group of one has its majority already


def ask_confirm(node: Node, lead: Leadership) -> None:
    """Send (again) the newest round, which stands for the older ones, to all who owe an answer."""
    asked = node.others(node.membership.voters) if lead.reads.rounds else []
    asked += [member for member, progress in lead.progress.items() if progress.vouching]
    lead.confirm_due_ms = node.now_ms + node.config.retransmit_ms if asked else None
    for member in asked:
        node.messages.append(Confirm(node.group, node.id, member, node.term, lead.reads.round))


def on_confirm_reply(node: Node, message: ConfirmReply) -> None:
    """A voter confirmed a round."""
    lead = node.leadership
    assert lead is not None
    progress = lead.progress.get(message.sender)
    if progress is not None and message.member != progress.member:
        progress = membership_change.heard_as(node, lead, message.sender, message.member)
    if progress is None:
        return
    progress.heard = True
    if node.membership.votes(message.sender, message.member):
        answer_reads(node, lead, message.sender, message.round)
    elif progress.vouching and message.round >= progress.asked:
        progress.vouched = True
        end_rounds(lead)
    if lead.unsettled:
        membership_change.settle(node, lead)


def answer_reads(node: Node, lead: Leadership, voter: NodeId, round_: int) -> None:
    """Answer the reads whose round a majority has confirmed."""
    for index, requests in lead.reads.confirmed(voter, round_, node.membership.voters, node.id):
        for asker, context in requests:
            if asker == node.id:
                node.reads.append(ReadState(context, index))
            else:
                node.messages.append(
                    ReadIndexReply(node.group, node.id, asker, node.term, context, index)
                )
    end_rounds(lead)


def end_rounds(lead: Leadership) -> None:
    """Wait no longer when nobody owes an answer."""
    if not lead.reads.rounds and not any(p.vouching for p in lead.progress.values()):
        lead.confirm_due_ms = None


def on_read_index(node: Node, message: ReadIndex) -> None:
    """A follower asks; over the bound it gets no answer, and asks again."""
    lead = node.leadership
    assert lead is not None
    if lead.reads.pending < node.config.reads_pending_max:
        lead.reads.asked.append((message.sender, message.context))


# ---------------------------------------------------------------------- time


def deadline(node: Node, lead: Leadership) -> int | None:
    """When something unanswered must be repeated or given up; None: nothing is under way."""
    due: int | None = lead.confirm_due_ms
    for progress in lead.progress.values():
        if not progress.paused and progress.waiting:
            at = progress.waiting_since + node.config.retransmit_ms
            if due is None or at < due:
                due = at
    if lead.transfer_to is not None and (due is None or lead.transfer_by_ms < due):
        due = lead.transfer_by_ms
    return due


def tick(node: Node, lead: Leadership) -> None:
    """Repeat what was not answered; give up a transfer that takes too long."""
    now_ms = node.now_ms
    for member, progress in list(lead.progress.items()):
        if (
            not progress.paused
            and progress.waiting
            and now_ms >= progress.waiting_since + node.config.retransmit_ms
        ):
            if progress.leaving and progress.leaving <= node.log.committed:
                del lead.progress[member]  # told once, and gone
            else:
                progress.become_probe()
    if lead.confirm_due_ms is not None and now_ms >= lead.confirm_due_ms:
        ask_confirm(node, lead)
    if lead.transfer_to is not None and now_ms >= lead.transfer_by_ms:
        lead.transfer_to = None
        if not node.is_voter and not node.change_under_way:
            node.become_follower(node.term)
            return
    membership_change.settle(node, lead)
