"""Definitions, single parameters, shovels and federation links over HTTP."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from warren_broker.http.calls import HttpCall
from warren_broker.http.overview import RABBITMQ_VERSION
from warren_broker.http.replies import HttpReply, bad_request, refusal_of
from warren_broker.http.routing_table import MAX_BODY_SIZE, answers
from warren_wire.admin.definitions import ExportRequest, ImportRequest
from warren_wire.admin.parameters import ListGlobalParametersRequest, ListParametersRequest
from warren_wire.admin.shovels import ListLinksRequest, ListShovelsRequest, ShovelRequest

FORM: Final = "multipart/form-data"
PARTS_MAX: Final = 16


@answers("GET /parameters/:component/:vhost/:name")
async def _get_parameter(call: HttpCall, component: str, vhost: str, name: str) -> dict[str, Any]:
    return call.one_of(await call.get(ListParametersRequest(component, vhost)), name=name)


@answers("GET /global-parameters/:name")
async def _get_global(call: HttpCall, name: str) -> dict[str, Any]:
    return call.one_of(await call.get(ListGlobalParametersRequest()), name=name)


# ------------------------------------------------------------------ shovels, federation links


def _told(shovel: dict[str, Any]) -> dict[str, Any]:
    """Return a shovel without what says nothing, with RabbitMQ's word for no end."""
    left = shovel["remaining"]
    told = {key: value for key, value in shovel.items() if value not in ("", None)}
    return told | dict.fromkeys(
        ("remaining", "remaining_unacked"), "unlimited" if left is None else left
    )


@answers("GET /shovels", "GET /shovels/:vhost")
async def _list_shovels(call: HttpCall, *vhost: str) -> list[dict[str, Any]]:
    return [_told(one) for one in await call.get(ListShovelsRequest(*vhost))]


@answers("GET /shovels/vhost/:vhost/:name")
async def _get_shovel(call: HttpCall, vhost: str, name: str) -> dict[str, Any]:
    """Return a shovel's state and, where the user sees it, the parameter that it is."""
    told = _told(await call.get(ShovelRequest(vhost, name)))
    reply = await call.try_ask(ListParametersRequest("shovel", vhost))
    found = [] if reply.condition else [one for one in reply.body if one["name"] == name]
    return found[0] | told if found else told


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
    cluster = document.get("original_cluster_name")
    of = f"virtual host '{vhost[0]}'" if vhost else f"cluster '{cluster}'"
    first = {
        "explanation": f"Definitions of {of}",
        **dict.fromkeys(("rabbit_version", "rabbitmq_version"), RABBITMQ_VERSION),
    }
    return HttpReply(200, {**first, **document}, headers)


def form_fields(content_type: str, body: bytes) -> dict[str, bytes] | None:
    """Return the fields of a form by name, of several with one name the last; None: it is none.

    raises  HttpRefusal: it is no form after all, or has more than PARTS_MAX fields
    source  RFC 7578, multipart/form-data
    """
    if content_type.partition(";")[0].strip().lower() != FORM:
        return None
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1")
    boundary = BytesParser(policy=HTTP).parsebytes(head, headersonly=True).get_boundary()
    # Counted before anything is made of the parts; one more ends them.
    if boundary and body.count(f"--{boundary}".encode("latin-1", "replace")) > PARTS_MAX + 1:
        raise bad_request(f"the form has more than {PARTS_MAX} fields")
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    if not message.is_multipart():
        raise bad_request(f"the body is not {FORM} with the boundary in its content-type")
    found: dict[str, bytes] = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(data, bytes):
            found[name] = data
    return found


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
