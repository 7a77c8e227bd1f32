"""A stream of RabbitMQ and a query on it, without Spark: as `query` does it for queues."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pika
import pyarrow as pa

from connector.amqp.query import Died, NodePort
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.streams.driver import StreamDriver
from pyspark_warren.streams.ends import StreamEnds
from pyspark_warren.streams.offset import StreamOffset
from pyspark_warren.streams.read import read_offsets
from tests.patience import PATIENCE_S

SCHEMA = pa.schema([(name, ARROW_TYPES[name]) for name in ("body", "message_id", "position")])
Row = tuple[bytes, int]


class Stream:
    """A stream of one broker; `bodies` is what was published, in order."""

    def __init__(self, broker: NodePort, **arguments: object) -> None:
        self.broker, self.name = broker, f"stream-{uuid.uuid4().hex[:8]}"
        self.arguments = {"x-queue-type": "stream", **arguments}
        self.bodies: list[bytes] = []
        self.declare()

    def declare(self) -> None:
        """Declare it."""
        with self.broker.connect() as connection:
            connection.channel().queue_declare(self.name, durable=True, arguments=self.arguments)

    def delete(self) -> None:
        """Delete it."""
        with self.broker.connect() as connection:
            connection.channel().queue_delete(self.name)

    def publish(self, count: int, size: int = 0) -> None:
        """Publish numbered messages, each confirmed: a chunk of one message."""
        with self.broker.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for _ in range(count):
                number = len(self.bodies)
                self.bodies.append((b"message %06d" % number).ljust(size, b"."))
                known = pika.BasicProperties(message_id=str(number))
                channel.basic_publish("", self.name, self.bodies[-1], known)

    def options(self, **more: str) -> Options:
        """Return the options of a source."""
        given = {
            "hosts": self.broker.hosts,
            "queue": self.name,
            "broker": "amqp",
            "startingOffset": "first",
            "requestTimeout": "60s",
            **more,
        }
        return parse_options(given, "read", "stream")


class StreamQuery:
    """One query over its drivers' lives; what survives are `offsets`, `commits` and `sink`.

    die_at  the batch at which the driver dies next: it is in the offset log, not in the commit log
    """

    def __init__(self, stream: Stream, **more: str) -> None:
        self.stream, self.more = stream, more
        self.offsets: list[tuple[StreamOffset, StreamOffset]] = []
        self.commits = 0
        self.sink: dict[int, list[Row]] = {}
        self.die_at: int | None = None
        self.driver: StreamDriver | None = None

    def __enter__(self) -> StreamQuery:
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def stop(self) -> None:
        """The driver ends."""
        if self.driver is not None:
            self.driver.close()
        self.driver = None

    def begin(self) -> StreamDriver:
        """Begin a run as Spark does, with the batch that was not committed."""
        self.stop()
        self.driver = StreamDriver(self.stream.options(**self.more))
        return self.driver

    def recover(self) -> StreamOffset:
        """Run the batch again that was not committed; return the start of the next one."""
        assert self.driver is not None
        if self.commits < len(self.offsets):
            self._batch(len(self.offsets) - 1)
        return self.offsets[-1][1] if self.offsets else self.driver.initial()

    def run(self, most: int | None = 1000) -> None:
        """Run with trigger availableNow; `most` None: with trigger once."""
        driver = self.begin()
        if most is not None:
            driver.prepare_available_now()
        start = self.recover()
        while True:
            end = driver.latest(self._stored(start), most)
            if end == start:
                return
            self.step(start, end)
            start = end
            if most is None:
                return

    def follow(self, done: Callable[[], bool], most: int) -> None:
        """Run with a trigger that waits, in one driver, until `done`."""
        driver = self.begin()
        start = driver.initial()
        while not done():
            end = driver.latest(self._stored(start), most)
            if end != start:
                self.step(start, end)
                start = end

    def step(self, start: StreamOffset, end: StreamOffset) -> None:
        """Log a batch, write and commit it."""
        self.offsets.append((start, self._stored(end)))
        self._batch(len(self.offsets) - 1)

    def rows(self) -> list[Row]:
        """What the sink has of committed batches, in order."""
        return [row for number in range(self.commits) for row in self.sink[number]]

    def bodies(self) -> list[bytes]:
        """The bodies of `rows`."""
        return [body for body, _ in self.rows()]

    def _stored(self, offset: StreamOffset) -> StreamOffset:
        made = StreamOffset.from_dict(offset.to_dict())
        assert made == offset
        return made

    def _batch(self, number: int) -> None:
        assert self.driver is not None
        options = self.stream.options(**self.more)
        rows = [
            (row["body"], row["position"]["index"])
            for part in self.driver.plan(*self.offsets[number])
            for batch in read_offsets(options, part, SCHEMA)
            for row in batch.to_pylist()
        ]
        assert self.sink.setdefault(number, rows) == rows, "a batch has other rows now"
        if self.die_at == number:
            self.die_at = None
            raise Died(str(number))
        self.commits = number + 1


def wait_for_first(stream: Stream, above: int) -> int:
    """Wait until retention has removed what precedes an offset; return the first one there is."""
    ends = StreamEnds(stream.options())
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            first = ends.first()
            if (first or 0) > above:
                assert first is not None
                return first
            assert time.monotonic() < deadline, first
            stream.publish(5, 500)
    finally:
        ends.close()
