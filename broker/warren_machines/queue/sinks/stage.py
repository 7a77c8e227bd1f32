"""Staged publishing: blocks that stay invisible until their batch is published as a whole.

A sink's batches are counted per run: a query's checkpoint is one run, a new checkpoint is another.
A batch is remembered by its content, to tell a repeat from other rows under the same number:

1. A driver publishes batch 5 and dies before its checkpoint records it.  2. The next one stages
batch 5 again: other attempts, after a shuffle the same rows in another order.  3. Its blocks are
counted here and not kept. If their messages have the digest of those published, the publish is
answered as the first time. If not, it is refused: the rows would be lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from warren_machines.queue import enqueue
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.claims.decision_commands import AskBatch, BatchFate
from warren_machines.queue.commands import (
    AnyReply,
    Count,
    Done,
    ForgetSink,
    Refused,
    SinkDrop,
    SinkForgotten,
    SinkPublish,
    SinkStage,
)
from warren_machines.queue.ready import limits
from warren_machines.queue.sinks.sink_state import PublishedBatch, RunStage, SinkRun, StageKey
from warren_machines.queue.state import QueueState

Kept = TypeVar("Kept")
DONE: Final = Done()
BATCHES_KEPT: Final = 16
"""Published batches remembered per run; a repeat of an older one is refused."""
RUNS_MAX: Final = 1_024
"""Runs remembered per sink; beyond it the one that published longest ago is forgotten."""
SINKS_MAX: Final = 1_024
"""Sinks with runs; beyond it the one that published longest ago is forgotten."""
LOOKED_AT: Final = 4
"""So many of them are looked at for one that is to be forgotten."""
DIGESTS: Final = 1 << 63
"""Digests are added modulo this."""
_ENCODER: Final = msgspec.msgpack.Encoder()


def stage(context: QueueContext, command: SinkStage) -> AnyReply:
    """Add the entry's block to a stage; of a batch that was published it is only counted."""
    shape = enqueue.shape_of(context)
    if isinstance(shape, Refused):
        return shape
    if not shape.count:
        return Refused("invalid", "a block without messages cannot be staged; send none instead")
    state = context.state
    if state.contents.has(context.index):
        return Refused(
            "invalid", f"entry {context.index}: only one command of a submission owns its block"
        )
    run = _current(context, command)
    if isinstance(run, Refused):
        return run
    repeat = run.find(command.batch) is not None
    if command.batch <= run.last_batch and not repeat:
        return _past(context, command, run)
    _remember(context, command, run)
    key = (command.batch, command.partition, command.attempt)
    part = run.stages.get(key)
    # 1. A writer stages 7, 8 through node A.  2. A dies unanswered; both may be applied.
    # 3. The writer sends 7, 8 again through B.  Each uplink submits them in order, from the first
    # unanswered one, so whatever is not above the last one seen has been applied already.
    # Replayed by test_stage_resend.py
    if part is not None and command.seq and command.seq <= part.last_seq:
        return DONE
    if part is None:
        part = run.stages[key] = RunStage(repeat=repeat)
    part.last_seq = max(part.last_seq, command.seq)
    part.count += 1
    part.messages += shape.count
    part.digest = (part.digest + command.digest) % DIGESTS
    if not repeat:
        state.contents.add(context.index, shape)
        part.blocks.append((context.index, shape.count, shape.runs))
        state.staged += shape.count
    part.expires_ms = context.now + command.ttl_ms if command.ttl_ms else 0
    if part.expires_ms:
        context.arm(part.expires_ms)
    if run.expires_ms:
        run.heard_ms = context.now
    return DONE


def publish(context: QueueContext, command: SinkPublish) -> AnyReply:
    """Make the named attempts ready, in the order given, and record the batch."""
    run = _current(context, command)
    if isinstance(run, Refused):
        return run
    batch = command.batch
    attempts = tuple(dict.fromkeys(command.attempts))
    named = hashlib.blake2b(_ENCODER.encode(attempts), digest_size=16).digest()
    known = run.find(batch)
    if known is None and batch <= run.last_batch:
        return _past(context, command, run)
    if known is not None and command.settles and known.settles not in (None, command.settles):
        return _settles_others(context, command)
    if known is not None and known.named == named:
        _record(run, known, named, command)
        _heard(context, command, run)
        return Count(known.messages)
    parts: list[RunStage] = []
    for partition, attempt, blocks in attempts:
        part = run.stages.get((batch, partition, attempt))
        if part is None or part.count != blocks:
            return _stage_lost(context, command, (batch, partition, attempt), blocks, part)
        parts.append(part)
    messages = sum(part.messages for part in parts)
    digest = sum(part.digest for part in parts) % DIGESTS
    if known is not None:
        if (known.messages, known.digest) != (messages, digest):
            return _conflict(context, command, known, messages)
        _drop_up_to(context.state, run, batch)
        # The repeat may be repeated, too: its client may not have received this answer.
        _record(run, known, named, command)
        _heard(context, command, run)
        return Count(messages)
    if limits.full(context) and parts:
        return _full(context)
    for part in parts:
        for index, count, runs in part.blocks:
            total = context.state.contents.size(index, 0, count - 1)
            enqueue.make_ready(context, index, count, runs, total)
        part.blocks = []
    _drop_up_to(context.state, run, batch)
    published = PublishedBatch(batch, messages, digest, named, command.settles or None)
    run.published = [*run.published, published]
    run.published = run.published[-BATCHES_KEPT:]
    run.last_batch = batch
    _remember(context, command, run, True)
    _heard(context, command, run)
    return Count(messages)


def ask(context: QueueContext, command: AskBatch) -> AnyReply:
    """Say whether a batch was published here with that claim's name; if not, it never will be.

    1. Batch 3 settles claim 1.  2. By mistake a program publishes other rows as batch 3 for claim
    2, and is refused: claim 2 is bound to a batch that was published. It is not what settles it.
    """
    state, batch = context.state, command.batch
    run = state.runs.get(command.sink, {}).get(command.run)
    known = run.find(batch) if run is not None else None
    if run is not None and known is not None:
        if command.claim in (known.settles or ()):
            return BatchFate("published")
        if known.settles is None:
            run.published[run.published.index(known)] = replace(known, settles=())
        return BatchFate("closed")
    if command.epoch <= state.forgotten_epoch:
        return BatchFate("unknown")
    if run is not None and batch <= run.last_batch:
        kept = run.published
        past = len(kept) == BATCHES_KEPT and batch < kept[0].batch
        return BatchFate("unknown" if past else "closed")
    if run is None:
        run = SinkRun(command.epoch)
    _drop_up_to(state, run, batch)
    run.last_batch = batch
    _remember(context, command, run, True)
    return BatchFate("closed")


def drop(context: QueueContext, command: SinkDrop) -> AnyReply:
    """Drop the named attempts of an aborted batch."""
    run = _current(context, command)
    if isinstance(run, Refused):
        return run
    for partition, attempt in command.attempts:
        part = run.stages.pop((command.batch, partition, attempt), None)
        if part is not None:
            _forget(context.state, part)
    return DONE


def forget(context: QueueContext, command: ForgetSink) -> AnyReply:
    """Forget a sink, or one of its runs; what is staged of it is dropped when the command says so.

    1. Batch 5 settles claim 1 and is published.  2. The node ends before claim 1 is settled.
    3. The sink is forgotten.  4. Claim 1 is released. Were batch 5 now closed by `ask`, as not
    published, the claim's messages would be read again. So the epochs are noted.
    """
    state = context.state
    runs = state.runs.get(command.sink, {})
    named = [command.run] if command.run else list(runs)
    wanted = {name: runs[name] for name in named if name in runs}
    busy = [(name, key) for name, run in wanted.items() for key in run.stages]
    if busy and not command.forced:
        return _in_use(context, command, busy)
    messages = 0
    for name, run in wanted.items():
        messages += sum(part.messages for part in run.stages.values() if not part.repeat)
        for part in run.stages.values():
            _forget(state, part)
        del runs[name]
    if wanted:
        _note_forgotten(context, wanted.values())
        if not runs:
            del state.runs[command.sink]
    return SinkForgotten(len(wanted), messages)


def expire_stages(context: QueueContext) -> None:
    """Drop stages that were not published in time; arm the next timer."""
    for _, run in context.state.all_runs():
        for key in [key for key, part in run.stages.items() if part.expires_ms]:
            part = run.stages[key]
            if part.expires_ms > context.now:
                context.arm(part.expires_ms)
            else:
                _forget(context.state, run.stages.pop(key))


def expire_runs(context: QueueContext) -> None:
    """Forget runs that are silent for as long as they have said; arm the next timer.

    One with stages is kept, and looked at again after the same time.
    """
    state = context.state
    for sink, runs in list(state.runs.items()):
        for name, run in list(runs.items()):
            if not run.expires_ms:
                continue
            due = run.heard_ms + run.expires_ms
            if due > context.now:
                context.arm(due)
            elif run.stages:
                context.arm(context.now + run.expires_ms)
            else:
                _note_forgotten(context, [runs.pop(name)])
        if not runs:
            del state.runs[sink]


# ------------------------------------------------------------------ steps


def _heard(context: QueueContext, command: SinkPublish, run: SinkRun) -> None:
    run.expires_ms = command.expires_ms
    run.heard_ms = context.now if run.expires_ms else 0
    if run.expires_ms:
        context.arm(context.now + run.expires_ms)


def _current(
    context: QueueContext, command: SinkStage | SinkPublish | SinkDrop
) -> SinkRun | Refused:
    """Return the run unless a newer driver has it; a run that is new here is not remembered yet."""
    runs = context.state.runs.get(command.sink)
    run = runs.get(command.run) if runs is not None else None
    if run is None:
        return SinkRun(command.epoch)
    if command.epoch < run.epoch:
        return Refused(
            "fenced",
            f"{_named(context, command)} has epoch {run.epoch}, not {command.epoch}: a newer "
            "driver writes this run; stop this one",
        )
    if command.epoch > run.epoch:
        # What older drivers staged can no longer be published: they are fenced, and this one did
        # not stage it.
        run.epoch = command.epoch
        for key in list(run.stages):
            _forget(context.state, run.stages.pop(key))
    return run


def _remember(
    context: QueueContext,
    command: SinkStage | SinkPublish | AskBatch,
    run: SinkRun,
    last: bool = False,
) -> None:
    """Keep the run, within the bounds; the oldest is dropped. last: it has just published."""
    state = context.state
    runs = state.runs.get(command.sink)
    if runs is not None and command.run in runs and not last:
        return
    runs = state.runs.pop(command.sink, {})
    runs.pop(command.run, None)
    runs[command.run] = run
    state.runs[command.sink] = runs
    if len(runs) > RUNS_MAX:
        oldest = _oldest(runs, lambda each: bool(each.stages))
        _note_forgotten(context, () if oldest is None else (oldest,))
    if len(state.runs) > SINKS_MAX:
        gone = _oldest(state.runs, lambda every: any(each.stages for each in every.values()))
        _note_forgotten(context, () if gone is None else gone.values())


def _oldest(kept: dict[str, Kept], in_use: Callable[[Kept], bool]) -> Kept | None:
    """Take out the oldest that is not in use, but not the newest; None: the first ones are.

    These are as new as the newest then: a client may have any number, and none is looked at again
    for each that comes.
    """
    for name in list(islice(kept, min(LOOKED_AT, len(kept) - 1))):
        found = kept.pop(name)
        if not in_use(found):
            return found
        kept[name] = found
    return None


def _note_forgotten(context: QueueContext, runs: Iterable[SinkRun]) -> None:
    """See to it that `ask` does not take what they have published for not published."""
    state = context.state
    state.forgotten_epoch = max(state.forgotten_epoch, *(run.epoch for run in runs), 0)


def _drop_up_to(state: QueueState, run: SinkRun, batch: int) -> None:
    """Drop the stages of this batch and of earlier ones; blocks made ready are no longer theirs."""
    for key in [key for key in run.stages if key[0] <= batch]:
        _forget(state, run.stages.pop(key))


def _forget(state: QueueState, part: RunStage) -> None:
    for index, count, _ in part.blocks:
        state.contents.drop(index, count)
    if not part.repeat:
        state.staged -= part.messages


def _record(run: SinkRun, known: PublishedBatch, named: bytes, command: SinkPublish) -> None:
    """Note what a repeat has named."""
    settles = known.settles if known.settles is not None else command.settles or None
    run.published[run.published.index(known)] = replace(known, named=named, settles=settles)


def _named(context: QueueContext, command: SinkStage | SinkPublish | SinkDrop) -> str:
    return f"sink {command.sink!r}, run {command.run!r}, in queue {context.config.name!r}"


def _past(context: QueueContext, command: SinkStage | SinkPublish, run: SinkRun) -> Refused:
    return Refused(
        "batch_past",
        f"{_named(context, command)}: batch {command.batch} is not after the last one, "
        f"{run.last_batch}, and is none of the latest {BATCHES_KEPT} that were published here; "
        "number batches upwards within a run, or give a new run",
    )


def _stage_lost(
    context: QueueContext, command: SinkPublish, key: StageKey, blocks: int, part: RunStage | None
) -> Refused:
    found = "nothing" if part is None else f"{part.count} blocks"
    return Refused(
        "stage_lost",
        f"{_named(context, command)}: batch {key[0]}, partition {key[1]}, attempt {key[2]} has "
        f"{found} staged, not {blocks} blocks: it expired, was dropped, or is still being "
        "written; nothing was published: stage the batch again",
    )


def _conflict(
    context: QueueContext, command: SinkPublish, known: PublishedBatch, messages: int
) -> Refused:
    return Refused(
        "batch_conflict",
        f"{_named(context, command)}: batch {command.batch} was published with {known.messages} "
        f"messages, and these {messages} are not the same: the batch was computed again with "
        "another result, or two outputs share this sink and run; nothing was published",
    )


def _settles_others(context: QueueContext, command: SinkPublish) -> Refused:
    return Refused(
        "batch_conflict",
        f"{_named(context, command)}: batch {command.batch} was published, and it settles other "
        "claims than those named now: give each batch of a run a number of its own; nothing was "
        "published or settled",
    )


def _full(context: QueueContext) -> Refused:
    return Refused(
        "queue_full",
        f"queue {context.config.name!r} holds {limits.fill(context)}; the stages "
        "are kept: consume from it and publish the batch again",
    )


def _in_use(
    context: QueueContext, command: ForgetSink, busy: list[tuple[str, StageKey]]
) -> Refused:
    run, (batch, _, _) = busy[0]
    return Refused(
        "sink_in_use",
        f"sink {command.sink!r}, run {run!r}, in queue {context.config.name!r}: attempts of batch "
        f"{batch} are staged, and {len(busy)} in all: a query is writing it, or has ended in the "
        "middle of it; stop the query and try again, or force it: what is staged is dropped, and "
        "its query fails, which loses nothing",
    )
