"""The driver's side of a receiver process: what it said, what it is told, and its next process."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, NamedTuple

from pyspark_warren.errors import BrokerUnavailableError, WarrenSparkError
from pyspark_warren.spool.search import Decided
from pyspark_warren.spool.stdio import ReceiverTask, failure_of, read_lines, write_line

log = logging.getLogger("pyspark_warren")

RESTARTS_MAX: Final = 5
"""A receiver that dies without a word is started again, that often within RESTARTS_S."""
RESTARTS_S: Final = 60.0
PROGRAM: Final = (sys.executable, "-m", "pyspark_warren.spool.receiver_process")


class LaneCounts(NamedTuple):
    """A receiver's answer about its queue.

    ready           messages that the broker has ready
    consumers       of the queue, this reader's included
    unwritten       received, and not in the spool
    unacknowledged  in the spool, and not acknowledged
    end             the lane's end
    """

    ready: int
    consumers: int
    unwritten: int
    unacknowledged: int
    end: int


class Lane:
    """A lane of the spool, with the receiver that fills it.

    base        the lane's end when this run's first receiver took it over; None: not yet
    end         the lane's durable end
    reports     (end, bytes) of what was received after `base`
    recognised  redelivered messages that had a row
    links       connections to the broker that came or went
    """

    def __init__(self, task: ReceiverTask, changed: threading.Condition) -> None:
        """`changed` is notified of what the receiver says; several lanes may share it."""
        self._task = task
        self._changed = changed
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: WarrenSparkError | None = None
        self._died: str | None = None
        self._starts: deque[float] = deque()
        self._settled = 0
        self._down_since: float | None = time.monotonic()
        self._down_text = "no connection yet"
        self._probes = 0
        self._counts: tuple[int, LaneCounts] | None = None
        self._closed = False
        self.base: int | None = None
        self.end = 0
        self.reports: list[tuple[int, int]] = []
        self.recognised = 0
        self.links = 0
        self.warning = ""
        self._start()

    @property
    def pid(self) -> int:
        """The receiver's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def counts(self) -> LaneCounts | None:
        """The last answer about the queue."""
        return None if self._counts is None else self._counts[1]

    # -------------------------------------------------------------- what it is told

    def settle(self, position: int, decided: Sequence[Decided] = ()) -> None:
        """Spark has committed the rows before the position; and what is decided of single rows."""
        if position > self._settled or tuple(decided) != self._task.decided:
            self._settled = max(position, self._settled)
            self._task = replace(self._task, decided=tuple(decided))
            self._tell_settled()

    def acknowledge(self) -> None:
        """The reader's name is in the checkpoint: messages may be acknowledged."""
        if not self._task.may_ack:
            self._task = replace(self._task, may_ack=True)
            self._tell({"acknowledge": True})

    def probe(self) -> int:
        """Ask for the queue's counts; the answer comes some time later, or never."""
        self._probes += 1
        self._tell({"probe": self._probes})
        return self._probes

    def wait_for_counts(self, probe: int, timeout_s: float) -> LaneCounts | None:
        """Return the answer to that question or a later one; None: none came in time."""

        def answered() -> bool:
            return self._counts is not None and self._counts[0] >= probe

        return self.counts if self.wait(answered, timeout_s) else None

    def close(self) -> None:
        """Let the receiver acknowledge what may be, and end."""
        self._closed = True
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                pass

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the receiver has ended."""
        assert self._process is not None
        self._process.wait(timeout_s)

    def _tell_settled(self) -> None:
        self._tell({"settle": self._settled, "decided": self._task.decided})

    def _tell(self, said: dict[str, object]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            write_line(self._process.stdin, said)
        except (OSError, ValueError):
            pass  # it died; the next one is told from the start

    # -------------------------------------------------------------- what it says

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for that, while the receiver is there and well; return whether it is so.

        raises  what the receiver failed with; BrokerUnavailableError when it cannot be kept alive
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self.check()
                if until():
                    return True
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)

    def check(self) -> None:
        """Raise what the receiver failed with, or start one that died again."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._died is not None and not self._closed:
                now = time.monotonic()
                while self._starts and now - self._starts[0] > RESTARTS_S:
                    self._starts.popleft()
                if len(self._starts) > RESTARTS_MAX:
                    raise BrokerUnavailableError(
                        f"the receiver of queue {self._task.options.queue!r} died "
                        f"{len(self._starts)} times within {RESTARTS_S:.0f} s, the last time with "
                        f"{self._died}; its text is in the log of Spark's driver"
                    )
                log.warning("the receiver died (%s) and is started again", self._died)
                self._start()

    def down_s(self) -> float:
        """Return for how long there has been no connection to the broker; 0: there is one."""
        with self._changed:
            return 0.0 if self._down_since is None else time.monotonic() - self._down_since

    @property
    def down_text(self) -> str:
        """Why there is none."""
        return self._down_text

    def _start(self) -> None:
        self._died = None
        self._starts.append(time.monotonic())
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(
            PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C in a terminal is for the driver
        )
        self._process = process
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        seen = max(self._task.seen, self._settled, self.end)
        self._tell(asdict(replace(self._task, seen=seen)))
        if self._settled:
            self._tell_settled()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        text = ""
        try:
            for said in read_lines(process.stdout):
                with self._changed:
                    self._heard(said)
                    self._changed.notify_all()
        except (KeyError, ValueError) as wrong:
            text = f" after a line that cannot be read: {wrong}"
            process.kill()
        code = process.wait()
        with self._changed:
            if process is self._process:
                self._died = f"exit code {code}{text}"
                self._down_since = self._down_since or time.monotonic()
            self._changed.notify_all()

    def _heard(self, said: dict[str, Any]) -> None:
        kind = said["say"]
        if kind == "owner":
            self.end = max(self.end, int(said["end"]))
            if self.base is None:
                self.base = self.end
            elif not self.reports or self.reports[-1][0] < self.end:
                self.reports.append((self.end, 0))  # written by one that died before it said so
        elif kind == "rows":
            if int(said["end"]) > self.end:
                self.end = int(said["end"])
                self.reports.append((self.end, int(said["bytes"])))
            self.recognised += int(said["recognised"])
        elif kind == "link":
            self.links += 1
            self._down_text = str(said["text"])
            if said["up"]:
                self._down_since = None
            else:
                self._down_since = self._down_since or time.monotonic()
                log.warning("%s", self._down_text)
        elif kind == "queue":
            names = LaneCounts._fields
            self._counts = int(said["probe"]), LaneCounts(*(int(said[name]) for name in names))
        elif kind == "warning":
            self.warning = str(said["text"])
            log.warning("%s", self.warning)
        elif kind == "failed":
            self._failure = failure_of(said)
        else:
            raise ValueError(f"a receiver says {kind!r}")

    def forget_reports(self, position: int) -> None:
        """Drop the reports of rows before the position."""
        with self._changed:
            kept = [report for report in self.reports if report[0] > position]
            self.reports = kept
