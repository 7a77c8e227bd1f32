"""Messages into blocks, with confirms, through lost connections and missing queues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from python.fake_broker import FakeCluster, FakeNode
from warren.claims import browse
from warren.connection import Connection
from warren.errors import TooLarge, Unroutable, UsageError
from warren.producer import Producer
from warren_broker.clients10 import connection_requests as asks
from warren_wire.admin import queues as queue_resource
from warren_wire.amqp091 import properties
from warren_wire.block.block import Block


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    for name in ("q", "p"):
        made._DeclareQueue(queue_resource.DeclareQueueRequest(name))
    return made


@pytest.fixture
def node(cluster: FakeCluster) -> Iterator[FakeNode]:
    made = FakeNode(cluster, seed=5)
    yield made
    made.kill()


def connect(*nodes: FakeNode) -> Connection:
    return Connection(f"amqp://{','.join(each.host for each in nodes)}/?request_timeout=60")


def rows(connection: Connection, queue: str) -> list[tuple[bytes, properties.Properties]]:
    found = []
    for piece in browse(connection, queue, 100_000):
        block = Block.decode(piece.data)
        found += [
            (bytes(block.body(i)), properties.decode(block.properties(i)))
            for i in range(block.count)
        ]
    return found


def test_messages_keep_order_and_properties(node: FakeNode) -> None:
    with connect(node) as connection:
        with Producer(connection) as producer:
            confirm = producer.send(
                "one", "q", priority=7, headers={"a": 1, "b": "x"}, correlation_id="c"
            )
            confirm.wait()
            confirms = [
                producer.send(b"%d" % i, "q", content_type="text/plain") for i in range(500)
            ]
        assert all(each.done and each.error is None for each in confirms)
        found = rows(connection, "q")
        assert [body for body, _ in found] == [b"one", *(b"%d" % i for i in range(500))]
        first, second = found[0][1], found[1][1]
        assert (first.priority, first.correlation_id, first.delivery_mode) == (7, "c", 2)
        assert first.headers == {"a": 1, "b": "x"}
        assert (second.content_type, second.priority) == ("text/plain", None)
        assert len({each.message_id for _, each in found}) == 501
    blocks = [r for r in node.cluster.seen if isinstance(r, asks.PublishBlock)]
    assert len(blocks) < 400, "messages that wait for an answer travel together"


def test_a_missing_queue_fails_only_its_own_messages(node: FakeNode) -> None:
    with connect(node) as connection:
        producer = Producer(connection, batch_bytes=1 << 20)
        confirms = [producer.send(b"x%d" % i, key) for i, key in enumerate(["q", "gone", "p"] * 20)]
        with pytest.raises(Unroutable, match="no queue for routing key 'gone'"):
            producer.flush()
        assert [c.error is None for c in confirms] == [True, False, True] * 20
        producer.flush()
        producer.send(b"after", "q").wait()
        assert len(rows(connection, "q")) == 21
        producer.close()


def test_nothing_is_lost_when_nodes_die(cluster: FakeCluster) -> None:
    nodes = [FakeNode(cluster, seed) for seed in (3, 4)]
    for each in nodes:
        each.die_after[asks.PublishBlock] = 7
    with connect(*nodes) as connection:
        with Producer(connection, batch_bytes=2000, window_bytes=20_000) as producer:
            for i in range(5000):
                producer.send(b"%d" % i, "q")
        found = rows(connection, "q")
        by_id = {each.message_id: body for body, each in found}
        assert sorted(by_id.values(), key=int) == [b"%d" % i for i in range(5000)]
        assert len(found) > 5000, "the test must have lost answers, else it shows nothing"
    for each in nodes:
        each.kill()


def test_what_cannot_be_right_is_refused_before_it_is_sent(node: FakeNode) -> None:
    with connect(node) as connection:
        producer = Producer(connection)
        with pytest.raises(UsageError, match="unknown property 'colour'"):
            producer.send(b"", "q", colour=1)
        with pytest.raises(TooLarge, match="54525953"):
            producer.send(bytes((52 << 20) + 1), "q")
        with pytest.raises(UsageError, match="priority=300"):
            producer.send(b"", "q", priority=300)
        with pytest.raises(UsageError, match="expiration_ms=-1"):
            producer.send(b"", "q", expiration_ms=-1)
        with pytest.raises(UsageError, match="255"):
            producer.send(b"", "q" * 256)
        producer.close()
        assert not rows(connection, "q")
