"""Users, vhosts and permissions as `/management` resources.

The paths are those of RabbitMQ's HTTP API without `/api`. Every request but WhoAmI and those for
vhosts needs the tag `administrator`. Names of vhosts are in the path; the connection's own vhost
does not matter.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from warren_broker.admin import resource
from warren_broker.admin.resource import Body, ManagementRequest, Names, Query
from warren_machines.metadata.records import Grant
from warren_machines.metadata.vhosts_and_users import check_patterns
from warren_wire.admin import user_values as values
from warren_wire.errors import InvalidArgument

PASSWORD_CHARACTERS_MAX = 1024


# ------------------------------------------------------------------ requests


class GetWhoAmIRequest(ManagementRequest, frozen=True):
    """GET /whoami. Answer: Shown (WhoAmI)."""


class RenewTokenRequest(ManagementRequest, frozen=True):
    """PUT /auth/tokens: the connection's next token. Answer: Performed; 400.

    Of a user with a password, which does not expire, it is only checked that the user may still be
    in the connection's vhost.
    """

    secret: bytes = b""

    def __repr__(self) -> str:
        return "RenewTokenRequest()"


class ListUsersRequest(ManagementRequest, frozen=True):
    """GET /users. Answer: Listed (UserInfo), by name."""


class GetUserRequest(ManagementRequest, frozen=True):
    """GET /users/:user. Answer: Shown (UserInfo); 404."""

    user: str


class PutUserRequest(ManagementRequest, frozen=True):
    """PUT /users/:user. Answer: Put; 409 for the last administrator's tag.

    password, password_hash  None: unchanged; a new user needs one of them.
                             password_hash "": no password matches
    hashing_algorithm        of password_hash
    tags                     None: unchanged; a new user has none
    """

    user: str
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str = ""
    tags: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"PutUser(user={self.user!r}, tags={self.tags!r})"


class DeleteUserRequest(ManagementRequest, frozen=True):
    """DELETE /users/:user. Answer: Performed; 404; 409 for the last administrator."""

    user: str


class ListVhostsRequest(ManagementRequest, frozen=True):
    """GET /vhosts. Answer: Listed (VhostInfo), by name.

    Those the user may enter; all for `monitoring`.
    """


class GetVhostRequest(ManagementRequest, frozen=True):
    """GET /vhosts/:vhost. Answer: Shown (VhostInfo); 404."""

    vhost: str


class PutVhostRequest(ManagementRequest, frozen=True):
    """PUT /vhosts/:vhost. Answer: Put. The creating user gets all permissions in it.

    description, tags  None: unchanged
    default_queue_type  None: unchanged; "": the node's default
    tracing            None: unchanged; else as TraceVhostRequest
    """

    vhost: str
    description: str | None = None
    tags: tuple[str, ...] | None = None
    default_queue_type: str | None = None
    tracing: bool | None = None


class TraceVhostRequest(ManagementRequest, frozen=True):
    """PUT, DELETE /vhosts/:vhost/tracing. Answer: Performed; 404.

    on  whether the node that is asked traces what clients publish and are sent in the vhost, until
        that is changed, or the node ends
    """

    vhost: str
    on: bool


class ProtectVhostRequest(ManagementRequest, frozen=True):
    """POST, DELETE /vhosts/:vhost/deletion/protection. Answer: Performed; 404.

    on  whether the vhost can no longer be deleted
    """

    vhost: str
    on: bool


class DeleteVhostRequest(ManagementRequest, frozen=True):
    """DELETE /vhosts/:vhost. Answer: Performed; 404; 409: it is protected from deletion."""

    vhost: str


class ListPermissionsRequest(ManagementRequest, frozen=True):
    """GET /permissions, /vhosts/:vhost/permissions, /users/:user/permissions.

    The same with `topic-permissions`. Answer: Listed (PermissionInfo, TopicPermissionInfo); None:
    of all.
    """

    vhost: str | None = None
    user: str | None = None
    topics: bool = False


class GetPermissionsRequest(ManagementRequest, frozen=True):
    """GET /permissions/:vhost/:user. Answer: Shown; 404.

    /topic-permissions/:vhost/:user: Answer: Listed.
    """

    vhost: str
    user: str
    topics: bool = False


class PutPermissionsRequest(ManagementRequest, frozen=True):
    """PUT /permissions/:vhost/:user, /topic-permissions/:vhost/:user. Answer: Put; 404.

    grant  exchange None: permissions; else topic permissions for that exchange
    """

    grant: Grant


class DeletePermissionsRequest(ManagementRequest, frozen=True):
    """DELETE /permissions/:vhost/:user, /topic-permissions/:vhost/:user?exchange=.

    Answer: Performed; 404.

    exchange  None: permissions; "": all topic permissions; else those for that exchange
    """

    vhost: str
    user: str
    exchange: str | None = None


AnyUserRequest: TypeAlias = (
    GetWhoAmIRequest
    | RenewTokenRequest
    | ListUsersRequest
    | GetUserRequest
    | PutUserRequest
    | DeleteUserRequest
    | ListVhostsRequest
    | GetVhostRequest
    | PutVhostRequest
    | TraceVhostRequest
    | ProtectVhostRequest
    | DeleteVhostRequest
    | ListPermissionsRequest
    | GetPermissionsRequest
    | PutPermissionsRequest
    | DeletePermissionsRequest
)


# ------------------------------------------------------------------ results


Value: TypeAlias = (
    values.UserInfo
    | values.WhoAmI
    | values.VhostInfo
    | values.PermissionInfo
    | values.TopicPermissionInfo
)


AnyUserResult: TypeAlias = resource.Shown[Value] | resource.Listed[Value] | resource.Put


# ------------------------------------------------------------------ bodies, routes


class PutUserBody(Body, frozen=True):
    """PUT /users/:user."""

    password: resource.Secret | None = None
    password_hash: resource.Secret | None = None
    hashing_algorithm: str = ""
    tags: Any = None


class PutVhostBody(Body, frozen=True):
    """PUT /vhosts/:vhost."""

    description: str | None = None
    tags: Any = None
    default_queue_type: str | None = None
    tracing: bool | None = None


class PermissionsBody(Body, frozen=True):
    """PUT /permissions/:vhost/:user."""

    configure: str
    write: str
    read: str


class TopicPermissionsBody(Body, frozen=True):
    """PUT /topic-permissions/:vhost/:user."""

    exchange: str
    write: str
    read: str


def _put_user(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = resource.read_body(PutUserBody, body)
    password, hashed = read.password, read.password_hash
    if password is not None and hashed is not None:
        raise InvalidArgument("password and password_hash: give one of them")
    if password is not None and not 1 <= len(password) <= PASSWORD_CHARACTERS_MAX:
        raise InvalidArgument(
            f"a password of {len(password)} characters; 1 to {PASSWORD_CHARACTERS_MAX} are allowed"
        )
    return PutUserRequest(
        resource.filled("user", names[0]),
        password,
        hashed,
        read.hashing_algorithm,
        values.parse_tags(read.tags),
    )


def _put_vhost(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = resource.read_body(PutVhostBody, body)
    kind = read.default_queue_type
    if kind == "undefined":
        kind = ""
    if kind not in (None, "", *values.DEFAULT_QUEUE_TYPES):
        raise InvalidArgument(
            f"unsupported default queue type '{kind}'; supported are "
            f"{', '.join(values.DEFAULT_QUEUE_TYPES)}, and undefined for the node's default"
        )
    return PutVhostRequest(
        resource.filled("vhost", names[0]),
        read.description,
        values.parse_tags(read.tags),
        kind,
        read.tracing,
    )


def _trace_vhost(on: bool) -> resource.Make:
    def made(names: Names, query: Query, body: Any) -> ManagementRequest:
        resource.read_body(resource.EmptyBody, body)
        return TraceVhostRequest(vhost=names[0], on=on)

    return made


def _protect_vhost(on: bool) -> resource.Make:
    def made(names: Names, query: Query, body: Any) -> ManagementRequest:
        return ProtectVhostRequest(vhost=resource.filled("vhost", names[0]), on=on)

    return made


def _all_permissions(topics: bool) -> Any:
    return lambda names, query, body: ListPermissionsRequest(topics=topics)


def _of_vhost(topics: bool) -> Any:
    return lambda names, query, body: ListPermissionsRequest(vhost=names[0], topics=topics)


def _of_user(topics: bool) -> Any:
    return lambda names, query, body: ListPermissionsRequest(user=names[0], topics=topics)


def _get_permissions(topics: bool) -> Any:
    return lambda names, query, body: GetPermissionsRequest(names[0], names[1], topics)


def _put_permissions(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = resource.read_body(PermissionsBody, body)
    return _granted(Grant(names[0], names[1], read.configure, read.write, read.read))


def _put_topic_permissions(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = resource.read_body(TopicPermissionsBody, body)
    exchange = resource.filled("exchange", read.exchange)
    return _granted(Grant(names[0], names[1], "", read.write, read.read, exchange))


def _granted(grant: Grant) -> ManagementRequest:
    check_patterns(grant)
    return PutPermissionsRequest(grant)


def _clear_topic_permissions(names: Names, query: Query, body: Any) -> ManagementRequest:
    return DeletePermissionsRequest(names[0], names[1], query.get("exchange", ""))


def _grant_routes(
    kind: str, topics: bool, put: resource.Make, clear: resource.Make
) -> tuple[resource.ManagementRoute, ...]:
    one = f"/{kind}/:vhost/:user"
    return (
        resource.route("GET", f"/users/:user/{kind}", _of_user(topics)),
        resource.route("GET", f"/vhosts/:vhost/{kind}", _of_vhost(topics)),
        resource.route("GET", f"/{kind}", _all_permissions(topics)),
        resource.route("GET", one, _get_permissions(topics)),
        resource.route("PUT", one, put, "administrator"),
        resource.route("DELETE", one, clear),
    )


_CLEAR = resource.from_names(DeletePermissionsRequest)


def _renew_token(names: Names, query: Query, body: Any) -> ManagementRequest:
    if not isinstance(body, bytes):
        raise InvalidArgument(f"the token is a {type(body).__name__}; binary is expected")
    return RenewTokenRequest(body)


ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("PUT", "/auth/tokens", _renew_token),
    resource.route("GET", "/whoami", resource.from_names(GetWhoAmIRequest)),
    resource.route("GET", "/users", resource.from_names(ListUsersRequest)),
    resource.route("GET", "/users/:user", resource.from_names(GetUserRequest, "user")),
    resource.route("PUT", "/users/:user", _put_user, "administrator"),
    resource.route("DELETE", "/users/:user", resource.from_names(DeleteUserRequest, "user")),
    resource.route("GET", "/vhosts", resource.from_names(ListVhostsRequest)),
    resource.route("GET", "/vhosts/:vhost", resource.from_names(GetVhostRequest, "vhost")),
    resource.route("PUT", "/vhosts/:vhost", _put_vhost, "administrator"),
    resource.route("DELETE", "/vhosts/:vhost", resource.from_names(DeleteVhostRequest, "vhost")),
    resource.route(
        "POST", "/vhosts/:vhost/deletion/protection", _protect_vhost(True), "administrator"
    ),
    resource.route("DELETE", "/vhosts/:vhost/deletion/protection", _protect_vhost(False)),
    resource.route("PUT", "/vhosts/:vhost/tracing", _trace_vhost(True), "administrator"),
    resource.route("DELETE", "/vhosts/:vhost/tracing", _trace_vhost(False)),
    *_grant_routes("permissions", False, _put_permissions, _CLEAR),
    *_grant_routes("topic-permissions", True, _put_topic_permissions, _clear_topic_permissions),
)
