"""Bugs to plant in the filters of consumers; see `plants`."""

from __future__ import annotations

from typing import Any

from sim.planting import Replacement, by_name
from warren_machines.queue.filters.filter_commands import Judged
from warren_machines.queue.filters.filters import Filter
from warren_machines.queue.ready.block_index import BlockIndex


def a_filter_gives_what_follows_a_match() -> list[Replacement]:
    """Of a run, everything from the first match on goes to the consumer."""
    matching = Filter.matching

    def generous(self: Filter, index: int, first: int, last: int) -> tuple[int, int] | None:
        found = matching(self, index, first, last)
        return None if found is None else (found[0], last)

    return [(Filter, "matching", generous)]


def matches_are_not_in_the_snapshot() -> list[Replacement]:
    """A member restored from a snapshot takes what was judged for what matches nothing."""

    def forgetful(self: Filter, rows: Any) -> None:
        return

    return [(Filter, "load", forgetful)]


def a_piece_ends_at_the_newest_block() -> list[Replacement]:
    """What came while a piece was under way counts as judged with it."""
    learn = Filter.learn

    def hasty(self: Filter, said: Judged, contents: BlockIndex) -> None:
        learn(self, said, contents)
        if self.judged == said.to:
            self.judged = max(said.to, contents.newest())

    return [(Filter, "learn", hasty)]


PLANTS = by_name(
    a_filter_gives_what_follows_a_match,
    matches_are_not_in_the_snapshot,
    a_piece_ends_at_the_newest_block,
)
