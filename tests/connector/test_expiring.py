"""readerExpires and sinkExpires on a real cluster: the living stay, what has ended goes."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

import pytest
from pyspark.sql.types import StructType

from pyspark_warren.claims.client import connect
from pyspark_warren.errors import ClaimLostError, named_conditions
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.source import WarrenStreamReader
from tests.patience import TooSlow, in_time, with_time_enough
from warren import Admin, Connection, Producer
from warren.local import LocalCluster
from warren.stages import SinkDriver, StageWriter, draw_epoch, publish_batch
from warren_wire.block.block import encode

pytestmark = [pytest.mark.live, pytest.mark.slow]

SCHEMA = StructType().add("body", "binary")
EXPIRES_S = 4.0
"""Below the option's least value, so that the test need not wait for minutes."""


def until(wanted: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not wanted():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def declared(admin: Admin) -> str:
    name = f"q-{uuid.uuid4().hex[:8]}"
    admin.queues.declare(name, arguments={"x-queue-type": "quorum"})
    return name


def reading(
    cluster: LocalCluster, queue: str, expires_s: float = EXPIRES_S, **given: str
) -> WarrenStreamReader:
    options = parse_options({"hosts": cluster.hosts, "queue": queue, **given}, "read", "stream")
    return WarrenStreamReader(brief(options, expires_s), SCHEMA, connect)


def brief(options: Options, expires_s: float) -> Options:
    return dataclasses.replace(options, reader_expires_ms=round(expires_s * 1000))


def names(admin: Admin, queue: str) -> list[str]:
    return [reader.name for reader in admin.claims.readers(queue)]


def test_a_reader_stays_while_its_query_lives_and_goes_after_it(cluster: LocalCluster) -> None:
    """Spark makes no call while a batch, or a pause between triggers, takes its time."""
    with cluster.connect() as connection:
        admin = Admin(connection)
        with_time_enough(lambda expires_s: stays_and_goes(cluster, admin, expires_s), EXPIRES_S)


def stays_and_goes(cluster: LocalCluster, admin: Admin, expires_s: float) -> None:
    queue = declared(admin)
    with in_time(time.monotonic() + expires_s):
        living = reading(cluster, queue, expires_s, readerId="living")
        start = living.latestOffset(living.initialOffset())
        assert living.latestOffset(start) == start
        ended = reading(cluster, queue, expires_s, readerId="ended")
        ended.latestOffset(ended.initialOffset())
        ended.stop()

    def left() -> AbstractSet[str]:
        found = set(names(admin, queue))
        if "living" not in found:
            raise TooSlow("its process stood for longer than it lives")
        return found - {"living"}

    until(lambda: not left(), "the ended one is not forgotten")
    (reader,) = admin.claims.readers(queue)
    assert reader.expires_at - reader.last_heard_ms == expires_s * 1000
    first = reader.last_heard_ms
    until(
        lambda: (
            not left()
            and admin.claims.readers(queue)[0].last_heard_ms > first + 2 * round(expires_s * 1000)
        ),
        "the living one is not renewed",
    )
    living.stop()
    until(lambda: names(admin, queue) == [], "the stopped one is not forgotten")
    with pytest.raises(ClaimLostError, match="does not know"), named_conditions("reading"):
        reading(cluster, queue).latestOffset(start)


def test_a_reader_with_messages_stays_and_its_restart_reads_them(cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        admin = Admin(connection)

        def claimed(expires_s: float) -> tuple[str, Any, Any]:
            queue = declared(admin)
            with Producer(connection) as producer:
                producer.send(b"row", queue)
            with in_time(time.monotonic() + expires_s):
                first = reading(cluster, queue, expires_s, readerId="r")
                try:
                    start = first.initialOffset()
                    end = first.latestOffset(start)
                    assert len(first.partitions(start, end)) == 1, "opens the first claim"
                    return queue, start, end
                finally:
                    first.stop()

        queue, start, end = with_time_enough(claimed, EXPIRES_S)
        (reader,) = admin.claims.readers(queue)
        until(
            lambda: (
                time.time() * 1000 > 2 * reader.expires_at - reader.last_heard_ms
                and names(admin, queue) != []
            ),
            "the reader with a message was forgotten",
        )
        again = reading(cluster, queue, readerId="r")
        assert len(again.partitions(start, end)) == 1
        again.stop()


def publish(connection: Connection, queue: str, driver: SinkDriver, batch: int) -> None:
    with StageWriter(connection, driver, batch=batch, partition=0) as writer:
        writer.write(encode([b"row"], [b"\0\0"], (b"", queue.encode())))
        part = writer.finish()
    assert publish_batch(connection, driver, batch, [part]) == 1


def test_a_run_goes_when_it_has_written_nothing_for_its_time(cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        with_time_enough(lambda expires_s: run_goes(connection, expires_s), 2.0)


def run_goes(connection: Connection, expires_s: float) -> None:
    admin = Admin(connection)
    queue = declared(admin)
    driver = SinkDriver("s", "run", draw_epoch(connection), round(expires_s * 1000))
    publish(connection, queue, SinkDriver("s", "stays", driver.epoch), 1)
    with in_time(time.monotonic() + expires_s):
        publish(connection, queue, driver, 1)
        runs = {each.run: each for each in admin.sinks.list(queue).runs}
        assert abs(runs["run"].expires_at - time.time() * 1000) < 60_000
    assert runs["stays"].expires_at == 0
    until(lambda: admin.sinks.list(queue).total == 1, "the run is not forgotten")
    assert [each.run for each in admin.sinks.list(queue).runs] == ["stays"]
    publish(connection, queue, driver, 2)
    assert admin.queues.get(queue).messages_ready == 3
