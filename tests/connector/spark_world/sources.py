"""The data source over the fake broker, with places to die at.

`WARREN_TEST_KILL` names a file. When it says `point number`, the number-th arrival at that point
kills the JVM whose pid the file `<that>.jvm` holds (or, for points of a task, this very process),
and the file is gone.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import InputPartition

from pyspark_warren.datasource import WarrenDataSource
from pyspark_warren.options import Options
from pyspark_warren.rim import told
from pyspark_warren.sink import WarrenStreamWriter
from pyspark_warren.source import WarrenStreamReader
from spark_world.fake import FakeClient


def connect(options: Options) -> FakeClient:
    """The fake that listens at the first host's port."""
    return FakeClient.remote(options.hosts[0][1])


def arrive(point: str) -> bool:
    """Whether the kill that is armed is for this arrival; it is disarmed then."""
    plan = os.environ.get("WARREN_TEST_KILL", "")
    try:
        armed, number = Path(plan).read_text().split()
    except (OSError, ValueError):
        return False
    if armed != point:
        return False
    if int(number) > 1:
        Path(plan).write_text(f"{armed} {int(number) - 1}")
        return False
    try:
        os.rename(plan, plan + ".done")
    except FileNotFoundError:
        return False  # another process was here first
    return True


def maybe_kill_driver(point: str) -> None:
    """kill -9 the JVM, then wait for the end that follows."""
    if arrive(point):
        os.kill(int(Path(os.environ["WARREN_TEST_KILL"] + ".jvm").read_text()), signal.SIGKILL)
        os._exit(1)


def maybe_kill_task(point: str) -> None:
    """kill -9 this Python worker."""
    if arrive(point):
        os.kill(os.getpid(), signal.SIGKILL)


class DyingReader(WarrenStreamReader):
    """The stream reader, with its places."""

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """(c) before settling what is committed; (a) after the claim, before the offset log."""
        if start["number"]:
            maybe_kill_driver("before_settle")
        end = super().latestOffset(start, limit)
        if end["number"] > start["number"]:
            maybe_kill_driver("after_claim")
        return end

    def partitions(self, start: Any, end: Any) -> Any:
        """(b) after the offset log."""
        made = super().partitions(start, end)
        if made:
            maybe_kill_driver("after_offset_log")
        return made

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task that dies half way through its slice."""
        for i, batch in enumerate(super().read(partition)):
            if i == 1:
                maybe_kill_task("in_read")
            yield batch


class DyingWriter(WarrenStreamWriter):
    """The stream writer, with its places."""

    def write(self, iterator: Iterator[Any]) -> Any:
        """A task that dies, or dawdles, after it has staged everything."""
        from pyspark import TaskContext

        written = super().write(iterator)
        maybe_kill_task("after_staging")
        context = TaskContext.get()
        if written.part.rows and context.attemptNumber() == 0 and arrive("dawdle"):
            threading.Event().wait(20)
        return written

    def commit(self, messages: list[Any], batchId: int) -> None:
        """(b) with everything staged; with everything published."""
        if any(each.part.rows for each in messages):
            maybe_kill_driver("before_publish")
        super().commit(messages, batchId)
        if any(each.part.rows for each in messages):
            maybe_kill_driver("after_publish")


class DyingSource(WarrenDataSource):
    """`format("warren_dying")`."""

    connect = staticmethod(connect)

    @classmethod
    def name(cls) -> str:
        """Its name."""
        return "warren_dying"

    def _stream_reader(self, schema: Any) -> DyingReader:
        """With places to die at."""
        return DyingReader(self._parsed("read"), schema, self.connect)

    @told
    def streamWriter(self, schema: Any, overwrite: bool) -> DyingWriter:
        """With places to die at."""
        return DyingWriter(self._parsed("write"), schema, self.connect)
