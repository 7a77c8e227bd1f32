"""Exchanges of type x-consistent-hash: equal hashes go to one destination, shared by weight.

A binding's key is its weight. What is hashed is the routing key, or the header or property that the
exchange's arguments name; messages without it all have the same hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from warren_machines.metadata.exchange_types import HASH_HEADER, HASH_PROPERTY, weight
from warren_machines.metadata.records import Arguments, Binding, BindingKey
from warren_machines.routing.hashing import WeightedChoice, hash_of, seed_of
from warren_machines.routing.matcher import Destination, RoutedMessage
from warren_machines.routing.surroundings import Surroundings
from warren_machines.steps import Steps, Work, pieces


class ConsistentHashMatcher:
    """Destinations with their weights.

    RabbitMQ counts the first binding of a destination and ignores later ones, until a restart.
    Which came first is not known after a snapshot, so the smallest weight counts here: a function
    of the bindings, equal on every node.

    Invariant: `_choice` is for the destinations present at `_version`; None: none is.
    """

    __slots__ = (
        "_changes",
        "_choice",
        "_header",
        "_property",
        "_seeds",
        "_surroundings",
        "_version",
        "_weights",
    )

    def __init__(self, arguments: Arguments, surroundings: Surroundings) -> None:
        self._header: str | None = arguments.get(HASH_HEADER)
        self._property: str | None = arguments.get(HASH_PROPERTY)
        self._surroundings = surroundings
        self._weights: dict[Destination, dict[BindingKey, int]] = {}
        self._seeds: dict[Destination, int] = {}
        self._choice: WeightedChoice | None = None
        self._changes = 0
        self._version = (-1, -1)

    def add(self, key: BindingKey, binding: Binding) -> None:
        destination = key[:2]
        self._weights.setdefault(destination, {})[key] = weight(binding.routing_key)
        if destination not in self._seeds:
            self._seeds[destination] = seed_of(destination)
        self._changed()

    def remove(self, key: BindingKey, binding: Binding) -> None:
        there = self._weights[key[:2]]
        del there[key]
        if not there:
            del self._weights[key[:2]], self._seeds[key[:2]]
        self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self._version = (-1, -1)

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        choice = self._choice
        if self._surroundings.version != self._version:
            choice = yield from self._choose_anew(steps)
        if choice is not None:
            found[(yield from choice.of(hash_of(self._hashed(message)), steps))] = None

    def _hashed(self, message: RoutedMessage) -> Any:
        """Return the value that decides; None: the message does not have it."""
        if self._header is not None:
            return (message.headers or {}).get(self._header)
        if self._property is not None:
            return getattr(message.properties, self._property, None)
        return message.routing_keys[0]

    def _choose_anew(self, steps: Steps) -> Work[WeightedChoice | None]:
        """Take the destinations that are present; keep the owners of slots if none changed."""
        version, changes = self._surroundings.version, self._changes
        # in their order, so that to sort them again takes little more than to read them
        self._weights = {one: self._weights[one] for one in sorted(self._weights)}
        there: list[tuple[Destination, int, int]] = []
        for piece in pieces(tuple(self._weights.items())):
            for one, weights in piece:
                if self._surroundings.present(one) and weights:
                    there.append((one, min(weights.values()), self._seeds[one]))
                    steps.take(len(weights))
            if steps.take(len(piece)):
                yield
        choice = self._choice
        present = tuple(one for one, _, _ in there)
        weights_of = tuple(weight for _, weight, _ in there)
        if choice is None or (choice.destinations, choice.weights) != (present, weights_of):
            seeds = tuple(seed for _, _, seed in there)
            choice = WeightedChoice(present, weights_of, seeds) if present else None
        if self._changes == changes:
            self._choice, self._version = choice, version
        return choice
