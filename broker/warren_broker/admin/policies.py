"""Handlers of the requests for policies; every change is logged with its user."""

from __future__ import annotations

from typing import Final

import msgspec

from warren_broker.admin.caller import Answer, Asker
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.records import Policy
from warren_machines.metadata.state import Scope
from warren_wire import errors
from warren_wire.admin import policies as m
from warren_wire.admin.policies import PolicyInfo
from warren_wire.admin.requests import Put
from warren_wire.arguments import plain
from warren_wire.policy_keys import check_policy, erlang, validation_failed
from warren_wire.quoting import quoted

POLICIES_LISTED_MAX: Final = 1_000
"""Policies in one answer: Proton's values hold 65,535 parts, a policy has 15 to 45."""


def _kind(operator: bool) -> str:
    return "operator policy" if operator else "policy"


def _scope(asker: Asker, vhost: str) -> Scope:
    """Return the vhost of a policy, where the user may see it; raises Refusal."""
    asker.check_vhost(vhost)
    return asker.scope(vhost)


def _shown(policy: Policy) -> PolicyInfo:
    return msgspec.convert(policy, PolicyInfo, from_attributes=True)


def _policy(scope: Scope, name: str, operator: bool) -> Policy:
    found = scope.policies.of(operator).get(name)
    if found is None:
        raise errors.NotFound(f"no {_kind(operator)} '{name}' in vhost '{scope.vhost.name}'")
    return found


def _list(asker: Asker, request: m.ListPoliciesRequest, answer: Answer) -> None:
    names = sorted(asker.state.scopes) if request.vhost is None else [request.vhost]
    one = request.vhost is not None
    scopes = [_scope(asker, name) for name in names if one or asker.sees_vhost(name)]
    found = [
        _shown(policy)
        for scope in scopes
        for policy in sorted(
            scope.policies.of(request.operator).values(), key=lambda one: (-one.priority, one.name)
        )
    ]
    answer(asker.listed(found, POLICIES_LISTED_MAX, "policies", "one vhost's"))


def _get(asker: Asker, request: m.GetPolicyRequest, answer: Answer) -> None:
    scope = _scope(asker, request.vhost)
    answer(_shown(_policy(scope, request.name, request.operator)))


def _checked(request: m.PutPolicyRequest) -> Policy:
    """Return the policy that is to be; raises InvalidArgument, as RabbitMQ words it."""
    try:
        pattern, definition = plain(request.pattern), plain(request.definition)
    except errors.PreconditionFailed as refusal:
        raise validation_failed(refusal.detail) from None
    priority, apply_to = request.priority, request.apply_to
    if not isinstance(pattern, str):
        raise validation_failed(f"pattern should be a binary but was {erlang(pattern)}")
    if not isinstance(definition, dict):
        raise validation_failed(f"definition must be a dictionary: {erlang(definition)}")
    if isinstance(priority, bool) or not isinstance(priority, int):
        shown = erlang(priority)
        raise validation_failed(f"priority should be a number, actually was {shown}")
    if not isinstance(apply_to, str):
        raise validation_failed(f"apply-to should be a text, actually was {erlang(apply_to)}")
    named = (request.vhost, request.name, pattern, definition, int(priority), apply_to)
    check_policy(*named[1:], request.operator)
    return Policy(*named, operator=request.operator)


def _put(asker: Asker, request: m.PutPolicyRequest, answer: Answer) -> None:
    policy = _checked(request)
    policies = _scope(asker, policy.vhost).policies
    policies.check_patterns(policy.operator, policy)
    known = policy.name in policies.of(policy.operator)
    definition = quoted(msgspec.json.encode(policy.definition).decode())
    what = (
        f"set {_kind(policy.operator)} {quoted(policy.name)} in vhost {quoted(policy.vhost)}: "
        f"pattern {quoted(policy.pattern)}, apply-to {policy.apply_to}, priority "
        f"{policy.priority}, definition {definition}"
    )
    asker.change(what, metadata.SetPolicy(policy), answer, Put(not known))


def _delete(asker: Asker, request: m.DeletePolicyRequest, answer: Answer) -> None:
    _policy(_scope(asker, request.vhost), request.name, request.operator)
    what = (
        f"clear {_kind(request.operator)} {quoted(request.name)} in vhost {quoted(request.vhost)}"
    )
    asker.change(what, metadata.ClearPolicy(request.vhost, request.name, request.operator), answer)
