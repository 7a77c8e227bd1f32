"""Users, vhosts and permissions as RabbitMQ's HTTP API shows and changes them."""

from __future__ import annotations

import os
import time
from typing import Any

from warren_broker.http.calls import HttpCall, boolean, done
from warren_broker.http.queue_statistics import (
    VHOST_STATISTICS_KEYS,
    shown_vhost_statistics,
    vhost_statistics,
    wants_statistics,
)
from warren_broker.http.replies import (
    HttpRefusal,
    HttpReply,
    bad_request,
    object_not_found,
    refusal_of,
)
from warren_broker.http.routing_table import Answered, Answering, HttpRoute, http_route
from warren_broker.http.sample_ranges import ranges_of
from warren_broker.http.whole_cluster import nodes_alive
from warren_machines.metadata.passwords import SALT_BYTES, hash_password
from warren_machines.metadata.vhost_protection import PROTECTED
from warren_wire.admin import permissions, users
from warren_wire.admin.limits import ListUserLimitsRequest
from warren_wire.admin.requests import AdminRequest
from warren_wire.admin.vhosts import (
    DeleteVhostRequest,
    GetVhostRequest,
    ListVhostsRequest,
    PutVhostRequest,
)
from warren_wire.errors import PreconditionFailed

# ------------------------------------------------------------------ users


async def _hash_password(call: HttpCall) -> HttpReply:
    call.must_administer()
    return HttpReply(200, {"ok": hash_password(call.names[0], os.urandom(SALT_BYTES))})


async def _start_vhost(call: HttpCall) -> HttpReply:
    """Answer that a vhost runs on a node: here they all do, as long as the node does."""
    vhost, node = call.names
    call.must_administer()
    if node not in await nodes_alive(call):
        raise bad_request(f"Unknown node: {node}")
    await call.get(GetVhostRequest(vhost))
    return HttpReply(204)


async def _with_limits(call: HttpCall, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    limits = {one["user"]: one["value"] for one in await call.get(ListUserLimitsRequest())}
    return [{**user, "limits": limits.get(user["name"], {})} for user in known]


async def _list_users(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _with_limits(call, await call.get(users.ListUsersRequest())))


async def _without_permissions(call: HttpCall) -> HttpReply:
    known = await call.get(users.ListUsersRequest())
    permitted = {one["user"] for one in await call.get(permissions.ListPermissionsRequest())}
    left = [user for user in known if user["name"] not in permitted]
    return HttpReply(200, await _with_limits(call, left))


async def _get_user(call: HttpCall) -> HttpReply:
    found = await _with_limits(call, [await call.get(users.GetUserRequest(*call.names))])
    return HttpReply(200, found[0])


async def _put_user(call: HttpCall) -> HttpReply:
    body = call.chosen("password", "password_hash", "hashing_algorithm", "tags")
    if "password_hash" in body and "password" in body:
        raise bad_request("password and password_hash: give one of them")
    if "tags" not in body:
        raise bad_request("key_missing: tags")
    if body.get("password") == "":
        del body["password"]
        body["password_hash"] = ""
    if "password_hash" not in body and "password" not in body:
        known = await call.try_ask(users.GetUserRequest(*call.names))
        if known.condition:
            body["password_hash"] = ""  # as in RabbitMQ: a user that cannot log in with a password
    (route,) = users.PutUserRequest.ROUTES
    return done(await call.send(route, {"user": call.names[0], **body}))


async def _delete_users(call: HttpCall) -> HttpReply:
    given = call.fields().get("users")
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise bad_request("users: a list of names is expected")
    for name in given:
        await call.ask(users.DeleteUserRequest(name))
    return HttpReply(204)


# ------------------------------------------------------------------ vhosts


def _shown_vhost(vhost: dict[str, Any], alive: set[str]) -> dict[str, Any]:
    about = {key: vhost[key] for key in ("description", "tags", "default_queue_type")}
    protected = vhost[PROTECTED]
    if protected is not None:
        about[PROTECTED] = protected
    return {
        **vhost,
        "metadata": about,
        "cluster_state": dict.fromkeys(sorted(alive), "running"),
        PROTECTED: bool(protected),
    }


async def _list_vhosts(call: HttpCall) -> HttpReply:
    ranges_of(call.query)  # refused where they are wrong; samples are of one vhost
    found = await call.get(ListVhostsRequest())
    alive = await nodes_alive(call)
    shown = [_shown_vhost(one, alive) for one in found]
    if wants_statistics(call, VHOST_STATISTICS_KEYS):
        known = await vhost_statistics(call)
        shown = [one | shown_vhost_statistics(known.get(one["name"])) for one in shown]
    return HttpReply(200, shown)


async def _get_vhost(call: HttpCall) -> HttpReply:
    ranges = ranges_of(call.query)
    found = await call.get(GetVhostRequest(*call.names))
    shown = _shown_vhost(found, await nodes_alive(call))
    if wants_statistics(call, VHOST_STATISTICS_KEYS):
        known = await vhost_statistics(call, shown["name"], bool(ranges))
        now_ms = round(time.time() * 1000)
        shown |= shown_vhost_statistics(known.get(shown["name"]), ranges, now_ms)
    return HttpReply(200, shown)


async def _put_vhost(call: HttpCall) -> HttpReply:
    body = call.chosen("description", "tags", "tracing", "default_queue_type")
    if "tracing" in body:
        body["tracing"] = boolean("tracing", body["tracing"])
    (route,) = PutVhostRequest.ROUTES
    return done(await call.send(route, {"vhost": call.names[0], **body}))


async def _delete_vhost(call: HttpCall) -> HttpReply:
    reply = await call.try_ask(DeleteVhostRequest(*call.names))
    if reply.condition == PreconditionFailed.condition:
        raise HttpRefusal(412, "precondition_failed", str(reply.body))
    if reply.condition:
        raise refusal_of(reply, True)
    return done(reply)


# ------------------------------------------------------------------ permissions


async def _topic_permissions(call: HttpCall) -> HttpReply:
    found = await call.get(permissions.GetTopicPermissionsRequest(*call.names))
    if not found:
        raise object_not_found()
    return HttpReply(200, found)


async def _get_topic_permission(call: HttpCall) -> HttpReply:
    vhost, user, exchange = call.names
    found = await call.get(permissions.GetTopicPermissionsRequest(vhost, user))
    for one in found:
        if one["exchange"] == exchange:
            return HttpReply(200, one)
    raise object_not_found()


async def _delete_topic_permission(call: HttpCall) -> HttpReply:
    return done(await call.ask(permissions.DeleteTopicPermissionsRequest(*call.names)))


def _put_grant(kind: type[AdminRequest[Any]]) -> Answering:
    (route,) = kind.ROUTES

    async def put(call: HttpCall) -> HttpReply:
        given = call.chosen(*kind.__struct_encode_fields__)
        vhost, user = call.names
        reply = await call.try_send(route, {**given, "vhost": vhost, "user": user})
        if reply.status == 404:
            raise bad_request(f"vhost_or_user_not_found: {reply.body}")
        if reply.condition:
            raise refusal_of(reply, False)
        return done(reply)

    return put


async def _delete_permissions(call: HttpCall) -> HttpReply:
    await call.get(permissions.GetPermissionsRequest(*call.names))
    return done(await call.ask(permissions.DeletePermissionsRequest(*call.names)))


ROUTES: tuple[HttpRoute, ...] = (
    http_route("/auth/hash_password/:password", GET=_hash_password),
    http_route("/users", GET=_list_users),
    http_route("/users/bulk-delete", POST=Answered(_delete_users, "administrator")),
    http_route("/users/without-permissions", GET=_without_permissions),
    http_route("/users/:user", GET=_get_user, PUT=_put_user),
    http_route("/vhosts", GET=_list_vhosts),
    http_route("/vhosts/:vhost/start/:node", POST=_start_vhost),
    http_route("/vhosts/:vhost", GET=_get_vhost, PUT=_put_vhost, DELETE=_delete_vhost),
    http_route(
        "/permissions/:vhost/:user",
        PUT=_put_grant(permissions.PutPermissionsRequest),
        DELETE=_delete_permissions,
    ),
    http_route(
        "/topic-permissions/:vhost/:user",
        GET=_topic_permissions,
        PUT=_put_grant(permissions.PutTopicPermissionsRequest),
    ),
    http_route(
        "/topic-permissions/:vhost/:user/:exchange",
        GET=_get_topic_permission,
        DELETE=_delete_topic_permission,
    ),
)
