"""The table of the HTTP API: what the node answers as it is, and what has RabbitMQ's own form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warren_broker.http import (
    access,
    connections,
    definitions,
    exchanges,
    health,
    nodes,
    openapi,
    overview,
    queues,
)
from warren_broker.http.calls import HttpCall, done
from warren_broker.http.replies import HttpRefusal, HttpReply, bad_request, refusal_of
from warren_broker.http.routing_table import HttpRoute, RouteTable, http_route, routes_of
from warren_wire.admin import resources
from warren_wire.admin.requests import (
    AdminRoute,
    AnyAdminRequest,
    answer_type,
    queried,
)
from warren_wire.errors import InvalidArgument


def _as_the_node(route: AdminRoute, kind: type[AnyAdminRequest]) -> Iterator[HttpRoute]:
    """Yield the paths of a route that are answered as the node answers it."""
    over = route.http
    assert over is not None, route
    without = frozenset({"token", *route.fixed, *over.without})
    keys = {*kind.__struct_encode_fields__} - without
    for path in over.paths:
        at = [part[1:] for part in path.split("/") if part.startswith(":")]

        async def answered(call: HttpCall, *names: str, at: list[str] = at) -> HttpReply:
            given = _named(kind, dict(zip(at, names, strict=True)))
            body = _beside(call, route, kind) if keys.difference(given) else {}
            fields = {key: one for key, one in {**body, **given}.items() if key in keys}
            vhost = None if "vhost" in keys else given.get("vhost")
            reply = await call.try_send(route, fields, vhost=vhost)
            if reply.status in over.refused:
                status, error, before = over.refused[reply.status]
                raise HttpRefusal(status, error, f"{before}{reply.body}")
            if reply.condition:
                raise refusal_of(reply, route.method in ("GET", "DELETE"))
            if over.shows:
                return HttpReply(over.status or reply.status, reply.body)
            return done(reply) if over.status is None else HttpReply(over.status)

        yield http_route(
            f"{route.method} {path}",
            answered,
            tag=route.tag or "management",
            reads=kind,
            without=without,
            shows=answer_type(kind) if over.shows else None,
        )


def _named(kind: type[AnyAdminRequest], given: dict[str, str]) -> dict[str, Any]:
    """Return what a path says; raises HttpRefusal where a number is expected, and is none."""
    try:
        return given | queried(kind, given)
    except InvalidArgument as refused:
        raise bad_request(refused.detail) from None


def _beside(call: HttpCall, route: AdminRoute, kind: type[AnyAdminRequest]) -> dict[str, Any]:
    """Return what is said beside the path: in the body of a change, if it has one, or the query."""
    if route.method != "GET" and route.body:
        return call.fields()
    try:
        return queried(kind, call.query)
    except InvalidArgument as refused:
        raise bad_request(refused.detail) from None


async def _described(call: HttpCall) -> dict[str, Any]:
    """Return this table as an OpenAPI document."""
    return openapi.document(TABLE.routes)


_OWN = (access, connections, definitions, exchanges, health, nodes, overview, queues)
TABLE = RouteTable(
    [
        *routes_of(*_OWN),
        http_route("GET /openapi.json", _described),
        *(
            http
            for route, kind in resources.ROUTES.values()
            if route.http
            for http in _as_the_node(route, kind)
        ),
    ]
)
