"""Users, vhosts and permissions as RabbitMQ's HTTP API shows and changes them."""

from __future__ import annotations

import os
from typing import Any

from warren_broker.http.calls import HttpCall
from warren_broker.http.frames import NodeReply
from warren_broker.http.replies import bad_request, object_not_found
from warren_broker.http.routing_table import answers
from warren_broker.http.samples import ranges_of
from warren_broker.http.statistics import (
    VHOST_STATISTICS_KEYS,
    of_vhost,
    statistics_of,
    wants_statistics,
)
from warren_machines.metadata.passwords import SALT_BYTES, hash_password
from warren_machines.metadata.vhosts_and_users import PROTECTED
from warren_wire.admin import permissions, users
from warren_wire.admin.limits import ListUserLimitsRequest
from warren_wire.admin.statistics import GetStatisticsRequest
from warren_wire.admin.vhosts import GetVhostRequest, ListVhostsRequest

# ------------------------------------------------------------------ users


@answers("GET /auth/hash_password/:password", tag="administrator")
async def _hash_password(call: HttpCall, password: str) -> dict[str, str]:
    return {"ok": hash_password(password, os.urandom(SALT_BYTES))}


async def _with_limits(call: HttpCall, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    limits = {one["user"]: one["value"] for one in await call.get(ListUserLimitsRequest())}
    return [{**user, "limits": limits.get(user["name"], {})} for user in known]


@answers("GET /users", pages=True)
async def _list_users(call: HttpCall) -> list[dict[str, Any]]:
    return await _with_limits(call, await call.get(users.ListUsersRequest()))


@answers("GET /users/without-permissions", pages=True)
async def _without_permissions(call: HttpCall) -> list[dict[str, Any]]:
    known = await call.get(users.ListUsersRequest())
    permitted = {one["user"] for one in await call.get(permissions.ListPermissionsRequest())}
    return await _with_limits(call, [user for user in known if user["name"] not in permitted])


@answers("GET /users/:user")
async def _get_user(call: HttpCall, user: str) -> dict[str, Any]:
    return (await _with_limits(call, [await call.get(users.GetUserRequest(user))]))[0]


@answers("PUT /users/:user", tag="administrator", reads=users.PutUserRequest)
async def _put_user(call: HttpCall, user: str) -> NodeReply:
    """Add or change a user; as in RabbitMQ, one without a password cannot log in with one."""
    body = call.chosen("password", "password_hash", "hashing_algorithm", "tags")
    if "password_hash" in body and "password" in body:
        raise bad_request("password and password_hash: give one of them")
    if "tags" not in body:
        raise bad_request("key_missing: tags")
    if body.get("password") == "":
        del body["password"]
        body["password_hash"] = ""
    if "password_hash" not in body and "password" not in body:
        if (await call.try_ask(users.GetUserRequest(user))).condition:
            body["password_hash"] = ""
    return await call.send(users.PutUserRequest.ROUTES[0], {"user": user, **body})


@answers("POST /users/bulk-delete", tag="administrator")
async def _delete_users(call: HttpCall) -> None:
    given = call.fields().get("users")
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise bad_request("users: a list of names is expected")
    for name in given:
        await call.ask(users.DeleteUserRequest(name))


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


@answers("GET /vhosts", pages=True)
async def _list_vhosts(call: HttpCall) -> list[dict[str, Any]]:
    ranges_of(call.query)  # refused where they are wrong; samples are of one vhost
    found = await call.get(ListVhostsRequest())
    alive = await call.nodes_alive()
    shown = [_shown_vhost(one, alive) for one in found]
    if wants_statistics(call, VHOST_STATISTICS_KEYS):
        known = await statistics_of(call, GetStatisticsRequest("vhosts"))
        shown = [one | of_vhost(known.get(one["name"])) for one in shown]
    return shown


@answers("GET /vhosts/:vhost")
async def _get_vhost(call: HttpCall, vhost: str) -> dict[str, Any]:
    ranges = ranges_of(call.query)
    shown = _shown_vhost(await call.get(GetVhostRequest(vhost)), await call.nodes_alive())
    if wants_statistics(call, VHOST_STATISTICS_KEYS):
        known = await statistics_of(call, GetStatisticsRequest("vhosts", vhost, bool(ranges)))
        shown |= of_vhost(known.get(vhost), ranges)
    return shown


@answers("POST /vhosts/:vhost/start/:node", tag="administrator")
async def _start_vhost(call: HttpCall, vhost: str, node: str) -> None:
    """Answer that a vhost runs on a node: here they all do, as long as the node does."""
    if node not in await call.nodes_alive():
        raise bad_request(f"Unknown node: {node}")
    await call.get(GetVhostRequest(vhost))


# ------------------------------------------------------------------ permissions


@answers("GET /topic-permissions/:vhost/:user")
async def _topic_permissions(call: HttpCall, vhost: str, user: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await call.get(
        permissions.GetTopicPermissionsRequest(vhost, user)
    )
    if not found:
        raise object_not_found()
    return found


@answers("GET /topic-permissions/:vhost/:user/:exchange")
async def _topic_permission(call: HttpCall, vhost: str, user: str, exchange: str) -> dict[str, Any]:
    return call.one_of(await _topic_permissions(call, vhost, user), exchange=exchange)


@answers("DELETE /permissions/:vhost/:user")
async def _delete_permissions(call: HttpCall, vhost: str, user: str) -> NodeReply:
    await call.get(permissions.GetPermissionsRequest(vhost, user))
    return await call.ask(permissions.DeletePermissionsRequest(vhost, user))
