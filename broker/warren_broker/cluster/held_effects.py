"""The order of what a leader has to do, kept while a message has to be fetched first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warren_raft.storage.errors import EntryDamaged

WhenHealed = Callable[[int, int, Callable[[], None]], None]


@dataclass(slots=True)
class Due:
    """What one applied submission asks for; reply: None when there is none, or it was given."""

    index: int
    reply: Any
    effects: tuple[Any, ...]
    done: int = 0


class HeldEffects:
    """Carries out each group's effects in their order; one that needs a damaged entry waits for it.

    What follows in that group waits behind it, for deliveries must not overtake each other. Answers
    go on, so publishers are confirmed, unless one of them waits itself (a get of that message):
    answers are in order, too. Effects may be run twice, so one that got half way starts again.
    Bound: what waits is bounded as what is in flight, and by the consumers' credit.
    """

    def __init__(
        self,
        when_healed: WhenHealed,
        answer: Callable[[int, int, Any], None],
        run: Callable[[int, Any], None],
    ) -> None:
        """answer: (group, index, reply); run: (group, effect); both may raise EntryDamaged."""
        self._when_healed = when_healed
        self._answer = answer
        self._run = run
        self._held: dict[int, deque[Due]] = {}

    def carry_out(self, group: int, index: int, reply: Any, effects: tuple[Any, ...]) -> None:
        """Answer, then do the rest: now, or when it is its turn."""
        due = Due(index, reply, effects)
        held = self._held.get(group)
        if held is None:
            self._go(group, due)
            return
        if not any(waiting.reply is not None for waiting in held):
            try:
                self._give(group, due)
            except EntryDamaged:
                pass  # it is answered when what waits before it was done
        if due.reply is not None or due.effects:
            held.append(due)

    def drop(self, group: int) -> None:
        """This node does not lead it any more."""
        self._held.pop(group, None)

    def _give(self, group: int, due: Due) -> None:
        if due.reply is not None:
            self._answer(group, due.index, due.reply)
            due.reply = None

    def _go(self, group: int, due: Due) -> bool:
        try:
            self._give(group, due)
            while due.done < len(due.effects):
                self._run(group, due.effects[due.done])
                due.done += 1
        except EntryDamaged as damage:
            self._held.setdefault(group, deque()).appendleft(due)
            self._when_healed(group, damage.index, lambda: self._again(group))
            return False
        return True

    def _again(self, group: int) -> None:
        held = self._held.pop(group, None)
        while held:
            if not self._go(group, held.popleft()):
                self._held[group].extend(held)
                return
