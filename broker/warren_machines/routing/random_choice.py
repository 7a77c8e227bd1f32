"""Exchanges of types x-random and x-local-random: one destination, drawn for each message."""

from __future__ import annotations

from collections.abc import Iterable

from warren_machines.routing.matcher import Destination, RoutedMessage
from warren_machines.routing.surroundings import ChoosingMatcher, Surroundings
from warren_machines.steps import Steps


class RandomMatcher(ChoosingMatcher):
    """All destinations, or those on this node; binding keys have no meaning."""

    __slots__ = ("_draw",)

    def __init__(self, surroundings: Surroundings, local: bool) -> None:
        """local: only queues on the node that routes, the node of the publisher's connection."""
        super().__init__(surroundings, surroundings.local if local else None)
        self._draw = surroundings.draw

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        there = yield from self._candidates.current(steps)
        if there:
            found[there[self._draw(len(there)) if len(there) > 1 else 0]] = None
