"""Exchanges of type x-modulus-hash: the hash of the routing keys, modulo the number of bindings."""

from __future__ import annotations

from collections.abc import Iterable

from warren_machines.routing.hashing import hash_of_all
from warren_machines.routing.matcher import Destination, RoutedMessage
from warren_machines.routing.surroundings import ChoosingMatcher
from warren_machines.steps import Steps


class ModulusHashMatcher(ChoosingMatcher):
    """All destinations, sorted; binding keys have no meaning."""

    __slots__ = ()

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        there = yield from self._candidates.current(steps)
        if there:
            found[there[hash_of_all(message.routing_keys) % len(there)]] = None
