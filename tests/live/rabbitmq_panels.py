"""What the panels of RabbitMQ's two dashboards for a cluster ask Prometheus, as PromQL.

source: RabbitMQ 4.3 (August 2026), the dashboards "RabbitMQ-Overview", 41 panels, and
"RabbitMQ-Quorum-Queues-Raft", 5 panels. Written from what they ask: names of metrics, how they
are joined with `rabbitmq_identity_info`, rates and sums. A panel is a title and its questions.
"""

from __future__ import annotations

from typing import Final

IDENTITY: Final = (
    'rabbitmq_identity_info{rabbitmq_cluster="$cluster",namespace="",rabbitmq_endpoint="$endpoint"}'
)
_JOINED: Final = "on (instance, job) group_left (rabbitmq_cluster, rabbitmq_node) " + IDENTITY
_GLOBAL: Final = "rabbitmq_global_messages"
_SIZES: Final = "rabbitmq_message_size_bytes"


def _of(expression: str) -> str:
    return f"({expression}) * {_JOINED}"


def _sum(expression: str) -> str:
    return f"sum({_of(expression)})"


def _by_node(expression: str) -> str:
    return f"sum by (rabbitmq_node) ({_of(expression)})"


def _rate(*names: str) -> str:
    return _by_node(" + ".join(f"rate({name}[$__rate_interval])" for name in names))


def _bucket(bound: str) -> str:
    return _sum(f'increase({_SIZES}_bucket{{le="{bound}"}}[$__range])')


_BOUNDS: Final = ("100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "5e+07", "1e+08")
_SHARES: Final = tuple(
    f"({_bucket(above)} - {_bucket(below)}) / {_bucket('+Inf')}"
    for below, above in zip(_BOUNDS, (*_BOUNDS[1:], "+Inf"), strict=True)
)
OVERVIEW: Final[dict[str, tuple[str, ...]]] = {
    "Ready messages": (_sum("rabbitmq_queue_messages_ready"),),
    "Outgoing messages / s": (_sum(f"irate({_GLOBAL}_delivered_total[$__rate_interval])"),),
    "Publishers": (_sum("rabbitmq_global_publishers"),),
    "Connections": (_sum("rabbitmq_connections"),),
    "Queues": (_sum("rabbitmq_queues"),),
    "Unacknowledged messages": (_sum("rabbitmq_queue_messages_unacked"),),
    "Incoming messages / s": (_sum(f"irate({_GLOBAL}_received_total[$__rate_interval])"),),
    "Consumers": (_sum("rabbitmq_global_consumers"),),
    "Channels": (_sum("rabbitmq_channels"),),
    "Nodes": (f"count({IDENTITY})",),
    "(table of nodes)": (
        "rabbitmq_erlang_uptime_seconds * on (instance, job) "
        "group_left (rabbitmq_version, erlang_version) rabbitmq_build_info * " + _JOINED,
    ),
    "Memory available before publishers blocked": (
        f"({_of('rabbitmq_resident_memory_limit_bytes')}) - "
        f"({_of('rabbitmq_process_resident_memory_bytes')})",
    ),
    "Disk space available before publishers blocked": (
        _of("rabbitmq_disk_space_available_bytes - rabbitmq_disk_space_available_limit_bytes"),
    ),
    "File descriptors available": (_of("rabbitmq_process_max_fds - rabbitmq_process_open_fds"),),
    "Messages ready to be delivered to consumers": (_by_node("rabbitmq_queue_messages_ready"),),
    "Messages pending consumer acknowledgement": (_by_node("rabbitmq_queue_messages_unacked"),),
    "Messages published / s": (_rate(f"{_GLOBAL}_received_total"),),
    "Avg Size": (
        f"{_sum(f'increase({_SIZES}_sum[$__range])')} / "
        f"{_sum(f'increase({_SIZES}_count[$__range])')}",
    ),
    "Message Size Distribution": (f"{_bucket('100.0')} / {_bucket('+Inf')}", *_SHARES),
    "Messages routed to queues / s": (_rate(f"{_GLOBAL}_routed_total"),),
    "Messages confirmed to publishers / s": (_rate(f"{_GLOBAL}_confirmed_total"),),
    "Unroutable messages dropped & returned / s": (
        _rate(f"{_GLOBAL}_unroutable_dropped_total"),
        _rate(f"{_GLOBAL}_unroutable_returned_total"),
    ),
    "Messages unconfirmed to publishers / s": (
        _by_node(
            f"rate({_GLOBAL}_received_confirm_total[$__rate_interval]) - "
            f"rate({_GLOBAL}_confirmed_total[$__rate_interval])"
        ),
    ),
    "Messages delivered / s": (
        _rate(
            f"{_GLOBAL}_delivered_consume_auto_ack_total",
            f"{_GLOBAL}_delivered_consume_manual_ack_total",
        ),
    ),
    **{
        title: (_rate(name),)
        for title, name in {
            "Messages redelivered / s": f"{_GLOBAL}_redelivered_total",
            "Messages delivered with manual ack / s": (
                f"{_GLOBAL}_delivered_consume_manual_ack_total"
            ),
            "Messages delivered auto ack / s": f"{_GLOBAL}_delivered_consume_auto_ack_total",
            "Messages acknowledged / s": f"{_GLOBAL}_acknowledged_total",
            "Polling operations with auto ack / s": f"{_GLOBAL}_delivered_get_auto_ack_total",
            "Polling operations that yield no result / s": f"{_GLOBAL}_get_empty_total",
            "Polling operations with manual ack / s": f"{_GLOBAL}_delivered_get_manual_ack_total",
            "Queues declared / s": "rabbitmq_queues_declared_total",
            "Queues created / s": "rabbitmq_queues_created_total",
            "Queues deleted / s": "rabbitmq_queues_deleted_total",
            "Channels opened / s": "rabbitmq_channels_opened_total",
            "Channels closed / s": "rabbitmq_channels_closed_total",
            "Connections opened / s": "rabbitmq_connections_opened_total",
            "Connections closed / s": "rabbitmq_connections_closed_total",
        }.items()
    },
    "Total queues": (_of("rabbitmq_queues"),),
    "Total channels": (_of("rabbitmq_channels"),),
    "Total connections": (_of("rabbitmq_connections"),),
}
QUORUM_QUEUES: Final[dict[str, tuple[str, ...]]] = {
    "Log entries committed / s": (_rate("rabbitmq_raft_commit_index"),),
    "Log entry commit latency": (_of("rabbitmq_raft_commit_latency_seconds"),),
    "Uncommitted log entries": (
        f"sum by (rabbitmq_node) (({_of('rabbitmq_raft_last_written_index')}) - "
        f"({_of('rabbitmq_raft_commit_index')}))",
    ),
    "Leader elections / s": (_rate("rabbitmq_raft_term"),),
    "Raft members with >5k entries in the log": (
        f"sum by (queue, rabbitmq_node) (({_of('rabbitmq_raft_last_written_index')}) - "
        f"({_of('rabbitmq_raft_snapshot_index')}))",
    ),
}
"""Each also asks the same of older names, as `rabbitmq_raft_log_commit_index`: RabbitMQ 4.3 has
only these."""
assert (len(OVERVIEW), len(QUORUM_QUEUES)) == (41, 5)
