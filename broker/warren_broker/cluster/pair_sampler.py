"""Samples of pairs of channels, exchanges and queues, and what is answered of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol, TypeAlias

from warren_broker.cluster.client_sampler import CountedClient
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.led_queues import in_slices
from warren_broker.counting.message_stats import UNKNOWN, CountHistory
from warren_broker.counting.pair_counts import (
    PAIR_SAMPLES_MAX,
    ChannelKey,
    PairCounts,
)
from warren_wire.admin.connections import ConnectionInfo
from warren_wire.admin.statistics import (
    DEFAULT_EXCHANGE,
    CountedChannel,
    GetPairsRequest,
    NodeSamples,
    PairStatistics,
    QueueStatistics,
)

PAIRS_SHOWN_MAX: Final = 500
"""Pairs of one kind in a node's answer."""
PAIRS_SAMPLED_MAX: Final = 50
"""Those that have their samples in it: up to 17 KB of each."""
Pair: TypeAlias = tuple[Hashable, Hashable]


class ShownClient(CountedClient, Protocol):
    """A connection that counts, and can be shown."""

    def described(self, channels: bool) -> ConnectionInfo | None:
        """Return what is shown of it; None: it has not opened a vhost, or has ended."""


class PairSampler:
    """The histories of this node's pairs, and its answers; without pairs it does nothing."""

    def __init__(
        self,
        cluster: Cluster,
        definitions: Definitions,
        clients: Mapping[int, ShownClient],
        now_ms: int,
    ) -> None:
        """clients: the connections by number; others add and remove them."""
        self._loop = cluster.loop
        self._definitions = definitions
        self._clients = clients
        self._pairs: PairCounts | None = cluster.queue_counts.pairs
        sampled = {} if self._pairs is None else self._pairs.sampled()
        self._histories: dict[str, CountHistory[Pair]] = {
            kind: CountHistory(now_ms, PAIR_SAMPLES_MAX, pairs.names)
            for kind, pairs in sampled.items()
        }

    @property
    def histories(self) -> Iterable[CountHistory[Pair]]:
        """Return those of each kind."""
        return self._histories.values()

    def look(self, done: Callable[[], object]) -> None:
        """Look at all pairs, some of them in each turn of the loop; then call `done`."""
        pairs = self._pairs
        if pairs is None:
            done()
            return
        known = self._definitions.state.groups
        for group in {group for _, group in pairs.publishers.rows} - known.keys():
            pairs.forget_queue(group)  # what was under way when it was deleted
        of = pairs.sampled()
        work = [(kind, key) for kind, one in of.items() for key in one.rows]
        clock, began_ms = self._loop.clock, self._loop.clock.monotonic_ms()

        def visit(some: Sequence[tuple[str, Pair]]) -> None:
            now = clock.monotonic_ms(), clock.epoch_ms()
            for kind, key in some:
                row, history = of[kind].rows.get(key), self._histories[kind]
                if row is not None and not history.unchanged(key, now[0], UNKNOWN, row):
                    history.sample(key, now, UNKNOWN, row, None)

        def ended() -> None:
            for kind, one in of.items():
                self._histories[kind].looked(began_ms, one.rows)
            done()

        in_slices(self._loop, work, visit, ended)

    # ------------------------------------------------------------ answers

    def found(
        self, asked: GetPairsRequest, told: Callable[[tuple[PairStatistics, ...]], None]
    ) -> None:
        """Answer a question about this node's pairs."""
        pairs = self._pairs
        if pairs is None:
            told(())
            return
        found: list[PairStatistics] = []
        shown: dict[int, ConnectionInfo | None] = {}
        for kind, keys in self._chosen(pairs, asked, shown):
            for at, key in enumerate(islice(keys, PAIRS_SHOWN_MAX)):
                samples = asked.samples and at < PAIRS_SAMPLED_MAX
                one = self._shown(kind, key, samples, shown)
                if one is not None:
                    found.append(one)
        told(tuple(found))

    def _chosen(
        self, pairs: PairCounts, asked: GetPairsRequest, shown: dict[int, ConnectionInfo | None]
    ) -> Iterator[tuple[str, Iterable[Pair]]]:
        """Yield the kinds of pairs that are asked for, and which ones."""
        if asked.connection:
            channels = [*self._channels(pairs, asked.connection, asked.channel, shown)]
            for kind in ("deliveries", "publishes"):
                of = pairs.sampled()[kind]
                yield kind, ((one, other) for one in channels for other in of.of_left(one))
        elif asked.queue:
            queue = self._definitions.state.queue(asked.vhost, asked.queue)
            if queue is not None:
                for kind in ("deliveries", "routes"):
                    of, group = pairs.sampled()[kind], queue.group
                    yield kind, ((one, group) for one in of.of_right(group))
        else:
            name = "" if asked.exchange == DEFAULT_EXCHANGE else asked.exchange
            key = asked.vhost, name
            yield "publishes", ((one, key) for one in pairs.publishes.of_right(key))
            yield "routes", ((key, group) for group in pairs.routes.of_left(key))

    def _channels(
        self,
        pairs: PairCounts,
        name: str,
        number: int,
        shown: dict[int, ConnectionInfo | None],
    ) -> Iterator[ChannelKey]:
        for connection, client in self._clients.items():
            info = client.described(False)
            if info is not None and info.name == name:
                shown[connection] = info
                for one in pairs.channels.get(connection, ()):
                    if number in (0, one.number):
                        yield one
                return

    def _shown(
        self, kind: str, key: Pair, samples: bool, shown: dict[int, ConnectionInfo | None]
    ) -> PairStatistics | None:
        queue = exchange = ""
        channel = None
        for end in key:
            if isinstance(end, ChannelKey):
                channel = self._channel(end, shown)
                if channel is None:
                    return None
            elif isinstance(end, int):
                record = self._definitions.state.groups.get(end)
                if record is None:
                    return None
                queue = record.name
            else:
                assert isinstance(end, tuple), end
                exchange = str(end[1])
        pairs, history = self._pairs, self._histories[kind]
        assert pairs is not None
        row = pairs.sampled()[kind].rows.get(key)
        if row is None:
            return None
        kept = (NodeSamples(*history.samples(key)),) if samples else ()
        counted = QueueStatistics("", tuple(row), history.rates(key), kept)
        return PairStatistics(kind, queue, exchange, channel, counted)

    def _channel(
        self, key: ChannelKey, shown: dict[int, ConnectionInfo | None]
    ) -> CountedChannel | None:
        if key.connection not in shown:
            client = self._clients.get(key.connection)
            shown[key.connection] = None if client is None else client.described(False)
        info = shown[key.connection]
        if info is None:
            return None
        of = info.node, info.user, info.peer_host, info.peer_port
        return CountedChannel(info.name, key.number, *of)
