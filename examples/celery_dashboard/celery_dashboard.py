"""A dashboard of what Celery's tasks did: one page, rewritten after each micro-batch.

    python examples/celery_dashboard/celery_dashboard.py DIRECTORY

It reads queue `task-results` of the cluster in WARREN_URI until it is empty and writes
DIRECTORY/dashboard.html; shop_tasks.py beside it has the Celery application. Run it again, as often
as the page is to be new, or replace `availableNow` by an interval. Without WARREN_URI it starts a
broker and a Celery worker, sends 300 tasks, and reads until all their results are in the page.

Counts and times are kept in the state of the query, in its checkpoint: each result counts once,
whatever is killed and started again. A batch that runs again writes the same page again.
"""

from __future__ import annotations

import argparse
import html
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import shop_tasks
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from warren import Admin, Connection
from warren.local import LocalCluster

QUIET = ("spark.ui.showConsoleProgress", "false")
"""Spark draws no bars across the output."""
RESULT = "task string, state string, seconds double, finished double"
TASKS = 300
PAUSE_S = 0.5
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<title>Tasks</title><style>
body {{ font-family: sans-serif; margin: 2em }} td, th {{ padding: .3em 1em; text-align: right }}
td:first-child, th:first-child {{ text-align: left }} .bar {{ display: flex; width: 20em }}
.good {{ background: #4a9; height: 1em }} .bad {{ background: #d54; height: 1em }}
</style></head><body><h1>Tasks</h1><p id="total">{total} results</p>
<table><tr><th>task</th><th>succeeded</th><th>failed</th><th></th><th>mean, ms</th>
<th>longest, ms</th><th>last</th></tr>
{rows}
</table></body></html>
"""
LINE = (
    "<tr><td>{task}</td><td>{good}</td><td>{bad}</td><td><div class='bar'>"
    "<div class='good' style='flex: {good}'></div><div class='bad' style='flex: {bad}'></div>"
    "</div></td><td>{mean:.1f}</td><td>{longest:.1f}</td><td>{last}</td></tr>"
)


def totals(messages: DataFrame) -> DataFrame:
    """Return one row for each task: how often it succeeded and failed, and how long it took."""
    result = F.from_json(F.col("body").cast("string"), RESULT).alias("r")
    return (
        messages.select(result)
        .select("r.*")
        .groupBy("task")
        .agg(
            F.count_if(F.col("state") == "SUCCESS").alias("good"),
            F.count_if(F.col("state") == "FAILURE").alias("bad"),
            (F.avg("seconds") * 1000).alias("mean"),
            (F.max("seconds") * 1000).alias("longest"),
            F.timestamp_seconds(F.max("finished")).alias("last"),
        )
    )


def write_page(rows: Sequence[Row], page: Path) -> None:
    """Replace the page; a browser gets the old one or the new one, never a part."""
    lines = []
    for row in sorted(rows, key=lambda row: str(row.task)):
        named = row.asDict() | {"task": html.escape(str(row.task))}
        lines.append(LINE.format(**named))
    total = sum(row.good + row.bad for row in rows)
    new = page.with_suffix(".new")
    new.write_text(PAGE.format(total=total, rows="\n".join(lines)), encoding="utf-8")
    os.replace(new, page)


def start(spark: SparkSession, uri: str, directory: Path) -> StreamingQuery:
    """Start the query, or continue it from its checkpoint; it ends when the queue is empty."""

    def one_batch(rows: DataFrame, batch: int) -> None:
        write_page(rows.collect(), directory / "dashboard.html")

    messages = (
        spark.readStream.format("warren")
        .option("uri", uri)
        .option("queue", shop_tasks.RESULTS)
        .schema("body binary")
        .load()
    )
    return (
        totals(messages)
        .writeStream.outputMode("complete")
        .foreachBatch(one_batch)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def declare(uri: str) -> None:
    """Declare the queue of the results, in which a task's id is taken once."""
    with Connection(uri) as connection:
        Admin(connection).queues.declare(shop_tasks.RESULTS, arguments={"x-deduplication": True})


def send_tasks(broker_url: str, count: int) -> None:
    """Send tasks of two kinds in turn, for orders from 0 on."""
    shop_tasks.app.conf.broker_url = broker_url
    for number in range(count):
        task = shop_tasks.ship if number % 2 else shop_tasks.charge
        task.apply_async((number // 2,))


@contextmanager
def worker(broker_url: str, directory: Path) -> Iterator[None]:
    """Run a Celery worker; its log is in the directory."""
    command = [sys.executable, "-m", "celery", "-A", "shop_tasks", "worker", "-P", "solo"]
    with (directory / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--loglevel", "warning"],
            cwd=Path(__file__).resolve().parent,
            env={**os.environ, "CELERY_BROKER_URL": broker_url},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def results(uri: str) -> int:
    """Return how many results are in the queue."""
    with Connection(uri) as connection:
        return Admin(connection).queues.get(shop_tasks.RESULTS).messages_ready


def main(arguments: Sequence[str]) -> int:
    """Read the results that there are into the page, or run the demonstration."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="of the page and the checkpoint")
    directory = parser.parse_args(arguments).directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("celery-dashboard").config(*QUIET)
    # The state has few rows; Spark's default is 200 partitions.
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    if "WARREN_URI" in os.environ:
        declare(os.environ["WARREN_URI"])
        start(spark, os.environ["WARREN_URI"], directory).awaitTermination()
    else:
        with LocalCluster(nodes=1) as cluster:
            declare(cluster.uri)
            broker_url = f"amqp://guest:guest@{cluster.hosts}//"
            send_tasks(broker_url, TASKS)
            with worker(broker_url, directory):
                while results(cluster.uri) < TASKS:
                    time.sleep(PAUSE_S)
            start(spark, cluster.uri, directory).awaitTermination()
    print("written:", directory / "dashboard.html")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
