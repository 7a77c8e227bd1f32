"""Limits of vhosts and users as `/management` resources.

The paths, keys and tags are those of RabbitMQ's HTTP API without `/api`. Beyond it all limits of a
vhost or user can be set (PUT) or cleared (DELETE) at once, without a limit's name in the path.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from warren_broker.admin import resource
from warren_broker.admin.resource import Body, ManagementRequest, Names, Query
from warren_machines.metadata.commands import ChangeLimits
from warren_machines.metadata.limits import check_limits
from warren_wire.arguments import plain
from warren_wire.errors import InvalidArgument, PreconditionFailed

Of: TypeAlias = Literal["vhost", "user"]

# ------------------------------------------------------------------ requests


class ListLimitsRequest(ManagementRequest, frozen=True):
    """GET /vhost-limits, /vhost-limits/:vhost, /user-limits, /user-limits/:user.

    Answer: Listed (VhostLimits, UserLimits) by name, without those that have none; 404.

    name  None: of all
    """

    of: Of
    name: str | None


class ChangeLimitsRequest(ManagementRequest, frozen=True):
    """PUT and DELETE /vhost-limits/:vhost/:limit, /user-limits/:user/:limit; also without :limit.

    Answer: Performed; 404.
    """

    change: ChangeLimits


AnyLimitRequest: TypeAlias = ListLimitsRequest | ChangeLimitsRequest

# ------------------------------------------------------------------ bodies, routes


class PutLimitBody(Body, frozen=True):
    """PUT /vhost-limits/:vhost/:limit."""

    value: Any


def _list(of: Of) -> resource.Make:
    return lambda names, query, body: ListLimitsRequest(of=of, name=names[0] if names else None)


def _put(of: Of) -> resource.Make:
    def made(names: Names, query: Query, body: Any) -> ManagementRequest:
        null = body == {"value": None}  # which says what it is, and is refused for that
        given = {names[1]: None if null else resource.read_body(PutLimitBody, body).value}
        return ChangeLimitsRequest(
            change=ChangeLimits(of, resource.filled(of, names[0]), _checked(of, given))
        )

    return made


def _replace(of: Of) -> resource.Make:
    def made(names: Names, query: Query, body: Any) -> ManagementRequest:
        limits = _checked(of, body)
        return ChangeLimitsRequest(
            change=ChangeLimits(of, resource.filled(of, names[0]), limits, replace=True)
        )

    return made


def _checked(of: Of, given: Any) -> dict[str, int]:
    try:
        given = plain(given)
    except PreconditionFailed as refusal:
        raise InvalidArgument(refusal.detail) from None
    if not isinstance(given, dict):
        raise InvalidArgument(f"a map of limits is expected, not a {type(given).__name__}")
    return check_limits(of, given)


def _clear(of: Of) -> resource.Make:
    def made(names: Names, query: Query, body: Any) -> ManagementRequest:
        cleared = names[1:]
        change = ChangeLimits(
            of, resource.filled(of, names[0]), replace=not cleared, cleared=cleared
        )
        return ChangeLimitsRequest(change=change)

    return made


def _routes(of: Of) -> tuple[resource.ManagementRoute, ...]:
    path = f"/{of}-limits"
    return (
        resource.route("GET", path, _list(of)),
        resource.route("GET", f"{path}/:{of}", _list(of)),
        resource.route("PUT", f"{path}/:{of}", _replace(of), "administrator"),
        resource.route("DELETE", f"{path}/:{of}", _clear(of)),
        resource.route("PUT", f"{path}/:{of}/:limit", _put(of), "administrator"),
        resource.route("DELETE", f"{path}/:{of}/:limit", _clear(of)),
    )


ROUTES: tuple[resource.ManagementRoute, ...] = (*_routes("vhost"), *_routes("user"))
