"""Handlers of the requests for permissions. Every change is logged with the requesting user."""

from __future__ import annotations

import msgspec

from warren_broker.admin.caller import Answer, Asker, made_from
from warren_broker.admin.users import LESS, LISTED_MAX, user_of
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.records import Grant
from warren_machines.metadata.vhosts_and_users import check_patterns
from warren_wire import errors
from warren_wire.admin import permissions as m
from warren_wire.admin.requests import Put
from warren_wire.quoting import quoted


def _grants(
    asker: Asker, vhost: str | None, user: str | None, *, topics: bool = False
) -> list[object]:
    """Return the permissions in a vhost, or of a user; raises NotFound for an unknown one."""
    state = asker.state
    if vhost is not None:
        asker.scope(vhost)
    if user is not None:
        user_of(state, user)
    found = [
        grant
        for key, grant in state.grants.items()
        if (key[2] is not None) is topics and vhost in (None, key[0]) and user in (None, key[1])
    ]
    found.sort(key=lambda grant: (grant.vhost, grant.user, grant.exchange or ""))
    kind = m.TopicPermissionInfo if topics else m.PermissionInfo
    return [msgspec.convert(grant, kind, from_attributes=True) for grant in found]


def _list(
    asker: Asker,
    request: m.ListPermissionsRequest
    | m.ListTopicPermissionsRequest
    | m.GetTopicPermissionsRequest,
    answer: Answer,
) -> None:
    topics = not isinstance(request, m.ListPermissionsRequest)
    found = _grants(asker, request.vhost, request.user, topics=topics)
    answer(asker.listed(found, LISTED_MAX, "permissions", LESS))


def _get_permissions(asker: Asker, request: m.GetPermissionsRequest, answer: Answer) -> None:
    found = _grants(asker, request.vhost, request.user)
    if not found:
        raise errors.NotFound(
            f"user '{request.user}' has no permissions in vhost '{request.vhost}'"
        )
    answer(found[0])


def _put_permissions(asker: Asker, request: m.PutPermissionsRequest, answer: Answer) -> None:
    _put(asker, made_from(Grant, request), answer)


def _put_topics(asker: Asker, request: m.PutTopicPermissionsRequest, answer: Answer) -> None:
    _put(asker, made_from(Grant, request, configure=""), answer)


def _put(asker: Asker, grant: Grant, answer: Answer) -> None:
    check_patterns(grant)
    known = (grant.vhost, grant.user, grant.exchange) in asker.state.grants
    to = "" if grant.exchange is None else f" for topics of exchange {quoted(grant.exchange)}"
    patterns = ", ".join(map(quoted, (grant.configure, grant.write, grant.read)))
    what = (
        f"set permissions{to} of user {quoted(grant.user)} in vhost "
        f"{quoted(grant.vhost)} to {patterns}"
    )
    asker.change(what, metadata.PutGrant(grant), answer, Put(not known))


def _delete_permissions(asker: Asker, request: m.DeletePermissionsRequest, answer: Answer) -> None:
    _delete(asker, "", metadata.DeleteGrant(request.vhost, request.user, None), answer)


def _delete_topics(asker: Asker, request: m.DeleteTopicPermissionsRequest, answer: Answer) -> None:
    command = metadata.DeleteGrant(request.vhost, request.user, request.exchange)
    _delete(asker, "topic ", command, answer)


def _delete(asker: Asker, kind: str, command: metadata.DeleteGrant, answer: Answer) -> None:
    asker.scope(command.vhost)
    user_of(asker.state, command.user)
    what = (
        f"clear {kind}permissions of user {quoted(command.user)} in vhost {quoted(command.vhost)}"
    )
    asker.change(what, command, answer)
