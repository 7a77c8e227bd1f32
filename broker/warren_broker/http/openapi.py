"""The HTTP API as an OpenAPI 3.1 document, made from its table of routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from warren_broker.http.routing_table import HttpRoute
from warren_wire import VERSION
from warren_wire.admin.requests import summary_of

_REFERENCE: Final = "#/components/schemas/{name}"
_ANYTHING: Final[dict[str, Any]] = {}
_OF_LISTS: Final = ("page", "page_size", "name", "use_regex", "sort", "sort_reverse", "columns")


def document(routes: Sequence[HttpRoute]) -> dict[str, Any]:
    """Return the document; what has RabbitMQ's own form has no schema."""
    kinds = list(dict.fromkeys(route.reads for route in routes if route.reads))
    fields = [(kind, field) for kind in kinds for field in msgspec.structs.fields(kind)]
    shown = [route for route in routes if route.shows not in (None, type(None))]
    types = [*(field.type for _, field in fields), *(route.shows for route in shown)]
    schemas, named = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    asked: dict[Any, dict[str, Any]] = {kind: {} for kind in kinds}
    for (kind, field), schema in zip(fields, schemas, strict=False):
        asked[kind][field.encode_name] = schema
    answered = {
        (route.method, route.path): schema
        for route, schema in zip(shown, schemas[len(fields) :], strict=True)
    }
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        described = _described(route, asked.get(route.reads, {}))
        schema = answered.get((route.method, route.path), _ANYTHING)
        described["responses"] = {"default": {"description": "", "content": _json(schema)}}
        paths.setdefault(_path(route), {})[route.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Warren HTTP API", "version": VERSION},
        "servers": [{"url": "/api"}],
        "security": [{"basic": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": named,
            "securitySchemes": {
                scheme: {"type": "http", "scheme": scheme} for scheme in ("basic", "bearer")
            },
        },
    }


def _path(route: HttpRoute) -> str:
    return "/" + "/".join(f"{{{one[1:]}}}" if one[:1] == ":" else one for one in route.pattern)


def _described(route: HttpRoute, fields: dict[str, Any]) -> dict[str, Any]:
    """Return an operation: the tag that its user needs, and what is read of path, query, body."""
    names = [part[1:] for part in route.pattern if part.startswith(":")]
    text = {"type": "string"}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": fields.get(name, text)}
        for name in names
    ]
    if route.pages:
        parameters += [{"name": name, "in": "query", "schema": text} for name in _OF_LISTS]
    if route.method == "GET":
        beside = {key: one for key, one in fields.items() if key not in (*names, *route.without)}
        parameters += [{"name": key, "in": "query", "schema": one} for key, one in beside.items()]
    found: dict[str, Any] = {"x-tag": route.tag, "parameters": parameters}
    if about := summary_of(route.reads or route.by):
        found["summary"] = about
    body = {key: one for key, one in fields.items() if key not in (*names, *route.without)}
    if route.method in ("PUT", "POST") and (body or route.reads is None):
        schema: dict[str, Any] = {"type": "object", "properties": body}
        if route.reads is not None:
            needed = [f.encode_name for f in msgspec.structs.fields(route.reads) if f.required]
            schema["required"] = [name for name in needed if name in body]
        found["requestBody"] = {"content": _json(schema)}
    return found


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
