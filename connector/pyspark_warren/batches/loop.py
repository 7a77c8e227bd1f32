"""Micro-batches by a loop on the driver: for Spark without Python data sources, 3.4 and 3.5."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark_warren.amqp import detect as detection
from pyspark_warren.batches.checkpoint import Checkpoint
from pyspark_warren.batches.current import CurrentBatch, working_on
from pyspark_warren.batches.frame import arrow_columns, columns_of, frame_of
from pyspark_warren.batches.run import BatchRun
from pyspark_warren.claims import client
from pyspark_warren.errors import told
from pyspark_warren.kinds import reading_of
from pyspark_warren.options.options import parse_options, text_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ForBatch = Callable[["DataFrame", int], object]
"""Gets the rows of a batch, and its number."""


class BatchLoop:
    """A query without a data source: reads queues batch by batch, with a checkpoint.

    spark          the session
    options        those of `spark.readStream.format("warren")`
    function       gets each batch's rows and its number; the same rows and number when a batch is
                   run again, and what it writes must then replace what it wrote
    checkpoint     a directory of this query alone: a path, or a URI that pyarrow.fs knows
    available_now  read what is ready now, and end
    interval_s     seconds from the begin of a batch to that of the next one
    schema         columns, as of `spark.readStream.schema`; left out: all

    connect, detect  as of `datasource.WarrenDataSource`
    """

    connect = staticmethod(client.connect)
    detect = staticmethod(detection.detect)

    @told
    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, object],
        function: ForBatch,
        checkpoint: str,
        *,
        available_now: bool = False,
        interval_s: float = 0.0,
        schema: StructType | str | None = None,
    ) -> None:
        given = {name: text_of(value) for name, value in options.items()}
        parsed = parse_options({**given, "checkpointLocation": checkpoint}, "read", "stream")
        found = self.detect(parsed)
        self._spark, self._function, self._location = spark, function, checkpoint
        self._available_now, self._interval_s = available_now, interval_s
        self._columns = columns_of(spark, found, schema)
        arrow = arrow_columns(self._columns, found.corrupt)
        self._reading = reading_of(found, arrow, self.connect)
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Let `run` end when the batch that is under way is done; callable from any thread."""
        self._stopping.set()

    @told
    def run(self) -> int:
        """Run batches until there is nothing more to do; return how many had rows.

        Ends when everything is read (available_now), after `stop`, and after a SIGTERM, which is
        taken as `stop` in the main thread of a process that does not handle it otherwise.

        raises  what the function raises, and named conditions; the loop can be started again
        """
        with stopped_by_signal(self.stop):
            checkpoint = Checkpoint(self._location)
            run = BatchRun(self._reading, checkpoint, self._process(checkpoint.query))
            try:
                if self._available_now:
                    run.prepare_available_now()
                return self._batches(run)
            finally:
                run.close()

    def _batches(self, run: BatchRun) -> int:
        count = 0
        while not self._stopping.is_set():
            due = time.monotonic() + self._interval_s
            found = run.step()
            count += bool(found)
            if found is None and self._available_now:
                return count
            self._stopping.wait(max(0.0, due - time.monotonic()))
        run.settle()
        return count

    def _process(self, query: str) -> Callable[[int, list[Any]], None]:
        def process(number: int, tasks: list[Any]) -> None:
            frame = frame_of(self._spark, self._reading, self._columns, tasks)
            with working_on(self._spark, CurrentBatch(query, number, self._location)):
                self._function(frame, number)

        return process


def for_each_batch(
    spark: SparkSession,
    options: Mapping[str, object],
    function: ForBatch,
    checkpoint: str,
    *,
    available_now: bool = False,
    interval_s: float = 0.0,
    schema: StructType | str | None = None,
) -> int:
    """Run a `BatchLoop` to its end; return how many batches had rows."""
    return BatchLoop(
        spark,
        options,
        function,
        checkpoint,
        available_now=available_now,
        interval_s=interval_s,
        schema=schema,
    ).run()


@contextmanager
def stopped_by_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Take a SIGTERM as `stop`; a second one ends the process at once."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return

    def terminated(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stop()

    signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
