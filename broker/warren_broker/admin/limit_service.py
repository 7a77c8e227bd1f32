"""Handlers of the requests in `management.limits`; every change is logged with its user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from warren_broker.admin import limits as m
from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.resource import Listed
from warren_wire import errors
from warren_wire.admin.limit_values import UserLimits, VhostLimits
from warren_wire.quoting import quoted

LIMITS_LISTED_MAX: Final = 5_000
"""Vhosts or users in one answer: Proton's values hold 65,535 parts."""


def _check_vhost(asker: Asker, vhost: str) -> None:
    if vhost not in asker.broker.definitions.state.scopes:
        raise errors.NotFound(f"no vhost '{vhost}'")
    if asker.access.held_in(vhost) is None:
        asker.access.must_be("monitoring", "see limits of vhosts of others")


def _of_vhosts(asker: Asker, name: str | None) -> list[VhostLimits]:
    """Return the limits of the vhosts that the user may see, as RabbitMQ."""
    asker.access.must_be("management", "see limits of vhosts")
    if name is not None:
        _check_vhost(asker, name)
    every = asker.access.has_tag("monitoring")
    return [
        VhostLimits(vhost, scope.vhost.limits)
        for vhost, scope in sorted(asker.broker.definitions.state.scopes.items())
        if scope.vhost.limits
        and name in (None, vhost)
        and (every or asker.access.held_in(vhost) is not None)
    ]


def _of_users(asker: Asker, name: str | None) -> list[UserLimits]:
    """Return the limits of all users, or of the user that asks; as RabbitMQ."""
    if name != asker.user:
        asker.access.must_be("administrator", "see limits of users")
    users = asker.broker.definitions.state.users
    if name is not None and name not in users:
        raise errors.NotFound(f"no user '{name}'")
    return [
        UserLimits(user, known.limits)
        for user, known in sorted(users.items())
        if known.limits and name in (None, user)
    ]


def _list(asker: Asker, request: m.ListLimitsRequest, answer: Answer) -> None:
    found: list[Any] = list(
        _of_vhosts(asker, request.name) if request.of == "vhost" else _of_users(asker, request.name)
    )
    if len(found) > LIMITS_LISTED_MAX:
        raise errors.InvalidArgument(
            f"limits of {len(found)} {request.of}s in one answer, {LIMITS_LISTED_MAX} fit; ask for "
            "one"
        )
    answer(Listed(tuple(found)))


def _change(asker: Asker, request: m.ChangeLimitsRequest, answer: Answer) -> None:
    change = request.change
    asker.access.must_be("administrator", f"change limits of {change.of}s")
    state = asker.broker.definitions.state
    if change.name not in (state.scopes if change.of == "vhost" else state.users):
        raise errors.NotFound(f"no {change.of} '{change.name}'")
    doing = [f"set {name} to {value}" for name, value in sorted(change.limits.items())]
    doing += [f"clear {quoted(name)}" for name in change.cleared]
    if change.replace:
        doing.append("clear all others")
    what = f"limits of {change.of} {quoted(change.name)}: {', '.join(doing)}"
    asker.change(what, change, answer)


LIMIT_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    m.ListLimitsRequest: _list,
    m.ChangeLimitsRequest: _change,
}
