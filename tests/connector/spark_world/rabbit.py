"""Spark from a RabbitMQ queue to Parquet, as processes that a test may kill."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pyarrow.dataset as ds
from pyspark.sql.datasource import InputPartition

from pyspark_warren.datasource import detect
from pyspark_warren.source import QueryStreamReader, arrow_schema
from pyspark_warren.spool.reading import SpoolReading
from spark_world.runs import Runs
from spark_world.sources import (
    NOWHERE,
    DyingBehindTheOffsetLog,
    RealDyingSource,
    maybe_kill_driver,
    maybe_kill_task,
)

STEPS = ("after_latest", "after_offset_log", "in_read", "before_settle")
"""Where a driver is killed, in the order of a batch."""
EMPTY_S = 60.0


def rows_until(offset: dict[str, Any]) -> int:
    """How many rows precede an offset, in all its queues together."""
    return sum(each["row"] for each in offset["queues"].values())


class DyingSpoolReader(DyingBehindTheOffsetLog, QueryStreamReader):
    """The stream reader, with its places."""

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """Before settling what is committed; after the end is known, before the offset log."""
        known = start or self._at or NOWHERE
        if rows_until(known):
            maybe_kill_driver("before_settle")
        end = super().latestOffset(start, limit)
        if rows_until(end) > rows_until(known):
            maybe_kill_driver("after_latest")
        return end

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task, or the driver, that dies half way through a slice."""
        for batch in super().read(partition):
            yield batch
            maybe_kill_task("task_in_read")
            maybe_kill_driver("in_read")


class RabbitDyingSource(RealDyingSource):
    """`format("warren_dying_rabbit")`."""

    detect = staticmethod(detect)

    @classmethod
    def name(cls) -> str:
        """Its name."""
        return "warren_dying_rabbit"

    def _stream_reader(self, schema: Any) -> Any:
        """With places to die at."""
        options = self._detected("read", "stream")
        return DyingSpoolReader(SpoolReading(options, arrow_schema(schema, options.corrupt)))


class RabbitWorld(Runs):
    """A queue of a RabbitMQ node, and a directory for checkpoint, spool and Parquet files."""

    def __init__(self, hosts: str, directory: Path, **source: str) -> None:
        mark = uuid.uuid4().hex[:8]
        self.queue, self.target = f"in-{mark}", f"out-{mark}"
        self.bodies: list[bytes] = []
        host, _, port = hosts.partition(":")
        self._parameters = pika.ConnectionParameters(host, int(port))
        for name in (self.queue, self.target):
            self._declare(name)
        super().__init__(
            directory,
            {
                "hosts": hosts,
                "format": "warren_dying_rabbit",
                "source_queue": self.queue,
                "foreach_batch": str(directory / "out"),
                "source": {"spoolLocation": str(directory / "spool"), "partitions": "2", **source},
            },
        )

    def _declare(self, name: str) -> None:
        arguments = {"x-queue-type": "quorum"}
        with pika.BlockingConnection(self._parameters) as connection:
            connection.channel().queue_declare(name, durable=True, arguments=arguments)

    def publish(self, count: int) -> None:
        """Publish numbered messages, confirmed."""
        with pika.BlockingConnection(self._parameters) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(len(self.bodies), len(self.bodies) + count):
                self.bodies.append(b"message %06d" % number)
                channel.basic_publish(
                    "", self.queue, self.bodies[-1], pika.BasicProperties(delivery_mode=2)
                )

    def counts(self) -> tuple[int, int]:
        """Return the queue's ready messages and consumers."""
        with pika.BlockingConnection(self._parameters) as connection:
            found = connection.channel().queue_declare(self.queue, passive=True).method
            return int(found.message_count), int(found.consumer_count)

    def wait_until_free(self) -> None:
        """Wait until the receiver of a dead driver has left the queue."""
        deadline = time.monotonic() + EMPTY_S
        while self.counts()[1]:
            assert time.monotonic() < deadline, "a dead driver's receiver is still there"
            time.sleep(0.1)

    def dies(self, step: str, **plan: Any) -> None:
        """A run with a driver that is killed at that step."""
        self.arm(step)
        died = self.run(**plan)
        assert self.killed and died.returncode != 0, (step, died.stderr[-3000:])
        self.wait_until_free()

    def rows(self, which: str = "first") -> list[bytes]:
        """Return the bodies in the Parquet files, batch by batch."""
        found: list[bytes] = []
        for batch in sorted((self.directory / "out" / which).glob("*")):
            table = ds.dataset(batch, format="parquet").to_table()
            found += [bytes.fromhex(text) for text in table["body"].to_pylist()]
        return found

    def check_exact(self) -> None:
        """Lost 0, doubled 0, in both of foreachBatch's outputs; nothing is left in the queue."""
        for which in ("first", "second"):
            out = self.rows(which)
            lost, doubled = len(set(self.bodies) - set(out)), len(out) - len(set(out))
            assert (lost, doubled) == (0, 0), (which, lost, doubled, len(self.bodies))
            assert set(out) == set(self.bodies)
        self.check_source_empty()

    def check_source_empty(self) -> None:
        """Nothing is left in the queue, and no receiver."""
        self.wait_until_free()
        deadline = time.monotonic() + EMPTY_S
        while self.counts() != (0, 0):
            assert time.monotonic() < deadline, self.counts()
            time.sleep(0.1)

    def declare_with_letters(self, dead: str) -> None:
        """Declare the source again, with a queue of that name for its dead letters."""
        arguments = {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead,
        }
        with pika.BlockingConnection(self._parameters) as connection:
            channel = connection.channel()
            channel.queue_declare(dead, durable=True)
            channel.queue_delete(self.queue)
            channel.queue_declare(self.queue, durable=True, arguments=arguments)

    def published(self, queue: str = "") -> list[tuple[bytes, str | None]]:
        """Return body and message_id of what is in the target, or a queue; it stays there."""
        found = []
        with pika.BlockingConnection(self._parameters) as connection:
            channel = connection.channel()
            while True:
                method, properties, body = channel.basic_get(queue or self.target)
                if method is None:
                    return found
                found.append((body, properties.message_id))

    def offsets(self) -> dict[str, Any]:
        """Return the last offset of the checkpoint."""
        logs = self.directory / "checkpoint" / "offsets"
        last = max((path for path in logs.iterdir() if path.name.isdigit()), key=_number)
        return dict(json.loads(last.read_text().splitlines()[-1]))


def _number(path: Path) -> int:
    return int(path.name)
