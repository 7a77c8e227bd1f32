"""A short Spark session that loads the classes of ordinary streaming queries, then ends.

    python -m tools.spark_training FLAGS

FLAGS are options of the JVM; `tools.spark_archive` passes those that write what was loaded to a
file. Run with the Python of .venv.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

ROWS = 10


class Reader(DataSourceStreamReader):
    """Ten numbers, as a stream."""

    def initialOffset(self) -> dict[str, int]:
        """Start at 0."""
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        """End at ROWS."""
        return {"at": ROWS}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return one partition with the range."""
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        """Return the rows of a range."""
        return iter([(number, str(number)) for number in range(*partition.value)])


class Writer(DataSourceStreamWriter):
    """Takes rows and forgets them."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Read all rows."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Training(DataSource):
    """A source and sink in Python, as the connector's."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "training"

    def schema(self) -> str:
        """Return the columns."""
        return "number BIGINT, text STRING"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return the source."""
        return Reader()

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        """Return the sink."""
        return Writer()


def train(spark: SparkSession, directory: str) -> None:
    """Run a query into files, one into the Python sink and one by `foreachBatch`."""
    spark.dataSource.register(Training)
    rows = spark.readStream.format("training").load()
    files = rows.writeStream.format("parquet").option("path", f"{directory}/rows")
    for number, query in enumerate(
        (
            files,
            rows.select("text").writeStream.format("training"),
            rows.writeStream.foreachBatch(lambda batch, number: batch.count() and None),
        )
    ):
        checkpoint = query.option("checkpointLocation", f"{directory}/{number}")
        checkpoint.trigger(availableNow=True).start().awaitTermination(60)
    table = spark.read.parquet(f"{directory}/rows")
    table.groupBy("text").count().orderBy("text").collect()


def main(flags: str) -> None:
    """Run the session, and wait until its JVM has ended and written what it was asked for."""
    with tempfile.TemporaryDirectory() as directory:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.extraJavaOptions", flags)
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", directory)
            .getOrCreate()
        )
        gateway: Any = spark.sparkContext._gateway
        train(spark, directory)
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(120)


if __name__ == "__main__":
    main(sys.argv[1])
