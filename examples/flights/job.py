"""The Spark job: queue `flights` to Parquet, delayed flights to queue `alerts`.

    FLIGHTS_URI=amqp://user:password@host:port/%2F python job.py DIRECTORY

(The address may also be the first argument, but other users of the machine can see arguments.)
It runs until DIRECTORY/stop exists. It may be killed at any moment and restarted: it continues from
its checkpoint, and nothing is lost or done twice.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

SINK = "flights-to-alerts"
"""The name under which the broker records the batches in `alerts`."""
FLIGHT = (
    "number int, carrier string, year int, month int, day int, dep_time int, dep_delay int, "
    "flight int, origin string, dest string"
)


def session() -> SparkSession:
    """Start Spark with two cores, no web UI, little logging, and a JVM tuned for short runs."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.adaptive.enabled", "false")  # batches are small: plan once
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def per_carrier_and_day(flights: DataFrame) -> DataFrame:
    """Compute the totals of one micro-batch; `proof.py` adds the batches up."""
    return flights.groupBy(
        "carrier", F.format_string("%04d-%02d-%02d", "year", "month", "day").alias("date")
    ).agg(
        F.count("*").alias("flights"),
        F.count("dep_time").alias("departed"),
        F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delay_minutes"),
        F.count_if(F.col("dep_delay") > 60).alias("delayed"),
    )


def alerts(flights: DataFrame) -> DataFrame:
    """Return a message per flight delayed by more than an hour; longer delays rank higher."""
    urgency = F.least(F.lit(31), F.lit(1) + F.floor((F.col("dep_delay") - 61) / 20))
    return flights.where("dep_delay > 60").select(
        F.to_json(F.struct("number", "carrier", "flight", "origin", "dest", "dep_delay")).alias(
            "body"
        ),
        urgency.cast("int").alias("priority"),
        F.col("number").cast("string").alias("message_id"),
        F.lit("application/json").alias("content_type"),
    )


def start(spark: SparkSession, uri: str, directory: Path) -> StreamingQuery:
    """Start the query, or continue it from its checkpoint."""

    def one_batch(messages: DataFrame, batch: int) -> None:
        flights = messages.select(F.from_json(F.col("body").cast("string"), FLIGHT).alias("f"))
        flights = flights.select("f.*").persist()
        try:
            # Both outputs may be repeated: the directory of a batch is overwritten, and the broker
            # publishes a batch of a sink once.
            (
                per_carrier_and_day(flights)
                .write.mode("overwrite")
                .parquet(str(directory / "delays" / f"batch={batch}"))
            )
            (
                alerts(flights)
                .write.format("warren")
                .mode("append")
                .option("uri", uri)
                .option("routingKey", "alerts")
                .option("sinkId", SINK)
                .option("batchId", str(batch))
                .save()
            )
        finally:
            flights.unpersist()

    checkpoint = directory / "checkpoint"
    return (
        spark.readStream.format("warren")
        .option("uri", uri)
        .option("queue", "flights")
        .option("maxMessagesPerTrigger", os.environ.get("FLIGHTS_PER_BATCH", "20000"))
        .schema("body binary")
        .load()
        .writeStream.foreachBatch(one_batch)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )


def main() -> int:
    """Run until told to stop, or until the query fails."""
    if len(sys.argv) < 2 or not (os.environ.get("FLIGHTS_URI") or sys.argv[2:]):
        sys.exit(f"usage: {sys.argv[0]} URI DIRECTORY (the URI may be in FLIGHTS_URI)")
    uri, directory = os.environ.get("FLIGHTS_URI") or sys.argv[1], Path(sys.argv[-1])
    spark = session()
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    (directory / "job.jvm").write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    query = start(spark, uri, directory)
    try:
        while query.isActive and not (directory / "stop").exists():
            time.sleep(0.1)
        failure = query.exception()
        if failure is not None:
            print(failure, file=sys.stderr)
            return 1
        query.stop()
        return 0
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
