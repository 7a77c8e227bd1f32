"""A node's lookups in the definitions that it has applied."""

from __future__ import annotations

from collections.abc import Iterator

from warren_machines.metadata import passwords
from warren_machines.metadata.records import Binding, Exchange, Grant, QueueRecord, User
from warren_machines.metadata.state import MetadataState
from warren_machines.queue.commands import UplinkId
from warren_wire import errors


class MetadataView:
    """Lookups in a state; `state` is reassigned when a snapshot was restored."""

    def __init__(self, state: MetadataState) -> None:
        self.state = state

    # ------------------------------------------------------------ users

    def authenticate(self, user: str, password: str) -> User | None:
        """Return the user when the password is right."""
        found = self.state.users.get(user)
        if found is None or not passwords.matches(password, found.password_hash):
            return None
        return found

    def grant(self, vhost: str, user: str) -> Grant | None:
        """Return the user's permissions in a vhost; None: it may not even enter."""
        return self.state.grants.get((vhost, user, None))

    # ------------------------------------------------------------ objects

    def exchange(self, vhost: str, name: str) -> Exchange:
        """Return an exchange, as for a passive declaration; raises NotFound."""
        found = self.state.exchange(vhost, name)
        if found is None:
            raise errors.no_exchange(name, vhost)
        return found

    def queue(
        self, vhost: str, name: str, uplink: UplinkId = 0, connection: int = 0
    ) -> QueueRecord:
        """Return a queue that the requester may use; raises NotFound, ResourceLocked.

        uplink, connection  of the requester; 0: the broker itself, which may use exclusive ones
        """
        found = self.state.queue(vhost, name)
        if found is None:
            raise errors.no_queue(name, vhost)
        if connection and not found.owned_by(uplink, connection):
            raise errors.locked_queue(name, vhost)
        return found

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
