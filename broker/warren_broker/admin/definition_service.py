"""Handlers of the requests in `management.definitions`; every change is logged with its user."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from warren_broker.admin import definitions as m
from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.resource import Listed, Put
from warren_machines.definition_files.check import NAMES_SHOWN_MAX, CheckedImport
from warren_machines.definition_files.document import parse
from warren_machines.definition_files.export import export
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.runtime_parameters import cluster_name
from warren_machines.metadata.state import MetadataState
from warren_machines.metadata.upstreams import link_ends
from warren_machines.metadata.vhost_protection import VHOST_COMPONENT
from warren_wire import VERSION, errors
from warren_wire.admin.definition_values import GlobalParameterInfo, ParameterInfo
from warren_wire.links.definition import ShovelEnd
from warren_wire.links.uris import without_passwords
from warren_wire.policy_keys import validation_failed
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)


def _export(asker: Asker, request: m.ExportRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "export definitions")
    state = asker.broker.definitions.state
    cluster = cluster_name(state, asker.broker.settings.cluster)
    found = export(state, cluster, VERSION, request.vhost, asker.broker.seal.opened)
    notes = found.notes[:NAMES_SHOWN_MAX]
    if len(found.notes) > len(notes):
        notes = (*notes, f"… and {len(found.notes) - len(notes):,} more")
    answer(m.ExportedFile(m.to_file(found.document), notes))


def _import(asker: Asker, request: m.ImportRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "import definitions")
    document = parse(m.unpack(request.packed))
    imports, share = asker.broker.imports, asker.broker.publishing.shares.of(asker.connection)

    def checked(found: CheckedImport) -> None:
        report = msgspec.structs.replace(found.report, dry_run=request.dry_run)
        if request.dry_run:
            answer(m.Imported(report))
            return
        log.info("user %s: import %s", quoted(asker.user), report.summary())

        def done(reply: Any) -> None:
            answer(reply if isinstance(reply, errors.Refusal) else m.Imported(report))

        imports.submit(found, asker.guard(done))

    check = imports.check(document, request.vhost, _setter(asker), share.steps)
    share.run(check, asker.guard(checked), answer)


# ------------------------------------------------------------------ parameters


def check_tag(asker: Asker, vhost: str | None, what: str) -> None:
    """Raise AccessRefused unless the user may see and change parameters, as in RabbitMQ.

    vhost  a policymaker needs any permission in it; None: of all vhosts; "": a global parameter
    """
    if vhost == "":
        asker.access.must_be("administrator", f"{what} global parameters")
        return
    asker.access.must_be("policymaker", f"{what} parameters")
    if vhost is not None and not sees_vhost(asker, vhost):
        raise errors.AccessRefused(f"access to vhost '{vhost}' refused for user '{asker.user}'")


def sees_vhost(asker: Asker, vhost: str) -> bool:
    """Return whether the user may see what a vhost has."""
    if asker.access.has_tag("administrator"):
        return True
    return asker.access.held_in(vhost) is not None


def _state(asker: Asker, vhost: str | None) -> MetadataState:
    """Return the definitions; raises NotFound for an unknown vhost."""
    state = asker.broker.definitions.state
    if vhost and vhost not in state.scopes:
        raise errors.NotFound(f"no vhost '{vhost}'")
    return state


def _list_parameters(asker: Asker, request: m.ListParametersRequest, answer: Answer) -> None:
    check_tag(asker, request.vhost, "see")
    state = _state(asker, request.vhost)
    names = sorted(state.scopes) if request.vhost is None else [request.vhost]
    opened = asker.broker.seal.opened
    found = [
        ParameterInfo(one.vhost, one.component, one.name, without_passwords(opened(one).value))
        for name in names
        if sees_vhost(asker, name)
        for _, one in sorted(state.scopes[name].parameters.items())
        if request.component in (None, one.component) and one.component != VHOST_COMPONENT
    ]
    if len(found) > NAMES_SHOWN_MAX:
        raise errors.InvalidArgument(
            f"{len(found)} parameters in one answer, {NAMES_SHOWN_MAX} fit; ask for one vhost's"
        )
    answer(Listed(tuple(found)))


def _list_global(asker: Asker, request: m.ListGlobalParametersRequest, answer: Answer) -> None:
    check_tag(asker, "", "see")
    found = asker.broker.definitions.state.global_parameters
    answer(Listed(tuple(GlobalParameterInfo(name, found[name].value) for name in sorted(found))))


def _put_parameter(asker: Asker, request: m.PutParameterRequest, answer: Answer) -> None:
    given = msgspec.structs.replace(request.parameter, user=_setter(asker))
    check_tag(asker, given.vhost, "set")
    state = _state(asker, given.vhost)
    for end in link_ends(given):
        _check_end(asker, end)
    if given.vhost:
        known = (given.component, given.name) in state.parameters(given.vhost)
    else:
        known = given.name in state.global_parameters
    what = f"set {_named(given.component, given.vhost, given.name)}"
    command = metadata.PutParameter(asker.broker.seal.sealed(given))
    asker.change(what, command, answer, Put(not known))


def _setter(asker: Asker) -> str | None:
    """Return the user that has set a link, which runs as it; None: of a token, which ends."""
    return asker.user if asker.rights is None else None


def _check_end(asker: Asker, end: ShovelEnd) -> None:
    """Raise InvalidArgument where a URI leads to this cluster, to what the user may not enter."""
    links = asker.broker.links
    for uri, login in zip(end.uris, links.of(end, _setter(asker)), strict=True):
        if not links.places.has(uri):
            continue  # where a name leads to is found out when the link runs
        why = links.refusal(login)
        if not why and asker.access.held_in(login.vhost) is None:
            why = f'user "{asker.user}" may not connect to vhost "{login.vhost}"'
        if why:
            raise validation_failed(why)


def _delete_parameter(asker: Asker, request: m.DeleteParameterRequest, answer: Answer) -> None:
    check_tag(asker, request.vhost, "clear")
    _state(asker, request.vhost)
    if request.component == VHOST_COMPONENT:
        raise errors.NotFound(f"no component '{request.component}'")
    what = f"clear {_named(request.component, request.vhost, request.name)}"
    command = metadata.DeleteParameter(request.vhost, request.component, request.name)
    asker.change(what, command, answer)


def _named(component: str, vhost: str, name: str) -> str:
    """Name a parameter for the log; its value may contain a password."""
    if not vhost:
        return f"global parameter {quoted(name)}"
    return f"parameter {quoted(name)} of component {quoted(component)} in vhost {quoted(vhost)}"


DEFINITION_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    m.ExportRequest: _export,
    m.ImportRequest: _import,
    m.ListParametersRequest: _list_parameters,
    m.ListGlobalParametersRequest: _list_global,
    m.PutParameterRequest: _put_parameter,
    m.DeleteParameterRequest: _delete_parameter,
}
