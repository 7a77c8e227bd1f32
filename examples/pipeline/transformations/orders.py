"""A declarative pipeline of Spark 4.1 and later: a queue, its table, a queue of large orders.

    spark-pipelines run --spec spark-pipeline.yml

WARREN_URI says where a broker is, and the login. Each run reads what is ready: messages are settled
once the pipeline's checkpoint has them, and a run that was ended is continued by the next one.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, struct, to_json

URI = os.environ["WARREN_URI"]
spark = SparkSession.active()

dp.create_sink(
    "large_orders", "warren", {"uri": URI, "routingKey": "large-orders", "sinkId": "pipeline"}
)


@dp.table  # type: ignore[untyped-decorator]
def orders() -> DataFrame:
    """Every order of the queue, in a streaming table."""
    rows = spark.readStream.format("warren").option("uri", URI).option("queue", "orders").load()
    order = from_json(col("body").cast("string"), "number BIGINT, cents BIGINT").alias("order")
    return rows.select("message_id", order).select("message_id", "order.*")


@dp.append_flow(target="large_orders")  # type: ignore[untyped-decorator]
def large() -> DataFrame:
    """The large ones, in a queue."""
    found = spark.readStream.table("orders").where("cents >= 500")
    return found.select(to_json(struct("number", "cents")).alias("body"))
