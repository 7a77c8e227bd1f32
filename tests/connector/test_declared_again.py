"""A queue is deleted and declared again: drivers that still run get nothing of the new one."""

from __future__ import annotations

import dataclasses
import uuid

import pyarrow as pa
import pytest
from spark_world.offsets import only

from pyspark_warren import errors
from pyspark_warren.claims.client import WarrenBroker
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.claims.reader import read_task
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.surroundings import Surroundings
from warren import Producer
from warren import errors as client_errors
from warren.admin import Admin
from warren.claims import ClaimReader
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow]

SCHEMA = pa.schema([pa.field(name, kind) for name, kind in ARROW_TYPES.items()])
OLD = [b"old %d" % i for i in range(10)]
NEW = [b"new %d" % i for i in range(10)]


@pytest.fixture
def given(cluster: LocalCluster) -> Options:
    """The options of both drivers: the same queue and the same reader."""
    name = f"q-{uuid.uuid4().hex[:8]}"
    declare(cluster, name, OLD)
    return parse_options({"hosts": cluster.hosts, "queue": name, "readerId": "nightly"}, "read")


def declare(cluster: LocalCluster, name: str, bodies: list[bytes]) -> None:
    with cluster.connect() as connection, Producer(connection) as producer:
        Admin(connection).queues.declare(name, arguments={"x-queue-type": "quorum"})
        for body in bodies:
            producer.send(body, name)


def replace(cluster: LocalCluster, name: str) -> None:
    """Delete the queue, and declare one of that name with other messages."""
    with cluster.connect() as connection:
        Admin(connection).queues.delete(name)
    declare(cluster, name, NEW)


def driver_of(cluster: LocalCluster, given: Options) -> ClaimDriver:
    """Make a driver with its own connection."""
    return ClaimDriver(
        WarrenBroker(cluster.connect()),
        dataclasses.replace(given, prefetch_claims=0),
        Surroundings.of_this_process(),
    )


def bodies_of(
    cluster: LocalCluster, given: Options, driver: ClaimDriver, start: Offset, end: Offset
) -> list[bytes]:
    with cluster.connect() as connection:
        broker = WarrenBroker(connection)
        return [
            body
            for part in driver.plan(start, end)
            for batch in read_task(lambda _: broker, given, [part], SCHEMA)
            for body in batch.column("body").to_pylist()
        ]


def first_batch(cluster: LocalCluster, given: Options) -> tuple[ClaimDriver, Offset, Offset]:
    """Claim 10 messages; return the driver, start and end of the batch."""
    driver = driver_of(cluster, given)
    start = driver.latest(driver.initial(), 10)
    return driver, start, driver.latest(start, 10)


def test_a_driver_that_runs_on_has_nothing_of_the_queue_declared_after_it(
    cluster: LocalCluster, given: Options
) -> None:
    old, old_start, old_end = first_batch(cluster, given)
    assert bodies_of(cluster, given, old, old_start, old_end) == OLD
    slices = old.plan(old_start, old_end)
    replace(cluster, given.queue)
    new, new_start, new_end = first_batch(cluster, given)

    # A task of the old one's batch is run again; its driver settles the batch, and continues.
    with cluster.connect() as connection:
        broker = WarrenBroker(connection)
        for part in slices:
            with pytest.raises(errors.ClaimLostError):
                list(read_task(lambda _: broker, given, [part], SCHEMA))
    with pytest.raises((errors.FencedError, errors.ClaimLostError)):
        old.latest(old_end, 10)
    with pytest.raises((errors.FencedError, errors.ClaimLostError, client_errors.PeerError)):
        old.settle(old_end)

    assert bodies_of(cluster, given, new, new_start, new_end) == NEW
    assert new.latest(new_end, 10) == new_end  # settled; there is nothing more
    with cluster.connect() as connection:
        found = Admin(connection).queues.get(given.queue)
    assert (found.messages_ready, found.messages_claimed) == (0, 0)


def test_a_checkpoint_of_the_deleted_queue_does_not_take_over_the_new_ones_reader(
    cluster: LocalCluster, given: Options
) -> None:
    _old, start, end = first_batch(cluster, given)
    replace(cluster, given.queue)
    new = driver_of(cluster, given)
    new_end = new.latest(new.latest(new.initial(), 10), 10)

    # The unfinished batch, and the finished one, of a query that is started again.
    with pytest.raises(errors.CheckpointBehindError):
        driver_of(cluster, given).plan(start, end)
    with pytest.raises(errors.CheckpointBehindError):
        driver_of(cluster, given).latest(end, 10)
    assert only(new_end).number > only(end).number
    with cluster.connect() as connection:
        assert Admin(connection).queues.get(given.queue).messages_claimed == len(NEW)
    assert new.latest(new_end, 10) == new_end  # it was not fenced


def test_continuing_after_a_lost_claim_skips_no_new_queue(
    cluster: LocalCluster, given: Options
) -> None:
    with cluster.connect() as connection:
        reader = ClaimReader(connection, given.queue, "r")
        first = reader.register().settled + 1
        reader.open(first, max_messages=10, max_bytes=1 << 20)
        replace(cluster, given.queue)
        again = ClaimReader(connection, given.queue, "r").register(go_on_after=first)
        assert again.settled > first
        with pytest.raises(client_errors.PeerError):
            reader.settle(first)
        with pytest.raises(client_errors.PeerError):
            reader.release()
