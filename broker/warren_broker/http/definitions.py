"""Definitions, single parameters, shovels and federation links over HTTP."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import msgspec

from warren_broker.http.calls import HttpCall
from warren_broker.http.forms import form_fields
from warren_broker.http.overview import RABBITMQ_VERSION
from warren_broker.http.replies import HttpReply, bad_request, refusal_of
from warren_broker.http.routing_table import MAX_BODY_SIZE, answers
from warren_wire.admin.definitions import ExportRequest, ImportRequest
from warren_wire.admin.parameters import ListGlobalParametersRequest, ListParametersRequest
from warren_wire.admin.shovels import ListLinksRequest, ListShovelsRequest, ShovelRequest


@answers("GET /parameters/:component/:vhost/:name")
async def _get_parameter(call: HttpCall, component: str, vhost: str, name: str) -> dict[str, Any]:
    return call.one_of(await call.get(ListParametersRequest(component, vhost)), name=name)


@answers("GET /global-parameters/:name")
async def _get_global(call: HttpCall, name: str) -> dict[str, Any]:
    return call.one_of(await call.get(ListGlobalParametersRequest()), name=name)


# ------------------------------------------------------------------ shovels, federation links


def _told(shovel: dict[str, Any]) -> dict[str, Any]:
    """Return a shovel without what says nothing."""
    return {key: value for key, value in shovel.items() if value not in ("", None)}


@answers("GET /shovels", "GET /shovels/:vhost")
async def _list_shovels(call: HttpCall, *vhost: str) -> list[dict[str, Any]]:
    return [_told(one) for one in await call.get(ListShovelsRequest(*vhost))]


@answers("GET /shovels/vhost/:vhost/:name")
async def _get_shovel(call: HttpCall, vhost: str, name: str) -> dict[str, Any]:
    return _told(await call.get(ShovelRequest(vhost, name)))


def _shown_link(link: dict[str, Any]) -> dict[str, Any]:
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


@answers("GET /federation-links", "GET /federation-links/:vhost")
async def _list_links(call: HttpCall, *vhost: str) -> list[dict[str, Any]]:
    return [_shown_link(one) for one in await call.get(ListLinksRequest(*vhost))]


# ------------------------------------------------------------------ definitions


@answers("GET /definitions", "GET /all-configuration", "GET /definitions/:vhost")
async def _export(call: HttpCall, *vhost: str) -> HttpReply:
    reply = await call.try_ask(ExportRequest(*vhost))
    if reply.condition:
        raise bad_request("vhost_not_found") if reply.status == 404 else refusal_of(reply, True)
    document = msgspec.json.decode(zlib.decompress(reply.body["document"]))
    headers = {}
    if call.query.get("download"):
        name = call.query["download"].encode("ascii", "ignore").decode()
        kept = "".join(one for one in name if one.isalnum() or one in "._-@")
        headers["content-disposition"] = f'attachment; filename="{kept}"'
    versions = {"rabbit_version": RABBITMQ_VERSION, "rabbitmq_version": RABBITMQ_VERSION}
    return HttpReply(200, {**versions, **document}, headers)


class _AnyObject(msgspec.Struct):
    """An object of which nothing is looked at."""


@answers(
    *("POST /definitions", "POST /all-configuration", "POST /definitions/:vhost"),
    tag="administrator",
    bytes_max=MAX_BODY_SIZE,
)
async def _import(call: HttpCall, *vhost: str) -> HttpReply:
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
    found = await call.ask(ImportRequest(body, vhost[0] if vhost else None))
    if then and then.isprintable() and not urlsplit(then).netloc and not urlsplit(then).scheme:
        return HttpReply(303, headers={"location": then})
    left = found.body["not_honoured_count"]
    return HttpReply(200, found.body) if left else HttpReply(204)
