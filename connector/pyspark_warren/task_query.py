"""The streaming query of a task, as Spark's local properties say it."""

from __future__ import annotations

import re
from typing import Final

from pyspark import TaskContext

from warren_wire.queue_values.describe_command import ReadBy

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties that Spark gives to every task of a streaming query, and to the tasks of
`df.write` inside its foreachBatch."""
_JOB_DESCRIPTION: Final = "spark.job.description"
_NAMED: Final = re.compile(r"(.*)\nid = [0-9a-f-]{36}\nrunId = ", re.DOTALL)
"""How Spark describes a job of a query that has a name."""


def streaming_batch() -> tuple[str, int] | None:
    """Return the id of this task's streaming query, and the micro-batch's number."""
    context = TaskContext.get()
    assert context is not None, "a task asks"
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    return None if query is None or batch is None else (query, int(batch))


def read_by() -> ReadBy | None:
    """Return the batch that this task belongs to; None outside a streaming query's tasks."""
    context = TaskContext.get()
    found = streaming_batch() if context is not None else None
    if context is None or found is None:
        return None
    query, batch = found
    return ReadBy(query, query_name(context.getLocalProperty(_JOB_DESCRIPTION) or ""), batch)


def query_name(description: str) -> str:
    """Return the name in the description of a query's job; "" when the query has none.

    A program that sets a description of its own, in foreachBatch, hides the name.
    """
    found = _NAMED.match(description)
    return found[1] if found is not None else ""
