"""Counted steps: the bound of the work that one input causes in one turn of the node's loop.

docs/architecture.md (the work of a turn) has the rule.
"""

from __future__ import annotations


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

    def take(self, count: int = 1) -> None:
        """Count steps that are being taken."""
        self.taken += count

    @property
    def left(self) -> int:
        """How many may still be taken; 0 or less: none."""
        return self.limit - self.taken
