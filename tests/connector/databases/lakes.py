"""The lakehouse job of examples/ into real tables, killed around a batch: each order once.

    python3 build.py databases delta iceberg changes upsert

Jars come from Maven Central and PySpark from PyPI, of the line that the format supports. For each
output: orders in a queue, the job ended before a batch is written and after it was committed, and
once more to the end, with new orders before each start.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from sparks import venvs

from databases.examples import environment_of
from databases.servers import postgresql
from tools.environment import LOGS, ROOT
from warren import Admin, Producer
from warren.local import LocalCluster

JOB: Final = ROOT / "examples" / "lakehouse" / "lakehouse.py"
KILLED: Final = 9
"""The exit status of a process that was ended here."""
ORDERS: Final = 300
"""Orders published before each start."""
RUN_S_MAX: Final = 900
OUTPUTS: Final = {
    "delta": ("delta", "4.2.1"),
    "changes": ("changes", "4.2.1"),
    "iceberg": ("iceberg", "4.1.4"),
    "upsert": ("postgresql", "4.2.1"),
}
"""By its name here: the job's output, and the PySpark that it runs on."""
WHERE: Final = ("before", "after", "never")
"""What the runs of a job end with; on Spark below 4.2, where a run is one batch, more follow."""
KILLER: Final = """
import importlib.util, json, os, sys
path, where, rows_file, *rest = sys.argv[1:]
spec = importlib.util.spec_from_file_location("lakehouse", path)
job = importlib.util.module_from_spec(spec)
spec.loader.exec_module(job)
output_of, rows_in = job.output_of, job.rows_in

def killed(*given):
    one_batch, select = output_of(*given)
    def one(rows, number):
        some = not rows.isEmpty()
        if some and where == "before":
            os._exit(9)
        one_batch(rows, number)
        if some and where == "after":
            os._exit(9)
    return one, select

def kept(*given):
    rows = rows_in(*given)
    with open(rows_file, "w") as file:
        json.dump(rows, file)
    return rows

job.output_of, job.rows_in = killed, kept
sys.exit(job.main(rest))
"""
"""Runs the job: its path, where it ends, the file for the table's rows, its arguments."""


def expected(output: str, count: int) -> list[list[Any]]:
    """Return the rows that a table has of orders 0 to `count`, in the order of the orders."""
    found = [[f"m{i}", i, f"c{i % 7}", i * 10] for i in range(count)]
    return found[-7:] if output == "changes" else found


def turns_of(version: str) -> tuple[str, ...]:
    """Return how the runs end.

    On Spark below 4.2 one that finds a batch begun reads that alone, and what the last one has read
    is settled by the next one.
    """
    return WHERE if version >= "4.2" else (*WHERE, "never", "never")


@contextmanager
def database(output: str) -> Iterator[dict[str, str]]:
    """Yield the environment that names a new database, if the output needs one."""
    if output != "postgresql":
        yield {}
        return
    with postgresql() as address:
        yield {"ORDERS_DATABASE": address}


def publish(cluster: LocalCluster, first: int) -> None:
    """Publish ORDERS orders from that number on."""
    with cluster.connect() as connection:
        Admin(connection).queues.declare("orders")
        with Producer(connection) as producer:
            for number in range(first, first + ORDERS):
                order = {"order": number, "customer": f"c{number % 7}", "cents": number * 10}
                producer.send(json.dumps(order), "orders", message_id=f"m{number}")


def one_lake(name: str, cluster: LocalCluster, directory: Path) -> str:
    """Run the job with its kills; return what it proved. Raises AssertionError."""
    output, version = OUTPUTS[name]
    python, rows_file = str(venvs.beside(version, "psycopg[binary]==3.3.9")), directory / "rows"
    done = []
    with database(output) as more:
        env = {**environment_of(python), **more, "WARREN_URI": cluster.uri}
        for turn, where in enumerate(turns_of(version)):
            if turn < len(WHERE):
                publish(cluster, turn * ORDERS)
            command = [python, "-c", KILLER, str(JOB), where, str(rows_file), output]
            log = LOGS / f"databases-{name}-{where}.log"
            with log.open("wb") as said:
                code = subprocess.run(
                    [*command, str(directory / "table")],
                    env=env,
                    cwd=directory,
                    timeout=RUN_S_MAX,
                    stdout=said,
                    stderr=said,
                ).returncode
            assert code == (0 if where == "never" else KILLED), f"{name}: exit {code}, see {log}"
            done.append(f"ended {where} a batch" if code else "to the end")
    found = [tuple(row) for row in json.loads(rows_file.read_text())]
    wanted = [tuple(row) for row in expected(output, len(WHERE) * ORDERS)]
    lost, doubled = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    assert not lost and not doubled, f"{name}: lost {lost.total()}, doubled {doubled.total()}"
    with cluster.connect() as connection:
        left = Admin(connection).queues.get("orders").messages
        Admin(connection).queues.delete("orders")
    assert left == 0, f"{name}: {left} messages are in the queue"
    return f"{name}, PySpark {version}: {len(found)} rows, {', '.join(done)}: lost 0, doubled 0"


LAKES: dict[str, Callable[[LocalCluster, Path], str]] = {
    name: partial(one_lake, name) for name in OUTPUTS
}
