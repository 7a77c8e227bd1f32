"""Where a view of what a queue holds is cut, as a `/management` resource."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren_broker.admin import resource
from warren_broker.admin.resource import ManagementRequest, Names, Query, Result
from warren_machines.queue.view import EDGES_MAX
from warren_wire.amqp10.proton import ulong
from warren_wire.errors import InvalidArgument


class ViewEdgesRequest(ManagementRequest, frozen=True):
    """GET /queues/:q/view?states=ready,held&pieces=N. Answer: ViewEdges; 404; 409 too scattered."""

    name: str
    states: tuple[str, ...]
    pieces: int


class ViewEdges(Result, frozen=True):
    """Log indexes that cut the view: piece i is edges[i] <= index < edges[i + 1]."""

    edges: tuple[int, ...]


def _edges(names: Names, query: Query, body: Any) -> ManagementRequest:
    text = query.get("pieces", "1")
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= EDGES_MAX:
        raise InvalidArgument(f"pieces={text[:40]}: a number from 1 to {EDGES_MAX}")
    return ViewEdgesRequest(names[0], tuple(query.get("states", "").split(",")), int(text))


ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("GET", "/queues/:queue/view", _edges),
)


def _listed(result: ViewEdges) -> resource.Answer:
    return 200, {"edges": [ulong(edge) for edge in result.edges]}


RENDERERS: dict[type[Result], Callable[[Any], resource.Answer]] = {ViewEdges: _listed}
