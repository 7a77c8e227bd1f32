"""Connections, channels and consumers as RabbitMQ's HTTP API shows and closes them."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from warren_broker.counting.message_stats import CHANNEL_COUNTED, COUNTED, OCTETS, PUBLISH
from warren_broker.http.calls import HttpCall
from warren_broker.http.replies import bad_request
from warren_broker.http.routing_table import answers
from warren_broker.http.samples import Ranges, ranges_of
from warren_broker.http.statistics import Statistics, handed_out, idle_since, of_pair, pairs_of
from warren_wire.admin.connections import (
    PROTOCOL_091,
    EndConnectionRequest,
    ListConnectionsRequest,
    ListConsumersRequest,
)
from warren_wire.admin.vhosts import GetVhostRequest


def shown_connection(one: dict[str, Any]) -> dict[str, Any]:
    """Return a connection with RabbitMQ's keys."""
    kept = {key: value for key, value in one.items() if key != "user_provided_name" or value}
    of_10 = ("container_id",) if one["protocol"] == PROTOCOL_091 else ()
    for key in ("open_channels", "rates", "samples", "capabilities", *of_10):
        kept.pop(key, None)
    more = {"user_who_performed_action": one["user"], "type": "network", "state": "running"}
    properties = dict(one["client_properties"])
    if one["capabilities"]:
        properties["capabilities"] = one["capabilities"]
    return {**kept, "client_properties": properties, **more}


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


def _statistics(one: dict[str, Any], counts: list[int], names: tuple[str, ...]) -> Statistics:
    kept = [one["samples"]] if one.get("samples") else []
    return Statistics(counts, one.get("rates") or (), kept, names)


def _octets(call: HttpCall, one: dict[str, Any], ranges: Ranges) -> dict[str, Any]:
    if not call.rates.on:
        return {}
    known = _statistics(one, [one[name] for name in OCTETS], OCTETS)
    return known.shown(OCTETS, ranges.data_rates)


@answers("GET /connections", pages=True)
async def _list(call: HttpCall) -> list[dict[str, Any]]:
    return await _found(call)


@answers("GET /vhosts/:vhost/connections")
async def _list_vhost(call: HttpCall, vhost: str) -> list[dict[str, Any]]:
    await call.get(GetVhostRequest(vhost))
    return await _found(call, vhost=vhost)


@answers("GET /connections/username/:user", pages=True)
async def _list_user(call: HttpCall, user: str) -> list[dict[str, Any]]:
    return await _found(call, user=user)


@answers("GET /connections/:connection")
async def _get(call: HttpCall, name: str) -> dict[str, Any]:
    return call.one_of(await _found(call, name=name) if name else [], name=name)


@answers("DELETE /connections/:connection")
async def _close(call: HttpCall, name: str) -> None:
    await call.ask(EndConnectionRequest(name, call.reason))


@answers("DELETE /connections/username/:user")
async def _close_user(call: HttpCall, user: str) -> None:
    for one in await _found(call, user=user):
        await _close(call, one["name"])


# ------------------------------------------------------------------ channels


CHANNEL_COUNTS: Final = (
    *("session", "published", "confirmed", "returned", "dropped", "deliveries"),
    *("rates", "samples", "changed_ms"),
)
"""Keys of a channel that `message_stats` is made of."""


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
            **idle_since(one["rates"], one["changed_ms"]),
        }
        for one in connection["open_channels"]
    ]


async def _channels(
    call: HttpCall, deliveries: bool = False, **chosen: str
) -> list[dict[str, Any]]:
    """Return channels; deliveries: with what each was given from which queue."""
    given, ranges = _asked(call, chosen)
    found: list[dict[str, Any]] = []
    for one in await call.get(replace(given, channels=True)):
        known = zip(shown_channels(one), one["open_channels"], strict=True)
        for shown, channel in known:
            if deliveries:
                shown["deliveries"] = _deliveries(one["vhost"], channel) if call.rates.on else []
            found.append(shown | _message_stats(call, channel, ranges))
    return found


def _message_stats(call: HttpCall, one: dict[str, Any], ranges: Ranges) -> dict[str, Any]:
    """Return `message_stats` of a channel that has done something, each count with its rate."""
    if not call.rates.on:
        return {}
    rows = [row for _, row in one["deliveries"]]
    counts = [sum(column) for column in zip([0] * len(COUNTED), *rows, strict=True)]
    counts[PUBLISH] = one["published"]
    counts += [one["confirmed"], one["returned"], one.get("dropped", 0)]
    return _statistics(one, counts, CHANNEL_COUNTED).message_stats(ranges.msg_rates)


def _deliveries(vhost: str, one: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"queue": {"name": queue, "vhost": vhost}, "stats": handed_out(row)}
        for queue, row in one["deliveries"]
        if queue  # not those that are counted together (`ChannelCounts`)
    ]


@answers("GET /channels", pages=True)
async def _list_channels(call: HttpCall) -> list[dict[str, Any]]:
    return await _channels(call)


@answers("GET /channels/:channel")
async def _get_channel(call: HttpCall, channel: str) -> dict[str, Any]:
    name = channel.rpartition(" (")[0]
    found = await _channels(call, True, name=name) if name else []
    shown = call.one_of(found, name=channel)
    consumers = await call.get(ListConsumersRequest(connection=name))
    of = [one for one in consumers if one["channel"] == shown["number"]]
    wanted = ranges_of(call.query).msg_rates
    asked = {"connection": name, "channel": shown["number"], "samples": wanted is not None}
    pairs = await pairs_of(call, None, **asked)
    kinds = ["publishes", *(["deliveries"] if call.rates.of_pairs else [])]
    vhost = shown["vhost"]
    shown |= {
        kind: [of_pair(one, vhost, "channel", wanted) for one in pairs[kind]] for kind in kinds
    }
    return {**shown, "consumer_details": list(map(_shown_consumer, of))}


@answers("GET /connections/:connection/channels")
async def _of_connection(call: HttpCall, name: str) -> list[dict[str, Any]]:
    await _get(call, name)
    return await _channels(call, name=name)


@answers("GET /vhosts/:vhost/channels")
async def _channels_of_vhost(call: HttpCall, vhost: str) -> list[dict[str, Any]]:
    await call.get(GetVhostRequest(vhost))
    return await _channels(call, vhost=vhost)


# ------------------------------------------------------------------ consumers


KEPT: Final = (
    *("arguments", "ack_required", "active", "activity_status", "consumer_tag"),
    *("consumer_timeout", "exclusive", "prefetch_count"),
)
"""Keys that the node has, too."""


def _shown_consumer(one: dict[str, Any]) -> dict[str, Any]:
    """Return a consumer with RabbitMQ's keys.

    That of a link of AMQP 1.0 has no channel there; here it has its connection instead.
    """
    of = {key: one[key] for key in ("node", "peer_host", "peer_port", "user")}
    channel: dict[str, Any] = {}
    more: dict[str, Any] = {}
    if one["channel"]:
        name = f"{one['connection']} ({one['channel']})"
        connection = {"name": name, "number": one["channel"]}
        channel = {**connection, "connection_name": one["connection"], **of}
    else:
        more = {"connection_details": {"name": one["connection"], **of}}
    shown = {key: one[key] for key in KEPT}
    queue = {"name": one["queue"], "vhost": one["vhost"]}
    return {**shown, "channel_details": channel, "queue": queue, **more}


async def consumers_of(call: HttpCall, vhost: str, queue: str) -> list[dict[str, Any]]:
    """Return the consumers of a queue."""
    found = await call.get(ListConsumersRequest(queue=queue), vhost=vhost)
    return [_shown_consumer(one) for one in found]


@answers("GET /consumers", "GET /consumers/:vhost")
async def _list_consumers(call: HttpCall, vhost: str = "") -> list[dict[str, Any]]:
    if call.query.get("disable_stats") == "true":
        raise bad_request("consumers are not shown with disable_stats=true")
    # Those that do not see the consumers of others have to be let into the vhost.
    enters = vhost if vhost and not call.monitors() else None
    found = await call.get(ListConsumersRequest(vhost), vhost=enters)
    return [_shown_consumer(one) for one in found]
