"""A DAG of Airflow that reads a queue into Parquet, every ten minutes, each order once.

A run reads what is ready when it starts, and ends. It may fail at any moment and be tried again,
and a run that begins later continues it: what has been read stands in the checkpoint, not in
Airflow. Two runs at once would be two drivers of one query: `max_active_runs` keeps them apart, and
if one begins all the same, the broker fences the older one.

ORDERS is the folder of the files and of the checkpoint, WARREN_URI says where a broker is.
"""

import os
import sys
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task


@task(retries=3, retry_delay=timedelta(minutes=1))  # type: ignore[untyped-decorator]
def read_orders() -> int:
    """Read what is ready; return how many rows there are now."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    place = os.environ["ORDERS"]
    spark = SparkSession.builder.master("local[2]").appName("orders").getOrCreate()
    try:
        rows = (
            spark.readStream.format("warren")
            .option("uri", os.environ["WARREN_URI"])
            .option("queue", "orders")
            .schema("message_id string, body string")
            .load()
        )
        query = (
            rows.writeStream.format("parquet")
            .option("path", f"{place}/rows")
            .option("checkpointLocation", f"{place}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return int(spark.read.parquet(f"{place}/rows").count())
    finally:
        spark.stop()


@dag(  # type: ignore[untyped-decorator]
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
)
def orders() -> None:
    """Read the queue `orders`."""
    read_orders()


found = orders()

if __name__ == "__main__":
    found.test()
