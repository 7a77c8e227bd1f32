"""The interface of an exchange type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from warren_broker.metadata.records import Binding, BindingKey

Destination: TypeAlias = tuple[bool, str]
"""(whether it is a queue, its name)."""
Headers: TypeAlias = Mapping[str, Any]
"""A message's headers as plain values."""


class Matcher(Protocol):
    """The bindings of one exchange, arranged so that matching is cheap.

    `add` and `remove` are called once per binding; `match` adds destinations to `found`, of which
    only the keys and their order matter.
    """

    def add(self, key: BindingKey, binding: Binding) -> None:
        """Add a binding."""
        ...

    def remove(self, key: BindingKey, binding: Binding) -> None:
        """Remove a binding."""
        ...

    def match(
        self, routing_key: str, headers: Headers | None, found: dict[Destination, None]
    ) -> None:
        """Add the message's destinations to `found`; headers None: they were not decoded."""
        ...


class CountedDestinations:
    """Destinations with the number of bindings that name each."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[Destination, int] = {}

    def add(self, destination: Destination) -> None:
        """Count one more binding to it."""
        self.counts[destination] = self.counts.get(destination, 0) + 1

    def remove(self, destination: Destination) -> None:
        """Count one binding less; drop the destination with its last one."""
        left = self.counts[destination] - 1
        if left:
            self.counts[destination] = left
        else:
            del self.counts[destination]
