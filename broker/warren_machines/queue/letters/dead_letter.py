"""How messages leave a queue, or come back to it, other than by being settled."""

from __future__ import annotations

from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import AnyReply, Count, SettleLetters
from warren_machines.queue.delayed import delayed_retry
from warren_machines.queue.effects import DeathReason
from warren_machines.queue.ready.ranges import COUNT_MASK, LANE_SHIFT, Run


def dead_letter_or_drop(context: QueueContext, reason: DeathReason, run: Run) -> None:
    """Drop a run that is in no place any more, through the dead letter exchange if there is one.

    At most once: the effect may be lost with its leader, and the queue forgets the run at once. At
    least once: the run stays in the queue until `settle_letters`.
    """
    index, first, last, failures, _ = run
    context.dead_letter(reason, index, first, last, failures)
    state = context.state
    if state.config.keeps_letters:
        state.letters.add(index, first, last, reason, context.now, failures)
        state.letters.size_bytes += state.contents.size(index, first, last)
        return
    state.leave(index, first, last)


def settle_letters(context: QueueContext, command: SettleLetters) -> AnyReply:
    """Remove letters that every target queue has confirmed; those that are gone are ignored."""
    state = context.state
    count = size_bytes = 0
    for number, first, last in command.letters:
        for index, low, high in state.letters.remove(number, first, last):
            count += high - low + 1
            size_bytes += state.contents.size(index, low, high)
            state.leave(index, low, high)
    state.letters.size_bytes -= size_bytes
    context.letters_gone(count, size_bytes)
    return Count(count)


def drop_letters(context: QueueContext) -> int:
    """Drop all letters: a purge, or the settings keep none any more; return how many."""
    state = context.state
    count, size_bytes = state.letters.count, state.letters.size_bytes
    if count:
        for index, first, last in state.letters.clear():
            state.leave(index, first, last)
        context.letters_gone(count, size_bytes, dropped=True)
    return count


def give_back(context: QueueContext, run: Run, failed: bool, ready_ms: int = 0) -> None:
    """Return a run that was held to its place, now or after its delay, or drop it.

    ready_ms  a time that its consumer has said; one that is over says nothing

    It was acquired once more than `run` says; with `failed` its delivery also failed once more.
    The limit is crossed when the delivery count exceeds it, as in RabbitMQ: a limit of 20 allows
    20 failures, the 21st drops or dead-letters, without a delay. Everything that comes back passes
    here.
    """
    index, first, last, failures, acquired = run
    if not context.in_place:
        acquired &= COUNT_MASK
    failures += failed
    run = (index, first, last, failures, acquired + 1)
    limit = context.config.delivery_limit
    if 0 <= limit < failures:
        dead_letter_or_drop(context, "delivery_limit", run)
        return
    wait_ms = delayed_retry.delay_ms(context.config, failures, failed)
    if ready_ms > context.now:
        wait_ms = min(ready_ms - context.now, delayed_retry.DELAY_MS_MAX)
    if wait_ms:
        delayed_retry.hold_back(context, run, wait_ms)
        return
    state = context.state
    if _one_lane(context) or acquired >> LANE_SHIFT:
        state.order.put_back(run)  # as in RabbitMQ: nack order is not delivery order
    else:
        state.order.give_back(run)
    state.ready_bytes += state.contents.size(index, first, last)


def put_back_unsent(context: QueueContext, run: Run) -> None:
    """Return a run that no client was sent to its place; its counts are as they are.

    A run without the mark of its lane was taken from the head of those that came back, or under
    the version before.
    """
    index, first, last, failures, acquired = run
    state = context.state
    if _one_lane(context):
        state.order.put_back((index, first, last, failures, acquired & COUNT_MASK))
    elif acquired >> LANE_SHIFT:
        state.order.put_back(run)
    else:
        state.order.give_back_first(run)
    state.ready_bytes += state.contents.size(index, first, last)


def _one_lane(context: QueueContext) -> bool:
    return context.config.kind == "classic" and not context.config.priority_max
