"""Events from a RabbitMQ queue into a directory of Parquet files, partitioned by day and kind.

    RABBITMQ_URI=amqp://user@host:5672/vhost RABBITMQ_PASSWORD=… \\
        python examples/lake/lake.py DIRECTORY QUEUE

It reads the queue until it is empty; cron or a scheduler starts it again. A message is acknowledged
when its batch is in the checkpoint, and Spark's file sink lists each batch's files once, so readers
of DIRECTORY/events see each message once, whatever is killed on the way.

The day is that of the publisher's timestamp, or of the run when there is none; the kind is the
routing key. DIRECTORY may be a URI that Spark and pyarrow know, such as s3://lake.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

QUIET = ("spark.ui.showConsoleProgress", "false")
"""Spark draws no bars across the output."""
VARIABLE = "RABBITMQ_PASSWORD"


def start(spark: SparkSession, uri: str, queue: str, directory: str) -> StreamingQuery:
    """Start the query, or continue it from its checkpoint; it ends when the queue is empty."""
    messages = (
        spark.readStream.format("warren")
        .option("broker", "amqp")
        .option("uri", uri)
        .option("passwordEnv", VARIABLE)  # read where it is needed: in no plan and no task
        .option("queue", queue)
        .option("spoolLocation", f"{directory}/spool")
        .load()
    )
    return (
        messages.select(
            F.to_date(F.coalesce("timestamp", F.current_timestamp())).alias("day"),
            F.col("routing_key").alias("kind"),
            F.col("body").cast("string").alias("body"),
            "message_id",
            "timestamp",
        )
        .writeStream.format("parquet")
        .partitionBy("day", "kind")
        .option("path", f"{directory}/events")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def main(arguments: Sequence[str]) -> int:
    """Read the queue until it is empty, and print the number of events per day and kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", help="a path, or a URI that Spark and pyarrow know")
    parser.add_argument("queue")
    given = parser.parse_args(arguments)
    missing = [name for name in ("RABBITMQ_URI", VARIABLE) if name not in os.environ]
    if missing:
        parser.error(f"the environment has no {' and no '.join(missing)}")
    directory, queue = given.directory, given.queue
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("lake").config(*QUIET).getOrCreate()
    start(spark, os.environ["RABBITMQ_URI"], queue, directory).awaitTermination()
    spark.read.parquet(f"{directory}/events").groupBy("day", "kind").count().show()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
