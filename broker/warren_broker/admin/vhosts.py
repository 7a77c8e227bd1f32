"""Handlers of the requests for vhosts. Every change is logged with the requesting user.

`listeners.eviction` disconnects the clients concerned.
"""

from __future__ import annotations

from typing import Any

from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.users import LISTED_MAX
from warren_machines.definition_files.access_objects import ALL
from warren_machines.metadata import commands as metadata
from warren_machines.metadata import vhosts_and_users
from warren_machines.metadata.records import Grant, Vhost
from warren_wire import errors
from warren_wire.admin import vhosts as m
from warren_wire.admin.requests import Performed, Put
from warren_wire.quoting import quoted


def _shown_vhost(asker: Asker, vhost: Vhost) -> m.VhostInfo:
    kind: str = asker.broker.default_queue_type(vhost.name)
    if kind == "replicated":
        kind = "undefined"
    traced = vhost.name in asker.broker.traced_vhosts
    kept = vhosts_and_users.protected(asker.state, vhost.name)
    return m.VhostInfo(vhost.name, vhost.description, vhost.tags, kind, traced, kept)


def _list_vhosts(asker: Asker, request: m.ListVhostsRequest, answer: Answer) -> None:
    scopes = asker.state.scopes
    shown = [
        _shown_vhost(asker, scopes[name].vhost) for name in sorted(scopes) if asker.looks_into(name)
    ]
    answer(asker.listed(shown, LISTED_MAX, "vhosts", "one"))


def _get_vhost(asker: Asker, request: m.GetVhostRequest, answer: Answer) -> None:
    if not asker.looks_into(request.vhost):
        asker.access.must_be("monitoring", "see vhosts of others")
    answer(_shown_vhost(asker, asker.scope(request.vhost).vhost))


def _put_vhost(asker: Asker, request: m.PutVhostRequest, answer: Answer) -> None:
    scope = asker.state.scopes.get(request.vhost)
    known = scope.vhost if scope is not None else Vhost(request.vhost)
    wanted = Vhost(
        request.vhost,
        known.description if request.description is None else request.description,
        known.tags if request.tags is None else request.tags,
        known.default_queue_type
        if request.default_queue_type is None
        else request.default_queue_type,
    )
    what = f"{'change' if scope else 'add'} vhost {quoted(request.vhost)}"
    grant = Grant(request.vhost, asker.user, ALL, ALL, ALL)

    def there(result: Any) -> None:
        if request.tracing is not None and not isinstance(result, errors.Refusal):
            _set_tracing(asker, request.vhost, request.tracing)
        answer(result)

    def done(result: Any) -> None:
        if isinstance(result, errors.Refusal) or scope is not None or asker.rights is not None:
            there(result)  # a token's rights are those that it says
        else:  # as in RabbitMQ: otherwise no user could use it
            asker.change(f"{what}: all permissions in it", metadata.PutGrant(grant), there, result)

    asker.change(what, metadata.PutVhost(wanted), done, Put(scope is None))


def _trace_vhost(asker: Asker, request: m.TraceVhostRequest, answer: Answer) -> None:
    asker.scope(request.vhost)
    _set_tracing(asker, request.vhost, request.on)
    answer(Performed())


def _set_tracing(asker: Asker, vhost: str, on: bool) -> None:
    firehose = asker.broker.firehose
    (firehose.start if on else firehose.stop)(vhost)
    asker.log(f"tracing of vhost {quoted(vhost)} is {'on' if on else 'off'} on this node")


def _protect_vhost(asker: Asker, request: m.ProtectVhostRequest, answer: Answer) -> None:
    asker.scope(request.vhost)
    what = (
        f"{'protect' if request.on else 'no longer protect'} vhost {quoted(request.vhost)} from "
        "deletion"
    )
    flag = vhosts_and_users.protection(request.vhost, request.on)
    asker.change(what, metadata.PutParameter(flag), answer)


def _delete_vhost(asker: Asker, request: m.DeleteVhostRequest, answer: Answer) -> None:
    asker.scope(request.vhost)
    what = f"delete vhost {quoted(request.vhost)} with everything in it"
    asker.change(what, metadata.DeleteVhost(request.vhost), answer)
