"""Administration of users, vhosts and permissions.

The values are the broker's own (`warren_wire.admin.user_values`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from warren.connection import Connection
from warren.errors import UsageError
from warren_wire.admin.user_values import (
    PermissionInfo,
    TopicPermissionInfo,
    UserInfo,
    VhostInfo,
    WhoAmI,
)

T = TypeVar("T")


class UserCalls:
    """The part of `Admin` for users, vhosts and permissions.

    All but `whoami` and `vhosts` need the tag `administrator`. Each raises NotFound, AccessRefused,
    Conflict (the last administrator cannot be deleted), Unavailable. Changes take effect for the
    next operation, also of connected clients; clients of a deleted user or vhost are disconnected.
    """

    connection: Connection

    # -------------------------------------------------------------- users

    def whoami(self) -> WhoAmI:
        """Return the user of this connection."""
        return self._value("/whoami", WhoAmI)

    def users(self) -> list[UserInfo]:
        """Return all users, by name."""
        return self._values("/users", UserInfo)

    def user(self, name: str) -> UserInfo:
        """Return one user; raises NotFound."""
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

        password, password_hash  at most one of them; None: unchanged. A hash is one of RabbitMQ's
                                 forms, "" for a user who cannot log in with a password
        tags                     None: unchanged
        """
        body: dict[str, Any] = {"password": password, "password_hash": password_hash}
        if hashing_algorithm:
            body["hashing_algorithm"] = hashing_algorithm
        if tags is not None:
            body["tags"] = list(tags)
        given = {key: value for key, value in body.items() if value is not None}
        self.connection.request("PUT", _user(name), given)

    def delete_user(self, name: str) -> None:
        """Delete a user with its permissions; its clients are disconnected."""
        self.connection.request("DELETE", _user(name))

    # -------------------------------------------------------------- vhosts

    def vhosts(self) -> list[VhostInfo]:
        """Return the vhosts that this user may use, by name; all with the tag `monitoring`."""
        return self._values("/vhosts", VhostInfo)

    def vhost(self, name: str) -> VhostInfo:
        """Return one vhost; raises NotFound."""
        return self._value(_vhost(name), VhostInfo)

    def put_vhost(
        self,
        name: str,
        *,
        description: str | None = None,
        tags: Iterable[str] | None = None,
        default_queue_type: str | None = None,
    ) -> None:
        """Add a vhost, in which this user gets all permissions; or change an existing one.

        description, tags, default_queue_type  None: unchanged
        default_queue_type                     classic, quorum, or undefined for the node's default
        """
        body: dict[str, Any] = {} if description is None else {"description": description}
        if default_queue_type is not None:
            body["default_queue_type"] = default_queue_type
        if tags is not None:
            body["tags"] = list(tags)
        self.connection.request("PUT", _vhost(name), body)

    def set_tracing(self, vhost: str, on: bool) -> None:
        """Turn the tracing of messages in a vhost on or off; raises NotFound.

        It concerns clients of the connected node (`Connection.node`), until that is changed or the
        node ends. Trace messages are published to the vhost's exchange amq.rabbitmq.trace.
        """
        self.connection.request("PUT" if on else "DELETE", f"{_vhost(vhost)}/tracing")

    def protect_vhost(self, name: str, on: bool = True) -> None:
        """Have a vhost refuse its deletion, or permit it again; raises NotFound."""
        self.connection.request("POST" if on else "DELETE", f"{_vhost(name)}/deletion/protection")

    def delete_vhost(self, name: str) -> None:
        """Delete a vhost with everything in it; its clients are disconnected.

        Raises Conflict for one that is protected from deletion.
        """
        self.connection.request("DELETE", _vhost(name))

    # -------------------------------------------------------------- permissions

    def permissions(
        self, *, vhost: str | None = None, user: str | None = None
    ) -> list[PermissionInfo]:
        """Return the permissions by vhost and user; None: of all."""
        found = self._values(_listing("permissions", vhost, user), PermissionInfo)
        return [one for one in found if vhost in (None, one.vhost)]

    def set_permissions(
        self, vhost: str, user: str, *, configure: str, write: str, read: str
    ) -> None:
        """Set the user's permissions in the vhost.

        Each pattern must be found in a name to allow it: ".*" allows all, "^$" nothing.
        """
        body = {"configure": configure, "write": write, "read": read}
        self.connection.request("PUT", _granted("permissions", vhost, user), body)

    def clear_permissions(self, vhost: str, user: str) -> None:
        """Remove the user's permissions in the vhost, so that it may no longer use it."""
        self.connection.request("DELETE", _granted("permissions", vhost, user))

    def topic_permissions(
        self, *, vhost: str | None = None, user: str | None = None
    ) -> list[TopicPermissionInfo]:
        """Return the topic permissions by vhost, user, exchange; None: of all."""
        found = self._values(_listing("topic-permissions", vhost, user), TopicPermissionInfo)
        return [one for one in found if vhost in (None, one.vhost)]

    def set_topic_permissions(
        self, vhost: str, user: str, exchange: str, *, write: str, read: str
    ) -> None:
        """Restrict the routing keys with which the user may publish or bind at a topic exchange.

        Without topic permissions all are allowed.
        """
        body = {"exchange": exchange, "write": write, "read": read}
        self.connection.request("PUT", _granted("topic-permissions", vhost, user), body)

    def clear_topic_permissions(self, vhost: str, user: str, exchange: str = "") -> None:
        """Remove the restriction for that exchange; "": for all."""
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
    """Return the path of the permissions of a user (in all vhosts), of a vhost, or of all."""
    if user is not None:
        return f"{_user(user)}/{kind}"
    return f"/{kind}" if vhost is None else f"{_vhost(vhost)}/{kind}"
