"""Bugs to plant in exchanges that delay messages; see `plants`."""

from __future__ import annotations

from typing import Any

from sim.planting import Replacement, by_name
from warren_broker.cluster.client import due_messages, publisher
from warren_broker.cluster.client.due_messages import DueMessages
from warren_machines.queue.delayed.delayed_queue import Delayed


def due_messages_are_settled_before_their_confirms() -> list[Replacement]:
    """The router takes what it has published for what was confirmed."""
    batch = due_messages._DueBatch
    sends = batch.sends

    def hasty(self: Any, parts: Any) -> None:
        sends(self, parts)
        for part in parts:
            batch.answered(self, part.name, list(part.selection), set())

    return [(batch, "sends", hasty), (batch, "confirms", False)]


def a_refused_due_message_counts_as_confirmed() -> list[Replacement]:
    """The router does not look whether a queue has taken what is due."""
    answered = due_messages._DueBatch.answered

    def blind(self: Any, queue: str, positions: Any, denied: Any) -> None:
        answered(self, queue, positions, set())

    return [(due_messages._DueBatch, "answered", blind)]


def the_queues_that_have_it_are_forgotten() -> list[Replacement]:
    """What one queue has refused is routed to all of them again."""
    begin = due_messages._DueBatch.__init__

    def forgetful(self: Any, has: Any, *told: Any) -> None:
        begin(self, {}, *told)

    return [(due_messages._DueBatch, "__init__", forgetful)]


def a_new_leader_has_no_router() -> list[Replacement]:
    """Stores are looked at when the definitions are ready, and not when a node leads one later."""

    led = DueMessages._led

    def ready(self: DueMessages) -> None:
        for group in sorted(self._queues.cluster.effects.led):
            led(self, group)

    return [(DueMessages, "_led", DueMessages._end), (DueMessages, "_ready", ready)]


def due_times_are_not_in_the_snapshot() -> list[Replacement]:
    """On a member that begins with a snapshot everything is due."""
    load = Delayed.load

    def timeless(self: Delayed, counts: Any, forced: Any, leaves: Any) -> None:
        load(self, counts, forced, leaves)
        rows = list(self._waiting.clear_leaves())
        self.count = self.forced
        for row in rows:
            self.add(1, row[1:])

    return [(Delayed, "load", timeless)]


def messages_of_a_block_wait_for_the_first_delay() -> list[Replacement]:
    """All messages that are published together wait as long as the first of them."""
    delays_of = publisher.delays_of

    def equal(table: Any) -> Any:
        runs = delays_of(table)
        return ((table.count, runs[0][1]),) if runs else runs

    return [(publisher, "delays_of", equal)]


PLANTS = by_name(
    due_messages_are_settled_before_their_confirms,
    a_refused_due_message_counts_as_confirmed,
    the_queues_that_have_it_are_forgotten,
    a_new_leader_has_no_router,
    due_times_are_not_in_the_snapshot,
    messages_of_a_block_wait_for_the_first_delay,
)
