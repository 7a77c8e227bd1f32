"""Settle, return and discard: how messages that a consumer holds leave it."""

from __future__ import annotations

from operator import itemgetter
from typing import Final, Literal, TypeAlias

from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import (
    AnyReply,
    Count,
    Discard,
    Done,
    Modify,
    MsgIds,
    Return,
    Settle,
)
from warren_machines.queue.letters.dead_letter import (
    dead_letter_or_drop,
    give_back,
    put_back_unsent,
)
from warren_machines.queue.ready import service_order
from warren_machines.queue.ready.ranges import Held, take_ids
from warren_machines.queue.relays import relays
from warren_machines.queue.state import Consumer
from warren_raft.versions import READ_AHEAD

DONE: Final = Done()
Outcome: TypeAlias = Literal["settled", "returned", "failed", "rejected", "nacked", "unsent"]
SORTED_FROM: Final = 64
"""So many runs that leave a consumer at once are taken in the order of the log, where that makes no
difference otherwise."""


def settle(context: QueueContext, command: Settle) -> AnyReply:
    """Remove the messages that a consumer acknowledged."""
    return _resolve(context, command.consumer, command.msg_ids, "settled")


def return_(context: QueueContext, command: Return) -> AnyReply:
    """Return messages to the queue, or to the relay that was not sent them."""
    uplink = context.uplink
    consumer = uplink.consumers.get(command.consumer) if uplink is not None else None
    if command.unseen and consumer is not None and consumer.relay:
        # Had a later consumer of the relay higher numbers, the relay would take these for settled:
        # then they are ready again, and get new names.
        relay = context.state.relays[consumer.relay]
        if relays.latest(context.state, relay) is consumer:
            pieces = [one for ids in command.msg_ids for one in take_ids(consumer.held, *ids)]
            relays.keep(context, consumer, pieces, command.failed)
            changed(context, consumer)
            return DONE
    outcome: Outcome = "failed" if command.failed else "returned"
    if command.unseen and consumer is not None and context.version >= READ_AHEAD:
        _resolve(context, command.consumer, command.msg_ids, "unsent")
        return Count(consumer.next_msg_id)
    return _resolve(context, command.consumer, command.msg_ids, outcome)


def discard(context: QueueContext, command: Discard) -> AnyReply:
    """Drop or dead-letter the messages that a consumer rejected."""
    outcome: Outcome = "rejected" if command.failed else "nacked"
    return _resolve(context, command.consumer, command.msg_ids, outcome)


def modify(context: QueueContext, command: Modify) -> AnyReply:
    """Return or discard messages that a consumer annotates."""
    outcome: Outcome
    if command.discard:
        outcome = "rejected" if command.failed else "nacked"
    else:
        outcome = "failed" if command.failed else "returned"
    change = None if context.config.kind == "classic" else command
    return _resolve(context, command.consumer, command.msg_ids, outcome, change)


def _resolve(
    context: QueueContext,
    consumer_id: int,
    msg_ids: MsgIds,
    outcome: Outcome,
    change: Modify | None = None,
) -> AnyReply:
    """Take the messages from their consumer; ignore unknown consumers and ids.

    Either is a repeated command, or the queue took the messages back in the meantime.
    """
    uplink = context.uplink
    consumer = uplink.consumers.get(consumer_id) if uplink is not None else None
    if consumer is None:
        return DONE
    if outcome == "unsent":  # each goes before those that were given after it
        for first_id, last_id in reversed(msg_ids):
            pieces = take_ids(consumer.held, first_id, last_id)
            let_go(context, consumer, pieces[::-1], outcome)
    else:
        for first_id, last_id in msg_ids:
            let_go(context, consumer, take_ids(consumer.held, first_id, last_id), outcome, change)
    changed(context, consumer)
    return DONE


def let_go(
    context: QueueContext,
    consumer: Consumer,
    pieces: list[Held],
    outcome: Outcome,
    change: Modify | None = None,
) -> None:
    """Apply the outcome to runs cut out of `held`; the caller then calls `changed`.

    change  what else it says; None: nothing

    RabbitMQ counts a message as acquired when it comes back, so a delivery carries the number of
    earlier acquisitions.
    """
    state = context.state
    contents = state.contents
    count, taker = 0, state.taker
    if len(pieces) >= SORTED_FROM and _in_any_order(context, outcome):
        # 1. A client returns 100,000 messages in any order, one by one.  2. It holds them in that
        # order now, and settles or returns all of them with one frame.  3. Each is in another
        # packed page than the one before, which would be unpacked, and packed again, for each.
        pieces = sorted(pieces, key=itemgetter(2, 3))
    for first_id, last_id, index, first, failed, acquired, since in pieces:
        size = last_id - first_id + 1
        last = first + size - 1
        count += size
        if consumer.windowed:
            consumer.held_bytes -= contents.size(index, first, last)
        if change is not None and change.annotations:
            state.annotations.put(index, first, last, change.annotations)
        if outcome == "settled":
            state.leave(index, first, last)
        elif outcome in ("rejected", "nacked"):
            failures = failed + (outcome == "rejected")
            dead_letter_or_drop(context, "rejected", (index, first, last, failures, acquired + 1))
        elif outcome == "unsent":
            # 1. A consumer is given 5, another one 6.  2. 5 goes back, and to the second one.  To
            # that it came back: what comes as if for the first time comes in the queue's order.
            again = taker is None or taker[:2] != consumer.key or since <= taker[2]
            put_back_unsent(context, (index, first, last, failed, acquired + again))
        else:
            run = (index, first, last, failed, acquired)
            ready_ms = 0 if change is None else change.ready_ms
            give_back(context, run, outcome == "failed", ready_ms)
    consumer.held_count -= count
    if not consumer.no_ack:
        state.unacked -= count


def _in_any_order(context: QueueContext, outcome: Outcome) -> bool:
    """Return whether runs that leave a consumer at once may be taken in any order.

    Those that return to a classic queue take their old places.
    """
    if outcome in ("returned", "failed"):
        return context.config.kind == "classic" and context.config.delivery_limit < 0
    return outcome == "settled"


def let_all_go(context: QueueContext, consumer: Consumer, outcome: Outcome) -> None:
    """Apply the outcome to everything that the consumer holds, in the order of the ids."""
    pieces, consumer.held = consumer.held, []
    let_go(context, consumer, pieces, outcome)


def changed(context: QueueContext, consumer: Consumer) -> None:
    """Update a consumer that may hold less than before: serve it again, replace it or remove it."""
    state = context.state
    if consumer.cancelled:
        if not consumer.held_count:
            state.uplinks[consumer.uplink].remove(consumer)
        return
    if consumer.quiescing or (state.active is consumer and service_order.yields(state, consumer)):
        service_order.elect(context)
    service_order.review(state, consumer)
