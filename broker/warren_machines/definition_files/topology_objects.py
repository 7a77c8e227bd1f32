"""Exchanges, queues and bindings of a file."""

from __future__ import annotations

from typing import Any, Final

from warren_machines.definition_files.document import (
    QUEUE_TYPE,
    BindingEntry,
    ExchangeEntry,
    QueueEntry,
    Table,
    table,
)
from warren_machines.definition_files.import_plan import ImportPlan
from warren_machines.metadata.commands import Bind, DeclareExchange
from warren_machines.metadata.exchange_types import KEEPING_KINDS, check_kind
from warren_machines.metadata.exchanges import RESERVED, own_exchange
from warren_machines.metadata.state import DEFAULT_EXCHANGES
from warren_wire import errors
from warren_wire.arguments import (
    ARGUMENT_NUMBER_MAX,
    QueueDeclaration,
    check_name,
    queue_declaration,
    storable,
)
from warren_wire.errors import InvalidArgument, PreconditionFailed
from warren_wire.parameter_values import check_json

QUEUE_TYPES: Final = ("classic", "quorum")
GROUP_SIZE: Final = "x-quorum-initial-group-size"
_PREDECLARED: Final = {name: kind for name, kind, _ in DEFAULT_EXCHANGES}


def plan_exchanges(plan: ImportPlan) -> None:
    """Add the exchanges; those that every vhost has are left alone."""
    for vhost, name, entry in plan.each_in_vhost("exchanges", "exchange"):
        if entry.name == "" or entry.name.startswith(RESERVED):
            if _PREDECLARED.get(entry.name) != entry.type:
                plan.note(name, "", f"left out: '{RESERVED}' is for the broker's own exchanges")
            continue
        try:
            check_kind(entry.type)
        except PreconditionFailed as refusal:
            plan.note(name, "type", f"left out: {refusal.detail}")
            continue
        with plan.refusing(name):
            check_name("exchange", entry.name)
            plan.add("exchanges", name, _exchange(plan, vhost, entry))


def _exchange(plan: ImportPlan, vhost: str, entry: ExchangeEntry) -> DeclareExchange:
    nodes, leader = plan.around.place_store() if entry.type in KEEPING_KINDS else ((), "")
    return DeclareExchange(
        vhost,
        entry.name,
        entry.type,
        entry.durable,
        entry.auto_delete,
        bool(entry.internal),
        _arguments(entry.arguments),
        store_nodes=nodes,
        store_leader=leader,
    )


def _arguments(given: Table | None) -> dict[str, Any]:
    arguments = table(given)
    check_json(arguments, ARGUMENT_NUMBER_MAX)
    return storable(arguments)


# ------------------------------------------------------------------ queues


def plan_queues(plan: ImportPlan) -> None:
    """Add the queues, with nodes that are to carry them."""
    for vhost, name, entry in plan.each_in_vhost("queues", "queue"):
        with plan.refusing(name):
            _plan_queue(plan, vhost, name, entry)


def _plan_queue(plan: ImportPlan, vhost: str, name: str, entry: QueueEntry) -> None:
    if not entry.name:
        raise InvalidArgument("a queue without a name")
    check_name("queue", entry.name)
    if entry.name.startswith(RESERVED):
        plan.note(name, "", f"left out: '{RESERVED}' is for queues that the broker names")
        return
    if entry.exclusive:
        plan.note(name, "exclusive", "left out: it belongs to the connection that declared it")
        return
    arguments = _arguments(entry.arguments)
    for key, kind in (
        (f"arguments.{QUEUE_TYPE}", arguments.get(QUEUE_TYPE)),
        ("type", entry.type),
    ):
        if isinstance(kind, str) and kind not in (*QUEUE_TYPES, "", "undefined"):
            plan.note(name, key, f"left out: there are no queues of type '{kind}' here")
            return
    if entry.implicit_type:
        arguments.pop(QUEUE_TYPE, None)
    try:
        declaration = _declaration(plan, vhost, entry, arguments)
    except PreconditionFailed as refusal:
        plan.note(name, "arguments", f"left out: {refusal.detail}")
        return
    size = arguments.get(GROUP_SIZE)
    if size and size > plan.around.nodes_count:
        plan.note(
            name,
            f"arguments.{GROUP_SIZE}",
            f"kept with fewer members: the cluster has {plan.around.nodes_count} nodes, not {size}",
        )
    command = plan.around.queue_command(declaration, plan.policies(vhost))
    plan.add("queues", name, command)


def _declaration(
    plan: ImportPlan, vhost: str, entry: QueueEntry, arguments: dict[str, Any]
) -> QueueDeclaration:
    """Check a queue's declaration; a type beside the arguments is that of an export.

    An export of this broker says `implicit_type` where the declaration named no type.
    """
    kind = plan.vhost_record(vhost).default_queue_type
    exported = entry.type or ""
    if entry.implicit_type and exported == "classic":
        exported = "replicated"
    return queue_declaration(
        vhost,
        entry.name,
        durable=entry.durable,
        exclusive=False,
        auto_delete=entry.auto_delete,
        arguments=arguments,
        defaults=plan.around.defaults.of_type(kind).of_type(exported),
    )


# ------------------------------------------------------------------ bindings


def plan_bindings(plan: ImportPlan) -> None:
    """Add the bindings; every queue is bound to the default exchange already."""
    for number, entry in plan.each("bindings"):
        vhost = plan.vhost_of("bindings", number, entry)
        if vhost is None or _is_implicit(entry):
            continue
        name = (
            f"binding from exchange '{entry.source}' to {entry.destination_type} "
            f"'{entry.destination}' with key '{entry.routing_key}' in vhost '{vhost}'"
        )
        try:
            check_name("routing key", entry.routing_key)
            arguments = _arguments(entry.arguments)
        except errors.Refusal as refusal:
            plan.refuse(name, refusal)
            continue
        if (vhost, entry.source) in plan.around.own_exchanges:
            _plan_own(plan, vhost, entry)
        to_queue = entry.destination_type == "queue"
        ends = (vhost, entry.source, entry.destination, to_queue, entry.routing_key, arguments)
        plan.add("bindings", name, Bind(*ends))


def _plan_own(plan: ImportPlan, vhost: str, entry: BindingEntry) -> None:
    """Add a node's own exchange: a file may be loaded before a node has declared it."""
    first = plan.seen.setdefault(("own exchange", vhost, entry.source), entry)
    if first is entry and plan.state.exchange(vhost, entry.source) is None:
        name = errors.named("exchange", entry.source, vhost)
        plan.add("exchanges", name, own_exchange(vhost, entry.source))


def _is_implicit(entry: BindingEntry) -> bool:
    return (
        entry.source == ""
        and entry.destination_type == "queue"
        and entry.destination == entry.routing_key
        and not entry.arguments
    )
