"""The families of `/metrics/detailed`: chosen ones of the metrics per object, as in RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import Metric

from warren_broker.counting.counters import CHURN, LOGINS

DETAILED: Final = "detailed_"
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
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    **{group: (*names, "queue_info") for group, names in _OF_QUEUES.items()},
    "queue_delivery_metrics": _DELIVERED,
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
    ),
    "auth_attempt_metrics": LOGINS,
    "ra_metrics": (
        "raft_term",
        "raft_commit_index",
        "raft_last_applied",
        "raft_last_written_index",
        "raft_snapshot_index",
    ),
}
"""RabbitMQ's words for `family=`, and the names they stand for, without prefix and `_total`.

source  https://www.rabbitmq.com/docs/prometheus#detailed-endpoint, and RabbitMQ 4.3.6's answers
"""
_ALWAYS: Final = ("build_info", "identity_info")


def chosen(
    metrics: Iterable[Metric], groups: Iterable[str], vhosts: frozenset[str] | None
) -> Iterator[Metric]:
    """Yield the metrics of the groups, with `detailed_` in their names.

    groups  words that are none of GROUPS choose nothing, as in RabbitMQ
    vhosts  only objects in these are shown; None: all
    """
    wanted = {name for group in groups for name in GROUPS.get(group, ())}
    for metric in metrics:
        name = metric.name.removeprefix(PREFIX)
        if name in _ALWAYS:
            yield metric
        elif name in wanted and metric.name != name:
            yield _detailed(metric, vhosts)


def _detailed(metric: Metric, vhosts: frozenset[str] | None) -> Metric:
    made = Metric(_renamed(metric.name), metric.documentation, metric.type)
    for sample in metric.samples:
        if vhosts is None or sample.labels.get("vhost") in (None, *vhosts):
            made.samples.append(sample._replace(name=_renamed(sample.name)))
    return made


def _renamed(name: str) -> str:
    return f"{PREFIX}{DETAILED}{name.removeprefix(PREFIX)}"
