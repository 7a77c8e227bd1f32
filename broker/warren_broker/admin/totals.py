"""What the nodes count as a `/management` resource: of Warren, for the HTTP API's overview."""

from __future__ import annotations

from typing import Any

from warren_broker.admin import resource
from warren_broker.admin.resource import ManagementRequest, Names, Query


class GetTotalsRequest(ManagementRequest, frozen=True):
    """GET /totals?counts=. Answer: Shown (ClusterTotals).

    counts  False: no node is asked
    """

    counts: bool = True


def _get(names: Names, query: Query, body: Any) -> ManagementRequest:
    return GetTotalsRequest(query.get("counts", "") != "false")


ROUTES: tuple[resource.ManagementRoute, ...] = (resource.route("GET", "/totals", _get),)
