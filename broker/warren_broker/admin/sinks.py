"""What a queue remembers of sinks, as `/management` resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from warren_broker.admin import resource
from warren_broker.admin.resource import ManagementRequest, Names, Query, Result
from warren_machines.queue.sink_view import SINKS_LISTED_MAX
from warren_wire.amqp10.proton import ulong
from warren_wire.errors import InvalidArgument


class ListSinksRequest(ManagementRequest, frozen=True):
    """GET /queues/:q/sinks?sink=S&run=R&count=N. Answer: Shown, of SinksInfo; 404.

    sink, run  "": all
    """

    name: str
    sink: str
    run: str
    count: int


class ForgetSinkRequest(ManagementRequest, frozen=True):
    """DELETE /queues/:q/sinks/:sink?run=R&force=true. Answer: SinkRunsForgotten; 404.

    Refused: 409 while something of it is staged, unless forced (`queue.commands.ForgetSink`).

    run  "": all of the sink's
    """

    name: str
    sink: str
    run: str
    force: bool


AnySinkRequest: TypeAlias = ListSinksRequest | ForgetSinkRequest


class SinkRunsForgotten(Result, frozen=True):
    """How many runs were forgotten, and staged messages dropped with them."""

    runs: int
    messages_staged: int


def _list(names: Names, query: Query, body: Any) -> ManagementRequest:
    text = query.get("count", str(SINKS_LISTED_MAX))
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= SINKS_LISTED_MAX:
        raise InvalidArgument(f"count={text[:40]}: a number from 1 to {SINKS_LISTED_MAX}")
    sink, run = (resource.checked_name(key, query.get(key, "")) for key in ("sink", "run"))
    return ListSinksRequest(names[0], sink, run, int(text))


def _forget(names: Names, query: Query, body: Any) -> ManagementRequest:
    force = query.get("force", "false")
    if force not in ("true", "false"):
        raise InvalidArgument(f"force={force[:40]}: true or false")
    run = resource.checked_name("run", query.get("run", ""))
    return ForgetSinkRequest(names[0], names[1], run, force == "true")


ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("GET", "/queues/:queue/sinks", _list),
    resource.route("DELETE", "/queues/:queue/sinks/:sink", _forget),
)
RENDERERS: dict[type[Result], Callable[[Any], resource.Answer]] = {
    SinkRunsForgotten: lambda result: (
        200,
        {"runs": ulong(result.runs), "messages_staged": ulong(result.messages_staged)},
    ),
}
