"""The end of sessions, the death and the suspicion of nodes."""

from __future__ import annotations

from typing import Final

from warren_machines.queue import ack, attach
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import (
    AnyReply,
    Done,
    NodeBack,
    NodeDown,
    NodeSuspected,
    SessionDown,
)
from warren_machines.queue.ready import service_order
from warren_machines.queue.ready.ranges import ids_of, take_ids
from warren_machines.queue.relays import relays
from warren_machines.queue.state import Consumer, SeenUplink

DONE: Final = Done()


def session_down(context: QueueContext, command: SessionDown) -> AnyReply:
    """End a channel or session of the submitting uplink."""
    if context.uplink is not None:
        gone = context.uplink.sessions.get(command.session, {})
        _remove(context, list(gone.values()), command.failed)
        relays.session_over(context, context.uplink.id, command.session)
    return DONE


def node_down(context: QueueContext, command: NodeDown) -> AnyReply:
    """End an incarnation of a node: all its sessions, as if their connections were lost.

    With a number, the older incarnations of the node end too, and submissions of any are refused.
    """
    state, number = context.state, command.incarnation
    if number:
        state.over[command.node] = max(number, state.over.get(command.node, 0))
    for uplink in list(state.uplinks.values()):
        older = uplink.node == command.node and 0 < uplink.incarnation <= number
        if uplink.id == command.uplink or older:
            _remove(context, list(uplink.consumers.values()), True, lost=True)
            del state.uplinks[uplink.id]
            relays.session_over(context, uplink.id)
    return DONE


def _remove(context: QueueContext, gone: list[Consumer], failed: bool, lost: bool = False) -> None:
    """Remove consumers, oldest first, and return what they hold, or keep it for their relay."""
    for consumer in sorted(gone, key=lambda c: c.order):
        attach.retire(context, consumer, lost)
        if consumer.relay:
            relays.keep_all(context, consumer, failed)
        ack.let_all_go(context, consumer, "failed" if failed else "returned")
        context.state.uplinks[consumer.uplink].remove(consumer)


def node_suspected(context: QueueContext, command: NodeSuspected) -> AnyReply:
    """Suspend a suspected node's consumers; they keep what they hold until a timeout."""
    timeout_ms = context.config.consumer_disconnected_timeout_ms
    for uplink in context.state.uplinks.values():
        if uplink.node != command.node:
            continue
        if not uplink.suspected_ms:
            uplink.suspected_ms = context.now
            context.arm(context.now + timeout_ms)
            for consumer in uplink.consumers.values():
                consumer.suspended = True
                service_order.review(context.state, consumer)
        uplink.yields |= command.hand_over
        if command.gone:
            uplink.suspected_ms = max(1, min(uplink.suspected_ms, context.now - timeout_ms))
            _take_back_disconnected(context, uplink)
    if command.hand_over:
        service_order.elect(context)
    return DONE


def node_back(context: QueueContext, command: NodeBack) -> AnyReply:
    """Serve the node's consumers again; they keep what was not taken back."""
    for uplink in context.state.uplinks.values():
        if uplink.node == command.node and uplink.suspected_ms:
            uplink.suspected_ms = 0
            uplink.yields = False
            for consumer in uplink.consumers.values():
                consumer.suspended = False
                if context.config.single_active_consumer:
                    context.state.standby.add(consumer)
    service_order.elect(context)
    for consumer in context.state.all_consumers():
        service_order.review(context.state, consumer)
    return DONE


def take_back_overdue(context: QueueContext) -> None:
    """Take back, not failed, what suspected nodes and slow consumers held for too long.

    Arms a timer for the next deadline.
    """
    state = context.state
    for uplink in state.uplinks.values():
        if uplink.suspected_ms:
            _take_back_disconnected(context, uplink)
    for consumer in list(state.all_consumers()):
        if consumer.timeout_ms is not None and consumer.held and not consumer.no_ack:
            _take_back_timed_out(context, consumer, consumer.timeout_ms)


def _take_back_disconnected(context: QueueContext, uplink: SeenUplink) -> None:
    state = context.state
    due = uplink.suspected_ms + state.config.consumer_disconnected_timeout_ms
    if context.now < due:
        context.arm(due)
        return
    for consumer in list(uplink.consumers.values()):
        if consumer.relay:
            # It must not be given other messages before those: it ends, and begins again.
            attach.take_over(context, consumer)
            continue
        # A no-ack consumer may have seen what was on its way to it: it is never delivered twice.
        ack.let_all_go(context, consumer, "settled" if consumer.no_ack else "returned")
        if uplink.yields and consumer.exclusive and not consumer.cancelled:
            # No other consumer could consume until its node is back, which may never happen.
            attach.retire(context, consumer)
            context.cancelled(consumer.key, "disconnected")
        if state.active is consumer:
            state.active = None
            consumer.quiescing = False
            service_order.elect(context)
        ack.changed(context, consumer)


def _take_back_timed_out(context: QueueContext, consumer: Consumer, timeout_ms: int) -> None:
    # Deliveries carry ascending times, so the overdue ones come first.
    overdue = 0
    while overdue < len(consumer.held) and consumer.held[overdue][6] + timeout_ms <= context.now:
        overdue += 1
    if overdue and consumer.relay:
        held = ids_of(consumer.held[:overdue])
        attach.retire(context, consumer)
        relays.keep_all(context, consumer, True)
        context.cancelled(consumer.key, "timeout", held)
        ack.changed(context, consumer)
        return
    if overdue:
        first_id, last_id = consumer.held[0][0], consumer.held[overdue - 1][1]
        pieces = take_ids(consumer.held, first_id, last_id)
        ack.let_go(context, consumer, pieces, "returned")
        context.cancelled(consumer.key, "timeout", ids_of(pieces))
        if not consumer.getter:
            attach.retire(context, consumer)
        ack.changed(context, consumer)
    if consumer.held:
        context.arm(consumer.held[0][6] + timeout_ms)
