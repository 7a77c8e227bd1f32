"""Spark on three real nodes: a driver that dies at a random step, for each kind of sink.

The fake broker of test_spark.py and test_claim_worlds.py tries orders that are hard to bring about;
here nothing is fake. `build.py crashes` draws every step, every fault, and RabbitMQ.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from spark_world.crash import Cell, WarrenNodes, one_run
from spark_world.crash_world import BATCH, SINKS
from spark_world.runs import DRIVER, RealWorld

from warren.local import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow]


@pytest.mark.long
@pytest.mark.parametrize("sink", SINKS)
def test_a_driver_killed_at_a_random_step(cluster: LocalCluster, tmp_path: Path, sink: str) -> None:
    cell, seed = Cell("warren", "driver", sink), random.SystemRandom().randrange(1 << 20)
    done, lost, doubled = one_run(WarrenNodes(cluster), cell, tmp_path, seed)
    assert (lost, doubled) == (0, 0), f"{done}; again: {cell.command(seed)}"


@pytest.mark.long
def test_a_leader_that_dies_while_the_driver_stands_still(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    cell, seed = Cell("warren", "stall", "queue"), random.SystemRandom().randrange(1 << 20)
    done, lost, doubled = one_run(WarrenNodes(cluster), cell, tmp_path, seed)
    assert (lost, doubled) == (0, 0), f"{done}; again: {cell.command(seed)}"


@pytest.mark.long
def test_a_checkpoint_that_was_changed(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DRIVER, "session", None)  # its processes die
    cell, seed = Cell("warren", "checkpoint", "queue"), random.SystemRandom().randrange(1 << 20)
    try:
        done, lost, doubled = one_run(WarrenNodes(cluster), cell, tmp_path, seed)
    finally:
        DRIVER.close()
    assert (lost, doubled) == (0, 0), f"{done}; again: {cell.command(seed)}"


def test_a_deleted_checkpoint_and_a_sink_of_the_same_name_lost_rows(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    world = RealWorld(cluster, tmp_path)
    bodies: list[bytes] = []
    for _ in range(2):
        bodies += world.publish(BATCH, len(bodies))
        world.finish(sink={"sinkId": "mine"})
        world.check_exact(bodies)
        shutil.rmtree(world.directory / "checkpoint")


@pytest.mark.long
def test_a_driver_killed_amid_a_batch_of_several_queues(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Claims of three queues in one batch; one of them joins between two runs.

    after_claim    the claims are open, no log has them
    after_publish  every row is visible in the target, the commit log does not know it
    """
    world = RealWorld(cluster, tmp_path)
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
