"""A stream of RabbitMQ as a source: its own offsets, read by each task, nothing acknowledged."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pika
import pytest

from connector.amqp.query import Died, Query, Queue
from connector.amqp.rabbitmq import OneRabbitMQ
from connector.amqp.relay import Relay
from connector.amqp.stream_query import SCHEMA, Stream, StreamQuery, wait_for_first
from pyspark_warren import errors
from pyspark_warren.claims.offset import Offset
from pyspark_warren.spool.offset import SpoolOffset
from pyspark_warren.streams.ends import StreamEnds
from pyspark_warren.streams.offset import OffsetSlice, StreamOffset
from pyspark_warren.streams.read import read_offsets
from tests.patience import PATIENCE_S, TooSlow, with_time_enough

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture
def stream(rabbitmq: OneRabbitMQ) -> Stream:
    """An empty stream."""
    return Stream(rabbitmq)


def place(stream: Stream, start: str) -> int:
    """Return the offset of a startingOffset."""
    ends = StreamEnds(stream.options())
    try:
        return ends.place(start)
    finally:
        ends.close()


def test_every_message_is_in_one_batch_under_its_offset(stream: Stream) -> None:
    stream.publish(25)
    with StreamQuery(stream) as query:
        query.run(10)
        assert [len(rows) for rows in query.sink.values()] == [0, 10, 10, 5]
        stream.publish(5)
        query.run(10)
        query.run(10)  # nothing more
        assert query.rows() == [(body, at) for at, body in enumerate(stream.bodies)]
        assert len(query.offsets) == 5


def test_a_batch_that_was_not_committed_has_the_same_rows(stream: Stream) -> None:
    """Also the first one, also after more was published, whatever the options say now."""
    stream.publish(12)
    with StreamQuery(stream, startingOffset="3") as query:
        for number in (0, 1, 2, 3):
            query.die_at = number
            with pytest.raises(Died):
                query.run(4)
            stream.publish(2)
            query.more = {"startingOffset": "next", "partitions": "3"}
        query.run(4)
        assert query.bodies() == stream.bodies[3:]


def test_a_filter_leaves_rows_out_and_the_stream_as_it_is(stream: Stream) -> None:
    stream.publish(25)
    with StreamQuery(stream, filter="p.message_id IN ('3', '14') OR p.group_id = 'a'") as query:
        query.run(10)
        assert query.rows() == [(stream.bodies[3], 3), (stream.bodies[14], 14)]
        assert query.offsets[-1][1].at == 25
    with StreamQuery(stream) as query:
        query.run()
        assert query.bodies() == stream.bodies


def test_trigger_once_reads_all_in_its_first_batch(stream: Stream) -> None:
    stream.publish(7)
    with StreamQuery(stream, startingOffset="2") as query:
        query.die_at = 0
        with pytest.raises(Died):
            query.run(None)
        stream.publish(3)
        query.more = {"startingOffset": "next"}
        query.run(None)
        assert query.bodies() == stream.bodies[2:]


def test_where_a_query_begins(stream: Stream) -> None:
    stream.publish(4)
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    for start, wanted in (
        ("first", 0),
        ("last", 3),
        ("next", 4),
        ("2", 2),
        ("4", 4),
        ((now - hour).isoformat(), 0),
        ((now + hour).isoformat(), 4),
    ):
        assert place(stream, start) == wanted, start
    with pytest.raises(errors.OptionError, match="startingOffset=5: .* ends at 4"):
        place(stream, "5")


def test_an_empty_stream_has_no_batch_and_is_waited_for(stream: Stream) -> None:
    with StreamQuery(stream, pollInterval="50ms") as query:
        query.run()
        assert query.rows() == [] and len(query.offsets) == 1
        driver = query.begin()
        start = query.recover()
        assert driver.latest(start, 10) == start
        stream.publish(1)
        deadline = time.monotonic() + PATIENCE_S
        while (end := driver.latest(start, 10)) == start:
            assert time.monotonic() < deadline
        query.step(start, end)
        assert query.bodies() == stream.bodies


def test_two_queries_read_all_of_it_while_others_publish(stream: Stream) -> None:
    stream.publish(5)
    thread = threading.Thread(target=stream.publish, args=(300,))
    with StreamQuery(stream) as one, StreamQuery(stream, partitions="3") as two:
        thread.start()
        try:
            for query in (one, two, one, two):
                query.run(40)
        finally:
            thread.join()
        for query in (one, two):
            query.run()
            assert query.rows() == [(body, at) for at, body in enumerate(stream.bodies)]


def test_the_broker_is_killed_between_and_within_batches(
    rabbitmq: OneRabbitMQ, stream: Stream
) -> None:
    stream.publish(30)
    with StreamQuery(stream) as query:
        query.run(10)
        driver = query.begin()
        start = query.recover()
        stream.publish(20)
        end = driver.latest(start, 10)
        while end == start:
            end = driver.latest(start, 10)
        rabbitmq.kill()
        rabbitmq.restart()
        query.step(start, end)
        stream.publish(5)
        query.run(10)
        assert query.rows() == [(body, at) for at, body in enumerate(stream.bodies)]


def test_the_connection_is_cut_within_a_slice(rabbitmq: OneRabbitMQ, stream: Stream) -> None:
    stream.publish(300, 64 << 10)
    rows = []
    with Relay(rabbitmq.port) as relay:
        options = stream.options(hosts=relay.hosts)
        for batch in read_offsets(options, OffsetSlice(0, 300), SCHEMA):
            rows += [(row["body"], row["position"]["index"]) for row in batch.to_pylist()]
            relay.cut()
        assert relay.made >= 2
    assert rows == [(body, at) for at, body in enumerate(stream.bodies)]


def test_retention_past_the_checkpoint_fails_by_name(rabbitmq: OneRabbitMQ) -> None:
    """RabbitMQ gives offsets to records of its own, too: those are missing, and no loss."""
    limits = {"x-max-length-bytes": 5000, "x-stream-max-segment-size-bytes": 1000}
    stream = Stream(rabbitmq, **limits)
    stream.publish(1, 500)
    with StreamQuery(stream, startingOffset="0") as query:
        query.run()
        assert query.bodies() == stream.bodies
        first = wait_for_first(stream, 1)
        with pytest.raises(errors.OffsetLostError, match=f"removed what precedes offset {first}"):
            query.run()
        query.more["failOnDataLoss"] = "false"
        query.run()
        rows = query.rows()
        assert rows[1][1] == first and rows[-1][0] == stream.bodies[-1]
        assert rows[1][1] - rows[0][1] > 1


def test_offsets_without_a_message_are_passed_over(rabbitmq: OneRabbitMQ) -> None:
    """Each segment begins with a record of the broker's; a slice may begin or end with one."""
    stream = Stream(rabbitmq, **{"x-stream-max-segment-size-bytes": 1000})
    stream.publish(40, 500)
    with StreamQuery(stream) as query:
        query.run(1)
        assert query.bodies() == stream.bodies
        assert query.rows()[-1][1] > len(stream.bodies) - 1


def test_a_stream_that_was_declared_again_is_noticed(stream: Stream) -> None:
    stream.publish(10)
    with StreamQuery(stream, requestTimeout="5s") as query:
        query.run()
        stream.delete()
        with pytest.raises(errors.BrokerRefusedError, match="no queue"):
            query.run()
        stream.declare()
        stream.publish(3)
        with pytest.raises(errors.OffsetLostError, match="at offset 10, and the stream ends at 3"):
            query.run()
        query.more["failOnDataLoss"] = "false"
        query.run(2)
        assert query.bodies() == stream.bodies


def test_a_batch_of_a_stream_that_is_gone_fails_by_name(stream: Stream) -> None:
    """It does not wait for offsets that never come."""
    stream.publish(10)
    with StreamQuery(stream, requestTimeout="5s") as query:
        query.die_at = 1
        with pytest.raises(Died):
            query.run()
        stream.delete()
        stream.declare()
        stream.publish(3)
        with pytest.raises(errors.OffsetLostError, match="the stream ends at 3"):
            query.run()
        part = OffsetSlice(0, 10)

        def attempt(limit_s: float) -> None:
            options = stream.options(requestTimeout=f"{limit_s:g}s")
            with pytest.raises(errors.BrokerUnavailableError) as told:
                list(read_offsets(options, part, SCHEMA))
            if "the next offset is 3" not in str(told.value):
                raise TooSlow(str(told.value))

        with_time_enough(attempt, 1.0)


def test_large_bodies_and_headers_like_the_brokers(rabbitmq: OneRabbitMQ, stream: Stream) -> None:
    """A header, or bytes in one, that look like the offset do not deceive."""
    false = b"\x0fx-stream-offsetl" + bytes(8)
    odd = [
        pika.BasicProperties(headers={"x-stream-offset": 77}),
        pika.BasicProperties(headers={"a": false, "z": false}, type="\x0fx-stream-offsetl"),
        pika.BasicProperties(),
    ]
    with rabbitmq.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number, known in enumerate(odd):
            stream.bodies.append(bytes([number]) * (number << 21))
            channel.basic_publish("", stream.name, stream.bodies[-1], known)
    with StreamQuery(stream, maxBytesPerTrigger="1m") as query:
        query.run()
        assert query.rows() == [(body, at) for at, body in enumerate(stream.bodies)]


def test_a_queue_and_a_stream_are_told_apart(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    queue = Queue(rabbitmq)
    queue.publish(1)
    stream = Stream(rabbitmq)
    stream.name = queue.name
    with StreamQuery(stream) as query:
        with pytest.raises(errors.OptionError, match="is none: leave it out"):
            query.run()
    with Query(queue, tmp_path) as spooled:
        spooled.finish()  # it was not touched
        with pytest.raises(errors.CheckpointError, match="was written for a queue"):
            StreamOffset.from_dict(spooled.offsets[-1][1].to_dict())
    of_stream = StreamOffset("/", queue.name, 3).to_dict()
    with pytest.raises(errors.CheckpointError, match="was written with startingOffset"):
        SpoolOffset.from_dict(of_stream)
    with pytest.raises(errors.CheckpointError, match="broker=amqp"):
        Offset.from_dict(of_stream)
