"""Handlers of the requests for policies; every change is logged with its user."""

from __future__ import annotations

from typing import Final

import msgspec

from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.handlers import handles
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.records import Policy
from warren_machines.metadata.state import Scope
from warren_wire import errors
from warren_wire.admin import policies as m
from warren_wire.admin.policies import PolicyInfo
from warren_wire.admin.requests import Listed, Put, Shown
from warren_wire.arguments import plain
from warren_wire.policy_keys import check_policy, erlang, validation_failed
from warren_wire.quoting import quoted

POLICIES_LISTED_MAX: Final = 1_000
"""Policies in one answer: Proton's values hold 65,535 parts, a policy has 15 to 45."""


def _check_tag(asker: Asker, operator: bool, vhost: str | None, what: str) -> None:
    """Raise AccessRefused unless the user may see and change policies, as in RabbitMQ.

    A policymaker needs any permission in the vhost; operator policies are for administrators.
    """
    kind = "operator policies" if operator else "policies"
    asker.access.must_be("administrator" if operator else "policymaker", f"{what} {kind}")
    if vhost is None or asker.access.has_tag("administrator"):
        return
    if asker.access.held_in(vhost) is None:
        raise errors.AccessRefused(f"access to vhost '{vhost}' refused for user '{asker.user}'")


def _kind(operator: bool) -> str:
    return "operator policy" if operator else "policy"


def _scope(asker: Asker, vhost: str) -> Scope:
    scope = asker.broker.definitions.state.scopes.get(vhost)
    if scope is None:
        raise errors.NotFound(f"no vhost '{vhost}'")
    return scope


def _shown(policy: Policy) -> PolicyInfo:
    return msgspec.convert(policy, PolicyInfo, from_attributes=True)


def _policy(scope: Scope, name: str, operator: bool) -> Policy:
    found = scope.policies.of(operator).get(name)
    if found is None:
        raise errors.NotFound(f"no {_kind(operator)} '{name}' in vhost '{scope.vhost.name}'")
    return found


@handles(m.ListPoliciesRequest)
def _list(asker: Asker, request: m.ListPoliciesRequest, answer: Answer) -> None:
    _check_tag(asker, request.operator, request.vhost, "see")
    if request.vhost is not None:
        scopes = [_scope(asker, request.vhost)]
    else:
        state = asker.broker.definitions.state
        every = asker.access.has_tag("administrator")
        scopes = [
            state.scopes[name]
            for name in sorted(state.scopes)
            if every or asker.access.held_in(name) is not None
        ]
    found = [
        _shown(policy)
        for scope in scopes
        for policy in sorted(
            scope.policies.of(request.operator).values(), key=lambda one: (-one.priority, one.name)
        )
    ]
    if len(found) > POLICIES_LISTED_MAX:
        raise errors.InvalidArgument(
            f"{len(found)} policies in one answer, {POLICIES_LISTED_MAX} fit; ask for one vhost's"
        )
    answer(Listed(tuple(found)))


@handles(m.GetPolicyRequest)
def _get(asker: Asker, request: m.GetPolicyRequest, answer: Answer) -> None:
    _check_tag(asker, request.operator, request.vhost, "see")
    scope = _scope(asker, request.vhost)
    answer(Shown(_shown(_policy(scope, request.name, request.operator))))


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


@handles(m.PutPolicyRequest)
def _put(asker: Asker, request: m.PutPolicyRequest, answer: Answer) -> None:
    policy = _checked(request)
    _check_tag(asker, policy.operator, policy.vhost, "set")
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


@handles(m.DeletePolicyRequest)
def _delete(asker: Asker, request: m.DeletePolicyRequest, answer: Answer) -> None:
    _check_tag(asker, request.operator, request.vhost, "clear")
    _policy(_scope(asker, request.vhost), request.name, request.operator)
    what = (
        f"clear {_kind(request.operator)} {quoted(request.name)} in vhost {quoted(request.vhost)}"
    )
    asker.change(what, metadata.ClearPolicy(request.vhost, request.name, request.operator), answer)
