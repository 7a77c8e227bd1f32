"""What a scrape shows of the node, read on the loop's thread in slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from warren_broker.broker.broker import Broker
from warren_broker.clients.connection_faults import guarded_call
from warren_broker.cluster.connections import DescribedClient
from warren_broker.cluster.led_queues import NO_COUNTS, MemberCounts, in_slices, visit_groups
from warren_broker.cluster.resource_alarms import ResourceAlarms
from warren_broker.counting.counters import QUEUE_TYPES, Labels
from warren_broker.counting.message_stats import PUBLISH_IN, VHOST_COUNTED
from warren_broker.transfers.shovel.supervisor import Supervisor
from warren_machines.metadata.records import QueueRecord
from warren_machines.metadata.runtime_parameters import cluster_name
from warren_machines.queue.claims.reader_state import ReaderState
from warren_machines.queue.state import QueueState
from warren_raft.measures import Histogram, RaftMeasures
from warren_raft.runtime.group import LogPosition
from warren_raft.runtime.host import Host, UnknownGroup
from warren_raft.storage.entry_time import EntryTime
from warren_raft.types import METADATA_GROUP
from warren_wire import kernel
from warren_wire.admin.connections import ConnectionInfo
from warren_wire.admin.shovels import DYNAMIC, FEDERATION, STATIC

SLICE_CLIENTS = 20
"""Connections read in one turn of the loop: each may have thousands of channels."""
SHOVELS = "shovel_dynamic"
STATIC_SHOVELS = "shovel_static"
LINKS = "federation_links"


class ReaderReading(NamedTuple):
    """A claim reader of a queue: its open claims, their messages, when its driver was heard."""

    name: str
    claims: int
    messages: int
    heard_ms: int

    @classmethod
    def of(cls, state: ReaderState) -> ReaderReading:
        """Read one."""
        messages = sum([claim.messages for claim in state.all_claims()])
        return cls(state.name, len(state.claims) + len(state.parts), messages, state.heard_ms)


class QueueWork(NamedTuple):
    """What a queue that is led here has beside its counts.

    claims  open ones, and parts of those that were divided
    stages, staged  of sinks, and their messages
    letters  dead letters that were published and are not settled
    oldest   the entry of its oldest message, whatever its state; None: there is no message
    jobs     that have not ended; jobs_waiting: those of them that wait for something
    job_messages  that jobs have taken, or keep for an undo
    """

    claims: int
    readers: tuple[ReaderReading, ...]
    stages: int
    staged: int
    letters: int
    oldest: EntryTime | None
    jobs: int = 0
    jobs_waiting: int = 0
    job_messages: int = 0

    @classmethod
    def of(cls, broker: Broker, group: int, state: QueueState) -> QueueWork:
        """Read a queue that is led here."""
        if not (state.readers or state.runs or state.contents.count or state.jobs):
            return NO_WORK  # most queues, where there are many
        readers = tuple(map(ReaderReading.of, state.readers.values())) if state.readers else ()
        stages = sum([len(run.stages) for _, run in state.all_runs()]) if state.runs else 0
        oldest = None
        if state.contents.count:
            with suppress(KeyError):
                index = next(state.contents.after(0), 0)
                oldest = broker.cluster.host.entry_time(group, index)
        claims = sum([one.claims for one in readers])
        letters = broker.letter_forwarders.under_way(group)
        jobs = [job.why for job in state.jobs.unfinished] if state.jobs else []
        of_jobs = (len(jobs), sum(map(bool, jobs)), state.jobs.messages if state.jobs else 0)
        return cls(claims, readers, stages, state.staged, letters, oldest, *of_jobs)


NO_WORK: Final = QueueWork(0, (), 0, 0, 0, None)


class QueueReading(NamedTuple):
    """A queue of which this node has a member; counts and work: None unless it is led here."""

    vhost: str
    name: str
    queue_type: str
    position: LogPosition | None
    counts: MemberCounts | None
    work: QueueWork | None


class CountedQueue(NamedTuple):
    """A queue that clients of this node have used; counts: of `message_stats.COUNTED`."""

    vhost: str
    name: str
    counts: tuple[int, ...]


@dataclass(slots=True)
class GroupTotals:
    """What the Raft groups with a member here are together.

    leaderless  of which the member knows no leader
    lag         by node: entries that its members lack, of the groups led here
    lag_max     by node: of the group in which it lacks most
    """

    members: int = 0
    led: int = 0
    leaderless: int = 0
    term_max: int = 0
    lag: dict[str, int] = field(default_factory=dict)
    lag_max: dict[str, int] = field(default_factory=dict)

    def add(self, host: Host, group: int) -> None:
        """Count one of them."""
        self.members += 1
        self.leaderless += host.leader(group) is None
        self.term_max = max(self.term_max, host.term(group))
        if host.is_leader(group):
            self.led += 1
            self.add_lags(host.lags(group))

    def add_lags(self, lags: dict[str, int]) -> None:
        """Count what the members of a group lack, by node."""
        for node, behind in lags.items():
            self.lag[node] = self.lag.get(node, 0) + behind
            self.lag_max[node] = max(self.lag_max.get(node, 0), behind)


@dataclass(slots=True)
class ClientTotals:
    """What the connections of clients are together; see `cluster.connections.ClientGauges`."""

    publishers: Counter[str] = field(default_factory=Counter)
    consumers: Counter[str] = field(default_factory=Counter)
    blocked: int = 0

    def add(self, client: DescribedClient) -> None:
        """Count one of them, unless it has ended."""
        gauges = client.gauges()
        if gauges is not None:
            self.publishers[gauges.protocol] += gauges.publishers
            self.consumers[gauges.protocol] += gauges.consumers
            self.blocked += gauges.blocked


class BrokerReading(NamedTuple):
    """What the broker measures by itself; see `Cluster` and `InFlight`.

    kernel  `warren_wire.kernel.ACTIVE`
    """

    turn_blocks: Histogram
    turn_messages: Histogram
    in_flight_bytes: int
    resent: int
    drained: bool
    kernel: str


@dataclass(slots=True)
class NodeReading:
    """What the loop's thread knows of the node.

    sizes      of messages from publishers, by protocol: see `Counters`
    measures, broker, groups, clients  see their classes
    version    of the cluster (`warren_raft.versions`)
    transfers  shovels and federation links of this node by (family, status)
    damaged    entries of the log that are unreadable here and not repaired yet
    repaired   those that other members have sent, since the start
    strangers  places and turns before a login, by what: those with one, those that wait, and how
               many were turned away before and after they had one
    queues     of a scrape per object those with a member here; else those with readers
    work       sums of `QueueWork`'s numbers; empty in a scrape per object
    oldest, whole  the oldest entries of queues that have changed since the last reading; None: it
               has none now. whole: all others have none. oldest_ms: when that of all was written
    counted to vhosts  of a scrape per object, else empty; shown: connections with their channels;
               published: vhost, exchange, messages of clients of this node; exchanges: vhost,
               name, type, number of bindings
    used       what clients have done since the start: sums of `message_stats.VHOST_COUNTED`
    now_ms, times  since the epoch, of the reading, and of the entries in `QueueWork.oldest`, by
               group and index; 0: not found. The thread of the scrape looks for them
    """

    node: str
    cluster: str
    version: int
    counters: dict[tuple[str, Labels], int]
    sizes: dict[str, list[int]]
    measures: RaftMeasures
    broker: BrokerReading
    connections: int
    channels: int
    alarms: tuple[str, ...]
    transfers: dict[tuple[str, str], int]
    damaged: int
    repaired: int
    strangers: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    definitions: LogPosition | None = None
    groups: GroupTotals = field(default_factory=GroupTotals)
    clients: ClientTotals = field(default_factory=ClientTotals)
    led: int = 0
    total: MemberCounts = NO_COUNTS
    queues: list[QueueReading] = field(default_factory=list)
    work: dict[str, int] = field(default_factory=dict)
    oldest: dict[int, EntryTime | None] = field(default_factory=dict)
    whole: bool = False
    oldest_ms: int = 0
    shown: list[ConnectionInfo] = field(default_factory=list)
    published: list[tuple[str, str, int]] = field(default_factory=list)
    exchanges: list[tuple[str, str, str, int]] = field(default_factory=list)
    vhosts: list[str] = field(default_factory=list)
    used: list[int] = field(default_factory=lambda: [0] * len(VHOST_COUNTED))
    now_ms: int = 0
    times: dict[tuple[int, int], int] = field(default_factory=dict)
    counted: list[CountedQueue] = field(default_factory=list)


WORK_SUMS: Final = (
    *("claims", "stages", "staged", "letters"),
    *("jobs", "jobs_waiting", "job_messages"),
)
"""The numbers of `QueueWork`."""
_NO_SUMS: Final = [0] * len(WORK_SUMS)


class QueueTotals:
    """Sums over the groups of a node, kept from one scrape to the next; for the loop's thread.

    Only what has changed since the last scrape is read: of 50,000 queues most have not. What
    changes without `Host.take_changed` is read each time: groups without a leader, with a member
    that lacks entries, and with dead letters under way.

    1. A scrape has taken what has changed, and is given up before it is shown.  2. The next one
    would lack that: so it reads the whole (`whole`).  3. The first one ends after all: what it
    takes then is not shown, since its `life` has ended.
    Invariant: `_sums` has the sum of each column of `_rows`
    """

    _COLUMNS: Final = 4 + len(MemberCounts._fields) + len(WORK_SUMS)

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._begin()

    def _begin(self) -> None:
        self.life = object()
        self._rows: dict[int, tuple[int, ...]] = {}
        self._sums = [0] * self._COLUMNS
        self._terms: dict[int, int] = {}
        self._lags: dict[int, dict[str, int]] = {}
        self._members: set[str] = set()
        self._readers: dict[int, QueueReading] = {}
        self._oldest: dict[int, EntryTime | None] = {}
        self._open: set[int] = set()
        self._whole = True

    def due(self, whole: bool) -> list[int]:
        """Return the groups that are to be read now; whole: the last reading was not shown."""
        host = self._broker.cluster.host
        changed = host.take_changed("metrics")
        if changed is None or whole:
            self._begin()
            return [*host.groups()]
        return [*changed.union(self._open)]

    def read(self, group: int) -> None:
        """Take a group as it is now, or leave it out: it has ended."""
        try:
            row = self._row(group)
        except UnknownGroup:
            row = None
            for kept in (self._terms, self._lags, self._readers):
                kept.pop(group, None)
            self._open.discard(group)
            self._oldest[group] = None
        before = self._rows.pop(group, None)
        if row is not None:
            self._rows[group] = row
        if row != before:
            none = (0,) * self._COLUMNS
            changes = map(int.__sub__, row or none, before or none)
            self._sums = list(map(int.__add__, self._sums, changes))

    def _row(self, group: int) -> tuple[int, ...]:
        host = self._broker.cluster.host
        state, leads, leader = host.state(group), host.is_leader(group), host.leader(group)
        queue = self._broker.definitions.state.groups.get(group) if leads else None
        counts, work, led = NO_COUNTS, NO_WORK, queue is not None and not queue.store_of
        if led:
            counts, work = MemberCounts.of(state), QueueWork.of(self._broker, group, state)
        self._terms[group], self._oldest[group] = host.term(group), work.oldest
        self._readers.pop(group, None)
        if queue is not None and work.readers:
            kind = QUEUE_TYPES[queue.config.kind]
            self._readers[group] = QueueReading(queue.vhost, queue.name, kind, None, counts, work)
        lags = host.lags(group) if leads else {}
        self._members.update(lags)
        self._lags.pop(group, None)
        if any(lags.values()):
            self._lags[group] = lags
        if leader is None or group in self._lags or counts.dead_lettering:
            self._open.add(group)
        else:
            self._open.discard(group)
        numbers = [getattr(work, name) for name in WORK_SUMS] if work is not NO_WORK else _NO_SUMS
        return (1, int(leads), int(leader is None), int(led), *counts, *numbers)

    def show(self, reading: NodeReading) -> None:
        """Put the sums, and what has changed, into a reading."""
        members, led, leaderless, reading.led, *sums = self._sums
        term = max(self._terms.values(), default=0)
        groups = reading.groups = GroupTotals(members, led, leaderless, term)
        groups.lag, groups.lag_max = (dict.fromkeys(self._members, 0) for _ in range(2))
        for lags in self._lags.values():
            groups.add_lags(lags)
        counts = len(MemberCounts._fields)
        reading.total = MemberCounts(*sums[:counts])
        reading.work = dict(zip(WORK_SUMS, sums[counts:], strict=True))
        reading.queues += self._readers.values()
        reading.oldest, self._oldest = self._oldest, {}
        reading.whole, self._whole = self._whole, False


class Gathering:
    """One reading under way; its groups are not of one moment, each queue is.

    totals  of a scrape of sums; None: it is one per object. whole: see `QueueTotals.due`
    done    called with the reading
    failed  called instead when reading it failed: the node continues
    """

    def __init__(
        self,
        broker: Broker,
        alarms: ResourceAlarms,
        totals: QueueTotals | None,
        whole: bool,
        done: Callable[[NodeReading], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._broker = broker
        self._alarms = alarms
        self._totals = totals
        self._whole = whole
        self._life: object = None
        self._per_object = totals is None
        self._done = done
        self.failed = failed

    def start(self) -> None:
        """Begin; to be called on the loop's thread."""
        guarded_call(self, self._start)()

    def _start(self) -> None:
        broker = self._broker
        connections, channels = broker.clients.counts()
        reading = NodeReading(
            broker.settings.node,
            cluster_name(broker.definitions.state, broker.settings.cluster),
            broker.definitions.state.version,
            broker.cluster.counters.read(),
            {key: [*row] for key, row in broker.cluster.counters.sizes.items()},
            broker.cluster.host.measures(),
            self._broker_reading(),
            connections,
            channels,
            self._alarms.own,
            self._transfers(),
            broker.cluster.host.repair.wanted,
            broker.cluster.host.repair.healed,
            {**broker.strangers.counts(), **broker.cluster.host.peer_port.counts()},
        )
        reading.now_ms = broker.cluster.loop.clock.epoch_ms()
        if self._per_object:
            reading.counted += self._counted()
        totals, host = self._totals, broker.cluster.host
        visit = partial(
            visit_groups, partial(self._add, reading) if totals is None else totals.read
        )
        due = host.groups() if totals is None else totals.due(self._whole)
        self._life = totals and totals.life
        with suppress(UnknownGroup):
            reading.definitions = host.log_position(METADATA_GROUP)
        done, guard = partial(self._visit_clients, reading), partial(guarded_call, self)
        in_slices(broker.cluster.loop, due, visit, done, guard)

    def _visit_clients(self, reading: NodeReading) -> None:
        if self._totals is not None and self._totals.life is self._life:
            self._totals.show(reading)

        def visit(clients: Sequence[DescribedClient]) -> None:
            for client in clients:
                reading.clients.add(client)
                shown = client.described(True) if self._per_object else None
                if shown is not None:
                    reading.shown.append(shown)

        in_slices(
            self._broker.cluster.loop,
            [*self._broker.connections.clients.values()],
            visit,
            lambda: self._visit_exchanges(reading),
            partial(guarded_call, self),
            SLICE_CLIENTS,
        )

    def _visit_exchanges(self, reading: NodeReading) -> None:
        scopes = self._broker.definitions.state.scopes if self._per_object else {}
        names = [(vhost, name) for vhost, scope in scopes.items() for name in scope.exchanges]
        reading.vhosts += scopes
        rows = self._broker.cluster.queue_counts.vhosts.values()
        reading.used = [sum(column) for column in zip(reading.used, *rows, strict=True)]
        reading.published += [
            (*key, row[PUBLISH_IN])
            for key, row in self._broker.cluster.queue_counts.exchanges.items()
            if self._per_object
        ]

        def visit(some: Sequence[tuple[str, str]]) -> None:
            for vhost, name in some:
                scope = scopes.get(vhost)
                exchange = None if scope is None else scope.exchanges.get(name)
                if scope is not None and exchange is not None:
                    bindings = len(scope.bindings.get(name, ()))
                    reading.exchanges.append((vhost, name, exchange.kind, bindings))

        loop, done = self._broker.cluster.loop, partial(self._done, reading)
        in_slices(loop, names, visit, done, partial(guarded_call, self))

    def _broker_reading(self) -> BrokerReading:
        cluster = self._broker.cluster
        return BrokerReading(
            cluster.turn_blocks,
            cluster.turn_messages,
            cluster.in_flight.size_bytes,
            cluster.in_flight.resent,
            self._broker.maintenance.drained,
            kernel.ACTIVE,
        )

    def _counted(self) -> Iterator[CountedQueue]:
        queues = self._broker.definitions.state.groups
        for group, row in self._broker.cluster.queue_counts.rows.items():
            queue: QueueRecord | None = queues.get(group)
            if queue is not None and not queue.store_of:
                yield CountedQueue(queue.vhost, queue.name, tuple(row))

    def _transfers(self) -> dict[tuple[str, str], int]:
        broker, found = self._broker, Counter[tuple[str, str]]()
        every: tuple[tuple[str, Supervisor, str], ...] = (
            (SHOVELS, broker.shovels, DYNAMIC),
            (STATIC_SHOVELS, broker.shovels, STATIC),
            (LINKS, broker.federation, FEDERATION),
            (LINKS, broker.exchange_links, FEDERATION),
        )
        for family, here, kind in every:
            for status, count in here.states(kind).items():
                found[family, status] += count
        return dict(found)

    def _add(self, reading: NodeReading, group: int) -> None:
        host = self._broker.cluster.host
        reading.groups.add(host, group)
        queue: QueueRecord | None = self._broker.definitions.state.groups.get(group)
        if queue is None or queue.store_of:
            return
        counts = MemberCounts.of(host.state(group)) if host.is_leader(group) else None
        work = None
        if counts is not None:
            reading.led += 1
            reading.total = reading.total.plus(counts)
            work = QueueWork.of(self._broker, group, host.state(group))
        kind, position = QUEUE_TYPES[queue.config.kind], host.log_position(group)
        reading.queues.append(QueueReading(queue.vhost, queue.name, kind, position, counts, work))
