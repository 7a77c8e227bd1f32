"""The families `warren_*` of a node: its event loop, its log on disk, Raft, its peers and clients.

What is measured is kept by what it is about, as plain numbers (`warren_raft.measures`,
`counting.counters`); here the numbers get names, when a scrape has read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from warren_broker.counting.counters import PROTOCOLS, SIZES
from warren_broker.metrics.readings import GroupTotals, NodeReading
from warren_raft.measures import Histogram, RaftMeasures


class MeasureFamily(NamedTuple):
    """Name, text and kind of what a field of `RaftMeasures` holds."""

    name: str
    text: str
    kind: Callable[..., Metric] = GaugeMetricFamily


RAFT: Final[dict[str, MeasureFamily]] = {
    "turns": MeasureFamily("loop_turn_seconds", "Turns of the event loop, without its waits"),
    "lags": MeasureFamily("loop_lag_seconds", "How late timers of the event loop were"),
    "syncs": MeasureFamily("wal_sync_seconds", "Syncs of the log"),
    "sync_bytes": MeasureFamily("wal_sync_bytes", "Bytes of the log per sync"),
    "sync_records": MeasureFamily(
        "wal_sync_records", "Records of the log (entries, votes) per sync"
    ),
    "commits": MeasureFamily(
        "raft_commit_seconds",
        "From the taking of an entry by its leader here until it is committed and applied; of each "
        "group one entry at a time is followed",
    ),
    "applies": MeasureFamily("raft_apply_seconds", "Applying in one turn of the event loop"),
    "elections": MeasureFamily(
        "raft_elections", "Elections for which a member here has stood", CounterMetricFamily
    ),
    "elections_won": MeasureFamily(
        "raft_elections_won", "Elections that a member here has won", CounterMetricFamily
    ),
    "leader_changes": MeasureFamily(
        "raft_leader_changes", "Changes of leader of groups with a member here", CounterMetricFamily
    ),
    "snapshots": MeasureFamily(
        "raft_snapshots_written", "Snapshots written here", CounterMetricFamily
    ),
    "snapshots_sent": MeasureFamily(
        "raft_snapshots_sent", "Snapshot transfers to other nodes, begun", CounterMetricFamily
    ),
    "snapshots_installed": MeasureFamily(
        "raft_snapshots_installed", "Snapshots of other nodes, installed here", CounterMetricFamily
    ),
    "compactions": MeasureFamily(
        "compactions", "Compactions of the log's files", CounterMetricFamily
    ),
    "compacted_bytes": MeasureFamily(
        "compaction_written_bytes", "Bytes that compaction has written again", CounterMetricFamily
    ),
    "wal_files": MeasureFamily("wal_files", "Files of the write-ahead log"),
    "wal_bytes": MeasureFamily("wal_bytes", "Bytes in the files of the write-ahead log"),
    "backlog_bytes": MeasureFamily(
        "wal_backlog_bytes", "Bytes for the log that are not on disk yet"
    ),
    "segments": MeasureFamily("segments", "Segments: files that compaction has written"),
    "segment_bytes": MeasureFamily("segment_bytes", "Bytes in segments"),
    "memtable_bytes": MeasureFamily("memtable_bytes", "Entries that are kept in memory"),
    "memtable_bytes_max": MeasureFamily("memtable_limit_bytes", "Limit of warren_memtable_bytes"),
    "sending": MeasureFamily(
        "raft_snapshots_sending", "Snapshot transfers to other nodes, under way"
    ),
    "receiving": MeasureFamily(
        "raft_snapshots_receiving", "Snapshot transfers to this node, under way"
    ),
    "disk": MeasureFamily(
        "disk_condition", "0: the disk is quick; 1: it is slow; 2: it does not answer"
    ),
}
"""Of each field of `RaftMeasures` with a number or a histogram, without `warren_`."""
assert {*RAFT, "peers"} == {*RaftMeasures.__dataclass_fields__}, "a name for each measure"


def histogram(name: str, text: str, measured: Histogram, **labels: str) -> HistogramMetricFamily:
    """Return a histogram as Prometheus has it: each bucket has those below it, too."""
    made = HistogramMetricFamily(name, text, labels=list(labels))
    add_histogram(made, measured, **labels)
    return made


def add_histogram(made: HistogramMetricFamily, measured: Histogram, **labels: str) -> None:
    """Add the samples of one with these labels; bounds are written as by Go's client."""
    below, buckets = 0, []
    for bound, count in zip((*measured.bounds, float("inf")), measured.counts, strict=True):
        below += count
        buckets.append((floatToGoString(bound), below))  # type: ignore[no-untyped-call]
    made.add_metric(list(labels.values()), buckets, measured.total)


def node_families(reading: NodeReading) -> Iterator[Metric]:
    """Yield each family once."""
    measures = reading.measures
    for field, named in RAFT.items():
        measured = getattr(measures, field)
        name = f"warren_{named.name}"
        if isinstance(measured, Histogram):
            yield histogram(name, named.text, measured)
        else:
            yield named.kind(name, named.text, value=measured)
    said = "Other nodes, by what this one knows: connected, suspected, or neither"
    yield _by("warren_peers", said, "state", measures.peers)
    yield from _as_rabbitmq(measures)
    yield from _groups(reading.groups)
    yield from _broker(reading)
    yield from _clients(reading)


def _as_rabbitmq(measures: RaftMeasures) -> Iterator[Metric]:
    """Yield what RabbitMQ counts alike, under its names; every log of a node here is one."""
    writes, records, syncs = measures.sync_bytes, measures.sync_records, measures.syncs
    for name, text, value in (
        ("io_write_ops", "Writes of the log", sum(writes.counts)),
        ("io_write_bytes", "Bytes written to the log", writes.total),
        ("io_sync_ops", "Syncs of the log", sum(syncs.counts)),
        ("io_sync_time_seconds", "Time of the syncs of the log", syncs.total),
    ):
        yield CounterMetricFamily(f"rabbitmq_{name}", text, value=value)
    for name, text, value in (
        ("wal_files", "Files of the write-ahead log", measures.wal_files),
        ("num_segments", "Segments", measures.segments),
        ("batches", "Batches written to the log", sum(records.counts)),
        ("writes", "Records written to the log", records.total),
        ("elections", "Elections for which a member here has stood", measures.elections),
        ("snapshots_written", "Snapshots written here", measures.snapshots),
        ("snapshots_sent", "Snapshot transfers to other nodes", measures.snapshots_sent),
        ("snapshot_installed", "Snapshots of other nodes", measures.snapshots_installed),
    ):
        yield GaugeMetricFamily(f"rabbitmq_raft_{name}", text, value=value)
    said = "Other nodes of the cluster that are suspected"
    suspected = measures.peers.get("suspected", 0)
    yield GaugeMetricFamily("rabbitmq_unreachable_cluster_peers_count", said, value=suspected)


def _by(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    made = GaugeMetricFamily(name, text, labels=[label])
    for value, number in sorted(values.items()):
        made.add_metric([value], number)
    return made


def _groups(groups: GroupTotals) -> Iterator[Metric]:
    here = "Raft groups with a member here"
    for name, text, value in (
        ("groups", here, groups.members),
        ("groups_led", "Raft groups that this node leads", groups.led),
        ("groups_without_leader", f"{here} that knows no leader", groups.leaderless),
        ("term_max", "The highest term of these groups", groups.term_max),
    ):
        yield GaugeMetricFamily(f"warren_raft_{name}", text, value=value)
    said = "Entries that the member on a node lacks, of all groups that are led here"
    yield _by("warren_raft_member_lag_entries", said, "member", groups.lag)
    said = "Entries that the member on a node lacks, of the group in which it lacks most"
    name = "warren_raft_member_lag_entries_max"
    yield _by(name, said, "member", groups.lag_max)


def _broker(reading: NodeReading) -> Iterator[Metric]:
    broker = reading.broker
    said = "Blocks made for queues in one turn of the event loop"
    yield histogram("warren_turn_blocks", said, broker.turn_blocks)
    said = "Messages published in one turn of the event loop that has made a block"
    yield histogram("warren_turn_messages", said, broker.turn_messages)
    said = "Bytes sent to queues of which the answer is not there yet"
    yield GaugeMetricFamily("warren_uplink_in_flight_bytes", said, value=broker.in_flight_bytes)
    said = "Submissions to queues that were sent once more"
    yield CounterMetricFamily("warren_uplink_resent", said, value=broker.resent)
    said = "1 while this node is in maintenance (drained)"
    yield GaugeMetricFamily("warren_maintenance", said, value=int(broker.drained))
    said = "1 for the kernel that is loaded: compiled, or interpreted"
    yield _by("warren_kernel_info", said, "mode", {broker.kernel: 1})


def _clients(reading: NodeReading) -> Iterator[Metric]:
    clients = reading.clients
    for name, text, found in (
        ("publishers", "Channels and links of clients that publish", clients.publishers),
        ("consumers", "Consumers of clients", clients.consumers),
    ):
        every = {protocol: found.get(protocol, 0) for protocol in PROTOCOLS.values()}
        yield _by(f"rabbitmq_global_{name}", text, "protocol", every)
    held, waiting, *_ = reading.strangers.get("connections", (0, 0, 0, 0))
    states = {
        "before_login": held,
        "waiting": waiting,
        "open": reading.connections - clients.blocked,
        "blocked": clients.blocked,
    }
    sizes = HistogramMetricFamily(
        "rabbitmq_message_size_bytes", "Bodies of messages from publishers", labels=["protocol"]
    )
    for protocol, counts in reading.sizes.items():
        measured = Histogram(SIZES)
        *measured.counts, measured.total = counts
        add_histogram(sizes, measured, protocol=protocol)
    yield sizes
    said = "Connections over AMQP by state; blocked: it publishes, and a resource alarm is set"
    yield _by("warren_connections", said, "state", states)


def families_of(collectors: Iterable[Collector]) -> Iterator[Metric]:
    """Yield what the library's own collectors find of the process."""
    for collector in collectors:
        yield from collector.collect()
