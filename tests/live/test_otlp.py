"""Metrics and traces of nodes, sent to a collector of OpenTelemetry."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from proton import Message
from proton.utils import BlockingConnection

from live.collectors import TOKEN, Collector, Receiver, Seen, Taken
from live.conftest import eventually
from live.test_prometheus import connect, declare, scraped
from tests.patience import PATIENCE_S
from warren import Admin, ClaimReader
from warren.connection import Connection
from warren.local import LocalCluster
from warren.ports import ReservedPorts

pytestmark = pytest.mark.live
SPAN = "b7ad6b7169203331"
PROMETHEUS = {"enabled": True, "tcp": {"port": 0}}
SECRETS = ("s3cret-body", "s3cret-header", "guest")


def settings(port: int, **more: Any) -> dict[str, Any]:
    """Of nodes that send to a collector there."""
    given = {"endpoint": f"http://127.0.0.1:{port}", "headers": {"Authorization": TOKEN}}
    return {"prometheus": PROMETHEUS, "otlp": {**given, "interval_ms": 1000, **more}}


def trace_id(number: int) -> str:
    return f"{number:032x}"


def traced(number: int, sampled: str = "01") -> dict[str, str]:
    """Headers of a message of a trace."""
    return {"traceparent": f"00-{trace_id(number)}-{SPAN}-{sampled}", "password": SECRETS[1]}


def test_metrics_reach_a_collector_once_it_is_there(tmp_path: Path) -> None:
    port = ReservedPorts()
    number = port.take()
    with LocalCluster(1, tmp_path / "cluster", settings=settings(number)) as cluster:
        refused = "OTLP: metrics are not taken by"
        eventually(lambda: refused in cluster.log(0), "it is logged that the collector is down")
        with connect(cluster) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            declare(channel, "q")
            for size in (50, 500):
                channel.basic_publish("", "q", bytes(size))
        receiver = Receiver(number)
        try:
            eventually(lambda: len(receiver.metrics()) > 1, "it takes metrics")
            eventually(lambda: "takes metrics again" in cluster.log(0), "which is logged, too")
        finally:
            receiver.close()
        assert cluster.log(0).count(refused) == 1, "once, however often it was tried"
        assert "opentelemetry" not in cluster.log(0), "the library says nothing beside it"
        samples = scraped(cluster, 0)
    resource = receiver.metrics()[-1]
    of = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert of["service.instance.id"] == cluster.nodes[0].name
    [scope] = resource.scope_metrics
    families = {one.name: one for one in scope.metrics}
    shown = {name.removesuffix("_total") for name, _ in samples}
    bases = {name.rpartition("_")[0] for name in shown}
    assert {*families} <= shown | bases
    [ready] = families["rabbitmq_queue_messages_ready"].gauge.data_points
    assert ready.as_double == 2 and ready.time_unix_nano > ready.start_time_unix_nano
    counted = families["rabbitmq_global_messages_received"].sum
    assert counted.is_monotonic and counted.aggregation_temporality == 2
    by = {one.attributes[0].value.string_value: one for one in counted.data_points}
    assert by["amqp091"].as_double == 2 and by["amqp10"].as_double == 0
    points = families["rabbitmq_message_size_bytes"].histogram.data_points
    [sizes] = [one for one in points if one.attributes[0].value.string_value == "amqp091"]
    assert (sizes.count, sizes.sum) == (2, 550)
    assert len(sizes.bucket_counts) == len(sizes.explicit_bounds) + 1
    assert sizes.bucket_counts[:2] == [1, 1] and sizes.explicit_bounds[:2] == [100, 1000]


# ------------------------------------------------------------------ traces


@pytest.fixture(
    scope="module", params=["receiver", pytest.param("collector", marks=pytest.mark.long)]
)
def collector(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Taken]:
    """A receiver of the protocol, and a collector of OpenTelemetry's own."""
    place = tmp_path_factory.mktemp("collector") / "files"
    made: Taken = Receiver() if request.param == "receiver" else Collector(place)
    yield made
    made.close()


@pytest.fixture(scope="module")
def cluster(collector: Taken) -> Iterator[LocalCluster]:
    traces = {"enabled": True, "spans_per_second_max": 1_000}
    with LocalCluster(3, settings=settings(collector.port, traces=traces)) as made:
        with connect(made) as connection:
            declare(connection.channel(), "q")
        with Connection(made.address) as asking:
            queue = Admin(asking).queues.get("q")
        eventually(lambda: queue.leader, "it has a leader")
        yield made


def places(cluster: LocalCluster) -> tuple[int, int, int]:
    """The nodes by their numbers: the leader of q first."""
    with Connection(cluster.address) as asking:
        leader = Admin(asking).queues.get("q").leader
    names = [node.name for node in cluster.nodes]
    first = names.index(leader)
    one, other = (number for number in range(3) if number != first)
    return first, one, other


def spans_of(collector: Taken, number: int, *names: str) -> dict[str, Seen]:
    """The spans of a trace by name, once these are there."""

    def there() -> dict[str, Seen] | None:
        found = [one for one in collector.spans() if one.trace == trace_id(number)]
        assert len(found) == len({one.span.name for one in found}), found
        named = {one.span.name: one for one in found}
        return named if {*names} <= {*named} else None

    found: dict[str, Seen] = eventually(there, f"{names} are there")
    assert {*found} == {*names}
    return found


WHOLE = ("publish q", "replicate q", "confirm q", "deliver q")


def test_a_message_is_one_trace_through_the_cluster(
    cluster: LocalCluster, collector: Taken
) -> None:
    """Published over 0.9.1 on a node that does not lead, consumed over 1.0 on the third one."""
    leader, publishing, consuming = places(cluster)
    with connect(cluster, publishing) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number, sampled in ((1, "01"), (2, "00"), (3, "no")):
            properties = pika.BasicProperties(headers=traced(number, sampled))
            channel.basic_publish("", "q", SECRETS[0].encode(), properties)
    address = f"amqp://127.0.0.1:{cluster.nodes[consuming].amqp_port}"
    link = BlockingConnection(address, allowed_mechs="ANONYMOUS")
    receiver = link.create_receiver("/queues/q", credit=3)
    for number in (1, 2, 3):
        message = receiver.receive(timeout=PATIENCE_S)
        assert message.properties["traceparent"][3:35] == trace_id(number), "as it was"
        receiver.accept()
    link.close()
    found = spans_of(collector, 1, *WHOLE)
    names = [node.name for node in cluster.nodes]
    assert found["publish q"].node == found["confirm q"].node == names[publishing]
    assert found["replicate q"].node == names[leader]
    assert found["deliver q"].node == names[consuming]
    around = found["publish q"].span
    assert around.parent_span_id.hex() == found["deliver q"].span.parent_span_id.hex() == SPAN
    assert around.kind == 2 and found["deliver q"].span.kind == 4, "a server's, a producer's"
    for name in ("replicate q", "confirm q"):
        span = found[name].span
        assert span.parent_span_id == around.span_id
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    assert found["replicate q"].facts["warren.publisher.node"] == names[publishing]
    assert found["deliver q"].facts["warren.outcome"] == "acknowledged"
    for seen in found.values():
        assert seen.facts["messaging.system"] == "warren"
        assert seen.facts["messaging.destination.name"] == "q"
        assert {"messaging.operation.name", "messaging.operation.type"} <= {*seen.facts}
    others = {trace_id(2), trace_id(3)}
    assert not [seen for seen in collector.spans() if seen.trace in others]


def test_amqp_1_0_publishes_and_0_9_1_consumes(cluster: LocalCluster, collector: Taken) -> None:
    leader, publishing, _ = places(cluster)
    address = f"amqp://127.0.0.1:{cluster.nodes[publishing].amqp_port}"
    link = BlockingConnection(address, allowed_mechs="ANONYMOUS")
    sender = link.create_sender("/queues/q")
    sender.send(Message(body=SECRETS[0], id="m", properties=traced(4)))
    link.close()
    with connect(cluster, leader) as connection:
        channel = connection.channel()

        def got() -> Any:
            method, properties, _ = channel.basic_get("q")
            return method and (method, properties)

        method, properties = eventually(got, "it is there")
        assert properties.headers["traceparent"] == traced(4)["traceparent"]
        channel.basic_reject(method.delivery_tag, requeue=False)
        found = spans_of(collector, 4, *WHOLE)
    assert found["deliver q"].facts["warren.outcome"] == "discarded"
    assert found["publish q"].span.parent_span_id.hex() == SPAN


def test_a_claim_is_traced_until_it_is_settled(cluster: LocalCluster, collector: Taken) -> None:
    _, publishing, reading = places(cluster)
    with connect(cluster, publishing) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number, sampled in ((5, "01"), (6, "00")):
            properties = pika.BasicProperties(headers=traced(number, sampled))
            channel.basic_publish("", "q", SECRETS[0].encode(), properties)
    with Connection(f"amqp://127.0.0.1:{cluster.nodes[reading].amqp_port}") as made:
        reader = ClaimReader(made, "q", "spark")
        number = reader.register().settled + 1
        reader.open(number, max_messages=10, max_bytes=1 << 20)
        assert sum(block.messages for block in reader.fetch(number, 0, 2)) == 2
        assert reader.settle(number) == 2
    found = spans_of(collector, 5, "publish q", "replicate q", "confirm q", "claim q")
    claimed = found["claim q"]
    assert claimed.node == cluster.nodes[reading].name
    assert claimed.span.parent_span_id.hex() == SPAN
    assert (claimed.facts["warren.reader"], claimed.facts["warren.claim"]) == ("spark", number)

    def ended() -> list[Seen]:
        return [seen for seen in collector.spans() if seen.span.name == "settle q"]

    [settled] = eventually(ended, "the claim is settled")
    assert settled.facts["messaging.batch.message_count"] == 2
    assert settled.facts["warren.outcome"] == "settled"
    [to], [back] = claimed.span.links, settled.span.links
    assert (to.trace_id, to.span_id) == (settled.span.trace_id, settled.span.span_id)
    assert (back.trace_id.hex(), back.span_id.hex()) == (trace_id(5), SPAN)
    assert settled.span.start_time_unix_nano <= claimed.span.start_time_unix_nano


def test_spans_hold_nothing_of_messages(cluster: LocalCluster, collector: Taken) -> None:
    _, publishing, _ = places(cluster)
    with connect(cluster, publishing) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(headers=traced(7), user_id="guest")
        channel.basic_publish("", "q", SECRETS[0].encode(), properties)
        channel.queue_purge("q")
    spans_of(collector, 7, "publish q", "replicate q", "confirm q")
    sent = b"".join(collector.requests("/v1/traces"))
    for secret in (*SECRETS, TOKEN):
        assert secret.encode() not in sent


def test_spans_are_counted(cluster: LocalCluster) -> None:
    def all_exported() -> bool:
        every = [scraped(cluster, node) for node in range(3)]
        by = {
            outcome: sum(
                one["warren_trace_spans_total", frozenset({("outcome", outcome)})] for one in every
            )
            for outcome in ("recorded", "exported", "refused", "dropped")
        }
        assert by["refused"] == by["dropped"] == 0
        return 0 < by["recorded"] == by["exported"]

    eventually(all_exported, "all spans are exported")


# ------------------------------------------------------------------ hostile collectors


def silent(connection: socket.socket) -> None:
    """Answer nothing."""
    while connection.recv(1 << 20):
        pass


def endless(connection: socket.socket) -> None:
    """Answer without an end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n\r\n")
    while True:
        connection.sendall(bytes(1 << 20))


def elsewhere(connection: socket.socket) -> None:
    """Send it to this machine's own port."""
    connection.recv(1 << 20)
    connection.sendall(b"HTTP/1.1 307 No\r\nLocation: http://127.0.0.1:1/\r\n\r\n")
    connection.close()


def garbage(connection: socket.socket) -> None:
    """Answer in another protocol."""
    connection.sendall(b"\0" * 70_000)
    connection.close()


@pytest.mark.parametrize("behaviour", [silent, endless, elsewhere, garbage])
def test_a_hostile_collector_harms_no_node(
    tmp_path: Path, behaviour: Callable[[socket.socket], None]
) -> None:
    """Nor does a client that has each of its messages traced."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]

    def one(connection: socket.socket) -> None:
        with suppress(OSError):
            behaviour(connection)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    traces = {"enabled": True, "spans_per_second_max": 500, "ratio": 1.0}
    with LocalCluster(1, tmp_path / "cluster", settings=settings(port, traces=traces)) as cluster:
        with connect(cluster) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            declare(channel, "q")
            properties = pika.BasicProperties(headers=traced(8))
            until = time.monotonic() + 5
            published = 0
            while time.monotonic() < until:
                channel.basic_publish("", "q", b"x", properties)
                channel.basic_publish("", "q", b"x")
                published += 2
            assert channel.queue_declare("q", passive=True).method.message_count == published
            if behaviour is not endless:  # which is a success, as its status says
                eventually(
                    lambda: "OTLP: traces are not taken" in cluster.log(0), "it is said once"
                )
                assert cluster.log(0).count("OTLP: traces are not taken") == 1
            found = scraped(cluster, 0)
    listening.close()
    by = {
        outcome: found["warren_trace_spans_total", frozenset({("outcome", outcome)})]
        for outcome in ("recorded", "exported", "refused", "dropped", "limited")
    }
    assert by["exported"] == 0 or behaviour is endless
    assert by["recorded"] > 0
