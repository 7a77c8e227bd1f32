"""Counted steps: the bound of the work that one input causes in one turn of the node's loop.

docs/explanation/architecture.md (the work of a turn) has the rule.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = "Generator[None, None, T]"
"""Work that yields where no step is left, to be continued in a later turn; it returns a result."""
STEPS_UNBOUNDED: Final = 1 << 62
"""A limit for work that is known to be little."""
PIECE: Final = 256
"""Steps that are counted together where there are many."""


class Steps:
    """Steps that some work may take before it must leave the rest to a later turn.

    A step is the smallest piece of the work that is bounded by itself, a microsecond or less: one
    node of a trie, one comparison of two short values, one name, one kilobyte of text. The work
    counts in its inner loop, many steps in one call, and stops where none is left; so it may take
    more than the limit by one such call, which must be bounded itself. A test gives the worst input
    and compares `taken`.

    limit  how many may be taken
    taken  how many have been
    """

    __slots__ = ("limit", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def take(self, count: int = 1) -> bool:
        """Count steps that are being taken; return whether none is left: work yields then."""
        self.taken += count
        return self.taken >= self.limit

    @property
    def left(self) -> int:
        """How many may still be taken; 0 or less: none."""
        return self.limit - self.taken


def whole(work: Work[T]) -> T:
    """Do work to its end in this turn, whatever it takes: where it is known to be little."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        result: T = end.value
        return result


def pieces(every: Iterable[T]) -> Iterator[list[T]]:
    """Return the values in lists of PIECE, of which each can be counted as one."""
    source = iter(every)
    while piece := list(islice(source, PIECE)):
        yield piece
