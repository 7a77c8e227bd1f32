"""The context of one submission being applied: its uplink and the changes it makes."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren_machines.metadata.changes import Change, Definition, DefinitionEvent, TopologyChanged
from warren_machines.metadata.records import Exchange
from warren_machines.metadata.state import MetadataState, Scope
from warren_machines.queue.commands import UplinkId
from warren_raft.machine import Meta
from warren_wire import errors


@dataclass(slots=True)
class MetadataContext:
    """What the handlers of commands share.

    changed  vhosts with a changed topology, in order
    """

    meta: Meta
    state: MetadataState
    uplink: UplinkId
    node: str
    changes: list[Change] = field(default_factory=list)
    changed: dict[str, None] = field(default_factory=dict)

    def scope(self, vhost: str) -> Scope:
        """Return the vhost's scope; raises NotFound."""
        scope = self.state.scopes.get(vhost)
        if scope is None:
            raise errors.NotFound(f"no vhost '{vhost}'")
        return scope

    def exchange(self, vhost: str, name: str) -> Exchange:
        """Return the exchange; raises NotFound."""
        exchange = self.scope(vhost).exchanges.get(name)
        if exchange is None:
            raise errors.no_exchange(name, vhost)
        return exchange

    def topology_changed(self, vhost: str) -> None:
        """Report the vhost's change, once per submission."""
        self.changed[vhost] = None

    def tell(self, key: str, definition: Definition) -> None:
        """Report an event; see `changes.DefinitionEvent`."""
        self.changes.append(DefinitionEvent(key, definition))

    def all_changes(self) -> tuple[Change, ...]:
        """Return all changes of the submission."""
        return (*self.changes, *(TopologyChanged(vhost) for vhost in self.changed))
