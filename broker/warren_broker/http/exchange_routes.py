"""`/api/exchanges`: exchanges as RabbitMQ's HTTP API shows and changes them."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from warren_broker.http.binding_routes import bindings_of, shown_binding
from warren_broker.http.calls import HttpCall, argument_table, boolean, done, exchange_name, text
from warren_broker.http.messages import publish_message
from warren_broker.http.queue_statistics import (
    exchange_statistics,
    shown_exchange_statistics,
    wants_statistics,
)
from warren_broker.http.replies import HttpRefusal, HttpReply, object_not_found
from warren_broker.http.routing_table import MAX_BODY_SIZE, Answered, HttpRoute, http_route
from warren_broker.http.sample_ranges import ranges_of
from warren_wire.admin.exchanges import (
    DeclareExchangeRequest,
    DeleteExchangeRequest,
    ListExchangesRequest,
)
from warren_wire.admin.statistics import DEFAULT_EXCHANGE

EXCHANGE_FLAGS = ("durable", "auto_delete", "internal")


def _shown(vhost: str, exchange: dict[str, Any]) -> dict[str, Any]:
    kept = {key: exchange[key] for key in ("name", "type", *EXCHANGE_FLAGS, "arguments")}
    return {**kept, "vhost": vhost, "policy": exchange["policy"] or None}


async def _of_vhost(call: HttpCall, vhost: str) -> list[dict[str, Any]]:
    return [_shown(vhost, one) for one in await call.get(ListExchangesRequest(), vhost=vhost)]


async def _with_statistics(call: HttpCall, vhost: str) -> list[dict[str, Any]]:
    """Return a vhost's exchanges with their `message_stats`; the nodes are asked once."""
    shown = await _of_vhost(call, vhost)
    if not wants_statistics(call, ("message_stats",)):
        return shown
    found = await exchange_statistics(call, vhost)
    return [one | shown_exchange_statistics(found.get(one["name"])) for one in shown]


async def _list(call: HttpCall) -> HttpReply:
    ranges_of(call.query)  # refused where they are wrong; samples are of one exchange
    return HttpReply(200, await call.of_vhosts(partial(_with_statistics, call)))


async def _list_vhost(call: HttpCall) -> HttpReply:
    ranges_of(call.query)
    return HttpReply(200, await _with_statistics(call, call.names[0]))


async def _find(call: HttpCall) -> dict[str, Any] | None:
    vhost, name = call.names[0], exchange_name(call.names[1])
    found = await _of_vhost(call, vhost)
    return next((one for one in found if one["name"] == name), None)


async def _known(call: HttpCall) -> tuple[str, str, dict[str, Any]]:
    """Return vhost, name and exchange; raises HttpRefusal."""
    found = await _find(call)
    if found is None:
        raise object_not_found()
    return call.names[0], found["name"], found


async def _get(call: HttpCall) -> HttpReply:
    wanted = ranges_of(call.query).msg_rates
    vhost, name, shown = await _known(call)
    if wants_statistics(call, ("message_stats",)):
        asked = name or DEFAULT_EXCHANGE
        found = await exchange_statistics(call, vhost, asked, wanted is not None)
        now_ms = round(time.time() * 1000)
        shown |= shown_exchange_statistics(found.get(name), wanted, now_ms)
    return HttpReply(200, shown)


async def _put(call: HttpCall) -> HttpReply:
    vhost, name = call.names[0], exchange_name(call.names[1])
    given = call.chosen("type", *EXCHANGE_FLAGS, "arguments")
    body: dict[str, Any] = {key: boolean(key, given[key]) for key in EXCHANGE_FLAGS if key in given}
    body["type"] = text("type", given.get("type", "direct"))
    body["arguments"] = argument_table(given.get("arguments", {}))
    known = await _find(call)
    (route,) = DeclareExchangeRequest.ROUTES
    await call.send(route, {"exchange": name, **body}, vhost=vhost)
    return HttpReply(201 if known is None else 204)


async def _delete(call: HttpCall) -> HttpReply:
    vhost, name, _ = await _known(call)
    unused = call.query.get("if-unused") == "true"
    return done(await call.ask(DeleteExchangeRequest(name, unused), vhost=vhost))


async def _from(call: HttpCall) -> HttpReply:
    vhost, name, _ = await _known(call)
    found = await bindings_of(call, vhost, source=name)
    return HttpReply(200, [shown_binding(vhost, one) for one in found])


async def _to(call: HttpCall) -> HttpReply:
    vhost, name, _ = await _known(call)
    found = await bindings_of(call, vhost, exchange=name)
    return HttpReply(200, [shown_binding(vhost, one) for one in found])


async def _publish(call: HttpCall) -> HttpReply:
    found = await _find(call)
    if found is None:
        raise HttpRefusal(404, "not_found", "exchange_not_found")
    vhost, name = call.names[0], found["name"]
    return HttpReply(200, {"routed": await publish_message(call, vhost, name)})


_ONE_EXCHANGE = "/exchanges/:vhost/:exchange"
ROUTES: tuple[HttpRoute, ...] = (
    http_route("/exchanges", GET=_list),
    http_route("/exchanges/:vhost", GET=_list_vhost),
    http_route(_ONE_EXCHANGE, GET=_get, PUT=_put, DELETE=_delete),
    http_route(f"{_ONE_EXCHANGE}/publish", POST=Answered(_publish, bytes_max=MAX_BODY_SIZE)),
    http_route(f"{_ONE_EXCHANGE}/bindings/source", GET=_from),
    http_route(f"{_ONE_EXCHANGE}/bindings/destination", GET=_to),
)
