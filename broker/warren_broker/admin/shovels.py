"""Handlers of the requests for shovels and links; every change is logged with its user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from warren_broker.admin.caller import PERFORMED, Answer, Asker
from warren_broker.settings.static_shovels import STATIC_VHOST
from warren_machines.metadata.commands import DeleteParameter, PutParameter
from warren_wire import errors
from warren_wire.admin import shovels as m
from warren_wire.admin.shovels import ShovelInfo
from warren_wire.links.definition import with_pause
from warren_wire.parameter_values import SHOVEL
from warren_wire.quoting import quoted

SHOVELS_LISTED_MAX: Final = 2_000
"""Shovels in one answer: Proton's values hold 65,535 parts."""


def _vhosts(asker: Asker, vhost: str | None) -> list[str]:
    """Return the vhosts of the shovels that the user asks for and may see."""
    if not asker.access.has_tag("monitoring"):
        asker.access.must_be("policymaker", "see shovels and federation links")
    if vhost is None:
        return [name for name in asker.state.scopes if asker.sees_vhost(name)]
    asker.scope(vhost)
    asker.check_vhost(vhost)
    return [vhost]


def _find(asker: Asker, vhost: str, name: str, answer: Answer, go: Callable[[str], None]) -> None:
    """Call `go` with the shovel's vhost, STATIC_VHOST for a static one; else answer NotFound.

    Where both have the name, the vhost's is meant.
    """
    state = asker.state
    if vhost in state.scopes and (SHOVEL, name) in state.parameters(vhost):
        go(vhost)
        return

    def found(static: bool) -> None:
        if static:
            go(STATIC_VHOST)
        else:
            answer(errors.NotFound(f"no shovel '{name}' in vhost '{vhost}'"))

    asker.broker.shovels.find_static(name, asker.guard(found))


def _static(name: str) -> errors.MethodNotAllowed:
    return errors.MethodNotAllowed(
        f"shovel '{name}' is static: it is changed in the configuration of the nodes that have it "
        f"(shovels.{name}), which are restarted then"
    )


def _listing(asker: Asker, what: str, answer: Answer) -> Callable[[list[ShovelInfo]], None]:
    def listed(found: list[ShovelInfo]) -> None:
        answer(asker.listed(found, SHOVELS_LISTED_MAX, what, "one vhost's"))

    return asker.guard(listed)


def _list(asker: Asker, request: m.ListShovelsRequest, answer: Answer) -> None:
    vhosts = _vhosts(asker, request.vhost)
    if request.vhost is None and asker.access.has_tag("monitoring"):
        vhosts.append(STATIC_VHOST)
    asker.broker.shovels.survey(vhosts, _listing(asker, "shovels", answer))


def _list_links(asker: Asker, request: m.ListLinksRequest, answer: Answer) -> None:
    vhosts = _vhosts(asker, request.vhost)
    asker.broker.shovels.survey_links(vhosts, _listing(asker, "federation links", answer))


def _show(asker: Asker, request: m.ShovelRequest, answer: Answer) -> None:
    _vhosts(asker, request.vhost)

    def show(vhost: str) -> None:
        if vhost == STATIC_VHOST and not asker.access.has_tag("monitoring"):
            answer(errors.NotFound(f"no shovel '{request.name}' in vhost '{request.vhost}'"))
            return

        def listed(found: list[ShovelInfo]) -> None:
            mine = [one for one in found if one.name == request.name]
            missing = errors.NotFound(f"no shovel '{request.name}' in vhost '{request.vhost}'")
            answer(mine[0] if mine else missing)

        asker.broker.shovels.survey([vhost], asker.guard(listed))

    _find(asker, request.vhost, request.name, answer, show)


def _restart(asker: Asker, request: m.RestartShovelRequest, answer: Answer) -> None:
    asker.check_vhost(request.vhost)

    def restart(vhost: str) -> None:
        try:
            if vhost == STATIC_VHOST:
                asker.access.must_be("administrator", "restart static shovels")
        except errors.AccessRefused as refusal:
            answer(refusal)
            return
        asker.log(f"restart shovel {quoted(request.name)} in vhost {quoted(vhost)}")
        restarted = asker.guard(lambda: answer(PERFORMED))
        asker.broker.shovels.restart(vhost, request.name, restarted)

    _find(asker, request.vhost, request.name, answer, restart)


def _pause(asker: Asker, request: m.PauseShovelRequest, answer: Answer) -> None:
    """Set the shovel's parameter again, with or without its pause: every node reads it there."""
    word = "pause" if request.paused else "resume"
    asker.check_vhost(request.vhost)

    def pause(vhost: str) -> None:
        if vhost == STATIC_VHOST:
            answer(_static(request.name))
            return
        known = asker.state.parameters(vhost)[SHOVEL, request.name]
        value = with_pause(known.value, request.paused)
        what = f"{word} shovel {quoted(request.name)} in vhost {quoted(vhost)}"
        asker.change(what, PutParameter(msgspec.structs.replace(known, value=value)), answer)

    _find(asker, request.vhost, request.name, answer, pause)


def _delete(asker: Asker, request: m.DeleteShovelRequest, answer: Answer) -> None:
    asker.check_vhost(request.vhost)

    def delete(vhost: str) -> None:
        if vhost == STATIC_VHOST:
            answer(_static(request.name))
            return
        what = f"delete shovel {quoted(request.name)} in vhost {quoted(vhost)}"
        asker.change(what, DeleteParameter(vhost, SHOVEL, request.name), answer)

    _find(asker, request.vhost, request.name, answer, delete)
