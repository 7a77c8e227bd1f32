"""Relays: the messages that they have taken stay theirs until they are settled.

A relay is a consumer that publishes what it takes to another cluster and then settles it; a shovel
or a federation link. 1. It publishes a message.  2. The message is accepted there.  3. The relay,
its connection or a node ends before the message is settled here. Were it ready again, another
consumer could take it, and it would be in the world twice. So it is kept for the relay, under the
name that it had; when the relay consumes again it gets these messages first, in their order, and
the queue over there drops those that it has (`relay_state`).

At any time a relay has one session: one that begins to consume takes over what an older one holds.

Invariant: a consumer of a relay is not given a message while one with a lower number is kept. So a
relay that knows all numbers above the lowest one that is not settled knows of every message that it
might be given again.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from typing import Final

from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.letters.dead_letter import dead_letter_or_drop, give_back
from warren_machines.queue.ready.ranges import Held
from warren_machines.queue.relays.relay_state import KeptRun, Relay, name_of, note_name
from warren_machines.queue.state import Consumer, QueueState

KEPT_MS: Final = 24 * 3_600_000
"""How long messages are kept for a relay that has no session. Then they are ready again, and may be
in the world twice. Less than `origins.REMEMBERED_MS`."""

_INSERTED_MAX: Final = 16
"""So many runs are put into what is kept for a relay one by one."""


def consumers_of(state: QueueState, relay: Relay) -> list[Consumer]:
    """Return the consumers of the relay's session, the oldest first."""
    found = [state.find(*key) for key in relay.consumer_keys]
    return [each for each in found if each is not None and _is_of(each, relay)]


def latest(state: QueueState, relay: Relay) -> Consumer | None:
    """Return the last consumer of the relay's session, the only one that may not be cancelled.

    A client may have any number of others: they are cancelled, and hold messages.
    """
    keys = relay.consumer_keys
    while keys:
        key = next(reversed(keys))
        consumer = state.find(*key)
        if consumer is not None and _is_of(consumer, relay):
            return consumer
        del keys[key]
    return None


def _is_of(consumer: Consumer, relay: Relay) -> bool:
    return consumer.relay == relay.name and consumer.uplink == relay.owner[0]


def add(state: QueueState, relay: Relay) -> None:
    """Add a relay, or one that has another owner now (`disown`)."""
    state.relays[relay.name] = relay
    state.owned_relays.setdefault(relay.owner, {})[relay.name] = None


def disown(state: QueueState, relay: Relay) -> None:
    """Take a relay from its owner."""
    names = state.owned_relays[relay.owner]
    del names[relay.name]
    if not names:
        del state.owned_relays[relay.owner]


def name_fresh(state: QueueState, consumer: Consumer, first_id: int, count: int) -> None:
    """Name messages that a relay's consumer takes from the queue."""
    relay = state.relays[consumer.relay]
    held_from = consumer.held[0][0] if consumer.held else first_id
    note_name(consumer.numbering, held_from, first_id, relay.origin, relay.next_number)
    relay.next_number += count


def hand_out_kept(context: QueueContext, consumer: Consumer, limit: int) -> int:
    """Give a relay's consumer up to `limit` of the relay's messages; return how many more it takes.

    0 while any is kept, whatever the limit: see the invariant.
    """
    state = context.state
    kept = state.relays[consumer.relay].kept
    gone = 0
    while gone < len(kept) and limit > 0:
        number, origin, index, first, last, failed, acquired = kept[gone]
        given = min(limit, last - first + 1)
        if first + given > last:
            gone += 1
        else:
            rest = (number + given, origin, index, first + given, last, failed, acquired)
            kept[gone] = rest
        first_id = consumer.next_msg_id
        held = (first_id, first_id + given - 1, index, first, failed, acquired, context.now)
        consumer.held.append(held)
        note_name(consumer.numbering, consumer.held[0][0], first_id, origin, number)
        consumer.held_count += given
        consumer.next_msg_id += given
        if consumer.explicit:
            consumer.credit -= given
        if consumer.windowed:
            consumer.held_bytes += state.contents.size(index, first, first + given - 1)
        state.unacked += given
        if consumer.timeout_ms is not None:
            context.arm(context.now + consumer.timeout_ms)
        limit -= given
        context.deliver(consumer, held)
    del kept[:gone]
    return 0 if kept else limit


def keep(context: QueueContext, consumer: Consumer, pieces: Iterable[Held], failed: bool) -> None:
    """Keep runs cut out of `held` for the consumer's relay; the caller then calls `changed`.

    failed  their delivery failed: those that exceed the delivery limit leave the queue
    """
    state = context.state
    limit = context.config.delivery_limit
    found: list[KeptRun] = []
    count = 0
    for first_id, last_id, index, first, failures, acquired, _ in pieces:
        origin, number = name_of(consumer.numbering, first_id)
        last = first + last_id - first_id
        count += last - first + 1
        if consumer.windowed:
            consumer.held_bytes -= state.contents.size(index, first, last)
        if 0 <= limit < failures + failed:
            dead = (index, first, last, failures + failed, acquired + 1)
            dead_letter_or_drop(context, "delivery_limit", dead)
        else:
            found.append((number, origin, index, first, last, failures + failed, acquired + 1))
    consumer.held_count -= count
    state.unacked -= count
    kept = state.relays[consumer.relay].kept
    if len(found) > _INSERTED_MAX:
        kept += found
        kept.sort()
    else:
        for run in found:
            insort(kept, run)


def keep_all(context: QueueContext, consumer: Consumer, failed: bool) -> None:
    """Keep everything that a relay's consumer holds for the relay."""
    pieces, consumer.held = consumer.held, []
    keep(context, consumer, pieces, failed)


def session_over(context: QueueContext, uplink: int, session: int | None = None) -> None:
    """Note that relays have lost their session; None: all sessions of the uplink have ended.

    Those for which nothing is kept are forgotten.
    """
    state = context.state
    if session is None:
        owned = [relay for relay in state.relays.values() if relay.owner[0] == uplink]
    else:
        owned = [state.relays[name] for name in state.owned_relays.get((uplink, session), ())]
    for relay in owned:
        if not relay.kept:
            _remove(state, relay)
        elif not relay.idle_ms:
            relay.idle_ms = context.now
            context.arm(context.now + KEPT_MS)


def expire(context: QueueContext) -> None:
    """Return what was kept for relays that have not come back; arm a timer for the next.

    By name: a member that was restored from a snapshot knows them in another order.
    """
    state = context.state
    for _, relay in sorted(state.relays.items(), key=lambda each: each[0]):
        if not relay.idle_ms:
            continue
        if context.now < relay.idle_ms + KEPT_MS:
            context.arm(relay.idle_ms + KEPT_MS)
            continue
        forget(context, relay)


def forget(context: QueueContext, relay: Relay) -> int:
    """Forget a relay that has no consumer; what is kept for it is ready again: return how much."""
    _remove(context.state, relay)
    for _, _, index, first, last, failed, acquired in relay.kept:
        give_back(context, (index, first, last, failed, acquired - 1), False)
    return relay.kept_count


def _remove(state: QueueState, relay: Relay) -> None:
    disown(state, relay)
    del state.relays[relay.name]


def in_hands(state: QueueState) -> tuple[tuple[str, int, int], ...]:
    """Return (name, messages, since when it has no session or 0) of the relays, by name.

    messages  kept for it, or held by its consumers
    """
    held: dict[str, int] = {}
    if state.relays:
        for consumer in state.all_consumers():
            if consumer.relay:
                held[consumer.relay] = held.get(consumer.relay, 0) + consumer.held_count
    return tuple(
        (name, relay.kept_count + held.get(name, 0), relay.idle_ms)
        for name, relay in sorted(state.relays.items(), key=lambda each: each[0])
    )
