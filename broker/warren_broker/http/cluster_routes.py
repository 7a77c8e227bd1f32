"""The cluster, its nodes and their health as RabbitMQ's HTTP API shows them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from warren_broker.counting.counters import AMQP_091, AMQP_10, HTTP_LABEL, LOGINS, by_protocol
from warren_broker.http.calls import HttpCall, text
from warren_broker.http.frames import ApiListener
from warren_broker.http.messages import open_channel
from warren_broker.http.overview import RABBITMQ_VERSION, node_statistics, overview
from warren_broker.http.replies import HttpReply, bad_request, not_authorised, object_not_found
from warren_broker.http.routing_table import HttpRoute, http_route
from warren_broker.http.whole_cluster import alarms_by_node, nodes_alive
from warren_broker.process.certificate_ends import CertificateUnreadable, read_ends
from warren_machines.metadata.runtime_parameters import CLUSTER_NAME
from warren_wire.admin import members as m
from warren_wire.admin.overview import GetOverviewRequest, ListAlarmsRequest
from warren_wire.admin.parameters import PutGlobalParameterRequest
from warren_wire.admin.queues import ListQueuesRequest

# ------------------------------------------------------------------ cluster


async def _cluster_name(call: HttpCall) -> HttpReply:
    return HttpReply(200, {"name": (await call.get(GetOverviewRequest()))["cluster_name"]})


async def _rename(call: HttpCall) -> HttpReply:
    """Set the name under which the cluster is shown."""
    call.must_administer()
    given = call.fields()
    if "name" not in given:
        raise bad_request("key_missing: name")
    name = text("name", given["name"])
    await call.ask(PutGlobalParameterRequest(CLUSTER_NAME, name))
    return HttpReply(204)


# ------------------------------------------------------------------ nodes


def _shown_node(
    node: dict[str, Any], alarms: dict[str, set[str]], said: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    short = alarms.get(node["name"], set())
    return {
        **said.get(node["name"], {}),
        "name": node["name"],
        "type": "disc",
        "running": node["running"],
        "being_drained": node["drained"],
        "mem_alarm": "memory" in short,
        "disk_free_alarm": "disk" in short,
        "partitions": [],
        "address": node["address"],
        "forgetting": node["forgetting"],
        "quorum_queue_members": node["members"],
        "queue_leaders": node["leaders"],
        "local_queues": node["local_queues"],
    }


async def _list_nodes(call: HttpCall) -> HttpReply:
    nodes = await call.get(m.ListNodesRequest())
    alarms, said = await alarms_by_node(call), await node_statistics(call)
    return HttpReply(200, [_shown_node(one, alarms, said) for one in nodes])


async def _get_node(call: HttpCall) -> HttpReply:
    found = await call.get(m.GetNodeRequest(*call.names))
    alarms, said = await alarms_by_node(call), await node_statistics(call)
    return HttpReply(200, _shown_node(found["node"], alarms, said))


# ------------------------------------------------------------------ health checks


def _healthy(**more: Any) -> HttpReply:
    return HttpReply(200, {"status": "ok", **more})


def _failed(reason: str, **more: Any) -> HttpReply:
    return HttpReply(503, {"status": "failed", "reason": reason, **more})


async def _ok(call: HttpCall) -> HttpReply:
    """Answer that all is well: the node has answered the login, so it knows the definitions."""
    return _healthy()


async def _alarms(call: HttpCall) -> HttpReply:
    found = await call.get(ListAlarmsRequest())
    if not found:
        return _healthy()
    return _failed("There are alarms in effect in the cluster", alarms=found)


async def _local_alarms(call: HttpCall) -> HttpReply:
    found = [one for one in await call.get(ListAlarmsRequest()) if one["node"] == call.job.node]
    if not found:
        return _healthy()
    return _failed("There are alarms in effect on the node", alarms=found)


async def _port_listener(call: HttpCall) -> HttpReply:
    given = call.names[0]
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


async def _protocol_listener(call: HttpCall) -> HttpReply:
    asked = [PROTOCOLS.get(one.lower(), one.lower()) for one in call.names[0].split(",")]
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


async def _certificate_expiration(call: HttpCall) -> HttpReply:
    """Check the certificates of this node's ports: which end within a number of units."""
    within, unit = call.names
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
    return _healthy() if not found else _failed("Certificates expiring", expired=found)


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


async def _in_service(call: HttpCall) -> HttpReply:
    found = (await call.try_ask(m.GetNodeRequest(call.job.node))).body
    if isinstance(found, dict) and found["node"]["drained"]:
        return _failed("this node is in maintenance mode")
    return _healthy()


async def _without_leaders(call: HttpCall) -> HttpReply:
    """Check that this node knows a leader of every queue with members, or those of a pattern."""
    return await _leaderless(call, call.names[0] if call.names else None, "")


async def _matched_without_leaders(call: HttpCall) -> HttpReply:
    *vhost, pattern = call.names
    return await _leaderless(call, vhost[0] if vhost else None, pattern)


async def _leaderless(call: HttpCall, vhost: str | None, pattern: str) -> HttpReply:
    if vhost is not None:
        queues = await call.queues(vhost, counts=False, pattern=pattern)
    else:
        queues = await call.of_vhosts(partial(call.queues, counts=False, pattern=pattern))
    without = [
        {"name": one["name"], "virtual_host": one["vhost"], "type": one["type"]}
        for one in queues
        if (one["type"] == "quorum" or len(one["replicas"]) > 1) and not one["leader"]
    ]
    if not without:
        return _healthy()
    return _failed("Some quorum queues have no elected leader", queues=without)


async def _below_limit(call: HttpCall) -> HttpReply:
    found = await call.totals()
    here = sum(one["connections"] for one in found["nodes"] if one["node"] == call.job.node)
    if here < call.job.connections_max:
        return _healthy()
    return _failed("node connection limit is reached")


async def _reached_size(call: HttpCall) -> HttpReply:
    """Check that all nodes of the definitions are within reach: they are the target here."""
    nodes = (await call.get(GetOverviewRequest()))["nodes"]
    online = sum(one["alive"] for one in nodes)
    if online == len(nodes):
        return _healthy()
    reason = f"target cluster size not reached: {online} of {len(nodes)} nodes are online"
    return _failed(reason, online=online, target=len(nodes))


async def _alive(call: HttpCall) -> HttpReply:
    """Answer as RabbitMQ since 4.0: a channel opens in the vhost, nothing is published."""
    await call.get(ListQueuesRequest(count=1, counts=False), vhost=call.names[0])
    await open_channel(call, call.names[0])
    return HttpReply(200, {"status": "ok"})


async def _node_health(call: HttpCall) -> HttpReply:
    """Check a node as RabbitMQ's deprecated health check does: that it runs, without alarms."""
    node = call.names[0] if call.names else call.job.node
    nodes = (await call.get(GetOverviewRequest()))["nodes"]
    if all(one["name"] != node for one in nodes):
        raise object_not_found()
    if node not in await nodes_alive(call):
        return _failed(f"node {node} is not within reach")
    short = sorted((await alarms_by_node(call)).get(node, ()))
    if short:
        return _failed(f"resource alarm(s) in effect:[{','.join(short)}]")
    return _healthy()


MEMORY_PARTS: Final = (
    *("connection_readers", "connection_writers", "connection_channels", "connection_other"),
    *("queue_procs", "quorum_queue_procs", "quorum_queue_dlx_procs", "stream_queue_procs"),
    *("stream_queue_replica_reader_procs", "stream_queue_coordinator_procs", "plugins"),
    *("metadata_store", "other_proc", "metrics", "mgmt_db", "mnesia", "quorum_ets"),
    *("metadata_store_ets", "other_ets", "binary", "msg_index", "code", "atom", "other_system"),
    *("allocated_unused", "reserved_unallocated"),
)
"""RabbitMQ's parts of a node's memory. Programs decode them, so each is a number: the whole is in
`other_system`, since a node here does not divide it that way."""


async def _memory(call: HttpCall) -> HttpReply:
    """Answer a node's memory in RabbitMQ's form; `not_available` for one that is out of reach."""
    return await _memory_of(
        call, lambda used: (used, {"erlang": used, "rss": used, "allocated": used})
    )


async def _relative_memory(call: HttpCall) -> HttpReply:
    return await _memory_of(call, lambda used: (100, 100))


async def _memory_of(call: HttpCall, parts: Callable[[int], tuple[int, Any]]) -> HttpReply:
    node = call.names[0]
    await call.get(m.GetNodeRequest(node))
    found = [one for one in (await call.totals())["nodes"] if one["node"] == node]
    if not found:
        return HttpReply(200, {"memory": "not_available"})
    used, total = parts(found[0]["mem_used"])
    shown = {**dict.fromkeys(MEMORY_PARTS, 0), "other_system": used, "total": total}
    return HttpReply(200, {"memory": {**shown, "strategy": "rss"}})


async def _reset(call: HttpCall) -> HttpReply:
    """Answer as RabbitMQ; the samples are those that nodes keep, and stay."""
    if call.names and call.names[0] not in await nodes_alive(call):
        raise object_not_found()
    call.must_administer()
    return HttpReply(204)


async def _empty(call: HttpCall) -> HttpReply:
    return HttpReply(200, [])


async def _version(call: HttpCall) -> HttpReply:
    return HttpReply(200, RABBITMQ_VERSION)


async def _logins(call: HttpCall) -> HttpReply:
    """Answer how many logins a node has seen, by protocol."""
    if not call.monitors():
        raise not_authorised("User not authorised to access object")
    found = [one["counters"] for one in (await call.totals())["nodes"] if one["node"] in call.names]
    if not found:
        raise object_not_found()
    shown: list[dict[str, Any]] = []
    for protocol in (AMQP_091, AMQP_10, HTTP_LABEL):
        counted = {key: found[0].get(by_protocol(key, protocol), 0) for key in LOGINS}
        if any(counted.values()):
            shown.append({"protocol": protocol, **counted})
    return HttpReply(200, shown)


async def _login_sources(call: HttpCall) -> HttpReply:
    """Answer as RabbitMQ where addresses and users are not counted apart (its default)."""
    await _logins(call)
    return HttpReply(200, [])


_CHECKS = "/health/checks"
_WITHOUT = f"{_CHECKS}/quorum-queues-without-elected-leaders"
ROUTES: tuple[HttpRoute, ...] = (
    http_route("/overview", GET=overview),
    http_route("/cluster-name", GET=_cluster_name, PUT=_rename),
    http_route("/version", GET=_version),
    http_route("/extensions", GET=_empty),
    http_route("/auth/attempts/:node", GET=_logins),
    http_route("/auth/attempts/:node/source", GET=_login_sources),
    http_route("/deprecated-features", GET=_empty),
    http_route("/deprecated-features/used", GET=_empty),
    http_route("/nodes", GET=_list_nodes),
    http_route("/nodes/:node", GET=_get_node),
    http_route("/nodes/:node/memory", GET=_memory),
    http_route("/nodes/:node/memory/relative", GET=_relative_memory),
    http_route("/reset", DELETE=_reset),
    http_route("/reset/:node", DELETE=_reset),
    http_route("/aliveness-test/:vhost", GET=_alive),
    http_route("/healthchecks/node", GET=_node_health),
    http_route("/healthchecks/node/:node", GET=_node_health),
    http_route(f"{_CHECKS}/alarms", GET=_alarms),
    http_route(f"{_CHECKS}/local-alarms", GET=_local_alarms),
    http_route(f"{_CHECKS}/port-listener/:port", GET=_port_listener),
    http_route(f"{_CHECKS}/protocol-listener/:protocols", GET=_protocol_listener),
    http_route(f"{_CHECKS}/certificate-expiration/:within/:unit", GET=_certificate_expiration),
    http_route(f"{_CHECKS}/virtual-hosts", GET=_ok),
    http_route(f"{_CHECKS}/metadata-store/initialized", GET=_ok),
    http_route(f"{_CHECKS}/metadata-store/initialized/with-data", GET=_ok),
    http_route(f"{_CHECKS}/below-node-connection-limit", GET=_below_limit),
    http_route(f"{_CHECKS}/reached-target-cluster-size", GET=_reached_size),
    http_route(f"{_CHECKS}/is-in-service", GET=_in_service),
    http_route(f"{_CHECKS}/ready-to-serve-clients", GET=_in_service),
    http_route(f"{_WITHOUT}/all-vhosts", GET=_without_leaders),
    http_route(f"{_WITHOUT}/vhost/:vhost", GET=_without_leaders),
    http_route(f"{_WITHOUT}/all-vhosts/pattern/:pattern", GET=_matched_without_leaders),
    http_route(f"{_WITHOUT}/vhost/:vhost/pattern/:pattern", GET=_matched_without_leaders),
)
