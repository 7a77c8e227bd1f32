"""The service order of consumers: which one gets messages next."""

from __future__ import annotations

from typing import Final

from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.filters import filtered_service
from warren_machines.queue.ready import limits
from warren_machines.queue.ready.ranges import Held
from warren_machines.queue.relays import relays
from warren_machines.queue.state import Consumer, QueueState
from warren_raft.versions import READ_AHEAD

_TURNS_EACH: Final = 4
"""Turns in which a backlog is shared among equal consumers, each of at least one message."""


def room(consumer: Consumer) -> int:
    """Return how many messages the consumer's own limits let it take now."""
    if consumer.explicit:
        free = consumer.credit
        if consumer.no_ack:
            free = min(free, limits.NO_ACK_WINDOW - consumer.held_count)
    else:
        free = consumer.limit - consumer.held_count
        if free <= 0:
            free += consumer.ahead
    if consumer.windowed and consumer.held_bytes >= limits.WINDOW_BYTES:
        return 0
    return free


def may_be_served(state: QueueState, consumer: Consumer) -> bool:
    """Return whether the consumer belongs in the service queue."""
    if consumer.cancelled or consumer.suspended or consumer.quiescing or consumer.getter:
        return False
    if state.config.single_active_consumer and state.active is not consumer:
        return False
    return room(consumer) > 0


def review(state: QueueState, consumer: Consumer) -> None:
    """Put the consumer into the service queue or take it out, after it changed."""
    if consumer.relay:
        state.changed_relays[consumer.relay] = None
    if may_be_served(state, consumer):
        moves = consumer.ahead or not consumer.lane[0]
        if consumer.queued and moves and consumer.lane != consumer.lane_now:
            state.service.remove(consumer)
        if not consumer.queued:
            if consumer.filter is not None:
                consumer.filter.parked.pop(consumer.key, None)
            state.service.add(consumer)
    elif consumer.queued:
        state.service.remove(consumer)
    elif consumer.filter is not None:
        consumer.filter.parked.pop(consumer.key, None)


def dispatch(context: QueueContext, last: bool = False) -> None:
    """Hand ready messages to waiting consumers: higher priority first, equals in turn.

    What is left when no consumer's own window has room is given ahead, in the same order.
    Each pass serves one consumer; it ends because every pass takes messages or a consumer away.
    A consumer with a filter that matches nothing makes way for the others of any priority.
    What one apply can hand out is bounded by the consumers' windows, whatever the backlog.

    last  the entry ends
    """
    state = context.state
    service, order = state.service, state.order
    lanes, lane_order = service.lanes, service.order
    share = 0
    if state.filters.by_id and order.count:
        filtered_service.wake(context, last)
    while lanes and order.count:
        lane = lanes[lane_order[-1]]
        consumer = next(iter(lane.values()))
        if consumer.filter is not None:
            search = state.filters.search_of(context.index)
            if order.find(consumer.filter, search) is None:
                filtered_service.park(state, consumer)
                share = share if lane else 0
                continue
        limit = room(consumer)
        if len(lane) > 1:
            share = share or max(1, order.count // (_TURNS_EACH * len(lane)))
            limit = min(limit, share)
            if consumer.filter is not None:
                limit = min(limit, filtered_service.FILTERED_TURN_MESSAGES)
        else:
            share = 0
        _hand_out(context, consumer, limit)
        left = room(consumer)
        if left > 0 and (not consumer.ahead or consumer.lane == consumer.lane_now):
            if len(lane) > 1:
                lane.move_to_end(consumer.key)
            continue
        service.remove(consumer)
        if left > 0:
            service.add(consumer)
        if not lane:
            share = 0


def serve_relays(context: QueueContext) -> None:
    """Hand what is kept for relays to their consumers, whether or not the queue has messages.

    Also to one that is not the single active consumer: nothing else would ever settle it. By name:
    a member that was restored from a snapshot knows them in another order. Those of which no
    consumer has changed since have been given what they take; a restored member looks at all.
    """
    state = context.state
    changed, state.changed_relays = state.changed_relays, {}
    for name in sorted(changed):
        relay = state.relays.get(name)
        if relay is not None and relay.kept and not relay.idle_ms:
            consumer = relays.latest(state, relay)
            if consumer is None or consumer.cancelled:
                continue
            if not consumer.suspended and not consumer.quiescing and room(consumer) > 0:
                relays.hand_out_kept(context, consumer, room(consumer))
                review(state, consumer)


def _hand_out(context: QueueContext, consumer: Consumer, limit: int) -> None:
    """Hand out up to `limit` messages, fewer when the queue or the window of bytes ends."""
    if consumer.relay:
        context.state.changed_relays[consumer.relay] = None
        limit = relays.hand_out_kept(context, consumer, limit)
    order = context.state.order
    while limit > 0 and order.count:
        size_bytes = -1
        if consumer.windowed:
            if consumer.held_bytes >= limits.WINDOW_BYTES:
                return
            size_bytes = limits.WINDOW_BYTES - consumer.held_bytes
        given = hand_out_run(context, consumer, limit, size_bytes)
        if given is None and consumer.windowed:  # one message is given even when it is too large
            given = hand_out_run(context, consumer, 1, -1)
        if given is None:
            return
        limit -= given[1] - given[0] + 1
        context.deliver(consumer, given)


def hand_out_run(
    context: QueueContext, consumer: Consumer, count: int, size_bytes: int
) -> Held | None:
    """Give the consumer one run from the head; return it, or None when there is nothing."""
    if consumer.filter is None:
        run = limits.take(context, count, size_bytes, context.version >= READ_AHEAD)
    else:
        run = filtered_service.take(context, consumer.filter, count, size_bytes)
    if run is None:
        return None
    taker = context.state.taker
    if taker is None or taker[1] != consumer.id or taker[0] != consumer.uplink:
        context.taken_by(consumer.key)
    index, first, last, failed, acquired = run
    given = last - first + 1
    first_id = consumer.next_msg_id
    held = (first_id, first_id + given - 1, index, first, failed, acquired, context.now)
    consumer.held.append(held)
    consumer.held_count += given
    consumer.next_msg_id += given
    if consumer.relay:
        relays.name_fresh(context.state, consumer, first_id, given)
    if consumer.explicit:
        consumer.credit -= given
    if consumer.windowed:
        consumer.held_bytes += context.state.contents.size(index, first, last)
    if not consumer.no_ack:
        context.state.unacked += given
        if consumer.timeout_ms is not None:
            context.arm(context.now + consumer.timeout_ms)
    return held


def yields(state: QueueState, active: Consumer) -> bool:
    """Return whether the single active consumer makes way because its node is suspected.

    1. Its node is cut off; it works on what it holds.  2. Another one takes over.  3. Two work at
    the same time. So it must hold nothing; what a no-ack consumer holds has been delivered.
    """
    if not active.suspended or (active.held_count and not active.no_ack):
        return False
    return state.uplinks[active.uplink].yields


def elect(context: QueueContext) -> None:
    """Elect the single active consumer.

    The highest priority wins, then the oldest. An active consumer of lower priority than a waiting
    one gets nothing more (it is quiescing) and waits again once it has settled everything; that of
    a classic queue stays. A
    cancelled one is replaced at once, though it may still settle what it holds. One on a suspected
    node makes way when it holds nothing that it might be working on: at once, or when that has
    been settled or taken back; if its node is back before that, it stays active.
    """
    state = context.state
    if not state.config.single_active_consumer:
        return
    active = state.active
    if active is not None and active.cancelled:
        active = state.active = None
    if active is not None and yields(state, active):
        active.quiescing = False
        active = state.active = None
    best = state.standby.best(active)
    if active is None:
        state.active = best
    elif best is not None and best.priority > active.priority and not context.active_stays:
        active.quiescing = active.held_count > 0
        if not active.quiescing:
            state.active = best
            state.standby.add(active)
        review(state, active)
    else:
        active.quiescing = False
        review(state, active)
    if state.active is not None:
        review(state, state.active)
