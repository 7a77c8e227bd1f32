"""Messages that are published with a delay: kept by the queue, and ready when they are due."""

from __future__ import annotations

from typing import Final

from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import AnyReply, Count, Done, Refused
from warren_machines.queue.delayed.delay_commands import EndDelay, EnqueueDelayed
from warren_machines.queue.delayed.delayed_retry import DELAY_MS_MAX, hold_back
from warren_machines.queue.enqueue import shape_of

DONE: Final = Done()


def enqueue_delayed(context: QueueContext, command: EnqueueDelayed) -> AnyReply:
    """Keep the messages of the entry's block until they are due.

    A queue refuses none of them at its limit: they are for stores, which have none.
    """
    shape = shape_of(context)
    if isinstance(shape, Refused):
        return shape
    state, index = context.state, context.index
    if state.config.kind == "classic":
        return Refused("invalid", f"queue {state.config.name!r} is classic: it delays nothing")
    if any(count < 1 or not 0 < delay <= DELAY_MS_MAX for count, delay in command.delays):
        return Refused("invalid", f"delays {command.delays[:8]}: 1 to {DELAY_MS_MAX} ms each")
    counted = sum(count for count, _ in command.delays)
    if counted != shape.count:
        return Refused("invalid", f"delays of {counted} messages for a block of {shape.count}")
    if not shape.count:
        return DONE
    if state.contents.has(index):
        return Refused("invalid", f"entry {index}: only one command of a submission owns its block")
    state.contents.add(index, shape)
    if state.config.message_ttl_ms is not None or state.contents.detailed:
        state.contents.ready_at(index, context.now, state.config.message_ttl_ms)
    runs: list[tuple[int, int, int]] = []
    first = 0
    for count, delay in command.delays:
        runs.append((delay, first, first + count - 1))
        first += count
    # By their times: in any other order each of 65,536 messages may go to another packed leaf than
    # the one before, which would be unpacked, and packed again, for each.
    for delay, first, last in sorted(runs):
        hold_back(context, (index, first, last, 0, 0), delay)
    return DONE


def end_delay(context: QueueContext, command: EndDelay) -> AnyReply:
    """Make one delayed message ready, or drop it without dead-lettering it."""
    state = context.state
    run = state.delayed.pick(command.ready_ms, command.index, command.ordinal)
    if run is None:
        return Count(0)
    size_bytes = state.contents.size(run[0], run[1], run[2])
    state.delayed.size_bytes -= size_bytes
    if command.drop:
        state.leave(run[0], run[1], run[2])
    else:
        state.ready_bytes += size_bytes
        state.order.give_back(run)
    return Count(1)
