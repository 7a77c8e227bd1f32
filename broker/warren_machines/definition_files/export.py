"""The cluster's definitions as a document in RabbitMQ's JSON format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from warren_machines.definition_files.access_objects import VHOST_LIMITS
from warren_machines.definition_files.document import QUEUE_TYPE
from warren_machines.metadata import passwords
from warren_machines.metadata.exchanges import RESERVED
from warren_machines.metadata.records import (
    Binding,
    Exchange,
    Grant,
    Parameter,
    Policy,
    QueueRecord,
    User,
)
from warren_machines.metadata.state import MetadataState, Scope
from warren_machines.metadata.vhosts_and_users import PROTECTED, VHOST_COMPONENT
from warren_wire import errors
from warren_wire.arguments import TABLE
from warren_wire.links.uris import is_sealed

EXPORTED_BY = "Warren"
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exported:
    """A document, and what is not in it or not as it is.

    notes  one line per object
    """

    document: Document
    notes: tuple[str, ...]


def export(
    state: MetadataState,
    cluster: str,
    version: str,
    vhost: str | None,
    opened: Callable[[Parameter], Parameter],
) -> Exported:
    """Return everything, or the objects of one vhost, which then do not name it.

    opened  opens sealed URIs, see `shovel.sealed_uris`
    raises  NotFound for an unknown vhost

    Sorted by name: equal definitions give equal documents. Exclusive queues and those that the
    broker named are left out with their bindings, and so are the exchanges that every vhost has.
    """
    if vhost is not None and vhost not in state.scopes:
        raise errors.NotFound(f"no vhost '{vhost}'")
    scopes = [state.scopes[name] for name in sorted(state.scopes) if vhost in (None, name)]
    notes: list[str] = []
    document: Document = {
        "product_name": EXPORTED_BY,
        "product_version": version,
    }
    if vhost is None:
        document |= {"rabbitmq_definition_format": "cluster", "original_cluster_name": cluster}
        document |= _of_cluster(state, scopes)
    else:
        document |= {"rabbitmq_definition_format": "single_virtual_host"}
        document |= _of_vhost(scopes[0])
    document |= {
        "policies": _all(_policy(one) for scope in scopes for one in _sorted(scope.policies.user)),
        "parameters": _all(one for scope in scopes for one in _parameters(scope, opened, notes)),
        "exchanges": _all(
            _exchange(one, notes)
            for scope in scopes
            for one in _sorted(scope.exchanges)
            if one.name and not one.name.startswith(RESERVED)
        ),
        "queues": _all(
            _queue(one, notes)
            for scope in scopes
            for one in _sorted(scope.queues)
            if _is_exported(one, notes)
        ),
        "bindings": _all(_binding(one, notes) for scope in scopes for one in _bindings(scope)),
    }
    if vhost is not None:
        for kind in ("policies", "parameters", "exchanges", "queues", "bindings"):
            for entry in document[kind]:
                del entry["vhost"]
    return Exported(document, tuple(notes))


def _all(found: Iterable[Document]) -> list[Document]:
    return list(found)


def _sorted(found: dict[str, Any]) -> list[Any]:
    return [found[name] for name in sorted(found)]


def _of_cluster(state: MetadataState, scopes: list[Scope]) -> Document:
    grants = sorted(
        state.grants.values(), key=lambda one: (one.vhost, one.user, one.exchange or "")
    )
    return {
        "users": [_user(user) for user in _sorted(state.users)],
        "vhosts": [_vhost(scope) for scope in scopes],
        "permissions": [_grant(one) for one in grants if one.exchange is None],
        "topic_permissions": [_grant(one) for one in grants if one.exchange is not None],
        "global_parameters": [
            {"name": one.name, "value": one.value} for one in _sorted(state.global_parameters)
        ],
    }


def _user(user: User) -> Document:
    algorithm = passwords.algorithm_of(user.password_hash)
    return {
        "name": user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": algorithm or next(iter(passwords.ALGORITHMS)),
        "tags": list(user.tags),
        "limits": user.limits,
    }


def _of_vhost(scope: Scope) -> Document:
    """Return what tells of the vhost; an import takes none of it, as in RabbitMQ."""
    said = _vhost(scope)
    kept = {key: said[key] for key in ("description", "limits", "metadata")}
    return {"original_vhost_name": said["name"], **kept}


def _vhost(scope: Scope) -> Document:
    vhost = scope.vhost
    metadata: Document = {"description": vhost.description, "tags": list(vhost.tags)}
    if vhost.default_queue_type:
        metadata["default_queue_type"] = vhost.default_queue_type
    flag = scope.parameters.get((VHOST_COMPONENT, PROTECTED))
    if flag is not None:
        metadata[PROTECTED] = flag.value
    return {"name": vhost.name, **metadata, "limits": vhost.limits, "metadata": metadata}


def _grant(grant: Grant) -> Document:
    """Return permissions, or topic permissions, which have an exchange in place of `configure`."""
    whose = {"user": grant.user, "vhost": grant.vhost}
    first = (
        {"configure": grant.configure} if grant.exchange is None else {"exchange": grant.exchange}
    )
    return {**whose, **first, "write": grant.write, "read": grant.read}


def _policy(policy: Policy) -> Document:
    return {"vhost": policy.vhost, "name": policy.name, **_policy_value(policy)}


def _policy_value(policy: Policy) -> Document:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "priority": policy.priority,
        "definition": policy.definition,
    }


def _parameters(
    scope: Scope, opened: Callable[[Parameter], Parameter], notes: list[str]
) -> list[Document]:
    """Return parameters, with what RabbitMQ has among them: operator policies, limits."""
    vhost = scope.vhost.name
    found = [
        {"vhost": vhost, "component": one.component, "name": one.name, "value": one.value}
        for one in map(opened, scope.parameters.values())
        if one.component != VHOST_COMPONENT
    ]
    notes += [
        f"parameter '{one['name']}' of component '{one['component']}' in vhost '{vhost}': a URI "
        "was sealed with another secret of the cluster and cannot be read; written as it is kept"
        for one in found
        if is_sealed(one["value"])
    ]
    found += [
        {
            "vhost": vhost,
            "component": "operator_policy",
            "name": one.name,
            "value": _policy_value(one),
        }
        for one in scope.policies.operator.values()
    ]
    if scope.vhost.limits:
        limits = {"name": "limits", "value": scope.vhost.limits}
        found.append({"vhost": vhost, "component": VHOST_LIMITS, **limits})
    return sorted(found, key=lambda one: (one["component"], one["name"]))


def _exchange(exchange: Exchange, notes: list[str]) -> Document:
    name = errors.named("exchange", exchange.name, exchange.vhost)
    return {
        "vhost": exchange.vhost,
        "name": exchange.name,
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": _json(exchange.arguments, name, notes),
    }


def _is_exported(queue: QueueRecord, notes: list[str]) -> bool:
    if queue.store_of:
        return False  # it comes with its exchange
    if queue.owner_uplink or queue.name.startswith(RESERVED):
        why = "exclusive" if queue.owner_uplink else "named by the broker"
        notes.append(f"{errors.named('queue', queue.name, queue.vhost)}: left out, it is {why}")
        return False
    return True


_OF_QUORUM: Final = {
    "x-delivery-limit",
    "x-consumer-timeout",
    "x-consumer-disconnected-timeout",
}
"""Arguments that RabbitMQ refuses for classic queues, and that all queues have here."""


def _queue(queue: QueueRecord, notes: list[str]) -> Document:
    """Return a queue; as in exports of RabbitMQ 4.3 its arguments always name its type.

    Without that RabbitMQ would take its own default. `implicit_type` says that the declaration has
    not named it, for an import here, which reads `type` then. RabbitMQ reads only the argument: it
    says quorum where RabbitMQ has an argument of the queue for quorum queues only, and not for
    auto-delete ones, which it does not have.
    """
    name = errors.named("queue", queue.name, queue.vhost)
    kind = queue.config.kind
    given = dict(queue.arguments)
    named = "classic" if queue.config.auto_delete else kind
    if queue.config.replicated and not queue.config.auto_delete and _OF_QUORUM & given.keys():
        named = "quorum"
    for row in TABLE:
        if row.name in given and row.only == "classic" and named == "quorum":
            del given[row.name]
            notes.append(f"{name}: written without {row.name}, which has no effect on its type")
    found = {
        "vhost": queue.vhost,
        "name": queue.name,
        "type": kind,
        "durable": queue.config.durable,
        "auto_delete": queue.config.auto_delete,
        "arguments": _json({**given, QUEUE_TYPE: named}, name, notes),
    }
    if given.get(QUEUE_TYPE) != kind:
        found["implicit_type"] = True
    return found


def _bindings(scope: Scope) -> list[Binding]:
    return [
        binding
        for source in sorted(scope.bindings)
        for _, binding in sorted(scope.bindings[source].items())
        if not binding.to_queue or _is_exported(scope.queues[binding.destination], [])
    ]


def _binding(binding: Binding, notes: list[str]) -> Document:
    kind = "queue" if binding.to_queue else "exchange"
    name = f"binding from '{binding.source}' to {kind} '{binding.destination}'"
    return {
        "vhost": binding.vhost,
        "source": binding.source,
        "destination": binding.destination,
        "destination_type": kind,
        "routing_key": binding.routing_key,
        "arguments": _json(binding.arguments, name, notes),
    }


def _json(value: object, name: str, notes: list[str]) -> object:
    """Return a value as JSON has it, with a note where that is another one.

    Bytes become text; an infinite number, and one that is none, are null.
    """
    if isinstance(value, dict):
        return {key: _json(item, name, notes) for key, item in value.items()}
    if isinstance(value, list):
        return [_json(item, name, notes) for item in value]
    if isinstance(value, bytes):
        text = value.decode("utf-8", "replace")
        if text.encode() != value:
            notes.append(f"{name}: {value!r} is not text, JSON cannot hold it; written as '{text}'")
        return text
    if isinstance(value, float) and not math.isfinite(value):
        notes.append(f"{name}: {value} is no number of JSON; written as null")
        return None
    return value
