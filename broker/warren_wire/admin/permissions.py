"""Permissions and topic permissions, and the requests for them; the keys are RabbitMQ's.

Each pattern must be found in a name to allow it: ".*" allows all, "^$" nothing.
"""

from __future__ import annotations

from typing import ClassVar, Final, Generic, TypeVar

import msgspec

from warren_wire.admin.requests import AdminRequest, Name, route

T = TypeVar("T")
_UNKNOWN: Final = {404: (400, "bad_request", "vhost_or_user_not_found: ")}


class PermissionInfo(msgspec.Struct, frozen=True):
    """A user's permissions in a vhost: regular expressions over the names of resources."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermissionInfo(msgspec.Struct, frozen=True):
    """A user's topic permissions: regular expressions over routing keys of a topic exchange."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class ListPermissionsRequest(AdminRequest[list[PermissionInfo]], frozen=True):
    """Return the permissions by vhost and user. Answer: Listed (PermissionInfo).

    vhost, user  only theirs; without: of all
    """

    ROUTES: ClassVar = (
        route("GET /users/:user/permissions", "administrator", http=True),
        route("GET /vhosts/:vhost/permissions", "administrator", http=True),
        route("GET /permissions", "administrator", http=True),
    )
    vhost: str | None = None
    user: str | None = None


class ListTopicPermissionsRequest(AdminRequest[list[TopicPermissionInfo]], frozen=True):
    """Return the topic permissions by vhost, user, exchange. Answer: Listed (TopicPermissionInfo).

    vhost, user  only theirs; without: of all
    """

    ROUTES: ClassVar = (
        route("GET /users/:user/topic-permissions", "administrator", http=True),
        route("GET /vhosts/:vhost/topic-permissions", "administrator", http=True),
        route("GET /topic-permissions", "administrator", http=True),
    )
    vhost: str | None = None
    user: str | None = None


class GrantRequest(AdminRequest[T], Generic[T], frozen=True):
    """A request about what one user may do in a vhost."""

    vhost: str
    user: str


class GetPermissionsRequest(GrantRequest[PermissionInfo], frozen=True):
    """Return a user's permissions in a vhost; 404. Answer: PermissionInfo."""

    ROUTES: ClassVar = (route("GET /permissions/:vhost/:user", "administrator", http=True),)


class GetTopicPermissionsRequest(GrantRequest[list[TopicPermissionInfo]], frozen=True):
    """Return a user's topic permissions in a vhost; 404. Answer: Listed (TopicPermissionInfo)."""

    ROUTES: ClassVar = (route("GET /topic-permissions/:vhost/:user", "administrator"),)


class PutPermissionsRequest(GrantRequest[None], frozen=True):
    """Set a user's permissions in a vhost; 404. Answer: Put.

    configure  what it may declare and delete
    write      what it may publish to, bind to
    read       what it may consume from, bind from
    """

    ROUTES: ClassVar = (
        route("PUT /permissions/:vhost/:user", "administrator", http=True, refused=_UNKNOWN),
    )
    configure: str
    write: str
    read: str


class PutTopicPermissionsRequest(GrantRequest[None], frozen=True):
    """Restrict the routing keys with which a user may publish or bind at a topic exchange; 404.

    Without topic permissions all are allowed. Answer: Put.

    exchange  the topic exchange
    write     the keys with which it may publish
    read      the keys with which it may bind
    """

    ROUTES: ClassVar = (
        route("PUT /topic-permissions/:vhost/:user", "administrator", http=True, refused=_UNKNOWN),
    )
    exchange: Name
    write: str
    read: str


class DeletePermissionsRequest(GrantRequest[None], frozen=True):
    """Remove a user's permissions in a vhost, so that it may no longer use it; 404.

    Answer: Performed.
    """

    ROUTES: ClassVar = (route("DELETE /permissions/:vhost/:user", "administrator"),)


class DeleteTopicPermissionsRequest(GrantRequest[None], frozen=True):
    """Drop the restriction of a user's routing keys. Answer: Performed; 404.

    exchange  the topic exchange; "": all of them
    """

    ROUTES: ClassVar = (
        route(
            "DELETE /topic-permissions/:vhost/:user",
            "administrator",
            http=("/topic-permissions/:vhost/:user", "/topic-permissions/:vhost/:user/:exchange"),
        ),
    )
    exchange: str = ""
