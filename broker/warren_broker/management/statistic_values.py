"""What clients did with queues, as `/management` shows it."""

from __future__ import annotations

import msgspec


class NodeSamples(msgspec.Struct, frozen=True, array_like=True):
    """The samples of a queue that one node has, the oldest first.

    whole    all counts of that node were 0 before the first one
    numbers  `message_stats.WIDTH` of each: milliseconds since the epoch, counts, lengths
    """

    whole: bool
    numbers: list[int]


class QueueStatistics(msgspec.Struct, frozen=True, array_like=True):
    """Counts of a queue, in the order of `message_stats.COUNTED`, and what follows from them.

    counts   since the starts of the nodes that answer; empty: there are none
    rates    per second, of the counts and then of the lengths, which its leader knows
    samples  of each node, where they were asked for
    """

    name: str
    counts: tuple[int, ...]
    rates: tuple[float, ...]
    samples: tuple[NodeSamples, ...] = ()

    def plus(self, other: QueueStatistics) -> QueueStatistics:
        """Return the sums with what another node knows of the same queue."""
        counts = self.counts or other.counts
        if self.counts and other.counts:
            counts = tuple([a + b for a, b in zip(self.counts, other.counts, strict=True)])
        rates = tuple([a + b for a, b in zip(self.rates, other.rates, strict=True)])
        return QueueStatistics(self.name, counts, rates, self.samples + other.samples)
