"""Consumers of one connection that had no room for their messages, and their turns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

TURNS: Final = 8
"""Consumers that are asked for at once."""
Resume: TypeAlias = Callable[[int, Callable[[], None]], None]
"""Asks the queue of a consumer again, and calls back when that was answered."""


class RefusedConsumers:
    """What they were refused stays with their queues, which are asked again, in order.

    1. A client has two consumers of deep queues, and reads slowly.  2. One of them is refused.
    3. Whenever some bytes have left, the queue of the other one gives as many: there is never
    enough room to ask for what the first was refused.  So while one waits, the others are refused
    as well, and wait behind it. When there is room, the first ones are asked for, each of which may
    then take `turn_bytes`, and one run more.  Each answer brings the turn of the next one, so that
    about TURNS are asked for at a time, however many there are; a queue that does not answer, as it
    has no leader, delays the others until something is sent to the client.  One that took nothing
    in its turn, because others had filled the room, is the next one.
    Replayed by tests/broker/listeners/test_refused_consumers.py

    turns  the bytes that are left of each consumer's turn; `took` is told what is given, if there
           is any

    Invariant: a consumer that waits has no turn
    """

    __slots__ = ("_asked", "_asking", "_resume", "_turn_bytes", "_waiting", "turns")

    def __init__(self, turn_bytes: int, resume: Resume) -> None:
        self._turn_bytes = max(1, turn_bytes)
        self._resume = resume
        self._waiting: OrderedDict[int, None] = OrderedDict()
        self.turns: dict[int, int] = {}
        self._asked = 0
        self._asking = False

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> list[int]:
        """Return those that wait, in their order."""
        return list(self._waiting)

    def may_take(self, consumer: int) -> bool:
        """Return whether a consumer need not wait for others."""
        return not self._waiting or consumer in self.turns

    def took(self, consumer: int, size_bytes: int) -> None:
        """Note what a consumer was given."""
        left = self.turns.get(consumer)
        if left is not None and left > size_bytes:
            self.turns[consumer] = left - size_bytes
        elif left is not None:
            del self.turns[consumer]

    def refuse(self, consumer: int) -> None:
        """Have a consumer wait."""
        unused = self.turns.pop(consumer, 0) == self._turn_bytes
        self._waiting[consumer] = None
        if unused:
            self._waiting.move_to_end(consumer, last=False)

    def ask(self, answered: Callable[[], None]) -> None:
        """Give the first ones their turns: one of them at least.

        answered  called when one of these was answered: there may be room for another one
        """
        if self._asking:
            return

        def one_answered() -> None:
            self._asked -= 1
            answered()

        self._asking, begun = True, False
        while self._waiting and (not begun or self._asked < TURNS):
            begun = True
            consumer, _ = self._waiting.popitem(last=False)
            self.turns[consumer] = self._turn_bytes
            self._asked += 1
            self._resume(consumer, one_answered)
        self._asking = False

    def forget(self, consumer: int) -> None:
        """Forget a consumer that has ended, or is asked for in another way."""
        self._waiting.pop(consumer, None)
        self.turns.pop(consumer, None)

    def clear(self) -> None:
        """Forget all: the connection has ended."""
        self._waiting.clear()
        self.turns.clear()
