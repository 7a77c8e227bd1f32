"""What is measured, under the names of its families: each figure in the sample that says it."""

from __future__ import annotations

import dataclasses
from array import array
from types import SimpleNamespace
from typing import Any

from msgspec import structs
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from warren_broker.clients.client_counts import PublishCounts
from warren_broker.cluster.client.uplink import InFlight, Uplink
from warren_broker.cluster.connections import ClientGauges
from warren_broker.cluster.led_queues import NO_COUNTS, MemberCounts
from warren_broker.config import AlarmSettings
from warren_broker.counting.counters import Counters
from warren_broker.counting.message_stats import COUNTED, VHOST_COUNTED, MessageCounts
from warren_broker.metrics import exposition
from warren_broker.metrics.client_families import DELIVERIES, TOTALS
from warren_broker.metrics.node_families import RAFT, histogram
from warren_broker.metrics.readings import (
    WORK_SUMS,
    BrokerReading,
    ClientTotals,
    GroupTotals,
    NodeReading,
    QueueReading,
    QueueWork,
    ReaderReading,
)
from warren_raft.measures import COUNTS, Histogram, RaftMeasures
from warren_raft.runtime.group import LogPosition
from warren_raft.storage.entry_time import EntryTime
from warren_wire.admin.connections import ChannelInfo, ConnectionInfo
from warren_wire.kernel import MessageTable, Route

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
OVERVIEW = """
build_info channels channels_closed_total channels_opened_total connections
connections_closed_total connections_opened_total disk_space_available_bytes
disk_space_available_limit_bytes erlang_uptime_seconds global_consumers
global_messages_acknowledged_total global_messages_confirmed_total
global_messages_delivered_consume_auto_ack_total global_messages_delivered_consume_manual_ack_total
global_messages_delivered_get_auto_ack_total global_messages_delivered_get_manual_ack_total
global_messages_delivered_total global_messages_get_empty_total
global_messages_received_confirm_total global_messages_received_total
global_messages_redelivered_total global_messages_routed_total
global_messages_unroutable_dropped_total global_messages_unroutable_returned_total
global_publishers identity_info message_size_bytes_bucket message_size_bytes_count
message_size_bytes_sum process_max_fds process_open_fds process_resident_memory_bytes
queue_messages_ready queue_messages_unacked queues queues_created_total queues_declared_total
queues_deleted_total resident_memory_limit_bytes
"""
"""What the 41 panels of RabbitMQ's dashboard of a cluster ask for, without `rabbitmq_`."""
RAFT_PANELS = """
raft_commit_index raft_commit_latency_seconds raft_last_written_index raft_snapshot_index raft_term
"""
"""What the 5 panels of its dashboard of quorum queues ask for."""


def measured() -> RaftMeasures:
    """Measures of which each field has a value of its own."""
    values: dict[str, Any] = {}
    for number, name in enumerate(RAFT, 1):
        values[name] = number
        if name in ("turns", "lags", "syncs", "sync_bytes", "sync_records", "commits", "applies"):
            values[name] = Histogram((1.0, 10.0))
            values[name].observe(number / 10)
            values[name].observe(100.0 + number)
    return RaftMeasures(**values, peers={"connected": 2, "suspected": 1})


def reading(**values: Any) -> NodeReading:
    """A reading in which every family has a sample."""
    counters = Counters()
    one = Histogram(COUNTS)
    one.observe(3)
    broker = BrokerReading(one, one, 700, 3, True, "compiled")
    sizes = {key: [*row] for key, row in counters.sizes.items()}
    made = NodeReading("a", "c", 1, counters.read(), sizes, measured(), broker, 5, 0, (), {}, 0, 0)
    made.definitions = LogPosition(1, 2, 3, 4, 5, 0.25)
    return dataclasses.replace(made, **values)


def text_of(of: NodeReading, view: exposition.ScrapeView) -> list[bytes]:
    """The pieces of an answer."""
    process = exposition.ProcessReading(0, 0, 0, 0, [], None, {}, {"user": 1.0}, 60.0)
    families = exposition.Readings(of, process, AlarmSettings(), view).collect()
    return list(exposition.text_pieces(families))


def shown(of: NodeReading, per_object: bool = False, groups: str = "") -> Samples:
    """The samples of `/metrics`, or of another path, as the library's parser reads them."""
    view = exposition.ScrapeView("", per_object, tuple(groups.split()) if groups else None)
    text = b"".join(text_of(of, view)).decode()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def value(of: Samples, name: str, **labels: str) -> float:
    return of[name, frozenset(labels.items())]


def test_each_panel_of_rabbitmq_s_dashboards_has_its_metrics() -> None:
    names = {name for name, _ in shown(reading())}
    wanted = {f"rabbitmq_{name}" for name in (OVERVIEW + RAFT_PANELS).split()}
    assert wanted <= names, sorted(wanted - names)


def test_each_measure_is_in_its_family() -> None:
    found = shown(reading())
    for number, (field, named) in enumerate(RAFT.items(), 1):
        name = f"warren_{named.name}"
        if (f"{name}_count", frozenset()) in found:
            assert value(found, f"{name}_count") == 2
            assert value(found, f"{name}_sum") == 100.0 + number + number / 10, field
            assert value(found, f"{name}_bucket", le="1.0") == (number <= 10)
            assert value(found, f"{name}_bucket", le="+Inf") == 2
        else:
            single = [of for (key, _), of in found.items() if key in (name, f"{name}_total")]
            assert single == [number], field
    assert value(found, "warren_peers", state="suspected") == 1
    assert value(found, "warren_peers", state="connected") == 2
    assert value(found, "warren_uplink_in_flight_bytes") == 700
    assert value(found, "warren_uplink_resent_total") == 3
    assert value(found, "warren_maintenance") == 1
    assert value(found, "warren_turn_blocks_sum") == 3
    assert value(found, "warren_kernel_info", mode="compiled") == 1
    assert value(found, "rabbitmq_erlang_uptime_seconds") == 60
    coordination = {"ra_system": "coordination"}
    assert value(found, "rabbitmq_raft_commit_latency_seconds", **coordination) == 0.25


def test_a_bucket_has_those_below_it_too() -> None:
    one = Histogram((0.5, 1.0, 2.5))
    for each in (0.1, 0.7, 0.8, 2.0, 9.0):
        one.observe(each)
    collector = SimpleNamespace(collect=lambda: [histogram("h", "text", one)])
    lines = generate_latest(collector).decode().splitlines()[2:]  # type: ignore[arg-type]
    assert lines == [
        'h_bucket{le="0.5"} 1.0',
        'h_bucket{le="1.0"} 3.0',
        'h_bucket{le="2.5"} 4.0',
        'h_bucket{le="+Inf"} 5.0',
        "h_count 5.0",
        "h_sum 12.6",
    ]


def test_sizes_of_messages_have_rabbitmq_s_buckets() -> None:
    sizes = {"amqp091": [2, 1, 0, 0, 0, 0, 0, 0, 1, 100_000_777], "amqp10": [0] * 10}
    found = shown(reading(sizes=sizes))
    name, of = "rabbitmq_message_size_bytes", {"protocol": "amqp091"}
    assert value(found, f"{name}_bucket", le="100.0", **of) == 2
    assert value(found, f"{name}_bucket", le="1000.0", **of) == 3
    assert value(found, f"{name}_bucket", le="1e+06", **of) == 3
    assert value(found, f"{name}_bucket", le="5e+07", **of) == 3
    assert value(found, f"{name}_bucket", le="1e+08", **of) == 3
    assert value(found, f"{name}_bucket", le="+Inf", **of) == 4
    assert value(found, f"{name}_count", **of) == 4
    assert value(found, f"{name}_sum", **of) == 100_000_777


class Groups:
    """A host of three groups: 1 is led here, of 2 no leader is known, 3 is led elsewhere."""

    def leader(self, group: int) -> str | None:
        return {1: "a", 2: None, 3: "b"}[group]

    def term(self, group: int) -> int:
        return {1: 4, 2: 9, 3: 5}[group]

    def is_leader(self, group: int) -> bool:
        return group == 1

    def lags(self, group: int) -> dict[str, int]:
        assert group == 1, "only a leader knows"
        return {"b": 7, "c": 0}


def test_groups_without_leader_and_lagging_members() -> None:
    totals, host = GroupTotals(), Groups()
    for group in (1, 1, 2, 3):
        totals.add(host, group)  # type: ignore[arg-type]
    found = shown(reading(groups=totals))
    assert value(found, "warren_raft_groups") == 4
    assert value(found, "warren_raft_groups_led") == 2
    assert value(found, "warren_raft_groups_without_leader") == 1
    assert value(found, "warren_raft_term_max") == 9
    assert value(found, "warren_raft_member_lag_entries", member="b") == 14
    assert value(found, "warren_raft_member_lag_entries_max", member="b") == 7
    assert value(found, "warren_raft_member_lag_entries", member="c") == 0


def test_clients_are_counted_by_what_they_do() -> None:
    totals = ClientTotals()
    for gauges in (
        ClientGauges("amqp091", 2, 3, True),
        ClientGauges("amqp10", 1, 4, False),
        ClientGauges("amqp091", 0, 1, False),
        None,
    ):
        totals.add(SimpleNamespace(gauges=lambda gauges=gauges: gauges))  # type: ignore[arg-type]
    strangers = {"connections": (6, 7, 0, 0)}
    found = shown(reading(clients=totals, strangers=strangers))
    assert value(found, "rabbitmq_global_publishers", protocol="amqp091") == 2
    assert value(found, "rabbitmq_global_publishers", protocol="amqp10") == 1
    assert value(found, "rabbitmq_global_consumers", protocol="amqp091") == 4
    states = {"before_login": 6, "waiting": 7, "open": 4, "blocked": 1}
    for state, number in states.items():
        assert value(found, "warren_connections", state=state) == number


def test_a_submission_that_is_sent_again_counts_once_more() -> None:
    in_flight = InFlight()
    encode: Any = lambda seq, commands, block, low: b"entry"  # noqa: E731
    uplink = Uplink(encode, lambda parts, data: data, "enqueue", in_flight)
    for _ in range(3):
        uplink.publish(array("I", [1, 2]), 10, None)
        uplink.take()
    uplink.command("no block")
    uplink.take()
    assert (in_flight.blocks, in_flight.resent) == (3, 0)
    uplink.rewind(2)
    assert in_flight.resent == 3, "2, 3 and 4"
    uplink.take()
    uplink.rewind()
    assert in_flight.resent == 7
    uplink.rewind()
    assert in_flight.resent == 7, "they wait already"


NOW_MS = 1_000_000


def with_queues() -> NodeReading:
    """Two queues that are led here, with claims and stages, and one that is not."""
    at = LogPosition(1, 2, 3, 4, 5, 0.5)
    counts = MemberCounts(10, 1, 18, 500, 2, 3, 4, 7)
    readers = (ReaderReading("etl", 2, 7, NOW_MS - 4_000), ReaderReading("idle", 0, 0, NOW_MS))
    work = QueueWork(2, readers, 3, 30, 5, EntryTime(7, 100, NOW_MS - 90_000), 2, 1, 40)
    empty = QueueWork(0, (ReaderReading("none", 0, 0, NOW_MS),), 0, 0, 0, None)
    queues = [
        QueueReading("/", "full", "quorum", at, counts, work),
        QueueReading("v", "empty", "quorum", at, NO_COUNTS, empty),
        QueueReading("/", "other", "quorum", at, None, None),
    ]
    made = reading(queues=queues, total=counts, now_ms=NOW_MS)
    made.times[7, 100] = made.oldest_ms = NOW_MS - 90_000
    made.work |= {name: getattr(work, name) for name in WORK_SUMS}
    return made


def test_claims_readers_stages_and_ages_of_each_queue() -> None:
    found = shown(with_queues(), per_object=True)
    full, empty = {"vhost": "/", "queue": "full"}, {"vhost": "v", "queue": "empty"}
    for name, number in {
        "queue_oldest_message_age_seconds": 90,
        "queue_claims": 2,
        "queue_stages": 3,
        "queue_messages_staged": 30,
        "queue_letters_in_flight": 5,
        "queue_jobs": 2,
        "queue_jobs_waiting": 1,
        "queue_messages_in_jobs": 40,
        "queue_messages_delayed": 3,
        "queue_messages_dead_lettering": 4,
        "queue_messages_claimed": 7,
    }.items():
        assert value(found, f"warren_{name}", **full) == number, name
        assert value(found, f"warren_{name}", **empty) == 0, name
        assert (f"warren_{name}", frozenset({"vhost": "/", "queue": "other"}.items())) not in found
    assert value(found, "warren_reader_lag_messages", **full, reader="etl") == 17
    assert value(found, "warren_reader_lag_messages", **full, reader="idle") == 10
    assert value(found, "warren_reader_lag_seconds", **full, reader="etl") == 90
    assert value(found, "warren_reader_lag_seconds", **empty, reader="none") == 0
    assert value(found, "warren_reader_silent_seconds", **full, reader="etl") == 4
    assert value(found, "rabbitmq_raft_commit_latency_seconds", **full) == 0.5


def test_sums_of_queues_and_their_highest_age() -> None:
    found = shown(with_queues())
    assert value(found, "warren_queue_claims") == 2
    assert value(found, "warren_queue_messages_staged") == 30
    assert value(found, "warren_queue_oldest_message_age_seconds") == 90
    assert value(found, "warren_reader_lag_messages") == 27
    assert value(found, "warren_reader_lag_seconds") == 90
    assert value(found, "warren_reader_silent_seconds") == 4
    assert not any("queue" in dict(labels) for _, labels in found)


def test_what_clients_have_done_is_summed_up() -> None:
    used = list(range(100, 100 + len(VHOST_COUNTED)))
    counters = reading().counters | {("global_messages_routed", ("amqp10",)): 77}
    clients = ClientTotals()
    clients.consumers.update(amqp091=3, amqp10=4)
    found = shown(reading(used=used, counters=counters, clients=clients, channels=6))
    for name, key in TOTALS.items():
        expected = used[VHOST_COUNTED.index(key)]
        assert value(found, f"rabbitmq_{name}_total") == expected, name
    assert value(found, "rabbitmq_queue_messages_published_total") == 77
    assert value(found, "rabbitmq_channel_consumers") == 7
    assert value(found, "rabbitmq_connection_channels") == 6


def test_connections_and_channels_have_rabbitmq_s_names() -> None:
    row = tuple(range(1, 9))
    more = {"messages_unconfirmed": 7, "messages_uncommitted": 8, "acks_uncommitted": 6}
    counted = 9, 50, 40, 3, (("q", row),), 2
    channel = ChannelInfo(1, 20, 30, 4, True, True, (("tag", "q"),), *counted, **more)
    known = ("peer", 1, "host", 2, False, 3, 2047, 131_072, 60, 0, 700, 800)
    shown_one = ConnectionInfo("conn", "a", "u", "/", "AMQP 0-9-1", *known)
    shown_one = structs.replace(shown_one, open_channels=(channel,), recv_cnt=11, send_cnt=12)
    groups = """channel_metrics channel_exchange_metrics channel_queue_metrics
        connection_coarse_metrics connection_metrics exchange_metrics exchange_names
        exchange_bindings vhost_status node_persister_metrics"""
    exchanges = [("/", "x", "topic", 5)]
    of = reading(shown=[shown_one], exchanges=exchanges, vhosts=["/"], published=[("/", "x", 9)])
    found = shown(of, True, groups)
    detailed = "rabbitmq_detailed_"
    for name, number in {
        "incoming_bytes_total": 700,
        "outgoing_bytes_total": 800,
        "incoming_packets_total": 11,
        "outgoing_packets_total": 12,
        "channels": 3,
    }.items():
        assert value(found, f"{detailed}connection_{name}", channel="conn") == number
    of_channel = {"channel": "conn (1)", "vhost": "/"}
    for name, number in {
        "channel_consumers": 1,
        "channel_messages_unacked": 4,
        "channel_messages_unconfirmed": 7,
        "channel_messages_uncommitted": 8,
        "channel_acks_uncommitted": 6,
        "consumer_prefetch": 20,
        "channel_prefetch": 30,
        "channel_messages_published_total": 50,
        "channel_messages_confirmed_total": 40,
        "channel_messages_unroutable_returned_total": 3,
        "channel_messages_unroutable_dropped_total": 2,
    }.items():
        assert value(found, detailed + name, **of_channel) == number, name
    delivered = dict(zip(COUNTED, row, strict=True))
    for key, (name, _) in DELIVERIES.items():
        got = value(found, f"{detailed}{name}_total", **of_channel, queue="q")
        assert got == delivered[key], name
    exchange = {"vhost": "/", "exchange": "x"}
    assert value(found, f"{detailed}exchange_messages_published_total", **exchange) == 9
    assert value(found, "rabbitmq_cluster_exchange_bindings", **exchange, type="topic") == 5
    assert value(found, "rabbitmq_cluster_exchange_name", **exchange, type="topic") == 1
    assert value(found, "rabbitmq_cluster_vhost_status", vhost="/") == 1
    assert value(found, f"{detailed}io_sync_ops_total") == 2


def test_many_queues_are_sent_in_small_pieces() -> None:
    at = LogPosition(1, 2, 3, 4, 5)
    work = QueueWork(0, (), 0, 0, 0, None)
    of = reading(
        queues=[QueueReading("/", f"q{i}", "quorum", at, NO_COUNTS, work) for i in range(10_000)]
    )
    view = exposition.ScrapeView("detailed", True, ("queue_coarse_metrics",))
    texts = text_of(of, view)
    longest = max(map(len, texts))
    assert longest < 2 * exposition.TEXT_BYTES, "a piece is one of a family, and a little more"
    whole = b"".join(texts)
    assert whole.count(b"# TYPE rabbitmq_detailed_queue_messages_ready ") == 1
    assert whole.count(b"\nrabbitmq_detailed_queue_messages_ready{") == 10_000
    assert b"" not in whole.split(b"\n")[:-1]


SIZES_AT_BOUNDS = (0, 99, 100, 101, 1_000, 1_001, 10_000, 10_001, 100_001, 1_000_001, 10_000_001)


def test_bodies_of_messages_are_counted_by_their_size() -> None:
    counters = Counters()
    cluster = SimpleNamespace(counters=counters, queue_counts=MessageCounts())
    counts = PublishCounts(cluster, "amqp091", "/")  # type: ignore[arg-type]
    table, zeros = MessageTable(), bytes(100_000_002)
    for size in (*SIZES_AT_BOUNDS, 50_000_001, 100_000_001):
        table.append(Route(b"", b"q", False), b"\0\0", zeros[:size])
    counts.received(table, 0, table.count, True)
    found, total = counters.sizes["amqp091"], sum(SIZES_AT_BOUNDS) + 150_000_002
    assert found == [3, 2, 2, 1, 1, 1, 1, 1, 1, total]
    counts.received(table, 1, 4, True)
    assert found == [5, 3, 2, 1, 1, 1, 1, 1, 1, total + 300]
    for at in range(5):
        counts.received(table, at, at + 1, False)
    assert found == [8, 5, 2, 1, 1, 1, 1, 1, 1, total + 300 + 1_300]
    counts.received(table, 2, 2, False)
    assert sum(found[:9]) == table.count + 3 + 5
    assert counters.values["global_messages_received", ("amqp091",)] == table.count + 3 + 5
    assert counters.values["global_messages_received_confirm", ("amqp091",)] == table.count + 3
