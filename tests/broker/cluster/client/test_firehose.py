"""The firehose on model nodes: what a trace says, and that nothing of it affects what is traced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from broker.cluster.client.test_history import bodies
from broker.cluster.membership.clusters import begun, declare
from broker.cluster.universe import Universe
from warren_broker.access import requests
from warren_broker.cluster.client.firehose import TRACE_EXCHANGE, Firehose, TracedClient
from warren_broker.cluster.client.routed_runs import PublishedRun, QueuePart
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.records import Vhost
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import Field
from warren_wire.block.block import Block, encode
from warren_wire.kernel import MessageTable, Route

CLIENT = TracedClient("/", "guest", "127.0.0.1:5", 3)
SMALL = {
    "limits": {
        "queue_in_flight_bytes_max": 64 * 1024,
        "node_in_flight_bytes_max": 256 * 1024,
        "frame_max": 8192,
    }
}


@pytest.fixture
def universe() -> Iterator[Universe]:
    """Queue q on all nodes gets all traces; r is a queue beside it."""
    made = begun(settings=SMALL)
    declare(made, "r")
    assert bind(made, "q", "#")
    yield made
    made.close()


def bind(universe: Universe, queue: str, key: str) -> bool:
    """Bind a queue to the exchange of traces."""
    command = metadata.Bind("/", TRACE_EXCHANGE, queue, True, key)
    answer = universe.call("a", lambda broker, done: broker.bind(command, done))
    return isinstance(answer, metadata.MetadataDone)


def firehose(universe: Universe) -> Firehose:
    """That of node a."""
    return universe.running["a"].broker.firehose


def table(*written: bytes, key: str = "r", exchange: str = "") -> MessageTable:
    """Messages with these properties, and their position as body."""
    made = MessageTable()
    for number, raw in enumerate(written):
        made.append(Route(exchange.encode(), key.encode(), False), raw, b"%d" % number)
    return made


class Traced(PublishedRun):
    """A run that the firehose is shown."""

    def __init__(self, broker: Any, messages: MessageTable, by: TracedClient) -> None:
        self.broker, self.messages, self.by = broker, messages, by

    def routed(self, parts: list[QueuePart]) -> list[QueuePart]:
        self.broker.firehose.published(self.by, self.messages, 0, self.messages.count, parts)
        return parts


def publish(universe: Universe, messages: MessageTable, by: TracedClient = CLIENT) -> None:
    """Publish on node a, traced."""
    one = universe.running["a"]

    def call() -> None:
        broker = one.broker
        broker.publishing.publish(
            by.vhost, messages, 0, messages.count, Traced(broker, messages, by)
        )

    one.loop.call_soon(call)
    universe.step()


def deliver(universe: Universe, source: Any, count: int = 1, **more: Any) -> None:
    """Report messages that were delivered from r."""
    sent = requests.TraceRequest(channel=3, queue="r", messages=source, first=0, last=count, **more)
    universe.running["a"].loop.call_soon(lambda: firehose(universe).delivered(CLIENT, sent))
    universe.step()


def traces(universe: Universe, count: int) -> list[tuple[str, dict[str, Any], bytes]]:
    """Key, headers and body of the traces in q."""
    universe.until(lambda: len(bodies(universe)) >= count, "the traces")
    broker = universe.running["a"].broker
    queue = broker.definitions.state.queue("/", "q")
    runs: list[Any] = []
    blocks: list[Any] = []
    broker.reading.runs(queue.group, "", 0, 0, 1 << 20, runs.append)
    universe.until(lambda: runs, "the runs")
    broker.reading.block(queue.group, runs[0], 1 << 24, blocks.append)
    universe.until(lambda: blocks, "the block")
    block = Block.decode(blocks[0][1])
    assert len(block) == count
    found = []
    for i in range(count):
        exchange, key = block.route(i)
        said = properties.decode(block.properties(i))
        assert exchange == TRACE_EXCHANGE.encode()
        assert said == properties.Properties(headers=said.headers), "headers are all it has"
        assert said.headers is not None
        found.append((key.decode(), said.headers, bytes(block.body(i))))
    return found


def written(**given: Any) -> bytes:
    return properties.encode(properties.Properties(**given))


def test_a_publish_is_traced_with_its_queues(universe: Universe) -> None:
    headers = {"n": Field("l", 5), "CC": ["x", "y"], "BCC": ["z"]}
    message = written(content_type="text/plain", headers=headers, priority=3, timestamp=1 << 40)
    publish(universe, table(message))
    ((key, said, body),) = traces(universe, 1)
    assert (key, body) == ("publish.", b"0")
    assert said == {
        "exchange_name": "",
        "routing_keys": ["r", "x", "y", "z"],
        "properties": {
            "content_type": "text/plain",
            "headers": {"n": 5, "CC": ["x", "y"]},
            "priority": 3,
            "timestamp": 1 << 40,
        },
        "node": "a",
        "vhost": "/",
        "connection": "127.0.0.1:5",
        "channel": 3,
        "user": "guest",
        "routed_queues": ["r"],
    }
    assert bodies(universe, "r") == ["0"]


def test_an_unroutable_message_is_traced(universe: Universe) -> None:
    publish(universe, table(b"\0\0", exchange="amq.topic", key="no.body"))
    ((key, said, _),) = traces(universe, 1)
    assert key == "publish.amq.topic" and said["routed_queues"] == []
    assert said["routing_keys"] == ["no.body"] and said["properties"] == {}


def test_a_delivery_is_traced(universe: Universe) -> None:
    block = Block.decode(encode([b"one", b"two"], [written(message_id="m"), b"\0\0"], (b"", b"r")))
    deliver(universe, block, 2, redelivered=True, headers={"x-delivery-count": 2})
    first, second = traces(universe, 2)
    assert (first[0], first[2]) == ("deliver.r", b"one") and second[2] == b"two"
    counts = {"x-delivery-count": 2}
    assert first[1]["properties"] == {"message_id": "m", "headers": counts}
    assert second[1]["properties"] == {"headers": counts}
    assert first[1]["redelivered"] == 1 and "routed_queues" not in first[1]


def test_a_trace_is_not_traced_when_it_is_delivered(universe: Universe) -> None:
    own = table(b"\0\0", exchange=TRACE_EXCHANGE, key="publish.")
    letter = table(written(headers={"x-first-death-exchange": TRACE_EXCHANGE}), exchange="letters")
    deliver(universe, own)
    deliver(universe, letter)
    deliver(universe, table(b"\0\0"))
    assert len(traces(universe, 1)) == 1


def test_what_no_queue_is_bound_for_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    universe = begun(settings=SMALL)
    declare(universe, "r")
    assert bind(universe, "q", "deliver.#")
    made: list[Any] = []
    publisher = firehose(universe).publisher
    publish(universe, table(b"\0\0"))  # the first trace of an exchange finds it out
    monkeypatch.setattr(publisher, "publish", lambda vhost, table: made.append(table))
    publish(universe, table(b"\0\0"))
    assert not made
    deliver(universe, table(b"\0\0"))
    assert len(made) == 1
    universe.close()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xff\xff\xff", id="no flags"),
        pytest.param(b"\x20\x00\0\0\0\x09\x01", id="a table past the end"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_malformed_properties_are_traced(universe: Universe, raw: bytes) -> None:
    block = Block.decode(encode([b"one"], [raw], (b"", b"r")))
    deliver(universe, block)
    ((_, said, _),) = traces(universe, 1)
    assert said["properties"] == {"headers": {"x-unreadable-properties": raw}}


def nested(levels: int) -> Any:
    value: Any = "deep"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("headers", "keys"),
    [
        pytest.param({"long": "x" * 8000}, ["r"], id="too long"),
        pytest.param({"deep": nested(64)}, ["r"], id="too deep"),
        pytest.param({"CC": ["k" * 200] * 39}, ["r"], id="too many keys"),
    ],
)
def test_what_fits_into_no_frame_is_left_out(
    universe: Universe, headers: dict[str, Any], keys: list[str]
) -> None:
    message = written(headers=headers, message_id="m", timestamp=(1 << 64) - 1)
    publish(universe, table(message))
    ((_, said, body),) = traces(universe, 1)
    assert said["properties"] == {"message_id": "m", "timestamp": str((1 << 64) - 1)}
    assert said["routing_keys"] == keys and body == b"0"


def test_a_queue_without_a_leader_holds_up_nothing(universe: Universe) -> None:
    for node in "bc":
        universe.kill(node)
    source = firehose(universe).publisher
    for _ in range(60):
        deliver(universe, table(written(message_id="m" * 250)))
    most = SMALL["limits"]["queue_in_flight_bytes_max"] // 4
    assert most <= source.unconfirmed_bytes < most + 1_000
    assert 0 < source.dropped < 60
    for node in "bc":
        universe.start(node)
    universe.until(lambda: not source.unconfirmed_bytes, "what was sent is stored")


def test_a_queue_that_refuses_traces_fails_nothing(universe: Universe) -> None:
    declare(
        universe,
        "full",
        arguments={"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish"},
    )
    assert bind(universe, "full", "#")
    publish(universe, table(*[b"\0\0"] * 5))
    publish(universe, table(*[b"\0\0"] * 5))
    universe.until(lambda: len(bodies(universe, "r")) == 10, "what is traced arrives")
    universe.until(lambda: len(bodies(universe)) == 10, "the other queue's traces arrive")
    universe.until(lambda: firehose(universe).publisher.dropped >= 5, "the refused ones count")


def test_a_deleted_vhost_is_not_traced_again(universe: Universe) -> None:
    def change(command: Any) -> None:
        universe.call("b", lambda broker, done: broker.definitions.submit(command, done))

    source = firehose(universe)
    change(metadata.PutVhost(Vhost("v")))
    for vhost in ("/", "v"):
        source.start(vhost)
        source.start(vhost)
    assert universe.running["a"].broker.traced_vhosts == {"/", "v"}
    assert not universe.running["b"].broker.traced_vhosts
    change(metadata.DeleteVhost("v"))
    change(metadata.PutVhost(Vhost("v")))
    universe.until(lambda: source.vhosts == {"/"}, "the deleted one is not traced")
    source.stop("/")
    source.stop("/")
    assert not universe.running["a"].broker.traced_vhosts


def test_long_names_are_cut_in_the_key(universe: Universe) -> None:
    name = "x" * 255
    command = metadata.DeclareExchange("/", name, "fanout")
    universe.call("a", lambda broker, done: broker.definitions.submit(command, done))
    publish(universe, table(b"\0\0", exchange=name))
    ((key, said, _),) = traces(universe, 1)
    assert key == f"publish.{name}"[:255] and said["exchange_name"] == name


def keys(found: Sequence[tuple[str, Any, bytes]]) -> list[str]:
    return [key for key, _, _ in found]


def test_traces_come_in_the_order_of_what_they_trace(universe: Universe) -> None:
    publish(universe, table(b"\0\0", b"\0\0"))
    deliver(universe, table(b"\0\0"))
    publish(universe, table(b"\0\0", exchange="amq.direct"))
    found = traces(universe, 4)
    assert keys(found) == ["publish.", "publish.", "deliver.r", "publish.amq.direct"]
