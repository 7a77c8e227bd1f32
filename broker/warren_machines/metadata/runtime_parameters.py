"""Runtime parameters, of vhosts and global ones, and policies: set, remove."""

from __future__ import annotations

from typing import Final, TypeGuard

from warren_machines.metadata.changes import PoliciesChanged
from warren_machines.metadata.commands import (
    AnyReply,
    ClearPolicy,
    DeleteParameter,
    MetadataDone,
    PutParameter,
    SetPolicy,
)
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.state import MetadataState, Scope
from warren_wire import errors

PARAMETERS_MAX: Final = 1_000
"""Parameters of a vhost, and as many global ones."""
CLUSTER_NAME: Final = "cluster_name"
"""Global parameter with the name under which the cluster is shown, as RabbitMQ's."""
POLICIES_MAX: Final = 1_000
"""Policies of a vhost, and as many operator policies."""


def cluster_name(state: MetadataState, configured: str) -> str:
    """Return the name under which the cluster is shown: the one that was set, or its own.

    configured  the name by which its nodes, shovels and federation links know it
    """
    found = state.global_parameters.get(CLUSTER_NAME)
    return found.value if found is not None and _is_name(found.value) else configured


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value != ""


def put_parameter(context: MetadataContext, command: PutParameter) -> AnyReply:
    """Add or replace a parameter."""
    given = command.parameter
    if not given.vhost:
        kept = context.state.global_parameters
        _check_room(len(kept), given.name in kept, "the cluster")
        kept[given.name] = given
        context.tell("parameter.set", given)
        return MetadataDone()
    found = context.scope(given.vhost).parameters
    key = (given.component, given.name)
    _check_room(len(found), key in found, f"vhost '{given.vhost}'")
    found[key] = given
    context.tell("parameter.set", given)
    return MetadataDone()


def _check_room(count: int, known: bool, where: str) -> None:
    if count >= PARAMETERS_MAX and not known:
        raise errors.PreconditionFailed(
            f"{where} has {count} parameters, and {PARAMETERS_MAX} is the most; clear one first"
        )


def delete_parameter(context: MetadataContext, command: DeleteParameter) -> AnyReply:
    """Remove a parameter."""
    if not command.vhost:
        gone = context.state.global_parameters.pop(command.name, None)
        if gone is None:
            raise errors.NotFound(f"no global parameter '{command.name}'")
        context.tell("parameter.cleared", gone)
        return MetadataDone()
    found = context.scope(command.vhost).parameters
    gone = found.pop((command.component, command.name), None)
    if gone is None:
        raise errors.NotFound(
            f"no parameter '{command.name}' of component '{command.component}' in vhost "
            f"'{command.vhost}'"
        )
    context.tell("parameter.cleared", gone)
    return MetadataDone()


def set_policy(context: MetadataContext, command: SetPolicy) -> AnyReply:
    """Add or replace a policy; a repeat changes nothing."""
    policy = command.policy
    scope = context.scope(policy.vhost)
    kept = scope.policies.of(policy.operator)
    if kept.get(policy.name) == policy:
        return MetadataDone()
    if policy.name not in kept and len(kept) >= POLICIES_MAX:
        raise errors.PreconditionFailed(
            f"vhost '{policy.vhost}' has {len(kept)} policies, and {POLICIES_MAX} is the most; "
            "clear one first"
        )
    kept[policy.name] = policy
    context.tell("policy.set", policy)
    _changed(context, scope)
    return MetadataDone()


def clear_policy(context: MetadataContext, command: ClearPolicy) -> AnyReply:
    """Remove a policy."""
    scope = context.scope(command.vhost)
    policy = scope.policies.of(command.operator).pop(command.name, None)
    if policy is None:
        kind = "operator policy" if command.operator else "policy"
        raise errors.NotFound(f"no {kind} '{command.name}' in vhost '{command.vhost}'")
    context.tell("policy.cleared", policy)
    _changed(context, scope)
    return MetadataDone()


def _changed(context: MetadataContext, scope: Scope) -> None:
    scope.policies.changed()
    scope.touch()  # alternate exchanges
    vhost = scope.vhost.name
    change = PoliciesChanged(vhost)
    if change not in context.changes:
        context.changes.append(change)
