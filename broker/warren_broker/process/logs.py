"""The log of a node: one line per event, bounded in number whatever clients send."""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from logging.handlers import QueueHandler
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeAlias

from warren_broker.cluster.client.node_messages import LogExchange, LogLine
from warren_wire.quoting import escaped

LINE = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
TIME = "%Y-%m-%dT%H:%M:%S"
JOURNAL_STREAM = "JOURNAL_STREAM"
BOUNDED_LOGGERS = tuple(
    f"warren_broker.{name}" for name in ("listeners", "clients", "clients091", "clients10")
)
"""Lines of these loggers, and of those below them, are caused by clients: they are bounded."""
BOUNDED_MODULE = ("warren.raft", "transport")
"""So are those of one module of another logger: connections to the peer port cause them."""
BURST_LINES = 200
LINES_PER_SECOND = 20
_JUDGED = "flood_filter_passes"
KINDS_MAX = 1024
"""Kinds of lines that are counted; a kind is a logger with a message format."""
WAITING_CHARACTERS_MAX = 128 << 10
"""Of lines that wait until standard error takes more; further ones are left out, and counted."""
FLUSH_S_MAX = 1.0
"""The end of a process waits no longer than that for standard error to take what waits."""

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL + 1,
    "emergency": logging.CRITICAL + 1,
}
"""RabbitMQ's levels as the lowest level of lines; no line is as high as an alert."""
_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


class OneLineFormatter(logging.Formatter):
    """Formats a record so that only a record begins a line with its time.

    Line ends and control characters in a message are escaped: a logged name can neither forge a
    line nor control a terminal. A traceback's lines begin with `  | `.
    """

    def __init__(self, line: str = LINE) -> None:
        super().__init__(line, TIME)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format the record's line, without its traceback."""
        return escaped(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:
        """Format the traceback."""
        return _block(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        """Format the stack of a record with stack information."""
        return _block(super().formatStack(stack_info))


JOURNAL_LINE = "%(levelname)s %(name)s: %(message)s"
"""The journal has the time already, and shows it."""
PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Levels as priorities of syslog, the highest first; what is below all has DEBUG_PRIORITY."""
DEBUG_PRIORITY = 7


class JournalFormatter(OneLineFormatter):
    """Formats a record for systemd's journal: each line begins with `<priority>`.

    The journal takes each line as an entry of its own, those of a traceback too.
    source  sd-daemon(3), "Logging"
    """

    def __init__(self) -> None:
        super().__init__(JOURNAL_LINE)

    def format(self, record: logging.LogRecord) -> str:
        """Format the record with its traceback, the priority before each line."""
        priority = syslog_priority(record.levelno)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).split("\n"))


def syslog_priority(level: int) -> int:
    """Return a level as one of syslog's."""
    return next((number for least, number in PRIORITIES if level >= least), DEBUG_PRIORITY)


def is_journal(descriptor: int, stream: str | None) -> bool:
    """Return whether what is written to a descriptor goes to systemd's journal.

    stream   of the variable JOURNAL_STREAM: `device:inode`; None: there is no such variable
    source   systemd.exec(5); a program may have the variable, and write elsewhere
    """
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return stream == f"{found.st_dev}:{found.st_ino}"


def _block(text: str) -> str:
    return "\n".join(f"  | {escaped(line)}" for line in text.split("\n"))


@dataclass(slots=True)
class _Bucket:
    """Number of lines of a kind that may be written now; at: when it was computed, seconds."""

    tokens: float
    at: float
    left_out: int = 0


def _from_outside(record: logging.LogRecord) -> bool:
    """Return whether remote programs can cause any number of such lines."""
    below = ".".join(record.name.split(".")[:2])
    return below in BOUNDED_LOGGERS or (record.name, record.module) == BOUNDED_MODULE


class FloodFilter(logging.Filter):
    """Lets BURST_LINES lines of a kind pass at once, then LINES_PER_SECOND.

    The next line of the kind that passes reports the number left out. CRITICAL ones always pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is written."""
        if not _from_outside(record) or record.levelno >= logging.CRITICAL:
            return True
        judged: bool | None = record.__dict__.get(_JUDGED)
        if judged is None:  # another handler may be given the record, too
            judged = record.__dict__[_JUDGED] = self._passes(record)
        return judged

    def _passes(self, record: logging.LogRecord) -> bool:
        now = self._clock()
        kind = (record.name, str(record.msg))
        bucket = self._buckets.get(kind)
        if bucket is None:
            if len(self._buckets) >= KINDS_MAX:
                self._buckets.clear()
            bucket = self._buckets[kind] = _Bucket(BURST_LINES, now)
        more = (now - bucket.at) * LINES_PER_SECOND
        bucket.tokens, bucket.at = min(BURST_LINES, bucket.tokens + more), now
        if bucket.tokens < 1:
            bucket.left_out += 1
            return False
        bucket.tokens -= 1
        if bucket.left_out:
            text, given = str(record.msg), record.args if isinstance(record.args, tuple) else ()
            text = text if given else text.replace("%", "%%")
            record.msg = f"{text} (%d more like this were not logged)"
            record.args = (*given, bucket.left_out)
            bucket.left_out = 0
        return True


class LineWriter(QueueHandler, ABC):
    """Has lines written by a thread of its own, so that no other thread waits for it.

    What takes them may hang: a write of the loop's thread would then hold up the node.
    what       it is, in a line
    Invariant: `_characters` is the length of the lines in `_waiting`
    """

    what = "standard error"

    def __init__(self) -> None:
        super().__init__(SimpleQueue())  # stays empty: `enqueue` keeps the lines here
        self._changed = threading.Condition()
        self._waiting: list[str] = []
        self._characters = 0
        self._left_out = 0
        self._lost = 0
        self._idle = True
        thread = threading.Thread(target=self._write, name="log", daemon=True)
        thread.start()

    @abstractmethod
    def put(self, lines: list[str]) -> None:
        """Write lines, on the thread; raises OSError."""

    def prepare(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        return self.format(record)

    def enqueue(self, record: Any) -> None:
        """Have a line written, or left out if too much waits."""
        line = f"{record}\n"
        with self._changed:
            if self._characters + len(line) > WAITING_CHARACTERS_MAX:
                self._left_out += 1
                return
            self._waiting.append(line)
            self._characters += len(line)
            self._idle = False
            self._changed.notify_all()

    def handleError(self, record: logging.LogRecord) -> None:
        """Say of a record that its message does not fit its arguments."""
        text = "a line cannot be formatted: %r: %r"
        self.enqueue(self._said(logging.ERROR, text, record.msg, sys.exc_info()[1]))

    def flush(self) -> None:
        """Wait until everything is written, for FLUSH_S_MAX at the most."""
        with self._changed:
            self._changed.wait_for(lambda: self._idle, FLUSH_S_MAX)

    def _said(self, level: int, text: str, *values: object) -> str:
        return self.format(logging.LogRecord(__name__, level, __file__, 0, text, values, None))

    def _write(self) -> None:
        while True:
            lines, left_out = self._taken()
            if left_out:
                text = f"%d lines were left out here: {self.what} took none"
                lines.append(f"{self._said(logging.WARNING, text, left_out)}\n")
            try:
                self.put(lines)
            except OSError:
                self._lost = left_out + len(lines) - bool(left_out)  # said when it takes some

    def _taken(self) -> tuple[list[str], int]:
        """Wait for lines; return them, and how many were left out behind them."""
        with self._changed:
            if not self._waiting and not self._left_out:
                self._idle = True
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._left_out)
            lines, self._waiting, self._characters = self._waiting, [], 0
            left_out, self._left_out = self._left_out + self._lost, 0
            self._lost = 0
            return lines, left_out


class StandardError(LineWriter):
    """Writes lines to a descriptor, past Python's own buffer, which Python locks when it ends.

    Standard error may be a pipe of which the reader hangs.
    """

    def __init__(self, descriptor: int, encoding: str = "utf-8") -> None:
        self._descriptor = descriptor
        self._encoding = encoding
        super().__init__()

    def put(self, lines: list[str]) -> None:
        """Write lines; raises OSError."""
        write_all(self._descriptor, "".join(lines), self._encoding)


def write_all(descriptor: int, text: str, encoding: str) -> None:
    """Write a text, however often that takes; what the encoding lacks is escaped.

    1. A node's standard error is a pipe, or a terminal, that another process has, too.  2. That one
    makes it non-blocking, which holds for both.  3. It is full: the write fails at once, and the
    lines would be lost without a word. So it is waited for as if it had blocked.
    """
    data = memoryview(text.encode(encoding, "backslashreplace"))
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            writable = select.poll()
            writable.register(descriptor, select.POLLOUT)
            writable.poll()


def set_up(level: str) -> None:
    """Write this process's log to standard error."""
    handler = StandardError(sys.stderr.fileno(), sys.stderr.encoding)
    journal = is_journal(sys.stderr.fileno(), os.environ.get(JOURNAL_STREAM))
    handler.setFormatter(JournalFormatter() if journal else OneLineFormatter())
    handler.addFilter(FloodFilter())
    logging.basicConfig(level=level, handlers=[handler])


def flush() -> None:
    """Wait, not for long, until the log is written: the process ends, or is replaced."""
    for handler in logging.getLogger().handlers:
        handler.flush()


class ExchangeHandler(QueueHandler):
    """Passes the lines of the log on to the log exchange; harmless in any thread.

    As with every handler of the library, a record that cannot be formatted raises nothing.
    """

    def __init__(self, exchange: LogExchange, flood: FloodFilter) -> None:
        super().__init__(SimpleQueue())  # stays empty: `enqueue` passes the lines on
        self._exchange = exchange
        self.setFormatter(OneLineFormatter())
        self.addFilter(lambda record: exchange.takes(record.name))
        self.addFilter(flood)

    def prepare(self, record: logging.LogRecord) -> LogLine:
        """Return the record's line."""
        return LogLine(record.levelname.lower(), self.format(record), int(record.created))

    def enqueue(self, record: Any) -> None:
        """Pass on what `prepare` has returned."""
        self._exchange.tell(record)


class LogPublishing:
    """The log exchange's part in the process's log, from its construction until `end`.

    level  lowest level of published lines, a key of LEVELS; None: that of the log
    """

    def __init__(self, exchange: LogExchange, level: str | None) -> None:
        self._root = root = logging.getLogger()
        self._before = root.level
        filters = (one for handler in root.handlers for one in handler.filters)
        flood = next((one for one in filters if isinstance(one, FloodFilter)), FloodFilter())
        self._handler = ExchangeHandler(exchange, flood)
        self._raised: list[logging.Handler] = []
        if level is not None:
            self._handler.setLevel(LEVELS[level])
            if LEVELS[level] < self._before:
                # Standard error gets no more lines than it is to have.
                self._raised = [one for one in root.handlers if one.level < self._before]
                for one in self._raised:
                    one.setLevel(self._before)
                root.setLevel(LEVELS[level])
        root.addHandler(self._handler)

    def end(self) -> None:
        """Publish no more lines: the loop ends."""
        self._root.removeHandler(self._handler)
        self._root.setLevel(self._before)
        for one in self._raised:
            one.setLevel(logging.NOTSET)
        self._raised = []


def is_told(times: int) -> bool:
    """Return whether a failure is logged that has come so often in a row, this time included.

    The first, the second, the fourth, the eighth time and so on: of one each second 17 in a day. A
    log that got them all would fill what space there is, and hide what else it says.
    """
    return times & (times - 1) == 0
