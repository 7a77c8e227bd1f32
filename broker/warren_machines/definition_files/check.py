"""The whole check of an import: on a copy of the definitions, before anything is submitted.

So many objects take seconds: their steps are counted, and the rest is left to later turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from warren_machines.definition_files import access_objects as access
from warren_machines.definition_files import policy_objects as policies
from warren_machines.definition_files import topology_objects as topology
from warren_machines.definition_files.document import Document
from warren_machines.definition_files.import_plan import ImportPlan, ImportSurroundings, Step
from warren_machines.metadata import commands, limits
from warren_machines.metadata.exchanges import to_binding
from warren_machines.metadata.imports import carry_out, check_administrators, in_effect
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.state import MetadataState
from warren_machines.steps import STEPS_UNBOUNDED, Steps, Work
from warren_raft.machine import Meta
from warren_wire import errors
from warren_wire.admin.definitions import ImportCount, ImportReport

NAMES_SHOWN_MAX: Final = 1_000
"""Objects of a report that are named, per list."""
OBJECT_STEPS: Final = 20
"""Of looking at one object, and again of trying its command."""
RUN_OBJECTS: Final = 32
"""Looked at between two counts of the steps."""
_PHASES: Final[tuple[tuple[str, Callable[[ImportPlan], None]], ...]] = (
    ("vhosts", access.plan_vhosts),
    ("users", access.plan_users),
    ("permissions", access.plan_permissions),
    ("topic_permissions", partial(access.plan_permissions, kind="topic_permissions")),
    ("vhosts", access.plan_importers_permissions),
    ("policies", policies.plan_policies),
    ("parameters", policies.plan_operator_policies),
    ("parameters", policies.plan_parameters),
    ("global_parameters", policies.plan_global_parameters),
    ("exchanges", topology.plan_exchanges),
    ("queues", topology.plan_queues),
    ("bindings", topology.plan_bindings),
    ("vhosts", access.plan_vhosts_limits),
    ("users", access.plan_users_limits),
    ("parameters", access.plan_parameters_limits),
)
"""What looks at the objects of each kind, in order."""


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
    steps: Steps | None = None,
) -> Work[CheckedImport]:
    """Return the commands of an import; raises FileRefused with everything that is wrong.

    state  the definitions as they are when the work begins; not changed
    vhost  to import everything into; None: the vhosts that the objects name
    importer  the user that imports, see `records.Parameter`
    """
    if vhost is not None and vhost not in state.scopes:
        raise errors.NotFound(f"no vhost '{vhost}': create it before the import")
    steps = steps or Steps(STEPS_UNBOUNDED)
    plan = ImportPlan(document, state.copied(), around, vhost, importer)
    for place, key in document.unknown:
        plan.note(place, key, "left out: unknown key")
        if steps.take():
            yield
    for kind, look in _PHASES:
        for first in range(0, len(getattr(document, kind)), RUN_OBJECTS):
            plan.window = slice(first, first + RUN_OBJECTS)
            look(plan)
            if steps.take(OBJECT_STEPS * RUN_OBJECTS):
                yield
    return (yield from _tried(plan, steps))


def _tried(plan: ImportPlan, steps: Steps) -> Work[CheckedImport]:
    """Carry the commands out on the copy; find those refused, and what each one changes."""
    copy = plan.state
    context = MetadataContext(Meta(0, 0, 0), copy, 0, "")
    kept: list[commands.AnyImported] = []
    named: dict[str, list[str]] = {"created": [], "changed": [], "unchanged": []}
    counts: dict[str, dict[str, int]] = {}
    for step in plan.steps:
        if steps.take(OBJECT_STEPS):
            yield
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
        if steps.take(OBJECT_STEPS):
            yield
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
