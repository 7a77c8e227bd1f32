"""Limits of vhosts and users, and the requests for them; the keys are RabbitMQ's.

Vhosts have max-connections and max-queues, users max-connections and max-channels; a value below 0
is no limit, 0 permits nothing. A limit holds for what comes later: nothing is disconnected or
deleted. Beyond RabbitMQ all limits can be set or cleared at once, without a limit's name.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from warren_wire.admin.requests import AdminRequest, Name, route

Of: TypeAlias = Literal["vhost", "user"]


class VhostLimits(msgspec.Struct, frozen=True):
    """The limits of a vhost by name: max-connections, max-queues; below 0: none."""

    vhost: str
    value: dict[str, int]


class UserLimits(msgspec.Struct, frozen=True):
    """The limits of a user by name: max-connections, max-channels; below 0: none."""

    user: str
    value: dict[str, int]


class ListVhostLimitsRequest(AdminRequest[list[VhostLimits]], frozen=True):
    """Return limits by vhost, of those that have any; None: of all; 404.

    Answer: Listed (VhostLimits).
    """

    ROUTES: ClassVar = (
        route("GET /vhost-limits/:vhost", "management", http=True),
        route("GET /vhost-limits", "management", http=True),
    )
    vhost: str | None = None


class ListUserLimitsRequest(AdminRequest[list[UserLimits]], frozen=True):
    """Return limits by user, of those that have any; None: of all. Users may see their own; 404.

    Answer: Listed (UserLimits).
    """

    ROUTES: ClassVar = (
        route("GET /user-limits/:user", http=True),
        route("GET /user-limits", http=True),
    )
    user: str | None = None


class PutLimitRequest(AdminRequest[None], frozen=True):
    """Set one limit of a vhost or user; 404. Answer: Performed."""

    ROUTES: ClassVar = (
        route("PUT /vhost-limits/:name/:limit", "administrator", http=True, of="vhost"),
        route("PUT /user-limits/:name/:limit", "administrator", http=True, of="user"),
    )
    of: Of
    name: Name
    limit: str
    value: Any


class ReplaceLimitsRequest(AdminRequest[None], frozen=True):
    """Set all limits of a vhost or user: those that are not given are cleared; 404.

    Answer: Performed.
    """

    ROUTES: ClassVar = (
        route("PUT /vhost-limits/:name", "administrator", whole="limits", of="vhost"),
        route("PUT /user-limits/:name", "administrator", whole="limits", of="user"),
    )
    of: Of
    name: Name
    limits: Any = None


class ClearLimitsRequest(AdminRequest[None], frozen=True):
    """Clear one limit of a vhost or user; None: all; 404. Answer: Performed."""

    ROUTES: ClassVar = (
        route("DELETE /vhost-limits/:name/:limit", "administrator", http=True, of="vhost"),
        route("DELETE /vhost-limits/:name", "administrator", of="vhost"),
        route("DELETE /user-limits/:name/:limit", "administrator", http=True, of="user"),
        route("DELETE /user-limits/:name", "administrator", of="user"),
    )
    of: Of
    name: Name
    limit: str | None = None
