"""Samples of a node, its clients, queues, exchanges and vhosts, one each interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from warren_broker.cluster.client_sampler import ClientSampler
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.led_queues import MemberCounts, in_slices
from warren_broker.cluster.pair_sampler import PairSampler, ShownClient
from warren_broker.cluster.process_facts import ProcessFacts, process_work
from warren_broker.counting.counters import CHURN, MESSAGE_COUNTERS
from warren_broker.counting.message_stats import (
    CHANNEL_COUNTED,
    EXCHANGE_COUNTED,
    EXCHANGE_SAMPLES_MAX,
    NODE_STATS,
    UNKNOWN,
    VHOST_COUNTED,
    VHOST_SAMPLES_MAX,
    CountHistory,
)
from warren_broker.counting.pair_counts import ExchangeKey
from warren_machines.metadata.records import QueueRecord
from warren_raft.runtime.host import UnknownGroup
from warren_wire.admin.statistics import DEFAULT_EXCHANGE, NodeSamples, QueueStatistics

_NODE: Final = 0
"""The key of the node's own history."""


class QueueSampler:
    """Looks at the queues that have counts or are led here, SLICE_GROUPS in one turn of the loop.

    A queue is read only when its counts or its log's applied index have changed since the last
    look, so that idle queues take no more than two comparisons. Connections and their channels are
    looked at before, for the octets of their vhosts.

    clients  samples of connections and channels
    pairs    of channels, exchanges and queues
    """

    def __init__(
        self,
        cluster: Cluster,
        definitions: Definitions,
        clients: Mapping[int, ShownClient],
        data_dir: Path,
        interval_ms: int,
    ) -> None:
        """clients: the connections by number; data_dir: on the disk of which the space is told."""
        self._cluster = cluster
        self._connected = clients
        self._data_dir = data_dir
        self._definitions = definitions
        self._interval_ms = interval_ms
        now = cluster.loop.clock.monotonic_ms()
        self._history: CountHistory[int] = CountHistory(now)
        self._of_node: CountHistory[int] = CountHistory(now, names=CHANNEL_COUNTED)
        self._gauges: CountHistory[int] = CountHistory(now, names=NODE_STATS)
        self.clients = ClientSampler(clients, now)
        self._exchanges: CountHistory[ExchangeKey] = CountHistory(
            now, EXCHANGE_SAMPLES_MAX, EXCHANGE_COUNTED
        )
        self._vhosts: CountHistory[str] = CountHistory(now, VHOST_SAMPLES_MAX, VHOST_COUNTED)
        self.pairs = PairSampler(cluster, definitions, clients, now)
        self._looks = 0
        self._epoch_ms = 0  # of the last look

    def start(self) -> None:
        """Take the first sample after the interval, and one each interval from then on."""
        self._cluster.loop.call_later(self._interval_ms, self._look)

    def _look(self) -> None:
        epoch_ms = self._cluster.loop.clock.epoch_ms()
        if epoch_ms < self._epoch_ms:
            of_clients = self.clients.histories
            of_queues = (self._history, self._of_node, self._gauges, self._exchanges, self._vhosts)
            for history in (*of_clients, *of_queues, *self.pairs.histories):
                history.set_back(epoch_ms)
        self._epoch_ms = epoch_ms
        began_ms = self._now()[0]
        in_slices(
            self._cluster.loop,
            self.clients.begin(),
            lambda numbers: self.clients.visit(numbers, self._now()),
            lambda: self._look_at_queues(began_ms),
        )

    def _now(self) -> tuple[int, int]:
        clock = self._cluster.loop.clock
        return clock.monotonic_ms(), clock.epoch_ms()

    def _look_at_queues(self, clients_ms: int) -> None:
        """Look at the queues, after the clients, at which it was begun to look at `clients_ms`."""
        self.clients.end(clients_ms)
        cluster, began_ms = self._cluster, self._now()[0]
        groups = sorted({*cluster.queue_counts.rows, *cluster.effects.led, *self._history})
        in_slices(
            cluster.loop, groups, self._sample_queues, lambda: self._end_look(groups, began_ms)
        )

    def _sample_queues(self, groups: Sequence[int]) -> None:
        now = self._now()
        for group in groups:
            self._sample(group, now)

    def _end_look(self, groups: Sequence[int], began_ms: int) -> None:
        known, now = self._definitions.state.groups, self._now()
        for group in groups:
            if group not in known:
                self._cluster.queue_counts.forget(group)
        self._history.looked(began_ms, (group for group in groups if group in known))
        self._looks += 1
        self._of_node.sample(_NODE, now, self._looks, self._counts(), self._history.total())
        self._of_node.looked(began_ms, (_NODE,))
        self._gauges.sample(_NODE, now, UNKNOWN, self._in_use(), None)
        self._gauges.looked(began_ms, (_NODE,))
        self._sample_vhosts(now, began_ms)
        exchanges = list({*self._cluster.queue_counts.exchanges, *self._exchanges})
        in_slices(
            self._cluster.loop,
            exchanges,
            self._sample_exchanges,
            lambda: self._end_exchanges(exchanges, began_ms),
        )

    def _sample_vhosts(self, now: tuple[int, int], began_ms: int) -> None:
        state, rows = self._definitions.state, self._cluster.queue_counts.vhosts
        lengths = self._history.lengths_by(lambda group: state.groups[group].vhost)
        for vhost in [vhost for vhost in rows if vhost not in state.scopes]:
            del rows[vhost]
        known = sorted({*rows, *lengths, *self._vhosts}.intersection(state.scopes))
        for vhost in known:
            self._vhosts.sample(vhost, now, self._looks, rows.get(vhost), lengths.get(vhost))
        self._vhosts.looked(began_ms, known)

    def _sample_exchanges(self, keys: Sequence[ExchangeKey]) -> None:
        now, rows = self._now(), self._cluster.queue_counts.exchanges
        for key in keys:
            row = rows.get(key)
            if self._definitions.state.exchange(*key) is None:
                self._cluster.queue_counts.forget_exchange(key)
            elif not self._exchanges.unchanged(key, now[0], UNKNOWN, row):
                self._exchanges.sample(key, now, UNKNOWN, row, None)

    def _end_exchanges(self, keys: Sequence[ExchangeKey], began_ms: int) -> None:
        """End the look at the exchanges, the last ones; then wait for the next look."""
        rows = self._cluster.queue_counts.exchanges
        self._exchanges.looked(began_ms, (key for key in keys if key in rows))
        self.pairs.look(lambda: self._cluster.loop.call_later(self._interval_ms, self._look))

    def _sample(self, group: int, now: tuple[int, int]) -> None:
        host, row = self._cluster.host, self._cluster.queue_counts.rows.get(group)
        try:
            leads = host.is_leader(group)
            mark = host.applied_index(group) if leads else UNKNOWN
            if self._history.unchanged(group, now[0], mark, row):
                return
            queue = self._definitions.state.groups.get(group)
            if queue is None or queue.store_of:
                return
            lengths = is_open = None
            if leads:
                counts = MemberCounts.of(host.state(group))
                lengths = (counts.messages, counts.ready, counts.unacked)
                is_open = counts.consumers > 0 and not counts.ready
        except UnknownGroup:  # deleted meanwhile
            return
        self._history.sample(group, now, mark, row, lengths, is_open)

    def _counts(self) -> list[int]:
        """Return what the node's clients did, as CHANNEL_COUNTED has it of a channel."""
        found = dict.fromkeys(CHANNEL_COUNTED, 0)
        for (name, _), value in self._cluster.counters.read().items():
            if name in MESSAGE_COUNTERS:
                found[MESSAGE_COUNTERS[name]] += value
        return [found[name] for name in CHANNEL_COUNTED]

    def _in_use(self) -> list[int]:
        """Return what the node has in use now, and what came and went, as NODE_STATS has it."""
        facts, counted = ProcessFacts.of(self._data_dir), self._cluster.counters.values
        in_use = [facts.resident, facts.files, len(self._connected), facts.disk_free]
        in_use += [counted[name, ()] for name in CHURN.values()]
        return [*in_use, *process_work(), *self._cluster.host.log_work()]

    def read_gauges(self, samples: bool) -> QueueStatistics:
        """Return what the node has in use, under its name; samples: with those that were kept."""
        kept = (NodeSamples(*self._gauges.samples(_NODE)),) if samples else ()
        rates = self._gauges.rates(_NODE)
        return QueueStatistics(self._cluster.host.node_id, tuple(self._in_use()), rates, kept)

    def read_node(self) -> QueueStatistics:
        """Return what the node's clients did, and the lengths of the queues that it leads."""
        kept = NodeSamples(*self._of_node.samples(_NODE))
        return QueueStatistics("", tuple(self._counts()), self._of_node.rates(_NODE), (kept,))

    def read(self, vhost: str, name: str, samples: bool) -> tuple[QueueStatistics, ...]:
        """Return what is known of the queues of a vhost that were used; name: of one; "": of all.

        samples  with those that were kept
        """
        scope = self._definitions.state.scopes.get(vhost)
        if scope is None:
            return ()
        groups, rows = self._definitions.state.groups, self._cluster.queue_counts.rows
        if name:
            wanted = [scope.queues[name].group] if name in scope.queues else []
        else:
            wanted = [group for group in {*rows, *self._history} if group in groups]
        found = [self.of_group(group, samples) for group in wanted if groups[group].vhost == vhost]
        return tuple([one for one in found if one is not None])

    def of_group(self, group: int, samples: bool = False) -> QueueStatistics | None:
        """Return what is known of a queue; None: it was not used here, or is not a client's."""
        queue = self._definitions.state.groups.get(group)
        if queue is None or queue.store_of:
            return None
        counts, history = self._cluster.queue_counts.rows.get(group, ()), self._history
        rates = history.rates(group)
        more = history.changed_ms(group), history.capacity(group, self._now()[0])
        pairs = self._cluster.queue_counts.pairs
        publishers = 0 if pairs is None else pairs.publishers.count_right(group)
        if not (counts or any(rates) or samples or any(more)):
            return None
        kept = (NodeSamples(*history.samples(group)),) if samples else ()
        return QueueStatistics(queue.name, tuple(counts), rates, kept, (), *more, publishers)

    def groups(self) -> list[int]:
        """Return the queues that were used here, or are led here, at the last look."""
        return list(self._history)

    def rates(self, group: int) -> tuple[float, ...]:
        """Return a queue's rates, see `CountHistory.rates`."""
        return self._history.rates(group)

    def queues(self) -> Mapping[int, QueueRecord]:
        """Return the queues that there are, by group."""
        return self._definitions.state.groups

    def read_exchanges(self, vhost: str, name: str, samples: bool) -> tuple[QueueStatistics, ...]:
        """Return what is known of the exchanges of a vhost that were used; see `read`.

        name  DEFAULT_EXCHANGE: of the default exchange
        """
        rows, state = self._cluster.queue_counts.exchanges, self._definitions.state
        if name:
            wanted = [(vhost, "" if name == DEFAULT_EXCHANGE else name)]
        else:
            wanted = [key for key in rows if key[0] == vhost]
        found = []
        for key in wanted:
            if key in rows and state.exchange(*key) is not None:
                kept = (NodeSamples(*self._exchanges.samples(key)),) if samples else ()
                counts, rates = tuple(rows[key]), self._exchanges.rates(key)
                found.append(QueueStatistics(key[1], counts, rates, kept))
        return tuple(found)

    def read_vhosts(self, name: str, samples: bool) -> tuple[QueueStatistics, ...]:
        """Return what is known of a vhost; name "": of all vhosts."""
        rows, scopes, found = self._cluster.queue_counts.vhosts, self._definitions.state.scopes, []
        for vhost in [name] if name else [*{*rows, *self._vhosts}]:
            if vhost in scopes:
                kept = (NodeSamples(*self._vhosts.samples(vhost)),) if samples else ()
                counts, rates = tuple(rows.get(vhost, ())), self._vhosts.rates(vhost)
                lengths = self._vhosts.lengths(vhost)
                found.append(QueueStatistics(vhost, counts, rates, kept, lengths))
        return tuple(found)
