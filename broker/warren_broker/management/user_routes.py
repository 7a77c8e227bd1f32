"""Where `/management` has users, vhosts, permissions."""

from __future__ import annotations

from typing import Any

from warren_broker.errors import InvalidArgument
from warren_broker.management import user_requests as m
from warren_broker.management.body import Body, Names, Query, Route, route
from warren_broker.management.requests import ManagementRequest
from warren_broker.metadata.access import check_patterns
from warren_broker.metadata.records import Grant

TAGS_MAX = 64
PASSWORD_CHARACTERS_MAX = 1024


def _filled(what: str, name: str) -> str:
    if not name:
        raise InvalidArgument(f"the {what}'s name is empty; choose one")
    return name


def _tags(value: Any) -> tuple[str, ...] | None:
    """A list, or one text with commas, as RabbitMQ takes both; each once, in the order given."""
    if value is None:
        return None
    if isinstance(value, str):
        value = [tag.strip() for tag in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise InvalidArgument("tags: a list of texts is expected, or one text with commas")
    tags = tuple(dict.fromkeys(tag for tag in value if tag))
    if len(tags) > TAGS_MAX or any(len(tag.encode()) > 255 for tag in tags):
        raise InvalidArgument(f"tags: at most {TAGS_MAX}, of at most 255 bytes each")
    return tags


def _whoami(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.GetWhoAmI()


def _list_users(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.ListUsers()


def _get_user(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.GetUser(_filled("user", names[0]))


def _put_user(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = Body(body, ("password", "password_hash", "hashing_algorithm", "tags"))
    password, hashed = read.secret("password"), read.secret("password_hash")
    if password is not None and hashed is not None:
        raise InvalidArgument("password and password_hash: give one of them")
    if password is not None and not 1 <= len(password) <= PASSWORD_CHARACTERS_MAX:
        raise InvalidArgument(
            f"a password of {len(password)} characters; 1 to {PASSWORD_CHARACTERS_MAX} are allowed"
        )
    return m.PutUser(
        _filled("user", names[0]),
        password,
        hashed,
        read.text("hashing_algorithm", ""),
        _tags(read.value("tags")),
    )


def _delete_user(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.DeleteUser(_filled("user", names[0]))


def _list_vhosts(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.ListVhosts()


def _get_vhost(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.GetVhost(_filled("vhost", names[0]))


def _put_vhost(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = Body(body, ("description", "tags"))
    description = read.value("description")
    if description is not None:
        description = read.text("description")
    return m.PutVhost(_filled("vhost", names[0]), description, _tags(read.value("tags")))


def _delete_vhost(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.DeleteVhost(_filled("vhost", names[0]))


def _all_permissions(topics: bool) -> Any:
    return lambda names, query, body: m.ListPermissions(topics=topics)


def _of_vhost(topics: bool) -> Any:
    return lambda names, query, body: m.ListPermissions(vhost=names[0], topics=topics)


def _of_user(topics: bool) -> Any:
    return lambda names, query, body: m.ListPermissions(user=names[0], topics=topics)


def _get_permissions(topics: bool) -> Any:
    return lambda names, query, body: m.GetPermissions(names[0], names[1], topics)


def _put_permissions(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = Body(body, ("configure", "write", "read"))
    patterns = (read.text("configure"), read.text("write"), read.text("read"))
    check_patterns(Grant(names[0], names[1], *patterns))
    return m.PutPermissions(names[0], names[1], *patterns)


def _put_topic_permissions(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = Body(body, ("exchange", "write", "read"))
    exchange = _filled("exchange", read.text("exchange"))
    patterns = ("", read.text("write"), read.text("read"))
    check_patterns(Grant(names[0], names[1], *patterns))
    return m.PutPermissions(names[0], names[1], *patterns, exchange)


def _clear_permissions(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.DeletePermissions(names[0], names[1])


def _clear_topic_permissions(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.DeletePermissions(names[0], names[1], query.get("exchange", ""))


_ONE = "permissions/:vhost/:user"
USER_ROUTES: tuple[Route, ...] = (
    route("GET", "/whoami", _whoami),
    route("GET", "/users", _list_users),
    route("GET", "/users/:user", _get_user),
    route("PUT", "/users/:user", _put_user),
    route("DELETE", "/users/:user", _delete_user),
    route("GET", "/users/:user/permissions", _of_user(False)),
    route("GET", "/users/:user/topic-permissions", _of_user(True)),
    route("GET", "/vhosts", _list_vhosts),
    route("GET", "/vhosts/:vhost", _get_vhost),
    route("PUT", "/vhosts/:vhost", _put_vhost),
    route("DELETE", "/vhosts/:vhost", _delete_vhost),
    route("GET", "/vhosts/:vhost/permissions", _of_vhost(False)),
    route("GET", "/vhosts/:vhost/topic-permissions", _of_vhost(True)),
    route("GET", "/permissions", _all_permissions(False)),
    route("GET", "/topic-permissions", _all_permissions(True)),
    route("GET", f"/{_ONE}", _get_permissions(False)),
    route("GET", f"/topic-{_ONE}", _get_permissions(True)),
    route("PUT", f"/{_ONE}", _put_permissions),
    route("PUT", f"/topic-{_ONE}", _put_topic_permissions),
    route("DELETE", f"/{_ONE}", _clear_permissions),
    route("DELETE", f"/topic-{_ONE}", _clear_topic_permissions),
)
