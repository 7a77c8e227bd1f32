"""What an exchange type must be able to do."""

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

    `add` and `remove` are told each binding once; `match` puts destinations into `found`, whose
    keys are kept in order and whose values mean nothing.
    """

    def add(self, key: BindingKey, binding: Binding) -> None:
        """A binding is there now."""
        ...

    def remove(self, key: BindingKey, binding: Binding) -> None:
        """A binding is there no more."""
        ...

    def match(
        self, routing_key: str, headers: Headers | None, found: dict[Destination, None]
    ) -> None:
        """Put in where a message goes; headers None: they were not looked at."""
        ...


class CountedDestinations:
    """Destinations, each there as long as one binding names it."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[Destination, int] = {}

    def add(self, destination: Destination) -> None:
        """One more binding to it."""
        self.counts[destination] = self.counts.get(destination, 0) + 1

    def remove(self, destination: Destination) -> None:
        """One binding less."""
        left = self.counts[destination] - 1
        if left:
            self.counts[destination] = left
        else:
            del self.counts[destination]
