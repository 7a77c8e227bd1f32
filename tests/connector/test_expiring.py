"""readerExpires and sinkExpires on a real cluster: the living stay, what has ended goes."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable

import pytest
from pyspark.sql.types import StructType

from pyspark_warren.client import connect
from pyspark_warren.conditions import named_conditions
from pyspark_warren.errors import ClaimLostError
from pyspark_warren.options import Options, parse_options
from pyspark_warren.source import WarrenStreamReader
from warren import Admin, Connection, Producer
from warren.local import LocalCluster
from warren.stages import SinkDriver, StageWriter, draw_epoch, publish_batch
from warren_broker.block.block import encode

pytestmark = [pytest.mark.live, pytest.mark.slow]

SCHEMA = StructType().add("body", "binary")
EXPIRES_MS = 4_000
"""Below the option's least value, so that the test need not wait for minutes."""


def until(wanted: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not wanted():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def declared(admin: Admin) -> str:
    name = f"q-{uuid.uuid4().hex[:8]}"
    admin.declare_queue(name, arguments={"x-queue-type": "quorum"})
    return name


def reading(cluster: LocalCluster, queue: str, **given: str) -> WarrenStreamReader:
    options = parse_options({"hosts": cluster.hosts, "queue": queue, **given}, "read", "stream")
    return WarrenStreamReader(brief(options), SCHEMA, connect)


def brief(options: Options) -> Options:
    return dataclasses.replace(options, reader_expires_ms=EXPIRES_MS)


def names(admin: Admin, queue: str) -> list[str]:
    return [reader.name for reader in admin.readers(queue)]


def test_a_reader_stays_while_its_query_lives_and_goes_after_it(cluster: LocalCluster) -> None:
    """Spark makes no call while a batch, or a pause between triggers, takes its time."""
    with cluster.connect() as connection:
        admin = Admin(connection)
        queue = declared(admin)
        living = reading(cluster, queue, readerId="living")
        start = living.initialOffset()
        assert living.latestOffset(start) == start
        ended = reading(cluster, queue, readerId="ended")
        ended.initialOffset()
        until(lambda: names(admin, queue) == ["living"], "the ended one is not forgotten")
        (reader,) = admin.readers(queue)
        assert 0 < reader.expires_at - reader.last_heard_ms == EXPIRES_MS
        first = reader.last_heard_ms
        until(
            lambda: admin.readers(queue)[0].last_heard_ms > first + 2 * EXPIRES_MS,
            "the living one is not renewed, or was forgotten",
        )
        living.stop()
        until(lambda: names(admin, queue) == [], "the stopped one is not forgotten")
        with pytest.raises(ClaimLostError, match="does not know"), named_conditions("reading"):
            reading(cluster, queue).latestOffset(start)


def test_a_reader_with_messages_stays_and_its_restart_reads_them(cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        admin = Admin(connection)
        queue = declared(admin)
        with Producer(connection) as producer:
            producer.send(b"row", queue)
        first = reading(cluster, queue, readerId="r")
        start = first.initialOffset()
        end = first.latestOffset(start)
        first.stop()
        last_heard_ms = admin.readers(queue)[0].last_heard_ms
        until(
            lambda: (
                time.time() * 1000 > last_heard_ms + 2 * EXPIRES_MS and names(admin, queue) != []
            ),
            "the reader with a message was forgotten",
        )
        again = reading(cluster, queue, readerId="r")
        assert again.latestOffset(start) == end
        assert len(again.partitions(start, end)) == 1
        again.stop()


def publish(connection: Connection, queue: str, driver: SinkDriver, batch: int) -> None:
    with StageWriter(connection, driver, batch=batch, partition=0) as writer:
        writer.write(encode([b"row"], [b"\0\0"], (b"", queue.encode())))
        part = writer.finish()
    assert publish_batch(connection, driver, batch, [part]) == 1


def test_a_run_goes_when_it_has_written_nothing_for_its_time(cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        admin = Admin(connection)
        queue = declared(admin)
        driver = SinkDriver("s", "run", draw_epoch(connection), 2_000)
        publish(connection, queue, driver, 1)
        publish(connection, queue, SinkDriver("s", "stays", driver.epoch), 1)
        runs = {each.run: each for each in admin.sinks(queue).runs}
        assert runs["stays"].expires_at == 0
        assert abs(runs["run"].expires_at - time.time() * 1000) < 60_000
        until(lambda: admin.sinks(queue).total == 1, "the run is not forgotten")
        assert [each.run for each in admin.sinks(queue).runs] == ["stays"]
        publish(connection, queue, driver, 2)
        assert admin.queue(queue).messages_ready == 3
