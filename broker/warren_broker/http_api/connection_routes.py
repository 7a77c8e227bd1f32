"""`/api/connections`, `/api/channels`: as RabbitMQ's HTTP API shows and closes them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from warren_broker.http_api.calls import HttpCall, path_of
from warren_broker.http_api.replies import HttpReply, object_not_found
from warren_broker.http_api.routing_table import HttpRoute, http_route


def shown_connection(one: dict[str, Any]) -> dict[str, Any]:
    """Return a connection with RabbitMQ's keys."""
    kept = {key: value for key, value in one.items() if key != "user_provided_name" or value}
    del kept["open_channels"]
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


# ------------------------------------------------------------------ channels


def shown_channels(connection: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the channels of a connection with RabbitMQ's keys."""
    of = {key: connection[key] for key in ("name", "peer_host", "peer_port")}
    return [
        {
            "name": f"{connection['name']} ({one['number']})",
            "node": connection["node"],
            "user": connection["user"],
            "vhost": connection["vhost"],
            "connection_details": of,
            "state": "running",
            "consumer_count": len(one["consumers"]),
            "consumer_details": [
                {"consumer_tag": tag, "queue": {"name": queue, "vhost": connection["vhost"]}}
                for tag, queue in one["consumers"]
            ],
            **{key: value for key, value in one.items() if key != "consumers"},
        }
        for one in connection["open_channels"]
    ]


async def _channels(call: HttpCall, **chosen: str) -> list[dict[str, Any]]:
    given = {key: value for key, value in chosen.items() if value}
    found = await call.get(f"/connections?{urlencode({**given, 'channels': 'true'})}")
    return [channel for one in found for channel in shown_channels(one)]


async def _list_channels(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _channels(call))


async def _get_channel(call: HttpCall) -> HttpReply:
    name = call.names[0].rpartition(" (")[0]
    for one in await _channels(call, name=name) if name else []:
        if one["name"] == call.names[0]:
            return HttpReply(200, one)
    raise object_not_found()


async def _of_connection(call: HttpCall) -> HttpReply:
    await _get(call)
    return HttpReply(200, await _channels(call, name=call.names[0]))


async def _channels_of_vhost(call: HttpCall) -> HttpReply:
    await call.get(path_of("vhosts", *call.names))
    return HttpReply(200, await _channels(call, vhost=call.names[0]))


ROUTES: tuple[HttpRoute, ...] = (
    http_route("/channels", GET=_list_channels),
    http_route("/channels/:channel", GET=_get_channel),
    http_route("/vhosts/:vhost/channels", GET=_channels_of_vhost),
    http_route("/connections", GET=_list),
    http_route("/connections/:connection", GET=_get, DELETE=_close),
    http_route("/connections/username/:user", GET=_list_user, DELETE=_close_user),
    http_route("/connections/:connection/channels", GET=_of_connection),
    http_route("/vhosts/:vhost/connections", GET=_list_vhost),
)
