"""A reading as Prometheus's text, with RabbitMQ's names."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from warren_broker.cluster.allocator import Allocated, allocated
from warren_broker.cluster.process_facts import (
    cpu_seconds,
    disk_free_bytes,
    open_files,
    resident_bytes,
    resident_kinds,
)
from warren_broker.config import AlarmSettings
from warren_broker.counting.counters import FAMILIES
from warren_broker.metrics.client_families import client_families, client_totals, exchange_families
from warren_broker.metrics.detailed import PREFIX, chosen, wanted
from warren_broker.metrics.node_families import families_of, node_families
from warren_broker.metrics.queue_families import Wants, object_families, pieces, total_families
from warren_broker.metrics.readings import LINKS, SHOVELS, STATIC_SHOVELS, NodeReading
from warren_broker.process.certificate_ends import CertificateEnd, first_ends
from warren_raft.runtime.group import LogPosition
from warren_wire import VERSION

PARTS: Final = (
    *("code_module", "client_connection_reader", "client_connection_writer"),
    *("client_connection_channel", "client_connection_other", "classic_queue_erlang_process"),
    *("quorum_queue_erlang_process", "quorum_queue_dlx_erlang_process", "stream_erlang_process"),
    *("stream_replica_reader_erlang_process", "stream_coordinator_erlang_process", "plugin"),
    *("modern_metadata_store", "other_erlang_process", "metrics", "management_stats_db"),
    *("classic_metadata_store", "quorum_queue_ets_table", "modern_metadata_store_ets_table"),
    *("other_ets_table", "binary_heap", "message_index", "atom_table", "other_system"),
    *("runtime_allocated_unused", "runtime_reserved_unallocated"),
)
"""RabbitMQ's parts. source: RabbitMQ 4.3.6's answer."""


def memory_families(
    resident_bytes: int, kinds: dict[str, int], allocated: Allocated | None
) -> Iterator[Metric]:
    """Yield the families of `/metrics/memory-breakdown`, under RabbitMQ's names.

    RabbitMQ divides memory by the parts of the Erlang machine. A node here has one heap: the whole
    is in `rabbitmq_memory_other_system_bytes` but for what the allocator keeps free, so that a
    dashboard that adds them up shows the memory of the process. What else is known has names of its
    own.

    kinds  resident bytes by what they are of: anonymous, file, shared
    """
    free = 0 if allocated is None else min(allocated.free, resident_bytes)
    known = {"other_system": resident_bytes - free, "runtime_allocated_unused": free}
    for part in PARTS:
        said = "Memory of this part; what Warren does not divide is in other_system"
        yield GaugeMetricFamily(f"rabbitmq_memory_{part}_bytes", said, value=known.get(part, 0))
    said = "Resident memory by what it is of"
    rows = [([kind], size) for kind, size in kinds.items()]
    yield filled(GaugeMetricFamily("warren_memory_resident_bytes", said, labels=["kind"]), rows)


POSITIONS: Final[dict[str, tuple[str, str]]] = {
    "term": ("rabbitmq_raft_term", "Current term"),
    "committed": ("rabbitmq_raft_commit_index", "Last committed entry"),
    "applied": ("rabbitmq_raft_last_applied", "Last applied entry"),
    "durable": ("rabbitmq_raft_last_written_index", "Last entry on this node's disk"),
    "snapshot": ("rabbitmq_raft_snapshot_index", "Last entry of the newest snapshot"),
    "commit_s": (
        "rabbitmq_raft_commit_latency_seconds",
        "How long the leader's last measured entry took until it was committed and applied",
    ),
}
"""Name and text of each field of `LogPosition`."""


MEMORY_BREAKDOWN: Final = "memory-breakdown"


@dataclass(frozen=True, slots=True)
class ScrapeView:
    """What a scrape asks for.

    endpoint    RabbitMQ's word for it
    per_object  metrics of each queue, instead of sums
    groups      RabbitMQ's words of the metrics that are shown (`detailed.GROUPS`); None: all are
    vhosts      with groups: objects in other vhosts are left out; None: none are
    """

    endpoint: str
    per_object: bool
    groups: tuple[str, ...] | None = None
    vhosts: frozenset[str] | None = None


BEGAN_S: Final = time.monotonic()
"""When the process was started: it loads this module first of all."""
OWN_COLLECTORS: Final[tuple[Collector, ...]] = (
    ProcessCollector(registry=None),
    PlatformCollector(registry=None),
    GCCollector(registry=CollectorRegistry()),
)
"""The library's own, of the process and its Python; asked on the thread of the scrape."""


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """What the operating system says of the process and its disk."""

    resident_bytes: int
    open_files: int
    open_files_max: int
    disk_free_bytes: int
    certificates: list[CertificateEnd]
    allocated: Allocated | None
    resident_kinds: dict[str, int]
    cpu_s: dict[str, float] = field(default_factory=dict)
    uptime_s: float = 0.0
    collectors: tuple[Collector, ...] = ()

    @classmethod
    def taken(cls, data_dir: Path, certificates: Iterable[Path]) -> ProcessReading:
        """Ask the operating system; may wait for the disk."""
        return cls(
            resident_bytes(),
            open_files(),
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            disk_free_bytes(data_dir),
            first_ends(certificates),
            allocated(),
            resident_kinds(),
            cpu_seconds(),
            time.monotonic() - BEGAN_S,
            OWN_COLLECTORS,
        )


TEXT_BYTES: Final = 64 << 10
"""A piece of the text is at least that long, but the last one."""


@dataclass(frozen=True, slots=True)
class _One:
    """A collector of one metric, as the library wants it."""

    metric: Metric

    def collect(self) -> tuple[Metric]:
        return (self.metric,)


def text_pieces(metrics: Iterable[Metric]) -> Iterator[bytes]:
    """Yield the metrics in the text format 0.0.4; pieces of a family follow each other."""
    made, name = bytearray(), ""
    for metric in metrics:
        text = generate_latest(_One(metric))
        # Help and type of a family are said once.
        made += text.split(b"\n", 2)[2] if metric.name == name else text
        name = metric.name
        if len(made) >= TEXT_BYTES:
            yield bytes(made)
            made.clear()
    if made:
        yield bytes(made)


def filled(metric: Any, rows: Iterable[tuple[list[str], float]]) -> Metric:
    """Return a family with a value for each list of labels."""
    for labels, value in rows:
        metric.add_metric(labels, value)
    return metric  # type: ignore[no-any-return]


class Readings(Collector):
    """The families of one scrape."""

    def __init__(
        self, reading: NodeReading, process: ProcessReading, limits: AlarmSettings, view: ScrapeView
    ) -> None:
        self._reading = reading
        self._process = process
        self._limits = limits
        self._view = view
        self._per_object = view.per_object

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry is for one reading."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield each family once."""
        if self._view.endpoint == MEMORY_BREAKDOWN:
            yield from self._identity()
            process = self._process
            known = process.resident_bytes, process.resident_kinds, process.allocated
            yield from memory_families(*known)
            return
        groups = self._view.groups
        shown = self._all()
        yield from shown if groups is None else chosen(shown, groups, self._view.vhosts)

    def _all(self) -> Iterator[Metric]:
        reading, groups = self._reading, self._view.groups
        wants = (lambda name: True) if groups is None else wanted(groups).__contains__
        yield from self._identity()
        yield from self._node()
        yield from self._certificates()
        yield from self._strangers()
        yield from self._transfers()
        yield from self._counters()
        yield from object_families(reading, wants) if self._per_object else total_families(reading)
        if not self._per_object:
            yield from client_totals(reading)
        else:
            yield from client_families(reading, wants)
            yield from exchange_families(reading, wants)
        yield from self._raft(wants)
        yield from node_families(self._reading)
        yield from families_of(self._process.collectors)

    def _identity(self) -> Iterator[Metric]:
        build = {
            "product_name": "Warren",
            "product_version": VERSION,
            "prometheus_client_version": version("prometheus-client"),
        }
        identity = {
            "rabbitmq_node": self._reading.node,
            "rabbitmq_cluster": self._reading.cluster,
            "rabbitmq_endpoint": self._view.endpoint,
        }
        for name, said, labels in (
            ("build_info", "Versions of the broker", build),
            ("identity_info", "The node and its cluster", identity),
        ):
            info = GaugeMetricFamily(PREFIX + name, said, labels=list(labels))
            yield filled(info, [(list(labels.values()), 1)])

    def _node(self) -> Iterator[Metric]:
        reading, process, limits = self._reading, self._process, self._limits
        for name, said, value in (
            ("connections", "Connections with an open vhost", reading.connections),
            ("channels", "Channels open", reading.channels),
            ("consumers", "Consumers of the queues led here", reading.total.consumers),
            ("queues", "Queues led here", reading.led),
            (
                "process_resident_memory_bytes",
                "Resident memory of the process",
                process.resident_bytes,
            ),
            (
                "resident_memory_limit_bytes",
                "Memory above which publishers are blocked",
                limits.memory_high_watermark_bytes,
            ),
            (
                "disk_space_available_bytes",
                "Free space of the data directory's disk",
                process.disk_free_bytes,
            ),
            (
                "disk_space_available_limit_bytes",
                "Free space below which publishers are blocked",
                limits.disk_free_limit_bytes,
            ),
            ("process_open_fds", "Open file descriptors", process.open_files),
            ("process_max_fds", "Limit of open file descriptors", process.open_files_max),
            (
                "alarms_memory_used_watermark",
                "1 while this node has the memory alarm",
                "memory" in reading.alarms,
            ),
            (
                "alarms_free_disk_space_watermark",
                "1 while this node has the disk alarm",
                "disk" in reading.alarms,
            ),
        ):
            yield GaugeMetricFamily(PREFIX + name, said, value=int(value))
        cpu = CounterMetricFamily(
            "warren_cpu_seconds",
            "Time of processors, of user code and of the system",
            labels=["mode"],
        )
        yield filled(cpu, [([mode], seconds) for mode, seconds in process.cpu_s.items()])
        said = "Seconds since the node was started"
        yield GaugeMetricFamily(PREFIX + "erlang_uptime_seconds", said, value=process.uptime_s)
        said = "Version of what the nodes write and send"
        yield GaugeMetricFamily("warren_cluster_version", said, value=reading.version)
        memory = GaugeMetricFamily(
            "warren_allocator_bytes", "What the C library's allocator holds", labels=["part"]
        )
        held = {} if process.allocated is None else process.allocated._asdict()
        yield filled(memory, [([part], size) for part, size in held.items()])

    def _certificates(self) -> Iterator[Metric]:
        ends = GaugeMetricFamily(
            "warren_certificate_not_after_seconds",
            "End of the file's certificate that ends first, seconds since 1970",
            labels=["file"],
        )
        known = self._process.certificates
        yield filled(ends, [([str(one.file)], one.ends.timestamp()) for one in known])

    def _strangers(self) -> Iterator[Metric]:
        """Yield what clients take before their login."""
        begun = GaugeMetricFamily(
            "warren_before_login",
            "Connections before their login, and logins, that have a place or wait for one",
            labels=["what", "state"],
        )
        ended = CounterMetricFamily(
            "warren_before_login_turned_away",
            "Those that were ended: refused one, or lost it to another",
            labels=["what", "reason"],
        )
        for what, (held, waiting, refused, evicted) in self._reading.strangers.items():
            begun.add_metric([what, "place"], held)
            begun.add_metric([what, "waiting"], waiting)
            ended.add_metric([what, "refused"], refused)
            ended.add_metric([what, "evicted"], evicted)
        yield from (begun, ended)

    def _transfers(self) -> Iterator[Metric]:
        for family, said in (
            (SHOVELS, "Shovels"),
            (STATIC_SHOVELS, "Static shovels"),
            (LINKS, "Federation links"),
        ):
            metric = GaugeMetricFamily(PREFIX + family, f"{said} of this node", labels=["status"])
            known = self._reading.transfers.items()
            yield filled(
                metric, [([status], count) for (of, status), count in known if of == family]
            )

    def _counters(self) -> Iterator[Metric]:
        found = self._reading.counters
        for name, family in FAMILIES.items():
            metric = CounterMetricFamily(
                family.prefix + name, family.text, labels=list(family.labels)
            )
            yield filled(metric, [(list(key[1]), n) for key, n in found.items() if key[0] == name])

    def _raft(self, wants: Wants) -> Iterator[Metric]:
        """Yield the positions of the definitions' log, and per object of each queue's."""
        definitions, per_object = self._reading.definitions, self._per_object
        for key, (name, said) in POSITIONS.items():
            if definitions is not None:
                value = getattr(definitions, key)
                yield filled(
                    GaugeMetricFamily(name, said, labels=["ra_system"]), [(["coordination"], value)]
                )
            rows = (
                ([queue.vhost, queue.name], getattr(queue.position, key))
                for queue in (self._reading.queues if per_object else ())
            )
            if per_object or definitions is None:
                yield from pieces(wants, GaugeMetricFamily, name, said, ["vhost", "queue"], rows)
        yield GaugeMetricFamily(
            "warren_raft_entries_damaged",
            "Entries of the log that are unreadable here and not repaired yet",
            value=self._reading.damaged,
        )
        yield CounterMetricFamily(
            "warren_raft_entries_repaired",
            "Unreadable entries that other members have sent",
            value=self._reading.repaired,
        )


assert {*POSITIONS} == {*LogPosition._fields}, "a text for each position"
