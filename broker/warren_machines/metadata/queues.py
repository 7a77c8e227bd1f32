"""Queues as definitions: declare, delete, ownership."""

from __future__ import annotations

from collections.abc import Iterable

from warren_machines.metadata.changes import QueueChanged
from warren_machines.metadata.commands import (
    AnyReply,
    DeclareQueue,
    Deleted,
    DeleteQueue,
    OwnerGone,
    QueueIs,
)
from warren_machines.metadata.exchanges import RESERVED, remove_arriving, remove_exchanges
from warren_machines.metadata.limits import check_queue_limit
from warren_machines.metadata.metadata_context import MetadataContext, placed
from warren_machines.metadata.records import QueueRecord
from warren_wire import errors
from warren_wire.arguments import check_equivalent_arguments, is_relaxed


def declare_queue(context: MetadataContext, command: DeclareQueue) -> AnyReply:
    """Create a queue, or check that the existing one is equivalent and accessible."""
    config = command.config
    scope = context.scope(config.vhost)
    if config.name.startswith(RESERVED) and not command.server_named:
        raise errors.reserved_name("queue", config.name)
    there = scope.queues.get(config.name)
    if there is not None:
        check_equivalent(context, there, command)
        return QueueIs(there, created=False)
    check_queue_limit(scope, config.name)
    nodes, leader = placed(context, config.name, config.vhost, command.nodes, command.leader)
    context.state.last_group += 1
    type_named = {"x-queue-type": command.by_default} if command.by_default else {}
    queue = QueueRecord(
        vhost=config.vhost,
        name=config.name,
        group=context.state.last_group,
        config=config,
        arguments={**command.arguments, **type_named},
        nodes=nodes,
        leader=leader,
        owner_uplink=context.uplink if config.exclusive else 0,
        owner_connection=command.connection if config.exclusive else 0,
        life=0 if config.durable else context.state.lives.get(nodes[0], 0),
        initial=command.initial,
        mirrored=command.mirrored,
    )
    context.state.add_queue(queue)
    context.changes.append(QueueChanged(queue))
    context.tell("queue.created", queue)
    return QueueIs(queue, created=True)


def check_equivalent(context: MetadataContext, there: QueueRecord, command: DeclareQueue) -> None:
    """Raise ResourceLocked or PreconditionFailed unless the declaration matches the queue."""
    config, current = command.config, there.config
    if command.relaxed and is_relaxed(current.kind, command.arguments):
        check_equivalent_arguments(
            there.vhost, there.name, current.kind, there.arguments, command.arguments, relaxed=True
        )
        return
    # Exclusiveness is part of access, as in RabbitMQ: even the owner is locked out when it declares
    # the queue with another value than before.
    owned = there.owned_by(context.uplink, command.connection)
    if not owned or config.exclusive != current.exclusive:
        raise errors.locked_queue(there.name, there.vhost)
    fields = {"durable": "durable", "auto_delete": "auto_delete"}
    errors.check_fields("queue", there.name, there.vhost, current, config, fields)
    check_equivalent_arguments(
        there.vhost, there.name, current.kind, there.arguments, command.arguments
    )


def delete_queue(context: MetadataContext, command: DeleteQueue) -> AnyReply:
    """Delete a queue with its bindings."""
    queue = context.scope(command.vhost).queues.get(command.name)
    if queue is None or command.group not in (0, queue.group):
        return Deleted(())
    if queue.store_of:
        raise errors.store_refused(queue.name, queue.vhost, queue.store_of)
    if command.connection and not queue.owned_by(context.uplink, command.connection):
        raise errors.locked_queue(command.name, command.vhost)
    return remove_queues(context, [queue])


def remove_queues(context: MetadataContext, queues: Iterable[QueueRecord]) -> Deleted:
    """Remove queues with their bindings, and the auto-delete exchanges thereby emptied."""
    gone = []
    for queue in queues:
        scope = context.scope(queue.vhost)
        emptied = remove_arriving(context, scope, queue.name, to_queue=True)
        context.state.drop_queue(queue)
        remove_exchanges(context, scope, emptied)
        context.changes.append(QueueChanged(queue))
        if not queue.store_of:
            context.tell("queue.deleted", queue)
        gone.append(queue)
    return Deleted(tuple(gone))


def owner_gone(context: MetadataContext, command: OwnerGone) -> AnyReply:
    """Delete the exclusive queues of a connection that has ended."""
    groups = context.state.owned.get((command.uplink, command.connection), {})
    return remove_queues(context, [context.state.groups[group] for group in groups])
