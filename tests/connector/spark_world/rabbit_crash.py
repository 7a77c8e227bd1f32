"""Spark from RabbitMQ to Parquet, with what a seed draws: see `crash`."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from connector.amqp.rabbitmq import OneRabbitMQ
from spark_world.rabbit import STEPS, RabbitWorld
from spark_world.runs import ended, resume

BATCH = 200
ROUNDS_MAX = 3
FINISH_RUNS_MAX = 10
KILLS_MAX = 3
LOOK_AGAIN_S = 0.1


def receivers_of(world: RabbitWorld) -> list[int]:
    """Return the receiver processes that this world's drivers have started."""
    mark = f"WARREN_TEST_KILL={world.kill_plan}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if b"pyspark_warren.amqp.receiver_process" in (entry / "cmdline").read_bytes():
                if mark in (entry / "environ").read_bytes() + b"\0":
                    found.append(int(entry.name))
        except (OSError, ValueError):
            continue  # it has ended, or is no process
    return found


@contextmanager
def receivers_killed(world: RabbitWorld, rng: random.Random) -> Iterator[list[int]]:
    """Kill -9 a receiver shortly after it began, a few times in a run."""
    over, killed = threading.Event(), list[int]()
    pauses = [rng.uniform(0.0, 2.5) for _ in range(KILLS_MAX)]

    def kill() -> None:
        for pause_s in pauses:
            while not receivers_of(world):
                if over.wait(LOOK_AGAIN_S):
                    return
            over.wait(pause_s)
            for pid in receivers_of(world):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        over.set()
        killer.join()


def one_run(broker: OneRabbitMQ, directory: Path, seed: int) -> list[str]:
    """One query, start to end; what was done to it. Raises AssertionError."""
    rng = random.Random(seed)
    mode = rng.choice(("commit", "spool"))
    given = {
        "ackMode": mode,
        "prefetch": str(rng.choice((50, 300, 5000))),
        "receivers": str(rng.choice((1, 1, 2))),
        "maxMessagesPerTrigger": str(BATCH),
    }
    world = RabbitWorld(broker.hosts, directory, **given)
    done = [f"{mode}, prefetch {given['prefetch']}, receivers {given['receivers']}"]
    for _ in range(rng.randint(1, ROUNDS_MAX)):
        world.publish(rng.randint(BATCH, 3 * BATCH))
        done.append(_round(broker, world, rng))
    for _ in range(FINISH_RUNS_MAX):
        world.wait_until_free()
        world.finish()
        if len(set(world.rows())) >= len(world.bodies):
            break
    world.wait_until_free()
    world.finish()
    world.check_exact()
    return done


def _round(broker: OneRabbitMQ, world: RabbitWorld, rng: random.Random) -> str:
    kind = rng.choice(("dies", "dies", "overtaken", "task", "receiver", "broker"))
    step = rng.choice(STEPS)
    if kind == "dies":
        world.arm(step)
        world.run()
        return f"{kind} {step}" if world.killed else f"step {step} not reached"
    if kind == "overtaken":
        world.arm(step, action="stop")
        first = world.start()
        pids = world.frozen(first)
        try:
            world.finish()
        finally:
            resume(pids)
            ended(first)
        assert world.killed, step
        return f"{kind} {step}"
    if kind == "task":
        world.arm("task_in_read")
        world.finish(master="local[2,3]")
        return kind if world.killed else "no task"
    if kind == "receiver":
        with receivers_killed(world, rng) as killed:
            world.finish()
        return f"{len(killed)} receivers killed"
    run = world.start()
    timer = threading.Timer(rng.uniform(2.0, 15.0), broker.kill)
    timer.start()
    timer.join()
    broker.restart()
    ended(run)
    return "broker killed"
