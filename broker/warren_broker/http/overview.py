"""`/api/overview`, and the rates that nodes show; they are those that the nodes have kept."""

from __future__ import annotations

import platform
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from warren_broker.access.sasl_login import ANONYMOUS, MECHANISMS
from warren_broker.counting.counters import CHURN, MESSAGE_COUNTERS
from warren_broker.counting.message_stats import (
    CHANNEL_COUNTED,
    COARSE_MS,
    COARSE_SAMPLES,
    FINE_SAMPLES,
    LENGTHS,
    NODE_STATS,
)
from warren_broker.http.calls import HttpCall
from warren_broker.http.routing_table import answers
from warren_broker.http.samples import Range, ranges_of
from warren_broker.http.statistics import Answered, Statistics
from warren_machines.metadata.exchange_types import CHOOSING_KINDS, KEEPING_KINDS, KINDS
from warren_wire.admin.connections import PROTOCOL_091, ListConnectionsRequest
from warren_wire.admin.overview import GetOverviewRequest, GetTotalsRequest
from warren_wire.admin.statistics import GetStatisticsRequest
from warren_wire.certificate_login import EXTERNAL

RABBITMQ_VERSION: Final = "4.3.0"
"""The version of RabbitMQ of which the API is: clients choose their requests by it."""
KEPT_S: Final = COARSE_SAMPLES * COARSE_MS // 1000
_COUNTERS: Final = {key: counter for counter, key in MESSAGE_COUNTERS.items()}
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
    path = call.job.settings["path_prefix"] or "/"
    return [
        _context(call.job.node, one.protocol, one.ip, one.port, path)
        for one in call.job.listeners
        if one.protocol in ("http", "https")
    ]


def _context(node: str, protocol: str, ip: str, port: int, path: str = "/") -> dict[str, Any]:
    return {
        "ssl_opts": [],
        "node": node,
        "description": f"{PRODUCT} HTTP API",
        "path": path,
        "ip": ip,
        "port": str(port),
        "protocol": protocol,
    }


def _listeners(call: HttpCall) -> list[dict[str, Any]]:
    return [
        {
            "node": call.job.node,
            "protocol": one.protocol,
            "ip_address": one.ip,
            "port": one.port,
            "socket_opts": {
                "nodelay": True,
                **(
                    {"certfile": one.certfile, "cacertfile": one.cacertfile} if one.certfile else {}
                ),
            },
            "tls": one.protocol in ("amqp/ssl", "https"),
        }
        for one in sorted(call.job.listeners, key=lambda one: (one.protocol, one.port))
    ]


@answers("GET /overview")
async def _overview(call: HttpCall) -> dict[str, Any]:
    """Answer the cluster's totals, which each node adds up: no queue is asked by itself."""
    without = call.query.get("disable_stats") == "true"
    job = call.job
    kept = [round(call.rates.interval_s * FINE_SAMPLES), KEPT_S]
    shown: dict[str, Any] = {
        "management_version": RABBITMQ_VERSION,
        "rates_mode": call.rates.mode,
        "sample_retention_policies": {
            "global": kept,
            "basic": kept,
            "detailed": kept if call.rates.of_pairs else [],
        },
        "exchange_types": exchange_types(),
        "product_name": PRODUCT,
        "product_version": job.version,
        "rabbitmq_version": RABBITMQ_VERSION,
        "cluster_name": (await call.get(GetOverviewRequest()))["cluster_name"],
        "cluster_tags": {},
        "node_tags": {},
        "erlang_version": "",
        "erlang_full_version": PYTHON,
        "crypto_lib_version": ssl.OPENSSL_VERSION,
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
    return shown


async def _totals(call: HttpCall, without: bool) -> dict[str, Any]:
    """Return numbers of objects and, unless they are not wanted, of messages with their rates."""
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
    lengths: dict[str, Any] = {name: values[name] for name in LENGTHS}
    shown = {"queue_totals": lengths, "message_stats": {}, "churn_rates": {}}
    if not call.monitors() or not call.rates.on:
        return shown
    ((_, _, rates, kept, *_),) = await call.get(GetStatisticsRequest("nodes"))
    counts = [values.get(_COUNTERS[name], 0) for name in CHANNEL_COUNTED]
    known = Statistics(counts, rates, kept, CHANNEL_COUNTED, summed=True)
    nodes = await call.get(GetStatisticsRequest("gauges", samples=ranges.msg_rates is not None))
    return {
        "queue_totals": lengths | known.lengths(ranges.lengths),
        "message_stats": known.shown((*CHANNEL_COUNTED, "deliver_get"), ranges.msg_rates),
        "churn_rates": _churn(nodes, values, ranges.msg_rates),
    }


def _churn(
    nodes: Sequence[Answered], values: Mapping[str, int], wanted: Range | None
) -> dict[str, Any]:
    """Return what came and went on the nodes, each with its rate."""
    counts = [values.get(CHURN.get(name, ""), 0) for name in NODE_STATS]
    nodes = [node for node in nodes if len(node[1]) == len(NODE_STATS)]  # not of other versions
    rates = [sum(column) for column in zip(*(node[2] for node in nodes), strict=True)]
    kept = [one for node in nodes for one in node[3]]
    return Statistics(counts, rates, kept, NODE_STATS).shown(CHURN, wanted)


def summed(nodes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the sums of the counters, and of LENGTHS, over the nodes (`NodeTotals`)."""
    found = dict.fromkeys(LENGTHS, 0)
    for node in nodes:
        for key, value in node["counters"].items():
            found[key] = found.get(key, 0) + value
        for led in node["vhosts"].values():
            for key in LENGTHS:
                found[key] += led[key]
    return found


async def node_statistics(call: HttpCall) -> dict[str, dict[str, Any]]:
    """Return what the nodes within reach say of themselves, with RabbitMQ's keys, by name."""
    if call.query.get("disable_stats") == "true" or not call.monitors():
        return {}
    wanted = ranges_of(call.query).node_stats
    found = await call.totals()
    used: dict[str, Any] = {}
    if call.rates.on:
        gauges = await call.get(GetStatisticsRequest("gauges", samples=wanted is not None))
        used = {str(one[0]): _used(one, wanted) for one in gauges}
    return {
        str(one["node"]): _shown_node(call, one) | used.get(one["node"], {})
        for one in found["nodes"]
    }


def _used(one: Answered, wanted: Range | None) -> dict[str, Any]:
    """Return what a node has in use, and how that changes."""
    # Before the first sample it was not nothing, as a count is. A node of another version counts
    # other things behind those that both have.
    names = NODE_STATS[: len(one[1])]
    whole = len(one[1]) == len(NODE_STATS)
    kept = [(False, numbers) for _, numbers in one[3] if whole]
    rates = one[2] if whole else ()
    return Statistics(one[1], rates, kept, NODE_STATS).shown(names, wanted)


def _shown_node(call: HttpCall, one: dict[str, Any]) -> dict[str, Any]:
    kept = (
        *("mem_used", "mem_limit", "disk_free", "disk_free_limit", "fd_total"),
        *("fd_used", "sockets_used", "processors", "uptime"),
    )
    shown: dict[str, Any] = {key: one[key] for key in kept if key in one}
    shown["os_pid"] = str(one["os_pid"])
    shown |= {key: one["counters"].get(name, 0) for key, name in CHURN.items()}
    shown["mem_calculation_strategy"] = "rss"
    shown["io_sync_avg_time"] = one.get("sync_ms", 0.0)
    about = one.get("about")
    return shown if about is None else shown | _shown_about(call, one["node"], about)


def _shown_about(call: HttpCall, node: str, about: dict[str, Any]) -> dict[str, Any]:
    """Return what a node says of its program, its files and its ports, with RabbitMQ's keys."""
    told = [_context(node, *each) for each in about["http"]]
    return {
        "applications": [{"name": "warren", "description": PRODUCT, "version": about["version"]}],
        "auth_mechanisms": [
            {"name": name, "description": "", "enabled": name in about["mechanisms"]}
            for name in (*MECHANISMS, ANONYMOUS, EXTERNAL)
        ],
        "cluster_links": [],
        "config_files": about["config_files"],
        "contexts": contexts(call) if node == call.job.node else told,
        "crypto_lib_version": about["openssl"],
        "db_dir": about["data_dir"],
        "enabled_plugins": about["plugins"],
        "erlang_full_version": about["python"],
        "erlang_version": "",
        "exchange_types": exchange_types(),
        "log_files": about["log_files"],
        "rabbitmq_version": RABBITMQ_VERSION,
        "rates_mode": about["rates_mode"],
        "sockets_total": about["sockets_max"],
    }
