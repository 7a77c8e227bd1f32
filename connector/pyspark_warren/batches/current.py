"""The batch that a loop's function is working on, for what it calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from pyspark_warren.surroundings import BATCH_ID, QUERY_ID


@dataclass(slots=True)
class CurrentBatch:
    """A batch of a loop.

    query       the id in the checkpoint
    checkpoint  the directory
    outputs     names of the outputs that the function has written
    """

    query: str
    number: int
    checkpoint: str
    outputs: set[str] = field(default_factory=set)


CURRENT: ContextVar[CurrentBatch | None] = ContextVar("warren_batch", default=None)


@contextmanager
def working_on(spark: Any, batch: CurrentBatch) -> Iterator[None]:
    """Tell the function's calls, and the tasks that it starts, which batch they are of.

    The tasks as those of a streaming query: `df.write.format("warren")` has its batch's number.
    """
    token = CURRENT.set(batch)
    set_property = local_properties(spark)[1]
    try:
        set_property(QUERY_ID, batch.query)
        set_property(BATCH_ID, str(batch.number))
        yield
    finally:
        set_property(QUERY_ID, None)
        set_property(BATCH_ID, None)
        CURRENT.reset(token)


def local_properties(spark: Any) -> tuple[Any, Any]:
    """Return what gets and sets a property of the thread's jobs; Spark Connect has none."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return (lambda name: None), (lambda name, value: None)
    context = spark.sparkContext
    return context.getLocalProperty, context.setLocalProperty
