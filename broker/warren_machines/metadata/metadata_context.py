"""The context of one submission being applied: its uplink and the changes it makes."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren_machines.metadata.changes import Change, Definition, DefinitionEvent
from warren_machines.metadata.records import Exchange
from warren_machines.metadata.state import MetadataState, Scope
from warren_machines.queue.commands import UplinkId
from warren_raft.machine import Meta
from warren_wire import errors


@dataclass(slots=True)
class MetadataContext:
    """What the handlers of commands share."""

    meta: Meta
    state: MetadataState
    uplink: UplinkId
    node: str
    changes: list[Change] = field(default_factory=list)

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

    def tell(self, key: str, definition: Definition) -> None:
        """Report an event; see `changes.DefinitionEvent`."""
        self.changes.append(DefinitionEvent(key, definition))


def placed(
    context: MetadataContext, name: str, vhost: str, nodes: tuple[str, ...], leader: str
) -> tuple[tuple[str, ...], str]:
    """Return the members and first leader of a new queue; raises Unavailable.

    nodes, leader  as chosen by the node that declares it; some may have left the cluster since
    """
    there = _present(context, nodes)
    if not there or leader not in nodes:
        raise errors.Unavailable(
            f"{errors.named('queue', name, vhost)}: no node was given to carry it; "
            "try again when a node is up"
        )
    return there, leader if leader in there else there[0]


def _present(context: MetadataContext, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the nodes that have not left the cluster since they were chosen."""
    state = context.state
    gone = [name for name in state.removed.values() if name not in state.nodes]
    leaving = [name for name, one in state.nodes.items() if one.forgetting]
    return tuple(name for name in nodes if name not in gone and name not in leaving)
