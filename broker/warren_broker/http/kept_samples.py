"""The samples that nodes have kept, as what was known at given times."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from warren_broker.counting.message_stats import COUNTED, LENGTHS, UNKNOWN, sample_width
from warren_broker.http.sample_ranges import Point, Range

HANDED_OUT: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
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
