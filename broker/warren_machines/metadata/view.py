"""A node's lookups in the definitions that it has applied."""

from __future__ import annotations

from collections.abc import Iterator

from warren_machines.metadata.records import Binding, Exchange, QueueRecord
from warren_machines.metadata.state import MetadataState


class MetadataView:
    """Lookups in a state; `state` is reassigned when a snapshot was restored."""

    def __init__(self, state: MetadataState) -> None:
        self.state = state

    def exchanges(self, vhost: str) -> list[Exchange]:
        """Return all exchanges of a vhost, by name."""
        scope = self.state.scopes.get(vhost)
        return [scope.exchanges[name] for name in sorted(scope.exchanges)] if scope else []

    def queues(self, vhost: str) -> list[QueueRecord]:
        """Return all queues of a vhost, by name."""
        scope = self.state.scopes.get(vhost)
        return [scope.queues[name] for name in sorted(scope.queues)] if scope else []

    def bindings(
        self,
        vhost: str,
        source: str | None = None,
        destination: str | None = None,
        to_queue: bool | None = None,
        routing_key: str | None = None,
    ) -> list[Binding]:
        """Return the bindings that match, including the default exchange's implicit ones."""
        return [
            binding
            for binding in self._candidates(vhost, source)
            if (destination is None or binding.destination == destination)
            and (to_queue is None or binding.to_queue == to_queue)
            and (routing_key is None or binding.routing_key == routing_key)
        ]

    def _candidates(self, vhost: str, source: str | None) -> Iterator[Binding]:
        scope = self.state.scopes.get(vhost)
        if scope is None:
            return
        if source in (None, ""):
            for name in sorted(name for name, one in scope.queues.items() if not one.store_of):
                yield Binding(vhost, "", name, True, name)
        names = sorted(scope.bindings) if source is None else [source]
        for name in names:
            leaving = scope.bindings.get(name, {})
            for key in sorted(leaving):
                yield leaving[key]
