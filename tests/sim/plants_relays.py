"""Bugs to plant in relays and in the queues to which they carry messages; see `plants`."""

from __future__ import annotations

from typing import Any

from sim.planting import Replacement, by_name
from warren_machines.queue import ack
from warren_machines.queue.relays import relays
from warren_machines.queue.relays.relay_state import Origins


def what_a_relay_held_is_anybodys() -> list[Replacement]:
    """The messages of a relay without a session are ready again."""

    def let_go(context: Any, consumer: Any, failed: bool) -> None:
        ack.let_all_go(context, consumer, "failed" if failed else "returned")

    return [(relays, "keep_all", let_go)]


def what_is_brought_again_is_taken() -> list[Replacement]:
    """The queue does not recognise what a relay has brought before."""
    return [(Origins, "repeats", lambda self, origin, numbers: [])]


def a_relays_messages_have_new_names_after_it_was_away() -> list[Replacement]:
    """What is kept is named like what is taken from the queue."""

    def hand_out(context: Any, consumer: Any, limit: int) -> int:
        relay = context.state.relays[consumer.relay]
        kept, relay.kept = relay.kept, []
        again = [(relay.next_number + at, relay.origin, *run[2:]) for at, run in enumerate(kept)]
        if again and all(run[3] == run[4] for run in again):
            relay.next_number += len(again)
            relay.kept = again
        else:
            relay.kept = kept
        return before(context, consumer, limit)

    before = relays.hand_out_kept
    return [(relays, "hand_out_kept", hand_out)]


PLANTS = by_name(
    what_a_relay_held_is_anybodys,
    what_is_brought_again_is_taken,
    a_relays_messages_have_new_names_after_it_was_away,
)
