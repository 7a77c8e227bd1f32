"""Handlers of the requests for limits; every change is logged with its user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from warren_broker.admin.caller import Answer, Asker
from warren_machines.metadata.commands import ChangeLimits
from warren_machines.metadata.limits import check_limits
from warren_wire import errors
from warren_wire.admin import limits as m
from warren_wire.admin.limits import UserLimits, VhostLimits
from warren_wire.arguments import plain
from warren_wire.quoting import quoted

LIMITS_LISTED_MAX: Final = 5_000
"""Vhosts or users in one answer: Proton's values hold 65,535 parts."""


def _of_vhosts(asker: Asker, name: str | None) -> list[VhostLimits]:
    """Return the limits of the vhosts that the user may see, as RabbitMQ."""
    if name is not None:
        asker.scope(name)
        if not asker.looks_into(name):
            asker.access.must_be("monitoring", "see limits of vhosts of others")
    return [
        VhostLimits(vhost, scope.vhost.limits)
        for vhost, scope in sorted(asker.state.scopes.items())
        if scope.vhost.limits and name in (None, vhost) and asker.looks_into(vhost)
    ]


def _of_users(asker: Asker, name: str | None) -> list[UserLimits]:
    """Return the limits of all users, or of the user that asks; as RabbitMQ."""
    if name != asker.user:
        asker.access.must_be("administrator", "see limits of users")
    users = asker.state.users
    if name is not None and name not in users:
        raise errors.NotFound(f"no user '{name}'")
    return [
        UserLimits(user, known.limits)
        for user, known in sorted(users.items())
        if known.limits and name in (None, user)
    ]


def _list_of_vhosts(asker: Asker, request: m.ListVhostLimitsRequest, answer: Answer) -> None:
    answer(_listed(asker, "vhost", _of_vhosts(asker, request.vhost)))


def _list_of_users(asker: Asker, request: m.ListUserLimitsRequest, answer: Answer) -> None:
    answer(_listed(asker, "user", _of_users(asker, request.user)))


def _listed(asker: Asker, of: m.Of, found: Sequence[VhostLimits | UserLimits]) -> Any:
    return asker.listed(found, LIMITS_LISTED_MAX, f"limits of {of}s", "one")


def _put(asker: Asker, request: m.PutLimitRequest, answer: Answer) -> None:
    limits = _checked(request.of, {request.limit: request.value})
    _change(asker, ChangeLimits(request.of, request.name, limits), answer)


def _replace(asker: Asker, request: m.ReplaceLimitsRequest, answer: Answer) -> None:
    limits = _checked(request.of, request.limits)
    _change(asker, ChangeLimits(request.of, request.name, limits, replace=True), answer)


def _clear(asker: Asker, request: m.ClearLimitsRequest, answer: Answer) -> None:
    cleared = () if request.limit is None else (request.limit,)
    change = ChangeLimits(request.of, request.name, replace=not cleared, cleared=cleared)
    _change(asker, change, answer)


def _checked(of: m.Of, given: object) -> dict[str, int]:
    try:
        given = plain(given)
    except errors.PreconditionFailed as refusal:
        raise errors.InvalidArgument(refusal.detail) from None
    if not isinstance(given, dict):
        raise errors.InvalidArgument(f"a map of limits is expected, not a {type(given).__name__}")
    return check_limits(of, given)


def _change(asker: Asker, change: ChangeLimits, answer: Answer) -> None:
    state = asker.state
    if change.name not in (state.scopes if change.of == "vhost" else state.users):
        raise errors.NotFound(f"no {change.of} '{change.name}'")
    doing = [f"set {name} to {value}" for name, value in sorted(change.limits.items())]
    doing += [f"clear {quoted(name)}" for name in change.cleared]
    if change.replace:
        doing.append("clear all others")
    what = f"limits of {change.of} {quoted(change.name)}: {', '.join(doing)}"
    asker.change(what, change, answer)
