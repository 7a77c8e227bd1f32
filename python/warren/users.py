"""Users, vhosts, permissions, as an administrator sees and changes them.

The values are the broker's own (`warren_broker.management.user_values`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from warren.connection import Connection
from warren.errors import UsageError
from warren_broker.management.user_values import (
    PermissionInfo,
    TopicPermissionInfo,
    UserInfo,
    VhostInfo,
    WhoAmI,
)

T = TypeVar("T")


class UserCalls:
    """The part of `Admin` that concerns users; the tag `administrator` is needed for all but
    `whoami` and `vhosts`.

    Each raises NotFound, AccessRefused, Conflict (the last administrator stays), Unavailable.
    Changes hold from the next operation on, also of clients that are connected; clients of a user
    or vhost that is deleted are sent away.
    """

    connection: Connection

    # -------------------------------------------------------------- users

    def whoami(self) -> WhoAmI:
        """The user of this connection."""
        return self._value("/whoami", WhoAmI)

    def users(self) -> list[UserInfo]:
        """All users, by name."""
        return self._values("/users", UserInfo)

    def user(self, name: str) -> UserInfo:
        """One user; NotFound."""
        return self._value(_user(name), UserInfo)

    def put_user(
        self,
        name: str,
        *,
        password: str | None = None,
        password_hash: str | None = None,
        hashing_algorithm: str = "",
        tags: Iterable[str] | None = None,
    ) -> None:
        """Add a user, or change an existing one.

        password, password_hash  at most one of them; None: it stays. A hash is one of RabbitMQ's
                                 forms, "" for a user who cannot log in with a password
        tags                     None: they stay
        """
        body: dict[str, Any] = {"password": password, "password_hash": password_hash}
        if hashing_algorithm:
            body["hashing_algorithm"] = hashing_algorithm
        if tags is not None:
            body["tags"] = list(tags)
        given = {key: value for key, value in body.items() if value is not None}
        self.connection.request("PUT", _user(name), given)

    def delete_user(self, name: str) -> None:
        """Delete it with its permissions; its clients are sent away."""
        self.connection.request("DELETE", _user(name))

    # -------------------------------------------------------------- vhosts

    def vhosts(self) -> list[VhostInfo]:
        """The vhosts that this user may enter, by name; all with the tag `monitoring`."""
        return self._values("/vhosts", VhostInfo)

    def vhost(self, name: str) -> VhostInfo:
        """One vhost; NotFound."""
        return self._value(_vhost(name), VhostInfo)

    def put_vhost(
        self, name: str, *, description: str | None = None, tags: Iterable[str] | None = None
    ) -> None:
        """Add a vhost, in which this user gets all permissions; or change the one that is there.

        description, tags  None: they stay
        """
        body: dict[str, Any] = {} if description is None else {"description": description}
        if tags is not None:
            body["tags"] = list(tags)
        self.connection.request("PUT", _vhost(name), body)

    def delete_vhost(self, name: str) -> None:
        """Delete it with everything in it; its clients are sent away."""
        self.connection.request("DELETE", _vhost(name))

    # -------------------------------------------------------------- permissions

    def permissions(
        self, *, vhost: str | None = None, user: str | None = None
    ) -> list[PermissionInfo]:
        """By vhost and user; None: of all."""
        found = self._values(_listing("permissions", vhost, user), PermissionInfo)
        return [one for one in found if vhost in (None, one.vhost)]

    def set_permissions(
        self, vhost: str, user: str, *, configure: str, write: str, read: str
    ) -> None:
        """Let the user into the vhost: each pattern is found in the names that are allowed; ".*"
        allows all, "^$" nothing."""
        body = {"configure": configure, "write": write, "read": read}
        self.connection.request("PUT", _granted("permissions", vhost, user), body)

    def clear_permissions(self, vhost: str, user: str) -> None:
        """The user may not enter the vhost any more."""
        self.connection.request("DELETE", _granted("permissions", vhost, user))

    def topic_permissions(
        self, *, vhost: str | None = None, user: str | None = None
    ) -> list[TopicPermissionInfo]:
        """By vhost, user, exchange; None: of all."""
        found = self._values(_listing("topic-permissions", vhost, user), TopicPermissionInfo)
        return [one for one in found if vhost in (None, one.vhost)]

    def set_topic_permissions(
        self, vhost: str, user: str, exchange: str, *, write: str, read: str
    ) -> None:
        """Restrict the routing keys that the user may publish with, and bind with, at a topic
        exchange; without any, all are allowed."""
        body = {"exchange": exchange, "write": write, "read": read}
        self.connection.request("PUT", _granted("topic-permissions", vhost, user), body)

    def clear_topic_permissions(self, vhost: str, user: str, exchange: str = "") -> None:
        """Drop the restriction for that exchange; "": for all."""
        query = f"?exchange={quote(exchange, safe='')}" if exchange else ""
        self.connection.request("DELETE", _granted("topic-permissions", vhost, user) + query)

    # -------------------------------------------------------------- inside

    def _value(self, path: str, kind: type[T]) -> T:
        return msgspec.convert(self.connection.request("GET", path), kind)

    def _values(self, path: str, kind: type[T]) -> list[T]:
        return [msgspec.convert(body, kind) for body in self.connection.request("GET", path)]


def _user(name: str) -> str:
    if not name:
        raise UsageError("a user's name must not be empty")
    return f"/users/{quote(name, safe='')}"


def _vhost(name: str) -> str:
    if not name:
        raise UsageError("a vhost's name must not be empty")
    return f"/vhosts/{quote(name, safe='')}"


def _granted(kind: str, vhost: str, user: str) -> str:
    _vhost(vhost), _user(user)  # not empty
    return f"/{kind}/{quote(vhost, safe='')}/{quote(user, safe='')}"


def _listing(kind: str, vhost: str | None, user: str | None) -> str:
    """Where the permissions of a user (then of all vhosts), of a vhost, or of all are."""
    if user is not None:
        return f"{_user(user)}/{kind}"
    return f"/{kind}" if vhost is None else f"{_vhost(vhost)}/{kind}"
