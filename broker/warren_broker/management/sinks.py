"""What a queue remembers of sinks, as a `/management` resource."""

from __future__ import annotations

from typing import Any

from warren_broker.errors import InvalidArgument
from warren_broker.management import resource
from warren_broker.management.resource import ManagementRequest, Names, Query
from warren_broker.queue.sink_view import SINKS_LISTED_MAX


class ListSinksRequest(ManagementRequest, frozen=True):
    """GET /queues/:q/sinks?sink=S&run=R&count=N. Answer: Shown, of SinksInfo; 404.

    sink, run  "": all
    """

    name: str
    sink: str
    run: str
    count: int


def _list(names: Names, query: Query, body: Any) -> ManagementRequest:
    text = query.get("count", str(SINKS_LISTED_MAX))
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= SINKS_LISTED_MAX:
        raise InvalidArgument(f"count={text[:40]}: a number from 1 to {SINKS_LISTED_MAX}")
    sink, run = (resource.checked_name(key, query.get(key, "")) for key in ("sink", "run"))
    return ListSinksRequest(names[0], sink, run, int(text))


ROUTES: tuple[resource.Route, ...] = (resource.route("GET", "/queues/:queue/sinks", _list),)
