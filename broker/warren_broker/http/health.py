"""Health checks as RabbitMQ's HTTP API answers them: 200, or 503 with the reason."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from warren_broker.http.calls import HttpCall
from warren_broker.http.frames import ApiListener
from warren_broker.http.messages import open_channel
from warren_broker.http.replies import HttpReply, bad_request, object_not_found
from warren_broker.http.routing_table import Answering, answers
from warren_broker.process.certificate_ends import CertificateUnreadable, read_ends
from warren_wire.admin.members import GetNodeRequest
from warren_wire.admin.overview import GetOverviewRequest, ListAlarmsRequest
from warren_wire.admin.queues import ListQueuesRequest

Answer: TypeAlias = dict[str, Any] | HttpReply
_LEADERS: Final = "quorum-queues-without-elected-leaders"


def _checks(*names: str) -> Callable[[Answering], Answering]:
    return answers(*(f"GET /health/checks/{name}" for name in names))


def _healthy(**more: Any) -> dict[str, Any]:
    return {"status": "ok", **more}


def _judged(wrong: Any, reason: str, **more: Any) -> Answer:
    """Return the failure where something is wrong."""
    return _failed(reason, **more) if wrong else _healthy()


def _failed(reason: str, **more: Any) -> HttpReply:
    return HttpReply(503, {"status": "failed", "reason": reason, **more})


@_checks(*("virtual-hosts", "metadata-store/initialized", "metadata-store/initialized/with-data"))
async def _ok(call: HttpCall) -> Answer:
    """Answer that all is well: the node has answered the login, so it knows the definitions."""
    return _healthy()


@_checks("alarms")
async def _alarms(call: HttpCall) -> Answer:
    found = await call.get(ListAlarmsRequest())
    return _judged(found, "There are alarms in effect in the cluster", alarms=found)


@_checks("local-alarms")
async def _local_alarms(call: HttpCall) -> Answer:
    found = [one for one in await call.get(ListAlarmsRequest()) if one["node"] == call.job.node]
    return _judged(found, "There are alarms in effect on the node", alarms=found)


@_checks("port-listener/:port")
async def _port_listener(call: HttpCall, given: str) -> Answer:
    if not given.isascii() or not given.isdigit() or len(given) > 5:
        raise bad_request("Invalid port")
    ports = [one.port for one in call.job.listeners]
    if int(given) in ports:
        return _healthy(port=int(given))
    return _failed("No active listener", missing=int(given), ports=ports)


PROTOCOLS: Final = {
    **dict.fromkeys(("amqp091", "amqp0.9.1", "amqp0-9-1", "amqp0_9_1"), "amqp"),
    **dict.fromkeys(("amqp10", "amqp1.0", "amqp1-0", "amqp1_0"), "amqp"),
    "amqps": "amqp/ssl",
    **dict.fromkeys(("http1", "http1.1", "http_api", "management", "management_ui", "ui"), "http"),
    **dict.fromkeys(("cli", "distribution"), "clustering"),
}
"""Other words for a protocol."""


@_checks("protocol-listener/:protocols")
async def _protocol_listener(call: HttpCall, given: str) -> Answer:
    asked = [PROTOCOLS.get(one.lower(), one.lower()) for one in given.split(",")]
    active = sorted({one.protocol for one in call.job.listeners})
    missing = sorted({one for one in asked if one not in active})
    if not missing:
        return _healthy(protocols=active)
    return _failed("No active listener", missing=missing, protocols=active)


YEARS_MAX: Final = timedelta(days=365 * 1000)
"""From now to the farthest time that is asked for."""
EXPIRY_UNITS: Final = {
    "days": timedelta(days=1),
    "weeks": timedelta(weeks=1),
    "months": timedelta(days=365) / 12,
    "years": timedelta(days=365),
}
"""RabbitMQ's units of the check of certificates."""


@_checks("certificate-expiration/:within/:unit")
async def _certificate_expiration(call: HttpCall, within: str, unit: str) -> Answer:
    """Check the certificates of this node's ports: which end within a number of units."""
    if re.fullmatch(r"[+-]?[0-9]{1,6}", within, re.ASCII) is None:
        raise bad_request("Invalid expiration value.")
    length = EXPIRY_UNITS.get(unit.lower())
    if length is None:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    now = datetime.now(UTC)
    until = now + max(-YEARS_MAX, min(YEARS_MAX, int(within) * length))
    encrypted = [one for one in call.job.listeners if one.certfile]
    judged = await asyncio.to_thread(lambda: [_expiring(one, now, until) for one in encrypted])
    found = [{"node": call.job.node, **one} for one in judged if one is not None]
    return _judged(found, "Certificates expiring", expired=found)


def _expiring(listener: ApiListener, now: datetime, until: datetime) -> dict[str, Any] | None:
    """Return what is said of a port with certificates that end until then; None: there are none."""
    ends = [_ending(file, now, until) for file in (listener.certfile, listener.cacertfile)]
    if not any(ends):
        return None
    return {
        "protocol": listener.protocol,
        "interface": listener.ip,
        "port": listener.port,
        "certfile": listener.certfile,
        "cacertfile": listener.cacertfile,
        "certfile_expires_on": ends[0],
        "cacertfile_expires_on": ends[1],
    }


def _ending(file: str, now: datetime, until: datetime) -> list[str]:
    if not file:
        return []
    try:
        return [
            f"{one.ends:%Y-%m-%d %H:%M:%S}" if one.begins <= now else "Certificate is not yet valid"
            for one in read_ends(Path(file))
            if one.ends < until or one.begins > now
        ]
    except CertificateUnreadable as error:
        return [str(error)]


@_checks("is-in-service", "ready-to-serve-clients")
async def _in_service(call: HttpCall) -> Answer:
    found = (await call.try_ask(GetNodeRequest(call.job.node))).body
    drained = isinstance(found, dict) and found["node"]["drained"]
    return _judged(drained, "this node is in maintenance mode")


@_checks(f"{_LEADERS}/all-vhosts", f"{_LEADERS}/vhost/:vhost")
async def _without_leaders(call: HttpCall, *vhost: str) -> Answer:
    """Check that this node knows a leader of every queue with members, or those of a pattern."""
    found: Answer = await _matched_without_leaders(call, *vhost, "")
    return found


@_checks(f"{_LEADERS}/all-vhosts/pattern/:pattern", f"{_LEADERS}/vhost/:vhost/pattern/:pattern")
async def _matched_without_leaders(call: HttpCall, *named: str) -> Answer:
    *vhost, pattern = named
    if vhost:
        queues = await call.queues(vhost[0], counts=False, pattern=pattern)
    else:
        queues = await call.of_vhosts(partial(call.queues, counts=False, pattern=pattern))
    without = [
        {"name": one["name"], "virtual_host": one["vhost"], "type": one["type"]}
        for one in queues
        if (one["type"] == "quorum" or len(one["replicas"]) > 1) and not one["leader"]
    ]
    return _judged(without, "Some quorum queues have no elected leader", queues=without)


@_checks("below-node-connection-limit")
async def _below_limit(call: HttpCall) -> Answer:
    found = await call.totals()
    here = sum(one["connections"] for one in found["nodes"] if one["node"] == call.job.node)
    return _judged(here >= call.job.connections_max, "node connection limit is reached")


@_checks("reached-target-cluster-size")
async def _reached_size(call: HttpCall) -> Answer:
    """Check that all nodes of the definitions are within reach: they are the target here."""
    nodes = (await call.get(GetOverviewRequest()))["nodes"]
    online = sum(one["alive"] for one in nodes)
    reason = f"target cluster size not reached: {online} of {len(nodes)} nodes are online"
    return _judged(online < len(nodes), reason, online=online, target=len(nodes))


@answers("GET /aliveness-test/:vhost")
async def _alive(call: HttpCall, vhost: str) -> Answer:
    """Answer as RabbitMQ since 4.0: a channel opens in the vhost, nothing is published."""
    await call.get(ListQueuesRequest(count=1, counts=False), vhost=vhost)
    await open_channel(call, vhost)
    return _healthy()


@answers("GET /healthchecks/node", "GET /healthchecks/node/:node")
async def _node_health(call: HttpCall, *named: str) -> Answer:
    """Check a node as RabbitMQ's deprecated health check does: that it runs, without alarms."""
    (node,) = named or (call.job.node,)
    nodes = (await call.get(GetOverviewRequest()))["nodes"]
    if all(one["name"] != node for one in nodes):
        raise object_not_found()
    if all(one["name"] != node for one in nodes if one["alive"]):
        return _failed(f"node {node} is not within reach")
    short = sorted((await call.alarms_by_node()).get(node, ()))
    return _judged(short, f"resource alarm(s) in effect:[{','.join(short)}]")
