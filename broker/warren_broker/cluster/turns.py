"""Work over many items, divided among turns of an event loop.

What one request may have done in one turn is bounded in steps, not in items: how much an item costs
depends on what a client has chosen, such as a pattern. `TurnShares.divide` does such work for the
requests of a node, `Turns` for those of a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Final, Generic, TypeAlias, TypeVar

WORK_STEPS_PER_TURN: Final = 1 << 21
"""Steps of one request in one turn: each takes some nanoseconds at most, these some 10 ms."""

T = TypeVar("T")
R = TypeVar("R")
Work: TypeAlias = Generator[int, None, R]
"""Yields the steps that it has taken since it yielded last, and returns its result."""


def filtered(
    items: Iterable[T], keeps: Callable[[T], bool], cost: Callable[[T], int], most: int = 0
) -> Work[list[T]]:
    """Return the items that are kept, in their order.

    items  must not change meanwhile
    cost   the steps that `keeps` takes for an item at most
    most   of the items kept, then no further ones are looked at; 0: all
    """
    found: list[T] = []
    for item in items:
        if keeps(item):
            found.append(item)
            if len(found) == most:
                break
        yield cost(item)
    return found


class Turns(Generic[R]):
    """Work that is under way; `result` is known when `turn` has returned True."""

    result: R

    def __init__(self, work: Work[R]) -> None:
        self._work = work

    def turn(self) -> bool:
        """Do what one turn may take; return whether all is done."""
        left = WORK_STEPS_PER_TURN
        while left > 0:
            try:
                left -= next(self._work)
            except StopIteration as ended:
                self.result = ended.value
                return True
        return False
