"""Commands of clients about their own consumers: checkout, credit, resume, get, cancel."""

from __future__ import annotations

from typing import Final

from warren_machines.queue import ack
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import (
    AnyReply,
    Cancel,
    Checkout,
    Count,
    Credit,
    Delivery,
    Done,
    Get,
    GetReply,
    Refused,
    Resume,
    Resumed,
)
from warren_machines.queue.filters import filtered_service
from warren_machines.queue.filters.filter_commands import NotYet
from warren_machines.queue.filters.filters import FILTERS_MAX
from warren_machines.queue.ready import limits, service_order
from warren_machines.queue.ready.ranges import COUNT_MASK, take_ids
from warren_machines.queue.relays import relays
from warren_machines.queue.relays.relay_state import Relay
from warren_machines.queue.state import Consumer, QueueState
from warren_raft.versions import READ_AHEAD

DONE: Final = Done()


def checkout(context: QueueContext, command: Checkout) -> AnyReply:
    """Add a consumer, or change the prefetch and priority of an existing one."""
    state, uplink = context.state, context.uplink
    if uplink is None:
        return Refused("invalid", "a consumer belongs to an uplink: submit with one")
    known = uplink.consumers.get(command.consumer)
    if known is not None and known.cancelled:
        return Refused("invalid", f"consumer {command.consumer} was cancelled: take a new number")
    relay = command.relay if known is None and not command.no_ack else ""
    refusal = (
        _filter_refusal(state, command, known)
        or _relay_refusal(context, command, relay)
        or _exclusive_refusal(state, command, known, _replaced(context, command, relay))
    )
    if refusal is not None:
        return refusal
    if relay:
        _own_relay(context, command, relay)
    consumer = known
    if consumer is None:
        consumer = _new(state, uplink.id, command.consumer, command.session, command.tag)
        consumer.relay = relay
        consumer.suspended = bool(uplink.suspected_ms)
        uplink.add(consumer)
        if relay:
            keys = state.relays[relay].consumer_keys
            keys.pop(consumer.key, None)  # of one that ended
            keys[consumer.key] = None
    elif consumer.queued:
        state.service.remove(consumer)
    if known is None or known.getter:
        state.consumer_count += 1
        state.ever_used = True
    consumer.timeout_ms = command.timeout_ms or state.config.consumer_timeout_ms or None
    consumer.explicit = command.explicit_credit
    consumer.priority = command.priority
    consumer.no_ack = command.no_ack if known is None else known.no_ack
    consumer.exclusive = command.exclusive
    if consumer.exclusive:
        state.exclusive = consumer
    consumer.getter = False
    if consumer.filter is not None:
        filtered_service.release(state, consumer)
    if command.filter:
        consumer.filter = state.filters.use(command.filter, state.contents)
    consumer.ahead = 0
    consumer.limit, consumer.windowed = _window(state, consumer.no_ack, command)
    consumer.held_bytes = sum(map(state.size_of, consumer.held)) if consumer.windowed else 0
    if state.config.single_active_consumer:
        state.standby.add(consumer)
    service_order.elect(context)
    service_order.review(state, consumer)
    context.tell_active(consumer)
    return DONE


def _filter_refusal(state: QueueState, command: Checkout, known: Consumer | None) -> Refused | None:
    """Refuse a filter that there is no room for, and one of a relay's consumer.

    A relay is given what is kept for it whatever a filter says: it may have published that.
    """
    if not command.filter:
        return None
    name = state.config.name
    if command.relay or (known is not None and known.relay):
        return Refused("invalid", f"a relay of queue {name!r} takes every message: no filter")
    if not state.filters.full_for(command.filter):
        return None
    return Refused(
        "filters_full",
        f"queue {name!r} has consumers with {FILTERS_MAX} different filters, the limit: use the "
        "filter of another consumer, or another queue",
    )


def _relay_refusal(context: QueueContext, command: Checkout, name: str) -> Refused | None:
    """Refuse a relay's second consumer in one session."""
    state, uplink = context.state, context.uplink
    relay = state.relays.get(name)
    if relay is None or uplink is None or relay.owner != (uplink.id, command.session):
        return None
    latest = relays.latest(state, relay)
    if latest is None or latest.cancelled:
        return None
    detail = f"relay {name!r} of queue {state.config.name!r} has a consumer in this session"
    return Refused("invalid", f"{detail}: cancel it first")


def _replaced(context: QueueContext, command: Checkout, name: str) -> Consumer | None:
    """Return the consumer of the relay's older session that the new one would replace."""
    state, uplink = context.state, context.uplink
    relay = state.relays.get(name)
    if relay is None or uplink is None or relay.owner == (uplink.id, command.session):
        return None
    latest = relays.latest(state, relay)
    return None if latest is None or latest.cancelled else latest


def _own_relay(context: QueueContext, command: Checkout, name: str) -> None:
    """Have the relay belong to the session, and take from an older session what it holds.

    Only for a checkout that is not refused: 1. A relay consumes.  2. Another client gives the
    relay's name, and wants to be the only consumer, which it is not.  3. It is refused. Had it been
    given the relay before that, the relay would have lost its consumer to no one.
    """
    state, uplink = context.state, context.uplink
    assert uplink is not None
    owner = (uplink.id, command.session)
    relay = state.relays.get(name)
    if relay is None:
        relays.add(state, Relay(name, command.origin, owner))
        return
    if relay.owner != owner:
        for consumer in relays.consumers_of(state, relay):
            take_over(context, consumer)
        relays.disown(state, relay)
        relay.owner, relay.origin = owner, command.origin
        relays.add(state, relay)
    relay.idle_ms = 0


def take_over(context: QueueContext, consumer: Consumer) -> None:
    """Remove a relay's consumer, and keep what it holds for the relay's next one.

    Not as a failed delivery: nothing is known of what became of the messages.
    """
    told = not consumer.cancelled
    retire(context, consumer)
    relays.keep_all(context, consumer, False)
    context.state.uplinks[consumer.uplink].remove(consumer)
    if told:
        context.cancelled(consumer.key, "disconnected")


def _new(state: QueueState, uplink: int, consumer: int, session: int, tag: str) -> Consumer:
    created = Consumer(uplink, consumer, session, tag, state.next_order)
    state.next_order += 1
    return created


def _exclusive_refusal(
    state: QueueState, command: Checkout, known: Consumer | None, replaced: Consumer | None
) -> Refused | None:
    """Refuse an exclusive consumer beside others, and others beside an exclusive one.

    replaced  the consumer that this one takes the place of
    """
    others = state.consumer_count - (known is not None and not known.getter)
    others -= replaced is not None
    if not others:
        return None
    name = state.config.name
    if command.exclusive:
        return Refused(
            "exclusive_use",
            f"queue {name!r} has {others} consumers: an exclusive one must be the only one",
        )
    other = state.exclusive
    stays = other is not None and other.exclusive and not other.cancelled
    if stays and other is not known and other is not replaced:
        detail = f"queue {name!r} has an exclusive consumer: cancel it first"
        return Refused("exclusive_use", detail)
    return None


def _window(state: QueueState, no_ack: bool, command: Checkout) -> tuple[int, bool]:
    """Return (messages it may hold, whether bytes are bounded too)."""
    if no_ack:
        return limits.NO_ACK_WINDOW, True
    if command.prefetch or command.explicit_credit:
        return command.prefetch, False
    if state.config.kind == "classic":
        return limits.UNLIMITED_WINDOW_CLASSIC, True
    return limits.UNLIMITED_WINDOW, True


def credit(context: QueueContext, command: Credit) -> AnyReply:
    """Apply flow: what has left for a no-ack consumer, the credit of an explicit one.

    Of any other, how many messages its node keeps for it beyond its prefetch.
    """
    state, uplink = context.state, context.uplink
    consumer = uplink.consumers.get(command.consumer) if uplink is not None else None
    if consumer is None:
        return DONE
    if consumer.no_ack and command.delivered:
        gone = take_ids(consumer.held, 0, command.delivered - 1)
        ack.let_go(context, consumer, gone, "settled")
    if consumer.explicit and not consumer.cancelled:
        consumer.credit = max(0, command.delivered + command.credit - consumer.next_msg_id)
        if not command.drain:
            consumer.drain_at = 0
    if context.version >= READ_AHEAD and _takes_ahead(consumer):
        consumer.ahead = command.credit
        ack.changed(context, consumer)
        return Count(consumer.next_msg_id)
    ack.changed(context, consumer)
    if command.drain and consumer.explicit and not consumer.cancelled:
        service_order.dispatch(context)
        if filtered_service.drain_waits(context, consumer):
            return NotYet()
        consumer.credit = 0
        service_order.review(state, consumer)
        return Count(consumer.next_msg_id)
    return DONE


def _takes_ahead(consumer: Consumer) -> bool:
    """Return whether the consumer's window is a prefetch, and its deliveries need no names."""
    others = consumer.explicit or consumer.windowed or consumer.getter or consumer.cancelled
    return not others and not consumer.relay


def cancel(context: QueueContext, command: Cancel) -> AnyReply:
    """Cancel a consumer: it gets no more messages."""
    uplink = context.uplink
    consumer = uplink.consumers.get(command.consumer) if uplink is not None else None
    if consumer is not None:
        retire(context, consumer)
        ack.changed(context, consumer)
    return DONE


def retire(context: QueueContext, consumer: Consumer, lost: bool = False) -> None:
    """Cancel a consumer; it keeps the messages that it holds. The caller then calls `changed`.

    What is on its way to a no-ack consumer counts as delivered: no-ack means at most once.

    lost  its node's process has ended. The last consumer of an auto-delete queue is lost also when
          its node is suspected: only the effect says so, the state is the same
    """
    state = context.state
    if consumer.cancelled:
        return
    consumer.cancelled = True
    service_order.review(state, consumer)
    if consumer.no_ack:
        ack.let_all_go(context, consumer, "settled")
    filtered_service.release(state, consumer)
    if consumer.getter:
        return
    state.consumer_count -= 1
    if not state.consumer_count:
        state.unused_ms = context.now
        if state.config.expires_ms is not None:
            context.arm(context.now + state.config.expires_ms)
        if state.config.auto_delete:
            lost = lost or bool(state.uplinks[consumer.uplink].suspected_ms)
            context.expired("disconnected" if lost else "auto_delete")
    consumer.quiescing = False
    service_order.elect(
        context
    )  # it was the active one, or the active one was quiescing in its favour


def resume(context: QueueContext, command: Resume) -> AnyReply:
    """Send again the deliveries that the node has not seen, or report the cancellation.

    Also whether it is active: 1. A leader changes the active consumer, and dies.  2. Its successor
    has applied the same entry as a follower, and told no link.
    """
    state, uplink = context.state, context.uplink
    if uplink is None:
        return DONE
    consumer = uplink.consumers.get(command.consumer)
    if consumer is None or consumer.cancelled:
        context.cancelled((uplink.id, command.consumer), "deleted" if state.deleted else "timeout")
        if consumer is None:
            return DONE
    context.tell_active(consumer)
    for held in consumer.held:
        first_id, last_id, index, first, failed, acquired, since = held
        if last_id >= command.next_msg_id:
            skip = max(0, command.next_msg_id - first_id)
            context.deliver(
                consumer,
                (first_id + skip, last_id, index, first + skip, failed, acquired, since),
            )
    # 1. Deliveries to a suspected node are lost.  2. They are taken back; later ones follow.  3.
    # The node is back: if it waited for the lost ones, it would never accept the later ones.
    first_msg_id = consumer.held[0][0] if consumer.held else consumer.next_msg_id
    return Resumed(max(first_msg_id, command.next_msg_id))


def surely_empty(state: QueueState) -> bool:
    """Return whether a `Get` on this state would give nothing and change nothing that is seen.

    Not where a get is refused, counts as use of a queue that expires when unused, or would come
    upon messages that are due: those have a log entry.
    """
    config = state.config
    return not (
        state.order.count
        or state.delayed.count
        or config.single_active_consumer
        or config.expires_ms is not None
        or state.deleted
    )


def get(context: QueueContext, command: Get) -> AnyReply:
    """Handle basic.get; waiting consumers and limits come first, as if it had its own entry."""
    state, uplink = context.state, context.uplink
    if uplink is None:
        return Refused("invalid", "a get belongs to an uplink: submit with one")
    if state.config.single_active_consumer and not context.active_stays:
        return Refused(
            "single_active",
            f"queue {state.config.name!r} has a single active consumer: use basic.consume",
        )
    service_order.dispatch(context)
    limits.drop_head(context)
    limits.expire_heads(context)
    state.unused_ms = context.now
    getter = uplink.consumers.get(command.consumer)
    if getter is None:
        getter = _new(state, uplink.id, command.consumer, command.session, "")
        getter.getter = True
        getter.timeout_ms = state.config.consumer_timeout_ms or None
        uplink.add(getter)
    given = service_order.hand_out_run(context, getter, 1, -1)
    if given is None:
        return GetReply(None, 0)
    first_id, _, index, first, failed, acquired, _ = given
    delivery = Delivery(first_id, index, first, first, failed, acquired & COUNT_MASK)
    if state.annotations:
        delivery = context.annotated(delivery)
    if command.no_ack:
        ack.let_go(context, getter, take_ids(getter.held, first_id, first_id), "settled")
    limits.expire_heads(context)
    return GetReply(delivery, state.order.count)
