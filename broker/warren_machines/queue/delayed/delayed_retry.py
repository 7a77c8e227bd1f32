"""Delayed retry: messages that come back wait before they are delivered again."""

from __future__ import annotations

from typing import Final

from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import AnyReply, Count, RetryDelayed
from warren_machines.queue.ready.ranges import Run
from warren_wire.queue_values.config import QueueConfig

DELAY_MS_MAX: Final = 315_360_000_000
"""Ten years: longer delays count as this."""
READY_RUNS_MAX: Final = 10_000
"""Delayed runs that become ready per entry; the next timer continues."""


def delay_ms(config: QueueConfig, failures: int, failed: bool) -> int:
    """Return how long a message that comes back waits; 0: not at all.

    failures  its delivery count, including this delivery if that failed
    failed    this delivery failed
    source    quorum-queues.txt, "How It Works": min(min_delay * delivery_count, max_delay); a
              message that never failed waits min_delay; without max_delay every one does
    """
    least, most = config.delayed_retry_min_ms, config.delayed_retry_max_ms
    if config.delayed_retry_type == "disabled" or least is None or config.kind == "classic":
        return 0
    if config.delayed_retry_type == ("returned" if failed else "failed"):
        return 0
    return min(least * max(1, failures), least if most is None else most, DELAY_MS_MAX)


def hold_back(context: QueueContext, run: Run, wait_ms: int) -> None:
    """Delay a run that came back."""
    state = context.state
    ready_ms = context.now + wait_ms
    state.delayed.add(ready_ms, run)
    state.delayed.size_bytes += state.contents.size(run[0], run[1], run[2])
    context.arm(ready_ms)


def run_due(context: QueueContext) -> None:
    """Return the messages that are ready to the queue; arm the timer for the next ones.

    They follow those that returned before them, ahead of all that were never delivered. Their time
    to live may have ended meanwhile: then they expire now.
    """
    state = context.state
    delayed, contents = state.delayed, state.contents
    if not delayed.count:
        return
    for run in delayed.take_ready(context.now, READY_RUNS_MAX):
        size_bytes = contents.size(run[0], run[1], run[2])
        delayed.size_bytes -= size_bytes
        state.ready_bytes += size_bytes
        state.order.give_back(run)
    if delayed.count:
        context.arm(max(delayed.next_ms, context.now))


def retry_delayed(context: QueueContext, command: RetryDelayed) -> AnyReply:
    """Make all delayed messages ready now, in the order in which they would have been."""
    del command
    count = context.state.delayed.force()
    run_due(context)
    return Count(count)
