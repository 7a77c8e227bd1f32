"""Several queues of a real node as one stream: partitions of a hash exchange, queues that come and
go, what the node lists."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pyspark_warren.claims.client import connect
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.claims.reader import read_task
from pyspark_warren.options.options import parse_options
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.surroundings import Surroundings
from warren import Admin, Producer
from warren.errors import PeerError, UsageError
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow]

SCHEMA = pa.schema([pa.field(name, ARROW_TYPES[name]) for name in ("body", "routing_key", "queue")])
KEYS = 30


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


class Partitions:
    """Queues behind an exchange of type x-consistent-hash, and a driver that reads them all."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.mark = "partitions"
        self.given = parse_options(
            {
                "hosts": cluster.hosts,
                "queuePattern": rf"^orders\.{self.mark}\.\d+$",
                "maxMessagesPerTrigger": "40",
            },
            "read",
        )
        self.sent = dict.fromkeys(range(KEYS), 0)
        self.read: dict[int, list[int]] = {key: [] for key in range(KEYS)}
        self.queues: set[str] = set()
        with cluster.connect() as connection:
            Admin(connection).exchanges.declare(self.mark, "x-consistent-hash")
            Admin(connection).queues.declare(f"other.orders.{self.mark}.1")

    def add(self, number: int) -> str:
        """Declare one more partition."""
        name = f"orders.{self.mark}.{number}"
        with self.cluster.connect() as connection:
            Admin(connection).queues.declare(name, arguments={"x-queue-type": "quorum"})
            Admin(connection).bindings.put(self.mark, destination_queue=name, routing_key="20")
        return name

    def publish(self, rounds: int) -> None:
        """Numbered messages of each key."""
        with self.cluster.connect() as connection, Producer(connection, self.mark) as producer:
            for _ in range(rounds):
                for key in self.sent:
                    producer.send(b"%d" % self.sent[key], f"key-{key}")
                    self.sent[key] += 1

    def driver(self) -> ClaimDriver:
        return ClaimDriver(
            connect(self.given),
            self.given,
            Surroundings.of_this_process(),
        )

    def batches(self, start: Offset | None) -> Iterator[Offset]:
        """Read all that is ready, as `availableNow` does."""
        driver = self.driver()
        driver.prepare_available_now()
        start = start or driver.initial()
        while True:
            end = driver.latest(start, 40)
            if end is start:
                return
            for batch in read_task(connect, self.given, driver.plan(start, end), SCHEMA):
                for row in batch.to_pylist():
                    self.read[int(row["routing_key"][4:])].append(int(row["body"]))
                    self.queues.add(row["queue"])
            yield end
            start = end


def test_partitions_behind_a_hash_exchange_are_one_stream_in_the_order_of_each_key(
    cluster: LocalCluster,
) -> None:
    world = Partitions(cluster)
    names = [world.add(number) for number in range(3)]
    world.publish(6)
    *_, end = world.batches(None)
    assert {key: numbers == list(range(6)) for key, numbers in world.read.items()} == (
        dict.fromkeys(range(KEYS), True)
    )
    names.append(world.add(3))  # some keys move there; a query that runs picks it up
    world.publish(4)
    *_, end = world.batches(Offset.from_dict(end.to_dict()))
    assert all(sorted(numbers) == list(range(10)) for numbers in world.read.values())
    assert world.queues == set(end.queues) == set(names)
    with cluster.connect() as connection:
        Admin(connection).queues.delete(names[0])
    *_, end = world.batches(end)
    assert set(end.queues) == set(names[1:])
    with cluster.connect() as connection:
        for name in names[1:]:
            left = Admin(connection).queues.get(name)
            assert (left.messages_ready, left.messages_claimed) == (0, 0)


def test_a_node_lists_the_queues_of_a_pattern_and_refuses_one_that_is_none(
    cluster: LocalCluster,
) -> None:
    mark = uuid.uuid4().hex[:8]
    with cluster.connect() as connection:
        admin = Admin(connection)
        for name in (f"{mark}.a", f"{mark}.ä b", f"x{mark}.a"):
            admin.queues.declare(name)
        assert [queue.name for queue in admin.queues.list(rf"^{mark}\..")] == [
            f"{mark}.a",
            f"{mark}.ä b",
        ]
        assert [queue.name for queue in admin.queues.list(rf"{mark}\.a$")] == [
            f"{mark}.a",
            f"x{mark}.a",
        ]
        assert admin.queues.list("^nothing-like-this") == []
        for wrong in ("(", "(a)\\1", "a" * 1025):
            with pytest.raises((UsageError, PeerError), match="pattern="):
                admin.queues.list(wrong)
