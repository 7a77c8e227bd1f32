"""`/api/consumers`: consumers of queues as RabbitMQ's HTTP API shows them."""

from __future__ import annotations

from typing import Any, Final

from warren_broker.http.calls import HttpCall
from warren_broker.http.replies import HttpReply, bad_request
from warren_broker.http.routing_table import HttpRoute, http_route
from warren_wire.admin.connections import ListConsumersRequest

KEPT: Final = (
    *("arguments", "ack_required", "active", "activity_status", "consumer_tag"),
    *("consumer_timeout", "exclusive", "prefetch_count"),
)
"""Keys that the node has, too."""


def shown_consumer(one: dict[str, Any]) -> dict[str, Any]:
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
    return [shown_consumer(one) for one in found]


async def _list(call: HttpCall) -> HttpReply:
    if call.query.get("disable_stats") == "true":
        raise bad_request("consumers are not shown with disable_stats=true")
    if not call.names:
        found = await call.get(ListConsumersRequest())
    else:
        # Those that do not see the consumers of others have to be let into the vhost.
        vhost = call.names[0]
        enters = None if call.monitors() else vhost
        found = await call.get(ListConsumersRequest(vhost), vhost=enters)
    return HttpReply(200, [shown_consumer(one) for one in found])


ROUTES: tuple[HttpRoute, ...] = (
    http_route("/consumers", GET=_list),
    http_route("/consumers/:vhost", GET=_list),
)
