"""The nodes on which a queue is to have its members: the intent that its leader follows."""

from __future__ import annotations

import msgspec

from warren_machines.metadata.changes import MembersSet
from warren_machines.metadata.commands import AnyReply, ChangeMembers, Left, MetadataDone, QueueIs
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.records import QueueRecord
from warren_wire import errors


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
            context.changes.append(MembersSet(marked))
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
    context.changes.append(MembersSet(now))
    return now


def left(context: MetadataContext, command: Left) -> AnyReply:
    """Drop a member that has left the group, so that its node may forget it."""
    queue = context.state.groups.get(command.group)
    if queue is not None and command.node in queue.leaving:
        leaving = tuple(node for node in queue.leaving if node != command.node)
        now = msgspec.structs.replace(queue, leaving=leaving)
        context.state.replace_queue(now)
        context.changes.append(MembersSet(now))
    return MetadataDone()
