"""What a scrape shows of the node, read on the loop's thread in slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from warren_broker.broker.broker import Broker
from warren_broker.clients.connection_faults import guarded_call
from warren_broker.cluster.led_queues import NO_COUNTS, MemberCounts, in_slices, visit_groups
from warren_broker.cluster.resource_alarms import ResourceAlarms
from warren_broker.counting.counters import QUEUE_TYPES, Labels
from warren_broker.transfers.shovel.supervisor import Supervisor
from warren_machines.metadata.records import QueueRecord
from warren_machines.metadata.runtime_parameters import cluster_name
from warren_raft.runtime.group import LogPosition
from warren_raft.types import METADATA_GROUP
from warren_wire.admin.shovels import DYNAMIC, FEDERATION, STATIC

SHOVELS = "shovel_dynamic"
STATIC_SHOVELS = "shovel_static"
LINKS = "federation_links"


class QueueReading(NamedTuple):
    """A queue of which this node has a member; counts: None unless it is led here."""

    vhost: str
    name: str
    queue_type: str
    position: LogPosition
    counts: MemberCounts | None


class CountedQueue(NamedTuple):
    """A queue that clients of this node have used; counts: of `message_stats.COUNTED`."""

    vhost: str
    name: str
    counts: tuple[int, ...]


@dataclass(slots=True)
class NodeReading:
    """What the loop's thread knows of the node.

    version    of the cluster (`warren_raft.versions`)
    transfers  shovels and federation links of this node by (family, status)
    damaged    entries of the log that are unreadable here and not repaired yet
    repaired   those that other members have sent, since the start
    strangers  places and turns before a login, by what: those with one, those that wait, and how
               many were turned away before and after they had one
    queues, counted  of a scrape per object; else empty
    """

    node: str
    cluster: str
    version: int
    counters: dict[tuple[str, Labels], int]
    connections: int
    channels: int
    alarms: tuple[str, ...]
    transfers: dict[tuple[str, str], int]
    damaged: int
    repaired: int
    strangers: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    definitions: LogPosition | None = None
    led: int = 0
    total: MemberCounts = NO_COUNTS
    queues: list[QueueReading] = field(default_factory=list)
    counted: list[CountedQueue] = field(default_factory=list)


class Gathering:
    """One reading under way; its groups are not of one moment, each queue is.

    done    called with the reading
    failed  called instead when reading it failed: the node continues
    """

    def __init__(
        self,
        broker: Broker,
        alarms: ResourceAlarms,
        per_object: bool,
        done: Callable[[NodeReading], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._broker = broker
        self._alarms = alarms
        self._per_object = per_object
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
            connections,
            channels,
            self._alarms.own,
            self._transfers(),
            broker.cluster.host.repair.wanted,
            broker.cluster.host.repair.healed,
            {**broker.strangers.counts(), **broker.cluster.host.peer_port.counts()},
        )
        if self._per_object:
            reading.counted += self._counted()
        in_slices(
            broker.cluster.loop,
            broker.cluster.host.groups(),
            partial(visit_groups, partial(self._add, reading)),
            lambda: self._done(reading),
            partial(guarded_call, self),
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
        if group == METADATA_GROUP:
            reading.definitions = host.log_position(group)
            return
        queue: QueueRecord | None = self._broker.definitions.state.groups.get(group)
        if queue is None or queue.store_of:
            return
        counts = MemberCounts.of(host.state(group)) if host.is_leader(group) else None
        if counts is not None:
            reading.led += 1
            reading.total = reading.total.plus(counts)
        if self._per_object:
            kind = QUEUE_TYPES[queue.config.kind]
            position = host.log_position(group)
            reading.queues.append(QueueReading(queue.vhost, queue.name, kind, position, counts))
