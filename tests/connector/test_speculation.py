"""Two attempts at one partition at the same time: only the winner's rows are published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from spark_world.fake import FakeServer
from spark_world.runs import World

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Queues `in` and `out`, empty."""
    with FakeServer() as server:
        server.broker.declare("in")
        server.broker.declare("out")
        yield World(server, tmp_path)


def test_a_speculative_second_attempt_publishes_nothing_twice(world: World) -> None:
    bodies = world.publish(4000)
    world.arm("dawdle")
    world.finish(source={"partitions": "4"}, master="local-cluster[2,1,1024]")
    assert world.killed
    stages = {call[1:] for call in world.server.broker.calls_of("stage")}
    partitions = [partition for _, _, partition, _ in stages]
    assert len(partitions) > len(set(partitions)), "no second attempt was made"
    world.check_exact(bodies)
