"""The whole check of an import: on a copy of the definitions, before anything is submitted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from warren_broker import errors
from warren_broker.definition_files import topology_objects
from warren_broker.definition_files.access_objects import (
    plan_limits,
    plan_permissions,
    plan_users,
    plan_vhosts,
)
from warren_broker.definition_files.document import Document
from warren_broker.definition_files.import_plan import ImportPlan, ImportSurroundings, Step
from warren_broker.definition_files.policy_objects import plan_parameters, plan_policies
from warren_broker.management.definition_values import ImportCount, ImportReport
from warren_broker.metadata import commands, image, limits
from warren_broker.metadata.exchanges import to_binding
from warren_broker.metadata.imports import carry_out, check_administrators, in_effect
from warren_broker.metadata.metadata_context import MetadataContext
from warren_broker.metadata.state import MetadataState
from warren_raft.machine import Meta

NAMES_SHOWN_MAX: Final = 1_000
"""Objects of a report that are named, per list."""


@dataclass(frozen=True, slots=True)
class CheckedImport:
    """An import that the definitions allow.

    report  what it will change
    """

    commands: tuple[commands.AnyImported, ...]
    report: ImportReport


def check_import(
    document: Document,
    state: MetadataState,
    around: ImportSurroundings,
    vhost: str | None = None,
    importer: str | None = None,
) -> CheckedImport:
    """Return the commands of an import; raises FileRefused with everything that is wrong.

    state  the definitions as they are; not changed
    vhost  to import everything into; None: the vhosts that the objects name
    importer  the user that imports, see `records.Parameter`
    """
    if vhost is not None and vhost not in state.scopes:
        raise errors.NotFound(f"no vhost '{vhost}': create it before the import")
    plan = ImportPlan(document, state, around, vhost, importer)
    for place, key in document.unknown:
        plan.note(place, key, "left out: unknown key")
    plan_vhosts(plan)
    plan_users(plan)
    plan_permissions(plan)
    plan_policies(plan)
    plan_parameters(plan)
    topology_objects.plan_exchanges(plan)
    topology_objects.plan_queues(plan)
    topology_objects.plan_bindings(plan)
    plan_limits(plan)
    return _tried(plan)


def _tried(plan: ImportPlan) -> CheckedImport:
    """Carry the commands out on a copy; find those that are refused, and what each one changes."""
    copy = image.from_bytes(image.to_bytes(plan.state))
    context = MetadataContext(Meta(0, 0, 0), copy, 0, "")
    kept: list[commands.AnyImported] = []
    named: dict[str, list[str]] = {"created": [], "changed": [], "unchanged": []}
    counts: dict[str, dict[str, int]] = {}
    for step in plan.steps:
        outcome = _outcome(copy, step.command)
        try:
            carry_out(context, step.command)
        except errors.Refusal as refusal:
            _refused(plan, step, refusal)
            continue
        kept.append(step.command)
        count = counts.setdefault(step.kind, {})
        count[outcome] = count.get(outcome, 0) + 1
        if len(named[outcome]) < NAMES_SHOWN_MAX:
            named[outcome].append(step.name)
    checks = [partial(check_administrators, copy)]
    for scope in copy.scopes.values():
        checks += [partial(scope.policies.check_patterns, operator) for operator in (False, True)]
    for check in checks:
        try:
            check()
        except errors.Refusal as refusal:
            plan.problems.append(refusal.detail)
    plan.finish()
    report = ImportReport(
        False,
        {kind: ImportCount(**count) for kind, count in counts.items()},
        tuple(named["created"]),
        tuple(named["changed"]),
        tuple(named["unchanged"]),
        tuple(plan.not_honoured[:NAMES_SHOWN_MAX]),
        len(plan.not_honoured),
    )
    return CheckedImport(tuple(kept), report)


def _refused(plan: ImportPlan, step: Step, refusal: errors.Refusal) -> None:
    # As in RabbitMQ, which exports bindings of exclusive queues but not the queues. Others are of
    # objects that were left out themselves.
    if isinstance(step.command, commands.Bind) and isinstance(refusal, errors.NotFound):
        plan.note(step.name, "", f"left out: {refusal.detail}")
    else:
        plan.refuse(step.name, refusal)


def _outcome(state: MetadataState, command: commands.AnyImported) -> str:
    if in_effect(state, command):
        return "unchanged"
    match command:
        case commands.PutVhost(vhost):
            known = vhost.name in state.scopes
        case commands.PutUser(user):
            known = user.name in state.users
        case commands.PutGrant(grant):
            known = (grant.vhost, grant.user, grant.exchange) in state.grants
        case commands.PutParameter(one):
            known = (
                (one.component, one.name) in state.parameters(one.vhost)
                if one.vhost
                else one.name in state.global_parameters
            )
        case commands.SetPolicy(policy):
            scope = state.scopes.get(policy.vhost)
            there = scope.policies.of(policy.operator).get(policy.name) if scope else None
            if there == policy:
                return "unchanged"
            known = there is not None
        case commands.ChangeLimits():
            known = bool(limits.of(state, command))
        case commands.DeclareExchange():
            return "unchanged" if state.exchange(command.vhost, command.name) else "created"
        case commands.DeclareQueue(config):
            return "unchanged" if state.queue(config.vhost, config.name) else "created"
        case commands.Bind():
            scope = state.scopes.get(command.vhost)
            leaving = scope.bindings.get(command.source, {}) if scope else {}
            return "unchanged" if to_binding(command).key in leaving else "created"
    return "changed" if known else "created"
