"""Policies, operator policies and parameters of a file."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from warren_machines.definition_files.access_objects import VHOST_LIMITS
from warren_machines.definition_files.document import PolicyEntry, table
from warren_machines.definition_files.import_plan import ImportPlan, checked_size
from warren_machines.metadata.commands import PutParameter, SetPolicy
from warren_machines.metadata.records import Parameter, Policy
from warren_machines.metadata.upstreams import link_ends
from warren_wire import errors
from warren_wire.parameter_values import COMPONENTS, check_json, check_parameter
from warren_wire.policy_keys import APPLY_TO, KEYS, check_pattern, check_policy

POLICY_COMPONENTS: Final = {"operator_policy": True, "policy": False}
"""Components of the parameters that RabbitMQ keeps policies in; True: operator policies."""
INTERNAL: Final = "internal"
"""How the names of global parameters begin that RabbitMQ keeps for itself, and does not export."""
KEPT: Final = "kept, shown and exported; it has no effect here"


def plan_policies(plan: ImportPlan) -> None:
    """Add the policies."""
    for number, entry in plan.each("policies"):
        vhost = plan.vhost_of("policies", number, entry)
        if vhost is not None:
            _plan_policy(plan, vhost, entry, operator=False)


def plan_operator_policies(plan: ImportPlan) -> None:
    """Add the operator policies, which are among the parameters."""
    for number, given in plan.each("parameters"):
        operator = POLICY_COMPONENTS.get(given.component)
        if operator is None:
            continue
        vhost = plan.vhost_of("parameters", number, given)
        if vhost is None:
            continue
        try:
            value = {"name": given.name, **table(given.value)}
            entry = msgspec.convert(value, PolicyEntry)
        except (msgspec.ValidationError, errors.InvalidArgument) as error:
            plan.problems.append(f"parameters[{number}], of component {given.component}: {error}")
            continue
        _plan_policy(plan, vhost, entry, operator)


def _plan_policy(plan: ImportPlan, vhost: str, entry: PolicyEntry, operator: bool) -> None:
    kind = "operator policy" if operator else "policy"
    name = errors.named(kind, entry.name, vhost)
    if not plan.is_first((kind, vhost, entry.name), name, entry):
        return
    try:
        checked_size(kind, entry.name)
        given = table(entry.definition)
        check_json(given)
        check_pattern(entry.pattern)
    except errors.Refusal as refusal:
        plan.refuse(name, refusal)
        return
    apply_to = entry.apply_to if entry.apply_to in APPLY_TO else "all"
    kept = _kept(plan, name, given, apply_to, operator)
    if given and not kept:
        plan.note(name, "", "left out: none of its keys can be honoured")
        return
    try:
        check_policy(entry.name, entry.pattern, kept, entry.priority, entry.apply_to, operator)
    except errors.InvalidArgument as refusal:
        plan.note(name, "", f"left out: {_one_line(refusal)}")
        return
    policy = Policy(
        vhost, entry.name, entry.pattern, kept, entry.priority, entry.apply_to, operator=operator
    )
    plan.add_policy(policy)
    plan.add("operator_policies" if operator else "policies", name, SetPolicy(policy))


def _kept(
    plan: ImportPlan, name: str, given: dict[str, object], apply_to: str, operator: bool
) -> dict[str, Any]:
    """Return the keys that can be honoured; note the others.

    Keys that depend on each other are checked together, unless one of them is not known.
    """
    kept = dict(given)
    for only_known in (True, False):
        for key in sorted(kept):
            if only_known and key in KEYS:
                continue
            try:
                check_policy(name, "", {key: kept[key]}, 0, apply_to, operator)
            except errors.InvalidArgument as refusal:
                plan.note(name, f"definition.{key}", f"kept without: {_one_line(refusal)}")
                del kept[key]
        try:
            check_policy(name, "", kept, 0, apply_to, operator)
            break
        except errors.InvalidArgument:
            continue
    return kept


def _one_line(refusal: errors.Refusal) -> str:
    return " ".join(refusal.detail.removeprefix("Validation failed").split())


# ------------------------------------------------------------------ parameters


def plan_parameters(plan: ImportPlan) -> None:
    """Add the other parameters."""
    for number, entry in plan.each("parameters"):
        if entry.component in POLICY_COMPONENTS or entry.component == VHOST_LIMITS:
            continue
        vhost = plan.vhost_of("parameters", number, entry)
        if vhost is None:
            continue
        name = f"parameter '{entry.name}' of component '{entry.component}' in vhost '{vhost}'"
        if not plan.is_first(("parameter", vhost, entry.component, entry.name), name, entry):
            continue
        if entry.component not in COMPONENTS:
            plan.note(name, "", f"left out: no component '{entry.component}'")
        else:
            given = (entry.component, entry.name, entry.value)
            _plan_parameter(plan, name, Parameter(vhost, *given, plan.importer))


def plan_global_parameters(plan: ImportPlan) -> None:
    """Add the global parameters."""
    for name, entry in plan.each_once("global_parameters", "global parameter"):
        if entry.name.startswith(INTERNAL):
            plan.note(name, "", "left out: internal to the cluster that exported it")
        else:
            _plan_parameter(plan, name, Parameter("", "", entry.name, entry.value))


def _plan_parameter(plan: ImportPlan, name: str, parameter: Parameter) -> None:
    try:
        checked_size("parameter", parameter.name)
        if parameter.vhost:
            check_parameter(parameter.component, parameter.name, parameter.value)
        else:
            check_json(parameter.value)
    except errors.Refusal as refusal:
        plan.problems.append(f"{name}: {_one_line(refusal)}")
        return
    if parameter.vhost:
        try:
            link_ends(parameter)
        except errors.Refusal as refusal:
            plan.note(name, "", f"kept, and it cannot run: {_one_line(refusal)}")
    else:
        plan.note(name, "", KEPT)
    kind = "parameters" if parameter.vhost else "global_parameters"
    plan.add(kind, name, PutParameter(plan.around.sealed(parameter)))
