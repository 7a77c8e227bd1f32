"""Handlers of the requests in `management.users`.

Every change is logged with the requesting user. `server.eviction` disconnects the clients
concerned.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from warren_broker.admin import users as m
from warren_broker.admin.caller import PERFORMED, Answer, Asker
from warren_broker.admin.resource import Listed, Performed, Put, Shown
from warren_machines.definition_files.access_objects import ALL
from warren_machines.metadata import commands as metadata
from warren_machines.metadata import passwords, vhost_protection
from warren_machines.metadata.records import Grant, User, Vhost
from warren_machines.metadata.state import MetadataState
from warren_wire import errors
from warren_wire.admin import user_values as values
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)
LISTED_MAX = 5_000
"""Values in one answer: Proton's values hold 65,535 parts."""


def _looking(asker: Asker) -> MetadataState:
    """Check that an administrator asks for a read, as in RabbitMQ; return the state."""
    asker.access.must_be("administrator", "see users and permissions")
    return asker.broker.definitions.state


def _list(answer: Answer, values: Iterable[m.Value]) -> None:
    found = tuple(values)
    if len(found) > LISTED_MAX:
        raise errors.InvalidArgument(
            f"{len(found)} of them in one answer, {LISTED_MAX} fit; ask for one user's or vhost's"
        )
    answer(Listed(found))


# ------------------------------------------------------------------ users


def _whoami(asker: Asker, request: m.GetWhoAmIRequest, answer: Answer) -> None:
    answer(Shown(values.WhoAmI(asker.user, asker.access.tags, asker.rights is None)))


def _renew_token(asker: Asker, request: m.RenewTokenRequest, answer: Answer) -> None:
    def checked(result: Any) -> None:
        answer(result if isinstance(result, errors.Refusal) else PERFORMED)

    asker.broker.logins.open_vhost(asker.vhost, asker.user, asker.guard(checked))


def _shown(user: User) -> values.UserInfo:
    algorithm = passwords.algorithm_of(user.password_hash)
    return values.UserInfo(user.name, user.password_hash, algorithm, user.tags)


def _user(state: MetadataState, name: str) -> User:
    found = state.users.get(name)
    if found is None:
        raise errors.NotFound(f"no user '{name}'")
    return found


def _list_users(asker: Asker, request: m.ListUsersRequest, answer: Answer) -> None:
    state = _looking(asker)
    _list(answer, (_shown(state.users[name]) for name in sorted(state.users)))


def _get_user(asker: Asker, request: m.GetUserRequest, answer: Answer) -> None:
    answer(Shown(_shown(_user(_looking(asker), request.user))))


def _put_user(asker: Asker, request: m.PutUserRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "change users")
    known = asker.broker.definitions.state.users.get(request.user)
    if request.password is not None:
        hashed = passwords.hash_password(request.password, os.urandom(passwords.SALT_BYTES))
    elif request.password_hash is not None:
        hashed = passwords.checked(request.password_hash, request.hashing_algorithm)
    elif known is not None:
        hashed = known.password_hash
    else:
        raise errors.InvalidArgument(
            f"user '{request.user}' is new: give password, or password_hash ('' for a user who "
            "cannot log in with a password)"
        )
    tags = request.tags
    if tags is None:
        tags = known.tags if known is not None else ()
    what = (
        f"{'change' if known else 'add'} user {quoted(request.user)}, tags "
        f"{quoted(', '.join(tags))}"
    )
    command = metadata.PutUser(User(request.user, hashed, tags))
    asker.change(what, command, answer, Put(known is None))


def _delete_user(asker: Asker, request: m.DeleteUserRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "delete users")
    _user(asker.broker.definitions.state, request.user)
    command = metadata.DeleteUser(request.user)
    asker.change(f"delete user {quoted(request.user)}", command, answer)


# ------------------------------------------------------------------ vhosts


def _vhost(state: MetadataState, name: str) -> Vhost:
    found = state.scopes.get(name)
    if found is None:
        raise errors.NotFound(f"no vhost '{name}'")
    return found.vhost


def _shown_vhost(asker: Asker, vhost: Vhost) -> values.VhostInfo:
    kind: str = asker.broker.default_queue_type(vhost.name)
    if kind == "replicated":
        kind = "undefined"
    traced = vhost.name in asker.broker.traced_vhosts
    kept = vhost_protection.protected(asker.broker.definitions.state, vhost.name)
    return values.VhostInfo(vhost.name, vhost.description, vhost.tags, kind, traced, kept)


def _list_vhosts(asker: Asker, request: m.ListVhostsRequest, answer: Answer) -> None:
    asker.access.must_be("management", "see vhosts")
    state, all_of_them = asker.broker.definitions.state, asker.access.has_tag("monitoring")
    _list(
        answer,
        (
            _shown_vhost(asker, state.scopes[name].vhost)
            for name in sorted(state.scopes)
            if all_of_them or asker.access.held_in(name) is not None
        ),
    )


def _get_vhost(asker: Asker, request: m.GetVhostRequest, answer: Answer) -> None:
    state = asker.broker.definitions.state
    if asker.access.held_in(request.vhost) is None:
        asker.access.must_be("monitoring", "see vhosts of others")
    asker.access.must_be("management", "see vhosts")
    answer(Shown(_shown_vhost(asker, _vhost(state, request.vhost))))


def _put_vhost(asker: Asker, request: m.PutVhostRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "change vhosts")
    scope = asker.broker.definitions.state.scopes.get(request.vhost)
    known = scope.vhost if scope is not None else Vhost(request.vhost)
    wanted = Vhost(
        request.vhost,
        known.description if request.description is None else request.description,
        known.tags if request.tags is None else request.tags,
        known.default_queue_type
        if request.default_queue_type is None
        else request.default_queue_type,
    )
    what = f"{'change' if scope else 'add'} vhost {quoted(request.vhost)}"
    grant = Grant(request.vhost, asker.user, ALL, ALL, ALL)

    def there(result: Any) -> None:
        if request.tracing is not None and not isinstance(result, errors.Refusal):
            _set_tracing(asker, request.vhost, request.tracing)
        answer(result)

    def done(result: Any) -> None:
        if isinstance(result, errors.Refusal) or scope is not None or asker.rights is not None:
            there(result)  # a token's rights are those that it says
        else:  # as in RabbitMQ: otherwise no user could use it
            asker.change(f"{what}: all permissions in it", metadata.PutGrant(grant), there, result)

    asker.change(what, metadata.PutVhost(wanted), done, Put(scope is None))


def _trace_vhost(asker: Asker, request: m.TraceVhostRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "trace messages")
    _vhost(asker.broker.definitions.state, request.vhost)
    _set_tracing(asker, request.vhost, request.on)
    answer(Performed())


def _set_tracing(asker: Asker, vhost: str, on: bool) -> None:
    firehose = asker.broker.firehose
    (firehose.start if on else firehose.stop)(vhost)
    log.info(
        "user %s: tracing of vhost %s is %s on this node",
        quoted(asker.user),
        quoted(vhost),
        "on" if on else "off",
    )


def _protect_vhost(asker: Asker, request: m.ProtectVhostRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "protect vhosts")
    _vhost(asker.broker.definitions.state, request.vhost)
    what = (
        f"{'protect' if request.on else 'no longer protect'} vhost {quoted(request.vhost)} from "
        "deletion"
    )
    flag = vhost_protection.protection(request.vhost, request.on)
    asker.change(what, metadata.PutParameter(flag), answer)


def _delete_vhost(asker: Asker, request: m.DeleteVhostRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "delete vhosts")
    _vhost(asker.broker.definitions.state, request.vhost)
    what = f"delete vhost {quoted(request.vhost)} with everything in it"
    asker.change(what, metadata.DeleteVhost(request.vhost), answer)


# ------------------------------------------------------------------ permissions


def _shown_grant(grant: Grant) -> m.Value:
    if grant.exchange is None:
        return values.PermissionInfo(
            grant.user, grant.vhost, grant.configure, grant.write, grant.read
        )
    return values.TopicPermissionInfo(
        grant.user, grant.vhost, grant.exchange, grant.write, grant.read
    )


def _grants(
    state: MetadataState, vhost: str | None, user: str | None, topics: bool
) -> list[m.Value]:
    found = [
        grant
        for key, grant in state.grants.items()
        if (key[2] is not None) is topics and vhost in (None, key[0]) and user in (None, key[1])
    ]
    found.sort(key=lambda grant: (grant.vhost, grant.user, grant.exchange or ""))
    return [_shown_grant(grant) for grant in found]


def _list_permissions(asker: Asker, request: m.ListPermissionsRequest, answer: Answer) -> None:
    state = _looking(asker)
    if request.vhost is not None:
        _vhost(state, request.vhost)
    if request.user is not None:
        _user(state, request.user)
    _list(answer, _grants(state, request.vhost, request.user, request.topics))


def _get_permissions(asker: Asker, request: m.GetPermissionsRequest, answer: Answer) -> None:
    state = _looking(asker)
    _vhost(state, request.vhost)
    _user(state, request.user)
    found = _grants(state, request.vhost, request.user, request.topics)
    if request.topics:
        _list(answer, found)
    elif not found:
        raise errors.NotFound(
            f"user '{request.user}' has no permissions in vhost '{request.vhost}'"
        )
    else:
        answer(Shown(found[0]))


def _put_permissions(asker: Asker, request: m.PutPermissionsRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "set permissions")
    grant = request.grant
    known = (grant.vhost, grant.user, grant.exchange) in asker.broker.definitions.state.grants
    to = "" if grant.exchange is None else f" for topics of exchange {quoted(grant.exchange)}"
    patterns = ", ".join(map(quoted, (grant.configure, grant.write, grant.read)))
    what = (
        f"set permissions{to} of user {quoted(grant.user)} in vhost "
        f"{quoted(grant.vhost)} to {patterns}"
    )
    asker.change(what, metadata.PutGrant(grant), answer, Put(not known))


def _delete_permissions(asker: Asker, request: m.DeletePermissionsRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "clear permissions")
    state = asker.broker.definitions.state
    _vhost(state, request.vhost)
    _user(state, request.user)
    what = (
        f"clear {'' if request.exchange is None else 'topic '}permissions of user "
        f"{quoted(request.user)} in vhost {quoted(request.vhost)}"
    )
    command = metadata.DeleteGrant(request.vhost, request.user, request.exchange)
    asker.change(what, command, answer)


USER_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    m.GetWhoAmIRequest: _whoami,
    m.RenewTokenRequest: _renew_token,
    m.ListUsersRequest: _list_users,
    m.GetUserRequest: _get_user,
    m.PutUserRequest: _put_user,
    m.DeleteUserRequest: _delete_user,
    m.ListVhostsRequest: _list_vhosts,
    m.GetVhostRequest: _get_vhost,
    m.PutVhostRequest: _put_vhost,
    m.TraceVhostRequest: _trace_vhost,
    m.ProtectVhostRequest: _protect_vhost,
    m.DeleteVhostRequest: _delete_vhost,
    m.ListPermissionsRequest: _list_permissions,
    m.GetPermissionsRequest: _get_permissions,
    m.PutPermissionsRequest: _put_permissions,
    m.DeletePermissionsRequest: _delete_permissions,
}
