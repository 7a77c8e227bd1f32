"""Messages that a node publishes itself: one kind of `PublishedRun`, with a policy for each.

at most once   dead letters: no answer is waited for (`dead_letters`)
best effort    events, log lines, traces: what exceeds a bound of bytes without an answer is dropped
               (`node_messages`)
at least once  kept dead letters and due messages: each is done when every queue has it; what one
               queue has taken is not given to it again (`letter_forwarder`, `due_messages`)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from warren_broker.cluster.client.routed_runs import Keep, PublishedRun, QueuePart, kept_parts
from warren_machines.metadata.exchange_types import DELAY, delay_ms
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import Field
from warren_wire.arguments import plain
from warren_wire.errors import Refusal
from warren_wire.kernel import PRIORITY_DEFAULT, PRIORITY_MAX, TTL_NONE, MessageTable, Selection
from warren_wire.kernel.properties import expiration_ms

SIGNED_CODES: Final = "bsIl"
"""Types of fields that hold a number and its negative."""
SIGNED_INT_MAX: Final = (1 << 31) - 1
_TIMELY: Final = frozenset({"priority", "expiration"})


class Forwarding(PublishedRun):
    """A policy; as it is, all queues get their messages, and nothing is done with the answers."""

    confirms = True

    def routed(self, parts: list[QueuePart]) -> list[QueuePart]:
        """See `PublishedRun`."""
        chosen = self.chosen(parts)
        self.sends(chosen)
        return chosen

    def chosen(self, parts: list[QueuePart]) -> list[QueuePart]:
        """Return what is sent of what was routed."""
        return kept_parts(parts, self.wants)

    def wants(self, queue: str, i: int) -> bool:
        """Return whether a queue is to get the message of that table position."""
        return True

    def sends(self, parts: list[QueuePart]) -> None:
        """Note what is sent next; a message in no part goes nowhere."""

    def refused(self, refusal: Refusal) -> None:
        """Note that nothing is routed: the exchange is gone."""
        self.guarded(lambda: self.sends([]))

    def confirmed(self, number: int, part: QueuePart, ok: bool, refused: list[int] | None) -> None:
        """See `PublishedRun`."""
        positions = list(part.selection)
        denied = set() if ok else set(positions if refused is None else refused)
        self.answered(part.name, positions, denied)

    def answered(self, queue: str, positions: list[int], denied: set[int]) -> None:
        """Note that a queue has taken these positions of the table, but for the denied ones."""


class AllAnswered(Forwarding):
    """Calls `done` when every queue has answered, whatever it was."""

    def __init__(self, done: Callable[[], None], wants: Keep | None = None) -> None:
        self._done, self._wants, self._waiting = done, wants, 1

    def wants(self, queue: str, i: int) -> bool:
        """See Forwarding."""
        return self._wants is None or self._wants(queue, i)

    def sends(self, parts: list[QueuePart]) -> None:
        """See Forwarding."""
        self._waiting += len(parts)
        self.answered("", [], set())

    def answered(self, queue: str, positions: list[int], denied: set[int]) -> None:
        """See Forwarding."""
        self._waiting -= 1
        if not self._waiting:
            self._done()


@dataclass(slots=True, eq=False)
class Fate:
    """Which queues have a message that is to reach all of its queues.

    unsettled  queues that have it and have not answered
    confirmed  queues that have confirmed it, in this attempt or an earlier one
    """

    unsettled: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)

    def lacks(self, queue: str) -> bool:
        """Return whether the queue neither has it nor may have it."""
        return queue not in self.confirmed and queue not in self.unsettled

    def answer(self, queue: str, ok: bool) -> None:
        """Note a queue's answer."""
        self.unsettled.discard(queue)
        if ok:
            self.confirmed.add(queue)


def lasting(selection: Selection) -> MessageTable:
    """Copy messages without their times to live: in a store they do not expire."""
    table, copy = selection.table, MessageTable()
    for i in selection:
        copy.append(
            table.route(i),
            table.properties_of(i),
            table.body(i),
            table.priority(i),
            flags=table.flags(i),
        )
    return copy


def restored(table: MessageTable) -> MessageTable:
    """Copy messages with the priorities and times to live that their properties say.

    A store has neither: its blocks keep the order in which the messages came.
    """
    copy = MessageTable()
    for i in range(table.count):
        raw = table.properties_of(i)
        said = properties.select(raw, _TIMELY)
        expiration = said.get("expiration")
        copy.append(
            table.route(i),
            raw,
            table.body(i),
            min(said.get("priority", PRIORITY_DEFAULT), PRIORITY_MAX),
            _ttl_ms(expiration),
            table.flags(i),
        )
    return copy


def _ttl_ms(expiration: str | None) -> int:
    """Return the time to live of a row of a table."""
    found = -1 if expiration is None else expiration_ms(expiration.encode("utf-8", "replace"))
    return TTL_NONE if found < 0 else min(found, TTL_NONE - 1)


def delays_of(table: MessageTable) -> tuple[tuple[int, int], ...]:
    """Return the delays that headers say: (messages, delay_ms) of neighbouring messages."""
    runs: list[tuple[int, int]] = []
    for i in range(table.count):
        delay = delay_ms(plain(properties.headers(table.properties_of(i))))
        if runs and runs[-1][1] == delay:
            runs[-1] = (runs[-1][0] + 1, delay)
        else:
            runs.append((1, delay))
    return tuple(runs)


def due(raw: bytes) -> bytes:
    """Return properties with the delay negated, which says that it is over."""
    headers: dict[str, Any] = dict(properties.headers(raw))
    given = headers.get(DELAY)
    delay = delay_ms(plain({DELAY: given}))
    if not delay or not isinstance(given, Field):
        return raw
    code = given.code
    if code not in SIGNED_CODES:
        code = "I" if delay <= SIGNED_INT_MAX else "l"
    headers[DELAY] = Field(code, -delay)
    return properties.replace(raw, headers=headers)
