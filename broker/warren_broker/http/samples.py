"""Samples of what the nodes count, and the rates between them.

A rate is the difference of a node's last two samples, divided by the time between them on that
node's own clock; a cluster's rate is the sum of its nodes'. A node that has restarted counts from
0: it has no rate until its second sample. Samples of a counter are sums over the processes that
count now, as those that nodes keep (`kept_samples`): what an ended one counted is in none of them,
so that none is below an earlier one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from warren_broker.counting.counters import MESSAGE_COUNTERS
from warren_broker.counting.message_stats import LENGTHS
from warren_broker.http.sample_ranges import Point, Range, details

SAMPLES_KEPT: Final = 120
MESSAGE_STATS: Final = {
    **{key: name for name, key in MESSAGE_COUNTERS.items()},
    "confirm": "global_messages_confirmed",
    "return_unroutable": "global_messages_unroutable_returned",
    "drop_unroutable": "global_messages_unroutable_dropped",
    "deliver_get": "global_messages_delivered",
}
"""RabbitMQ's keys of `message_stats`, and the counters of the nodes."""

Totals = Mapping[str, Any]
"""`admin_values.overview.NodeTotals`, as the node answers it."""


Process: TypeAlias = tuple[str, int]
"""A node, and the number of its process."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """What was known at a time.

    lengths  of the nodes that answered
    counted  by each process; of one that did not answer what it had counted when it last did
    """

    epoch_ms: int
    lengths: dict[str, int]
    counted: dict[Process, Mapping[str, int]]

    def value(self, name: str, processes: Sequence[Process]) -> int:
        """Return one of LENGTHS, or the sum of a counter of these processes."""
        if name in LENGTHS:
            return self.lengths[name]
        return sum(self.counted[one].get(name, 0) for one in processes if one in self.counted)


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
        lengths = {key: values[key] for key in LENGTHS}
        counted: dict[Process, Mapping[str, int]] = {}
        if self._kept:
            before = self._kept[-1]
            counted |= before.counted
            elapsed_s = (epoch_ms - before.epoch_ms) / 1000
            if elapsed_s > 0:
                self._lengths = {
                    key: (lengths[key] - before.lengths[key]) / elapsed_s for key in LENGTHS
                }
        answered = {str(one["node"]) for one in nodes}
        counted = {one: counters for one, counters in counted.items() if one[0] not in answered}
        counted |= {_process(one): one["counters"] for one in nodes}
        self._by_node = {
            str(one["node"]): _between(self._last.get(one["node"]), one) for one in nodes
        }
        self._last = {str(one["node"]): one for one in nodes}
        self._kept.append(_Sample(epoch_ms, lengths, counted))

    def rate(self, name: str) -> float:
        """Return the cluster's rate of a counter, or of one of LENGTHS, per second."""
        if name in LENGTHS:
            return self._lengths.get(name, 0.0)
        return sum(rates.get(name, 0.0) for rates in self._by_node.values())

    def details(self, name: str, wanted: Range | None, now_ms: int) -> dict[str, Any]:
        """Return `…_details` of a counter, or of one of LENGTHS."""
        points = None if wanted is None else self._points(name, wanted, now_ms)
        return details(self.rate(name), points)

    def _points(self, name: str, wanted: Range, now_ms: int) -> list[Point]:
        """Return what was known at each multiple of the step, the latest first."""
        found: list[Point] = []
        processes = [_process(one) for one in self._last.values()]
        kept = list(self._kept)
        for at_ms in wanted.times(now_ms):
            while kept and kept[-1].epoch_ms > at_ms:
                kept.pop()
            if not kept:
                break
            found.append({"sample": kept[-1].value(name, processes), "timestamp": at_ms})
        return found


def _process(totals: Totals) -> Process:
    return str(totals["node"]), int(totals["boot"])


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
