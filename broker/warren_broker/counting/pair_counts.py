"""What a node counts of pairs: channel and queue, channel and exchange, exchange and queue.

With `management.rates_mode` `detailed` alone. Clients choose how many pairs there are, so each kind
has a bound; counts are added for whole runs of messages.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

PAIRS_MAX: Final = 20_000
"""Pairs of one kind; what is done by others is counted of their two ends alone."""
PAIR_SAMPLES_MAX: Final = 60_000
"""Samples of all pairs of one kind, 5.8 MB; of each pair two at least."""
PUBLISHER_COUNTED: Final = ("publish", "confirm", "return_unroutable", "drop_unroutable")
"""RabbitMQ's names of what a channel publishes to an exchange, in the order of a row."""
PUBLISHED, CONFIRMED, RETURNED, DROPPED = range(len(PUBLISHER_COUNTED))
ROUTE_COUNTED: Final = ("publish",)
"""RabbitMQ's name of what an exchange gives a queue."""
ExchangeKey: TypeAlias = tuple[str, str]
"""A vhost, and the name of an exchange in it."""
Row: TypeAlias = list[int]
"""Counts of one queue, exchange, vhost or pair."""
LeftT = TypeVar("LeftT", bound=Hashable)
RightT = TypeVar("RightT", bound=Hashable)


class ChannelKey(NamedTuple):
    """An open channel; connection: its number on this node; number: of the channel in it."""

    session: int
    connection: int
    number: int


class ExchangeShare:
    """Messages of one run of a channel for one exchange, which are not confirmed yet.

    row   of the channel with the exchange
    open  how many they are
    """

    __slots__ = ("open", "row")

    def __init__(self, row: Row, count: int) -> None:
        self.row = row
        self.open = count


def confirm(shares: list[ExchangeShare], count: int) -> None:
    """Count messages of a run as confirmed.

    Which of them is not known: they are counted in the order of the exchanges, so that the counts
    are right when all of the run are confirmed.
    """
    for one in shares:
        taken = min(count, one.open)
        one.row[CONFIRMED] += taken
        one.open -= taken
        count -= taken
        if not count:
            return


class Pairs(Generic[LeftT, RightT]):
    """The counts of the pairs of one kind, by either end.

    names  of the counts, in the order of a row
    rows   by pair, the oldest first

    Invariants: at most `pairs_max` rows; each has its ends in both indexes, and these no others
    """

    __slots__ = ("_lefts", "_pairs_max", "_rights", "names", "rows")

    def __init__(self, names: Sequence[str], pairs_max: int = PAIRS_MAX) -> None:
        self.names = names
        self._pairs_max = pairs_max
        self.rows: dict[tuple[LeftT, RightT], Row] = {}
        self._lefts: dict[LeftT, dict[RightT, None]] = {}
        self._rights: dict[RightT, dict[LeftT, None]] = {}

    def row(self, left: LeftT, right: RightT) -> Row | None:
        """Return the counts of a pair, which the caller may increase; None: there is no room."""
        row = self.rows.get((left, right))
        if row is None and len(self.rows) < self._pairs_max:
            row = self.rows[left, right] = [0] * len(self.names)
            self._lefts.setdefault(left, {})[right] = None
            self._rights.setdefault(right, {})[left] = None
        return row

    def of_left(self, left: LeftT) -> Iterable[RightT]:
        """Return what a left end is paired with."""
        return self._lefts.get(left, ())

    def of_right(self, right: RightT) -> Iterable[LeftT]:
        """Return what a right end is paired with."""
        return self._rights.get(right, ())

    def count_right(self, right: RightT) -> int:
        """Return the number of pairs of a right end."""
        return len(self._rights.get(right, ()))

    def forget_left(self, left: LeftT) -> None:
        """Drop the pairs of a left end."""
        for right in self._lefts.pop(left, ()):
            del self.rows[left, right]
            of = self._rights[right]
            del of[left]
            if not of:
                del self._rights[right]

    def forget_right(self, right: RightT) -> None:
        """Drop the pairs of a right end."""
        for left in self._rights.pop(right, ()):
            del self.rows[left, right]
            of = self._lefts[left]
            del of[right]
            if not of:
                del self._lefts[left]

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self.rows) <= self._pairs_max, len(self.rows)
        by_left = {(left, right) for left, of in self._lefts.items() for right in of}
        by_right = {(left, right) for right, of in self._rights.items() for left in of}
        assert by_left == by_right == self.rows.keys(), (by_left, by_right)
        assert all(self._lefts.values()) and all(self._rights.values())


class PairCounts:
    """The pairs of a node's open channels, exchanges and queues (by group).

    deliveries  what a channel was given from a queue
    publishes   what a channel has published to an exchange
    routes      what an exchange has given a queue, of what clients have published to it
    publishers  what of a channel's messages a queue was given
    channels    that are open, by the connection's number
    """

    __slots__ = ("channels", "deliveries", "publishers", "publishes", "routes")

    def __init__(self, delivered: Sequence[str], pairs_max: int = PAIRS_MAX) -> None:
        """delivered: the names of the counts of `deliveries`."""
        self.deliveries: Pairs[ChannelKey, int] = Pairs(delivered, pairs_max)
        self.publishes: Pairs[ChannelKey, ExchangeKey] = Pairs(PUBLISHER_COUNTED, pairs_max)
        self.routes: Pairs[ExchangeKey, int] = Pairs(ROUTE_COUNTED, pairs_max)
        self.publishers: Pairs[ChannelKey, int] = Pairs(ROUTE_COUNTED, pairs_max)
        self.channels: dict[int, dict[ChannelKey, None]] = {}

    def sampled(self) -> dict[str, Pairs[Any, Any]]:
        """Return those of which rates and samples are kept, by name."""
        return {
            "deliveries": self.deliveries,
            "publishes": self.publishes,
            "routes": self.routes,
        }

    def routed(self, exchange: ExchangeKey, group: int, channel: ChannelKey | None, n: int) -> None:
        """Count n messages of an exchange for a queue; channel: that has published them."""
        row = self.routes.row(exchange, group)
        if row is not None:
            row[0] += n
        row = None if channel is None else self.publishers.row(channel, group)
        if row is not None:
            row[0] += n

    def opened(self, channel: ChannelKey) -> None:
        """Take note of a channel."""
        self.channels.setdefault(channel.connection, {})[channel] = None

    def forget_channel(self, channel: ChannelKey) -> None:
        """Drop the pairs of a channel that has ended."""
        of = self.channels.get(channel.connection, {})
        of.pop(channel, None)
        if not of:
            self.channels.pop(channel.connection, None)
        self.deliveries.forget_left(channel)
        self.publishes.forget_left(channel)
        self.publishers.forget_left(channel)

    def forget_queue(self, group: int) -> None:
        """Drop the pairs of a deleted queue."""
        self.deliveries.forget_right(group)
        self.routes.forget_right(group)
        self.publishers.forget_right(group)

    def forget_exchange(self, exchange: ExchangeKey) -> None:
        """Drop the pairs of a deleted exchange."""
        self.publishes.forget_right(exchange)
        self.routes.forget_left(exchange)
