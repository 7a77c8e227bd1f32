"""Direct exchanges: the routing key equals the binding's."""

from __future__ import annotations

from collections.abc import Iterable

from warren_machines.metadata.records import Binding, BindingKey
from warren_machines.routing.matcher import CountedDestinations, Destination, RoutedMessage
from warren_machines.steps import Steps


class DirectMatcher:
    """Destinations by routing key."""

    __slots__ = ("by_key",)

    def __init__(self) -> None:
        self.by_key: dict[str, CountedDestinations] = {}

    def add(self, key: BindingKey, binding: Binding) -> None:
        self.by_key.setdefault(binding.routing_key, CountedDestinations()).add(key[:2])

    def remove(self, key: BindingKey, binding: Binding) -> None:
        there = self.by_key[binding.routing_key]
        there.remove(key[:2])
        if not there.counts:
            del self.by_key[binding.routing_key]

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        for routing_key in message.distinct_keys:
            there = self.by_key.get(routing_key)
            if there is not None:
                found.update(dict.fromkeys(there.counts))
            if steps.take(1 if there is None else 1 + len(there.counts)):
                yield
