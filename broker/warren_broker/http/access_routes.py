"""Users, vhosts, permissions and limits as RabbitMQ's HTTP API shows and changes them."""

from __future__ import annotations

import os
import time
from typing import Any

from warren_broker.http.calls import HttpCall, boolean, done, path_of
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
from warren_wire.errors import PreconditionFailed

USER_FIELDS = ("password", "password_hash", "hashing_algorithm", "tags")
VHOST_FIELDS = ("description", "tags", "tracing", "default_queue_type")


def forward_list(*path: str) -> Answering:
    """Answer with what the node has at the path, with the names at its end."""

    async def listed(call: HttpCall) -> HttpReply:
        return HttpReply(200, await call.get(path_of(*path, *call.names)))

    return listed


def forward_delete(*path: str) -> Answering:
    """Delete what the node has at the path, with the names at its end."""

    async def deleted(call: HttpCall) -> HttpReply:
        return done(await call.ask("DELETE", path_of(*path, *call.names)))

    return deleted


def forward_put(*path: str, fields: tuple[str, ...]) -> Answering:
    """Put these fields of the body at the path, with the names at its end."""

    async def put(call: HttpCall) -> HttpReply:
        body = call.chosen(*fields)
        return done(await call.ask("PUT", path_of(*path, *call.names), body))

    return put


# ------------------------------------------------------------------ users


async def _whoami(call: HttpCall) -> HttpReply:
    return HttpReply(200, await call.get("/whoami"))


async def _hash_password(call: HttpCall) -> HttpReply:
    call.must_administer()
    return HttpReply(200, {"ok": hash_password(call.names[0], os.urandom(SALT_BYTES))})


async def _start_vhost(call: HttpCall) -> HttpReply:
    """Answer that a vhost runs on a node: here they all do, as long as the node does."""
    vhost, node = call.names
    call.must_administer()
    if node not in await nodes_alive(call):
        raise bad_request(f"Unknown node: {node}")
    await call.get(path_of("vhosts", vhost))
    return HttpReply(204)


async def _with_limits(call: HttpCall, users: list[dict[str, Any]]) -> list[dict[str, Any]]:
    limits = {one["user"]: one["value"] for one in await call.get("/user-limits")}
    return [{**user, "limits": limits.get(user["name"], {})} for user in users]


async def _list_users(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _with_limits(call, await call.get("/users")))


async def _without_permissions(call: HttpCall) -> HttpReply:
    users = await call.get("/users")
    permitted = {one["user"] for one in await call.get("/permissions")}
    left = [user for user in users if user["name"] not in permitted]
    return HttpReply(200, await _with_limits(call, left))


async def _get_user(call: HttpCall) -> HttpReply:
    found = await _with_limits(call, [await call.get(path_of("users", *call.names))])
    return HttpReply(200, found[0])


async def _put_user(call: HttpCall) -> HttpReply:
    body = call.chosen(*USER_FIELDS)
    if "password_hash" in body and "password" in body:
        raise bad_request("password and password_hash: give one of them")
    if "tags" not in body:
        raise bad_request("key_missing: tags")
    if body.get("password") == "":
        del body["password"]
        body["password_hash"] = ""
    if "password_hash" not in body and "password" not in body:
        known = await call.try_ask("GET", path_of("users", *call.names))
        if known.condition:
            body["password_hash"] = ""  # as in RabbitMQ: a user that cannot log in with a password
    return done(await call.ask("PUT", path_of("users", *call.names), body))


async def _delete_users(call: HttpCall) -> HttpReply:
    given = call.fields().get("users")
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise bad_request("users: a list of names is expected")
    for name in given:
        await call.ask("DELETE", path_of("users", name))
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
    found = await call.get("/vhosts")
    alive = await nodes_alive(call)
    shown = [_shown_vhost(one, alive) for one in found]
    if wants_statistics(call, VHOST_STATISTICS_KEYS):
        known = await vhost_statistics(call)
        shown = [one | shown_vhost_statistics(known.get(one["name"])) for one in shown]
    return HttpReply(200, shown)


async def _get_vhost(call: HttpCall) -> HttpReply:
    ranges = ranges_of(call.query)
    found = await call.get(path_of("vhosts", *call.names))
    shown = _shown_vhost(found, await nodes_alive(call))
    if wants_statistics(call, VHOST_STATISTICS_KEYS):
        known = await vhost_statistics(call, shown["name"], bool(ranges))
        now_ms = round(time.time() * 1000)
        shown |= shown_vhost_statistics(known.get(shown["name"]), ranges, now_ms)
    return HttpReply(200, shown)


async def _put_vhost(call: HttpCall) -> HttpReply:
    body = call.chosen(*VHOST_FIELDS)
    if "tracing" in body:
        body["tracing"] = boolean("tracing", body["tracing"])
    return done(await call.ask("PUT", path_of("vhosts", *call.names), body))


async def _delete_vhost(call: HttpCall) -> HttpReply:
    reply = await call.try_ask("DELETE", path_of("vhosts", *call.names))
    if reply.condition == PreconditionFailed.condition:
        raise HttpRefusal(412, "precondition_failed", str(reply.body))
    if reply.condition:
        raise refusal_of(reply, True)
    return done(reply)


async def _protect_vhost(call: HttpCall) -> HttpReply:
    await call.ask(call.method, path_of("vhosts", *call.names, "deletion", "protection"))
    return HttpReply(204)


# ------------------------------------------------------------------ permissions


async def _topic_permissions(call: HttpCall) -> HttpReply:
    found = await call.get(path_of("topic-permissions", *call.names))
    if not found:
        raise object_not_found()
    return HttpReply(200, found)


async def _get_topic_permission(call: HttpCall) -> HttpReply:
    vhost, user, exchange = call.names
    found = await call.get(path_of("topic-permissions", vhost, user))
    for one in found:
        if one["exchange"] == exchange:
            return HttpReply(200, one)
    raise object_not_found()


async def _delete_topic_permission(call: HttpCall) -> HttpReply:
    vhost, user, exchange = call.names
    path = path_of("topic-permissions", vhost, user, exchange=exchange)
    return done(await call.ask("DELETE", path))


def _put_grant(kind: str, fields: tuple[str, ...]) -> Answering:
    async def put(call: HttpCall) -> HttpReply:
        body = call.chosen(*fields)
        reply = await call.try_ask("PUT", path_of(kind, *call.names), body)
        if reply.status == 404:
            raise bad_request(f"vhost_or_user_not_found: {reply.body}")
        if reply.condition:
            raise refusal_of(reply, False)
        return done(reply)

    return put


async def _delete_permissions(call: HttpCall) -> HttpReply:
    path = path_of("permissions", *call.names)
    await call.get(path)
    return done(await call.ask("DELETE", path))


def _grant_routes(
    kind: str, fields: tuple[str, ...], get: Answering, delete: Answering
) -> tuple[HttpRoute, ...]:
    async def of_user(call: HttpCall) -> HttpReply:
        return HttpReply(200, await call.get(path_of("users", call.names[0], kind)))

    async def of_vhost(call: HttpCall) -> HttpReply:
        return HttpReply(200, await call.get(path_of("vhosts", call.names[0], kind)))

    return (
        http_route(f"/{kind}", GET=forward_list(kind)),
        http_route(
            f"/{kind}/:vhost/:user",
            GET=get,
            PUT=_put_grant(kind, fields),
            DELETE=delete,
        ),
        http_route(f"/users/:user/{kind}", GET=of_user),
        http_route(f"/vhosts/:vhost/{kind}", GET=of_vhost),
    )


# ------------------------------------------------------------------ limits


def _limit_routes(of: str) -> tuple[HttpRoute, ...]:
    kind = f"{of}-limits"
    return (
        http_route(f"/{kind}", GET=forward_list(kind)),
        http_route(f"/{kind}/:name", GET=forward_list(kind)),
        http_route(
            f"/{kind}/:name/:limit",
            PUT=forward_put(kind, fields=("value",)),
            DELETE=forward_delete(kind),
        ),
    )


ROUTES: tuple[HttpRoute, ...] = (
    http_route("/whoami", GET=_whoami),
    http_route("/auth/hash_password/:password", GET=_hash_password),
    http_route("/users", GET=_list_users),
    http_route("/users/bulk-delete", POST=Answered(_delete_users, "administrator")),
    http_route("/users/without-permissions", GET=_without_permissions),
    http_route("/users/:user", GET=_get_user, PUT=_put_user, DELETE=forward_delete("users")),
    http_route("/vhosts", GET=_list_vhosts),
    http_route("/vhosts/:vhost/start/:node", POST=_start_vhost),
    http_route("/vhosts/:vhost", GET=_get_vhost, PUT=_put_vhost, DELETE=_delete_vhost),
    http_route("/vhosts/:vhost/deletion/protection", POST=_protect_vhost, DELETE=_protect_vhost),
    *_grant_routes(
        "permissions",
        ("configure", "write", "read"),
        forward_list("permissions"),
        _delete_permissions,
    ),
    *_grant_routes(
        "topic-permissions",
        ("exchange", "write", "read"),
        _topic_permissions,
        forward_delete("topic-permissions"),
    ),
    http_route(
        "/topic-permissions/:vhost/:user/:exchange",
        GET=_get_topic_permission,
        DELETE=_delete_topic_permission,
    ),
    *_limit_routes("vhost"),
    *_limit_routes("user"),
)
