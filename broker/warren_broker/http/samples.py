"""Samples that nodes have kept: which a query asks for, and what was known at given times."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from warren_broker.counting.message_stats import (
    COUNTED,
    HANDED_OUT,
    LENGTHS,
    UNKNOWN,
    sample_width,
)
from warren_broker.http.replies import bad_request

AGE_S_MAX: Final = 366 * 86_400
"""What is older is not asked for."""
POINTS_MAX: Final = 500
"""Samples in one answer, as in RabbitMQ."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,24}", re.ASCII)
_PREFIXES: Final = ("lengths", "msg_rates", "data_rates", "node_stats")

Point: TypeAlias = dict[str, int]
"""`sample` and `timestamp`, in milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Range:
    """The samples that a query asks for: one each incr_ms in the last age_ms."""

    age_ms: int
    incr_ms: int

    def times(self, now_ms: int) -> range:
        """Return the multiples of the step, the latest first."""
        last_ms = now_ms // self.incr_ms * self.incr_ms
        return range(last_ms, now_ms - self.age_ms - 1, -self.incr_ms)


@dataclass(frozen=True, slots=True)
class Ranges:
    """What a query asks for of lengths, of rates of messages and of octets, and of what nodes use.

    None: nothing
    """

    lengths: Range | None = None
    msg_rates: Range | None = None
    data_rates: Range | None = None
    node_stats: Range | None = None

    def __bool__(self) -> bool:
        asked = (self.lengths, self.msg_rates, self.data_rates, self.node_stats)
        return any(one is not None for one in asked)


def range_of(query: Mapping[str, str], prefix: str) -> Range | None:
    """Return what PREFIX_age and PREFIX_incr (seconds) ask for; None: nothing. Raises HttpRefusal.

    source  RabbitMQ: what is not two whole numbers asks for nothing
    """
    given = [query.get(f"{prefix}_{key}", "") for key in ("age", "incr")]
    if not all(map(_NUMBER.fullmatch, given)):
        return None
    age, incr = (min(int(one), AGE_S_MAX) for one in given)
    if age <= 0 or incr <= 0 or age // incr > POINTS_MAX:
        raise bad_request(
            f"{prefix}_age={given[0]}, {prefix}_incr={given[1]}: both are seconds from 1 on, and "
            f"at most {POINTS_MAX} samples fit; ask for fewer or a greater step"
        )
    return Range(age * 1000, incr * 1000)


def ranges_of(query: Mapping[str, str]) -> Ranges:
    """Return what a query asks for; raises HttpRefusal, also for ages that are not shown there."""
    return Ranges(*(range_of(query, prefix) for prefix in _PREFIXES))


def details(rate: float, points: Sequence[Point] | None) -> dict[str, Any]:
    """Return `…_details`; points: the latest first; None: none were asked for."""
    shown: dict[str, Any] = {"rate": round(rate, 3)}
    if points is None:
        return shown
    shown["samples"] = points
    shown["avg"] = sum(one["sample"] for one in points) / len(points) if points else 0.0
    shown["avg_rate"] = 0.0
    if len(points) > 1:
        elapsed_s = (points[0]["timestamp"] - points[-1]["timestamp"]) / 1000
        shown["avg_rate"] = (points[0]["sample"] - points[-1]["sample"]) / elapsed_s
    return shown


# ------------------------------------------------------------------ what nodes have kept

SUMS: Final = {"deliver_get": HANDED_OUT}
"""A name that stands for the sum of others."""


class _Node(NamedTuple):
    whole: bool
    rows: list[Sequence[int]]


class KeptSamples:
    """The samples of a queue, an exchange, a vhost or the nodes, at the nodes that have some.

    Counts are the sums over the nodes: at a time before a node's first sample they are 0 there,
    unless older ones were dropped. Lengths are those of the latest sample of a leader; of the nodes
    themselves, and of vhosts, they are sums.
    """

    def __init__(
        self, nodes: Sequence[Any], summed: bool = False, names: Sequence[str] = COUNTED
    ) -> None:
        """nodes: of `admin.statistics.NodeSamples`, as the node answers them; names: of counts."""
        self.names = names
        self._summed = summed
        width = sample_width(names)
        self._nodes = [
            _Node(whole, [numbers[at : at + width] for at in range(0, len(numbers), width)])
            for whole, numbers in nodes
        ]

    def counts(self, name: str, wanted: Range, now_ms: int) -> list[Point]:
        """Return the samples of one of the counts, the latest first, as far back as is known."""
        columns = [1 + self.names.index(part) for part in SUMS.get(name, (name,))]
        found: list[Point] = []
        for time_ms in wanted.times(now_ms):
            rows = self._rows(time_ms)
            if any(
                row is None and not node.whole for row, node in zip(rows, self._nodes, strict=True)
            ):
                break
            total = sum(row[at] for row in rows if row is not None for at in columns)
            found.append({"sample": total, "timestamp": time_ms})
        return found

    def lengths(self, name: str, wanted: Range, now_ms: int) -> list[Point]:
        """Return the samples of one of LENGTHS, the latest first, as far back as is known."""
        at = 1 + len(self.names) + LENGTHS.index(name)
        found: list[Point] = []
        for time_ms in wanted.times(now_ms):
            rows = [row for row in self._rows(time_ms) if row is not None and row[at] != UNKNOWN]
            if not rows:
                break
            if self._summed:
                total = sum(row[at] for row in rows)
            else:
                total = max(rows, key=lambda row: row[0])[at]
            found.append({"sample": total, "timestamp": time_ms})
        return found

    def _rows(self, time_ms: int) -> list[Sequence[int] | None]:
        """Return what each node knew at a time; None: nothing."""
        return [_known_at(node.rows, time_ms) for node in self._nodes]


def _known_at(rows: list[Sequence[int]], time_ms: int) -> Sequence[int] | None:
    after = bisect_right(rows, time_ms, key=lambda row: row[0])
    return rows[after - 1] if after else None
