"""Payments from a queue, joined with customers, into another queue; bad ones into a third.

    python examples/enrichment/enrichment.py DIRECTORY

It reads queue `payments` of the cluster in WARREN_URI until it is empty. Payments of a known
customer go to `payments-enriched` with the customer's name and country. Those that are no payment,
or of an unknown customer, go to `payments-dead` as they came, with the reason in the header
`x-reason`.

One sink publishes both: each row says in its column `routing_key` where it goes, and a micro-batch
appears in both queues whole and once. Without WARREN_URI the example starts a broker and publishes
payments to read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from warren import Admin, Connection, Producer
from warren.local import LocalCluster

SOURCE, ENRICHED, DEAD = "payments", "payments-enriched", "payments-dead"
PAYMENT = "payment bigint, customer string, cents bigint"
CUSTOMERS = [("c1", "Ada", "GB"), ("c2", "Blaise", "FR"), ("c3", "Carl", "DE")]


QUIET = ("spark.ui.showConsoleProgress", "false")
"""Spark draws no bars across the output."""


def customers(spark: SparkSession) -> DataFrame:
    """Return the table to join with; here a constant one, else Parquet, JDBC or Delta."""
    return spark.createDataFrame(CUSTOMERS, "customer string, name string, country string")


def enriched(messages: DataFrame, known: DataFrame) -> DataFrame:
    """Return the rows to publish: body, routing key, headers and a message id of each."""
    body = F.col("body").cast("string")
    parsed = messages.withColumn("p", F.from_json(body, PAYMENT))
    joined = parsed.join(F.broadcast(known), F.col("p.customer") == known.customer, "left")
    reason = (
        F.when(F.col("p.payment").isNull() | F.col("p.cents").isNull(), "not a payment")
        .when(F.col("name").isNull(), "unknown customer")
        .otherwise(None)
    )
    good = F.to_json(F.struct("p.payment", "p.cents", "name", "country"))
    return joined.withColumn("reason", reason).select(
        F.when(F.col("reason").isNull(), good.cast("binary"))
        .otherwise(F.col("body"))
        .alias("body"),
        F.when(F.col("reason").isNull(), ENRICHED).otherwise(DEAD).alias("routing_key"),
        F.when(F.col("reason").isNotNull(), F.create_map(F.lit("x-reason"), "reason")).alias(
            "headers"
        ),
        "message_id",
    )


def start(spark: SparkSession, uri: str, directory: Path) -> StreamingQuery:
    """Start the query, or continue it from its checkpoint; it ends when the queue is empty."""
    messages = (
        spark.readStream.format("warren")
        .option("uri", uri)
        .option("queue", SOURCE)
        .schema("body binary, message_id string")
        .load()
    )
    return (
        enriched(messages, customers(spark))
        .writeStream.format("warren")
        .option("uri", uri)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def declare(uri: str) -> None:
    """Declare the three queues."""
    with Connection(uri) as connection:
        for name in (SOURCE, ENRICHED, DEAD):
            Admin(connection).queues.declare(name)


def publish(uri: str, count: int) -> None:
    """Publish payments: every tenth is none, and every fourth is of an unknown customer."""
    with Connection(uri) as connection, Producer(connection) as producer:
        for number in range(count):
            payment = {"payment": number, "customer": f"c{number % 4}", "cents": number}
            text = json.dumps(payment) if number % 10 else "no payment"
            producer.send(text, SOURCE, message_id=f"payment-{number}")


@contextmanager
def broker() -> Iterator[str]:
    """Yield the address of the cluster in WARREN_URI, or of a new one with 1,000 payments."""
    if "WARREN_URI" in os.environ:
        declare(os.environ["WARREN_URI"])
        yield os.environ["WARREN_URI"]
        return
    with LocalCluster(nodes=1) as cluster:
        declare(cluster.uri)
        publish(cluster.uri, 1_000)
        yield cluster.uri


def main(arguments: Sequence[str]) -> int:
    """Read the queue until it is empty, and print how much is in the other two."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="of the checkpoint")
    directory = parser.parse_args(arguments).directory
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("enrichment").config(*QUIET).getOrCreate()
    with broker() as uri:
        start(spark, uri, directory).awaitTermination()
        with Connection(uri) as connection:
            for name in (SOURCE, ENRICHED, DEAD):
                print(f"{name}:", Admin(connection).queues.get(name).messages_ready)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
