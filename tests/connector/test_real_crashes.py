"""Spark on three real nodes: drivers and tasks that die at every step, two drivers at once.

The fake broker of test_spark.py and test_claim_worlds.py tries orders that are hard to bring about;
here nothing is fake. `build.py crash` draws more.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from spark_world.crash import (
    BATCH,
    SOURCE,
    STEPS,
    TASK_STEPS,
    driver_dies,
    driver_is_overtaken,
    task_dies,
)
from spark_world.runs import RealWorld

from warren.local import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow]


@pytest.fixture
def world(cluster: LocalCluster, tmp_path: Path) -> RealWorld:
    """Two queues of its own."""
    return RealWorld(cluster, tmp_path)


def test_a_driver_killed_at_every_step_of_one_query(world: RealWorld) -> None:
    """kill -9 of the JVM at each place in turn; every run restarts from the last checkpoint.

    after_claim       of the first batch, which is empty: the offset log has no reader's name yet
    after_offset_log  planned, nothing read
    in_write          some rows staged
    before_publish    every row staged, none visible
    after_publish     every row visible, the commit log does not know it
    before_settle     committed, the claim still open
    """
    bodies = world.publish(BATCH * (len(STEPS) + 1))
    for step in STEPS:
        driver_dies(world, step)
        left = world.broker.queue(world.source)
        assert left.messages_claimed <= BATCH, (step, left)
    world.finish(source=SOURCE)
    world.check_exact(bodies)


def test_a_driver_killed_amid_a_batch_of_several_queues(world: RealWorld) -> None:
    """Claims of three queues in one batch; one of them joins between two runs.

    after_claim    the claims are open, no log has them
    after_publish  every row is visible in the target, the commit log does not know it
    """
    queues = [f"{world.source}-{i}" for i in range(3)]
    source = {"queuePattern": f"^{world.source}-", "maxMessagesPerTrigger": "400"}
    bodies: list[bytes] = []
    for turn, step in enumerate(("after_claim", "after_publish", "")):
        for queue in queues[: 2 if turn == 0 else 3]:
            bodies += world.publish(150, len(bodies), queue)
        if step:
            world.arm(step)
            died = world.run(source=source)
            assert world.killed and died.returncode != 0, (step, died.stderr[-2000:])
        else:
            world.finish(source=source)
    world.check_exact(bodies)
    for queue in queues:
        left = world.broker.queue(queue)
        assert (left.messages_ready, left.messages_claimed) == (0, 0), left


def test_a_driver_that_stood_still_goes_on_after_another_took_over(world: RealWorld) -> None:
    bodies = world.publish(2 * BATCH)
    driver_is_overtaken(world, "before_publish")  # `build.py crash` has the other steps
    world.check_exact(bodies)
    bodies += world.publish(BATCH, len(bodies))
    world.finish(source=SOURCE)
    world.check_exact(bodies)


def test_tasks_killed_in_their_midst(world: RealWorld) -> None:
    bodies: list[bytes] = []
    for step in TASK_STEPS:
        bodies += world.publish(BATCH, len(bodies))
        task_dies(world, step)
        world.check_exact(bodies)


def test_a_deleted_checkpoint_and_a_sink_of_the_same_name_lost_rows(world: RealWorld) -> None:
    bodies: list[bytes] = []
    for _ in range(2):
        bodies += world.publish(BATCH, len(bodies))
        world.finish(source=SOURCE, sink={"sinkId": "mine"})
        world.check_exact(bodies)
        shutil.rmtree(world.directory / "checkpoint")
