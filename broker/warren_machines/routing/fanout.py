"""Fanout exchanges: every message matches every binding."""

from __future__ import annotations

from collections.abc import Iterable

from warren_machines.metadata.records import Binding, BindingKey
from warren_machines.routing.matcher import CountedDestinations, Destination, RoutedMessage
from warren_machines.steps import Steps


class FanoutMatcher:
    """All destinations."""

    __slots__ = ("all",)

    def __init__(self) -> None:
        self.all = CountedDestinations()

    def add(self, key: BindingKey, binding: Binding) -> None:
        self.all.add(key[:2])

    def remove(self, key: BindingKey, binding: Binding) -> None:
        self.all.remove(key[:2])

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        found.update(dict.fromkeys(self.all.counts))
        steps.take(len(self.all.counts))
        return ()
