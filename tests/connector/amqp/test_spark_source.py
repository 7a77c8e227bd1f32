"""Spark from RabbitMQ to Parquet, with drivers and tasks that are killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_world.rabbit import RabbitWorld

from connector.amqp.rabbitmq import OneRabbitMQ

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow]


def test_a_driver_and_a_task_killed_in_one_query(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    """kill -9 of the JVM, then of a task; every run restarts from the last checkpoint.

    after_latest   nothing in the checkpoint says which rows the batch has
    before_settle  committed, nothing acknowledged

    `test_receiver` has the other steps without Spark, `build.py crash --broker rabbitmq` with it.
    """
    world = RabbitWorld(rabbitmq.hosts, tmp_path, maxMessagesPerTrigger="100")
    for step in ("after_latest", "before_settle"):
        world.publish(150)
        world.dies(step)
    world.arm("task_in_read")
    world.finish(master="local[2,3]")
    assert world.killed
    world.check_exact()
    assert world.offsets()["lanes"] == {"0": len(world.bodies)}
