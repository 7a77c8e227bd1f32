"""Relays and origins in a snapshot."""

from __future__ import annotations

import msgspec

from warren_machines.queue.relays.relay_state import KeptRun, OriginRow, Relay
from warren_machines.queue.state import QueueState


class RelayRow(msgspec.Struct, array_like=True):
    """A `Relay`; numbered: the names of what its consumers hold, by their keys."""

    name: str
    origin: int
    owner: tuple[int, int]
    next_number: int
    idle_ms: int
    kept: list[KeptRun]
    numbered: list[tuple[tuple[int, int], list[tuple[int, int, int]]]]


class OriginsRow(msgspec.Struct, array_like=True):
    """The `Origins` that are known; dropped: repeats of them so far."""

    dropped: int
    rows: list[OriginRow]


def origins_row(state: QueueState) -> OriginsRow | None:
    """Return the row of the origins; None: nothing is known of any."""
    if not state.origins and not state.origins.dropped:
        return None
    return OriginsRow(state.origins.dropped, state.origins.dump())


def relay_row(state: QueueState, relay: Relay) -> RelayRow:
    """Return the row of a relay."""
    numbered = [
        (consumer.key, consumer.numbering)
        for consumer in state.all_consumers()
        if consumer.relay == relay.name
    ]
    return RelayRow(
        relay.name,
        relay.origin,
        relay.owner,
        relay.next_number,
        relay.idle_ms,
        relay.kept,
        sorted(numbered),
    )


def load_relays(state: QueueState, relays: list[RelayRow], origins: OriginsRow | None) -> None:
    """Load relays with the names of what their consumers hold, and origins."""
    for one in relays:
        state.relays[one.name] = Relay(
            one.name, one.origin, one.owner, one.next_number, one.idle_ms, one.kept
        )
        for key, numbering in one.numbered:
            consumer = state.consumer(key)
            consumer.relay, consumer.numbering = one.name, numbering
    if origins is not None:
        state.origins.dropped = origins.dropped
        state.origins.load(origins.rows)
