"""The headers of events about definitions, named as by RabbitMQ."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

from warren_machines.metadata.changes import DefinitionEvent
from warren_machines.metadata.records import (
    Binding,
    Exchange,
    Grant,
    Parameter,
    Policy,
    QueueRecord,
    User,
    Vhost,
)
from warren_wire.amqp091.fields import SHORT_STRING_BYTES_MAX

Facts = Mapping[str, Any]
INT_BITS = 63


def facts_of(event: DefinitionEvent) -> Facts:
    """Return the headers of an event about a definition."""
    return _facts(event.definition, event.key)


@singledispatch
def _facts(definition: object, key: str) -> Facts:
    raise AssertionError(f"no facts of {type(definition).__name__}")


@_facts.register
def _of_queue(queue: QueueRecord, key: str) -> Facts:
    kind = queue.arguments.get("x-queue-type", "classic")
    facts = {"name": queue.name, "vhost": queue.vhost, "type": kind}
    if key == "queue.created":
        facts |= _fields(queue.config, "durable", "auto_delete", "exclusive")
        facts["arguments"] = queue.arguments
    return facts


@_facts.register
def _of_exchange(exchange: Exchange, key: str) -> Facts:
    facts: dict[str, Any] = {"name": exchange.name, "vhost": exchange.vhost}
    if key == "exchange.created":
        facts["type"] = exchange.kind
        facts |= _fields(exchange, "durable", "auto_delete", "internal", "arguments")
    return facts


@_facts.register
def _of_binding(binding: Binding, key: str) -> Facts:
    return {
        "vhost": binding.vhost,
        "source_name": binding.source,
        "source_kind": "exchange",
        "destination_name": binding.destination,
        "destination_kind": "queue" if binding.to_queue else "exchange",
        "routing_key": binding.routing_key,
        "arguments": binding.arguments,
    }


@_facts.register
def _of_vhost(vhost: Vhost, key: str) -> Facts:
    if key.startswith("vhost.limits."):
        return {"name": "limits", "vhost": vhost.name, **vhost.limits}
    return {"name": vhost.name, "description": vhost.description, "tags": vhost.tags}


@_facts.register
def _of_user(user: User, key: str) -> Facts:
    if key == "user.tags.set":
        return {"name": user.name, "tags": user.tags}
    return {"name": user.name, **(user.limits if key.startswith("user.limits.") else {})}


@_facts.register
def _of_grant(grant: Grant, key: str) -> Facts:
    facts = {"user": grant.user, "vhost": grant.vhost}
    if grant.exchange is not None:
        facts["exchange"] = grant.exchange
    elif key == "permission.created":
        facts["configure"] = grant.configure
    if key.endswith(".created"):
        facts["write"], facts["read"] = grant.write, grant.read
    return facts


@_facts.register
def _of_policy(policy: Policy, key: str) -> Facts:
    facts: dict[str, Any] = {"name": policy.name, "vhost": policy.vhost}
    if key == "policy.set":
        facts |= _fields(policy, "pattern", "definition", "priority")
        facts["apply-to"] = policy.apply_to
    return facts


@_facts.register
def _of_parameter(parameter: Parameter, key: str) -> Facts:
    # The value is left out: it may hold the password of another broker.
    if not parameter.vhost:
        return {"name": parameter.name}
    return {"vhost": parameter.vhost, "component": parameter.component, "name": parameter.name}


def _fields(definition: object, *names: str) -> dict[str, Any]:
    return {name: getattr(definition, name) for name in names}


def fitting(value: Any) -> Any:
    """Return a value as it fits into a header: long names are cut, large numbers become text."""
    if isinstance(value, dict):
        return {_cut(str(name)): fitting(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [fitting(one) for one in value]
    if isinstance(value, int) and not -(1 << INT_BITS) <= value < 1 << INT_BITS:
        return str(value)
    return value


def _cut(name: str) -> str:
    raw = name.encode("utf-8", "surrogateescape")[:SHORT_STRING_BYTES_MAX]
    return raw.decode("utf-8", "surrogateescape")
