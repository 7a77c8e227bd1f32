"""Exchanges of type x-consistent-hash: equal hashes go to one destination, shared by weight.

A binding's key is its weight. What is hashed is the routing key, or the header or property that the
exchange's arguments name; messages without it all have the same hash.
"""

from __future__ import annotations

from typing import Any

from warren_broker.metadata.exchange_types import HASH_HEADER, HASH_PROPERTY, weight
from warren_broker.metadata.records import Arguments, Binding, BindingKey
from warren_broker.routing.hashing import WeightedChoice, hash_of
from warren_broker.routing.matcher import Destination, RoutedMessage
from warren_broker.routing.surroundings import Surroundings


class ConsistentHashMatcher:
    """Destinations with their weights.

    RabbitMQ counts the first binding of a destination and ignores later ones, until a restart.
    Which came first is not known after a snapshot, so the smallest weight counts here: a function
    of the bindings, equal on every node.

    Invariant: `_choice` is for the destinations present at `_version`; None: none is.
    """

    __slots__ = ("_choice", "_header", "_property", "_surroundings", "_version", "_weights")

    def __init__(self, arguments: Arguments, surroundings: Surroundings) -> None:
        self._header: str | None = arguments.get(HASH_HEADER)
        self._property: str | None = arguments.get(HASH_PROPERTY)
        self._surroundings = surroundings
        self._weights: dict[Destination, dict[BindingKey, int]] = {}
        self._choice: WeightedChoice | None = None
        self._version = (-1, -1)

    def add(self, key: BindingKey, binding: Binding) -> None:
        self._weights.setdefault(key[:2], {})[key] = weight(binding.routing_key)
        self._version = (-1, -1)

    def remove(self, key: BindingKey, binding: Binding) -> None:
        there = self._weights[key[:2]]
        del there[key]
        if not there:
            del self._weights[key[:2]]
        self._version = (-1, -1)

    def match(self, message: RoutedMessage, found: dict[Destination, None]) -> None:
        version = self._surroundings.version
        if version != self._version:
            self._version = version
            self._choose_anew()
        if self._choice is not None:
            found[self._choice.of(hash_of(self._hashed(message)))] = None

    def _hashed(self, message: RoutedMessage) -> Any:
        """Return the value that decides; None: the message does not have it."""
        if self._header is not None:
            return (message.headers or {}).get(self._header)
        if self._property is not None:
            return getattr(message.properties, self._property, None)
        return message.routing_keys[0]

    def _choose_anew(self) -> None:
        """Take the destinations that are present; keep the owners of slots if none changed."""
        present = tuple(filter(self._surroundings.present, sorted(self._weights)))
        weights = tuple(min(self._weights[one].values()) for one in present)
        choice = self._choice
        if choice is None or (choice.destinations, choice.weights) != (present, weights):
            self._choice = WeightedChoice(present, weights) if present else None
