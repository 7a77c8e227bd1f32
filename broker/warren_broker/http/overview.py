"""`/api/overview`, and the rates that nodes show; see `samples`."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from typing import Any, Final

from warren_broker.counting.counters import CHURN
from warren_broker.counting.message_stats import COARSE_MS, COARSE_SAMPLES, LENGTHS, NODE_STATS
from warren_broker.http.calls import HttpCall
from warren_broker.http.kept_samples import KeptSamples
from warren_broker.http.queue_statistics import Statistics, add_samples
from warren_broker.http.replies import HttpReply
from warren_broker.http.sample_ranges import Range, Ranges, details, ranges_of
from warren_broker.http.samples import MESSAGE_STATS, SAMPLES_KEPT, summed
from warren_machines.metadata.exchange_types import CHOOSING_KINDS, KEEPING_KINDS, KINDS
from warren_wire.admin.connections import PROTOCOL_091, ListConnectionsRequest
from warren_wire.admin.overview import GetOverviewRequest, GetTotalsRequest
from warren_wire.admin.statistics import GetGaugeStatisticsRequest, GetNodeStatisticsRequest

RABBITMQ_VERSION: Final = "4.3.0"
"""The version of RabbitMQ of which the API is: clients choose their requests by it."""
KEPT_S: Final = COARSE_SAMPLES * COARSE_MS // 1000
PRODUCT: Final = "Warren"
PYTHON: Final = f"Python {platform.python_version()}"


def exchange_types() -> list[dict[str, Any]]:
    """Return the types of exchanges."""
    return [
        {"name": kind, "description": "", "enabled": True}
        for kind in sorted((*KINDS, *CHOOSING_KINDS, *KEEPING_KINDS))
    ]


def contexts(call: HttpCall) -> list[dict[str, Any]]:
    """Return the ports of the API on the node that is asked."""
    return [
        {
            "ssl_opts": [],
            "node": call.job.node,
            "description": f"{PRODUCT} HTTP API",
            "path": call.path.partition("/api/")[0] or "/",
            "ip": one.ip,
            "port": str(one.port),
        }
        for one in call.job.listeners
        if one.protocol in ("http", "https")
    ]


def _listeners(call: HttpCall) -> list[dict[str, Any]]:
    return [
        {
            "node": call.job.node,
            "protocol": one.protocol,
            "ip_address": one.ip,
            "port": one.port,
            "socket_opts": {},
            "tls": one.protocol in ("amqp/ssl", "https"),
        }
        for one in sorted(call.job.listeners, key=lambda one: (one.protocol, one.port))
    ]


async def overview(call: HttpCall) -> HttpReply:
    """Answer the cluster's totals, which each node adds up: no queue is asked by itself."""
    without = call.query.get("disable_stats") == "true"
    job = call.job
    kept = [round(call.sampling.interval_s * SAMPLES_KEPT), KEPT_S]
    shown: dict[str, Any] = {
        "management_version": RABBITMQ_VERSION,
        "rates_mode": "basic" if call.sampling.on else "none",
        "sample_retention_policies": {"global": kept, "basic": kept, "detailed": []},
        "exchange_types": exchange_types(),
        "product_name": PRODUCT,
        "product_version": job.version,
        "rabbitmq_version": RABBITMQ_VERSION,
        "cluster_name": (await call.get(GetOverviewRequest()))["cluster_name"],
        "cluster_tags": {},
        "node_tags": {},
        "erlang_version": "",
        "erlang_full_version": PYTHON,
        "disable_stats": without,
        "default_queue_type": job.default_queue_type,
        "is_op_policy_updating_enabled": True,
        "enable_queue_totals": not without,
        "require_definition_json_extension": False,
        "node": job.node,
    }
    shown |= await _totals(call, without)
    if call.monitors():
        shown["listeners"] = _listeners(call)
        shown["contexts"] = contexts(call)
    return HttpReply(200, shown)


async def _totals(call: HttpCall, without: bool) -> dict[str, Any]:
    """Return numbers of objects and, unless they are not wanted, of messages with their rates."""
    if call.monitors() and not without:
        await call.sampling.wanted(call.totals)
    found = await call.get(GetTotalsRequest(counts=not without))
    vhosts, nodes = found["vhosts"].values(), found["nodes"]
    objects: dict[str, Any] = {
        key: sum(one[key] for one in vhosts) for key in ("queues", "exchanges")
    }
    if without:
        return {"object_totals": objects}
    led = [one for node in nodes for one in node["vhosts"].values()]
    objects["consumers"] = sum(one["consumers"] for one in led)
    return {
        "object_totals": objects | await _clients(call, nodes),
        "statistics_db_event_queue": 0,
        **await _with_rates(call, summed(nodes)),
    }


async def _clients(call: HttpCall, nodes: list[dict[str, Any]]) -> dict[str, int]:
    """Return numbers of connections and channels: of all, or of the user's own."""
    if call.monitors():
        return {key: sum(one[key] for one in nodes) for key in ("connections", "channels")}
    own = await call.get(ListConnectionsRequest())
    channels = sum(one["channels"] for one in own if one["protocol"] == PROTOCOL_091)
    return {"connections": len(own), "channels": channels}


async def _with_rates(call: HttpCall, values: Mapping[str, int]) -> dict[str, Any]:
    """Return lengths and, for users that see the nodes' counters, these, each with its rate."""
    ranges = ranges_of(call.query)
    lengths, rates = ranges.lengths, ranges.msg_rates
    shown = {"queue_totals": _detailed(call, {key: key for key in LENGTHS}, values, lengths)}
    if not call.monitors() or not call.sampling.on:
        return {**shown, "message_stats": {}, "churn_rates": {}}
    shown = {
        **shown,
        "message_stats": _detailed(call, MESSAGE_STATS, values, rates),
        "churn_rates": _detailed(call, CHURN, values, rates),
    }
    if ranges:
        await _add_kept_samples(call, shown, ranges)
    return shown


async def _add_kept_samples(call: HttpCall, shown: dict[str, Any], ranges: Ranges) -> None:
    """Have samples of messages go back as far as the nodes have kept some."""
    found = await call.get(GetNodeStatisticsRequest())
    kept, now_ms = KeptSamples(found[3], summed=True), round(time.time() * 1000)
    if ranges.msg_rates is not None:
        add_samples(shown["message_stats"], kept, ranges.msg_rates, now_ms)
    if ranges.lengths is not None:
        for name in LENGTHS:
            key = f"{name}_details"
            rate = shown["queue_totals"][key]["rate"]
            points = kept.lengths(name, ranges.lengths, now_ms)
            shown["queue_totals"][key] = details(rate, points)


def _detailed(
    call: HttpCall, keys: Mapping[str, str], values: Mapping[str, int], wanted: Range | None
) -> dict[str, Any]:
    samples, now_ms = call.sampling.samples, round(time.time() * 1000)
    shown: dict[str, Any] = {}
    for key, name in keys.items():
        shown[key] = values.get(name, 0)
        if call.monitors() and call.sampling.on:
            shown[f"{key}_details"] = samples.details(name, wanted, now_ms)
    return shown


async def node_statistics(call: HttpCall) -> dict[str, dict[str, Any]]:
    """Return what the nodes within reach say of themselves, with RabbitMQ's keys, by name."""
    if call.query.get("disable_stats") == "true" or not call.monitors():
        return {}
    wanted = ranges_of(call.query).node_stats
    await call.sampling.wanted(call.totals)
    found = await call.totals()
    used: dict[str, Any] = {}
    if call.sampling.on:
        gauges = await call.get(GetGaugeStatisticsRequest(wanted is not None))
        used = {str(one[0]): _used(one, wanted) for one in gauges}
    return {
        str(one["node"]): _shown_node(one) | used.get(one["node"], {}) for one in found["nodes"]
    }


def _used(one: Statistics, wanted: Range | None) -> dict[str, Any]:
    """Return what a node has in use, and how that changes."""
    # Before the first sample it was not nothing, as a count is.
    samples = KeptSamples([(False, numbers) for _, numbers in one[3]], names=NODE_STATS)
    now_ms, shown = round(time.time() * 1000), dict[str, Any]()
    for name, value, rate in zip(NODE_STATS, one[1], one[2], strict=False):
        points = None if wanted is None else samples.counts(name, wanted, now_ms)
        shown[name], shown[f"{name}_details"] = value, details(rate, points)
    return shown


def _shown_node(one: dict[str, Any]) -> dict[str, Any]:
    kept = (
        *("mem_used", "mem_limit", "disk_free", "disk_free_limit", "fd_total"),
        *("fd_used", "sockets_used", "processors", "uptime"),
    )
    shown: dict[str, Any] = {key: one[key] for key in kept if key in one}
    shown["os_pid"] = str(one["os_pid"])
    return shown | {key: one["counters"].get(name, 0) for key, name in CHURN.items()}
