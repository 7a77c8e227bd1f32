"""The registry of the cluster's nodes, their incarnations, and which queues have members where."""

from __future__ import annotations

import msgspec

from warren_machines.metadata.changes import (
    NodeRenewed,
    NodesChanged,
    QueueChanged,
)
from warren_machines.metadata.cluster_version import check_fits
from warren_machines.metadata.commands import (
    AnyReply,
    ChangeMembers,
    Deleted,
    ForgetNode,
    JoinNode,
    Left,
    MetadataDone,
    NodeStarted,
    QueueIs,
    RecoverQueue,
    RemoveNode,
    SetDrained,
)
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.queues import remove_queues
from warren_machines.metadata.records import ClusterNode, QueueRecord
from warren_machines.metadata.state import (
    REMOVED_KEPT_MAX,
    RETIRED_KEPT_MAX,
    MetadataState,
    UplinkState,
)
from warren_machines.queue.commands import Incarnation, UplinkId
from warren_raft.types import Index
from warren_raft.versions import Versions
from warren_wire import errors


def begin_life(context: MetadataContext, node: str, uplink: UplinkId) -> list[QueueRecord]:
    """Make `uplink` the node's incarnation; remove what was bound to older ones.

    1. A node dies with an exclusive queue on it.
    2. It starts again; its first submission arrives.
    3. The connections of the old incarnation can never come back, so their queues are deleted,
       wherever their members are. So are transient queues on the node: their messages were in its
       memory.
    """
    state = context.state
    previous = state.lives.get(node, 0)
    if previous == uplink or is_retired(state, node, uplink):
        return []
    _retire(state, node, previous)
    state.lives[node] = uplink
    # The index of the entry that began it: equal on every member, and higher than that of every
    # earlier incarnation, also of a node that was forgotten and returns under its name.
    state.numbers[node] = context.meta.index
    state.uplinks[uplink] = UplinkState(node)
    context.changes.append(NodeRenewed(node, uplink, previous))
    return list(remove_queues(context, _bound(state, node, previous)).queues)


def end_life(context: MetadataContext, node: str) -> list[QueueRecord]:
    """End the node's incarnation without a new one: it will never come back."""
    previous = context.state.lives.pop(node, 0)
    context.state.numbers.pop(node, None)
    _retire(context.state, node, previous)
    if previous:
        context.changes.append(NodeRenewed(node, 0, previous))
    return list(remove_queues(context, _bound(context.state, node, previous)).queues)


def _retire(state: MetadataState, node: str, previous: UplinkId) -> None:
    if previous:
        state.retired[node] = (*state.retired.get(node, ()), previous)[-RETIRED_KEPT_MAX:]
        del state.uplinks[previous]


def _bound(state: MetadataState, node: str, previous: UplinkId) -> list[QueueRecord]:
    return [
        queue
        for queue in state.queues()
        if (previous and queue.owner_uplink == previous)
        or (not queue.config.durable and queue.nodes[0] == node)
    ]


def is_retired(state: MetadataState, node: str, uplink: UplinkId) -> bool:
    """Return whether that incarnation is among the node's latest ones that have ended.

    This decides on an incarnation's first submission, which has no number yet. Beyond
    RETIRED_KEPT_MAX restarts a late submission ends the present incarnation instead; the node's
    process then stops with an error, not silently.
    """
    return uplink in state.retired.get(node, ())


def is_over(
    state: MetadataState, applied: Index, node: str, uplink: UplinkId, number: Incarnation
) -> bool:
    """Return whether that incarnation of the node has ended, however many came after it.

    applied  the log index of the state
    number   of the incarnation; one above `applied` began after this state. A process submits
             nothing to a queue before it knows its number
    """
    return state.lives.get(node) != uplink and number <= applied


def change_members(context: MetadataContext, command: ChangeMembers) -> AnyReply:
    """Add and remove members of a queue; as in RabbitMQ, a repeat is not an error."""
    state = context.state
    queue = state.groups.get(command.group)
    if queue is None:
        raise errors.NotFound(f"no queue has the group {command.group} any more; look it up again")
    name = errors.named("queue", queue.name, queue.vhost)
    # 1. A leader decides to change the members by a policy, and is paused.  2. The others elect
    # another one, which changes them by the policy's successor.  3. The first one's command
    # arrives. What followed from members that are no longer the wanted ones does not happen.
    if command.expected is not None and command.expected != queue.nodes:
        return QueueIs(queue, created=False)
    if not (queue.replicated if command.mirrored is None else queue.replicable):
        raise errors.lives_on_one_node(queue.name, queue.vhost, queue.config.kind, queue.nodes[0])
    for node in command.add:
        known = state.nodes.get(node)
        if known is None:
            raise errors.no_node(node, state.nodes)
        if known.forgetting:
            raise errors.PreconditionFailed(
                f"{name}: node '{node}' is being forgotten; choose another one"
            )
    kept = [node for node in queue.nodes if node not in command.remove]
    if not kept and not set(command.add) - set(command.remove):
        raise errors.last_member(queue.name, queue.vhost, queue.nodes)
    if command.mirrored is not None and command.mirrored != queue.mirrored:
        marked = msgspec.structs.replace(queue, mirrored=command.mirrored)
        context.state.replace_queue(marked)
        changed = set_members(context, marked, command.add, command.remove)
        if changed is marked:
            context.changes.append(QueueChanged(marked))
        return QueueIs(changed, created=False)
    return QueueIs(set_members(context, queue, command.add, command.remove), created=False)


def set_members(
    context: MetadataContext,
    queue: QueueRecord,
    add: tuple[str, ...] = (),
    remove: tuple[str, ...] = (),
) -> QueueRecord:
    """Change the members of a queue; a removed founder that is added again is not one."""
    wanted = sorted({*queue.nodes, *add} - set(remove))
    gone = {node for node in queue.nodes if node in remove}
    founders = queue.nodes if queue.founders is None else queue.founders
    now = msgspec.structs.replace(
        queue,
        nodes=tuple(wanted),
        leader=queue.leader if queue.leader in wanted else wanted[0],
        founders=tuple(node for node in founders if node not in gone),
        leaving=tuple(sorted(({*queue.leaving} | gone) - set(wanted))),
    )
    if now.nodes == queue.nodes and now.leaving == queue.leaving:
        return queue
    context.state.replace_queue(now)
    context.changes.append(QueueChanged(now))
    return now


def recover_queue(context: MetadataContext, command: RecoverQueue) -> AnyReply:
    """Give a queue another group, which its member on one node begins with what it holds.

    Not another membership of the same group: 1. a, b, c are members; b and c are cut off, and taken
    for lost.  2. a makes itself the only member, and confirms entry 8.  3. b and c are back. They
    are two of three, elect b in a later term, and confirm another entry 8, which a follows. With
    another number no message of theirs reaches a, and the definitions have them deleted.
    """
    state = context.state
    queue = state.groups.get(command.group)
    if queue is None:
        raise errors.NotFound(f"no queue has the group {command.group} any more; look it up again")
    if queue.nodes != command.expected:
        return QueueIs(queue, created=False)
    if not queue.replicated:
        raise errors.lives_on_one_node(queue.name, queue.vhost, queue.config.kind, queue.nodes[0])
    if command.node not in queue.carriers or known_node(context, command.node).forgetting:
        raise errors.PreconditionFailed(
            f"{errors.named('queue', queue.name, queue.vhost)}: node '{command.node}' cannot "
            "continue it: it has no member, or is being forgotten"
        )
    state.last_group += 1
    alone = (command.node,)
    now = msgspec.structs.replace(
        queue,
        group=state.last_group,
        nodes=alone,
        leader=command.node,
        founders=alone,
        leaving=(),
        continues=queue.group,
    )
    state.renew_queue(queue, now)
    context.changes += [QueueChanged(queue), QueueChanged(now)]
    return QueueIs(now, created=True)


def left(context: MetadataContext, command: Left) -> AnyReply:
    """Drop a member that has left the group, so that its node may forget it."""
    queue = context.state.groups.get(command.group)
    if queue is not None and command.node in queue.leaving:
        leaving = tuple(node for node in queue.leaving if node != command.node)
        now = msgspec.structs.replace(queue, leaving=leaving)
        context.state.replace_queue(now)
        context.changes.append(QueueChanged(now))
    return MetadataDone()


def node_started(context: MetadataContext, command: NodeStarted) -> AnyReply:
    """Begin a node's incarnation; a repeat changes nothing."""
    gone = begin_life(context, command.node, command.uplink)
    # A late repeat from an older incarnation must not restore the old address.
    if context.state.lives.get(command.node) == command.uplink:
        where = command.disk, command.address, command.versions
        register(context, command.node, *where, command.ports)
    return Deleted(tuple(gone))


def join_node(context: MetadataContext, command: JoinNode) -> AnyReply:
    """Register a new node, so that the leader sends it what it needs to take part."""
    register(context, command.node, command.disk, command.address, command.versions)
    return MetadataDone()


def register(
    context: MetadataContext,
    name: str,
    disk: int,
    address: str,
    versions: Versions,
    started: tuple[int, ...] | None = None,
) -> None:
    """Register the node with that disk and address; refuse the disk of a removed node.

    Refused as well is a program without the cluster's version.

    started  it has just started, and listens for clients on these ports: that ends maintenance, as
             in RabbitMQ

    A new disk holds nothing of the existing queues; those with their only member on the previous
    disk start again, empty (`_renew`). The first disk of a name: see `_since_group`.
    """
    state = context.state
    check_fits(state, name, versions)
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
        since_group, forgetting = known.since_group, known.forgetting
    else:
        since_group = state.last_group if known is not None else _since_group(context, name)
        forgetting = False
    now = ClusterNode(name, address, disk, since_group, drained, forgetting, ports, versions)
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
        context.changes += [QueueChanged(old), QueueChanged(queue)]


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


def unregister(state: MetadataState, node: ClusterNode) -> None:
    """Remove a node from the registry; remember its disk, to refuse it."""
    del state.nodes[node.name]
    state.removed[node.disk] = node.name
    while len(state.removed) > REMOVED_KEPT_MAX:
        del state.removed[next(iter(state.removed))]


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
    unregister(state, known)
    end_life(context, command.node)
    context.changes.append(NodesChanged(left=command.node))
    return MetadataDone()
