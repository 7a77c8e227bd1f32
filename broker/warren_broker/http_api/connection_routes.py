"""`/api/connections`: clients' connections as RabbitMQ's HTTP API shows and closes them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from warren_broker.http_api.calls import HttpCall, path_of
from warren_broker.http_api.replies import HttpReply, object_not_found
from warren_broker.http_api.routing_table import HttpRoute, http_route


def shown_connection(one: dict[str, Any]) -> dict[str, Any]:
    """Return a connection with RabbitMQ's keys."""
    kept = {key: value for key, value in one.items() if key != "user_provided_name" or value}
    if one["protocol"] != "AMQP 0-9-1":
        for key in ("channels", "channel_max", "frame_max"):
            del kept[key]
    said = dict(one["client_properties"])
    return {**kept, "client_properties": said, "type": "network", "state": "running"}


async def _found(call: HttpCall, **chosen: str) -> list[dict[str, Any]]:
    given = {key: value for key, value in chosen.items() if value}
    found = await call.get(f"/connections?{urlencode(given)}")
    return [shown_connection(one) for one in found]


async def _list(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _found(call))


async def _list_vhost(call: HttpCall) -> HttpReply:
    await call.get(path_of("vhosts", *call.names))
    return HttpReply(200, await _found(call, vhost=call.names[0]))


async def _list_user(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _found(call, user=call.names[0]))


async def _get(call: HttpCall) -> HttpReply:
    found = await _found(call, name=call.names[0]) if call.names[0] else []
    if not found:
        raise object_not_found()
    return HttpReply(200, found[0])


async def _close_one(call: HttpCall, name: str) -> None:
    await call.ask("DELETE", path_of("connections", name, reason=call.reason))


async def _close(call: HttpCall) -> HttpReply:
    await _close_one(call, call.names[0])
    return HttpReply(204)


async def _close_user(call: HttpCall) -> HttpReply:
    for one in await _found(call, user=call.names[0]):
        await _close_one(call, one["name"])
    return HttpReply(204)


ROUTES: tuple[HttpRoute, ...] = (
    http_route("/connections", GET=_list),
    http_route("/connections/:connection", GET=_get, DELETE=_close),
    http_route("/connections/username/:user", GET=_list_user, DELETE=_close_user),
    http_route("/vhosts/:vhost/connections", GET=_list_vhost),
)
