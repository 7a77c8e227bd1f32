"""Commands to the queue as a whole: counts, purge, delete, new settings."""

from __future__ import annotations

from itertools import chain
from typing import Final

from warren_machines.queue.annotations import Annotations
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.claims import parts
from warren_machines.queue.claims.reader_state import ReaderState
from warren_machines.queue.commands import (
    AnyReply,
    Configure,
    Count,
    Delete,
    Done,
    Purge,
    ReaderStat,
    Refused,
    Stat,
    StatReply,
)
from warren_machines.queue.letters import dead_letter
from warren_machines.queue.ready import limits, service_order
from warren_machines.queue.ready.block_index import BlockIndex
from warren_machines.queue.relays import relays
from warren_machines.queue.state import QueueState, Standby

DONE: Final = Done()


def stat(context: QueueContext, command: Stat) -> AnyReply:
    """Return the counts. As in RabbitMQ, a redeclaration restarts x-expires on a classic queue."""
    service_order.dispatch(context)
    limits.expire_heads(context)
    if command.touch and context.config.kind == "classic":
        context.state.unused_ms = context.now
    return counts(context.state)


def counts(state: QueueState, now_ms: int = 0) -> StatReply:
    """Return the counts of a queue from its state.

    now_ms  the leader's time, by which the times in the answer are read; 0 in a reply to a command,
            which every member has, and for which not every run is visited
    """
    order = state.order
    next_ms, last_ms = state.delayed.times()
    return StatReply(
        messages_ready=order.count,
        messages_unacknowledged=state.unacknowledged,
        messages_claimed=state.claimed,
        messages_staged=state.staged,
        messages_delayed=state.delayed.count,
        returned=order.returned_count,
        bytes_ready=state.ready_bytes,
        consumers=state.consumer_count,
        by_priority=order.by_priority(),
        readers=tuple(_reader(state.readers[name]) for name in sorted(state.readers)),
        next_delayed_ms=next_ms,
        last_delayed_ms=last_ms,
        messages_dlx=state.letters.count,
        message_bytes_dlx=state.letters.size_bytes,
        duplicates_dropped=state.seen.dropped,
        deduplication_ids=state.seen.count,
        relays=relays.in_hands(state),
        now_ms=now_ms,
        bytes_unacknowledged=state.unacknowledged_bytes if now_ms else 0,
        bytes_kept=_kept_bytes(state) if now_ms else 0,
        messages_in_jobs=state.jobs.messages,
    )


def _reader(of: ReaderState) -> ReaderStat:
    return ReaderStat(
        of.name,
        of.epoch,
        of.settled,
        len(of.claims),
        of.heard_ms,
        of.heard_ms + of.expires_ms if of.expires_ms else 0,
        of.starts,
        of.described,
        tuple(
            (number, claim.binding)
            for number, claim in sorted(of.claims.items())
            if claim.binding is not None
        ),
        sum(part.messages for part in of.parts),
        parts.is_due(of),
        of.in_row,
    )


def _kept_bytes(state: QueueState) -> int:
    claimed = (claim.size_bytes for of in state.readers.values() for claim in of.claims.values())
    return state.delayed.size_bytes + sum(claimed)


def purge(context: QueueContext, command: Purge) -> AnyReply:
    """Drop the ready, returned and delayed messages, not dead-lettering them, and the letters."""
    del command
    service_order.dispatch(context)
    limits.expire_heads(context)
    letters = dead_letter.drop_letters(context)
    context.frees += context.state.ready_bytes
    return Count(letters + _empty(context.state))


def _empty(state: QueueState) -> int:
    count = state.order.count + state.delayed.count
    gone = chain(state.order.clear(), state.delayed.clear())
    kept = state.claimed or state.staged or state.letters.count
    kept = kept or state.jobs.owns_messages or any(relay.kept for relay in state.relays.values())
    if kept or any(c.held for c in state.all_consumers()):
        for index, first, last, _, _ in gone:
            state.leave(index, first, last)
    else:
        state.annotations = Annotations()
        state.contents = BlockIndex()  # nothing else is referred to: O(1) for any backlog
    state.ready_bytes = 0
    return count


def delete(context: QueueContext, command: Delete) -> AnyReply:
    """Delete the queue: drop all messages and cancel all consumers."""
    state = context.state
    name = state.config.name
    service_order.dispatch(context)
    limits.expire_heads(context)
    if command.if_unused and state.in_use:
        held = f", {state.claimed} messages in claims: cancel, settle or release them"
        if state.jobs.unfinished:
            held = f", {len(state.jobs.unfinished)} jobs{held}"
        detail = f"queue {name!r} has {state.consumer_count} consumers{held}"
        return Refused("in_use", detail)
    if command.if_empty and (state.order.count or state.delayed.count or state.letters.count):
        held = f"{state.order.count} messages, {state.delayed.count} delayed"
        if state.letters.count:
            held += f", {state.letters.count} dead letters on their way"
        return Refused("not_empty", f"queue {name!r} holds {held}: purge it")
    count = state.order.count
    _empty(state)
    state.letters.clear()
    for consumer in sorted(state.all_consumers(), key=lambda c: c.order):
        if not consumer.cancelled and not consumer.getter:
            context.cancelled(consumer.key, "deleted")
    for uplink in state.uplinks.values():
        uplink.clear()
    state.contents = BlockIndex()
    state.annotations = Annotations()
    state.service.clear()
    state.standby = Standby()
    state.filters.clear()
    state.active = None
    state.readers.clear()
    state.jobs.clear()
    state.runs.clear()
    state.seen.clear()
    state.relays.clear()
    state.owned_relays.clear()
    state.changed_relays.clear()
    state.origins.clear()
    state.consumer_count = state.unacked = state.claimed = state.staged = state.timer_ms = 0
    state.deleted = True
    context.expired("deleted")
    return Count(count)


def configure(context: QueueContext, command: Configure) -> AnyReply:
    """Replace the settings; messages in the queue keep the expiry given to them on arrival."""
    state, config = context.state, command.config
    if config.single_active_consumer != state.config.single_active_consumer:
        return Refused(
            "invalid", f"queue {config.name!r}: x-single-active-consumer is set at declaration only"
        )
    if config.expires_ms != state.config.expires_ms:
        state.unused_ms = context.now
    if not config.deduplication:
        state.seen.clear()
    state.config = config
    if config.keeps_letters:
        context.reconfigured()
    else:
        dead_letter.drop_letters(context)
    state.timer_ms = context.now  # the deadlines are computed again, now
    return DONE
