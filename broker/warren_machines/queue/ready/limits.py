"""The bounds of a queue: messages in flight, length, age."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.letters.dead_letter import dead_letter_or_drop
from warren_machines.queue.ready.ranges import Run
from warren_wire.queue_values.config import QueueConfig

UNLIMITED_WINDOW: Final = 8_000
"""Maximum number of unsettled messages held by a consumer with prefetch 0."""
UNLIMITED_WINDOW_CLASSIC: Final = 100_000
"""The same on a classic queue, where clients expect to hold a backlog without settling."""
NO_ACK_WINDOW: Final = 4_096
"""Messages on their way to a no-ack consumer that `Credit` has not reported as sent."""
WINDOW_BYTES: Final = 32 * 1024 * 1024
"""Bytes in either window; one message is delivered even when it is larger."""
EXPIRED_RUNS_MAX: Final = 10_000
"""Expired runs dropped per entry; the next timer continues."""


def take(
    context: QueueContext, count: int, size_bytes: int = -1, marked: bool = False
) -> Run | None:
    """Take up to `count` messages of one run from the head, after dropping expired ones there.

    size_bytes  at most that many bytes, as an upper bound; -1: no limit
    marked      with the lane of the run, to which `put_back_unsent` returns it
    returns     None when the queue is empty, or not even one message is known to fit
    """
    state = context.state
    order, contents = state.order, state.contents
    if not order.count:
        return None
    if contents.expiring:
        count = _deliverable(context, count)
        if not count:
            return None
    if size_bytes >= 0:
        head = order.head()
        assert head is not None, order.count
        count = min(count, contents.fitting(head[0], head[1], head[2], size_bytes))
        if not count:
            return None
    run = order.take(count, marked or context.in_place)
    state.ready_bytes -= contents.size(run[0], run[1], run[2])
    return run


def take_whole(context: QueueContext, count: int, size_bytes: int) -> tuple[list[Run], int]:
    """Take whole runs from the head, as `take` would one by one; return them and their bytes.

    It may end before everything that fits is taken: `take` continues. A backlog of blocks with one
    message each is taken at a fraction of what `take` costs for each.
    """
    state = context.state
    if state.contents.expiring:
        return [], 0
    runs, taken_bytes = state.order.take_whole(
        count, size_bytes, state.contents.size_each, context.in_place
    )
    state.ready_bytes -= taken_bytes
    return runs, taken_bytes


def _deliverable(context: QueueContext, count: int) -> int:
    """Drop expired messages at the head; count the deliverable ones there, at most `count`."""
    order, contents = context.state.order, context.state.contents
    while (head := order.head()) is not None:
        detail = contents.expiring_detail(head[0])
        if detail is None:
            return count
        # A ttl of 0 lasts for a consumer that waits for a new message, not for a returned one.
        final = head[4] > 0
        gone = detail.stale(head[1], head[2], context.now, final)
        if not gone:
            return min(count, detail.fresh(head[1], head[2], context.now, final))
        expire(context, order.take(gone))
    return 0


def expire(context: QueueContext, run: Run) -> None:
    """Drop or dead-letter an expired run that was ready."""
    context.state.ready_bytes -= context.state.contents.size(run[0], run[1], run[2])
    dead_letter_or_drop(context, "expired", run)


def expire_heads(context: QueueContext) -> None:
    """Drop or dead-letter expired messages, in each lane up to the first that has not expired.

    Called after messages were handed out: a ttl of 0 means "now or never", so those expire here.
    Arms a timer for the expiry of the next head; at once after EXPIRED_RUNS_MAX runs.
    """
    order = context.state.order
    left = EXPIRED_RUNS_MAX
    for part in order.parts():
        left = _expire_part(context, part, left)


def _expire_part(context: QueueContext, part: int, left: int) -> int:
    """Expire the heads of one part of the order, at most `left` runs; return how many are left."""
    order, contents = context.state.order, context.state.contents
    while contents.expiring:
        head = order.head_of(part)
        if head is None:
            return left
        index, first, last = head[:3]
        detail = contents.expiring_detail(index)
        if detail is None:
            return left
        gone = detail.stale(first, last, context.now, True)
        if not gone or not left:
            expiry = context.now if gone else detail.expiry(first)
            if expiry is not None:
                context.arm(expiry)
            return left
        expire(context, order.take_of(part, gone))
        left -= 1
    return left


def drop_head(context: QueueContext) -> None:
    """Dead-letter or drop at the head what exceeds the limits, with overflow drop-head.

    Delayed messages count. They are dropped when nothing is ready, those that are ready first
    before the others.
    """
    state, config = context.state, context.config
    if config.overflow != "drop-head":
        return
    order, delayed, contents = state.order, state.delayed, state.contents
    while True:
        surplus = excess = 0
        if config.max_length is not None:
            surplus = order.count + delayed.count - config.max_length
        if config.max_length_bytes is not None:
            excess = state.ready_bytes + delayed.size_bytes - config.max_length_bytes
        if surplus <= 0 and excess <= 0:
            return
        head = order.head() or delayed.head()
        if head is None:
            return
        index, first, last, _, _ = head
        if excess > 0:
            sizes = range(first, last + 1)
            needed = bisect_left(sizes, excess, key=lambda at: contents.size(index, first, at)) + 1
            surplus = max(surplus, needed)
        if order.count:
            run = order.take(surplus)
            state.ready_bytes -= contents.size(run[0], run[1], run[2])
        else:
            run = delayed.take(surplus)
            delayed.size_bytes -= contents.size(run[0], run[1], run[2])
        dead_letter_or_drop(context, "maxlen", run)


def limited(context: QueueContext) -> bool:
    """Return whether the queue has a length limit."""
    config = context.state.config
    return config.max_length is not None or config.max_length_bytes is not None


def full(context: QueueContext) -> bool:
    """Return whether a queue that refuses publishes is full, with delayed messages and letters."""
    state, config = context.state, context.config
    count, size_bytes = _waiting(context)
    return config.refuses and _exceeds(
        config, state.order.count + count + 1, state.ready_bytes + size_bytes + 1
    )


def overfull(context: QueueContext) -> bool:
    """Return whether what waits exceeds a limit without the ready messages.

    What comes back is never refused, and what dies is not either.
    """
    return _exceeds(context.config, *_waiting(context))


def _waiting(context: QueueContext) -> tuple[int, int]:
    """Return (messages, bytes) that count and are not ready: delayed ones and dead letters."""
    delayed, letters = context.state.delayed, context.state.letters
    return delayed.count + letters.count, delayed.size_bytes + letters.size_bytes


def _exceeds(config: QueueConfig, count: int, size_bytes: int) -> bool:
    return (config.max_length is not None and count > config.max_length) or (
        config.max_length_bytes is not None and size_bytes > config.max_length_bytes
    )


def fill(context: QueueContext) -> str:
    """Return what counts towards the limits, for a refusal."""
    state, config = context.state, context.config
    delayed, letters = state.delayed, state.letters
    count, size_bytes = _waiting(context)
    waiting = f", {delayed.count} of them delayed" if delayed.count else ""
    if letters.count:
        waiting += f", {letters.count} of them dead letters that wait for their targets"
    return (
        f"{state.order.count + count} of at most {config.max_length} messages, "
        f"{state.ready_bytes + size_bytes} of at most {config.max_length_bytes} "
        f"bytes{waiting}"
    )


def cut_surplus(context: QueueContext, lane: int, index: int) -> int:
    """Remove the newest messages of block `index` from a lane until the limits are met.

    returns  number of messages removed
    """
    state, config = context.state, context.config
    cut = 0
    while True:
        surplus = 0
        waiting, waiting_bytes = _waiting(context)
        size_bytes = state.ready_bytes + waiting_bytes
        if config.max_length_bytes is not None and size_bytes > config.max_length_bytes:
            surplus = 1
        if config.max_length is not None:
            count = state.order.count + waiting
            surplus = max(surplus, count - config.max_length)
        taken = state.order.cut_tail(lane, index, surplus) if surplus > 0 else []
        if not taken:
            return cut
        for _, first, last in taken:
            state.ready_bytes -= state.contents.size(index, first, last)
            state.contents.drop(index, last - first + 1)
            cut += last - first + 1
