"""What clients did, by queue, exchange, vhost and node, and the requests for it (HTTP API)."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, Self

import msgspec

from warren_wire.admin.requests import AdminRequest, Text, route

DEFAULT_EXCHANGE: Final = "amq.default"
"""As which the default exchange, which has no name, is asked for, as in RabbitMQ's HTTP API."""


class NodeSamples(msgspec.Struct, frozen=True, array_like=True):
    """The samples of a queue that one node has, the oldest first.

    whole    all counts of that node were 0 before the first one
    numbers  `message_stats.sample_width` of each: milliseconds since the epoch, counts, lengths
    """

    whole: bool
    numbers: list[int]


class QueueStatistics(msgspec.Struct, frozen=True, array_like=True):
    """Counts of a queue, in the order of `message_stats.COUNTED`, and what follows from them.

    Or of an exchange (`EXCHANGE_COUNTED`), of a vhost (`VHOST_COUNTED`), or of what a node has in
    use (`NODE_STATS`).

    counts   since the starts of the nodes that answer; empty: there are none
    rates    per second, of the counts and then of the lengths, which its leader knows
    samples  of each node, where they were asked for
    lengths  of a vhost, at the nodes' last looks; empty: not known
    changed_ms  of a queue, the last change that was seen, since the epoch; 0: none
    capacity    the share of time in which a queue could hand out a message at once, of late
    """

    name: str
    counts: tuple[int, ...]
    rates: tuple[float, ...]
    samples: tuple[NodeSamples, ...] = ()
    lengths: tuple[int, ...] = ()
    changed_ms: int = 0
    capacity: float = 0.0

    def plus(self, other: QueueStatistics) -> QueueStatistics:
        """Return the sums with what another node knows of the same queue."""
        counts, lengths = self.counts or other.counts, self.lengths or other.lengths
        if self.counts and other.counts:
            counts = tuple([a + b for a, b in zip(self.counts, other.counts, strict=True)])
        if self.lengths and other.lengths:
            lengths = tuple([a + b for a, b in zip(self.lengths, other.lengths, strict=True)])
        rates = tuple([a + b for a, b in zip(self.rates, other.rates, strict=True)])
        samples = self.samples + other.samples
        more = max(self.changed_ms, other.changed_ms), max(self.capacity, other.capacity)
        return QueueStatistics(self.name, counts, rates, samples, lengths, *more)


class GetStatisticsRequest(AdminRequest[list[QueueStatistics]], frozen=True):
    """Return what clients did, by name. Answer: Listed (QueueStatistics).

    of       queues, exchanges   of the vhost; `amq.default` is the default one
             vhosts              that the user sees
             nodes               the sums of all, always with samples
             gauges              what each node has in use (`message_stats.NODE_STATS`)
    name     only the one with this name; "": all. What no client has used is left out
    samples  with those that the nodes have kept; of one that is named
    """

    ROUTES: ClassVar = (
        route("GET /statistics/queues", "management", of="queues"),
        route("GET /statistics/exchanges", "management", of="exchanges"),
        route("GET /statistics/vhosts", "management", of="vhosts"),
        route("GET /statistics/nodes", "monitoring", of="nodes"),
        route("GET /statistics/gauges", "monitoring", of="gauges"),
    )
    of: Literal["queues", "exchanges", "vhosts", "nodes", "gauges"]
    name: Text = ""
    samples: bool = False

    def checked(self) -> Self:
        """See the base class."""
        samples = (self.samples and (bool(self.name) or self.of == "gauges")) or self.of == "nodes"
        return msgspec.structs.replace(self, samples=samples)
