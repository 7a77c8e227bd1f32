"""A loop of batches as a process that dies or stands still at a step: `batch_crashes` runs it.

    python -m spark_world.batch_job '{"hosts": "…", "queue": "…", …}'

It is run by any Spark from 3.4 on, so it imports nothing of data sources. Each batch is written to
a folder of its number and published into a queue. Prints the number of batches when it has ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_warren.batches import BatchLoop, write_batch
from pyspark_warren.batches.checkpoint import Checkpoint
from pyspark_warren.batches.log import COMMIT_LOG
from pyspark_warren.batches.run import BatchRun

STEPS = ("after_latest", "after_offset_log", "in_function", "after_publish", "before_commit_log")
"""Where the driver may die; the place before settling is the last one."""
STEPS += ("after_commit_log",)


def session(master: str) -> SparkSession:
    """Small, quiet, on loopback."""
    spark = (
        SparkSession.builder.master(master)
        .appName("warren-batches")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Job:
    """The loop of a plan.

    dies  the step at which the process ends, or with `stop` stands still; "": none
    """

    def __init__(self, spark: SparkSession, plan: dict[str, Any]) -> None:
        self.spark, self.plan = spark, plan
        self.dies = plan.get("dies", "")
        self.rows = 0

    def arrive(self, step: str) -> None:
        """kill -9 the JVM and this process, or freeze both, when a batch with rows is here."""
        if self.dies != step:
            return
        self.dies = ""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        pid = jvm.java.lang.ProcessHandle.current().pid()
        how = signal.SIGSTOP if self.plan.get("stop") else signal.SIGKILL
        Path(self.plan["done"]).write_text(f"{pid} {os.getpid()}")
        os.kill(pid, how)
        os.kill(os.getpid(), how)

    def hook(self) -> None:
        """Put the steps outside of the function into the loop."""
        latest, create = BatchRun._latest, Checkpoint._create

        def latest_and_arrive(run: BatchRun) -> Any:
            end = latest(run)
            if self.rows and end is not None:
                self.arrive("after_latest")
            return end

        def create_and_arrive(checkpoint: Checkpoint, folder: str, *file: Any) -> bool:
            if self.rows and folder == COMMIT_LOG:
                self.arrive("before_commit_log")
            made = create(checkpoint, folder, *file)
            if self.rows:
                self.arrive("after_commit_log" if folder == COMMIT_LOG else "after_offset_log")
            return made

        BatchRun._latest = latest_and_arrive  # type: ignore[method-assign]
        Checkpoint._create = create_and_arrive  # type: ignore[method-assign]

    def batch(self, frame: DataFrame, number: int) -> None:
        """Write the rows twice, and see the same ones both times."""
        self.rows += 1
        rows = frame.selectExpr("hex(body) AS body", "priority")
        if self.dies == "task":
            self.dies = ""
            rows = rows.mapInArrow(dying(self.plan["done"]), "body string, priority int")
        rows.write.mode("overwrite").parquet(f"{self.plan['out']}/{number}")
        self.arrive("in_function")
        given = {"hosts": self.plan["hosts"], "routingKey": self.plan["target"]}
        write_batch(frame.select("body", "priority"), number, **given)
        self.arrive("after_publish")

    def run(self) -> int:
        """Run the loop to its end."""
        self.hook()
        source = {"hosts": self.plan["hosts"], "queue": self.plan["queue"], **self.plan["source"]}
        endless = bool(self.plan.get("endless"))
        return BatchLoop(
            self.spark,
            source,
            self.batch,
            self.plan["checkpoint"],
            available_now=not endless,
            interval_s=0.1 if endless else 0.0,
        ).run()


def dying(done: str) -> Any:
    """A task that is killed once, when it has rows."""

    def watched(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if batch.num_rows:
                try:
                    os.close(os.open(done, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)

    return watched


def main() -> None:
    """Run the plan in the argument."""
    plan = json.loads(sys.argv[1])
    spark = session(plan.get("master", "local[2,3]"))
    print(json.dumps({"spark": spark.version, "batches": Job(spark, plan).run()}))
    spark.stop()


if __name__ == "__main__":
    main()
