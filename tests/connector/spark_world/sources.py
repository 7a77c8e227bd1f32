"""The data source over the fake broker or a real one, with places to die or to stand still at.

`WARREN_TEST_KILL` names a file. When it says `point number action`, the number-th arrival at that
point kills the JVM whose pid the file `<that>.jvm` holds (or, for points of a task, this very
process), and the file is gone. With the action `stop` the JVM and this process are frozen instead,
and `<that>.stopped` has their numbers; with the action `python` this process alone is killed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_warren.datasource import WarrenDataSource
from pyspark_warren.datasource import connect as real_connect
from pyspark_warren.errors import told
from pyspark_warren.options.options import Options, for_broker
from pyspark_warren.options.specs import WARREN
from pyspark_warren.sink.sink import WarrenStreamWriter
from pyspark_warren.source import WarrenStreamReader
from spark_world.fake import FakeClient

DAWDLE_S = 120


def connect(options: Options) -> FakeClient:
    """The fake that listens at the first host's port."""
    return FakeClient.remote(options.hosts[0][1])


def arrive(point: str) -> str:
    """The action that is armed, if it is for this arrival; it is disarmed then."""
    plan = os.environ.get("WARREN_TEST_KILL", "")
    try:
        armed, number, action = Path(plan).read_text().split()
    except (OSError, ValueError):
        return ""
    if armed != point:
        return ""
    if int(number) > 1:
        Path(plan).write_text(f"{armed} {int(number) - 1} {action}")
        return ""
    try:
        os.rename(plan, plan + ".done")
    except FileNotFoundError:
        return ""  # another process was here first
    return action


def maybe_kill_driver(point: str) -> None:
    """kill -9 the JVM, then wait for the end that follows; or freeze it, and this process."""
    action = arrive(point)
    if not action:
        return
    if action == "python":
        os.kill(os.getpid(), signal.SIGKILL)
    plan = os.environ["WARREN_TEST_KILL"]
    jvm = int(Path(plan + ".jvm").read_text())
    if action == "stop":
        os.kill(jvm, signal.SIGSTOP)
        Path(plan + ".stopping").write_text(f"{jvm} {os.getpid()}")
        os.rename(plan + ".stopping", plan + ".stopped")
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    os.kill(jvm, signal.SIGKILL)
    os._exit(1)


def maybe_kill_task(point: str) -> None:
    """kill -9 this Python worker, or with the action `executor` the JVM that started it."""
    action = arrive(point)
    if action:
        os.kill(jvm_above() if action == "executor" else os.getpid(), signal.SIGKILL)


def jvm_above() -> int:
    """Return the process of the JVM that this process descends from."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        status = Path(f"/proc/{pid}/status").read_text()
        pid = next(int(line.split()[1]) for line in status.splitlines() if line[:5] == "PPid:")
    return pid


NOWHERE: dict[str, Any] = {"queues": {}}
"""Where a first run is for Spark 4.0 and 4.1, which do not tell it."""


def claims_until(offset: dict[str, Any]) -> int:
    """How many claims precede an offset of the source, in all its queues together."""
    return sum(each["number"] for each in offset["queues"].values())


class DyingBehindTheOffsetLog(DataSourceStreamReader):
    """The place that every stream reader has."""

    def partitions(self, start: Any, end: Any) -> Any:
        """After the offset log, before the batch."""
        made = super().partitions(start, end)
        if made:
            maybe_kill_driver("after_offset_log")
        return made


class DyingReader(DyingBehindTheOffsetLog, WarrenStreamReader):
    """The stream reader, with its places."""

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """(c) before settling what is committed; (a) after the claim, before the offset log; (b) is
        `DyingBehindTheOffsetLog`."""
        known = start or self._at or NOWHERE
        if claims_until(known):
            maybe_kill_driver("before_settle")
        end = super().latestOffset(start, limit)
        if claims_until(end) > claims_until(known):
            maybe_kill_driver("after_claim")
        return end

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task that dies half way through its slice."""
        for i, batch in enumerate(super().read(partition)):
            if i == 1:
                maybe_kill_task("in_read")
            yield batch
            maybe_kill_task("task_in_read")
            maybe_kill_driver("driver_in_read")


class DyingWriter(WarrenStreamWriter):
    """The stream writer, with its places."""

    def write(self, iterator: Iterator[Any]) -> Any:
        """A task that dies, or dawdles, after it has staged everything; a driver that dies when
        the rows are on their way."""
        from pyspark import TaskContext

        written = super().write(watched(iterator))
        maybe_kill_task("after_staging")
        context = TaskContext.get()
        if written.part.rows and context.attemptNumber() == 0 and arrive("dawdle"):
            threading.Event().wait(DAWDLE_S)  # Spark ends it when a second attempt is done
        return written

    def commit(  # type: ignore[override]
        self, messages: list[Any], batchId: int
    ) -> None:
        """(b) with everything staged; with everything published."""
        if any(each.part.rows for each in messages):
            maybe_kill_driver("before_publish")
        super().commit(messages, batchId)
        if any(each.part.rows for each in messages):
            maybe_kill_driver("after_publish")


def watched(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches, with a place after each."""
    for batch in batches:
        yield batch
        maybe_kill_driver("in_write")


def is_warren(options: Options) -> Options:
    """Without asking: the fake broker speaks no AMQP."""
    return for_broker(options, WARREN, "a test")


class DyingSource(WarrenDataSource):
    """`format("warren_dying")`."""

    connect = staticmethod(connect)
    detect = staticmethod(is_warren)

    @classmethod
    def name(cls) -> str:
        """Its name."""
        return "warren_dying"

    def _stream_reader(self, schema: Any) -> DyingReader:
        """With places to die at."""
        return DyingReader(self._detected("read", "stream"), schema, self.connect)

    @told
    def streamWriter(self, schema: Any, overwrite: bool) -> DyingWriter:
        """With places to die at."""
        return DyingWriter(self._detected("write", "stream"), schema, self.connect)


class RealDyingSource(DyingSource):
    """`format("warren_dying_real")`: the same over a broker's own processes."""

    connect = staticmethod(real_connect)

    @classmethod
    def name(cls) -> str:
        """Its name."""
        return "warren_dying_real"
