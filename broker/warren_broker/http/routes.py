"""All paths of the HTTP API; of two patterns that fit a path the first one counts."""

from __future__ import annotations

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
from warren_broker.http.routing_table import HttpRoute

ROUTES: tuple[HttpRoute, ...] = (
    *cluster_routes.ROUTES,
    *feature_flags.ROUTES,
    *connection_routes.ROUTES,
    *consumer_routes.ROUTES,
    *queue_routes.ROUTES,
    *exchange_routes.ROUTES,
    *binding_routes.ROUTES,
    *access_routes.ROUTES,
    *parameter_routes.ROUTES,
)
