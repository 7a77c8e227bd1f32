"""`/api/bindings`: bindings as RabbitMQ's HTTP API shows and changes them."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

from warren_broker.http.binding_keys import properties_key
from warren_broker.http.calls import HttpCall, argument_table, done, exchange_name, text
from warren_broker.http.replies import HttpReply, object_not_found
from warren_broker.http.routing_table import HttpRoute, http_route
from warren_wire.admin.bindings import BindRequest, ListBindingsRequest, UnbindRequest

KINDS = {"q": "queue", "e": "exchange"}


def shown_binding(vhost: str, binding: dict[str, Any]) -> dict[str, Any]:
    """Return a binding with RabbitMQ's keys."""
    kind = "queue" if "destination_queue" in binding else "exchange"
    return {
        "source": binding["source"],
        "vhost": vhost,
        "destination": binding[f"destination_{kind}"],
        "destination_type": kind,
        "routing_key": binding["binding_key"],
        "arguments": binding["arguments"],
        "properties_key": properties_key(binding["binding_key"], binding["arguments"]),
    }


async def bindings_of(call: HttpCall, vhost: str, **chosen: Any) -> list[dict[str, Any]]:
    """Return the node's bindings of a vhost; chosen: source, queue, exchange."""
    return list(await call.get(ListBindingsRequest(**chosen), vhost=vhost))


async def _shown(call: HttpCall, vhost: str) -> list[dict[str, Any]]:
    return [shown_binding(vhost, one) for one in await bindings_of(call, vhost)]


async def _list(call: HttpCall) -> HttpReply:
    return HttpReply(200, await call.of_vhosts(partial(_shown, call)))


async def _list_vhost(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _shown(call, call.names[0]))


async def _between(call: HttpCall) -> tuple[str, list[dict[str, Any]]]:
    """Return the vhost, and the bindings between source and destination; raises HttpRefusal."""
    vhost, source, kind, destination = call.names[:4]
    if kind not in KINDS:
        raise object_not_found()
    name = destination if kind == "q" else exchange_name(destination)
    chosen = {"source": exchange_name(source), KINDS[kind]: name}
    return vhost, await bindings_of(call, vhost, **chosen)


async def _list_between(call: HttpCall) -> HttpReply:
    vhost, found = await _between(call)
    return HttpReply(200, [shown_binding(vhost, one) for one in found])


async def _bind(call: HttpCall) -> HttpReply:
    vhost, source, kind, destination = call.names
    if kind not in KINDS:
        raise object_not_found()
    given = call.chosen("routing_key", "arguments")
    key = text("routing_key", given.get("routing_key", ""))
    arguments = argument_table(given.get("arguments", {}))
    body = {
        "source": exchange_name(source),
        f"destination_{KINDS[kind]}": destination,
        "binding_key": key,
        "arguments": arguments,
    }
    await call.send(BindRequest.ROUTES[0], body, vhost=vhost)
    # Relative, as from RabbitMQ: clients split it.
    location = f"{quote_plus(destination)}/{quote(properties_key(key, arguments), safe='')}"
    return HttpReply(201, headers={"location": location})


async def _one(call: HttpCall) -> tuple[str, dict[str, Any]]:
    vhost, found = await _between(call)
    for binding in found:
        if shown_binding(vhost, binding)["properties_key"] == call.names[4]:
            return vhost, binding
    raise object_not_found()


async def _get(call: HttpCall) -> HttpReply:
    return HttpReply(200, shown_binding(*await _one(call)))


async def _unbind(call: HttpCall) -> HttpReply:
    vhost, binding = await _one(call)
    return done(await call.ask(UnbindRequest(binding["location"].rpartition("/")[2]), vhost=vhost))


_BETWEEN = "/bindings/:vhost/e/:source/:kind/:destination"
ROUTES: tuple[HttpRoute, ...] = (
    http_route("/bindings", GET=_list),
    http_route("/bindings/:vhost", GET=_list_vhost),
    http_route(_BETWEEN, GET=_list_between, POST=_bind),
    http_route(f"{_BETWEEN}/:key", GET=_get, DELETE=_unbind),
)
