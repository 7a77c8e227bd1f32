"""Exchanges with their bindings: declare, delete, bind, unbind."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from warren_machines.metadata.commands import (
    AnyReply,
    Bind,
    BindingIs,
    DeclareExchange,
    DeleteExchange,
    MetadataDone,
    Unbind,
)
from warren_machines.metadata.exchange_types import check_arguments, check_binding, check_kind
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.records import Binding, Exchange
from warren_machines.metadata.state import Scope
from warren_machines.metadata.stores import check_store, close_store, open_store
from warren_wire import errors
from warren_wire.arguments import check_name
from warren_wire.errors import PreconditionFailed, named

RESERVED: Final = "amq."


def own_exchange(vhost: str, name: str) -> DeclareExchange:
    """Return the command for an exchange to which nodes alone publish."""
    return DeclareExchange(vhost, name, "topic", internal=True, own=True)


def declare_exchange(context: MetadataContext, command: DeclareExchange) -> AnyReply:
    """Create an exchange, or check that the existing one is equivalent."""
    scope = context.scope(command.vhost)
    if command.name == "":
        raise errors.default_exchange()
    check_kind(command.kind)
    wanted = Exchange(
        command.vhost,
        command.name,
        command.kind,
        command.durable,
        command.auto_delete,
        command.internal,
        command.arguments,
    )
    there = scope.exchanges.get(command.name)
    if there is not None:
        check_equivalent(there, wanted)
        open_store(context, there, command.store_nodes, command.store_leader)
        return MetadataDone()
    if command.name.startswith(RESERVED) and not command.own:
        raise errors.reserved_name("exchange", command.name)
    check_name("exchange", command.name)
    alternate = command.arguments.get("alternate-exchange")
    if alternate is not None and not isinstance(alternate, str):
        raise PreconditionFailed(
            f"invalid type for arg 'alternate-exchange' in "
            f"{named('exchange', command.name, command.vhost)}: give a name"
        )
    check_arguments(command.kind, command.arguments)
    check_store(wanted)
    open_store(context, wanted, command.store_nodes, command.store_leader)
    scope.exchanges[command.name] = wanted
    scope.touch(command.name)
    context.tell("exchange.created", wanted)
    return MetadataDone()


def check_equivalent(there: Exchange, wanted: Exchange) -> None:
    """Raise PreconditionFailed when a repeated declaration differs from the exchange."""
    fields = {
        "kind": "type",
        "durable": "durable",
        "auto_delete": "auto_delete",
        "internal": "internal",
    }
    errors.check_fields("exchange", there.name, there.vhost, there, wanted, fields)
    current = there.arguments.get("alternate-exchange")
    received = wanted.arguments.get("alternate-exchange")
    if current != received:
        raise errors.inequivalent(
            "alternate-exchange",
            "exchange",
            there.name,
            there.vhost,
            errors.render_argument(received),
            errors.render_argument(current),
        )


def delete_exchange(context: MetadataContext, command: DeleteExchange) -> AnyReply:
    """Delete an exchange with its bindings."""
    scope = context.scope(command.vhost)
    if command.name == "":
        raise errors.default_exchange()
    if command.name.startswith(RESERVED):
        what = named("exchange", command.name, command.vhost)
        raise errors.AccessRefused(f"deletion of system {what} not allowed")
    if command.name not in scope.exchanges:
        return MetadataDone()
    if command.if_unused and scope.bindings.get(command.name):
        raise errors.in_use("exchange", command.name, command.vhost)
    remove_exchanges(context, scope, [command.name])
    return MetadataDone()


def remove_exchanges(context: MetadataContext, scope: Scope, names: list[str]) -> None:
    """Remove exchanges with bindings and stores, and the auto-delete exchanges thereby emptied."""
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in scope.exchanges:
            continue
        for _, binding in sorted(scope.bindings.get(name, {}).items(), key=itemgetter(0)):
            remove_binding(context, scope, binding)
        waiting += remove_arriving(context, scope, name, to_queue=False)
        exchange = scope.exchanges.pop(name)
        close_store(context, scope, exchange)
        context.tell("exchange.deleted", exchange)
        scope.source_versions.pop(name, None)
        scope.touch()


def remove_binding(context: MetadataContext, scope: Scope, binding: Binding) -> bool:
    """Remove a binding; return whether it existed."""
    removed = scope.remove_binding(binding)
    if removed:
        context.tell("binding.deleted", binding)
    return removed


def remove_arriving(
    context: MetadataContext, scope: Scope, destination: str, to_queue: bool
) -> list[str]:
    """Remove all bindings to a destination; return the auto-delete exchanges thereby emptied.

    In the order of their keys: events must not depend on whether a snapshot was restored before.
    """
    emptied = []
    arriving = scope.arriving(to_queue).get(destination, {})
    for _, binding in sorted(arriving.items(), key=itemgetter(0)):
        remove_binding(context, scope, binding)
        if is_emptied(scope, binding.source):
            emptied.append(binding.source)
    return emptied


def is_emptied(scope: Scope, source: str) -> bool:
    """Return whether an auto-delete exchange has just lost its last binding."""
    exchange = scope.exchanges.get(source)
    return exchange is not None and exchange.auto_delete and not scope.bindings.get(source)


def bind(context: MetadataContext, command: Bind) -> AnyReply:
    """Add a binding; a repeat changes nothing."""
    scope = check_ends(context, command)
    source = context.exchange(command.vhost, command.source)
    queue = None
    if command.to_queue:
        queue = scope.queues.get(command.destination)
        if queue is None:
            raise errors.no_queue(command.destination, command.vhost)
        if queue.store_of:
            raise errors.store_refused(queue.name, queue.vhost, queue.store_of)
        if command.connection and not queue.owned_by(context.uplink, command.connection):
            raise errors.locked_queue(command.destination, command.vhost)
    else:
        context.exchange(command.vhost, command.destination)
    check_binding(source, command.routing_key, command.arguments, queue)
    binding = to_binding(command)
    created = binding.key not in scope.bindings.get(command.source, {})
    if created:
        scope.add_binding(binding)
        context.tell("binding.created", binding)
    return BindingIs(created)


def unbind(context: MetadataContext, command: Unbind) -> AnyReply:
    """Remove a binding, and an auto-delete exchange with its last one."""
    scope = check_ends(context, command)
    queue = scope.queues.get(command.destination) if command.to_queue else None
    if queue is not None and command.connection:
        if not queue.owned_by(context.uplink, command.connection):
            raise errors.locked_queue(command.destination, command.vhost)
    if remove_binding(context, scope, to_binding(command)):
        if is_emptied(scope, command.source):
            remove_exchanges(context, scope, [command.source])
    return MetadataDone()


def check_ends(context: MetadataContext, command: Bind | Unbind) -> Scope:
    """Refuse bindings of the default exchange, which is bound to every queue implicitly."""
    if command.source == "" or (not command.to_queue and command.destination == ""):
        raise errors.default_exchange()
    return context.scope(command.vhost)


def to_binding(command: Bind | Unbind) -> Binding:
    """Return the binding that a command names."""
    return Binding(
        command.vhost,
        command.source,
        command.destination,
        command.to_queue,
        command.routing_key,
        command.arguments,
    )
