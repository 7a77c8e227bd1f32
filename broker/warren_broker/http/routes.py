"""All paths of the HTTP API; of two patterns that fit a path the first one counts."""

from __future__ import annotations

from typing import Any

from warren_broker.http import (
    access_routes,
    binding_routes,
    cluster_routes,
    connection_routes,
    consumer_routes,
    exchange_routes,
    feature_flags,
    parameter_routes,
    queue_routes,
)
from warren_broker.http.calls import HttpCall, done
from warren_broker.http.replies import HttpReply
from warren_broker.http.routing_table import Answering, HttpRoute, http_route, joined
from warren_wire.admin import resources
from warren_wire.admin.requests import AdminRequest, AdminRoute


def forwarded(route: AdminRoute, kind: type[AdminRequest[Any]]) -> Answering:
    """Answer a request as the node answers it: the fields are in the path and the body."""
    keys = kind.__struct_encode_fields__ if route.body else ()

    async def answered(call: HttpCall) -> HttpReply:
        given = call.chosen(*keys) if route.body else {}
        fields = {**given, **dict(zip(route.names, call.names, strict=True))}
        reply = await call.send(route, {k: v for k, v in fields.items() if k not in route.fixed})
        return HttpReply(200, reply.body) if route.method == "GET" else done(reply)

    return answered


ROUTES: tuple[HttpRoute, ...] = joined(
    *cluster_routes.ROUTES,
    *feature_flags.ROUTES,
    *connection_routes.ROUTES,
    *consumer_routes.ROUTES,
    *queue_routes.ROUTES,
    *exchange_routes.ROUTES,
    *binding_routes.ROUTES,
    *access_routes.ROUTES,
    *parameter_routes.ROUTES,
    *(
        http_route(f"/{'/'.join(route.pattern)}", **{route.method: forwarded(route, kind)})
        for route, kind in resources.ROUTES.values()
        if route.http
    ),
)
