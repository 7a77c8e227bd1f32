"""The memory that a task needs for a slice, by its size: of the connector, and of Arrow in memory.

Each query has one task and a Spark session of its own, so that the most memory that its Python
worker had resident is that of this task.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from bench.memory_spark import BLOCK_ROWS
from bench.peers import Warren
from bench.report import show
from bench.spark_cpu import SAMPLE_S, descendants
from bench.spark_session import CHEAP, QUEUE, batches_of, fill, session
from pyspark_warren.rows.columns import COLUMNS
from warren.admin import Admin

SIDES: Final = ("in memory", "source", "sink")
BODY_BYTES: Final = 1024
SLICE_ROWS: Final = (1 << 16, 1 << 20)
"""Slices of 64 MiB and of 1 GiB of bodies."""
KIB_PER_MIB: Final = 1024


def task_memory(master: str) -> list[dict[str, Any]]:
    """Measure every side with every slice."""
    results: list[dict[str, Any]] = []
    with Warren() as warren, warren.connect() as connection:
        for rows in SLICE_ROWS:
            for side in SIDES:
                Admin(connection).queues.declare(QUEUE)
                if side == "source":
                    fill(connection, BODY_BYTES, rows)
                command = [sys.executable, "-m", "bench.task_memory", side, warren.targets()]
                command += [master, str(rows)]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
                peak_kib = json.loads(done.stdout.splitlines()[-1])
                results.append(
                    {"memory_of": side, "rows": rows, "peak_mib": peak_kib / KIB_PER_MIB}
                )
                Admin(connection).queues.delete(QUEUE)
    own = {each["rows"]: each["peak_mib"] for each in results if each["memory_of"] == SIDES[0]}
    show(
        "the most memory of a task's Python worker, MiB",
        [
            {
                "task": one["memory_of"],
                "slice, MiB of bodies": f"{one['rows'] * BODY_BYTES >> 20}",
                "resident": f"{one['peak_mib']:.0f}",
                "more than in memory": f"{one['peak_mib'] - own[one['rows']]:.0f}",
            }
            for one in results
        ],
        [],
    )
    return results


class WorkerMemory:
    """The most memory that a Python worker below this process has had resident, in KiB."""

    def __init__(self) -> None:
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Return it."""
        self._over.set()
        self._thread.join()
        return self.most

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            for pid, kind in descendants(os.getpid()).items():
                if kind == "workers":
                    self.most = max(self.most, _peak_kib(pid))


def _peak_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line), 0)


def main(side: str, hosts: str, master: str, rows: str) -> None:
    """Run a query of one task; print the most memory of its worker."""
    reader = session(master).readStream
    reader = reader.schema(", ".join(f"{name} {COLUMNS[name]}" for name in CHEAP))
    given = {"hosts": hosts, "partitions": 1}
    if side == "source":
        limits = {"maxMessagesPerTrigger": rows, "maxBytesPerTrigger": "8g"}
        reader = reader.format("warren").options(queue=QUEUE, **limits, **given)
    else:
        sizes = {"rows": rows, "batch": rows, "body_bytes": BODY_BYTES}
        reader = reader.format("memory_arrow").options(**sizes, **given)
    writer = reader.load().writeStream.format(
        {"sink": "warren", "source": "noop"}.get(side, "memory_arrow")
    )
    if side == "sink":
        writer = writer.options(hosts=hosts, routingKey=QUEUE)
    memory = WorkerMemory()
    batches = batches_of(writer, bool)
    assert batches[0][0].numInputRows > int(rows) - BLOCK_ROWS, batches
    print(json.dumps(memory.stop()))


if __name__ == "__main__":
    main(*sys.argv[1:])
