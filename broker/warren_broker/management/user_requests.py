"""The requests that concern users, vhosts, permissions, as values.

The paths are those of RabbitMQ's HTTP API without `/api`. Only a user with the tag `administrator`
may make them, but for WhoAmI, which everybody may. Names of vhosts are given: the connection's own
does not matter.
"""

from __future__ import annotations

from typing import TypeAlias

from warren_broker.management import users
from warren_broker.management.requests import ManagementRequest, Result


class GetWhoAmI(ManagementRequest, frozen=True):
    """GET /whoami. Answer: Shown (WhoAmI)."""


class ListUsers(ManagementRequest, frozen=True):
    """GET /users. Answer: Listed (UserInfo)."""


class GetUser(ManagementRequest, frozen=True):
    """GET /users/:user. Answer: Shown (UserInfo); 404."""

    user: str


class PutUser(ManagementRequest, frozen=True):
    """PUT /users/:user. Answer: Put; 409 for the last administrator's tag.

    password, password_hash  None: that of a user who is there stays; a new one needs one of them.
                             password_hash "": no password will do
    hashing_algorithm        of password_hash
    tags                     None: they stay; a new user has none
    """

    user: str
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str = ""
    tags: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"PutUser(user={self.user!r}, tags={self.tags!r})"


class DeleteUser(ManagementRequest, frozen=True):
    """DELETE /users/:user. Answer: Performed; 404; 409 for the last administrator."""

    user: str


class ListVhosts(ManagementRequest, frozen=True):
    """GET /vhosts. Answer: Listed (VhostInfo): those the user may enter; all for `monitoring`."""


class GetVhost(ManagementRequest, frozen=True):
    """GET /vhosts/:vhost. Answer: Shown (VhostInfo); 404."""

    vhost: str


class PutVhost(ManagementRequest, frozen=True):
    """PUT /vhosts/:vhost. Answer: Put. Who makes a vhost gets all permissions in it.

    description, tags  None: what is there stays
    """

    vhost: str
    description: str | None = None
    tags: tuple[str, ...] | None = None


class DeleteVhost(ManagementRequest, frozen=True):
    """DELETE /vhosts/:vhost. Answer: Performed; 404."""

    vhost: str


class ListPermissions(ManagementRequest, frozen=True):
    """GET /permissions, /vhosts/:vhost/permissions, /users/:user/permissions; the same with
    `topic-permissions`. Answer: Listed (PermissionInfo, TopicPermissionInfo); None: of all."""

    vhost: str | None = None
    user: str | None = None
    topics: bool = False


class GetPermissions(ManagementRequest, frozen=True):
    """GET /permissions/:vhost/:user (Answer: Shown; 404), /topic-permissions/:vhost/:user (Answer:
    Listed)."""

    vhost: str
    user: str
    topics: bool = False


class PutPermissions(ManagementRequest, frozen=True):
    """PUT /permissions/:vhost/:user, /topic-permissions/:vhost/:user. Answer: Put; 404.

    exchange  None: permissions; else topic permissions for that exchange
    """

    vhost: str
    user: str
    configure: str
    write: str
    read: str
    exchange: str | None = None


class DeletePermissions(ManagementRequest, frozen=True):
    """DELETE /permissions/:vhost/:user, /topic-permissions/:vhost/:user?exchange=. Answer:
    Performed; 404.

    exchange  None: permissions; "": all topic permissions; else those for that exchange
    """

    vhost: str
    user: str
    exchange: str | None = None


AnyUserRequest: TypeAlias = (
    GetWhoAmI
    | ListUsers
    | GetUser
    | PutUser
    | DeleteUser
    | ListVhosts
    | GetVhost
    | PutVhost
    | DeleteVhost
    | ListPermissions
    | GetPermissions
    | PutPermissions
    | DeletePermissions
)
Value: TypeAlias = (
    users.UserInfo
    | users.WhoAmI
    | users.VhostInfo
    | users.PermissionInfo
    | users.TopicPermissionInfo
)


# ------------------------------------------------------------------ results


class Shown(Result, frozen=True):
    """One of them."""

    value: Value


class Listed(Result, frozen=True):
    """Several, by name."""

    values: tuple[Value, ...]


class Put(Result, frozen=True):
    """It is there; created: by this request (201 rather than 204)."""

    created: bool


AnyUserResult: TypeAlias = Shown | Listed | Put
