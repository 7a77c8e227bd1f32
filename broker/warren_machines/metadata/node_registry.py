"""The registry of the cluster's nodes: names, addresses, data directories."""

from __future__ import annotations

import msgspec

from warren_machines.metadata.changes import NodesChanged, QueueCreated, QueueDeleted
from warren_machines.metadata.commands import (
    AnyReply,
    Deleted,
    ForgetNode,
    JoinNode,
    MetadataDone,
    NodeStarted,
    RemoveNode,
    SetDrained,
)
from warren_machines.metadata.incarnations import begin_life, end_life
from warren_machines.metadata.members import set_members
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.queues import remove_queues
from warren_machines.metadata.records import ClusterNode, QueueRecord
from warren_machines.metadata.state import REMOVED_KEPT_MAX
from warren_wire import errors


def node_started(context: MetadataContext, command: NodeStarted) -> AnyReply:
    """Begin a node's incarnation; a repeat changes nothing."""
    gone = begin_life(context, command.node, command.uplink)
    # A late repeat from an older incarnation must not restore the old address.
    if context.state.lives.get(command.node) == command.uplink:
        register(context, command.node, command.disk, command.address, command.ports)
    return Deleted(tuple(gone))


def join_node(context: MetadataContext, command: JoinNode) -> AnyReply:
    """Register a new node, so that the leader sends it what it needs to take part."""
    register(context, command.node, command.disk, command.address)
    return MetadataDone()


def register(
    context: MetadataContext,
    name: str,
    disk: int,
    address: str,
    started: tuple[int, ...] | None = None,
) -> None:
    """Register the node with that disk and address; refuse the disk of a removed node.

    started  it has just started, and listens for clients on these ports: that ends maintenance, as
             in RabbitMQ

    A new disk holds nothing of the existing queues; those with their only member on the previous
    disk start again, empty (`_renew`). The first disk of a name: see `_since_group`.
    """
    state = context.state
    if disk in state.removed:
        raise errors.NotAllowed(
            f"node '{name}' was removed from the cluster with this data directory; empty it to let "
            "the node join as a new one, or take the node out of service"
        )
    for one in state.nodes.values():
        if one.disk == disk and one.name != name:
            raise errors.NotAllowed(
                f"the data directory of node '{name}' is that of node '{one.name}'; give every "
                "node one of its own"
            )
    known = state.nodes.get(name)
    if known is not None and known.forgetting and known.disk != disk:
        raise errors.Unavailable(
            f"node '{name}' is being forgotten with the data directory that it had; it can join "
            "with this one when that is done: try again"
        )
    drained = known is not None and known.drained and started is None
    ports = known.ports if known is not None and started is None else started or ()
    if known is not None and known.disk == disk:
        now = ClusterNode(name, address, disk, known.since_group, drained, known.forgetting, ports)
    else:
        since_group = state.last_group if known is not None else _since_group(context, name)
        now = ClusterNode(name, address, disk, since_group, drained, ports=ports)
    if now == known:
        return
    state.nodes[name] = now
    context.changes.append(NodesChanged(joined=name if known is None else ""))
    if known is not None and known.disk != disk:
        _renew(context, name)


def _since_group(context: MetadataContext, name: str) -> int:
    """Return the last group that is older than the first disk of a name.

    1. a, b and c form a cluster; a and b are registered.  2. A queue of b and c is declared.  3. c
    is registered. If its member began as one that joins, which may not vote, nothing would ever
    lead the queue. No log of it can be lost: it was declared for the c that begins now, which
    starts no member before it is registered.  So c is a founder of it. A node that joins later is
    in no list of founders: see `set_members`.
    """
    state = context.state
    founded = [queue.group for queue in state.queues() if queue.founded_by(name)]
    return min(founded, default=state.last_group + 1) - 1


def _renew(context: MetadataContext, name: str) -> None:
    """Recreate, empty, the durable queues with their only member on the node's lost disk.

    They get another group, so that no node takes the new queue for the one it submitted to:
    submissions to it are numbered from 1.
    """
    state = context.state
    for old in [queue for queue in state.queues() if queue.nodes == (name,) and not queue.leaving]:
        if not old.config.durable or old.owner_uplink:
            continue
        state.last_group += 1
        queue = msgspec.structs.replace(old, group=state.last_group, founders=None)
        state.renew_queue(old, queue)
        context.changes += [QueueDeleted(old), QueueCreated(queue)]
        context.topology_changed(queue.vhost)


def known_node(context: MetadataContext, name: str) -> ClusterNode:
    """Return the node; raises NotFound."""
    known = context.state.nodes.get(name)
    if known is None:
        raise errors.no_node(name, context.state.nodes)
    return known


def set_drained(context: MetadataContext, command: SetDrained) -> AnyReply:
    """Put a node into maintenance, or end it."""
    known = known_node(context, command.node)
    if known.drained != command.drained:
        context.state.nodes[command.node] = msgspec.structs.replace(known, drained=command.drained)
        context.changes.append(NodesChanged())
    return MetadataDone()


def forget_node(context: MetadataContext, command: ForgetNode) -> AnyReply:
    """Take the node out of every queue's members; delete queues without another member."""
    state = context.state
    known = known_node(context, command.node)
    others = [one for one in state.nodes.values() if one.name != command.node]
    if not any(not one.forgetting for one in others):
        raise errors.PreconditionFailed(
            f"node '{command.node}' is the last of the cluster: there would be none; delete its "
            "data directory instead"
        )
    if known.forgetting:
        return Deleted(())
    state.nodes[command.node] = msgspec.structs.replace(known, forgetting=True)
    context.changes.append(NodesChanged())
    carried = [queue for queue in state.queues() if command.node in queue.nodes]
    doomed = []
    for queue in carried:
        # 1. A queue is to move from a to b.  2. b is lost before a has left.  3. b is forgotten:
        # a's log may be the only copy.
        back = _former(context, queue) if len(queue.nodes) == 1 else ()
        if len(queue.nodes) > 1 or back:
            set_members(context, queue, add=back, remove=(command.node,))
        else:
            doomed.append(queue)
    return remove_queues(context, doomed)


def _former(context: MetadataContext, queue: QueueRecord) -> tuple[str, ...]:
    """Return the nodes that still keep the log of a member that is to leave."""
    nodes = context.state.nodes
    return tuple(name for name in queue.leaving if name in nodes and not nodes[name].forgetting)


def remove_node(context: MetadataContext, command: RemoveNode) -> AnyReply:
    """Remove the node from the registry; remember its disk."""
    state = context.state
    known = state.nodes.get(command.node)
    if known is None or known.disk != command.disk:
        return MetadataDone()
    carried = [queue for queue in state.queues() if command.node in queue.carriers]
    if not known.forgetting or carried:
        raise errors.PreconditionFailed(
            f"node '{command.node}' still has members of {len(carried)} queues; forget it first"
        )
    del state.nodes[command.node]
    state.removed[known.disk] = command.node
    while len(state.removed) > REMOVED_KEPT_MAX:
        del state.removed[next(iter(state.removed))]
    end_life(context, command.node)
    context.changes.append(NodesChanged(left=command.node))
    return MetadataDone()
