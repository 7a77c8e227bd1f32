"""The families of `/metrics/detailed`: chosen ones of the metrics per object, as in RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import Metric

from warren_broker.counting.counters import CHURN, LOGINS

DETAILED: Final = "detailed_"
OF_CLUSTER: Final = "cluster_"
"""What is of the whole cluster has that word in its name, instead."""
PREFIX: Final = "rabbitmq_"
_DELIVERED: Final = (
    "queue_get_ack",
    "queue_get",
    "queue_messages_delivered_ack",
    "queue_messages_delivered",
    "queue_messages_redelivered",
    "queue_messages_acked",
    "queue_get_empty",
)
_OF_QUEUES: Final[dict[str, tuple[str, ...]]] = {
    "queue_coarse_metrics": ("queue_messages_ready", "queue_messages_unacked", "queue_messages"),
    "queue_consumer_count": ("queue_consumers",),
    "queue_metrics": ("queue_consumers", "queue_messages_ready_bytes"),
}
_OF_CHANNELS: Final[dict[str, tuple[str, ...]]] = {
    "channel_metrics": (
        *("channel_consumers", "channel_messages_unacked", "channel_messages_unconfirmed"),
        *("channel_messages_uncommitted", "channel_acks_uncommitted"),
        *("consumer_prefetch", "channel_prefetch"),
    ),
    "channel_exchange_metrics": (
        *("channel_messages_published", "channel_messages_confirmed"),
        *("channel_messages_unroutable_returned", "channel_messages_unroutable_dropped"),
    ),
    "channel_queue_metrics": (
        *("channel_get_ack", "channel_get", "channel_messages_delivered_ack"),
        *("channel_messages_delivered", "channel_messages_redelivered"),
        *("channel_messages_acked", "channel_get_empty"),
    ),
    "connection_coarse_metrics": ("connection_incoming_bytes", "connection_outgoing_bytes"),
    "connection_metrics": (
        *("connection_incoming_packets", "connection_outgoing_packets"),
        "connection_channels",
    ),
}
_OF_EXCHANGES: Final[dict[str, tuple[str, ...]]] = {
    "exchange_metrics": ("exchange_messages_published",),
    "exchange_bindings": ("cluster_exchange_bindings",),
    "exchange_names": ("cluster_exchange_name",),
    "vhost_status": ("cluster_vhost_status",),
}
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    **{group: (*names, "queue_info") for group, names in _OF_QUEUES.items()},
    "queue_delivery_metrics": _DELIVERED,
    **_OF_CHANNELS,
    **_OF_EXCHANGES,
    "connection_churn_metrics": tuple(CHURN.values()),
    "node_coarse_metrics": (
        "process_open_fds",
        "process_resident_memory_bytes",
        "disk_space_available_bytes",
    ),
    "node_metrics": (
        "process_max_fds",
        "resident_memory_limit_bytes",
        "disk_space_available_limit_bytes",
        "erlang_uptime_seconds",
    ),
    "node_persister_metrics": (
        *("io_write_ops", "io_write_bytes", "io_sync_ops", "io_sync_time_seconds"),
    ),
    "auth_attempt_metrics": LOGINS,
    "ra_metrics": (
        "raft_term",
        "raft_commit_index",
        "raft_last_applied",
        "raft_last_written_index",
        "raft_snapshot_index",
        "raft_commit_latency_seconds",
        *("raft_wal_files", "raft_num_segments", "raft_batches", "raft_writes"),
        *("raft_elections", "raft_snapshots_written", "raft_snapshots_sent"),
        "raft_snapshot_installed",
    ),
}
"""RabbitMQ's words for `family=`, and the names they stand for, without prefix and `_total`.

source  https://www.rabbitmq.com/docs/prometheus#detailed-endpoint, and RabbitMQ 4.3.6's answers
"""
_ALWAYS: Final = (f"{PREFIX}build_info", f"{PREFIX}identity_info")


def wanted(groups: Iterable[str]) -> frozenset[str]:
    """Return the names of the families of groups; words that are none of GROUPS choose nothing."""
    return frozenset(PREFIX + name for group in groups for name in GROUPS.get(group, ()))


def chosen(
    metrics: Iterable[Metric], groups: Iterable[str], vhosts: frozenset[str] | None
) -> Iterator[Metric]:
    """Yield the metrics of the groups, with `detailed_` in their names.

    vhosts  only objects in these are shown; None: all
    """
    names = wanted(groups)
    for metric in metrics:
        if metric.name in _ALWAYS:
            yield metric
        elif metric.name in names:
            yield _detailed(metric, vhosts)


def _detailed(metric: Metric, vhosts: frozenset[str] | None) -> Metric:
    made = Metric(_renamed(metric.name), metric.documentation, metric.type)
    for sample in metric.samples:
        if vhosts is None or sample.labels.get("vhost") in (None, *vhosts):
            made.samples.append(sample._replace(name=_renamed(sample.name)))
    return made


def _renamed(name: str) -> str:
    if name.startswith(PREFIX + OF_CLUSTER):
        return name
    return f"{PREFIX}{DETAILED}{name.removeprefix(PREFIX)}"
