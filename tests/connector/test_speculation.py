"""Two attempts at one partition at the same time, as Spark makes them: one is published."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from spark_world.runs import World

from bench.ports import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

START_S = 300
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@contextmanager
def spark_process(world: World, name: str, *arguments: str) -> Iterator[Path]:
    """A master or worker; gives its log."""
    log = world.directory / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(SPARK_CLASS), *arguments],
            stdout=out,
            stderr=out,
            cwd=world.directory,
            env={**world.environment(), "SPARK_NO_DAEMONIZE": "1"},
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(START_S)


@contextmanager
def cluster(world: World) -> Iterator[str]:
    """A master and two workers on hosts of their own: Spark speculates on another host only."""
    port = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        master = stack.enter_context(
            spark_process(
                world,
                "master",
                f"{deploy}.master.Master",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--webui-port",
                "0",
            )
        )
        wait_for(master, "New state: ALIVE")
        for host in ("127.0.0.2", "127.0.0.3"):
            worker = stack.enter_context(
                spark_process(
                    world,
                    host,
                    f"{deploy}.worker.Worker",
                    "--host",
                    host,
                    "--webui-port",
                    "0",
                    "--cores",
                    "1",
                    "--memory",
                    "1g",
                    "--work-dir",
                    str(world.directory / host),
                    url,
                )
            )
            wait_for(worker, "Successfully registered")
        yield url


def wait_for(log: Path, words: str) -> None:
    """Until the log says so."""
    deadline = time.monotonic() + START_S
    while words not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)


def test_a_speculative_second_attempt_publishes_nothing_twice(world: World) -> None:
    bodies = world.publish(4000)
    world.arm("dawdle")
    with cluster(world) as master:
        world.finish(source={"partitions": "4"}, master=master)
    assert world.killed
    stages = {call[1:] for call in world.server.broker.calls_of("stage")}
    partitions = [partition for _, _, partition, _ in stages]
    assert len(partitions) > len(set(partitions)), "no second attempt was made"
    world.check_exact(bodies)
