"""Real Spark over the fake broker: triggers, crashes at every place, exact each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_world.runs import World

from pyspark_warren.spark_line import TELLS_START

pytestmark = [pytest.mark.spark, pytest.mark.slow]

OF_TOLD_STARTS = pytest.mark.skipif(
    not TELLS_START, reason="limits of triggers, backlog: docs/how-to/spark.md, what each Spark has"
)
SMALL = {"maxMessagesPerTrigger": "1000", "partitions": "2"}


@OF_TOLD_STARTS
def test_available_now_ends_with_everything_settled(world: World) -> None:
    bodies = world.publish(2500)
    batches = world.finish(source=SMALL)
    assert [batch["rows"] for batch in batches if batch["rows"]] == [1000, 1000, 500]
    assert batches[0]["backlog"]["messages_ready"] == 2500
    world.check_exact(bodies)


def test_processing_time_settles_what_it_has_committed(world: World) -> None:
    bodies = world.publish(2500)
    world.finish(source=SMALL, trigger={"processingTime": "0 seconds"}, until=2500)
    world.check_exact(bodies)


@OF_TOLD_STARTS
def test_once_reads_everything_in_its_one_batch_and_the_next_run_settles_it(world: World) -> None:
    bodies = world.publish(1500)
    batches = world.finish(source=SMALL, trigger={"once": True})
    assert [batch["rows"] for batch in batches] == [1500]
    assert world.server.broker.state("in")["acknowledged"] == 0
    world.finish(source=SMALL)
    world.check_exact(bodies)


@OF_TOLD_STARTS
@pytest.mark.long
def test_once_on_a_first_run_killed_around_its_offset_log_left_the_queue_to_nobody(
    world: World,
) -> None:
    bodies = world.publish(1500)
    once = {"once": True}
    for place in ("after_claim", "after_offset_log"):
        world.arm(place)
        died = world.run(source=SMALL, trigger=once)
        assert world.killed and died.returncode != 0, (place, died.stderr[-2000:])
    world.finish(source=SMALL, trigger=once)
    assert sorted(world.server.broker.bodies("out")) == sorted(bodies)
    world.finish(source=SMALL, trigger=once)  # settles, and has nothing to read
    world.check_exact(bodies)


def test_two_actions_in_foreach_batch_see_the_same_rows(world: World, tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    bodies = world.publish(2500)
    world.finish(source=SMALL, foreach_batch=str(tmp_path / "out"))
    read = {}
    for name in ("first", "second"):
        for batch in (tmp_path / "out" / name).iterdir():
            rows = ds.dataset(batch, format="parquet").to_table()["body"].to_pylist()
            read.setdefault(batch.name, []).append(sorted(rows))
    assert all(first == second for first, second in read.values())
    assert sorted(row for first, _ in read.values() for row in first) == sorted(
        body.hex().upper() for body in bodies
    )
    assert world.server.broker.state("in")["acknowledged"] == len(bodies)
