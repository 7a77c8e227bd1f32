"""A claim ahead on three real nodes, while drivers, the leader and the queue end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_world.offsets import only
from spark_world.runs import RealWorld, ended, resume

from pyspark_warren.claims.client import connect
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.errors import BrokerRefusedError, named_conditions
from pyspark_warren.options.options import parse_options
from pyspark_warren.surroundings import Surroundings
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.claims import ClaimReader
from warren.local import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow, pytest.mark.long]

BATCH = 100
BATCHES = 20
SOURCE = {"maxMessagesPerTrigger": str(BATCH)}


SPARK_PATIENCE_S = 4 * PATIENCE_S
"""A driver that starts takes 15 s of processor time until its first claim."""


def until(wanted: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + SPARK_PATIENCE_S
    while not wanted():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def claimed(world: RealWorld) -> int:
    return world.broker.queue(world.source).messages_claimed


def started(world: RealWorld, **plan: Any) -> subprocess.Popen[str]:
    """A run with a backlog, as soon as it has a claim ahead."""
    run = world.start(source=SOURCE, **plan)

    def ahead() -> bool:
        assert run.poll() is None, ended(run).stderr[-2000:]
        return claimed(world) >= 2 * BATCH

    until(ahead, "no claim is opened ahead")
    return run


def finished(world: RealWorld, bodies: list[bytes], **source: str) -> None:
    world.finish(source={**SOURCE, "maxMessagesPerTrigger": "2000", **source})
    world.check_exact(bodies)


@pytest.fixture
def world(cluster: LocalCluster, tmp_path: Path) -> RealWorld:
    return RealWorld(cluster, tmp_path)


def test_a_killed_driver_leaves_its_claim_ahead_to_the_next_one_which_opens_none(
    world: RealWorld,
) -> None:
    bodies = world.publish(10 * BATCH)
    world.arm("before_settle", 7)
    died = world.run(source=SOURCE)
    assert world.killed and died.returncode != 0, died.stderr[-2000:]
    assert claimed(world) == 2 * BATCH, "the last batch, and the claim that was to be the next"
    finished(world, bodies, prefetchClaims="0")


def test_what_is_ahead_is_given_back_when_the_jvm_dies(world: RealWorld) -> None:
    bodies = world.publish(BATCHES * BATCH)
    run = started(world)
    os.kill(int(Path(f"{world.kill_plan}.jvm").read_text()), signal.SIGKILL)
    ended(run)
    # What the batch had, and perhaps what Spark had just asked for.
    until(lambda: claimed(world) <= 2 * BATCH, "more than two claims")
    finished(world, bodies)


def test_a_stopped_query_gives_back_what_is_ahead_at_once(
    world: RealWorld, spark: Any, tmp_path: Path
) -> None:
    bodies = world.publish(BATCHES * BATCH)
    rows = (
        spark.readStream.format("warren")
        .options(hosts=world.cluster.hosts, queue=world.source, **SOURCE)
        .load()
    )
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "stopped"))
        .start()
    )
    until(lambda: claimed(world) >= 2 * BATCH, "no claim is opened ahead")
    query.stop()
    until(lambda: claimed(world) <= BATCH, "the claim ahead is still held")
    with world.cluster.connect() as connection:
        other = ClaimReader(connection, world.source, "other")
        number = other.register().settled + 1
        left = world.broker.queue(world.source).messages_ready
        assert other.open(number, max_messages=1 << 20, max_bytes=1 << 30).messages == left
        other.release()
    # The same query continues; what it had is read once.
    again = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "stopped"))
        .trigger(availableNow=True)
        .start()
    )
    assert again.awaitTermination(int(SPARK_PATIENCE_S))
    read = sum(each.numInputRows for each in (*query.recentProgress, *again.recentProgress))
    assert len(bodies) - BATCH <= read <= len(bodies), "a batch that was stopped has no progress"
    world.check_source_empty()


def test_the_leader_is_killed_while_claims_are_opened_ahead(world: RealWorld) -> None:
    bodies = world.publish(BATCHES * BATCH)
    run = started(world)
    leader = world.cluster.leader_of(world.source)
    world.cluster.kill(leader)
    try:
        done = ended(run)
    finally:
        world.cluster.start(leader)
    assert done.returncode == 0, done.stderr[-2000:]
    world.check_exact(bodies)


def test_the_queue_is_deleted_while_a_claim_is_ahead(world: RealWorld) -> None:
    world.publish(BATCHES * BATCH)
    run = started(world)
    with world.cluster.connect() as connection:
        Admin(connection).queues.delete(world.source)
    done = ended(run)
    assert done.returncode != 0
    assert "WARREN_" in done.stderr, done.stderr[-2000:]


def test_two_drivers_of_one_checkpoint_at_once(world: RealWorld) -> None:
    bodies = world.publish(20 * BATCH)
    world.arm("before_settle", 7, "stop")
    first = world.start(source=SOURCE)
    frozen = world.frozen(first)
    try:
        assert claimed(world) >= 2 * BATCH
        finished(world, bodies)
    finally:
        resume(frozen)
    assert ended(first).returncode != 0, "it was taken over from"
    world.check_exact(bodies)


# ------------------------------------------------------------------ rights that are removed


class Limited:
    """A driver without Spark, of a user with a right to read that is given and taken away."""

    def __init__(self, world: RealWorld) -> None:
        self.world, self.user = world, f"user-{world.source}"
        self.work: list[Callable[[], None]] = []
        self.options = parse_options(
            {
                "hosts": world.cluster.hosts,
                "user": self.user,
                "password": "secret",
                "queue": world.source,
                **SOURCE,
            },
            "read",
        )
        with world.cluster.connect() as connection:
            Admin(connection).users.put(self.user, password="secret")
        self.may_read(True)

    def may_read(self, may: bool) -> None:
        with self.world.cluster.connect() as connection:
            allowed = ".*" if may else "^$"
            Admin(connection).permissions.put(
                "/", self.user, configure="^$", write="^$", read=allowed
            )

    def driver(self) -> ClaimDriver:
        surroundings = Surroundings(lambda: 0, lambda _s: None, lambda: "r", self.work.append)
        return ClaimDriver(connect(self.options), self.options, surroundings)

    def ask(self, driver: ClaimDriver) -> None:
        """Make the request ahead."""
        (_,) = self.work
        self.work.clear()
        assert driver.ahead is not None and driver.ahead.request is not None
        driver.ahead.request.ask()

    def claims(self) -> tuple[int, int]:
        """Return how many claims are open, and how many messages they hold."""
        found = self.world.broker.queue(self.world.source)
        (reader,) = found.readers
        return reader.open_claims, found.messages_claimed


@pytest.mark.parametrize("removed", ["before the request", "before it is given back", "in settle"])
def test_a_right_is_removed_beside_a_claim_ahead(world: RealWorld, removed: str) -> None:
    """The query fails with the broker's reason, and continues with the same rows."""
    world.publish(5 * BATCH)
    user = Limited(world)
    driver = user.driver()
    start = driver.latest(driver.latest(driver.initial(), BATCH), BATCH)
    at = driver.latest(start, BATCH)
    refused = pytest.raises(BrokerRefusedError, match=rf"WARREN_REFUSED.*{world.source}")
    if removed == "before the request":
        user.may_read(False)
        user.ask(driver)
        with refused, named_conditions("reading"):
            driver.latest(at, BATCH)
    elif removed == "before it is given back":
        user.ask(driver)
        assert user.claims() == (2, 2 * BATCH)
        user.may_read(False)
        driver.close()
        assert user.claims() == (2, 2 * BATCH), "it is held until the query starts again"
        with refused, named_conditions("reading"):
            driver.latest(at, BATCH)
    else:
        user.work.clear()
        driver.ahead.request = None
        user.may_read(False)
        with refused, named_conditions("reading"):
            driver.settle(at)
    user.may_read(True)
    again = user.driver()
    assert again.plan(start, at), "the batch that was begun"
    rows = only(at).claims[0].messages
    while (end := again.latest(at, BATCH)) is not at:
        rows += only(end).claims[0].messages
        user.work.clear()
        again.ahead.request, at = None, end
    assert rows == 4 * BATCH
    world.check_source_empty()
