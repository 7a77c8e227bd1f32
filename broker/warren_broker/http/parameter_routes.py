"""Policies, parameters, shovels, federation links and definitions over HTTP."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import msgspec

from warren_broker.http.access_routes import forward_delete, forward_list
from warren_broker.http.calls import HttpCall, done, path_of
from warren_broker.http.forms import form_fields
from warren_broker.http.overview import RABBITMQ_VERSION
from warren_broker.http.replies import HttpReply, bad_request, object_not_found, refusal_of
from warren_broker.http.routing_table import MAX_BODY_SIZE, Answered, HttpRoute, http_route

POLICY_FIELDS = ("pattern", "definition", "priority", "apply-to")

# ------------------------------------------------------------------ policies, parameters


def _policy_routes(kind: str) -> tuple[HttpRoute, ...]:
    async def put(call: HttpCall) -> HttpReply:
        body = call.chosen(*POLICY_FIELDS)
        return done(await call.ask("PUT", path_of(kind, *call.names), body))

    one = f"/{kind}/:vhost/:name"
    return (
        http_route(f"/{kind}", GET=forward_list(kind)),
        http_route(f"/{kind}/:vhost", GET=forward_list(kind)),
        http_route(one, GET=forward_list(kind), PUT=put, DELETE=forward_delete(kind)),
    )


async def _parameter(call: HttpCall) -> dict[str, Any]:
    component, vhost, name = call.names
    for one in await call.get(path_of("parameters", component, vhost)):
        if one["name"] == name:
            return dict(one)
    raise object_not_found()


async def _get_parameter(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _parameter(call))


async def _put_value(call: HttpCall, kind: str) -> HttpReply:
    given = call.fields()
    if "value" not in given:
        raise bad_request("key_missing: value")
    body = {"value": given["value"]}
    return done(await call.ask("PUT", path_of(kind, *call.names), body))


async def _put_parameter(call: HttpCall) -> HttpReply:
    return await _put_value(call, "parameters")


async def _delete_parameter(call: HttpCall) -> HttpReply:
    await _parameter(call)
    return done(await call.ask("DELETE", path_of("parameters", *call.names)))


async def _global(call: HttpCall) -> dict[str, Any]:
    for one in await call.get("/global-parameters"):
        if one["name"] == call.names[0]:
            return dict(one)
    raise object_not_found()


async def _get_global(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _global(call))


async def _put_global(call: HttpCall) -> HttpReply:
    return await _put_value(call, "global-parameters")


async def _delete_global(call: HttpCall) -> HttpReply:
    await _global(call)
    return done(await call.ask("DELETE", path_of("global-parameters", *call.names)))


# ------------------------------------------------------------------ shovels, federation links


def _told(shovel: dict[str, Any]) -> dict[str, Any]:
    """Return a shovel without what says nothing."""
    return {key: value for key, value in shovel.items() if value not in ("", None)}


async def _list_shovels(call: HttpCall) -> HttpReply:
    return HttpReply(200, [_told(one) for one in await call.get(path_of("shovels", *call.names))])


async def _get_shovel(call: HttpCall) -> HttpReply:
    return HttpReply(200, _told(await call.get(path_of("shovels", "vhost", *call.names))))


async def _restart_shovel(call: HttpCall) -> HttpReply:
    return done(await call.ask("DELETE", path_of("shovels", "vhost", *call.names, "restart")))


async def _pause_shovel(call: HttpCall) -> HttpReply:
    path = path_of("shovels", "vhost", *call.names, "pause")
    return done(await call.ask(call.method, path))


def shown_link(link: dict[str, Any]) -> dict[str, Any]:
    """Return a federation link with RabbitMQ's keys."""
    kind = "queue" if link["dest_queue"] else "exchange"
    shown = {
        "node": link["node"],
        kind: link[f"dest_{kind}"],
        f"upstream_{kind}": link[f"src_{kind}"],
        "type": kind,
        "vhost": link["vhost"],
        "upstream": link["name"],
        "status": {"terminated": "error"}.get(link["state"], link["state"]),
        "uri": link["src_uri"],
    }
    return {**shown, "error": link["reason"]} if link["reason"] else shown


async def _list_links(call: HttpCall) -> HttpReply:
    found = await call.get(path_of("federation-links", *call.names))
    return HttpReply(200, [shown_link(one) for one in found])


# ------------------------------------------------------------------ definitions


async def _export(call: HttpCall) -> HttpReply:
    reply = await call.try_ask("GET", path_of("definitions", *call.names))
    if reply.condition:
        raise bad_request("vhost_not_found") if reply.status == 404 else refusal_of(reply, True)
    found = reply.body
    document = msgspec.json.decode(zlib.decompress(found["document"]))
    headers = {}
    if call.query.get("download"):
        name = call.query["download"].encode("ascii", "ignore").decode()
        kept = "".join(one for one in name if one.isalnum() or one in "._-@")
        headers["content-disposition"] = f'attachment; filename="{kept}"'
    versions = {"rabbit_version": RABBITMQ_VERSION, "rabbitmq_version": RABBITMQ_VERSION}
    return HttpReply(200, {**versions, **document}, headers)


class _AnyObject(msgspec.Struct):
    """An object of which nothing is looked at."""


async def _import(call: HttpCall) -> HttpReply:
    """Import definitions: 204, or 200 with the report where something has no effect here.

    A form (multipart/form-data) has them in its field `file`, as rabbitmqadmin and pages send them;
    with a field `redirect`, a path of this server, it is answered by 303.
    """
    fields = await asyncio.to_thread(form_fields, call.content_type, call.body)
    given, then = call, ""
    if fields is not None:
        given = replace(call, body=fields.get("file", b""))
        then = fields.get("redirect", b"").decode("latin-1").strip()
        if not given.body:
            raise bad_request("failed_to_parse_json: the form has no field 'file'")
    given.pieces(_AnyObject)
    body = await asyncio.to_thread(zlib.compress, given.body, 1)
    found = await call.ask("POST", path_of("definitions", *call.names), body)
    if then and then.isprintable() and not urlsplit(then).netloc and not urlsplit(then).scheme:
        return HttpReply(303, headers={"location": then})
    left = found.body["not_honoured_count"]
    return HttpReply(200, found.body) if left else HttpReply(204)


_IMPORTED = Answered(_import, "administrator", MAX_BODY_SIZE)
_SHOVEL_PATH = "/shovels/vhost/:vhost/:name"
ROUTES: tuple[HttpRoute, ...] = (
    *_policy_routes("policies"),
    *_policy_routes("operator-policies"),
    http_route("/parameters", GET=forward_list("parameters")),
    http_route("/parameters/:component", GET=forward_list("parameters")),
    http_route("/parameters/:component/:vhost", GET=forward_list("parameters")),
    http_route(
        "/parameters/:component/:vhost/:name",
        GET=_get_parameter,
        PUT=_put_parameter,
        DELETE=_delete_parameter,
    ),
    http_route("/global-parameters", GET=forward_list("global-parameters")),
    http_route("/global-parameters/:name", GET=_get_global, PUT=_put_global, DELETE=_delete_global),
    http_route("/shovels", GET=_list_shovels),
    http_route("/shovels/:vhost", GET=_list_shovels),
    http_route(_SHOVEL_PATH, GET=_get_shovel, DELETE=forward_delete("shovels", "vhost")),
    http_route(f"{_SHOVEL_PATH}/restart", DELETE=_restart_shovel),
    http_route(f"{_SHOVEL_PATH}/pause", PUT=_pause_shovel, DELETE=_pause_shovel),
    http_route("/federation-links", GET=_list_links),
    http_route("/federation-links/:vhost", GET=_list_links),
    http_route("/definitions", GET=_export, POST=_IMPORTED),
    http_route("/all-configuration", GET=_export, POST=_IMPORTED),
    http_route("/definitions/:vhost", GET=_export, POST=_IMPORTED),
)
