"""Parameters, shovels, federation links and definitions over HTTP."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import msgspec

from warren_broker.http.calls import HttpCall, done
from warren_broker.http.forms import form_fields
from warren_broker.http.overview import RABBITMQ_VERSION
from warren_broker.http.replies import HttpReply, bad_request, object_not_found, refusal_of
from warren_broker.http.routing_table import MAX_BODY_SIZE, Answered, HttpRoute, http_route
from warren_wire.admin import parameters as m
from warren_wire.admin.definitions import ExportRequest, ImportRequest
from warren_wire.admin.shovels import ListLinksRequest, ListShovelsRequest, ShovelRequest


async def _parameter(call: HttpCall) -> dict[str, Any]:
    component, vhost, name = call.names
    for one in await call.get(m.ListParametersRequest(component, vhost)):
        if one["name"] == name:
            return dict(one)
    raise object_not_found()


async def _get_parameter(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _parameter(call))


def _value(call: HttpCall) -> Any:
    given = call.fields()
    if "value" not in given:
        raise bad_request("key_missing: value")
    return given["value"]


async def _put_parameter(call: HttpCall) -> HttpReply:
    (route,), (component, vhost, name) = m.PutParameterRequest.ROUTES, call.names
    fields = {"component": component, "vhost": vhost, "name": name, "value": _value(call)}
    return done(await call.send(route, fields))


async def _delete_parameter(call: HttpCall) -> HttpReply:
    await _parameter(call)
    return done(await call.ask(m.DeleteParameterRequest(*call.names)))


async def _global(call: HttpCall) -> dict[str, Any]:
    for one in await call.get(m.ListGlobalParametersRequest()):
        if one["name"] == call.names[0]:
            return dict(one)
    raise object_not_found()


async def _get_global(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _global(call))


async def _put_global(call: HttpCall) -> HttpReply:
    (route,) = m.PutGlobalParameterRequest.ROUTES
    return done(await call.send(route, {"name": call.names[0], "value": _value(call)}))


async def _delete_global(call: HttpCall) -> HttpReply:
    await _global(call)
    return done(await call.ask(m.DeleteGlobalParameterRequest(*call.names)))


# ------------------------------------------------------------------ shovels, federation links


def _told(shovel: dict[str, Any]) -> dict[str, Any]:
    """Return a shovel without what says nothing."""
    return {key: value for key, value in shovel.items() if value not in ("", None)}


async def _list_shovels(call: HttpCall) -> HttpReply:
    return HttpReply(200, [_told(one) for one in await call.get(ListShovelsRequest(*call.names))])


async def _get_shovel(call: HttpCall) -> HttpReply:
    return HttpReply(200, _told(await call.get(ShovelRequest(*call.names))))


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
    found = await call.get(ListLinksRequest(*call.names))
    return HttpReply(200, [shown_link(one) for one in found])


# ------------------------------------------------------------------ definitions


async def _export(call: HttpCall) -> HttpReply:
    reply = await call.try_ask(ExportRequest(*call.names))
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
    found = await call.ask(ImportRequest(body, call.names[0] if call.names else None))
    if then and then.isprintable() and not urlsplit(then).netloc and not urlsplit(then).scheme:
        return HttpReply(303, headers={"location": then})
    left = found.body["not_honoured_count"]
    return HttpReply(200, found.body) if left else HttpReply(204)


_IMPORTED = Answered(_import, "administrator", MAX_BODY_SIZE)
ROUTES: tuple[HttpRoute, ...] = (
    http_route(
        "/parameters/:component/:vhost/:name",
        GET=_get_parameter,
        PUT=_put_parameter,
        DELETE=_delete_parameter,
    ),
    http_route("/global-parameters/:name", GET=_get_global, PUT=_put_global, DELETE=_delete_global),
    http_route("/shovels", GET=_list_shovels),
    http_route("/shovels/:vhost", GET=_list_shovels),
    http_route("/shovels/vhost/:vhost/:name", GET=_get_shovel),
    http_route("/federation-links", GET=_list_links),
    http_route("/federation-links/:vhost", GET=_list_links),
    http_route("/definitions", GET=_export, POST=_IMPORTED),
    http_route("/all-configuration", GET=_export, POST=_IMPORTED),
    http_route("/definitions/:vhost", GET=_export, POST=_IMPORTED),
)
