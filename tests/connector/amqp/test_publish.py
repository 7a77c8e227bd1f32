"""The sink's task at RabbitMQ and at Warren: what arrives, refusals, faults."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pyarrow as pa
import pytest

from connector.amqp.rabbitmq import MESSAGE_BYTES_MAX, OneRabbitMQ
from connector.amqp.relay import Relay
from pyspark_warren import errors
from pyspark_warren.options.options import parse_options
from pyspark_warren.sink.others import write_published
from pyspark_warren.sink.writer import Attempt, WrittenPart
from tests.patience import PATIENCE_S, PROMPTLY_S, TooSlow, with_time_enough
from warren.admin import Admin
from warren.local import LocalCluster
from warren.stages import SinkDriver

pytestmark = [pytest.mark.live, pytest.mark.slow]

HEADER_BYTES = 200_000
"""Above any frame_max here."""


def write(hosts: str, rows: Any, *, partition: int = 0, batch: int = 7, **more: str) -> WrittenPart:
    """One attempt at a partition of a batch of sink `s` in run `r`."""
    options = parse_options({"hosts": hosts, "broker": "amqp", **more}, "write")
    attempt = Attempt.drawn(SinkDriver("s", "r", 1), batch, partition)
    return write_published(options, attempt, iter(rows), "publishing to a test")


def batch(*bodies: bytes, **columns: Any) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "body": pa.array(bodies, pa.binary()),
            **{
                name: values if isinstance(values, pa.Array) else pa.array(values)
                for name, values in columns.items()
            },
        }
    )


def batches(count: int, size: int, each: int = 500) -> Iterator[pa.RecordBatch]:
    """Rows with bodies of that size, which begin with their number."""
    for first in range(0, count, each):
        yield batch(*(b"%d " % i + bytes(size) for i in range(first, min(count, first + each))))


class Declared:
    """A queue that is new, and what is in it."""

    def __init__(self, connect: Callable[..., pika.BlockingConnection], **arguments: Any) -> None:
        self._connect = connect
        self.name = f"sink-{uuid.uuid4().hex[:8]}"
        with connect() as connection:
            connection.channel().queue_declare(
                self.name, durable=True, arguments={"x-queue-type": "quorum", **arguments}
            )

    def messages(self) -> list[tuple[str, pika.BasicProperties, bytes]]:
        """Take everything: (routing key, properties, body)."""
        found = []
        with self._connect() as connection:
            channel = connection.channel()
            left = channel.queue_declare(self.name, passive=True).method.message_count
            channel.basic_qos(prefetch_count=1000)
            if not left:
                return []
            for method, properties, body in channel.consume(
                self.name, inactivity_timeout=PATIENCE_S
            ):
                assert method is not None, (len(found), left)
                found.append((method.routing_key, properties, body))
                channel.basic_ack(method.delivery_tag)
                if len(found) == left:
                    break
        return found

    def ids_by_row(self) -> dict[int, list[str]]:
        """The message_ids that each row came with."""
        rows: dict[int, list[str]] = {}
        for _, properties, body in self.messages():
            rows.setdefault(int(body.split(b" ")[0]), []).append(properties.message_id)
        return rows


@pytest.fixture
def queue(rabbitmq: OneRabbitMQ) -> Declared:
    return Declared(rabbitmq.connect)


def test_rows_arrive_as_they_were_written(rabbitmq: OneRabbitMQ, queue: Declared) -> None:
    large = bytes(range(256)) * 12_000
    rows = batch(
        b"first",
        b"",
        large,
        routing_key=[queue.name] * 3,
        message_id=["mine", None, None],
        headers=pa.array([[("n", "1")], None, [("text", "é")]], pa.map_(pa.string(), pa.string())),
        content_type=["text/plain", None, None],
        priority=pa.array([3, None, 9], pa.int32()),
        delivery_mode=pa.array([1, None, None], pa.int32()),
    )
    part = write(rabbitmq.hosts, [rows])
    assert (part.rows, part.stages) == (3, ())
    by_id = {properties.message_id: each for each in queue.messages() for properties in each[1:2]}
    assert len(by_id) == 3
    found = [by_id[name] for name in ("mine", "s-r-7-0-1", "s-r-7-0-2")]
    assert [body for _, _, body in found] == [b"first", b"", large]
    assert [p.headers for _, p, _ in found] == [{"n": "1"}, None, {"text": "é"}]
    assert [p.priority for _, p, _ in found] == [3, None, 9]
    assert [p.delivery_mode for _, p, _ in found] == [1, 2, 2]
    assert found[0][1].content_type == "text/plain"


def test_many_rows_and_small_windows(rabbitmq: OneRabbitMQ, queue: Declared) -> None:
    for window, count in (("1", 100), ("3", 600), ("1000", 6_000)):
        write(rabbitmq.hosts, batches(count, 10), routingKey=queue.name, publishWindow=window)
        numbers = [int(body.split(b" ")[0]) for _, _, body in queue.messages()]
        assert numbers == list(range(count)), "in their order"


def test_tasks_of_a_process_share_a_connection(rabbitmq: OneRabbitMQ, queue: Declared) -> None:
    with Relay(rabbitmq.port) as relay:
        for number in range(5):
            write(relay.hosts, [batch(b"1 ")], routingKey=queue.name, partition=number)
        assert relay.made == 1
        relay.cut()
        write(relay.hosts, [batch(b"1 ")], routingKey=queue.name)
        assert relay.made == 2
    assert len(queue.messages()) == 6


# ------------------------------------------------------------------ refusals


def test_a_row_without_a_queue_fails_its_batch(rabbitmq: OneRabbitMQ, queue: Declared) -> None:
    rows = batch(
        b"a", b"b", routing_key=[queue.name, "nowhere at all"], message_id=[None, "the second"]
    )
    with pytest.raises(errors.NotRoutableError) as caught:
        write(rabbitmq.hosts, [rows, *batches(0, 1)])
    for says in ("'nowhere at all'", "'the second'", "312 NO_ROUTE", "partition 0"):
        assert says in str(caught.value)


def test_an_exchange_that_is_not_there(rabbitmq: OneRabbitMQ) -> None:
    with pytest.raises(errors.BrokerRefusedError, match="404 NOT_FOUND.*no exchange 'gone'"):
        write(rabbitmq.hosts, [batch(b"a")], exchange="gone", routingKey="k")


def test_a_full_queue_rejects(rabbitmq: OneRabbitMQ) -> None:
    full = Declared(rabbitmq.connect, **{"x-max-length": 5, "x-overflow": "reject-publish"})
    with pytest.raises(errors.PublishError) as caught:
        write(rabbitmq.hosts, batches(3_000, 10), routingKey=full.name)
    for says in ("rejects row", full.name, "'s-r-7-0-", "reject-publish"):
        assert says in str(caught.value)
    numbers = [int(body.split(b" ")[0]) for _, _, body in full.messages()]
    assert numbers[:5] == list(range(5))


def test_a_body_above_the_broker_s_limit(rabbitmq: OneRabbitMQ, queue: Declared) -> None:
    rows = [batch(b"small"), batch(b"x" * (MESSAGE_BYTES_MAX + 1), message_id=["too large"])]
    with pytest.raises(errors.PublishError, match="larger than configured max size") as caught:
        write(rabbitmq.hosts, rows, routingKey=queue.name)
    assert "'too large'" in str(caught.value) and str(MESSAGE_BYTES_MAX + 1) in str(caught.value)
    write(rabbitmq.hosts, [batch(b"after")], routingKey=queue.name)
    assert [body for _, _, body in queue.messages()] == [b"small", b"after"]


def test_headers_above_a_frame(rabbitmq: OneRabbitMQ, queue: Declared) -> None:
    headers = pa.array([[("big", "x" * HEADER_BYTES)]], pa.map_(pa.string(), pa.string()))
    with pytest.raises(errors.PublishError, match=r"row 0 .*bytes of properties.*frame_max") as e:
        write(rabbitmq.hosts, [batch(b"a", headers=headers)], routingKey=queue.name)
    assert "move them into the body" in str(e.value)
    assert queue.messages() == []


def test_a_property_that_the_broker_refuses(rabbitmq: OneRabbitMQ, queue: Declared) -> None:
    with pytest.raises(errors.PublishError, match="user_id property set to 'other'"):
        write(rabbitmq.hosts, [batch(b"a", user_id=["other"])], routingKey=queue.name)


def test_a_wrong_password(rabbitmq: OneRabbitMQ) -> None:
    begun = time.monotonic()
    with pytest.raises(errors.BrokerRefusedError, match="refuses the login") as caught:
        write(rabbitmq.hosts, [batch(b"a")], routingKey="q", password="wr0ng")
    assert "wr0ng" not in str(caught.value) and time.monotonic() - begun < PROMPTLY_S


def test_rows_of_the_queue_that_they_are_published_to(rabbitmq: OneRabbitMQ) -> None:
    with pytest.raises(errors.SameQueueError):
        write(rabbitmq.hosts, [batch(b"a", queue=["q"])], routingKey="q")


# ------------------------------------------------------------------ faults


def test_a_connection_that_is_cut_again_and_again(rabbitmq: OneRabbitMQ, queue: Declared) -> None:
    count, cuts = 4_000, 5

    def rows(relay: Relay) -> Iterator[pa.RecordBatch]:
        left = cuts
        for each in batches(count, 500):
            if left and relay.cut_after is None:
                relay.cut_after = relay.forwarded + 60_000
                left -= 1
            yield each

    with Relay(rabbitmq.port) as relay:
        part = write(relay.hosts, rows(relay), routingKey=queue.name)
        assert part.rows == count and relay.made >= 3
    ids = queue.ids_by_row()
    assert sorted(ids) == list(range(count)), "every row at least once"
    assert {n: set(found) for n, found in ids.items()} == {n: {f"s-r-7-0-{n}"} for n in ids}


def test_a_broker_that_is_killed_in_the_middle(rabbitmq: OneRabbitMQ, queue: Declared) -> None:
    count = 3_000
    threading.Event().wait(
        2
    )  # RabbitMQ 3.10 forgets a quorum queue that was declared just before a kill

    def rows() -> Iterator[pa.RecordBatch]:
        for number, each in enumerate(batches(count, 200)):
            if number == 3:
                rabbitmq.kill()
                threading.Thread(target=rabbitmq.restart).start()
            yield each

    part = write(rabbitmq.hosts, rows(), routingKey=queue.name, requestTimeout="2m")
    assert part.rows == count
    ids = queue.ids_by_row()
    assert sorted(ids) == list(range(count)), "every row at least once"
    assert all(set(found) == {f"s-r-7-0-{n}"} for n, found in ids.items())


def test_a_task_that_fails_and_runs_again_gives_the_same_ids(
    rabbitmq: OneRabbitMQ, queue: Declared
) -> None:
    with Relay(rabbitmq.port) as relay:

        def rows() -> Iterator[pa.RecordBatch]:
            yield from batches(1_000, 100)
            relay.__exit__()  # and nothing listens there any more
            yield from batches(1, 100)

        with pytest.raises(errors.BrokerUnavailableError, match="requestTimeout"):
            write(relay.hosts, rows(), routingKey=queue.name, requestTimeout="1s")
    write(rabbitmq.hosts, batches(1_000, 100), routingKey=queue.name)
    ids = queue.ids_by_row()
    assert sorted(ids) == list(range(1_000))
    assert all(set(found) == {f"s-r-7-0-{n}"} for n, found in ids.items() if n)
    assert Counter(map(len, ids.values())).keys() <= {1, 2, 3}


def test_a_row_that_ends_every_connection_is_not_sent_for_ever(
    rabbitmq: OneRabbitMQ, queue: Declared
) -> None:

    def attempt(limit_s: float) -> None:
        with Relay(rabbitmq.port) as relay:
            relay.cut_each = 50_000
            with pytest.raises(errors.BrokerUnavailableError, match="partition 0"):
                rows = [batch(b"0 "), batch(b"1 " + bytes(1 << 20))]
                limit = f"{limit_s:g}s"
                write(relay.hosts, rows, routingKey=queue.name, requestTimeout=limit)
            assert relay.made < 100 * limit_s
            if relay.made <= 2:
                raise TooSlow("there was no time for a third connection")

    with_time_enough(attempt, 2.0)


def test_a_broker_that_confirms_nothing(rabbitmq: OneRabbitMQ, queue: Declared) -> None:

    def attempt(confirmed_within_s: float) -> None:
        with Relay(rabbitmq.port) as relay:

            def rows() -> Iterator[pa.RecordBatch]:
                yield batch(b"0 ")
                threading.Event().wait(confirmed_within_s)
                relay.silent = True
                yield batch(b"1 ")

            begun = time.monotonic()
            with pytest.raises(errors.BrokerUnavailableError) as caught:
                limit_s = 2 * confirmed_within_s
                limit = f"{limit_s:g}s"
                write(relay.hosts, rows(), routingKey=queue.name, confirmTimeout=limit)
            if re.search("no confirm .*1 rows are unconf", str(caught.value)) is None:
                raise TooSlow(str(caught.value))
            assert time.monotonic() - begun >= 3 * confirmed_within_s

    with_time_enough(attempt, 1.0)


def test_a_broker_that_blocks_publishers(rabbitmq: OneRabbitMQ, queue: Declared) -> None:
    write(rabbitmq.hosts, [batch(b"0 ")], routingKey=queue.name)

    def blocked(limit_s: float) -> None:
        limit = f"{limit_s:g}s"
        with pytest.raises(errors.BrokerUnavailableError) as caught:
            write(rabbitmq.hosts, [batch(b"1 ")], routingKey=queue.name, confirmTimeout=limit)
        if "blocked publishers: low on mem" not in str(caught.value):
            raise TooSlow(str(caught.value))

    rabbitmq.control("set_vm_memory_high_watermark", "absolute", "1000")
    try:
        with_time_enough(blocked, 3.0)
    finally:
        rabbitmq.control("set_vm_memory_high_watermark", "absolute", "8GB")
    write(rabbitmq.hosts, [batch(b"2 ")], routingKey=queue.name)
    assert 2 in queue.ids_by_row()


def test_heartbeats_go_on_while_a_task_waits_for_rows(
    rabbitmq: OneRabbitMQ, queue: Declared
) -> None:

    def attempt(heartbeat_s: float) -> None:
        with Relay(rabbitmq.port) as relay:

            def rows() -> Iterator[pa.RecordBatch]:
                yield batch(b"0 ")
                threading.Event().wait(5 * heartbeat_s)
                yield batch(b"1 ")

            uri = f"amqp://guest:guest@{relay.hosts}/%2F?heartbeat={heartbeat_s:g}"
            given = {"uri": uri, "broker": "amqp", "routingKey": queue.name}
            drawn = Attempt.drawn(SinkDriver("s", "r", 1), 7, 0)
            write_published(parse_options(given, "write"), drawn, rows(), "publishing")
            if relay.made > 1:
                raise TooSlow("the broker ends a connection after two silent intervals")

    with_time_enough(attempt, 1)
    assert sorted(queue.ids_by_row()) == [0, 1]


# ------------------------------------------------------------------ a Warren cluster


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


def test_exactly_once_into_a_warren_queue_that_recognizes_repeats(cluster: LocalCluster) -> None:
    count = 3_000
    with cluster.connect() as connection:
        admin = Admin(connection)
        admin.queues.declare("once", arguments={"x-deduplication": True})
        with Relay(cluster.nodes[0].amqp_port) as relay:
            for number, each in enumerate((1, 2)):

                def rows(number: int = number) -> Iterator[pa.RecordBatch]:
                    for at, found in enumerate(batches(count, 200)):
                        if at % 2 == number:
                            relay.cut_after = relay.forwarded + 60_000
                        yield found

                more = {"routingKey": "once", "deduplicationHeader": "true"}
                assert write(relay.hosts, rows(), **more).rows == count, each
            assert relay.made >= 3
        queue = admin.queues.get("once")
        assert queue.messages_ready == count

    def connect() -> pika.BlockingConnection:
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].amqp_port)
        )

    found = Declared.__new__(Declared)
    found.name, found._connect = "once", connect
    ids = {p.message_id: p.headers["x-deduplication-id"] for _, p, _ in found.messages()}
    assert ids == {f"s-r-7-0-{n}": f"s-r-7-0-{n}" for n in range(count)}


def test_the_row_s_own_id_is_the_one_that_counts(cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        Admin(connection).queues.declare("own", arguments={"x-deduplication": True})
        headers = pa.array(
            [[("x-deduplication-id", "a"), ("k", "v")], [("x-deduplication-id", "a")], None],
            pa.map_(pa.string(), pa.string()),
        )
        rows = batch(b"1", b"2", b"3", headers=headers, message_id=["x", "y", "a"])
        write(cluster.hosts, [rows], routingKey="own", deduplicationHeader="true")
        assert Admin(connection).queues.get("own").messages_ready == 1


def test_refusals_of_a_warren_broker(cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        Admin(connection).queues.declare(
            "full", arguments={"x-max-length": 5, "x-overflow": "reject-publish"}
        )
    with pytest.raises(errors.NotRoutableError, match="'nowhere'.*312"):
        write(cluster.hosts, [batch(b"a")], routingKey="nowhere")
    with pytest.raises(errors.PublishError, match=r"rejects row .*'full'"):
        write(cluster.hosts, batches(2_000, 10), routingKey="full")
    with pytest.raises(errors.PublishError, match="'huge'"):
        rows = batch(bytes(17 << 20), message_id=["huge"])
        write(cluster.hosts, [rows], routingKey="full")
    with pytest.raises(errors.BrokerRefusedError, match="no exchange 'gone'"):
        write(cluster.hosts, [batch(b"a")], exchange="gone", routingKey="k")
