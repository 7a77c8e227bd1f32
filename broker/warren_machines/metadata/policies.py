"""Policies and operator policies: set, clear."""

from __future__ import annotations

from typing import Final

from warren_machines.metadata.changes import PoliciesChanged
from warren_machines.metadata.commands import AnyReply, ClearPolicy, MetadataDone, SetPolicy
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.state import Scope
from warren_wire import errors

POLICIES_MAX: Final = 1_000
"""Policies of a vhost, and as many operator policies."""


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
    context.topology_changed(vhost)
