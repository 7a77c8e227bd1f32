"""What is done to a query in a crash run; each fault returns words for the run's line."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from connector.amqp.relay import Relay
from spark_world.crash_world import BATCH, TO_QUEUE, CrashWorld
from spark_world.runs import DRIVER, RealWorld, ended, resume
from spark_world.tampering import TAMPERINGS, last_offset

CUTS = 3
RECEIVER_KILLS = 2
LOOK_AGAIN_S = 0.05
TASK_MASTER = "local[2,3]"
EXECUTOR_MASTER = "local-cluster[2,1,1024]"
NAMED = re.compile(r"WARREN_[A-Z_]+")
SPARKS_OWN = re.compile(
    r"JSONDecodeError|(?:Exception|Error)[^\n]*log[^\n]*|STREAMING_CHECKPOINT_[A-Z_.]+"
)
STALL_S_MAX = 4.0
"""How long a driver stands still while a leader dies: longer than it takes to elect another one."""


class Broker(Protocol):
    """A running broker, for faults."""

    name: str

    def ports(self) -> list[int]:
        """Return the port of each node."""

    def kill_a_node(self, rng: random.Random) -> Callable[[], None]:
        """Kill one node; return what starts it again."""

    def kill_the_leader(self, queue: str) -> Callable[[], None]:
        """Kill the node that leads a queue; return what starts it again."""


@dataclass(frozen=True)
class Scene:
    """A world, its broker, and the run's chance.

    number  of the run within its cell: the steps take turns
    """

    world: CrashWorld
    broker: Broker
    rng: random.Random
    number: int


def publish(scene: Scene) -> None:
    """Publish enough for a few batches."""
    scene.world.publish(scene.rng.randint(2 * BATCH, 4 * BATCH))


def driver(scene: Scene) -> str:
    """The JVM is killed at a step, or stands still there while another driver does the work."""
    world, rng = scene.world, scene.rng
    step = world.steps[scene.number % len(world.steps)]
    publish(scene)
    if world.of_warren and world.sink in TO_QUEUE and rng.random() < 0.4:
        return overtaken(world, step)
    return dies(world, step)


def python(scene: Scene) -> str:
    """The Python process that Spark calls at a step is killed: the query fails, its JVM lives.

    The logs are as after a driver that died there, and the next run takes seconds.
    """
    world = scene.world
    foreach = world.sink == "foreach"  # which is called in the driver's process
    steps = world.source_steps if foreach else world.steps
    return dies_in_python(scene, steps[scene.number % len(steps)])


def dies_in_python(scene: Scene, step: str, number: int = 1) -> str:
    """Publish, and kill the process that Spark calls at the number-th arrival at that step."""
    world = scene.world
    publish(scene)
    world.wait_until_free()
    DRIVER.kill_plan.write_text(f"{step} {number} python")
    answer = DRIVER.attempt(world.runs.plan({}))
    done = DRIVER.kill_plan.with_name("kill.done")
    assert done.exists() and "failed" in answer, (step, str(answer)[-3000:])
    done.unlink()
    return f"python dies {step}"


def dies(world: CrashWorld, step: str, **plan: object) -> str:
    """A run with a driver that is killed at that step."""
    world.runs.arm(step)
    died = world.runs.run(**plan)
    assert world.runs.killed and died.returncode != 0, (step, died.stderr[-3000:])
    return f"driver dies {step}"


def overtaken(world: CrashWorld, step: str) -> str:
    """A driver stands still at that step; another one does the work; then the first continues."""
    world.runs.arm(step, action="stop")
    first = world.runs.start()
    pids = world.runs.frozen(first)
    try:
        world.finish()
    finally:
        resume(pids)
        ended(first)
    assert world.runs.killed, step
    return f"driver overtaken {step}"


def executor(scene: Scene) -> str:
    """A task's Python process is killed, or the executor's JVM with all its tasks."""
    world = scene.world
    points = ["task_in_read"] if world.source_steps else []
    points += ["after_staging"] if world.sink in TO_QUEUE else []
    whole = scene.number % 2 == 1
    point = scene.rng.choice(points)
    publish(scene)
    world.runs.arm(point, action="executor" if whole else "kill")
    world.runs.finish(master=EXECUTOR_MASTER if whole else TASK_MASTER)
    assert world.runs.killed, point
    return f"{'executor' if whole else 'task'} dies {point}"


def receiver(scene: Scene) -> str:
    """The receiver's process is killed in the midst of a run, a few times."""
    killed: list[int] = []

    def kill(over: threading.Event) -> None:
        for _ in range(RECEIVER_KILLS):
            while not (found := receivers()):
                if over.wait(LOOK_AGAIN_S):
                    return
            over.wait(scene.rng.uniform(0.0, 1.5))
            for pid in found:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            over.wait(LOOK_AGAIN_S)

    publish(scene)
    failed = during(scene, kill)
    assert killed, "no receiver was found"
    return f"{len(killed)} receivers killed{failed}"


def node(scene: Scene) -> str:
    """A node of the broker is killed in the midst of a run and comes back."""

    def kill(over: threading.Event) -> None:
        over.wait(scene.rng.uniform(0.0, 3.0))
        scene.broker.kill_a_node(scene.rng)()

    publish(scene)
    return f"node killed{during(scene, kill)}"


def stall(scene: Scene) -> str:
    """The driver stands still at a step while a queue's leader is killed.

    It continues before that node is back, or after. What it did last may have reached no other
    node, and what it does next goes to connections that ended while it could not see it.
    """
    world, rng = scene.world, scene.rng
    step = world.steps[scene.number % len(world.steps)]
    queue = world.queues()[-1 if rng.random() < 0.5 else 0]
    publish(scene)
    world.wait_until_free()
    world.runs.arm(step, action="stop")
    first = world.runs.start()
    pids = world.runs.frozen(first)
    back_first = rng.random() < 0.5
    try:
        start = scene.broker.kill_the_leader(queue)
        time.sleep(rng.uniform(0.0, STALL_S_MAX))
        if back_first:
            start()
    finally:
        resume(pids)
    if not back_first:
        time.sleep(rng.uniform(0.0, STALL_S_MAX))
        start()
    done = ended(first)
    assert world.runs.killed, step
    failed = ", query failed" if done.returncode else ""
    order = "after" if back_first else "before"
    which = "source" if queue == world.queues()[0] else "target"
    return f"{which}'s leader dies, driver stalls {step} until {order} it is back{failed}"


def connection(scene: Scene) -> str:
    """All connections between the query and the broker are cut, a few times."""
    with relayed(scene) as relays:

        def cut(over: threading.Event) -> None:
            for _ in range(CUTS):
                over.wait(scene.rng.uniform(0.2, 2.0))
                for relay in relays:
                    relay.cut()

        publish(scene)
        failed = during(scene, cut)
        made = sum(relay.made for relay in relays)
        assert made, "the query did not go through the relay"
        scene.world.finish()
    return f"cut {CUTS} times, {made} connections{failed}"


def options(scene: Scene) -> str:
    """The driver dies, and the query's next run has other options."""
    world, rng = scene.world, scene.rng
    done = driver(scene)
    changed = {
        "maxMessagesPerTrigger": str(rng.choice((BATCH // 3, 2 * BATCH))),
    }
    partitions = str(rng.choice((1, 3)))
    if world.of_warren or world.sink != "queue":  # there the message_id depends on them, as is said
        changed["partitions"] = partitions
    if not world.of_warren:
        changed |= {"prefetch": str(rng.choice((50, 5000))), "receivers": rng.choice("12")}
        changed |= {"ackMode": rng.choice(("commit", "spool"))}
    world.runs.where["source"] = {**world.runs.where["source"], **changed}
    words = ", ".join(f"{name}={value}" for name, value in changed.items())
    if world.of_warren and world.sink == "queue" and rng.random() < 0.3:
        world.finish()
        assert world.check() == (0, 0)
        shutil.rmtree(world.runs.directory / "checkpoint")
        publish(scene)
        words += ", checkpoint deleted"
    return f"{done}; {words}"


def checkpoint(scene: Scene) -> str:
    """Files of the checkpoint are lost, old, cut or edited: the next run is exact, or ends by name.

    After a refusal the checkpoint is put back as it was, what the tampered one holds is released
    (docs/explanation/claims.md), and everything must still be there.
    """
    world, rng = scene.world, scene.rng
    what = list(TAMPERINGS)[scene.number % len(TAMPERINGS)]
    there = world.runs.directory / "checkpoint"
    older, kept = there.with_name("older"), there.with_name("kept")
    publish(scene)
    world.finish()
    shutil.copytree(there, older)
    unfinished = rng.random() < 0.5
    if unfinished:
        before = dies_in_python(scene, world.steps[-1], 2)
    else:
        publish(scene)
        world.finish()
        before = "ended well"
    shutil.copytree(there, kept)
    TAMPERINGS[what](there, older)
    publish(scene)
    world.wait_until_free()
    answer = DRIVER.attempt(world.runs.plan({}))
    if "failed" not in answer:
        return f"{before}, {what}: continued"
    text = str(answer["failed"])
    named = NAMED.search(text) or SPARKS_OWN.search(text)
    assert named, text[-4000:]
    shutil.rmtree(there)
    shutil.copytree(kept, there)
    if isinstance(world.runs, RealWorld):
        world.runs.release_others(last_offset(there)["reader"])
    return f"{before}, {what}: {named[0]}"


FAULTS: dict[str, Callable[[Scene], str]] = {
    "driver": driver,
    "python": python,
    "executor": executor,
    "receiver": receiver,
    "node": node,
    "stall": stall,
    "connection": connection,
    "options": options,
    "checkpoint": checkpoint,
}


def during(scene: Scene, fault: Callable[[threading.Event], None]) -> str:
    """Run the query while the fault is carried out; say how the query ended if it failed."""
    over = threading.Event()
    scene.world.wait_until_free()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(fault, over)
        try:
            answer = DRIVER.attempt(scene.world.runs.plan({}))
        finally:
            over.set()
            done.result()
    return ", query failed" if "failed" in answer else ""


def receivers() -> list[int]:
    """Return the receiver processes of the lasting driver."""
    mark = f"WARREN_TEST_KILL={DRIVER.kill_plan}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if b"pyspark_warren.spool.receiver_process" in (entry / "cmdline").read_bytes():
                if mark in (entry / "environ").read_bytes() + b"\0":
                    found.append(int(entry.name))
        except (OSError, ValueError):
            continue  # it has ended, or is no process
    return found


@contextmanager
def relayed(scene: Scene) -> Iterator[list[Relay]]:
    """The query's way to the broker leads through relays."""
    where = scene.world.runs.where
    direct = where["hosts"]
    with ExitStack() as stack:
        relays = [stack.enter_context(Relay(port)) for port in scene.broker.ports()]
        where["hosts"] = ",".join(relay.hosts for relay in relays)
        yield relays
    where["hosts"] = direct
