"""A sink for a function that gets batches: with the stages' exactness, and without a data source.

In the function of a loop (`loop.BatchLoop`), and of `foreachBatch` on every Spark from 3.4 on.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_warren.amqp.detect import detect
from pyspark_warren.batches.current import CURRENT, local_properties
from pyspark_warren.claims.client import connect
from pyspark_warren.errors import OptionError, told
from pyspark_warren.options.options import Options, parse_options, text_of
from pyspark_warren.sink.batch_sink import RUN_DEFAULT, BatchSink, StreamSink
from pyspark_warren.sink.checkpoint import check_checkpoint
from pyspark_warren.sink.writer import WrittenPart
from pyspark_warren.surroundings import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@told
def write_batch(df: DataFrame, batch_id: int, **options: object) -> int:
    """Publish the rows of a batch, all of them or none, and once; return how many there are.

    A repeat, with the same number, is recognised by what it is published under: sinkId and runId,
    for which the query's id stands where they are left out. At a broker that is not Warren rows are
    published at least once, with the same message_id in a repeat.

    options  those of `df.writeStream.format("warren")`
    raises   the named conditions of a sink; what failed in a task as Spark's exception
    """
    current = CURRENT.get()
    parsed = parse_options(
        {name: text_of(value) for name, value in options.items()}, "write", "stream"
    )
    if current is not None and not parsed.checkpoint:
        parsed = replace(parsed, checkpoint=current.checkpoint)
    query = current.query if current else local_properties(df.sparkSession)[0](QUERY_ID)
    name, run = _named(parsed, query)
    if current is not None and name in current.outputs:
        raise OptionError(
            f"write_batch of batch {batch_id}: there is an output with sinkId={name!r} already; "
            "give each output of a batch a sinkId of its own"
        )
    found = detect(parsed)
    if found.settle_with_batch:
        check_checkpoint(found)
    if found.sink_id:
        sink = BatchSink(found, df.schema, connect)
        sink.register()
    else:
        sink = StreamSink(found, df.schema, connect)

    def stage(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = pickle.dumps(sink.write_as(name, run, batch_id, rows))
        yield pa.record_batch({"part": pa.array([written], pa.binary())})

    stage.__annotations__ = {}
    # One row of each task's attempt that Spark counts: the others' stages are not published.
    rows = df.mapInArrow(stage, "part binary").collect()
    parts: list[WrittenPart] = [pickle.loads(bytes(row.part)) for row in rows]
    sink.publish(parts)
    if current is not None:
        current.outputs.add(name)
    return sum(part.rows for part in parts)


def _named(options: Options, query: str | None) -> tuple[str, str]:
    """Return sink and run; raises OptionError when nothing tells this output from others."""
    if options.sink_id:
        return options.sink_id, options.run_id or query or RUN_DEFAULT
    if not query:
        raise OptionError(
            "write_batch needs the option sinkId, the name of this output, outside of a loop's "
            "function and of foreachBatch: a batch's number alone is not unique"
        )
    return query, query
