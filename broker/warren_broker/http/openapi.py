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
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_OBJECTS: Final = {"type": "array", "items": {"type": "object"}}
_NUMBERS_OF_PAGES: Final = (
    *("total_count", "item_count", "filtered_count", "page", "page_size", "page_count"),
)
_OWN: Final[dict[str, Any]] = {
    "Refusal": {
        "type": "object",
        "properties": {"error": _TEXT, "reason": {}},
        "required": ["error", "reason"],
    },
    "Unhealthy": {
        "type": "object",
        "properties": {"status": _TEXT, "error": _TEXT, "reason": {}},
        "required": ["reason"],
    },
    "Page": {
        "type": "object",
        "properties": {**dict.fromkeys(_NUMBERS_OF_PAGES, _COUNT), "items": _OBJECTS},
        "required": [*_NUMBERS_OF_PAGES, "items"],
    },
}
"""What is answered in RabbitMQ's form."""
_LIST: Final = {"oneOf": [_OBJECTS, {"$ref": _REFERENCE.format(name="Page")}]}
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
        described["responses"] = _responses(route, answered.get((route.method, route.path)))
        paths.setdefault(_path(route), {})[route.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Warren HTTP API", "version": VERSION},
        "servers": [{"url": "/api"}],
        "security": [{"basic": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": {**named, **_OWN},
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


def _responses(route: HttpRoute, schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return what may be answered: of a list that is divided, the list or a page of it."""
    if schema is None:
        schema = _LIST if route.pages else _ANYTHING
    seen = {"description": "what is asked for", "content": _json(schema)}
    refused = {"description": "refused", "content": _json(_ref("Refusal"))}
    found = {"4XX": refused, "503": {**refused, "description": "not possible now"}}
    if route.pattern[0] in ("health", "healthchecks"):
        found["503"] = {"description": "not healthy", "content": _json(_ref("Unhealthy"))}
    if route.method == "GET":
        return {"200": seen, **found}
    changed = {"200": seen, "202": {**seen, "description": "begun"}}
    changed |= {"201": {"description": "made"}, "204": {"description": "done"}}
    return {**changed, "303": {"description": "done, as a form asks for"}, **found}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REFERENCE.format(name=name)}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
