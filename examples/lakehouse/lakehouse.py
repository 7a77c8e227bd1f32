"""Orders from a queue into a table, each exactly once: Delta Lake, Iceberg, PostgreSQL.

    python examples/lakehouse/lakehouse.py OUTPUT DIRECTORY

It reads queue `orders` of the cluster in WARREN_URI until it is empty, and may be killed at any
moment and started again. Without WARREN_URI it starts a broker and publishes orders to read.
OUTPUT is one of these:

    delta       a Delta table, appended: Delta's log knows the query's batches
    changes     a Delta table of customers with their newest order, by MERGE: change data capture
    iceberg     an Iceberg table, by MERGE: a message's id is in it once
    postgresql  a table of the database in ORDERS_DATABASE, by INSERT: a message's id is in it once

Jars of Delta and Iceberg come from Maven Central, for the PySpark that runs this.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_warren.foreach_batch import OneBatch, append_to_delta, insert, merge
from warren import Admin, Connection, Producer
from warren.local import LocalCluster

ORDER = "order bigint, customer string, cents bigint"
SCHEMA = "message_id string, order bigint, customer string, cents bigint"
DELTA = {
    "4.0": "io.delta:delta-spark_2.13:4.0.1",
    "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
    "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
}
ICEBERG = {
    "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
"""The jars by Spark's line: those that had been published in November 2026."""
DELTA_CONFIG = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
ICEBERG_CONFIG = {
    "spark.sql.extensions": ("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"),
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
}


def connect() -> Any:
    """Open the database in ORDERS_DATABASE; a task does it, too."""
    return importlib.import_module("psycopg").connect(os.environ["ORDERS_DATABASE"])


def session(output: str, directory: Path) -> SparkSession:
    """Start Spark with what the output needs."""
    line = ".".join(pyspark.__version__.split(".")[:2])
    jars, config = {"iceberg": (ICEBERG, ICEBERG_CONFIG), "postgresql": ({}, {})}.get(
        output, (DELTA, DELTA_CONFIG)
    )
    builder = SparkSession.builder.appName("lakehouse").config("spark.ui.enabled", "false")
    if jars:
        if line not in jars:
            raise SystemExit(
                f"{output}: there is no jar for Spark {line}, but for {', '.join(jars)}"
            )
        builder = builder.config("spark.jars.packages", jars[line])
    if output == "iceberg":
        builder = builder.config("spark.sql.catalog.lake.warehouse", str(directory / "iceberg"))
    for name, value in config.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def output_of(spark: SparkSession, output: str, directory: Path) -> tuple[OneBatch, str]:
    """Make the table where there is none; return what writes a batch, and what reads the table."""
    path = str(directory / output)
    if output == "delta":
        return append_to_delta(path), f"SELECT * FROM delta.`{path}`"
    if output == "changes":
        spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({SCHEMA}) USING delta")
        table = f"delta.`{path}`"
        return merge(table, ["customer"], newest="order"), f"SELECT * FROM {table}"
    if output == "iceberg":
        spark.sql(f"CREATE TABLE IF NOT EXISTS lake.shop.orders ({SCHEMA}) USING iceberg")
        return merge("lake.shop.orders", ["message_id"]), "SELECT * FROM lake.shop.orders"
    with closing(connect()) as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS orders_once "
            '(message_id TEXT PRIMARY KEY, "order" BIGINT, customer TEXT, cents BIGINT)'
        )
        database.commit()
    return insert(connect, "orders_once", ["message_id"]), ""


def run(spark: SparkSession, uri: str, directory: Path, one_batch: OneBatch) -> None:
    """Read until the queue is empty, or continue from the checkpoint."""

    def orders_of(messages: DataFrame, number: int) -> None:
        order = F.from_json(F.col("body").cast("string"), ORDER).alias("o")
        one_batch(messages.select("message_id", order).select("message_id", "o.*"), number)

    query = (
        spark.readStream.format("warren")
        .option("uri", uri)
        .option("queue", "orders")
        .schema("message_id string, body binary")
        .load()
        .writeStream.foreachBatch(orders_of)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def rows_in(spark: SparkSession, select: str) -> list[tuple[Any, ...]]:
    """Return the table's rows: message id, order, customer, cents."""
    if select:
        return [tuple(row) for row in spark.sql(select).collect()]
    with closing(connect()) as database:
        return [tuple(row) for row in database.execute("SELECT * FROM orders_once").fetchall()]


def publish(uri: str, count: int, first: int = 0) -> None:
    """Declare the queue and publish orders."""
    with Connection(uri) as connection:
        Admin(connection).queues.declare("orders")
        with Producer(connection) as producer:
            for number in range(first, first + count):
                order = {"order": number, "customer": f"c{number % 7}", "cents": number * 10}
                producer.send(json.dumps(order), "orders", message_id=f"m{number}")


@contextmanager
def broker() -> Iterator[str]:
    """Yield the address of the cluster in WARREN_URI, or of a new one with 1,000 orders."""
    if "WARREN_URI" in os.environ:
        yield os.environ["WARREN_URI"]
        return
    with LocalCluster(nodes=1) as cluster:
        publish(cluster.uri, 1_000)
        yield cluster.uri


def main(arguments: Sequence[str]) -> int:
    """Read the queue until it is empty, and print what the table holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", choices=["delta", "changes", "iceberg", "postgresql"])
    parser.add_argument("directory", type=Path, help="of the table and the checkpoint")
    given = parser.parse_args(arguments)
    directory = given.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = session(given.output, directory)
    one_batch, select = output_of(spark, given.output, directory)
    with broker() as uri:
        run(spark, uri, directory, one_batch)
    rows = rows_in(spark, select)
    print(f"{given.output}: {len(rows)} rows, {sum(row[3] for row in rows)} cents")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
