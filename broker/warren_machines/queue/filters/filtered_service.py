"""Consumers with filters: which messages they are given, and when they wait."""

from __future__ import annotations

from typing import Final

from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import AnyReply, Done
from warren_machines.queue.filters.filter_commands import Judge
from warren_machines.queue.filters.filters import Filter
from warren_machines.queue.ready import limits
from warren_machines.queue.ready.ranges import Run
from warren_machines.queue.state import Consumer, QueueState

FILTERED_TURN_MESSAGES: Final = 16
"""Messages that a consumer with a filter is given at once, while others of its priority wait."""
DONE: Final = Done()


def judge(context: QueueContext, command: Judge) -> AnyReply:
    """Note what filters say; consumers are served at the entry's end."""
    state = context.state
    for said in command.judged:
        known = state.filters.get(said.filter)
        if known is not None:
            known.learn(said, state.contents)
    state.filters.search_of(context.index).woken = -1
    return DONE


def note_block(context: QueueContext) -> None:
    """Note that the entry's block is to be judged, if the queue has taken it."""
    state, index = context.state, context.index
    if context.block is not None and state.contents.has(index):
        state.filters.newest = index


def release(state: QueueState, consumer: Consumer) -> None:
    """Take its filter from a consumer, which is not served any more or gets another one."""
    known, consumer.filter, consumer.drain_at = consumer.filter, None, 0
    if known is not None:
        known.parked.pop(consumer.key, None)
        if state.filters.leave(known):
            state.order.forget_filter(known.id)


def take(context: QueueContext, wanted: Filter, count: int, size_bytes: int) -> Run | None:
    """Take up to `count` messages of the first run that matches, as `limits.take` from the head.

    An expired message is dropped when it would be next for the consumer, wherever it is.
    """
    state = context.state
    order, contents = state.order, state.contents
    search = state.filters.search_of(context.index)
    while (found := order.find(wanted, search)) is not None:
        index, first, last, _, acquired = found.run
        count = min(count, last - first + 1)
        detail = contents.expiring_detail(index) if contents.expiring else None
        if detail is not None:
            final = acquired > 0
            gone = detail.stale(first, last, context.now, final)
            if gone:
                limits.expire(context, order.take_found(found, gone))
                continue
            count = min(count, detail.fresh(first, last, context.now, final))
        if size_bytes >= 0:
            count = min(count, contents.fitting(index, first, last, size_bytes))
            if not count:
                return None
        run = order.take_found(found, count, context.in_place)
        state.ready_bytes -= contents.size(run[0], run[1], run[2])
        return run
    return None


def park(state: QueueState, consumer: Consumer) -> None:
    """Take a consumer out of the service queue: nothing matches its filter."""
    assert consumer.filter is not None, consumer.key
    state.service.remove(consumer)
    consumer.filter.parked[consumer.key] = None


def wake(context: QueueContext, last: bool) -> None:
    """Put parked consumers back into the service queue, where a message matches their filter.

    Each of an entry's commands may have this done, WAKES_MAX times in all; last: the entry ends.
    """
    state = context.state
    search = state.filters.search_of(context.index)
    if search.woken == state.order.added or not (search.wakes or last):
        return
    search.wakes -= not last
    search.woken = state.order.added
    for known in state.filters:
        if not known.parked or state.order.find(known, search) is None:
            continue
        parked, known.parked = known.parked, {}
        for key in parked:
            consumer = state.find(*key)
            assert consumer is not None and not consumer.queued, key
            state.service.add(consumer)


def _comes(context: QueueContext, consumer: Consumer, known: Filter) -> bool:
    """Return whether a consumer that waits is given a match at the entry's end, or may be later.

    1. A search stops at its last step, before a match.  2. The drain is repeated, in an entry of
    its own, in which nothing has been searched yet.  3. So it looks itself.
    """
    if not consumer.queued and consumer.key not in known.parked:
        return False
    search = context.state.filters.search_of(context.index)
    return context.state.order.find(known, search) is not None or known.id in search.unfinished


def drain_waits(context: QueueContext, consumer: Consumer) -> bool:
    """Return whether a drain is too early: messages that were there are not judged, or found, yet.

    1. Messages arrive all the time.  2. Were each repeat of the drain to wait for the newest of
    them, it would never end.  So it waits for what was there when it was asked first.
    """
    known = consumer.filter
    if known is None:
        return False
    note_block(context)
    if not consumer.drain_at:
        consumer.drain_at = context.state.filters.newest
    if consumer.credit and (known.judged < consumer.drain_at or _comes(context, consumer, known)):
        return True
    consumer.drain_at = 0
    return False
