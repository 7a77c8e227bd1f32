"""A streaming query from queue `in` to queue `out`, as a process that a test may kill.

    python -m spark_world.pipeline '{"hosts": "…", "checkpoint": "…", …}'

Prints one line of JSON when the query has ended by itself.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import BinaryType

from pyspark_warren.spark_line import TELLS_START
from spark_world.rabbit import RabbitDyingSource
from spark_world.sources import DyingSource, RealDyingSource, maybe_kill_driver

QUERY_S_MAX = 400
ENDLESS = {"processingTime": "0 seconds"}
IDLE_POLLS = 20
STARTS_MAX = 10
BUSY = "Python worker failed to connect back"
"""Spark's, when a Python process has not started within ten seconds: on a very busy machine."""


def session(master: str) -> SparkSession:
    """Small, quiet, on loopback; the dying source registered."""
    spark = (
        SparkSession.builder.master(master)
        .appName("warren-test")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.executor.extraJavaOptions", os.environ.get("SPARK_SUBMIT_OPTS", ""))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{tempfile.gettempdir()}/warren-spark-warehouse")
        .config("spark.speculation", "true" if master.startswith("spark:") else "false")
        .config("spark.speculation.interval", "200ms")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.minTaskRuntime", "300ms")
        .config("spark.speculation.quantile", "0.4")
        .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for source in (DyingSource, RealDyingSource, RabbitDyingSource):
        spark.dataSource.register(source)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    kill = os.environ.get("WARREN_TEST_KILL")
    if kill:
        Path(kill + ".jvm").write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    return spark


def failing_on(poison: str) -> Any:
    """A function of a body that raises for one of them."""

    def same(body: bytes) -> bytes:
        if bytes(body) == poison.encode():
            raise ValueError(f"poison: {poison}")
        return bytes(body)

    return udf(same, BinaryType())


def start(spark: SparkSession, plan: dict[str, Any]) -> Any:
    """The query that the plan asks for."""
    hosts, name = plan["hosts"], plan.get("format", "warren_dying")
    source, target = plan.get("source_queue", "in"), plan.get("target_queue", "out")
    given = plan.get("source", {})
    several = "queues" in given or "queuePattern" in given
    rows = (
        spark.readStream.format(name)
        .option("hosts", hosts)
        .options(**{**({} if several else {"queue": source}), **given})
        .load()
    )
    rows = rows.selectExpr("body", "priority", "message_id", "position", "redelivered")
    if "files" in plan:
        files = spark.readStream.schema("body binary, priority int")
        rows = files.option("maxFilesPerTrigger", "1").parquet(plan["files"])
    if "poison" in plan:
        rows = rows.withColumn("body", failing_on(plan["poison"])("body"))
    out = {"hosts": hosts, "routingKey": target, **plan.get("sink", {})}
    if "foreach_batch" in plan:
        directory = plan["foreach_batch"]

        def both(frame: DataFrame, batch: int) -> None:
            # Two actions: the source is read twice, and both must see the same rows.
            frame.selectExpr("hex(body) AS body").write.mode("overwrite").parquet(
                f"{directory}/first/{batch}"
            )
            maybe_kill_driver("between_actions")
            frame.selectExpr("hex(body) AS body").write.mode("overwrite").parquet(
                f"{directory}/second/{batch}"
            )
            maybe_kill_driver("after_actions")

        writer = rows.writeStream.foreachBatch(both)
    elif "parquet" in plan:
        table = rows.selectExpr("hex(body) AS body").writeStream.format("parquet")
        writer = table.option("path", plan["parquet"])
    else:
        writer = rows.select("body", "priority").writeStream.format(name).options(**out)
    return (
        writer.option("checkpointLocation", plan["checkpoint"])
        .trigger(**plan.get("trigger", ENDLESS if plan.get("endless") else {"availableNow": True}))
        .start()
    )


def run(spark: SparkSession, plan: dict[str, Any]) -> dict[str, Any]:
    """Run the query until it ends; its batches. It is started again where Spark was too slow."""
    for left in reversed(range(STARTS_MAX)):
        try:
            return _run_once(spark, plan)
        except StreamingQueryException as failure:
            if BUSY not in str(failure) or not left:
                raise
    raise AssertionError("unreachable")


def _run_once(spark: SparkSession, plan: dict[str, Any]) -> dict[str, Any]:
    progress: list[Any] = []
    more = True
    while more:
        query = start(spark, plan)
        if "until" in plan:
            wait_until_read(spark, query, plan["until"])
            query.stop()
        elif plan.get("endless"):
            wait_until_idle(query)
            query.stop()
        else:
            within_s = plan.get("within_s", QUERY_S_MAX)
            assert query.awaitTermination(within_s), f"not ended: {query.status}"
        found = [json.loads(each.json) for each in query.recentProgress]
        progress += found
        # Spark 4.0 and 4.1 make one batch of availableNow.
        ends = TELLS_START or plan.get("endless") or plan.keys() & {"until", "trigger"}
        more = not ends and any(each["numInputRows"] for each in found)
    return {
        "batches": [
            {"rows": each["numInputRows"], "backlog": each["sources"][0]["latestOffset"]}
            for each in progress
        ]
    }


def serve(spark: SparkSession) -> None:
    """Run the plan of each input line, one after the other; print what came of it."""
    for line in sys.stdin:
        print(json.dumps(attempt(spark, json.loads(line))), flush=True)


def attempt(spark: SparkSession, plan: dict[str, Any]) -> dict[str, Any]:
    """Run a query; its batches, or under `failed` why it failed."""
    try:
        return run(spark, plan)
    except Exception:
        for query in spark.streams.active:
            query.stop()
        return {"failed": traceback.format_exc()}


def main() -> None:
    """Run the query of the plan in the argument; without one, those of the input."""
    plan = json.loads(sys.argv[1]) if sys.argv[1:] else {}
    spark = session(plan.get("master", "local[2]"))
    try:
        if plan:
            print(json.dumps(run(spark, plan)))
        else:
            serve(spark)
    finally:
        spark.stop()


def wait_until_read(spark: SparkSession, query: Any, count: int) -> None:
    """Until so many rows were processed and the source was polled once more, or it failed."""
    import time

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        seen = sum(each.numInputRows for each in query.recentProgress)
        if seen >= count and not query.status["isDataAvailable"]:
            return
        time.sleep(0.05)
    raise TimeoutError(f"{count} rows not read in time: {query.lastProgress}")


def wait_until_idle(query: Any) -> None:
    """Until the source has had nothing for about two seconds, or the query failed.

    The first look takes a receiver of a spool longer than that: there is progress when it is over,
    also without a row.
    """
    import time

    polls, deadline = 0, time.monotonic() + QUERY_S_MAX
    while polls < IDLE_POLLS:
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        assert time.monotonic() < deadline, f"not idle: {query.status}"
        status = query.status
        asks = status["message"].startswith(("Waiting for data", "Getting offsets"))
        idle = asks and not status["isDataAvailable"] and query.lastProgress is not None
        polls = polls + 1 if idle else 0
        time.sleep(0.1)


if __name__ == "__main__":
    main()
