"""Exchanges and bindings as RabbitMQ's HTTP API shows and changes them."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from functools import partial
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec

from warren_broker.http.calls import HttpCall, exchange_name
from warren_broker.http.frames import NodeReply
from warren_broker.http.listing import Paging, page_of, paging_of
from warren_broker.http.messages import publish_message
from warren_broker.http.replies import HttpRefusal, HttpReply, object_not_found
from warren_broker.http.routing_table import MAX_BODY_SIZE, answers
from warren_broker.http.samples import Range, ranges_of
from warren_broker.http.statistics import (
    of_exchange,
    of_pair,
    pairs_of,
    statistics_of,
    wants_statistics,
)
from warren_wire.admin.exchanges import (
    BindRequest,
    DeleteExchangeRequest,
    ListBindingsRequest,
    ListExchangesRequest,
    UnbindRequest,
)
from warren_wire.admin.queue_pages import BINDING_SORTS, PageBindingsRequest
from warren_wire.admin.statistics import DEFAULT_EXCHANGE, GetStatisticsRequest

EMPTY_KEY: Final = "~"
KEY_DIGEST_BYTES: Final = 12
KINDS: Final = {"q": "queue", "e": "exchange"}
_BETWEEN: Final = "/bindings/:vhost/e/:source/:kind/:destination"
_ONE_EXCHANGE: Final = "/exchanges/:vhost/:exchange"

# ------------------------------------------------------------------ exchanges


async def _of_vhost(call: HttpCall, vhost: str) -> list[dict[str, Any]]:
    found = await call.get(ListExchangesRequest(), vhost=vhost)
    return [{**one, "vhost": vhost, "policy": one["policy"] or None} for one in found]


async def _with_statistics(call: HttpCall, vhost: str) -> list[dict[str, Any]]:
    """Return a vhost's exchanges with their `message_stats`; the nodes are asked once."""
    shown = await _of_vhost(call, vhost)
    if not wants_statistics(call, ("message_stats",)):
        return shown
    found = await statistics_of(call, GetStatisticsRequest("exchanges"), vhost)
    return [one | of_exchange(found.get(one["name"])) for one in shown]


@answers("GET /exchanges", "GET /exchanges/:vhost", pages=True)
async def _list(call: HttpCall, vhost: str | None = None) -> list[dict[str, Any]]:
    ranges_of(call.query)  # refused where they are wrong; samples are of one exchange
    if vhost is None:
        return await call.of_vhosts(partial(_with_statistics, call))
    return await _with_statistics(call, vhost)


async def _known(call: HttpCall, vhost: str, exchange: str) -> dict[str, Any]:
    """Return an exchange; raises HttpRefusal."""
    return call.one_of(await _of_vhost(call, vhost), name=exchange_name(exchange))


@answers(f"GET {_ONE_EXCHANGE}")
async def _get(call: HttpCall, vhost: str, exchange: str) -> dict[str, Any]:
    wanted = ranges_of(call.query).msg_rates
    shown = await _known(call, vhost, exchange)
    if wants_statistics(call, ("message_stats",)):
        name = shown["name"] or DEFAULT_EXCHANGE
        asked = GetStatisticsRequest("exchanges", name, wanted is not None)
        shown |= of_exchange((await statistics_of(call, asked, vhost)).get(shown["name"]), wanted)
    return shown | await _pairs(call, vhost, shown["name"] or DEFAULT_EXCHANGE, wanted)


async def _pairs(call: HttpCall, vhost: str, exchange: str, wanted: Range | None) -> dict[str, Any]:
    """Return which channels have published to an exchange, and to which queues that went."""
    found = await pairs_of(call, vhost, exchange=exchange, samples=wanted is not None)
    return {
        key: [of_pair(one, vhost, "exchange", wanted) for one in found[kind]]
        for key, kind in (("incoming", "publishes"), ("outgoing", "routes"))
    }


@answers(f"DELETE {_ONE_EXCHANGE}")
async def _delete(call: HttpCall, vhost: str, exchange: str) -> NodeReply:
    known = await _known(call, vhost, exchange)
    asked = DeleteExchangeRequest(known["name"], call.query.get("if-unused") == "true")
    return await call.ask(asked, vhost=vhost)


@answers(f"GET {_ONE_EXCHANGE}/bindings/source")
async def _from(call: HttpCall, vhost: str, exchange: str) -> list[dict[str, Any]]:
    return await bindings_of(call, vhost, source=(await _known(call, vhost, exchange))["name"])


@answers(f"GET {_ONE_EXCHANGE}/bindings/destination")
async def _to(call: HttpCall, vhost: str, exchange: str) -> list[dict[str, Any]]:
    return await bindings_of(call, vhost, exchange=(await _known(call, vhost, exchange))["name"])


@answers(f"POST {_ONE_EXCHANGE}/publish", bytes_max=MAX_BODY_SIZE)
async def _publish(call: HttpCall, vhost: str, exchange: str) -> dict[str, bool]:
    name = exchange_name(exchange)
    if all(one["name"] != name for one in await _of_vhost(call, vhost)):
        raise HttpRefusal(404, "not_found", "exchange_not_found")
    return {"routed": await publish_message(call, vhost, name)}


# ------------------------------------------------------------------ bindings


def properties_key(routing_key: str, arguments: dict[str, Any]) -> str:
    """Return the key that names one of the bindings between the same two objects.

    As in RabbitMQ it is the routing key, `~` for an empty one, with a digest of the arguments
    behind it if there are any. Clients take it from an answer and give it back: what it is made of
    is not theirs. Two with the same key are the same binding.
    """
    key = quote_plus(routing_key).replace("~", "%7E")
    if not arguments:
        return key or EMPTY_KEY
    packed = msgspec.msgpack.encode(arguments, order="sorted")
    digest = hashlib.sha256(packed).digest()[:KEY_DIGEST_BYTES]
    return f"{key}{EMPTY_KEY}{urlsafe_b64encode(digest).decode()}"


def _shown_binding(vhost: str, binding: dict[str, Any]) -> dict[str, Any]:
    kind = "queue" if "destination_queue" in binding else "exchange"
    shown = {
        "source": binding["source"],
        "vhost": vhost,
        "destination": binding[f"destination_{kind}"],
        "destination_type": kind,
        "routing_key": binding["binding_key"],
        "arguments": binding["arguments"],
    }
    return _with_key(shown)


def _with_key(shown: dict[str, Any]) -> dict[str, Any]:
    return {**shown, "properties_key": properties_key(shown["routing_key"], shown["arguments"])}


async def bindings_of(call: HttpCall, vhost: str, **chosen: Any) -> list[dict[str, Any]]:
    """Return bindings of a vhost with RabbitMQ's keys; chosen: source, queue, exchange."""
    found = await call.get(ListBindingsRequest(**chosen), vhost=vhost)
    return [_shown_binding(vhost, one) for one in found]


async def _page(call: HttpCall, vhost: str | None, paging: Paging) -> dict[str, Any]:
    asked = PageBindingsRequest(
        page=paging.page,
        page_size=paging.page_size,
        name=paging.name,
        use_regex=paging.use_regex,
        sort=call.query.get("sort", ""),
        sort_reverse=call.query.get("sort_reverse") == "true",
    )
    found = await call.get(asked, vhost=vhost)
    items = [_with_key(one) for one in found["items"]]
    return page_of(paging, items, found["filtered_count"], found["total_count"])


@answers("GET /bindings", "GET /bindings/:vhost")
async def _list_bindings(call: HttpCall, vhost: str | None = None) -> Any:
    """List bindings; the node finds those of a page in an order that it knows."""
    paging = paging_of(call.query) if call.query.get("pagination") == "true" else None
    if paging is not None and call.query.get("sort", "") in BINDING_SORTS.union([""]):
        return await _page(call, vhost, paging)
    if vhost is None:
        return await call.of_vhosts(partial(bindings_of, call))
    return await bindings_of(call, vhost)


def _between(source: str, kind: str, destination: str) -> dict[str, Any]:
    """Return what chooses the bindings between two objects; raises HttpRefusal."""
    if kind not in KINDS:
        raise object_not_found()
    name = destination if kind == "q" else exchange_name(destination)
    return {"source": exchange_name(source), KINDS[kind]: name}


@answers(f"GET {_BETWEEN}")
async def _list_between(call: HttpCall, vhost: str, *between: str) -> list[dict[str, Any]]:
    return await bindings_of(call, vhost, **_between(*between))


@answers(f"POST {_BETWEEN}")
async def _bind(call: HttpCall, vhost: str, source: str, kind: str, destination: str) -> HttpReply:
    ends = _between(source, kind, destination)
    given = call.chosen("routing_key", "arguments")
    key, arguments = given.get("routing_key", ""), given.get("arguments") or {}
    body = {
        "source": ends["source"],
        f"destination_{KINDS[kind]}": destination,
        "binding_key": key,
        "arguments": given.get("arguments", {}),
    }
    await call.send(BindRequest.ROUTES[0], body, vhost=vhost)
    # Relative, as from RabbitMQ: clients split it.
    location = f"{quote_plus(destination)}/{quote(properties_key(key, arguments), safe='')}"
    return HttpReply(201, headers={"location": location})


@answers(f"GET {_BETWEEN}/:key")
async def _get_binding(call: HttpCall, vhost: str, *named: str) -> dict[str, Any]:
    return call.one_of(await _list_between(call, vhost, *named[:3]), properties_key=named[3])


@answers(f"DELETE {_BETWEEN}/:key")
async def _unbind(call: HttpCall, vhost: str, *named: str) -> NodeReply:
    for one in await call.get(ListBindingsRequest(**_between(*named[:3])), vhost=vhost):
        if properties_key(one["binding_key"], one["arguments"]) == named[3]:
            return await call.ask(UnbindRequest(one["location"].rpartition("/")[2]), vhost=vhost)
    raise object_not_found()
