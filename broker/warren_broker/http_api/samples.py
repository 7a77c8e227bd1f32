"""Samples of what the nodes count, and the rates between them.

A rate is the difference of a node's last two samples, divided by the time between them on that
node's own clock; a cluster's rate is the sum of its nodes'. A node that has restarted counts from
0: it has no rate until its second sample.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from warren_broker.http_api.replies import bad_request
from warren_broker.message_stats import LENGTHS

SAMPLES_KEPT: Final = 120
AGE_S_MAX: Final = 366 * 86_400
POINTS_MAX: Final = 500
"""Samples in one answer, as in RabbitMQ."""
MESSAGE_STATS: Final = {
    "publish": "global_messages_received",
    "confirm": "global_messages_confirmed",
    "deliver_get": "global_messages_delivered",
    "deliver": "global_messages_delivered_consume_manual_ack",
    "deliver_no_ack": "global_messages_delivered_consume_auto_ack",
    "get": "global_messages_delivered_get_manual_ack",
    "get_no_ack": "global_messages_delivered_get_auto_ack",
    "get_empty": "global_messages_get_empty",
    "redeliver": "global_messages_redelivered",
    "ack": "global_messages_acknowledged",
}
"""RabbitMQ's keys of `message_stats`, and the counters of the nodes."""
CHURN: Final = {
    "connection_created": "connections_opened",
    "connection_closed": "connections_closed",
    "channel_created": "channels_opened",
    "channel_closed": "channels_closed",
    "queue_declared": "queues_declared",
    "queue_created": "queues_created",
    "queue_deleted": "queues_deleted",
}
"""RabbitMQ's keys of `churn_rates`, and the counters of the nodes."""

Totals = Mapping[str, Any]
"""`management.total_values.NodeTotals`, as the node answers it."""


@dataclass(frozen=True, slots=True)
class Range:
    """The samples that a query asks for: one each incr_ms in the last age_ms."""

    age_ms: int
    incr_ms: int


def range_of(query: Mapping[str, str], prefix: str) -> Range | None:
    """Return what PREFIX_age and PREFIX_incr (seconds) ask for; None: nothing. Raises HttpRefusal.

    source  RabbitMQ: what is not two numbers asks for nothing
    """
    given = [query.get(f"{prefix}_{key}", "") for key in ("age", "incr")]
    if not all(one.isascii() and one.isdigit() and len(one) < 10 for one in given):
        return None
    age, incr = map(int, given)
    if not 0 < incr <= age <= AGE_S_MAX or age // incr > POINTS_MAX:
        raise bad_request(
            f"{prefix}_age={age}, {prefix}_incr={incr}: at most {POINTS_MAX} samples can be asked "
            "for, and at least one"
        )
    return Range(age * 1000, incr * 1000)


@dataclass(frozen=True, slots=True)
class _Sample:
    epoch_ms: int
    values: dict[str, int]


class Samples:
    """The latest samples of a cluster.

    Invariant: at most SAMPLES_KEPT are kept; `_last` has one of each node of the latest sample
    """

    def __init__(self) -> None:
        self._last: dict[str, Totals] = {}
        self._by_node: dict[str, dict[str, float]] = {}
        self._lengths: dict[str, float] = {}
        self._kept: deque[_Sample] = deque(maxlen=SAMPLES_KEPT)

    def clear(self) -> None:
        """Forget all samples: between the last one and the next one nothing is known."""
        self._last, self._by_node, self._lengths = {}, {}, {}
        self._kept.clear()

    def add(self, epoch_ms: int, nodes: Sequence[Totals]) -> None:
        """Add a sample of the nodes that answered; others have no rate."""
        values = summed(nodes)
        if self._kept:
            before = self._kept[-1]
            elapsed_s = (epoch_ms - before.epoch_ms) / 1000
            if elapsed_s > 0:
                self._lengths = {
                    key: (values[key] - before.values[key]) / elapsed_s for key in LENGTHS
                }
        self._by_node = {
            str(one["node"]): _between(self._last.get(one["node"]), one) for one in nodes
        }
        self._last = {str(one["node"]): one for one in nodes}
        self._kept.append(_Sample(epoch_ms, values))

    def node_rate(self, node: str, counter: str) -> float:
        """Return a node's rate of a counter per second."""
        return self._by_node.get(node, {}).get(counter, 0.0)

    def rate(self, name: str) -> float:
        """Return the cluster's rate of a counter, or of one of LENGTHS, per second."""
        if name in LENGTHS:
            return self._lengths.get(name, 0.0)
        return sum(rates.get(name, 0.0) for rates in self._by_node.values())

    def details(self, name: str, wanted: Range | None, now_ms: int) -> dict[str, Any]:
        """Return `…_details` of a counter, or of one of LENGTHS."""
        shown: dict[str, Any] = {"rate": round(self.rate(name), 3)}
        if wanted is None:
            return shown
        points = self._points(name, wanted, now_ms)
        shown["samples"] = points
        shown["avg"] = sum(one["sample"] for one in points) / len(points) if points else 0.0
        shown["avg_rate"] = 0.0
        if len(points) > 1:
            elapsed_s = (points[0]["timestamp"] - points[-1]["timestamp"]) / 1000
            shown["avg_rate"] = (points[0]["sample"] - points[-1]["sample"]) / elapsed_s
        return shown

    def _points(self, name: str, wanted: Range, now_ms: int) -> list[dict[str, int]]:
        """Return what was known at each multiple of the step, the latest first."""
        last_ms = now_ms // wanted.incr_ms * wanted.incr_ms
        found = []
        kept = list(self._kept)
        for at_ms in range(last_ms, now_ms - wanted.age_ms - 1, -wanted.incr_ms):
            while kept and kept[-1].epoch_ms > at_ms:
                kept.pop()
            if not kept:
                break
            found.append({"sample": kept[-1].values.get(name, 0), "timestamp": at_ms})
        return found


def _between(before: Totals | None, now: Totals) -> dict[str, float]:
    if before is None or before["boot"] != now["boot"]:
        return {}
    elapsed_s = (now["at_ms"] - before["at_ms"]) / 1000
    if elapsed_s <= 0:
        return {}
    then = before["counters"]
    return {key: (value - then.get(key, 0)) / elapsed_s for key, value in now["counters"].items()}


def summed(nodes: Sequence[Totals]) -> dict[str, int]:
    """Return the sums of the counters, and of LENGTHS, over the nodes."""
    found = dict.fromkeys(LENGTHS, 0)
    for node in nodes:
        for key, value in node["counters"].items():
            found[key] = found.get(key, 0) + value
        for led in node["vhosts"].values():
            for key in LENGTHS:
                found[key] += led[key]
    return found
