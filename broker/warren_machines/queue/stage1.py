"""Staged publishing before version 3 of the machine: sinks without runs, without epochs.

No current code submits these commands; logs that hold them are applied as they were.
"""

from __future__ import annotations

from typing import Final

from warren_machines.queue import enqueue, limits
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import AnyReply, Count, Done, Refused
from warren_machines.queue.stage1_commands import DropStages, PublishBatch, Stage
from warren_machines.queue.state import QueueState, Sink, StagePart

DONE: Final = Done()
LOST_STAGES_MAX: Final = 4_096
"""Names of expired stages that a sink remembers: a late publish is refused rather than partial."""
SINKS_MAX: Final = 65_536
"""Sinks with a remembered last batch; beyond it the one that published longest ago is forgotten."""


def stage(context: QueueContext, command: Stage) -> AnyReply:
    """Add the entry's block to a stage, or drop it if its batch was published already."""
    shape = enqueue.shape_of(context)
    if isinstance(shape, Refused):
        return shape
    state = context.state
    sink = state.sinks.get(command.sink) or Sink()
    if command.batch <= sink.last_batch or not shape.count:
        return DONE
    if state.contents.has(context.index):
        return Refused(
            "invalid", f"entry {context.index}: only one command of a submission owns its block"
        )
    key = (command.batch, command.partition, command.attempt)
    part = sink.stages.get(key)
    if part is None:
        part = sink.stages[key] = StagePart()
    if part.lost:
        return _lost(context, command.sink, key)
    # 1. A writer stages 7, 8 through node A.  2. A dies unanswered; both may be applied.
    # 3. The writer sends 7, 8 again through B.  Each uplink submits them in order, from the first
    # unanswered one, so whatever is not above the last one seen has been applied already.
    # Replayed by test_stage_resend.py
    if command.seq and command.seq <= part.last_seq:
        return DONE
    part.last_seq = max(part.last_seq, command.seq)
    state.sinks[command.sink] = sink
    state.contents.add(context.index, shape)
    part.blocks.append((context.index, shape.count, shape.runs))
    part.messages += shape.count
    part.expires_ms = context.now + command.ttl_ms if command.ttl_ms else 0
    state.staged += shape.count
    if part.expires_ms:
        context.arm(part.expires_ms)
    return DONE


def _lost(context: QueueContext, sink: str, key: tuple[int, int, int]) -> Refused:
    return Refused(
        "stage_lost",
        f"sink {sink!r}, batch {key[0]}, partition {key[1]}, attempt {key[2]}: its stage in queue "
        f"{context.config.name!r} expired before it was published; stage it again under a new "
        "attempt",
    )


def publish(context: QueueContext, command: PublishBatch) -> AnyReply:
    """Make the winning attempts ready, in the order given, and record the batch."""
    state = context.state
    sink = state.sinks.get(command.sink) or Sink()
    if command.batch <= sink.last_batch:
        return Count(0)
    keys = list(dict.fromkeys((command.batch, *attempt) for attempt in command.attempts))
    for key in keys:
        part = sink.stages.get(key)
        if part is not None and part.lost:
            return _lost(context, command.sink, key)
    if limits.full(context) and any(key in sink.stages for key in keys):
        return Refused(
            "queue_full",
            f"queue {context.config.name!r} holds {limits.fill(context)}; the stages "
            "are kept: consume from it and publish the batch again",
        )
    published = 0
    for key in keys:
        part = sink.stages.pop(key, None)
        if part is not None:
            for index, count, runs in part.blocks:
                total = state.contents.size(index, 0, count - 1)
                enqueue.make_ready(context, index, count, runs, total)
            published += part.messages
    state.staged -= published
    for key in [key for key in sink.stages if key[0] <= command.batch]:
        _drop(state, sink.stages.pop(key))
    sink.last_batch = command.batch
    state.sinks.pop(command.sink, None)
    state.sinks[command.sink] = sink  # at the end: the one that published last
    _bound_sinks(state)
    return Count(published)


def _bound_sinks(state: QueueState) -> None:
    if len(state.sinks) > SINKS_MAX:
        for name, sink in state.sinks.items():
            if not sink.stages:
                del state.sinks[name]
                return


def _drop(state: QueueState, part: StagePart) -> None:
    for index, count, _ in part.blocks:
        state.contents.drop(index, count)
    state.staged -= part.messages


def drop(context: QueueContext, command: DropStages) -> AnyReply:
    """Drop the stages of an aborted batch."""
    state = context.state
    sink = state.sinks.get(command.sink)
    if sink is None:
        return DONE
    for key in [key for key in sink.stages if key[0] == command.batch]:
        _drop(state, sink.stages.pop(key))
    if not sink.stages and sink.last_batch < 0:
        del state.sinks[command.sink]
    return DONE


def expire_stages(context: QueueContext) -> None:
    """Drop stages that were not published in time, keep their names; arm the next timer."""
    for sink in context.state.sinks.values():
        for part in sink.stages.values():
            if not part.expires_ms:
                continue
            if part.expires_ms > context.now:
                context.arm(part.expires_ms)
                continue
            _drop(context.state, part)
            part.blocks, part.messages, part.expires_ms, part.lost = [], 0, 0, True
        lost = [key for key, part in sink.stages.items() if part.lost]
        for key in lost[: max(0, len(lost) - LOST_STAGES_MAX)]:
            del sink.stages[key]
