"""Handlers of the requests for parameters; every change is logged with its user."""

from __future__ import annotations

import msgspec

from warren_broker.admin.caller import Answer, Asker
from warren_machines.definition_files.check import NAMES_SHOWN_MAX
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.records import Parameter
from warren_machines.metadata.state import MetadataState
from warren_machines.metadata.upstreams import check_upstream, link_ends
from warren_machines.metadata.vhosts_and_users import VHOST_COMPONENT
from warren_wire import errors
from warren_wire.admin import parameters as m
from warren_wire.admin.parameters import GlobalParameterInfo, ParameterInfo
from warren_wire.admin.requests import Listed, Put
from warren_wire.arguments import plain
from warren_wire.links.definition import ShovelEnd, parse_shovel
from warren_wire.links.uris import without_passwords
from warren_wire.parameter_values import FEDERATION_UPSTREAM, SHOVEL, check_json, check_parameter
from warren_wire.policy_keys import validation_failed
from warren_wire.quoting import quoted


def _check(asker: Asker, vhost: str) -> MetadataState:
    """Return the definitions, where the user may see those of the vhost; raises Refusal.

    vhost  "": of global parameters
    """
    if vhost:
        asker.check_vhost(vhost)
        asker.scope(vhost)
    return asker.state


def _list_parameters(asker: Asker, request: m.ListParametersRequest, answer: Answer) -> None:
    state = asker.state
    if request.vhost is not None:
        asker.check_vhost(request.vhost)
        asker.scope(request.vhost)
    names = sorted(state.scopes) if request.vhost is None else [request.vhost]
    opened = asker.broker.seal.opened
    found = [
        ParameterInfo(one.vhost, one.component, one.name, without_passwords(opened(one).value))
        for name in names
        if asker.sees_vhost(name)
        for _, one in sorted(state.scopes[name].parameters.items())
        if request.component in (None, one.component) and one.component != VHOST_COMPONENT
    ]
    answer(asker.listed(found, NAMES_SHOWN_MAX, "parameters", "one vhost's"))


def _list_global(asker: Asker, request: m.ListGlobalParametersRequest, answer: Answer) -> None:
    found = asker.state.global_parameters
    answer(Listed(tuple(GlobalParameterInfo(name, found[name].value) for name in sorted(found))))


def _put_parameter(asker: Asker, request: m.PutParameterRequest, answer: Answer) -> None:
    value = plain(request.value)
    check_parameter(request.component, request.name, value)
    if request.component == SHOVEL:
        parse_shovel(request.vhost, request.name, value)
    elif request.component == FEDERATION_UPSTREAM:
        check_upstream(request.name, value)
    _put(asker, Parameter(request.vhost, request.component, request.name, value), answer)


def _put_global(asker: Asker, request: m.PutGlobalParameterRequest, answer: Answer) -> None:
    value = plain(request.value)
    check_json(value)
    _put(asker, Parameter("", "", request.name, value), answer)


def _put(asker: Asker, given: Parameter, answer: Answer) -> None:
    given = msgspec.structs.replace(given, user=setter(asker))
    state = _check(asker, given.vhost)
    for end in link_ends(given):
        _check_end(asker, end)
    if given.vhost:
        known = (given.component, given.name) in state.parameters(given.vhost)
    else:
        known = given.name in state.global_parameters
    what = f"set {_named(given.component, given.vhost, given.name)}"
    command = metadata.PutParameter(asker.broker.seal.sealed(given))
    asker.change(what, command, answer, Put(not known))


def setter(asker: Asker) -> str | None:
    """Return the user that has set a link, which runs as it; None: of a token, which ends."""
    return asker.user if asker.rights is None else None


def _check_end(asker: Asker, end: ShovelEnd) -> None:
    """Raise InvalidArgument where a URI leads to this cluster, to what the user may not enter."""
    links = asker.broker.links
    for uri, login in zip(end.uris, links.of(end, setter(asker)), strict=True):
        if not links.places.has(uri):
            continue  # where a name leads to is found out when the link runs
        why = links.refusal(login)
        if not why and asker.access.held_in(login.vhost) is None:
            why = f'user "{asker.user}" may not connect to vhost "{login.vhost}"'
        if why:
            raise validation_failed(why)


def _delete_parameter(asker: Asker, request: m.DeleteParameterRequest, answer: Answer) -> None:
    _delete(asker, request.vhost, request.component, request.name, answer)


def _delete_global(asker: Asker, request: m.DeleteGlobalParameterRequest, answer: Answer) -> None:
    _delete(asker, "", "", request.name, answer)


def _delete(asker: Asker, vhost: str, component: str, name: str, answer: Answer) -> None:
    _check(asker, vhost)
    if component == VHOST_COMPONENT:
        raise errors.NotFound(f"no component '{component}'")
    what = f"clear {_named(component, vhost, name)}"
    asker.change(what, metadata.DeleteParameter(vhost, component, name), answer)


def _named(component: str, vhost: str, name: str) -> str:
    """Name a parameter for the log; its value may contain a password."""
    if not vhost:
        return f"global parameter {quoted(name)}"
    return f"parameter {quoted(name)} of component {quoted(component)} in vhost {quoted(vhost)}"
