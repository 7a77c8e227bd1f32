"""The order of a leader's effects, kept while a damaged entry is fetched from another member."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from warren_raft.storage.errors import EntryDamaged

log = logging.getLogger(__name__)

WhenHealed = Callable[[int, int, Callable[[], None]], None]
Lane: TypeAlias = tuple[int, int | None]
"""(uplink, consumer): deliveries to one consumer are in order; (uplink, None): the answers."""


@dataclass(slots=True)
class Due:
    """The effects of one applied submission; reply: None when there is none, or it was sent."""

    index: int
    reply: Any
    effects: Sequence[Any]


def lane_of(effect: Any) -> Lane | None:
    """Return the lane of an effect; None: it belongs to none."""
    consumer = getattr(effect, "consumer", None)
    return None if consumer is None else (effect.uplink, consumer)


@dataclass(eq=False, repr=False)
class EffectOrder:
    """Carries out each group's effects in order; one that needs a damaged entry waits for it.

    Later effects for the same consumer wait behind it, since deliveries must not overtake each
    other. Other effects continue: the entry may be lost on all nodes and never come. Answers
    continue, so publishers are confirmed, unless one of them waits itself (a get of that message):
    the answers to one node are in order, too, and its consumers learn that they were accepted
    before their first message. Effects without a consumer (timers, dead letters, the queue's end)
    never wait. Effects may be run twice, so a half-done one is repeated.
    Bound: what waits is bounded by the bytes in flight and the consumers' credit.

    answer   (group, index, reply); run: (group, effect). Both may raise EntryDamaged
    missing  (group, effect): run raised KeyError because an entry that it needs is not here
    """

    when_healed: WhenHealed
    answer: Callable[[int, int, Any], None]
    run: Callable[[int, Any], None]
    missing: Callable[[int, Any], None]
    _held: dict[int, deque[Due]] = field(default_factory=dict)
    _awaited: set[tuple[int, int]] = field(default_factory=set)

    def carry_out(self, group: int, index: int, reply: object, effects: tuple[object, ...]) -> None:
        """Answer, then carry out the effects: now, or after those that they wait for."""
        due = Due(index, reply, effects)
        held = self._held.get(group)
        damaged = self._go(group, due, self._waiting(held) if held else set(), False)
        if due.reply is not None or due.effects:
            self._held.setdefault(group, deque()).append(due)
        if damaged:
            self._await(group, damaged)

    def drop(self, group: int) -> None:
        """Drop the effects of a group that this node no longer leads."""
        self._held.pop(group, None)

    @staticmethod
    def _waiting(held: deque[Due]) -> set[Lane]:
        lanes: set[Lane] = {(due.reply.uplink, None) for due in held if due.reply is not None}
        for due in held:
            lanes.update(lane for lane in map(lane_of, due.effects) if lane is not None)
        return lanes

    def _go(self, group: int, due: Due, waiting: set[Lane], late: bool) -> list[int]:
        """Do what need not wait; return the damaged entries that its parts wait for.

        waiting  lanes in which something earlier waits; those in which this waits are added
        late     a part of it has waited: the state has changed since
        """
        damaged: list[int] = []
        reply = due.reply
        if reply is not None and (reply.uplink, None) not in waiting:
            try:
                self.answer(group, due.index, reply)
                due.reply = None
            except EntryDamaged as damage:
                waiting.add((reply.uplink, None))
                damaged.append(damage.index)
        left: list[Any] = []
        for effect in due.effects:
            lane = lane_of(effect)
            if lane is not None and waiting and (lane in waiting or (lane[0], None) in waiting):
                waiting.add(lane)
                left.append(effect)
                continue
            try:
                self.run(group, effect)
            except EntryDamaged as damage:
                assert lane is not None, effect
                waiting.add(lane)
                left.append(effect)
                damaged.append(damage.index)
            except KeyError:
                # 1. A delivery waits for an entry.  2. Its consumer ends, the message is purged.
                # 3. The entry is released: no consumer needs it any more.
                if late:
                    log.info("group %s: a delivery to %s is no longer needed", group, lane)
                else:
                    self.missing(group, effect)
        due.effects = left
        return damaged

    def _await(self, group: int, damaged: list[int]) -> None:
        for index in damaged:
            if (group, index) not in self._awaited:
                self._awaited.add((group, index))
                self.when_healed(group, index, partial(self._again, group, index))

    def _again(self, group: int, index: int) -> None:
        self._awaited.discard((group, index))
        held = self._held.pop(group, None)
        if held is None:
            return
        waiting: set[Lane] = set()
        damaged: list[int] = []
        rest: deque[Due] = deque()
        for due in held:
            damaged += self._go(group, due, waiting, True)
            if due.reply is not None or due.effects:
                rest.append(due)
        rest.extend(self._held.pop(group, ()))
        if rest:
            self._held[group] = rest
        self._await(group, damaged)
