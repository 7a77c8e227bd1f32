"""What RabbitMQ's operators see of a query: its connections' names, its consumers' tags."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connector.amqp.query import Query, Queue
from connector.amqp.rabbitmq import POLL_S, OneRabbitMQ
from connector.amqp.stream_query import Stream, StreamQuery
from pyspark_warren.amqp.connection import of_receiver, of_sink, of_stream
from pyspark_warren.options.options import parse_options
from pyspark_warren.sink.others import write_published
from pyspark_warren.sink.writer import Attempt
from tests.patience import PATIENCE_S
from warren.stages import SinkDriver
from warren_wire.queue_values.describe_command import ReadBy

live = [pytest.mark.live, pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def talkative(rabbitmq: OneRabbitMQ) -> Iterator[OneRabbitMQ]:
    """The node, which logs the connections' names."""
    rabbitmq.control("set_log_level", "info")
    yield rabbitmq
    rabbitmq.control("set_log_level", "warning")


def check_named(rabbitmq: OneRabbitMQ, *wanted: str) -> None:
    """Clients gave their connections these names, as the node logs soon."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        said = [line.partition("client-provided name: ") for line in rabbitmq.log().splitlines()]
        names = {name.strip() for _, found, name in said if found}
        if names.issuperset(wanted):
            return
        assert time.monotonic() < deadline, (names, wanted)
        time.sleep(POLL_S)


def consumer_tags(rabbitmq: OneRabbitMQ, queue: Queue) -> list[str]:
    """The tags of the queue's consumers."""
    listed = rabbitmq.control("list_consumers", "queue_name", "consumer_tag")
    rows = [line.split("\t") for line in listed.splitlines()]
    return sorted(row[1] for row in rows if row[0] == queue.name)


def test_the_names_say_query_queue_and_reader() -> None:
    given = {"broker": "amqp", "queue": "flights", "queryName": "orders"}
    options = parse_options(given, "read", "stream")
    found = of_receiver(options, "spark-1", 0)
    assert found.connection == "pyspark_warren receiver 0 of orders: queue flights, reader spark-1"
    assert found.tag == "orders spark-1.0"
    assert found.properties() == {
        "connection_name": found.connection,
        "product": "pyspark_warren",
        "query_name": "orders",
        "queue": "flights",
        "reader": "spark-1",
    }
    task = ReadBy("0d3c", "told by Spark", 7)
    unnamed = parse_options({"broker": "amqp", "queue": "s", "startingOffset": "first"}, "read")
    assert of_receiver(unnamed, "spark-1", 1).tag == "spark-1.1"
    assert of_stream(unnamed, None).connection == "pyspark_warren stream: s, driver"
    assert of_stream(unnamed, task).tag == "told by Spark 0d3c"
    sink = parse_options({"broker": "amqp", "sinkId": "alerts"}, "write")
    assert of_sink(sink, None).connection == "pyspark_warren sink: sinkId alerts"
    assert of_sink(sink, task).connection == (
        "pyspark_warren sink of told by Spark: query 0d3c, sinkId alerts"
    )


def test_long_names_are_cut_to_what_amqp_carries() -> None:
    given = {"broker": "amqp", "queue": "ö" * 127, "queryName": "ü" * 200}
    found = of_receiver(parse_options(given, "read", "stream"), "spark-" + "a" * 32, 3)
    assert len(found.connection.encode()) <= 255
    assert len(found.tag.encode()) <= 128
    assert found.tag.endswith(".3"), "the reader is whole"


class TestAtRabbitMQ:
    pytestmark = live

    def test_a_receiver(self, talkative: OneRabbitMQ, tmp_path: Path) -> None:
        """The reader is the one in the checkpoint and in the progress."""
        queue = Queue(talkative)
        queue.publish(10)
        with Query(queue, tmp_path, queryName="orders", receivers="2") as query:
            query.run(10)
            reader = query.offsets[-1][1].reader
            deadline = time.monotonic() + PATIENCE_S
            while (tags := consumer_tags(talkative, queue)) != [
                f"orders {reader}.0",
                f"orders {reader}.1",
            ]:
                assert time.monotonic() < deadline, tags
            shown = talkative.control("list_connections", "client_properties")
            assert f'{{"reader","{reader}"}}' in shown and f'{{"queue","{queue.name}"}}' in shown
        of_reader = f"of orders: queue {queue.name}, reader {reader}"
        check_named(
            talkative,
            f"pyspark_warren driver of orders: queue {queue.name}",
            f"pyspark_warren receiver 0 {of_reader}",
            f"pyspark_warren receiver 1 {of_reader}",
        )

    def test_a_stream_and_a_sink(self, talkative: OneRabbitMQ) -> None:
        stream, queue = Stream(talkative), Queue(talkative)
        stream.publish(3)
        with StreamQuery(stream) as query:
            query.run()
        check_named(talkative, f"pyspark_warren stream: {stream.name}, driver")
        given = {"hosts": talkative.hosts, "broker": "amqp", "routingKey": queue.name}
        options = parse_options({**given, "sinkId": f"alerts of {queue.name}"}, "write")
        rows = pa.record_batch({"body": pa.array([b"1"], pa.binary())})
        attempt = Attempt.drawn(SinkDriver("s", "r", 1), 7, 0)
        write_published(options, attempt, iter([rows]), "publishing")
        check_named(talkative, f"pyspark_warren sink: sinkId alerts of {queue.name}")


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.slow
@pytest.mark.long
def test_spark_tells_tasks_the_query(talkative: OneRabbitMQ, spark: Any, tmp_path: Path) -> None:
    stream, queue = Stream(talkative), Queue(talkative)
    stream.publish(3)
    where = {"hosts": talkative.hosts, "broker": "amqp"}
    source = spark.readStream.format("warren").options(**where, startingOffset="first")
    rows = source.option("queue", stream.name).load().select("body")
    writer = rows.writeStream.format("warren").options(**where, routingKey=queue.name)
    writer = writer.option("checkpointLocation", str(tmp_path)).queryName("to the alerts")
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert queue.ready() == 3
    check_named(
        talkative,
        f"pyspark_warren sink of to the alerts: query {query.id}",
        f"pyspark_warren stream of to the alerts: {stream.name}, query {query.id}",
    )
