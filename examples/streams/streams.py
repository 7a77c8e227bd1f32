"""Three streams to copy: many queues into one table, a model between two queues, late messages.

    python examples/streams/streams.py fan-in DIRECTORY
    python examples/streams/streams.py score DIRECTORY
    python examples/streams/streams.py late DIRECTORY

Each reads the cluster in WARREN_URI until its queues are empty, and may be killed at any moment and
started again: DIRECTORY has the checkpoint and the table.

    fan-in  queues with names that begin with `orders-` into Parquet files by queue
    score   `images` through a model in a pandas UDF into `scores`, settled with what is published
    late    counts of `events` by minute of the message's own time, which may come 10 minutes late
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter


def read(spark: SparkSession, uri: str, schema: str, **options: str) -> DataFrame:
    """Return a stream of messages."""
    source = spark.readStream.format("warren").option("uri", uri).options(**options)
    return source.schema(schema).load()


def fan_in(spark: SparkSession, uri: str, directory: Path) -> DataStreamWriter:
    """Write the messages of all queues into one table; a new queue joins by itself."""
    rows = read(spark, uri, "queue string, body string", queuePattern="^orders-")
    return (
        rows.writeStream.format("parquet")
        .option("path", str(directory / "rows"))
        .partitionBy("queue")
    )


def model(bodies: pd.Series) -> pd.Series:
    """Return the scores of a batch of messages: the place of your model, loaded once a worker."""
    return bodies.map(len).astype("float64")


def score(spark: SparkSession, uri: str, directory: Path) -> DataStreamWriter:
    """Publish each message's score; messages are settled in the same decision."""
    both = {"settleWithBatch": "true"}
    rows = read(spark, uri, "message_id string, body binary", queue="images", **both)
    scored = rows.select(
        F.to_json(
            F.struct("message_id", F.pandas_udf(model, "double")("body").alias("score"))
        ).alias("body"),
        F.col("message_id").alias("correlation_id"),
    )
    sink = scored.writeStream.format("warren").option("uri", uri).options(**both)
    return sink.option("routingKey", "scores")


def late(spark: SparkSession, uri: str, directory: Path) -> DataStreamWriter:
    """Write each minute's count when no more of its messages are awaited."""
    rows = read(spark, uri, "timestamp timestamp", queue="events")
    minutes = rows.withWatermark("timestamp", "10 minutes").groupBy(
        F.window("timestamp", "1 minute").alias("minute")
    )
    counts = minutes.count().select(F.col("minute.start").alias("minute"), "count")
    return counts.writeStream.format("parquet").option("path", str(directory / "counts"))


STREAMS = {"fan-in": fan_in, "score": score, "late": late}


def run(name: str, spark: SparkSession, uri: str, directory: Path) -> None:
    """Run one of the streams until its queues are empty."""
    writer = STREAMS[name](spark, uri, directory)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def main(arguments: Sequence[str]) -> int:
    """Run the stream that is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stream", choices=sorted(STREAMS))
    parser.add_argument("directory", type=Path, help="of the table and the checkpoint")
    given = parser.parse_args(arguments)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(given.stream).getOrCreate()
    run(given.stream, spark, os.environ["WARREN_URI"], given.directory.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
