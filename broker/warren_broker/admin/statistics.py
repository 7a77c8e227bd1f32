"""What clients did, by queue, exchange, vhost and node: `/management` for the HTTP API."""

from __future__ import annotations

from typing import Any

from warren_broker.admin import resource
from warren_broker.admin.resource import ManagementRequest, Names, Query


class GetQueueStatisticsRequest(ManagementRequest, frozen=True):
    """GET /statistics/queues?name=&samples=. Answer: Listed (QueueStatistics), by name.

    Queues that no client has used since the nodes' starts are left out.

    name     only the queue with this name; "": all of the vhost
    samples  with those that the nodes have kept; of one queue
    """

    name: str = ""
    samples: bool = False


class GetExchangeStatisticsRequest(ManagementRequest, frozen=True):
    """GET /statistics/exchanges?name=&samples=. Answer: Listed (QueueStatistics), by name.

    Exchanges through which no client has published since the nodes' starts are left out.

    name  only the exchange with this name, `amq.default` is the default one; "": all of the vhost
    """

    name: str = ""
    samples: bool = False


class GetVhostStatisticsRequest(ManagementRequest, frozen=True):
    """GET /statistics/vhosts?name=&samples=. Answer: Listed (QueueStatistics), by name.

    name  only the vhost with this name; "": all that the user sees
    """

    name: str = ""
    samples: bool = False


class GetNodeStatisticsRequest(ManagementRequest, frozen=True):
    """GET /statistics/nodes. Answer: Shown (QueueStatistics): sums, with the nodes' samples."""


class GetGaugeStatisticsRequest(ManagementRequest, frozen=True):
    """GET /statistics/gauges?samples=. Answer: Listed (QueueStatistics), by node.

    What each node has in use (`message_stats.NODE_STATS`).
    """

    samples: bool = False


def _named(
    kind: type[GetQueueStatisticsRequest]
    | type[GetExchangeStatisticsRequest]
    | type[GetVhostStatisticsRequest],
) -> resource.Make:
    def parse(names: Names, query: Query, body: Any) -> ManagementRequest:
        name = query.get("name", "")
        return kind(name, bool(name) and resource.is_set(query, "samples"))

    return parse


def _get_nodes(names: Names, query: Query, body: Any) -> ManagementRequest:
    return GetNodeStatisticsRequest()


def _get_gauges(names: Names, query: Query, body: Any) -> ManagementRequest:
    return GetGaugeStatisticsRequest(resource.is_set(query, "samples"))


ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("GET", "/statistics/queues", _named(GetQueueStatisticsRequest)),
    resource.route("GET", "/statistics/exchanges", _named(GetExchangeStatisticsRequest)),
    resource.route("GET", "/statistics/vhosts", _named(GetVhostStatisticsRequest)),
    resource.route("GET", "/statistics/nodes", _get_nodes),
    resource.route("GET", "/statistics/gauges", _get_gauges),
)
