"""Orders from a queue into Parquet files and an SQL table, each exactly once.

    python examples/etl/etl.py DIRECTORY [DATABASE]

It reads queue `orders` of the cluster in WARREN_URI until it is empty, and may be killed at any
moment and started again. Without WARREN_URI it starts a broker and publishes orders to read.
DATABASE is an address such as postgresql://user@host/name, for which `psycopg` must be installed
(its password comes from PGPASSWORD or ~/.pgpass), or a file of SQLite; default: orders.sqlite in
DIRECTORY.

Both outputs recognise a batch that runs again: the Parquet files of a batch are in a directory of
its own, which is overwritten, and the SQL transaction that inserts a batch records its number too.
`RUN` is part of both names: a query with a new checkpoint counts its batches from 0 again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from warren import Admin, Connection, Producer
from warren.local import LocalCluster

QUIET = ("spark.ui.showConsoleProgress", "false")
"""Spark draws no bars across the output."""
ORDER = "order bigint, customer string, cents bigint"
RUN = "sql.streaming.queryId"
"""Spark's local property with the id of the query, which stands in its checkpoint."""
POSTGRESQL = ("postgresql://", "postgres://")
TABLES = (
    "CREATE TABLE IF NOT EXISTS batches (run TEXT, batch BIGINT, PRIMARY KEY (run, batch))",
    'CREATE TABLE IF NOT EXISTS orders ("order" BIGINT, customer TEXT, cents BIGINT)',
)


def connect(database: str) -> tuple[Any, str]:
    """Open a database; return the connection, and what stands for a value in its statements."""
    if not database.startswith(POSTGRESQL):
        return sqlite3.connect(database, timeout=60), "?"
    try:
        psycopg = importlib.import_module("psycopg")
    except ImportError as missing:
        raise SystemExit("PostgreSQL: pip install 'psycopg[binary]' first") from missing
    return psycopg.connect(database), "%s"


def write_parquet(orders: DataFrame, run: str, batch: int, directory: Path) -> None:
    """Write the batch's files; a repeat replaces them."""
    target = directory / "orders" / f"run={run}" / f"batch={batch}"
    orders.write.mode("overwrite").parquet(str(target))


def write_sql(orders: DataFrame, run: str, batch: int, database: str) -> None:
    """Insert the batch's rows and its number in one transaction; a repeat inserts nothing.

    An older driver that still runs inserts the number first, or finds it: the second transaction
    waits for the end of the first. The rows pass through Spark's driver: aggregate them before when
    a batch is larger than its memory.
    """
    connection, value = connect(database)
    with closing(connection):  # what is not committed is rolled back
        cursor = connection.cursor()
        for table in TABLES:
            cursor.execute(table)
        connection.commit()
        number = f"INSERT INTO batches VALUES ({value}, {value}) ON CONFLICT DO NOTHING"
        cursor.execute(number, (run, batch))
        if cursor.rowcount == 1:
            rows = map(tuple, orders.toLocalIterator())
            cursor.executemany(f"INSERT INTO orders VALUES ({value}, {value}, {value})", rows)
        connection.commit()


def start(spark: SparkSession, uri: str, directory: Path, database: str) -> StreamingQuery:
    """Start the query, or continue it from its checkpoint; it ends when the queue is empty."""

    def one_batch(messages: DataFrame, batch: int) -> None:
        run = spark.sparkContext.getLocalProperty(RUN)
        assert run is not None, "called by a streaming query"
        body = F.col("body").cast("string")
        orders = messages.select(F.from_json(body, ORDER).alias("o")).select("o.*").persist()
        try:
            write_parquet(orders, run, batch, directory)
            write_sql(orders, run, batch, database)
        finally:
            orders.unpersist()

    return (
        spark.readStream.format("warren")
        .option("uri", uri)
        .option("queue", "orders")
        .schema("body binary")
        .load()
        .writeStream.foreachBatch(one_batch)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def publish(uri: str, count: int) -> None:
    """Declare the queue and publish orders."""
    with Connection(uri) as connection:
        Admin(connection).queues.declare("orders")
        with Producer(connection) as producer:
            for number in range(count):
                order = {"order": number, "customer": f"c{number % 7}", "cents": number * 10}
                producer.send(json.dumps(order), "orders")


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
    """Read the queue until it is empty, and print what the two outputs hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="of the Parquet files and the checkpoint")
    parser.add_argument("database", nargs="?", help="default: orders.sqlite in the directory")
    given = parser.parse_args(arguments)
    directory = given.directory
    database = given.database or str(directory / "orders.sqlite")
    directory.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("etl").config(*QUIET).getOrCreate()
    with broker() as uri:
        start(spark, uri, directory, database).awaitTermination()
    print("Parquet:", spark.read.parquet(str(directory / "orders")).count(), "orders")
    connection, _ = connect(database)
    with closing(connection):
        cursor = connection.cursor()
        cursor.execute("SELECT count(*), sum(cents) FROM orders")
        (count, cents) = cursor.fetchone()
    print("SQL:", count, "orders,", cents, "cents")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
