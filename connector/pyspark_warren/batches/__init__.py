"""Micro-batches without a data source, for every Spark from 3.4 on."""

from pyspark_warren.batches.loop import BatchLoop, for_each_batch
from pyspark_warren.batches.write import write_batch

__all__ = ["BatchLoop", "for_each_batch", "write_batch"]
