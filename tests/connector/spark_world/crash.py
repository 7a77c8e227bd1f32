"""Spark from queue to queue on real nodes, crashed at moments that a seed draws.

    python3 build.py crash --runs 20 --seed 7
    python3 build.py crash --broker rabbitmq --runs 20 --seed 7

Each run is a query of its own on two queues of its own: drivers killed or frozen at a step while
another one takes over, tasks killed, a node down, checkpoints deleted. At its end every message
must be in the target once and nowhere else. With a RabbitMQ as the source, receivers are killed,
too, and the target is Parquet, written twice for each batch. A failure prints the command that
draws the same run again.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from spark_world.runs import RealWorld, ended, resume
from warren.local import LocalCluster

STEPS = (
    "after_claim",
    "after_offset_log",
    "in_write",
    "before_publish",
    "after_publish",
    "before_settle",
)
"""Where a driver dies or stands still, in the order of a batch."""
TASK_STEPS = ("in_read", "after_staging")
BATCH = 300
SOURCE = {"maxMessagesPerTrigger": str(BATCH), "partitions": "2"}
TRIGGERS = ({"availableNow": True}, {"once": True})


def driver_dies(world: RealWorld, step: str, **plan: object) -> None:
    """A run with a driver that is killed at that step."""
    world.arm(step)
    died = world.run(source=SOURCE, **plan)
    assert world.killed and died.returncode != 0, (step, died.stderr[-2000:])


def driver_is_overtaken(world: RealWorld, step: str, **plan: object) -> None:
    """A driver stands still at that step; another one does the work; then the first continues."""
    world.arm(step, action="stop")
    first = world.start(source=SOURCE, **plan)
    pids = world.frozen(first)
    try:
        world.finish(source=SOURCE)
    finally:
        resume(pids)
        ended(first)
    assert world.killed, step


def task_dies(world: RealWorld, step: str) -> None:
    """A run in which one task is killed at that step, and run again by Spark."""
    world.arm(step)
    world.finish(source=SOURCE, master="local[2,3]")


def one_run(cluster: LocalCluster, directory: Path, seed: int) -> list[str]:
    """One query, start to end; what was done to it. Raises AssertionError."""
    rng = random.Random(seed)
    world = RealWorld(cluster, directory)
    world.where["sink"] = {"sinkId": world.target} if rng.random() < 0.5 else {}
    bodies: list[bytes] = []
    done: list[str] = []
    pending = False  # a batch that the next run begins with
    for _ in range(rng.randint(1, 3)):
        bodies += world.publish(rng.randint(BATCH, 3 * BATCH), len(bodies))
        down = rng.randrange(len(cluster.nodes)) if rng.random() < 0.3 else None
        if down is not None:
            cluster.kill(down)
            done.append(f"node {down} down")
        try:
            done.append(_round(world, rng, pending))
            pending = done[-1].startswith("dies")
        finally:
            if down is not None:
                cluster.start(down)
        if rng.random() < 0.3:
            world.finish(source=SOURCE)
            world.check_exact(bodies)
            shutil.rmtree(directory / "checkpoint")
            done.append("checkpoint deleted")
            pending = False
    world.finish(source=SOURCE)
    world.check_exact(bodies)
    return done


def _round(world: RealWorld, rng: random.Random, pending: bool) -> str:
    kind, step = rng.choice(("dies", "overtaken", "task")), rng.choice(STEPS)
    trigger = rng.choice(TRIGGERS)
    if pending or step == "before_settle":
        # Once would end with the pending batch, and settles in its next run, if there is one.
        trigger = TRIGGERS[0]
    if kind == "task":
        step = rng.choice(TASK_STEPS)
        task_dies(world, step)
    elif kind == "dies":
        driver_dies(world, step, trigger=trigger)
    else:
        driver_is_overtaken(world, step, trigger=trigger)
    return f"{kind} {step} {next(iter(trigger))}"


@contextmanager
def _runs(broker: str, place: Path) -> Iterator[Callable[[Path, int], list[str]]]:
    """What makes one run of a seed in a directory, with that broker running."""
    if broker == "warren":
        with LocalCluster(3, place / "cluster") as cluster:
            yield partial(one_run, cluster)
        return
    from connector.amqp.rabbitmq import OneRabbitMQ
    from spark_world import rabbit_crash

    with OneRabbitMQ() as node:
        yield partial(rabbit_crash.one_run, node)


def main() -> int:
    """Runs until one fails; the exit code."""
    parser = argparse.ArgumentParser(prog="build.py crash", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="how many, each with the next seed")
    parser.add_argument("--seed", type=int, default=1, help="the first run's")
    parser.add_argument("--broker", choices=("warren", "rabbitmq"), default="warren")
    options = parser.parse_args()
    again = f"python3 build.py crash --broker {options.broker} --runs 1 --seed"
    with tempfile.TemporaryDirectory(prefix="warren-crash-") as place:
        with _runs(options.broker, Path(place)) as run:
            for seed in range(options.seed, options.seed + options.runs):
                directory = Path(place) / f"run-{seed}"
                directory.mkdir()
                began = time.monotonic()
                try:
                    done = run(directory, seed)
                except AssertionError:
                    print(
                        f"seed {seed} failed; again: {again} {seed}",
                        file=sys.stderr,
                    )
                    raise
                print(
                    f"seed {seed}: {', '.join(done)}: lost 0, doubled 0, "
                    f"{time.monotonic() - began:.0f} s",
                    flush=True,
                )
                shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
