"""A query without Spark: the calls of Spark in its order, a checkpoint, and a sink by batch number.

What survives a crash are `offsets`, `commits` and `sink`; each driver starts from those. The
sink is one that knows batches by their number, as Parquet's or a table's is: a batch that is
written again replaces itself, and must have the same rows.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pika
import pyarrow as pa
import pytest

from pyspark_warren.options.options import parse_options
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.spool.driver import SpoolDriver
from pyspark_warren.spool.lanes import Lane
from pyspark_warren.spool.offset import SpoolOffset, SpoolSlice
from pyspark_warren.spool.reading import SpoolReading
from tests.patience import PATIENCE_S

STEPS = ("initial", "latest", "offset_log", "in_write", "written", "commit_log", "settled")
SCHEMA = pa.schema([(name, ARROW_TYPES[name]) for name in ("body", "message_id", "position")])
EMPTY_S = PATIENCE_S


class Died(Exception):
    """The driver was to die here."""


class NodePort(Protocol):
    """A broker's node."""

    @property
    def hosts(self) -> str:
        """The value of the option `hosts`."""

    def connect(self, **more: object) -> pika.BlockingConnection:
        """Open a connection as guest."""


class Queue:
    """A queue of one broker, by a connection of its own."""

    def __init__(self, broker: NodePort, kind: str = "quorum", ids: bool = True) -> None:
        self.broker, self.name, self.ids = broker, f"q-{uuid.uuid4().hex[:8]}", ids
        self.bodies: list[bytes] = []
        with broker.connect() as connection:
            connection.channel().queue_declare(
                self.name, durable=True, arguments={"x-queue-type": kind}
            )

    def publish(self, count: int) -> None:
        """Publish numbered messages, confirmed."""
        with self.broker.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for _ in range(count):
                number = len(self.bodies)
                self.bodies.append(b"message %06d" % number)
                channel.basic_publish(
                    "",
                    self.name,
                    self.bodies[-1],
                    pika.BasicProperties(
                        delivery_mode=2, message_id=str(number) if self.ids else None
                    ),
                )

    def ready(self) -> int:
        """Return how many messages are ready."""
        with self.broker.connect() as connection:
            found = connection.channel().queue_declare(self.name, passive=True)
            return int(found.method.message_count)

    def check_empty(self) -> None:
        """Nothing is left in the queue once no consumer is there."""
        deadline = time.monotonic() + EMPTY_S
        while True:
            with self.broker.connect() as connection:
                found = connection.channel().queue_declare(self.name, passive=True).method
            counts = found.message_count, found.consumer_count
            if counts == (0, 0) or time.monotonic() > deadline:
                assert counts == (0, 0), counts
                return
            time.sleep(0.1)

    def delete(self) -> None:
        """Delete it."""
        with self.broker.connect() as connection:
            connection.channel().queue_delete(self.name)


def receiver_of(driver: SpoolDriver | None) -> Lane:
    """The receiver of the first queue."""
    assert driver is not None
    lane = next(iter(driver.queues.values())).lane
    assert lane is not None
    return lane


def has_receiver(driver: SpoolDriver | None) -> bool:
    """Whether the first queue has a receiver."""
    return driver is not None and next(iter(driver.queues.values())).lane is not None


def end(driver: SpoolDriver) -> None:
    """End a driver's receivers, and wait for that."""
    driver.close()
    for queue in driver.queues.values():
        if queue.lane is not None:
            queue.lane.join(PATIENCE_S)


class Query:
    """One query over its drivers' lives; a context manager that ends the last one.

    die_at  the step at which the driver dies next, and how many times it is passed before
    """

    def __init__(self, queue: Queue, directory: Path, **more: str) -> None:
        self.queue = queue
        self.given = {
            "hosts": queue.broker.hosts,
            "queue": queue.name,
            "broker": "amqp",
            "spoolLocation": str(directory / "spool"),
            "requestTimeout": "60s",
            **more,
        }
        self.offsets: list[tuple[SpoolOffset, SpoolOffset]] = []
        self.commits = 0
        self.sink: dict[int, list[tuple[bytes, int]]] = {}
        self.driver: SpoolDriver | None = None
        self.die_at: tuple[str, int] | None = None
        self.abandoned: list[SpoolDriver] = []

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()
        self.end_abandoned()

    @property
    def pid(self) -> int:
        """The receiver's process."""
        return receiver_of(self.driver).pid

    def stop(self) -> None:
        """The driver's process ends: its receiver sees the end of its orders."""
        if self.driver is not None:
            end(self.driver)
        self.driver = None

    def abandon(self) -> None:
        """The driver is gone, and its receiver does not know yet."""
        if self.driver is not None:
            self.abandoned.append(self.driver)
        self.driver = None

    def end_abandoned(self) -> None:
        """The receivers of earlier drivers see that those are gone."""
        for each in self.abandoned:
            end(each)
        self.abandoned = []

    def run(self, most: int | None, trigger: str = "available") -> None:
        """Run the query as a new driver would until it has no more to read.

        most     maxMessagesPerTrigger
        trigger  untold: a Spark that does not tell it, and which may have one batch in a run
        """
        self.stop()
        self.driver = made = self._made()
        alone = trigger == "untold"
        if trigger == "available":
            made.prepare_available_now()
        if self.offsets and self.commits < len(self.offsets):
            self._batch(len(self.offsets) - 1)
        start = self.offsets[-1][1] if self.offsets else made.initial()
        self._pass("initial")
        while True:
            end = made.latest(start, None if trigger == "once" else most, alone)
            alone = False
            self._pass("latest")
            if end == start:
                return
            if self.commits:
                made.settle(start)
                self._pass("settled")
            self.offsets.append((start, end))
            self._pass("offset_log")
            self._batch(len(self.offsets) - 1)
            start = end
            if trigger == "once":
                return

    def follow(self, done: Callable[[], bool], most: int) -> None:
        """Run it with a trigger that waits, in one driver, until `done`."""
        self.stop()
        self.driver = made = self._made()
        start = made.initial()
        while not done():
            end = made.latest(start, most)
            if end != start:
                self.offsets.append((start, end))
                self._batch(len(self.offsets) - 1)
                start = end

    def dies(self, step: str, passed: int, most: int | None, trigger: str = "available") -> None:
        """Run it with a driver that dies at that step, when it has passed it so many times."""
        self.die_at = (step, passed)
        with pytest.raises(Died, match=step):
            self.run(most, trigger)

    def _batch(self, number: int) -> None:
        """Write a batch; an earlier attempt's rows must be the same."""
        assert self.driver is not None
        rows = self._read(self.driver.plan(*self.offsets[number]))
        assert self.sink.setdefault(number, rows) == rows, "a batch has other rows now"
        self._pass("written")
        self.commits = number + 1
        self._pass("commit_log")

    def _read(self, parts: Iterable[SpoolSlice]) -> list[tuple[bytes, int]]:
        """Run the tasks of a batch; return body and position of each row."""
        rows = []
        options = parse_options(self.given, "read", "stream")
        source = SpoolReading(options, SCHEMA)
        for part in parts:
            for batch in source.rows(part):
                for row in batch.to_pylist():
                    rows.append((row["body"], row["position"]["index"]))
            self._pass("in_write")
        return rows

    def _made(self) -> SpoolDriver:
        options = parse_options(self.given, "read", "stream")
        return SpoolDriver(options, mint=lambda: f"spark-{uuid.uuid4().hex}")

    def _pass(self, step: str) -> None:
        if self.die_at is not None and self.die_at[0] == step:
            left = self.die_at[1]
            self.die_at = (step, left - 1) if left else None
            if not left:
                raise Died(step)

    def check(self, lost: int = 0) -> None:
        """Every published message in one committed row: lost 0, doubled 0."""
        out = [body for number in range(self.commits) for body, _ in self.sink[number]]
        wanted = self.queue.bodies
        missing = len(set(wanted) - set(out))
        assert (missing, len(out) - len(set(out))) == (lost, 0), (missing, len(out), len(wanted))
        assert set(out) <= set(wanted)
        positions = [at for number in range(self.commits) for _, at in self.sink[number]]
        assert positions == list(range(len(positions))), "rows out of order or skipped"

    def finish(self, most: int = 1000) -> None:
        """Run until everything published is committed, nothing is left in the queue; check."""
        deadline = time.monotonic() + EMPTY_S
        self.end_abandoned()
        while True:
            self.run(most)
            self.stop()
            out = {body for rows in self.sink.values() for body, _ in rows}
            if len(out) >= len(self.queue.bodies) or time.monotonic() > deadline:
                break
            time.sleep(0.2)  # what a predecessor held is not ready again yet
        self.check()
        self.run(most)  # settles the last batch, and what came back of it
        self.stop()
        self.queue.check_empty()
        self.check()


def run_until_it_dies(query: Query, rng: random.Random, most: int, trigger: str) -> str:
    """One life of a driver that dies at a step drawn by the seed, or ends; say what happened."""
    step = rng.choice(STEPS)
    query.die_at = (step, rng.randint(0, 2))
    try:
        query.run(most, trigger)
        what = f"ends ({trigger})"
    except Died:
        what = f"dies at {step} ({trigger})"
    query.die_at = None
    with suppress(AttributeError):
        if rng.random() < 0.5:
            query.abandon()
            return f"{what}, its receiver lives on"
    query.stop()
    return what
