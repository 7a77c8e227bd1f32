"""Routing by the current definitions: exchanges, bindings, alternate exchanges."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from warren_broker.errors import no_exchange
from warren_broker.metadata.records import Binding, BindingChange, BindingKey, Exchange, QueueRecord
from warren_broker.routing.absent import AbsentNodes
from warren_broker.routing.direct import DirectMatcher
from warren_broker.routing.fanout import FanoutMatcher
from warren_broker.routing.headers import HeadersMatcher
from warren_broker.routing.matcher import CountedDestinations, Destination, Headers, Matcher
from warren_broker.routing.topic import TopicMatcher

MATCHERS: Final[dict[str, Callable[[], Matcher]]] = {
    "direct": DirectMatcher,
    "fanout": FanoutMatcher,
    "topic": TopicMatcher,
    "headers": HeadersMatcher,
}
CACHED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of names, routing keys and results cached per vhost; beyond it the cache is emptied."""
ENTRY_BYTES: Final = 200
"""Approximate bytes of a cache entry besides its texts."""


class VhostDefinitions(Protocol):
    """A vhost as routing sees it (`metadata.state.Scope`).

    version          rises with every change
    source_versions  exchange to the version of its last change; absent: none so far
    journal          the latest changes of bindings: (version, key, binding, whether it was added),
                     ascending; older ones are dropped
    """

    exchanges: dict[str, Exchange]
    queues: dict[str, QueueRecord]
    bindings: dict[str, dict[BindingKey, Binding]]
    version: int
    source_versions: dict[str, int]
    journal: deque[BindingChange]

    def alternate(self, exchange: Exchange) -> str | None:
        """Return the exchange that gets what this one cannot route."""
        ...


class Arranged:
    """One exchange's bindings in its matcher, as of a version of its vhost.

    onward   the exchanges that it is bound to
    version  of the last change to its bindings that was applied here
    seen     of the vhost at the last update
    """

    __slots__ = ("held", "kind", "matcher", "onward", "seen", "version")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.matcher = MATCHERS[kind]()
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
    """Routing within one vhost.

    Invariant: cached results were computed at `version`, with the absent nodes of version `seen`.
    """

    __slots__ = (
        "absent",
        "arranged",
        "cache",
        "cached_bytes",
        "definitions",
        "seen",
        "version",
        "with_headers",
    )

    def __init__(self, definitions: VhostDefinitions, absent: AbsentNodes) -> None:
        self.definitions = definitions
        self.absent = absent
        self.seen = absent.version
        self.arranged: dict[str, Arranged] = {}
        self.cache: dict[tuple[str, str], tuple[str, ...]] = {}
        self.cached_bytes = 0
        self.with_headers: dict[str, bool] = {}
        self.version = -1

    def _refresh(self) -> None:
        if self.seen != self.absent.version:
            self.seen = self.absent.version
            self._forget()
        if self.version == self.definitions.version:
            return
        self._forget()
        self.with_headers.clear()
        exchanges = self.definitions.exchanges
        for name in [name for name in self.arranged if name not in exchanges]:
            del self.arranged[name]
        self.version = self.definitions.version

    def _forget(self) -> None:
        self.cache.clear()
        self.cached_bytes = 0

    def route(self, exchange: str, routing_key: str, headers: Headers | None) -> tuple[str, ...]:
        """Return the sorted names of the queues, each once; the exchange exists."""
        self._refresh()
        if exchange == "":
            return (routing_key,) if self._there(routing_key) else ()
        if self.needs_headers(exchange):
            return self._search(exchange, (routing_key,), headers)
        cached = self.cache.get((exchange, routing_key))
        if cached is None:
            cached = self._search(exchange, (routing_key,), None)
            self._remember(exchange, routing_key, cached)
        return cached

    def _there(self, name: str) -> bool:
        """Return whether messages may be routed to that queue."""
        queue = self.definitions.queues.get(name)
        return queue is not None and not self.absent.hides(queue)

    def route_all(
        self, exchange: str, routing_keys: Sequence[str], headers: Headers | None
    ) -> tuple[str, ...]:
        """Route a message with several routing keys: every exchange matches all of them."""
        self._refresh()
        return self._search(exchange, routing_keys, headers)

    def _remember(self, exchange: str, routing_key: str, queues: tuple[str, ...]) -> None:
        size = ENTRY_BYTES + len(exchange) + len(routing_key) + 8 * len(queues)
        if self.cached_bytes + size > CACHED_BYTES_MAX:
            self._forget()
        self.cache[(exchange, routing_key)] = queues
        self.cached_bytes += size

    def _search(
        self, start: str, routing_keys: Sequence[str], headers: Headers | None
    ) -> tuple[str, ...]:
        """Search breadth first over exchanges, visiting each once, which ends cycles."""
        queues: dict[str, None] = {}
        visited = {start: None}
        waiting = [start]
        while waiting:
            name = waiting.pop()
            exchange = self.definitions.exchanges.get(name)
            if exchange is None:
                continue  # an alternate exchange that does not exist
            found: dict[Destination, None] = {}
            for routing_key in routing_keys:
                found.update(self._match(exchange, routing_key, headers))
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

    def _match(
        self, exchange: Exchange, routing_key: str, headers: Headers | None
    ) -> dict[Destination, None]:
        found: dict[Destination, None] = {}
        if exchange.name == "":
            if self._there(routing_key):
                found[(True, routing_key)] = None
            return found
        self._arranged(exchange).matcher.match(routing_key, headers, found)
        if self.absent.nodes:
            return {one: None for one in found if not one[0] or self._there(one[1])}
        return found

    def _arranged(self, exchange: Exchange) -> Arranged:
        """Return the exchange's current bindings."""
        arranged = self.arranged.get(exchange.name)
        if arranged is None or arranged.kind != exchange.kind:
            arranged = self.arranged[exchange.name] = Arranged(exchange.kind)
        arranged.follow(exchange.name, self.definitions)
        return arranged

    def needs_headers(self, exchange: str) -> bool:
        """Return whether a headers exchange can be reached from it."""
        self._refresh()
        known = self.with_headers.get(exchange)
        if known is None:
            known = self.with_headers[exchange] = self._reaches_headers(exchange)
        return known

    def _reaches_headers(self, start: str) -> bool:
        visited = {start: None}
        waiting = [start]
        while waiting:
            name = waiting.pop()
            exchange = self.definitions.exchanges.get(name)
            if exchange is None:
                continue
            if exchange.kind == "headers":
                return True
            further = [] if name == "" else [to for _, to in self._arranged(exchange).onward.counts]
            alternate = self.definitions.alternate(exchange)
            if alternate is not None:
                further.append(alternate)
            for target in further:
                if target not in visited:
                    visited[target] = None
                    waiting.append(target)
        return False


class Topology:
    """Routing over all vhosts of a state; exchanges are indexed on first use."""

    __slots__ = ("absent", "scopes", "vhosts")

    def __init__(
        self, scopes: Mapping[str, VhostDefinitions], absent: AbsentNodes | None = None
    ) -> None:
        """Route by `scopes`; absent: the suspected nodes, updated by their owner; None: none."""
        self.scopes = scopes
        self.absent = AbsentNodes() if absent is None else absent
        self.vhosts: dict[str, VhostTopology] = {}

    def _vhost(self, vhost: str, exchange: str) -> VhostTopology:
        definitions = self.scopes.get(vhost)
        if definitions is None or exchange not in definitions.exchanges:
            raise no_exchange(exchange, vhost)
        there = self.vhosts.get(vhost)
        if there is None or there.definitions is not definitions:
            there = self.vhosts[vhost] = VhostTopology(definitions, self.absent)
        return there

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        headers: Headers | None = None,
        further_keys: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Return the sorted names of the queues of a message, each once; raises NotFound.

        headers       plain values; may be None unless `needs_headers`
        further_keys  from `sender_selected.further_keys`
        """
        there = self._vhost(vhost, exchange)
        if further_keys:
            return there.route_all(exchange, (routing_key, *further_keys), headers)
        return there.route(exchange, routing_key, headers)

    def needs_headers(self, vhost: str, exchange: str) -> bool:
        """Return whether `route` depends on the message's headers; raises NotFound."""
        return self._vhost(vhost, exchange).needs_headers(exchange)
