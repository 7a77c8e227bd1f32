"""`/api/connections`, `/api/channels`: as RabbitMQ's HTTP API shows and closes them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from warren_broker.counting.message_stats import CHANNEL_COUNTED, COUNTED, OCTETS, PUBLISH
from warren_broker.http.calls import HttpCall
from warren_broker.http.kept_samples import KeptSamples
from warren_broker.http.queue_statistics import (
    add_samples,
    client_stats,
    handed_out,
    shown_octets,
    summed_rows,
)
from warren_broker.http.replies import HttpReply, object_not_found
from warren_broker.http.routing_table import HttpRoute, http_route
from warren_broker.http.sample_ranges import Ranges, ranges_of
from warren_wire.admin.connections import PROTOCOL_091, EndConnectionRequest, ListConnectionsRequest
from warren_wire.admin.vhosts import GetVhostRequest


def shown_connection(one: dict[str, Any]) -> dict[str, Any]:
    """Return a connection with RabbitMQ's keys."""
    kept = {key: value for key, value in one.items() if key != "user_provided_name" or value}
    of_10 = ("container_id",) if one["protocol"] == PROTOCOL_091 else ()
    for key in ("open_channels", "rates", "samples", *of_10):
        kept.pop(key, None)
    kept |= {key: one.get(key) or None for key in ("ssl_protocol", "ssl_cipher")}
    more = {"user_who_performed_action": one["user"], "type": "network", "state": "running"}
    return {**kept, "client_properties": dict(one["client_properties"]), **more}


async def _found(call: HttpCall, **chosen: str) -> list[dict[str, Any]]:
    """Return connections, of all; samples are of one that is named."""
    given, ranges = _asked(call, chosen)
    found = await call.get(given)
    return [shown_connection(one) | _octets(call, one, ranges) for one in found]


def _asked(call: HttpCall, chosen: dict[str, Any]) -> tuple[ListConnectionsRequest, Ranges]:
    """Return the request for connections, and which samples are shown; raises HttpRefusal."""
    given = ListConnectionsRequest(**chosen)
    ranges = ranges_of(call.query)
    if not ranges or not given.name or not call.rates.on:
        return given, Ranges()
    return replace(given, samples=True), ranges


def _kept(one: dict[str, Any], names: Sequence[str]) -> KeptSamples:
    return KeptSamples([one["samples"]] if one.get("samples") else [], names=names)


def _octets(call: HttpCall, one: dict[str, Any], ranges: Ranges) -> dict[str, Any]:
    if not call.rates.on:
        return {}
    counts, now_ms = [one[name] for name in OCTETS], round(time.time() * 1000)
    rates, kept = one.get("rates", ()), _kept(one, OCTETS)
    return shown_octets(counts, rates, kept, ranges.data_rates, now_ms)


async def _list(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _found(call))


async def _list_vhost(call: HttpCall) -> HttpReply:
    await call.get(GetVhostRequest(call.names[0]))
    return HttpReply(200, await _found(call, vhost=call.names[0]))


async def _list_user(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _found(call, user=call.names[0]))


async def _get(call: HttpCall) -> HttpReply:
    found = await _found(call, name=call.names[0]) if call.names[0] else []
    if not found:
        raise object_not_found()
    return HttpReply(200, found[0])


async def _close_one(call: HttpCall, name: str) -> None:
    await call.ask(EndConnectionRequest(name, call.reason))


async def _close(call: HttpCall) -> HttpReply:
    await _close_one(call, call.names[0])
    return HttpReply(204)


async def _close_user(call: HttpCall) -> HttpReply:
    for one in await _found(call, user=call.names[0]):
        await _close_one(call, one["name"])
    return HttpReply(204)


# ------------------------------------------------------------------ channels


CHANNEL_COUNTS: Final = (
    *("session", "published", "confirmed", "returned", "dropped", "deliveries"),
    *("rates", "samples"),
)
"""Keys of a channel that `message_stats` is made of."""
_NO_RATES: Final = (0.0,) * len(CHANNEL_COUNTED)


def shown_channels(connection: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the channels of a connection with RabbitMQ's keys."""
    of = {key: connection[key] for key in ("name", "peer_host", "peer_port")}
    return [
        {
            "name": f"{connection['name']} ({one['number']})",
            "node": connection["node"],
            "user": connection["user"],
            "user_who_performed_action": connection["user"],
            "vhost": connection["vhost"],
            "connection_details": of,
            "state": "running",
            "consumer_count": len(one["consumers"]),
            "consumer_details": [
                {"consumer_tag": tag, "queue": {"name": queue, "vhost": connection["vhost"]}}
                for tag, queue in one["consumers"]
            ],
            **{key: one[key] for key in one if key not in ("consumers", *CHANNEL_COUNTS)},
        }
        for one in connection["open_channels"]
    ]


async def _channels(call: HttpCall, **chosen: str) -> list[dict[str, Any]]:
    return [shown for shown, _ in await _known_channels(call, **chosen)]


async def _known_channels(
    call: HttpCall, **chosen: str
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return channels as they are shown, each with what the node says of it."""
    given, ranges = _asked(call, chosen)
    found = await call.get(replace(given, channels=True))
    return [
        (shown | _message_stats(call, channel, ranges), channel)
        for one in found
        for shown, channel in zip(shown_channels(one), one["open_channels"], strict=True)
    ]


def _message_stats(call: HttpCall, one: dict[str, Any], ranges: Ranges) -> dict[str, Any]:
    """Return `message_stats` of a channel that has done something, each count with its rate."""
    if not call.rates.on:
        return {}
    rows = [row for _, row in one["deliveries"]]
    counts = summed_rows(rows) if rows else [0] * len(COUNTED)
    counts[PUBLISH] = one["published"]
    counts += [one["confirmed"], one["returned"], one.get("dropped", 0)]
    if not any(counts):
        return {}
    stats = client_stats(counts, one.get("rates") or _NO_RATES)
    if ranges.msg_rates is not None:
        now_ms = round(time.time() * 1000)
        add_samples(stats, _kept(one, CHANNEL_COUNTED), ranges.msg_rates, now_ms)
    return {"message_stats": stats}


def _deliveries(vhost: str, one: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"queue": {"name": queue, "vhost": vhost}, "stats": handed_out(row)}
        for queue, row in one["deliveries"]
        if queue  # not those that are counted together (`ChannelCounts`)
    ]


async def _list_channels(call: HttpCall) -> HttpReply:
    return HttpReply(200, await _channels(call))


async def _get_channel(call: HttpCall) -> HttpReply:
    name = call.names[0].rpartition(" (")[0]
    for shown, channel in await _known_channels(call, name=name) if name else []:
        if shown["name"] == call.names[0]:
            deliveries = _deliveries(shown["vhost"], channel) if call.rates.on else []
            return HttpReply(200, {**shown, "deliveries": deliveries})
    raise object_not_found()


async def _of_connection(call: HttpCall) -> HttpReply:
    await _get(call)
    return HttpReply(200, await _channels(call, name=call.names[0]))


async def _channels_of_vhost(call: HttpCall) -> HttpReply:
    await call.get(GetVhostRequest(call.names[0]))
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
