"""What a query has of the process around it: clock, threads, signals, what Spark tells a task."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final

from pyspark import TaskContext

from pyspark_warren.errors import WarrenSparkError
from warren.errors import Fenced, WarrenError
from warren_wire.queue_values.describe_command import ReadBy

log = logging.getLogger("pyspark_warren")

WORK_S_MAX: Final = 3.0
"""How long the end of the process is put off."""


def mint_reader() -> str:
    """Return a new reader's name."""
    return f"spark-{uuid.uuid4().hex}"


def start_thread(work: Callable[[], None]) -> None:
    """Do that in a thread, which ends with its process."""
    threading.Thread(target=work, name="warren-ahead", daemon=True).start()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The clock, the chance and the threads of a process.

    clock_ms    monotonic milliseconds
    sleep_s     waits that many seconds
    mint        generates a new reader name
    beside      does something while the caller continues
    """

    clock_ms: Callable[[], int]
    sleep_s: Callable[[float], None]
    mint: Callable[[], str]
    beside: Callable[[Callable[[], None]], None] = start_thread

    @classmethod
    def of_this_process(cls) -> Surroundings:
        """Return the real ones."""
        return cls(lambda: time.monotonic_ns() // 1_000_000, time.sleep, mint_reader)


class Renewer:
    """A thread that renews readers and their claims every third of their time to live.

    It ends with its process, or when a newer driver has registered. It exists on Spark's driver
    only, in the object that is never pickled.
    """

    def __init__(self, renew: Callable[[], None], ttl_ms: int) -> None:
        assert ttl_ms > 0, ttl_ms
        self._renew = renew
        self._every_s = ttl_ms / 3000
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="warren-renew", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing; returns at once."""
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Return whether it still renews."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self._renew()
            except Fenced:
                return  # Spark's next call is refused with the reason
            except (WarrenError, WarrenSparkError) as wrong:
                # Of the login, too: 1. A tokenFile is empty while it is written.  2. The connection
                # is lost.  3. The next one needs a token. Claims would expire under the query.
                log.warning("claims could not be renewed, will be retried: %s", wrong)


def before_termination(work: Callable[[], None]) -> None:
    """Do that first when the process is terminated, as it is by `query.stop()`.

    A signal's handler runs in the main thread, perhaps in the middle of a request, which the work
    must not interrupt, and may have to wait for. So another thread does it, and then ends the
    process as the signal does. It does nothing outside the main thread, and where the process
    handles the signal already.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def terminated(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends the process at once
        threading.Thread(target=end, name="warren-end", daemon=True).start()

    def end() -> None:
        working = threading.Thread(target=work, name="warren-last", daemon=True)
        working.start()
        working.join(WORK_S_MAX)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminated)


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
