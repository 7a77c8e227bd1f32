"""The context of one command being applied: state, time, collected replies and effects."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from warren_broker.queue.commands import Delivery
from warren_broker.queue.config import QueueConfig
from warren_broker.queue.effects import (
    ActiveIs,
    AnyEffect,
    CancelConsumer,
    DeadLetter,
    DeathReason,
    Deliver,
    Drained,
    Dropped,
    Expired,
    FiltersBehind,
    LettersDue,
    LettersGone,
    SetTimer,
)
from warren_broker.queue.modify_command import Pairs
from warren_broker.queue.ranges import COUNT_MASK, Held
from warren_broker.queue.relay_state import name_of
from warren_broker.queue.state import Consumer, ConsumerKey, QueueState, SeenUplink

_Dead: TypeAlias = tuple[DeathReason, int, list[tuple[int, int, int]], list[tuple[int, int, Pairs]]]
"""reason, delivery count, runs, annotations: a DeadLetter that grows."""


class QueueContext:
    """What the handlers of one submission share.

    index   of the entry, which names its block
    now     milliseconds since the epoch
    block   the entry's block; None: it has none
    uplink  the submitting uplink; None: a timer or an operator

    What depends on the version of the machine that submitted (`Submission.version`):
    in_place       messages that come back take their old place in their lane
    prompt_expiry  a ttl of 0 ends before a get, a count, and a second delivery
    counted_deaths  dead letters keep their delivery counts
    purges_letters  a purge drops letters, too
    answers_drain  a drain is answered with its consumer's deliveries so far
    notes_forgotten  the epochs of runs that are forgotten are noted
    annotates_deaths  dead letters keep the annotations of their messages
    tells_links    links are told whether their consumers are active
    """

    __slots__ = (
        "_active_before",
        "_cancelled",
        "_dead",
        "_deliveries",
        "_died",
        "_drained",
        "_dropped",
        "_expired",
        "_letters_gone",
        "_reconfigured",
        "_tells_active",
        "_timer_before",
        "annotates_deaths",
        "answers_drain",
        "block",
        "counted_deaths",
        "in_place",
        "index",
        "notes_forgotten",
        "now",
        "prompt_expiry",
        "purges_letters",
        "state",
        "tells_links",
        "uplink",
    )

    def __init__(
        self, state: QueueState, index: int, now: int, block: memoryview | None, version: int
    ) -> None:
        self.state = state
        self.index = index
        self.now = now
        self.block = block
        config = state.config
        self.in_place = version >= 4 and config.kind == "classic" and config.priority_max > 0
        self.prompt_expiry = version >= 4
        self.counted_deaths = self.purges_letters = version >= 10
        self.answers_drain = version >= 11
        self.notes_forgotten = version >= 12
        self.annotates_deaths = self.tells_links = version >= 20
        self.uplink: SeenUplink | None = None
        self._timer_before = state.timer_ms
        self._active_before = state.active
        self._tells_active: list[Consumer] = []
        self._deliveries: dict[ConsumerKey, list[Delivery]] = {}
        self._drained: list[Drained] = []
        self._cancelled: list[CancelConsumer] = []
        self._dead: list[_Dead] = []
        self._died: dict[DeathReason, int] = {}
        self._dropped: dict[DeathReason, int] = {}
        self._letters_gone: list[LettersGone] = []
        self._reconfigured = False
        self._expired: Expired | None = None

    @property
    def config(self) -> QueueConfig:
        """The queue's settings."""
        return self.state.config

    def deliver(self, consumer: Consumer, held: Held) -> None:
        """Add a delivery for the consumer's node."""
        first_id, last_id, index, first, failed, acquired, _ = held
        last = first + last_id - first_id
        delivery = Delivery(first_id, index, first, last, failed, acquired & COUNT_MASK)
        if self.state.annotations.blocks:
            delivery = self.annotated(delivery)
        if consumer.relay:
            origin, number = name_of(consumer.numbering, first_id)
            delivery = msgspec.structs.replace(delivery, origin=origin, number=number)
        self._deliveries.setdefault((consumer.uplink, consumer.id), []).append(delivery)

    def annotated(self, delivery: Delivery) -> Delivery:
        """Return the delivery with the annotations of its messages."""
        at = delivery.first_msg_id
        found = self.state.annotations.of_run(delivery.index, delivery.first, delivery.last)
        notes = tuple((at + offset, pairs) for offset, pairs in found)
        return msgspec.structs.replace(delivery, annotations=notes) if notes else delivery

    def drained(self, consumer: Consumer) -> None:
        """Report that the consumer's remaining credit was returned."""
        self._drained.append(Drained(consumer.uplink, consumer.id, consumer.next_msg_id))

    def tell_active(self, consumer: Consumer) -> None:
        """Report whether the consumer is the single active one, although that has not changed."""
        if self.state.config.single_active_consumer:
            self._tells_active.append(consumer)

    def _active_is(self) -> list[ActiveIs]:
        """Return what is to be told of the single active consumer: to links, of quorum queues."""
        state = self.state
        told = {each.key: each for each in self._tells_active}
        if state.active is not self._active_before:
            for each in (self._active_before, state.active):
                if each is not None:
                    told[each.key] = each
        return [
            ActiveIs(*key, consumer is state.active, self.index)
            for key, consumer in told.items()
            if state.find(*key) is consumer and consumer.explicit and not consumer.cancelled
        ]

    def cancelled(
        self,
        key: ConsumerKey,
        reason: Literal["timeout", "deleted", "disconnected"],
        msg_ids: tuple[tuple[int, int], ...] = (),
    ) -> None:
        """Report that a consumer was cancelled by the queue."""
        self._cancelled.append(CancelConsumer(*key, reason, msg_ids))

    def dead_letter(
        self, reason: DeathReason, index: int, first: int, last: int, failures: int
    ) -> None:
        """Send messages that leave the queue to the dead letter exchange, if there is one.

        Where the queue keeps its letters, have them forwarded. Without an exchange they are counted
        by the leader. failures: their delivery count
        """
        config = self.state.config
        if config.dead_letter_exchange is None:
            self._dropped[reason] = self._dropped.get(reason, 0) + last - first + 1
            return
        if config.keeps_letters:
            self._died[reason] = self._died.get(reason, 0) + last - first + 1
            return
        if not self._dead or self._dead[-1][:2] != (reason, failures):
            self._dead.append((reason, failures, [], []))
        if self.annotates_deaths:
            for offset, pairs in self.state.annotations.of_run(index, first, last):
                self._dead[-1][3].append((index, first + offset, pairs))
        runs = self._dead[-1][2]
        if runs and runs[-1][0] == index and runs[-1][2] + 1 == first:
            runs[-1] = (index, runs[-1][1], last)
        else:
            runs.append((index, first, last))

    def letters_gone(self, messages: int, size_bytes: int, dropped: bool = False) -> None:
        """Report letters that have left the queue."""
        self._letters_gone.append(LettersGone(messages, size_bytes, dropped))

    def reconfigured(self) -> None:
        """Report that the settings were replaced."""
        self._reconfigured = True

    def expired(self, reason: Literal["expires", "auto_delete"]) -> None:
        """Report that the queue is to be deleted."""
        self._expired = Expired(reason)

    def arm(self, at_ms: int) -> None:
        """Ask for a timer at that time unless an earlier one is pending."""
        state = self.state
        if not state.timer_ms or at_ms < state.timer_ms:
            state.timer_ms = max(at_ms, 1)

    def repeat_timer(self) -> None:
        """Ask again for the timer that is pending."""
        self._timer_before = 0

    def effects(self) -> tuple[AnyEffect, ...]:
        """Return the collected effects in the order in which the leader carries them out.

        Deliveries come before Drained (a transfer must not follow the flow that ends its credit)
        and before CancelConsumer (a cancelled consumer's last messages are still its own). A
        consumer learns that it is active before its first message.
        """
        effects: list[Any] = [
            Deliver(uplink, consumer, tuple(deliveries))
            for (uplink, consumer), deliveries in self._deliveries.items()
        ]
        if self._tells_active or self.state.active is not self._active_before:
            if self.tells_links and self.state.config.tells_active:
                effects[:0] = self._active_is()
        effects += self._drained
        effects += self._cancelled
        for reason, count, runs, notes in self._dead:
            effects.append(DeadLetter(reason, tuple(runs), count, tuple(notes)))
        if self._dropped:
            effects.append(Dropped(tuple(self._dropped.items())))
        effects += self._letters_gone
        if self.state.letters.count and (self._died or self._reconfigured):
            effects.append(LettersDue(tuple(self._died.items()), self._reconfigured))
        if self._expired is not None:
            effects.append(self._expired)
        if self.state.filters.by_id and self.state.filters.behind():
            effects.append(FiltersBehind())
        timer_ms = self.state.timer_ms
        if timer_ms and timer_ms != self._timer_before:
            effects.append(SetTimer(timer_ms))
        return tuple(effects)
