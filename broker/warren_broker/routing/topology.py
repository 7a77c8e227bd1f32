"""Routing by the current definitions: exchanges, bindings, alternate exchanges."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from warren_broker.amqp091.wire.properties import Properties
from warren_broker.errors import no_exchange
from warren_broker.metadata import exchange_types
from warren_broker.metadata.exchange_types import KEEPING_KINDS, keeps
from warren_broker.metadata.records import Binding, BindingChange, BindingKey, Exchange
from warren_broker.metadata.stores import store_name
from warren_broker.routing.consistent_hash import ConsistentHashMatcher
from warren_broker.routing.direct import DirectMatcher
from warren_broker.routing.fanout import FanoutMatcher
from warren_broker.routing.headers import HeadersMatcher
from warren_broker.routing.matcher import (
    ON_CHANCE,
    ON_CONTENT,
    CountedDestinations,
    Dependence,
    Destination,
    Headers,
    Matcher,
    RoutedMessage,
)
from warren_broker.routing.modulus_hash import ModulusHashMatcher
from warren_broker.routing.random_choice import RandomMatcher
from warren_broker.routing.surroundings import RoutingNode, Surroundings, VhostDefinitions
from warren_broker.routing.topic import TopicMatcher

MATCHERS: Final[dict[str, Callable[[], Matcher]]] = {
    "direct": DirectMatcher,
    "fanout": FanoutMatcher,
    "topic": TopicMatcher,
    "headers": HeadersMatcher,
}
"""The types of which a matcher needs nothing but bindings."""
CACHED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of names, routing keys and results cached per vhost; beyond it the cache is emptied."""
ENTRY_BYTES: Final = 200
"""Approximate bytes of a cache entry besides its texts."""


def _matcher(exchange: Exchange, around: Surroundings) -> Matcher:
    """Return a matcher without bindings for an exchange."""
    kind = exchange_types.routed_as(exchange)
    match kind:
        case exchange_types.CONSISTENT_HASH:
            return ConsistentHashMatcher(exchange.arguments, around)
        case exchange_types.MODULUS_HASH:
            return ModulusHashMatcher(around)
        case exchange_types.RANDOM | exchange_types.LOCAL_RANDOM:
            return RandomMatcher(around, local=kind == exchange_types.LOCAL_RANDOM)
        case exchange_types.RECENT_HISTORY:
            return FanoutMatcher()
    return MATCHERS[kind]()


def dependence_of(exchange: Exchange) -> Dependence:
    """Return what the exchange's own choice of destinations depends on."""
    if exchange.kind == exchange_types.DELAYED_MESSAGE:
        kind = exchange_types.routed_as(exchange)
        return ON_CONTENT | dependence_of(msgspec.structs.replace(exchange, kind=kind))
    match exchange.kind:
        case "headers" | exchange_types.RECENT_HISTORY:
            return ON_CONTENT
        case exchange_types.RANDOM | exchange_types.LOCAL_RANDOM:
            return ON_CHANCE
        case exchange_types.CONSISTENT_HASH:
            by_content = (exchange_types.HASH_HEADER, exchange_types.HASH_PROPERTY)
            if any(exchange.arguments.get(name) is not None for name in by_content):
                return ON_CONTENT
    return 0


class Arranged:
    """One exchange's bindings in its matcher, as of a version of its vhost.

    exchange  as it was when the matcher was made
    onward    the exchanges that it is bound to
    version   of the last change to its bindings that was applied here
    seen      of the vhost at the last update
    """

    __slots__ = ("exchange", "held", "matcher", "onward", "seen", "version")

    def __init__(self, exchange: Exchange, around: Surroundings) -> None:
        self.exchange = exchange
        self.matcher = _matcher(exchange, around)
        self.held: dict[BindingKey, Binding] = {}
        self.onward = CountedDestinations()
        self.version = self.seen = -1

    def follow(self, name: str, definitions: VhostDefinitions) -> None:
        """Update it to the current bindings of the exchange of that name.

        The journal is used where it reaches back far enough: adding one binding to twenty thousand
        costs one update. Else, after a snapshot or many changes elsewhere, all bindings are
        compared.
        """
        version, since = definitions.source_versions.get(name, 0), self.seen
        self.seen = definitions.version
        if version == self.version:
            return
        changes = _changes_since(definitions.journal, since) if since >= 0 else None
        if changes is not None:
            for _, key, binding, came in changes:
                if binding.source == name:
                    (self._add if came else self._remove)(key, binding)
        else:
            self._compare(definitions.bindings.get(name, {}))
        self.version = version

    def _compare(self, bindings: Mapping[BindingKey, Binding]) -> None:
        for key in sorted(self.held.keys() - bindings.keys()):
            self._remove(key, self.held[key])
        for key in sorted(bindings.keys() - self.held.keys()):
            self._add(key, bindings[key])

    def _add(self, key: BindingKey, binding: Binding) -> None:
        if key not in self.held:
            self.matcher.add(key, binding)
            self.held[key] = binding
            if not binding.to_queue:
                self.onward.add(key[:2])

    def _remove(self, key: BindingKey, binding: Binding) -> None:
        if self.held.pop(key, None) is not None:
            self.matcher.remove(key, binding)
            if not binding.to_queue:
                self.onward.remove(key[:2])


def _changes_since(journal: deque[BindingChange], since: int) -> list[BindingChange] | None:
    """Return the changes after a version, in order; None: the journal does not reach back to it.

    Versions rise with other changes, too, so a full journal reaches back to its first entry.
    """
    if len(journal) == journal.maxlen and journal[0][0] > since + 1:
        return None
    found = list(itertools.takewhile(lambda change: change[0] > since, reversed(journal)))
    found.reverse()
    return found


class VhostTopology:
    """Routing within one vhost, on one node.

    Invariant: cached results were computed at `version`, with the absent nodes of version `seen`.
    """

    __slots__ = (
        "absent",
        "around",
        "arranged",
        "cache",
        "cached_bytes",
        "definitions",
        "dependences",
        "seen",
        "version",
    )

    def __init__(self, definitions: VhostDefinitions, node: RoutingNode) -> None:
        self.definitions = definitions
        self.absent = node.absent
        self.around = Surroundings(definitions, node)
        self.seen = node.absent.version
        self.arranged: dict[str, Arranged] = {}
        self.cache: dict[tuple[str, str], tuple[str, ...]] = {}
        self.cached_bytes = 0
        self.dependences: dict[str, Dependence] = {}
        self.version = -1

    def _refresh(self) -> None:
        if self.seen != self.absent.version:
            self.seen = self.absent.version
            self._forget()
        if self.version == self.definitions.version:
            return
        self._forget()
        self.dependences.clear()
        exchanges = self.definitions.exchanges
        for name in [name for name in self.arranged if name not in exchanges]:
            del self.arranged[name]
        self.version = self.definitions.version

    def _forget(self) -> None:
        self.cache.clear()
        self.cached_bytes = 0

    def route(
        self,
        exchange: str,
        routing_key: str,
        headers: Headers | None,
        properties: Properties | None,
    ) -> tuple[str, ...]:
        """Return the sorted names of the queues, each once; the exchange exists."""
        self._refresh()
        if exchange == "":
            return (routing_key,) if self._named(routing_key) else ()
        if self.dependence(exchange):
            return self._search(exchange, RoutedMessage((routing_key,), headers, properties))
        cached = self.cache.get((exchange, routing_key))
        if cached is None:
            cached = self._search(exchange, RoutedMessage((routing_key,)))
            self._remember(exchange, routing_key, cached)
        return cached

    def _there(self, name: str) -> bool:
        """Return whether messages may be routed to that queue."""
        queue = self.definitions.queues.get(name)
        return queue is not None and not self.absent.hides(queue)

    def _named(self, name: str) -> bool:
        """Return whether the default exchange routes to that queue: not to a store."""
        return self._there(name) and not self.definitions.queues[name].store_of

    def route_all(self, exchange: str, message: RoutedMessage) -> tuple[str, ...]:
        """Route a message with several routing keys: every exchange sees all of them."""
        self._refresh()
        return self._search(exchange, message)

    def _remember(self, exchange: str, routing_key: str, queues: tuple[str, ...]) -> None:
        size = ENTRY_BYTES + len(exchange) + len(routing_key) + 8 * len(queues)
        if self.cached_bytes + size > CACHED_BYTES_MAX:
            self._forget()
        self.cache[(exchange, routing_key)] = queues
        self.cached_bytes += size

    def _search(self, start: str, message: RoutedMessage) -> tuple[str, ...]:
        """Search breadth first over exchanges, visiting each once, which ends cycles."""
        queues: dict[str, None] = {}
        visited = {start: None}
        waiting = [start]
        while waiting:
            name = waiting.pop()
            exchange = self.definitions.exchanges.get(name)
            if exchange is None:
                continue  # an alternate exchange that does not exist
            if exchange.kind in KEEPING_KINDS and self._keep(exchange, message, queues):
                continue
            found = self._match(exchange, message)
            alternate = None if found else self.definitions.alternate(exchange)
            further = [] if alternate is None else [alternate]
            for to_queue, destination in found:
                if to_queue:
                    queues[destination] = None
                else:
                    further.append(destination)
            for target in further:
                if target not in visited:
                    visited[target] = None
                    waiting.append(target)
        return tuple(sorted(queues))

    def _keep(self, exchange: Exchange, message: RoutedMessage, queues: dict[str, None]) -> bool:
        """Add the store of an exchange that keeps the message; return whether it is not due yet."""
        if not keeps(exchange, message.headers or {}):
            return False
        name = store_name(exchange)
        if name in self.definitions.queues:
            queues[name] = None
        return exchange.kind == exchange_types.DELAYED_MESSAGE

    def _match(self, exchange: Exchange, message: RoutedMessage) -> dict[Destination, None]:
        found: dict[Destination, None] = {}
        if exchange.name == "":
            names = filter(self._named, message.routing_keys)
            return dict.fromkeys((True, name) for name in names)
        self._arranged(exchange).matcher.match(message, found)
        if self.absent.nodes:
            return {one: None for one in found if not one[0] or self._there(one[1])}
        return found

    def _arranged(self, exchange: Exchange) -> Arranged:
        """Return the exchange's current bindings."""
        arranged = self.arranged.get(exchange.name)
        if arranged is None or (
            arranged.exchange is not exchange and arranged.exchange != exchange
        ):
            arranged = self.arranged[exchange.name] = Arranged(exchange, self.around)
        arranged.follow(exchange.name, self.definitions)
        return arranged

    def dependence(self, exchange: str) -> Dependence:
        """Return what routing from it depends on: its own type, and all that it may lead to."""
        self._refresh()
        known = self.dependences.get(exchange)
        if known is None:
            known = self.dependences[exchange] = self._reachable_dependence(exchange)
        return known

    def _reachable_dependence(self, start: str) -> Dependence:
        found: Dependence = 0
        visited = {start}
        waiting = [start]
        while waiting:
            name = waiting.pop()
            exchange = self.definitions.exchanges.get(name)
            if exchange is None:
                continue
            found |= dependence_of(exchange)
            further: set[str] = set()
            if name:
                further.update(to for _, to in self._arranged(exchange).onward.counts)
            alternate = self.definitions.alternate(exchange)
            if alternate is not None:
                further.add(alternate)
            waiting += further - visited
            visited |= further
        return found


class Topology:
    """Routing over all vhosts of a state; exchanges are indexed on first use."""

    __slots__ = ("node", "scopes", "vhosts")

    def __init__(self, scopes: Mapping[str, VhostDefinitions], node: RoutingNode) -> None:
        """Route by `scopes`; node: where, with what it knows of other nodes."""
        self.scopes = scopes
        self.node = node
        self.vhosts: dict[str, VhostTopology] = {}

    def _vhost(self, vhost: str, exchange: str) -> VhostTopology:
        definitions = self.scopes.get(vhost)
        if definitions is None or exchange not in definitions.exchanges:
            raise no_exchange(exchange, vhost)
        there = self.vhosts.get(vhost)
        if there is None or there.definitions is not definitions:
            there = self.vhosts[vhost] = VhostTopology(definitions, self.node)
        return there

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        headers: Headers | None = None,
        further_keys: Sequence[str] = (),
        properties: Properties | None = None,
    ) -> tuple[str, ...]:
        """Return the sorted names of the queues of a message, each once; raises NotFound.

        headers       plain values; with `properties` may be None unless `dependence` is ON_CONTENT
        further_keys  from `sender_selected.further_keys`
        """
        there = self._vhost(vhost, exchange)
        if further_keys:
            message = RoutedMessage((routing_key, *further_keys), headers, properties)
            return there.route_all(exchange, message)
        return there.route(exchange, routing_key, headers, properties)

    def dependence(self, vhost: str, exchange: str) -> Dependence:
        """Return what `route` depends on beside the routing keys; raises NotFound."""
        return self._vhost(vhost, exchange).dependence(exchange)
