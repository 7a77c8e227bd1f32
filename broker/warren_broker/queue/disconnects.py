"""Sessions that end, nodes that die, nodes that are suspected."""

from __future__ import annotations

from typing import Final

from warren_broker.queue import ack, attach, consumers
from warren_broker.queue.apply_context import Turn
from warren_broker.queue.commands import (
    AnyReply,
    Done,
    NodeBack,
    NodeDown,
    NodeSuspected,
    SessionDown,
)
from warren_broker.queue.ranges import ids_of, take_ids
from warren_broker.queue.state import Consumer, Uplink

DONE: Final = Done()


def session_down(turn: Turn, command: SessionDown) -> AnyReply:
    """A channel or session has ended."""
    if turn.uplink is not None:
        gone = [c for c in turn.uplink.consumers.values() if c.session == command.session]
        _remove(turn, gone, command.failed)
    return DONE


def node_down(turn: Turn, command: NodeDown) -> AnyReply:
    """A life of a node has ended: all its sessions have, as if their connections were lost.

    With a number its older lives have ended, too, and none of them is ever heard again.
    """
    state, number = turn.state, command.incarnation
    if number:
        state.over[command.node] = max(number, state.over.get(command.node, 0))
    for uplink in list(state.uplinks.values()):
        older = uplink.node == command.node and 0 < uplink.incarnation <= number
        if uplink.id == command.uplink or older:
            _remove(turn, list(uplink.consumers.values()), True)
            del state.uplinks[uplink.id]
    return DONE


def _remove(turn: Turn, gone: list[Consumer], failed: bool) -> None:
    """They return what they hold, oldest consumer first, and are forgotten."""
    for consumer in sorted(gone, key=lambda c: c.order):
        attach.retire(turn, consumer)
        ack.let_all_go(turn, consumer, "failed" if failed else "returned")
        turn.state.uplinks[consumer.uplink].consumers.pop(consumer.id, None)


def node_suspected(turn: Turn, command: NodeSuspected) -> AnyReply:
    """Not heard of: its consumers get nothing more for now, and keep what they hold for a while."""
    timeout_ms = turn.config.consumer_disconnected_timeout_ms
    for uplink in turn.state.uplinks.values():
        if uplink.node != command.node:
            continue
        if not uplink.suspected_ms:
            uplink.suspected_ms = turn.now
            turn.arm(turn.now + timeout_ms)
            for consumer in uplink.consumers.values():
                consumer.suspended = True
                consumers.review(turn.state, consumer)
        uplink.yields |= command.hand_over
        if command.gone:
            uplink.suspected_ms = max(1, min(uplink.suspected_ms, turn.now - timeout_ms))
            _take_back_disconnected(turn, uplink)
    if command.hand_over:
        consumers.elect(turn)
    return DONE


def node_back(turn: Turn, command: NodeBack) -> AnyReply:
    """Heard of again: served again; what it held and was not taken back is still its own."""
    for uplink in turn.state.uplinks.values():
        if uplink.node == command.node and uplink.suspected_ms:
            uplink.suspected_ms = 0
            uplink.yields = False
            for consumer in uplink.consumers.values():
                consumer.suspended = False
    consumers.elect(turn)
    for consumer in turn.state.all_consumers():
        consumers.review(turn.state, consumer)
    return DONE


def take_back_overdue(turn: Turn) -> None:
    """Take back, not failed, what suspected nodes and slow consumers held for too long.

    Asks for a timer at the time the next of them is due.
    """
    state = turn.state
    for uplink in state.uplinks.values():
        if uplink.suspected_ms:
            _take_back_disconnected(turn, uplink)
    for consumer in list(state.all_consumers()):
        if consumer.timeout_ms is not None and consumer.held and not consumer.no_ack:
            _take_back_timed_out(turn, consumer, consumer.timeout_ms)


def _take_back_disconnected(turn: Turn, uplink: Uplink) -> None:
    state = turn.state
    due = uplink.suspected_ms + state.config.consumer_disconnected_timeout_ms
    if turn.now < due:
        turn.arm(due)
        return
    for consumer in list(uplink.consumers.values()):
        # What was on its way to a no-ack consumer may have been seen: never twice.
        ack.let_all_go(turn, consumer, "settled" if consumer.no_ack else "returned")
        if uplink.yields and consumer.exclusive and not consumer.cancelled:
            # Nobody else could consume for as long as its node is away, which may be for good.
            attach.retire(turn, consumer)
            turn.cancelled(consumer.key, "disconnected")
        if state.active is consumer:
            state.active = None
            consumer.quiescing = False
            consumers.elect(turn)
        ack.changed(turn, consumer)


def _take_back_timed_out(turn: Turn, consumer: Consumer, timeout_ms: int) -> None:
    # Deliveries carry ascending times, so what is overdue stands in front.
    overdue = 0
    while overdue < len(consumer.held) and consumer.held[overdue][6] + timeout_ms <= turn.now:
        overdue += 1
    if overdue:
        first_id, last_id = consumer.held[0][0], consumer.held[overdue - 1][1]
        pieces = take_ids(consumer.held, first_id, last_id)
        ack.let_go(turn, consumer, pieces, "returned")
        turn.cancelled(consumer.key, "timeout", ids_of(pieces))
        if not consumer.getter:
            attach.retire(turn, consumer)
        ack.changed(turn, consumer)
    if consumer.held:
        turn.arm(consumer.held[0][6] + timeout_ms)
