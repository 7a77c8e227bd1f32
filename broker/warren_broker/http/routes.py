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
from warren_broker.http.routing_table import HttpRoute, http_route, joined
from warren_wire.admin import resources
from warren_wire.admin.requests import AdminRequest, AdminRoute


def forwarded(route: AdminRoute, kind: type[AdminRequest[Any]]) -> HttpRoute:
    """Return the path of a route, answered as the node answers it."""
    names = route.names
    at = [part[1:] for part in route.http.split("/") if part.startswith(":")]
    keys = [key for key in kind.__struct_encode_fields__ if key not in (*names, *route.fixed)]
    keys.remove("token")

    async def answered(call: HttpCall) -> HttpReply:
        given = dict(zip(at, call.names, strict=True))
        fields = call.chosen(*keys) if route.body and keys else {}
        fields |= {name: given[name] for name in names}
        vhost = None if "vhost" in names else given.get("vhost")
        reply = await call.send(route, fields, vhost=vhost)
        if route.shows:
            return HttpReply(route.status or reply.status, reply.body)
        return done(reply) if route.status is None else HttpReply(route.status)

    return http_route(route.http, **{route.method: answered})


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
    *(forwarded(route, kind) for route, kind in resources.ROUTES.values() if route.http),
)
