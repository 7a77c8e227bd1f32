"""The context of one command being applied: state, time, collected replies and effects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from warren_machines.queue.commands import Delivery, Pairs
from warren_machines.queue.effects import (
    ActiveIs,
    AnyEffect,
    CancelConsumer,
    DeadLetter,
    DeathReason,
    Deliver,
    Dropped,
    Expired,
    ExpiryReason,
    FiltersBehind,
    JobsDue,
    LettersDue,
    LettersGone,
    SetTimer,
)
from warren_machines.queue.ready.ranges import COUNT_MASK, Held
from warren_machines.queue.relays.relay_state import name_of
from warren_machines.queue.state import Consumer, ConsumerKey, QueueState, SeenUplink
from warren_raft.versions import READ_AHEAD
from warren_wire.queue_values.config import QueueConfig

_Dead: TypeAlias = tuple[DeathReason, int, list[tuple[int, int, int]], list[tuple[int, int, Pairs]]]
"""reason, delivery count, runs, annotations: a DeadLetter that grows."""


@dataclass(slots=True, eq=False, repr=False)
class _Rare:
    """What most submissions cause nothing of."""

    tells_active: list[Consumer] = field(default_factory=list)
    cancelled: list[CancelConsumer] = field(default_factory=list)
    dead: list[_Dead] = field(default_factory=list)
    died: dict[DeathReason, int] = field(default_factory=dict)
    dropped: dict[DeathReason, int] = field(default_factory=dict)
    letters_gone: list[LettersGone] = field(default_factory=list)
    reconfigured: bool = False
    jobs_due: bool = False
    expired: list[Expired] = field(default_factory=list)


class QueueContext:
    """What the handlers of one submission share.

    index   of the entry, which names its block
    now     milliseconds since the epoch
    block   the entry's block; None: it has none
    uplink  the submitting uplink; None: a timer or an operator

    version   of the machine that submitted: the behaviour is that version's

    in_place  messages that come back take their old place in their lane
    frees     bytes of messages that left the queue, of claims and purges: see `Applied`
    """

    __slots__ = (
        "_active_before",
        "_deliveries",
        "_rarely",
        "_timer_before",
        "block",
        "frees",
        "in_place",
        "index",
        "now",
        "state",
        "uplink",
        "version",
    )

    def __init__(
        self, state: QueueState, index: int, now: int, block: memoryview | None, version: int
    ) -> None:
        self.state = state
        self.index = index
        self.now = now
        self.block = block
        self.version = version
        config = state.config
        self.in_place = config.kind == "classic" and config.priority_max > 0
        self.uplink: SeenUplink | None = None
        self.frees = 0
        self._timer_before = state.timer_ms
        self._active_before = state.active
        self._deliveries: dict[ConsumerKey, list[Delivery]] = {}
        self._rarely: _Rare | None = None

    @property
    def _rare(self) -> _Rare:
        if self._rarely is None:
            self._rarely = _Rare()
        return self._rarely

    @property
    def active_stays(self) -> bool:
        """Whether the single active consumer is as in RabbitMQ's classic queues.

        It does not make way for one of higher priority, and basic.get takes messages beside it.
        """
        return self.config.kind == "classic"

    @property
    def config(self) -> QueueConfig:
        """The queue's settings."""
        return self.state.config

    def taken_by(self, key: ConsumerKey) -> None:
        """Note which consumer takes messages; (0, 0): a claim."""
        state = self.state
        if self.version >= READ_AHEAD and (state.taker is None or state.taker[:2] != key):
            state.taker = (*key, -1 if state.taker is None else self.now)

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

    def tell_active(self, consumer: Consumer) -> None:
        """Report whether the consumer is the single active one, although that has not changed."""
        if self.state.config.single_active_consumer:
            self._rare.tells_active.append(consumer)

    def _active_is(self, rare: _Rare | None) -> list[ActiveIs]:
        """Return what is to be told of the single active consumer: to links, of quorum queues."""
        state = self.state
        told: dict[ConsumerKey, Consumer] = (
            {} if rare is None else {each.key: each for each in rare.tells_active}
        )
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
        self._rare.cancelled.append(CancelConsumer(*key, reason, msg_ids))

    def dead_letter(
        self, reason: DeathReason, index: int, first: int, last: int, failures: int
    ) -> None:
        """Send messages that leave the queue to the dead letter exchange, if there is one.

        Where the queue keeps its letters, have them forwarded. Without an exchange they are counted
        by the leader. failures: their delivery count
        """
        config, rare = self.state.config, self._rare
        if config.dead_letter_exchange is None:
            rare.dropped[reason] = rare.dropped.get(reason, 0) + last - first + 1
            return
        if config.keeps_letters:
            rare.died[reason] = rare.died.get(reason, 0) + last - first + 1
            return
        if not rare.dead or rare.dead[-1][:2] != (reason, failures):
            rare.dead.append((reason, failures, [], []))
        for offset, pairs in self.state.annotations.of_run(index, first, last):
            rare.dead[-1][3].append((index, first + offset, pairs))
        runs = rare.dead[-1][2]
        if runs and runs[-1][0] == index and runs[-1][2] + 1 == first:
            runs[-1] = (index, runs[-1][1], last)
        else:
            runs.append((index, first, last))

    def letters_gone(self, messages: int, size_bytes: int, dropped: bool = False) -> None:
        """Report letters that have left the queue."""
        self._rare.letters_gone.append(LettersGone(messages, size_bytes, dropped))

    def reconfigured(self) -> None:
        """Report that the settings were replaced."""
        self._rare.reconfigured = True

    def jobs_due(self) -> None:
        """Report that a job has begun or changed."""
        self._rare.jobs_due = True

    def expired(self, reason: ExpiryReason) -> None:
        """Report that the queue is to be deleted."""
        self._rare.expired[:] = (Expired(reason),)

    def use_ended(self) -> None:
        """Note that a claim or a job does not use the queue any more."""
        state = self.state
        state.unused_ms = self.now
        if state.config.auto_delete and state.ever_used and not state.in_use:
            self.expired("auto_delete")

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

        Deliveries come before CancelConsumer (a cancelled consumer's last messages are still its
        own). A consumer learns that it is active before its first message.
        """
        state, rare = self.state, self._rarely
        effects: list[Any] = [
            Deliver(uplink, consumer, tuple(deliveries))
            for (uplink, consumer), deliveries in self._deliveries.items()
        ]
        if state.active is not self._active_before or (rare is not None and rare.tells_active):
            if state.config.tells_active:
                effects[:0] = self._active_is(rare)
        if rare is not None:
            self._add_rare(effects, rare)
        if state.filters.by_id and state.filters.wait:
            effects.append(FiltersBehind())
        timer_ms = state.timer_ms
        if timer_ms and timer_ms != self._timer_before:
            effects.append(SetTimer(timer_ms))
        return tuple(effects)

    def _add_rare(self, effects: list[Any], rare: _Rare) -> None:
        effects += rare.cancelled
        for reason, count, runs, notes in rare.dead:
            effects.append(DeadLetter(reason, tuple(runs), count, tuple(notes)))
        if rare.dropped:
            effects.append(Dropped(tuple(rare.dropped.items())))
        effects += rare.letters_gone
        if self.state.letters.count and (rare.died or rare.reconfigured):
            effects.append(LettersDue(tuple(rare.died.items()), rare.reconfigured))
        if rare.jobs_due:
            effects.append(JobsDue())
        effects += rare.expired
