"""A task's memory does not grow with its slice: read and staged in pieces, few of them at once."""

from __future__ import annotations

import os
import subprocess
import sys

from spark_world.runs import PATH

from warren import Admin
from warren.local import LocalCluster

MIB_MAX = 64
SLICE_MIB = 160
READ_AND_STAGE = """
import sys
from pathlib import Path
import pyarrow as pa
import pyarrow.compute
from pyspark_warren.claims.client import connect
from pyspark_warren.claims.reader import read_task
from pyspark_warren.claims.reading import ClaimReading
from pyspark_warren.options.options import parse_options
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.sink.writer import Attempt, write_staged
from warren.stages import SinkDriver

hosts, mib = sys.argv[1], int(sys.argv[2])
reads = parse_options(
    {"hosts": hosts, "queue": "large", "partitions": "1", "maxMessagesPerTrigger": "1000000",
     "maxBytesPerTrigger": "8g"}, "read", "stream")
writes = parse_options({"hosts": hosts, "routingKey": "large"}, "write", "stream")
broker = connect(reads)
many = 2048
ids = pa.array(["m"] * many)
rows = pa.record_batch({"body": pa.array([b"x" * 1024] * many), "message_id": ids})


def most_mib(work):
    Path("/proc/self/clear_refs").write_text("5")
    before = held("VmRSS")
    work()
    return (held("VmHWM") - before) // 1024


def held(name):
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(name))


def write():
    driver = SinkDriver("memory", "run", broker.draw_epoch(30))
    part = write_staged(broker, writes, Attempt(driver, 0, 0, 1), iter([rows] * (mib // 2)))
    broker.publish_batch(driver, 0, part.stages, 60)


def read():
    reading = ClaimReading(reads, pa.schema([("body", pa.binary())]), connect)
    driver = reading.begin()
    start = driver.initial()
    slices = driver.plan(start, driver.latest(start, 1_000_000, True))
    (task,) = reading.tasks(slices)
    assert sum(batch.num_rows for batch in reading.rows(task)) == mib * 1024


print(most_mib(write), most_mib(read))
"""


def test_a_task_holds_a_part_of_its_slice(cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        Admin(connection).queues.declare("large")
        done = subprocess.run(
            [sys.executable, "-c", READ_AND_STAGE, cluster.hosts, str(SLICE_MIB)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(PATH)},
            timeout=300,
        )
        Admin(connection).queues.delete("large")
    assert done.returncode == 0, done.stderr
    written, read = map(int, done.stdout.split())
    assert max(written, read) < MIB_MAX, (written, read, SLICE_MIB)
