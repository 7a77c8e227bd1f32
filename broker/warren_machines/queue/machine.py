"""The queue as a replicated machine: entries in, replies and effects out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from warren_machines.queue import (
    ack,
    attach,
    commands,
    disconnects,
    enqueue,
    queue_snapshot,
    whole_queue,
)
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.claims import claim, decision_commands
from warren_machines.queue.codec import (
    MalformedEntry,
    decode_submission,
    encode_submission,
)
from warren_machines.queue.commands import (
    AnyReply,
    Done,
    ForgetSink,
    Modify,
    Refused,
    Stat,
    Submission,
    SubmissionReply,
    Timer,
)
from warren_machines.queue.delayed import delay_commands, delayed_publish, delayed_retry
from warren_machines.queue.effects import (
    Expired,
    FiltersBehind,
    JobsDue,
    LettersDue,
    SetTimer,
)
from warren_machines.queue.filters import filtered_service
from warren_machines.queue.filters.filter_commands import Judge
from warren_machines.queue.jobs import jobs
from warren_machines.queue.jobs.job_commands import BeginJob, RecallJob, SteerJob, StepJob
from warren_machines.queue.letters import dead_letter
from warren_machines.queue.ready import limits, service_order
from warren_machines.queue.relays import relay_release, relays
from warren_machines.queue.relays.relay_commands import EnqueueRelayed, ReleaseRelay
from warren_machines.queue.sinks import stage
from warren_machines.queue.state import QueueState, SeenUplink
from warren_machines.queue.whole_queue import counts
from warren_raft.index_set import Indexes
from warren_raft.machine import Applied, Meta
from warren_raft.versions import NEWEST
from warren_wire.queue_values.config import QueueConfig
from warren_wire.queue_values.describe_command import DescribeClaim
from warren_wire.queue_values.give_up_command import GiveUpClaim

REPLIES_KEPT: Final = 1_024
"""Replies kept per uplink: a repeat within this many seqs gets the replies of the first time."""
EXPIRED_AGAIN_MS: Final = 60_000
"""An expired queue asks again for its deletion after this time, in case the effect was lost."""
_DONE: Final = Done()
Handler: TypeAlias = Callable[[QueueContext, Any], AnyReply]


def _timer(context: QueueContext, command: Timer) -> AnyReply:
    """Ask again for a timer that came early; every apply does first what is due."""
    del command
    context.repeat_timer()
    return _DONE


def _run_due(context: QueueContext) -> None:
    """Do what is due and arm the next timer; message expiry is checked by every apply anyway."""
    state = context.state
    state.timer_ms = 0
    disconnects.take_back_overdue(context)
    claim.expire_claims(context)
    claim.expire_readers(context)
    stage.expire_stages(context)
    stage.expire_runs(context)
    delayed_retry.run_due(context)
    relays.expire(context)
    if state.jobs:
        jobs.expire(context)
    expires_ms = state.config.expires_ms
    if expires_ms is not None and not state.consumer_count:
        due = (context.now if state.in_use else state.unused_ms) + expires_ms
        if due <= context.now:
            context.expired("expires")
            due = context.now + EXPIRED_AGAIN_MS
        context.arm(due)


HANDLERS: Final[Mapping[type, Handler]] = {
    commands.Enqueue: enqueue.enqueue,
    EnqueueRelayed: enqueue.enqueue_relayed,
    ReleaseRelay: relay_release.release,
    commands.Checkout: attach.checkout,
    commands.Credit: attach.credit,
    commands.Cancel: attach.cancel,
    commands.Resume: attach.resume,
    commands.Get: attach.get,
    commands.SessionDown: disconnects.session_down,
    commands.NodeDown: disconnects.node_down,
    commands.NodeSuspected: disconnects.node_suspected,
    commands.NodeBack: disconnects.node_back,
    commands.Settle: ack.settle,
    commands.Return: ack.return_,
    commands.Discard: ack.discard,
    Modify: ack.modify,
    commands.Purge: whole_queue.purge,
    commands.RetryDelayed: delayed_retry.retry_delayed,
    commands.SettleLetters: dead_letter.settle_letters,
    delay_commands.EnqueueDelayed: delayed_publish.enqueue_delayed,
    delay_commands.EndDelay: delayed_publish.end_delay,
    commands.Delete: whole_queue.delete,
    commands.Stat: whole_queue.stat,
    commands.Configure: whole_queue.configure,
    commands.Timer: _timer,
    commands.RegisterReader: claim.register,
    commands.OpenClaim: claim.open_claim,
    commands.RenewClaims: claim.renew,
    commands.SettleClaims: claim.settle,
    commands.ReleaseClaim: claim.release,
    DescribeClaim: claim.describe,
    GiveUpClaim: claim.give_up,
    commands.SinkStage: stage.stage,
    commands.SinkPublish: stage.publish,
    commands.SinkDrop: stage.drop,
    decision_commands.BindClaim: claim.bind,
    decision_commands.ResolveClaim: claim.resolve,
    decision_commands.AskBatch: stage.ask,
    ForgetSink: stage.forget,
    Judge: filtered_service.judge,
    BeginJob: jobs.begin,
    StepJob: jobs.step,
    SteerJob: jobs.steer,
    RecallJob: jobs.recall,
}
"""A change of what one does is a new version (`warren_raft.versions`). The old behaviour stays, and
is chosen by `QueueContext.version`: all members apply a log by the version under which it was
written."""

AFTER_DELETE: Final[frozenset[type]] = frozenset(
    {
        commands.Cancel,
        commands.Credit,
        commands.Resume,
        commands.SessionDown,
        commands.NodeDown,
        commands.NodeSuspected,
        commands.NodeBack,
        commands.Settle,
        commands.Return,
        commands.Discard,
        Modify,
        commands.SettleLetters,
        commands.Timer,
        Judge,
        StepJob,
    }
)
"""Commands accepted without error by a deleted queue: they have nothing left to do."""


class QueueMachine:
    """A queue; implements warren_raft.machine.Machine.

    apply(meta, data, state) takes an entry's data (`codec`) and returns Applied(SubmissionReply,
    effects); an entry that is not a submission is ignored on every member.
    """

    def __init__(self, config: QueueConfig, numbered_above: int = 0, newest: int = NEWEST) -> None:
        """numbered_above: claims and epochs of a new queue have higher numbers.

        newest  the version that it has; others are for tests
        """
        self.config = config
        self.newest = newest
        self.numbered_above = numbered_above

    def init(self) -> QueueState:
        """Return a new queue with the settings it was declared with."""
        state = QueueState(self.config)
        state.claim_floor = self.numbered_above
        state.next_epoch = self.numbered_above + 1
        return state

    def apply(self, meta: Meta, command: bytes | memoryview, state: QueueState) -> Applied:
        """Apply one submission as a whole."""
        try:
            submission, block = decode_submission(command, self.newest)
        except MalformedEntry:
            return Applied()
        context = QueueContext(state, meta.index, meta.time_ms, block, submission.version)
        state.version = max(state.version, submission.version)
        if not state.unused_ms:
            _first_apply(context)
        if state.timer_ms and state.timer_ms <= context.now:
            _run_due(context)
        reply = _submit(context, submission)
        if state.filters.by_id:
            filtered_service.note_block(context)
        if state.changed_relays:
            service_order.serve_relays(context)
        if state.order.count:
            if state.service.lanes or state.filters.by_id:
                service_order.dispatch(context, last=True)
            if limits.limited(context):
                limits.drop_head(context)
            if state.contents.expiring:
                limits.expire_heads(context)
        elif state.delayed.count and limits.limited(context):
            limits.drop_head(context)
        return Applied(reply, context.effects(), context.frees)

    def end_sessions(self, meta: Meta, state: QueueState) -> None:
        """End every session and uplink, as if all connections were lost: see `continues`."""
        gone = tuple(commands.NodeDown(uplink) for uplink in state.uplinks)
        self.apply(meta, encode_submission(Submission(0, "", 0, gone, state.version)), state)

    def leader_effects(self, state: QueueState) -> tuple[Any, ...]:
        """Return what a new leader repeats: timer, dead letters, the request to delete the queue.

        Deliveries are not repeated here: each uplink asks for those it has not seen (`Resume`).
        """
        if state.deleted:
            return (Expired("deleted"),)
        effects: list[Any] = []
        if state.config.auto_delete and state.ever_used and not state.in_use:
            effects.append(Expired("disconnected"))
        if state.letters.count:
            effects.append(LettersDue())
        if state.filters:
            effects.append(FiltersBehind())
        if state.jobs:
            effects.append(JobsDue())
        if state.timer_ms:
            effects.append(SetTimer(state.timer_ms))
        elif state.config.expires_ms is not None and not state.unused_ms:
            effects.append(SetTimer(1))  # at once: a queue's clock starts with its first entry
        return tuple(effects)

    def form(self, state: QueueState) -> int:
        """Return the version of the newest submission applied."""
        return state.version

    def snapshot(self, state: QueueState) -> bytes:
        """Return the state as bytes; equal states give equal bytes."""
        return queue_snapshot.snapshot(state)

    def restore(self, data: bytes) -> QueueState:
        """Restore a state from `snapshot`, with the snapshot's settings."""
        return queue_snapshot.restore(data)

    def live_indexes(self, state: QueueState) -> Indexes:
        """Return the entries with blocks that the state still refers to, ascending."""
        return state.contents.indexes()


def _first_apply(context: QueueContext) -> None:
    state = context.state
    state.unused_ms = max(context.now, 1)
    if state.config.expires_ms is not None:
        context.arm(state.unused_ms + state.config.expires_ms)


def _submit(context: QueueContext, submission: Submission) -> SubmissionReply:
    """Apply the commands unless they were applied before or earlier submissions are missing."""
    state, seq = context.state, submission.seq
    if not submission.uplink:
        return SubmissionReply(0, seq, _carry_out(context, submission))
    uplink = state.uplinks.get(submission.uplink)
    number = submission.incarnation
    if number and number <= state.over.get(submission.node, 0):
        # 1. An incarnation's first submission is under way twice: a leader changed.  2. One
        # arrives, the incarnation ends (`NodeDown`) and its uplink is removed.  3. The other one
        # arrives: taken for a new uplink's, its messages would be in the queue twice, its consumers
        # held forever.
        # Replayed by tests/machines/queue/test_incarnations.py
        return SubmissionReply(submission.uplink, seq, (), retired=True)
    last_seq = uplink.last_seq if uplink is not None else 0
    if seq > last_seq + 1:
        return SubmissionReply(submission.uplink, seq, (), last_seq + 1)
    if uplink is None:
        uplink = SeenUplink(submission.uplink, submission.node, incarnation=number)
        state.uplinks[uplink.id] = uplink
    context.uplink = uplink
    if seq <= last_seq:
        return SubmissionReply(uplink.id, seq, _repeat(context, uplink, submission))
    uplink.last_seq = seq
    replies = _carry_out(context, submission)
    _keep(uplink, submission, replies)
    return SubmissionReply(uplink.id, seq, replies)


def _carry_out(context: QueueContext, submission: Submission) -> tuple[AnyReply, ...]:
    replies: list[AnyReply] = []
    state = context.state
    for command in submission.commands:
        kind = type(command)
        if state.deleted:
            if kind in AFTER_DELETE:
                replies.append(HANDLERS[kind](context, command))
            else:
                detail = f"queue {state.config.name!r} was deleted: declare it again"
                replies.append(Refused("deleted", detail))
            continue
        replies.append(HANDLERS[kind](context, command))
    return tuple(replies)


def _keep(uplink: SeenUplink, submission: Submission, replies: tuple[AnyReply, ...]) -> None:
    """Keep the replies for a repeat; forget those that the node has confirmed."""
    kept = uplink.kept
    if kept:
        heard = max(submission.answered, submission.seq - REPLIES_KEPT)
        while kept and (oldest := next(iter(kept))) <= heard:
            del kept[oldest]
    for reply, command in zip(replies, submission.commands, strict=True):
        if reply is not _DONE and type(reply) is not Done and type(command) is not Stat:
            kept[submission.seq] = replies
            return


def _repeat(
    context: QueueContext, uplink: SeenUplink, submission: Submission
) -> tuple[AnyReply, ...]:
    """Return the replies of the first time; counts may be newer. Applies nothing."""
    kept = uplink.kept.get(submission.seq)
    if kept is not None:
        return kept
    if submission.seq <= uplink.last_seq - REPLIES_KEPT:
        detail = (
            f"submission {submission.seq} of uplink {uplink.id} was applied; its reply is not kept "
            f"any more: more than {REPLIES_KEPT} were submitted since; keep fewer unanswered"
        )
        return tuple(Refused("invalid", detail) for _ in submission.commands)
    return tuple(
        counts(context.state) if type(command) is Stat else _DONE for command in submission.commands
    )
