"""Limits of vhosts and users, as an administrator sees and changes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar
from urllib.parse import quote

import msgspec

from warren.connection import Connection
from warren.errors import UsageError
from warren_wire.admin.limit_values import UserLimits, VhostLimits

T = TypeVar("T")


class LimitCalls:
    """The part of `Admin` that concerns limits; each raises NotFound, AccessRefused, Unavailable.

    Vhosts have max-connections and max-queues, users max-connections and max-channels; a value
    below 0 is no limit, 0 permits nothing. A limit holds for what comes later: nothing is
    disconnected or deleted. A limit that cannot be set is a PeerError, with the broker's text.
    """

    connection: Connection

    def vhost_limits(self, vhost: str | None = None) -> list[VhostLimits]:
        """Limits by vhost, of those that have any; None: of all."""
        return self._listed("vhost", vhost, VhostLimits)

    def set_vhost_limit(self, vhost: str, name: str, value: int) -> None:
        """Set one limit of a vhost."""
        self.connection.request("PUT", _path("vhost", vhost, name), {"value": value})

    def replace_vhost_limits(self, vhost: str, limits: Mapping[str, int]) -> None:
        """Set all limits of a vhost: those that are not given are cleared."""
        self.connection.request("PUT", _path("vhost", vhost), dict(limits))

    def clear_vhost_limits(self, vhost: str, name: str | None = None) -> None:
        """Clear one limit of a vhost; None: all."""
        self.connection.request("DELETE", _path("vhost", vhost, name))

    def user_limits(self, user: str | None = None) -> list[UserLimits]:
        """Limits by user, of those that have any; None: of all. Users may see their own."""
        return self._listed("user", user, UserLimits)

    def set_user_limit(self, user: str, name: str, value: int) -> None:
        """Set one limit of a user."""
        self.connection.request("PUT", _path("user", user, name), {"value": value})

    def replace_user_limits(self, user: str, limits: Mapping[str, int]) -> None:
        """Set all limits of a user: those that are not given are cleared."""
        self.connection.request("PUT", _path("user", user), dict(limits))

    def clear_user_limits(self, user: str, name: str | None = None) -> None:
        """Clear one limit of a user; None: all."""
        self.connection.request("DELETE", _path("user", user, name))

    def _listed(self, of: Literal["vhost", "user"], name: str | None, kind: type[T]) -> list[T]:
        path = f"/{of}-limits" if name is None else _path(of, name)
        return [msgspec.convert(body, kind) for body in self.connection.request("GET", path)]


def _path(of: Literal["vhost", "user"], name: str, limit: str | None = None) -> str:
    if not name or limit == "":
        raise UsageError(f"the names of the {of} and of the limit must not be empty")
    path = f"/{of}-limits/{quote(name, safe='')}"
    return path if limit is None else f"{path}/{quote(limit, safe='')}"
