"""Routing by the current definitions: exchanges, bindings, alternate exchanges."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from warren_machines.metadata import exchange_types
from warren_machines.metadata.exchange_types import KEEPING_KINDS, keeps
from warren_machines.metadata.records import Binding, BindingChange, BindingKey, Exchange
from warren_machines.metadata.stores import store_name
from warren_machines.routing.hashing import ConsistentHashMatcher, ModulusHashMatcher, RandomMatcher
from warren_machines.routing.headers import HeadersMatcher
from warren_machines.routing.matcher import (
    ON_CHANCE,
    ON_CONTENT,
    CountedDestinations,
    Dependence,
    Destination,
    DirectMatcher,
    FanoutMatcher,
    Matcher,
    RoutedMessage,
)
from warren_machines.routing.surroundings import RoutingNode, Surroundings, VhostDefinitions
from warren_machines.routing.topic import TopicMatcher
from warren_machines.steps import STEPS_UNBOUNDED, Steps, Work, pieces, whole
from warren_wire.amqp091.properties import Properties
from warren_wire.errors import no_exchange
from warren_wire.sender_selected import Headers

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
    held      the bindings that the matcher has
    todo      bindings to be added (True) or removed until it has those of `version`
    onward    the exchanges that it is bound to
    version   of the last change to its bindings that is in the matcher or in `todo`
    seen      of the vhost at the last update
    """

    __slots__ = ("exchange", "held", "matcher", "onward", "seen", "todo", "version")

    def __init__(self, exchange: Exchange, around: Surroundings) -> None:
        self.exchange = exchange
        self.matcher = _matcher(exchange, around)
        self.held: dict[BindingKey, Binding] = {}
        self.todo: deque[tuple[BindingKey, Binding, bool]] = deque()
        self.onward = CountedDestinations()
        self.version = self.seen = -1

    def follow(self, name: str, definitions: VhostDefinitions, steps: Steps) -> Iterable[None]:
        """Update it to the current bindings of the exchange of that name, as work.

        The journal is used where it reaches back far enough: adding one binding to twenty thousand
        costs one update. Else, after a snapshot or many changes elsewhere, all bindings are
        compared. The first search that needs the matcher does what is left to do.
        """
        version, since = definitions.source_versions.get(name, 0), self.seen
        self.seen = definitions.version
        if version != self.version:
            changes = _changes_since(definitions.journal, since) if since >= 0 else None
            if changes is not None:
                steps.take(len(changes))
                self.todo += [change[1:] for change in changes if change[2].source == name]
            else:
                self._compare(definitions.bindings.get(name, {}))
            self.version = version
        while self.todo:
            key, binding, came = self.todo.popleft()
            (self._add if came else self._remove)(key, binding)
            if steps.take(1 + binding.routing_key.count(".") + len(binding.arguments)):
                yield

    def _compare(self, bindings: Mapping[BindingKey, Binding]) -> None:
        self.todo.clear()
        self.todo += [
            (key, binding, False) for key, binding in self.held.items() if key not in bindings
        ]
        self.todo += [
            (key, binding, True) for key, binding in bindings.items() if key not in self.held
        ]

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

    def known(self, exchange: str, routing_key: str) -> tuple[str, ...] | None:
        """Return the queues of a routing key where they are known; None: `search` finds them."""
        self._refresh()
        if exchange == "":
            return (routing_key,) if self._named(routing_key) else ()
        if self.dependences.get(exchange, 1):
            return None
        return self.cache.get((exchange, routing_key))

    def search(self, start: str, message: RoutedMessage, steps: Steps) -> Work[tuple[str, ...]]:
        """Find the sorted names of the queues, each once; the exchange exists.

        Every exchange on the way sees all routing keys of the message.
        """
        self._refresh()
        if start == "" and len(message.routing_keys) == 1:
            return self.known(start, message.routing_keys[0]) or ()
        dependence = yield from self.search_dependence(start, steps)
        if dependence or len(message.routing_keys) > 1:
            return (yield from self._search(start, message, steps))
        (routing_key,) = message.routing_keys
        found = self.known(start, routing_key)
        if found is None:
            as_of = self._as_of()
            found = yield from self._search(start, message, steps)
            # 1. A search waits for the next turn.  2. A binding is added.  3. The search ends, and
            # may not have seen it: its result is not what is routed from now on.
            if as_of == self._as_of() == (self.version, self.seen):
                self._remember(start, routing_key, found)
        return found

    def _as_of(self) -> tuple[int, int]:
        return (self.definitions.version, self.absent.version)

    def _there(self, name: str) -> bool:
        """Return whether messages may be routed to that queue."""
        queue = self.definitions.queues.get(name)
        return queue is not None and not self.absent.hides(queue)

    def _named(self, name: str) -> bool:
        """Return whether the default exchange routes to that queue: not to a store."""
        return self._there(name) and not self.definitions.queues[name].store_of

    def _remember(self, exchange: str, routing_key: str, queues: tuple[str, ...]) -> None:
        size = ENTRY_BYTES + len(exchange) + len(routing_key) + 8 * len(queues)
        if self.cached_bytes + size > CACHED_BYTES_MAX:
            self._forget()
        self.cache[(exchange, routing_key)] = queues
        self.cached_bytes += size

    def _search(self, start: str, message: RoutedMessage, steps: Steps) -> Work[tuple[str, ...]]:
        """Search over exchanges, visiting each once, which ends cycles."""
        queues: dict[str, None] = {}
        visited = {start: None}
        waiting = [start]
        while waiting:
            name = waiting.pop()
            if steps.take():
                yield
            exchange = self.definitions.exchanges.get(name)
            if exchange is None:
                continue  # an alternate exchange that does not exist
            if exchange.kind in KEEPING_KINDS and self._keep(exchange, message, queues):
                continue
            found: dict[Destination, None] = {}
            yield from self._match(exchange, message, found, steps)
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

    def _match(
        self,
        exchange: Exchange,
        message: RoutedMessage,
        found: dict[Destination, None],
        steps: Steps,
    ) -> Iterable[None]:
        if exchange.name == "":
            keys = message.distinct_keys
            found.update(dict.fromkeys((True, name) for name in filter(self._named, keys)))
            steps.take(len(keys))
            return
        arranged = self._arranged(exchange)
        yield from arranged.follow(exchange.name, self.definitions, steps)
        yield from arranged.matcher.match(message, found, steps)
        if self.absent.nodes:
            for one in [one for one in found if one[0] and not self._there(one[1])]:
                del found[one]

    def _arranged(self, exchange: Exchange) -> Arranged:
        """Return the exchange's bindings; `follow` makes them current."""
        arranged = self.arranged.get(exchange.name)
        if arranged is None or (
            arranged.exchange is not exchange and arranged.exchange != exchange
        ):
            arranged = self.arranged[exchange.name] = Arranged(exchange, self.around)
        return arranged

    def search_dependence(self, exchange: str, steps: Steps) -> Work[Dependence]:
        """Find what routing from it depends on: its own type, and all that it may lead to."""
        self._refresh()
        known = self.dependences.get(exchange)
        if known is None:
            as_of = self._as_of()
            known = yield from self._reachable_dependence(exchange, steps)
            if as_of == self._as_of() == (self.version, self.seen):
                self.dependences[exchange] = known
        return known

    def _reachable_dependence(self, start: str, steps: Steps) -> Work[Dependence]:
        found: Dependence = 0
        visited = {start: None}
        waiting = [start]
        while waiting:
            name = waiting.pop()
            if steps.take():
                yield
            exchange = self.definitions.exchanges.get(name)
            if exchange is None:
                continue
            found |= dependence_of(exchange)
            further: list[str] = []
            if name:
                arranged = self._arranged(exchange)
                yield from arranged.follow(name, self.definitions, steps)
                for piece in pieces(tuple(arranged.onward.counts)):
                    further += [to for _, to in piece]
                    if steps.take(len(piece)):
                        yield
            alternate = self.definitions.alternate(exchange)
            if alternate is not None:
                further.append(alternate)
            for target in further:
                if target not in visited:
                    visited[target] = None
                    waiting.append(target)
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

    def known(self, vhost: str, exchange: str, routing_key: str) -> tuple[str, ...] | None:
        """Return the queues of a message where the routing key decides, and they are known.

        None: `search` finds them. Raises NotFound.
        """
        return self._vhost(vhost, exchange).known(exchange, routing_key)

    def search(
        self, vhost: str, exchange: str, message: RoutedMessage, steps: Steps
    ) -> Work[tuple[str, ...]]:
        """Find the sorted names of the queues of a message, each once; raises NotFound.

        Its headers and properties may be None unless `dependence` is ON_CONTENT.
        """
        return (yield from self._vhost(vhost, exchange).search(exchange, message, steps))

    def search_dependence(self, vhost: str, exchange: str, steps: Steps) -> Work[Dependence]:
        """Find what `search` depends on beside the routing keys; raises NotFound."""
        return (yield from self._vhost(vhost, exchange).search_dependence(exchange, steps))

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        headers: Headers | None = None,
        further_keys: Sequence[str] = (),
        properties: Properties | None = None,
    ) -> tuple[str, ...]:
        """Search in this turn, whatever it takes: for tests, and tools that no client calls.

        headers       plain values
        further_keys  from `sender_selected.further_keys`
        """
        message = RoutedMessage((routing_key, *further_keys), headers, properties)
        return whole(self.search(vhost, exchange, message, Steps(STEPS_UNBOUNDED)))

    def dependence(self, vhost: str, exchange: str) -> Dependence:
        """Search for the dependence in this turn, whatever it takes."""
        return whole(self.search_dependence(vhost, exchange, Steps(STEPS_UNBOUNDED)))
