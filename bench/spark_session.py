"""A Spark session of the bench, its queries, and the messages that they read."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from bench.memory_spark import BLOCK_ROWS, MemorySource, block
from warren.connection import Connection
from warren.outgoing import SEND_WINDOW_BYTES, BlockSender

ROOT: Final = str(Path(__file__).resolve().parent.parent)
CHEAP: Final = ("body", "routing_key", "message_id")
QUEUE: Final = "rows"
"""The queue that is read, and the routing key of `memory_spark.block`."""
MS_PER_S: Final = 1000
POLL_S: Final = 0.01


def session(master: str) -> SparkSession:
    """Start a Spark session with little logging; its executors find this package, too."""
    path = os.environ.get("PYTHONPATH")
    spark = (
        SparkSession.builder.master(master)
        .appName("warren-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, (ROOT, path))))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MemorySource)
    return spark


def fill(connection: Connection, body_bytes: int, rows: int) -> None:
    """Publish messages to the queue that is read, in whole blocks."""
    sender = BlockSender.to_exchange(connection, "", window_bytes=SEND_WINDOW_BYTES, timeout_s=120)
    made = block(body_bytes)
    for _ in range(-(-rows // BLOCK_ROWS)):
        sender.send(made)
    sender.flush()
    sender.close()


def batches_of(
    writer: DataStreamWriter, over: Callable[[list[Any]], bool]
) -> tuple[list[Any], float]:
    """Run a query until its micro-batches with rows are enough.

    Returns their progresses, and when the query was started, in seconds since 1970.

    With the default trigger, because Spark 4.0 and 4.1 make one batch with `availableNow`.
    """
    with tempfile.TemporaryDirectory(prefix="warren-bench-") as checkpoint:
        began = time.time()
        query = writer.option("checkpointLocation", checkpoint).start()
        while not over(batches := [each for each in query.recentProgress if each.numInputRows]):
            if not query.isActive:
                query.awaitTermination()
            time.sleep(POLL_S)
        query.stop()
    return batches, began


def ended(batch: Any) -> float:
    """Return when a micro-batch had ended, in seconds since 1970."""
    began = datetime.fromisoformat(batch.timestamp).timestamp()
    return began + float(batch.durationMs["triggerExecution"]) / MS_PER_S
