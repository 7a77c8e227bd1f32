"""The cluster, its nodes and its feature flags as RabbitMQ's HTTP API shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from warren_broker.counting.counters import AMQP_091, AMQP_10, HTTP_LABEL, LOGINS, by_protocol
from warren_broker.http.calls import HttpCall, text
from warren_broker.http.overview import RABBITMQ_VERSION, node_statistics
from warren_broker.http.replies import bad_request, object_not_found
from warren_broker.http.routing_table import answers
from warren_machines.metadata.runtime_parameters import CLUSTER_NAME
from warren_wire.admin.members import GetNodeRequest, ListNodesRequest
from warren_wire.admin.overview import GetOverviewRequest
from warren_wire.admin.parameters import PutGlobalParameterRequest

# ------------------------------------------------------------------ cluster


@answers("GET /cluster-name")
async def _cluster_name(call: HttpCall) -> dict[str, str]:
    return {"name": (await call.get(GetOverviewRequest()))["cluster_name"]}


@answers("PUT /cluster-name", tag="administrator")
async def _rename(call: HttpCall) -> None:
    """Set the name under which the cluster is shown."""
    given = call.fields()
    if "name" not in given:
        raise bad_request("key_missing: name")
    await call.ask(PutGlobalParameterRequest(CLUSTER_NAME, text("name", given["name"])))


@answers("GET /version")
async def _version(call: HttpCall) -> str:
    return RABBITMQ_VERSION


@answers("GET /extensions", "GET /deprecated-features", "GET /deprecated-features/used")
async def _empty(call: HttpCall) -> list[Any]:
    return []


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


@answers("GET /nodes")
async def _list_nodes(call: HttpCall) -> list[dict[str, Any]]:
    nodes = await call.get(ListNodesRequest())
    alarms, said = await call.alarms_by_node(), await node_statistics(call)
    return [_shown_node(one, alarms, said) for one in nodes]


@answers("GET /nodes/:node")
async def _get_node(call: HttpCall, node: str) -> dict[str, Any]:
    found = await call.get(GetNodeRequest(node))
    alarms, said = await call.alarms_by_node(), await node_statistics(call)
    shown = _shown_node(found["node"], alarms, said)
    if call.query.get("memory") == "true":
        shown |= await _memory(call, node)
    return shown


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


@answers("GET /nodes/:node/memory")
async def _memory(call: HttpCall, node: str) -> dict[str, Any]:
    """Answer a node's memory in RabbitMQ's form; `not_available` for one that is out of reach."""
    return await _memory_of(
        call, node, lambda used: (used, {"erlang": used, "rss": used, "allocated": used})
    )


@answers("GET /nodes/:node/memory/relative")
async def _relative_memory(call: HttpCall, node: str) -> dict[str, Any]:
    return await _memory_of(call, node, lambda used: (100, 100))


async def _memory_of(
    call: HttpCall, node: str, parts: Callable[[int], tuple[int, Any]]
) -> dict[str, Any]:
    await call.get(GetNodeRequest(node))
    found = [one for one in (await call.totals())["nodes"] if one["node"] == node]
    if not found:
        return {"memory": "not_available"}
    used, total = parts(found[0]["mem_used"])
    shown = {**dict.fromkeys(MEMORY_PARTS, 0), "other_system": used, "total": total}
    return {"memory": {**shown, "strategy": "rss"}}


@answers("DELETE /reset", "DELETE /reset/:node", tag="administrator")
async def _reset(call: HttpCall, *node: str) -> None:
    """Answer as RabbitMQ; the samples are those that nodes keep, and stay."""
    if node and node[0] not in await call.nodes_alive():
        raise object_not_found()


@answers("GET /auth/attempts/:node", tag="monitoring")
async def _logins(call: HttpCall, node: str) -> list[dict[str, Any]]:
    """Answer how many logins a node has seen, by protocol."""
    found = [one["counters"] for one in (await call.totals())["nodes"] if one["node"] == node]
    if not found:
        raise object_not_found()
    shown: list[dict[str, Any]] = []
    for protocol in (AMQP_091, AMQP_10, HTTP_LABEL):
        counted = {key: found[0].get(by_protocol(key, protocol), 0) for key in LOGINS}
        if any(counted.values()):
            shown.append({"protocol": protocol, **counted})
    return shown


@answers("GET /auth/attempts/:node/source", tag="monitoring")
async def _login_sources(call: HttpCall, node: str) -> list[Any]:
    """Answer as RabbitMQ where addresses and users are not counted apart (its default)."""
    await _logins(call, node)
    return []


# ------------------------------------------------------------------ feature flags

REQUIRED: Final = (
    "classic_mirrored_queue_version",
    "classic_queue_type_delivery_support",
    "detailed_queues_endpoint",
    "direct_exchange_routing_v2",
    "drop_unroutable_metric",
    "empty_basic_get_metric",
    "feature_flags_v2",
    "implicit_default_bindings",
    "khepri_db",
    "listener_records_in_ets",
    "maintenance_mode_status",
    "message_containers",
    "message_containers_deaths_v2",
    "quorum_queue",
    "quorum_queue_non_voters",
    "rabbit_exchange_type_local_random",
    "rabbitmq_4.0.0",
    "rabbitmq_4.1.0",
    "rabbitmq_4.2.0",
    "restart_streams",
    "stream_filtering",
    "stream_queue",
    "stream_sac_coordinator_unblock_group",
    "stream_single_active_consumer",
    "stream_update_config_command",
    "tracking_records_in_ets",
    "user_limits",
    "virtual_host_metadata",
)
STABLE: Final = (
    "rabbitmq_4.3.0",
    "tie_binding_to_dest_with_keep_while_cond",
    "topic_binding_projection_v4",
    "topic_binding_projection_v5",
    "track_qq_members_uids",
)
"""Flags of RabbitMQ 4.3 that programs look up, by RabbitMQ's word for their stability.

Programs ask for a flag before they use what it stands for; all are enabled. `stream_queue` and its
like are because RabbitMQ 4.3 requires them; a queue of type stream is refused where it is declared.

source  RabbitMQ 4.3.6's answer
"""


def _shown_flag(name: str) -> dict[str, Any]:
    required = name in REQUIRED
    return {
        "name": name,
        "desc": "",
        "doc_url": "",
        "state": "enabled",
        "stability": "required" if required else "stable",
        "require_level": "hard" if required else "none",
        "experiment_level": "supported",
        "callbacks": [],
        "provided_by": "rabbit",
    }


@answers("GET /feature-flags")
async def _list_flags(call: HttpCall) -> list[dict[str, Any]]:
    return [_shown_flag(name) for name in sorted((*REQUIRED, *STABLE))]


@answers("PUT /feature-flags/:name/enable", tag="administrator")
async def _enable(call: HttpCall, name: str) -> None:
    """Answer as for a flag that is enabled already; another one is refused, as in RabbitMQ."""
    if name not in (*REQUIRED, *STABLE):
        raise bad_request("unsupported")
