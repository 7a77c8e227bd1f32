"""What clients did with queues, and on the nodes, as `/management` resources for the HTTP API."""

from __future__ import annotations

from typing import Any

from warren_broker.management import resource
from warren_broker.management.resource import ManagementRequest, Names, Query


class GetQueueStatisticsRequest(ManagementRequest, frozen=True):
    """GET /statistics/queues?name=&samples=. Answer: Listed (QueueStatistics), by name.

    Queues that no client has used since the nodes' starts are left out.

    name     only the queue with this name; "": all of the vhost
    samples  with those that the nodes have kept; of one queue
    """

    name: str = ""
    samples: bool = False


class GetNodeStatisticsRequest(ManagementRequest, frozen=True):
    """GET /statistics/nodes. Answer: Shown (QueueStatistics): sums, with the nodes' samples."""


def _get(names: Names, query: Query, body: Any) -> ManagementRequest:
    name = query.get("name", "")
    return GetQueueStatisticsRequest(name, bool(name) and resource.is_set(query, "samples"))


def _get_nodes(names: Names, query: Query, body: Any) -> ManagementRequest:
    return GetNodeStatisticsRequest()


ROUTES: tuple[resource.Route, ...] = (
    resource.route("GET", "/statistics/queues", _get),
    resource.route("GET", "/statistics/nodes", _get_nodes),
)
