"""A query from queue to queue, by PySpark alone: it is run where no file of Warren is.

    python job.py '{"hosts": "…", "source": "in", "target": "out", "checkpoint": "…"}'

`SPARK_REMOTE` or `MASTER` says where Spark is, else `spark-submit` does. Prints one line of JSON
when the source is empty: Spark's version and the number of rows that a batch read of the target
finds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

QUERY_S_MAX = 300
IDLE_POLLS = 15


def session() -> SparkSession:
    """Connect to the server that SPARK_REMOTE names, or start a driver for MASTER."""
    builder = SparkSession.builder.appName("warren-everywhere")
    if "MASTER" in os.environ:
        builder = (
            builder.master(os.environ["MASTER"])
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "512m")
            .config("spark.ui.enabled", "false")
        )
    return builder.getOrCreate()


def copy(spark: SparkSession, plan: dict[str, Any]) -> None:
    """Read the source until it is empty, write each batch to the target."""
    rows = (
        spark.readStream.format("warren")
        .options(hosts=plan["hosts"], **plan["options"])
        .option("queue", plan["source"])
        .option("maxMessagesPerTrigger", plan["batch"])
        .option("partitions", 2)
        .load()
    )
    # Spark 4.0 and 4.1 make one micro-batch of availableNow.
    at_once = spark.version >= "4.2"
    query = (
        rows.select("body", "priority")
        .writeStream.format("warren")
        .options(hosts=plan["hosts"], **plan["options"])
        .option("routingKey", plan["target"])
        .option("checkpointLocation", plan["checkpoint"])
        .trigger(**({"availableNow": True} if at_once else {"processingTime": "0 seconds"}))
        .start()
    )
    if at_once:
        assert query.awaitTermination(QUERY_S_MAX), f"not ended: {query.status}"
    else:
        wait_until_idle(query)
        query.stop()


def wait_until_idle(query: Any) -> None:
    """Wait until the source has had nothing for some seconds; raises what the query failed with."""
    polls, deadline = 0, time.monotonic() + QUERY_S_MAX
    while polls < IDLE_POLLS:
        if query.awaitTermination(0.2):  # which raises
            return
        assert time.monotonic() < deadline, f"not idle: {query.status}"
        status = query.status
        asks = status["message"].startswith(("Waiting for data", "Getting offsets"))
        polls = polls + 1 if asks and not status["isDataAvailable"] else 0


def main() -> None:
    """Run the query and count its target."""
    plan = json.loads(sys.argv[1])
    spark = session()
    copy(spark, plan)
    target = spark.read.format("warren").options(hosts=plan["hosts"], **plan["options"])
    found = target.option("queue", plan["target"]).load().count()
    print(json.dumps({"spark": spark.version, "rows": found}))
    spark.stop()


if __name__ == "__main__":
    main()
