"""What clients did, by queue, exchange, vhost and node, and the requests for it (HTTP API)."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, Self

import msgspec

from warren_wire.admin.requests import AdminRequest, Natural, Text, route
from warren_wire.errors import InvalidArgument

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
    publishers  of a queue, the channels that have published to it, where they are counted
    """

    name: str
    counts: tuple[int, ...]
    rates: tuple[float, ...]
    samples: tuple[NodeSamples, ...] = ()
    lengths: tuple[int, ...] = ()
    changed_ms: int = 0
    capacity: float = 0.0
    publishers: int = 0

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
        publishers = self.publishers + other.publishers
        return QueueStatistics(self.name, counts, rates, samples, lengths, *more, publishers)


class CountedChannel(msgspec.Struct, frozen=True, array_like=True):
    """An open channel and its user; number: in its connection."""

    connection: str
    number: int
    node: str
    user: str
    peer_host: str
    peer_port: int


class PairStatistics(msgspec.Struct, frozen=True, array_like=True):
    """What was counted of a pair of a channel, an exchange and a queue; "", None: not of it.

    kind      deliveries (`message_stats.COUNTED`), publishes (`pair_counts.PUBLISHER_COUNTED`) or
              routes (`ROUTE_COUNTED`)
    counted   its counts, rates and samples
    """

    kind: str
    queue: str
    exchange: str
    channel: CountedChannel | None
    counted: QueueStatistics

    def plus(self, other: PairStatistics) -> PairStatistics:
        """Return the sums with what another node knows of the same pair."""
        return msgspec.structs.replace(self, counted=self.counted.plus(other.counted))


class GetPairsRequest(AdminRequest[list[PairStatistics]], frozen=True):
    """Return what was counted of pairs, with `management.rates_mode` `detailed`.

    Answer: Listed (PairStatistics); at most 500 of one kind from each node. Without `monitoring`
    channels are one's own. One of queue, exchange and connection is given.

    queue       with channels that were given messages, and exchanges that gave them
    exchange    with channels that have published to it, and queues; `amq.default`: the default one
    connection  with its channels: what they were given by queues, and have published to exchanges
    channel     of the connection only this one; 0: all
    samples     with those that the nodes have kept
    vhost       of queue and exchange; the node says it
    """

    ROUTES: ClassVar = (route("GET /statistics/pairs", "management"),)
    queue: Text = ""
    exchange: Text = ""
    connection: Text = ""
    channel: Natural = 0
    samples: bool = False
    vhost: Text = ""

    def checked(self) -> Self:
        """See the base class."""
        given = [one for one in (self.queue, self.exchange, self.connection) if one]
        if len(given) != 1:
            raise InvalidArgument(
                f"{len(given)} of queue, exchange and connection are given; give one"
            )
        return self


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
