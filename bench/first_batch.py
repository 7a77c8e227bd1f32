"""The time from a query's start to the end of its first micro-batch with rows.

Each side in turn has a process of its own with a Spark session: in its first query the JVM
compiles, and Spark's Python processes import; later ones find both warm. Spark's `rate` source is
in the JVM alone, and has its first row after a second; the source in memory is Python that does
nothing else.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any, Final

from bench.memory_spark import PARTITIONS
from bench.peers import Warren
from bench.report import show
from bench.spark_session import CHEAP, QUEUE, batches_of, ended, fill, session
from pyspark_warren.rows.columns import COLUMNS
from warren.admin import Admin

SIDES: Final = ("connector", "rate", "in memory")
ROWS: Final = 1_000
LATER: Final = 3
BATCHES: Final = 40
"""More than a query reads until it is stopped."""
BODY_BYTES: Final = 100


def first_batches(master: str, rounds: int) -> list[dict[str, Any]]:
    """Measure every side in turn."""
    found: dict[str, list[list[float]]] = {side: [] for side in SIDES}
    with Warren() as warren, warren.connect() as connection:
        Admin(connection).queues.declare(QUEUE)
        fill(connection, BODY_BYTES, rounds * (1 + LATER) * BATCHES * ROWS)
        for _ in range(rounds):
            for side in SIDES:
                command = [sys.executable, "-m", "bench.first_batch", side, warren.targets()]
                done = subprocess.run(
                    [*command, master], stdout=subprocess.PIPE, check=True, text=True
                )
                found[side].append(json.loads(done.stdout.splitlines()[-1]))
    results: list[dict[str, Any]] = [
        {
            "first_batch_of": side,
            "cold_s": statistics.median(cold for cold, *_ in runs),
            "later_s": statistics.median(each for _, *later in runs for each in later),
        }
        for side, runs in found.items()
    ]
    rate = results[SIDES.index("rate")]
    show(
        "from start() to the end of the first batch with rows",
        [
            {
                "source": one["first_batch_of"],
                "first query of a session, s": f"{one['cold_s']:.2f}",
                "of rate": f"{one['cold_s'] / rate['cold_s']:.2f}",
                "a later one, s": f"{one['later_s']:.2f}",
                "of its rate": f"{one['later_s'] / rate['later_s']:.2f}",
            }
            for one in results
        ],
        [f"{rounds} sessions of each, in turn; one query and {LATER} later ones"],
    )
    return results


def _first_batch_s(spark: Any, side: str, hosts: str) -> float:
    reader = spark.readStream.schema(", ".join(f"{name} {COLUMNS[name]}" for name in CHEAP))
    if side == "connector":
        limits = {"partitions": PARTITIONS, "maxMessagesPerTrigger": ROWS}
        reader = reader.format("warren").options(hosts=hosts, queue=QUEUE, **limits)
    elif side == "rate":
        each = {"rowsPerSecond": ROWS, "numPartitions": PARTITIONS}
        reader = spark.readStream.format("rate").options(**each)
    else:
        reader = reader.format("memory_arrow").options(rows=ROWS, batch=ROWS, body_bytes=BODY_BYTES)
    batches, began = batches_of(reader.load().writeStream.format("noop"), bool)
    return ended(batches[0]) - began


def main(side: str, hosts: str, master: str) -> None:
    """Measure one side in a session of its own; print the seconds of each query as JSON."""
    spark = session(master)
    print(json.dumps([_first_batch_s(spark, side, hosts) for _ in range(1 + LATER)]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
