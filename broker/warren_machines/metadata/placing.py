"""The nodes that a new queue is given."""

from __future__ import annotations

from warren_machines.metadata.metadata_context import MetadataContext
from warren_wire import errors


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
