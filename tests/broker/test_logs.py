"""A node's log: no client forges a line or fills the disk with lines."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import re
import select
import sys
import time
from collections.abc import Iterator

import pytest

from tests.patience import PATIENCE_S, PROMPTLY_S
from warren_broker.cluster.client.node_messages import LogExchange, LogLine
from warren_broker.process.logs import (
    BOUNDED_LOGGERS,
    BURST_LINES,
    KINDS_MAX,
    LINES_PER_SECOND,
    WAITING_CHARACTERS_MAX,
    FloodFilter,
    JournalFormatter,
    LogPublishing,
    OneLineFormatter,
    StandardError,
    is_journal,
)


def record(
    message: str,
    *args: object,
    name: str = "x",
    level: int = logging.INFO,
    error: BaseException | None = None,
) -> logging.LogRecord:
    """A record as a logger makes it."""
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord(name, level, "f.py", 1, message, args, info)


def test_a_message_is_one_line_whatever_is_in_it() -> None:
    forged = "bye\n2026-01-01T00:00:00.000 CRITICAL warren: all is lost\x1b[2J\x9b"
    line = OneLineFormatter().format(record("closed: %s", forged))
    assert "\n" not in line and "\x1b" not in line and "\x9b" not in line
    assert line.endswith(
        "INFO x: closed: bye\\n2026-01-01T00:00:00.000 CRITICAL warren: all is lost\\x1b[2J\\x9b"
    )


def test_a_logger_name_is_no_way_in() -> None:
    assert "\n" not in OneLineFormatter().format(record("m", name="a\nb"))


def test_a_traceback_begins_no_line_of_its_own() -> None:
    try:
        raise ValueError("x\n2026-01-01T00:00:00.000 CRITICAL warren: forged\x1b[2J")
    except ValueError as error:
        lines = OneLineFormatter().format(record("failed", error=error)).split("\n")
    assert lines[0].endswith("INFO x: failed")
    assert len(lines) > 3 and all(line.startswith("  | ") for line in lines[1:])
    assert "  | 2026-01-01T00:00:00.000 CRITICAL warren: forged\\x1b[2J" in lines
    assert sys.exc_info() == (None, None, None)


def test_a_flood_of_one_kind_is_bounded_and_counted() -> None:
    now = 100.0
    flood = FloodFilter(lambda: now)

    def passes(
        message: str = "refused %s",
        level: int = logging.ERROR,
        name: str = BOUNDED_LOGGERS[2] + ".client091",
    ) -> logging.LogRecord | None:
        made = record(message, "10.0.0.1", name=name, level=level)
        return made if flood.filter(made) else None

    passed = [passes() is not None for _ in range(BURST_LINES + 500)]
    assert passed == [True] * BURST_LINES + [False] * 500
    assert passes("another kind") is not None
    assert passes(level=logging.CRITICAL) is not None
    assert passes(name="warren_broker.cluster") is not None
    assert passes(name=BOUNDED_LOGGERS[0] + "x") is not None
    now += 1.0
    later = [passes() for _ in range(3 * LINES_PER_SECOND)]
    assert [made is not None for made in later] == (
        [True] * LINES_PER_SECOND + [False] * 2 * LINES_PER_SECOND
    )
    assert later[0] is not None and later[1] is not None
    assert later[0].getMessage() == "refused 10.0.0.1 (500 more like this were not logged)"
    assert later[1].getMessage() == "refused 10.0.0.1"


def test_strangers_at_the_port_for_peers_are_bounded_too() -> None:
    flood = FloodFilter(lambda: 0.0)
    passed = {}
    for module in ("transport", "host"):
        lines = [record("closed: %s", n, name="warren.raft") for n in range(BURST_LINES + 9)]
        for line in lines:
            line.module = module
        passed[module] = sum(flood.filter(line) for line in lines)
    assert passed == {"transport": BURST_LINES, "host": BURST_LINES + 9}


def test_the_kinds_that_are_counted_are_bounded() -> None:
    flood = FloodFilter(lambda: 0.0)
    for number in range(3 * KINDS_MAX):
        assert flood.filter(record(f"kind {number}", name=BOUNDED_LOGGERS[1]))
        assert len(flood._buckets) <= KINDS_MAX


# ------------------------------------------------------------------ the log exchange


class Exchange(LogExchange):
    """What is told to a log exchange."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.deaf: set[str] = set()

    def takes(self, logger: str) -> bool:
        return logger not in self.deaf

    def tell(self, line: LogLine) -> None:
        self.lines.append(line)


@pytest.fixture
def root() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """The root logger with one handler, as a node's process has it at level INFO."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(FloodFilter(lambda: 0.0))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    yield logger, written
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_lines_go_to_the_exchange_by_their_level(root: tuple[logging.Logger, io.StringIO]) -> None:
    exchange = Exchange()
    publishing = LogPublishing(exchange, None)
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logging.getLogger("some").log(level, "at %d\nforged", level)
    assert [line.level for line in exchange.lines] == ["info", "warning", "error", "critical"]
    assert exchange.lines[0].text.endswith("INFO some: at 20\\nforged")
    assert abs(exchange.lines[0].at_s - time.time()) < 60
    publishing.end()
    logging.getLogger("some").error("later")
    assert len(exchange.lines) == 4


@pytest.mark.parametrize(
    ("level", "published"),
    [
        ("debug", ["debug", "info", "warning", "error", "critical"]),
        ("notice", ["warning", "error", "critical"]),
        ("critical", ["critical"]),
        ("alert", []),
    ],
)
def test_the_exchange_has_a_level_of_its_own(
    root: tuple[logging.Logger, io.StringIO], level: str, published: list[str]
) -> None:
    logger, written = root
    exchange = Exchange()
    publishing = LogPublishing(exchange, level)
    for one in ("debug", "info", "warning", "error", "critical"):
        getattr(logging.getLogger("some"), one)(one)
    assert [line.level for line in exchange.lines] == published
    assert written.getvalue().split() == ["info", "warning", "error", "critical"]
    publishing.end()
    assert logger.level == logging.INFO
    logging.getLogger("some").debug("unseen")
    assert "unseen" not in written.getvalue()


def test_a_flood_is_bounded_once_for_both(root: tuple[logging.Logger, io.StringIO]) -> None:
    _, written = root
    exchange = Exchange()
    publishing = LogPublishing(exchange, None)
    for number in range(BURST_LINES + 50):
        logging.getLogger(BOUNDED_LOGGERS[1]).error("refused %d", number)
    assert len(exchange.lines) == BURST_LINES == len(written.getvalue().split("\n")) - 1
    publishing.end()


def test_lines_about_published_lines_are_not_published(
    root: tuple[logging.Logger, io.StringIO],
) -> None:
    exchange = Exchange()
    exchange.deaf.add("own")
    publishing = LogPublishing(exchange, None)
    logging.getLogger("own").error("dropped")
    assert not exchange.lines and "dropped" in root[1].getvalue()
    publishing.end()


def test_a_line_that_cannot_be_formatted_harms_nobody(
    root: tuple[logging.Logger, io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    exchange = Exchange()
    publishing = LogPublishing(exchange, None)
    logging.getLogger("some").error("%d", "no number")
    logging.getLogger("some").error("next")
    assert [line.text.split()[-1] for line in exchange.lines] == ["next"]
    publishing.end()


# ------------------------------------------------------------------ standard error


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe of one page that is full: a write to it waits."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writing, b"." * 4096)
    yield reading, writing
    os.close(reading)  # which ends the handler's thread's write
    os.close(writing)


def read_some(pipe: tuple[int, int]) -> bytes:
    """What is there to be read, as soon as there is something."""
    assert select.select([pipe[0]], [], [], PATIENCE_S)[0], "nothing comes"
    return os.read(pipe[0], 65_536)


def accounted(text: str) -> int:
    """The lines that were written whole, and those that others say were left out."""
    said = re.findall(r"WARNING warren_broker.process.logs: (\d+) lines were left out here", text)
    return len(re.findall(r" line \d+ x{100}\n", text)) + sum(map(int, said))


def test_lines_that_wait_meet_their_bound_with_their_ends(pipe: tuple[int, int]) -> None:
    """The end of the last line was not counted: one character more than the bound waited."""
    handler = StandardError(pipe[1])
    with handler._changed:  # meanwhile its thread takes nothing
        handler.enqueue("x" * (WAITING_CHARACTERS_MAX - 8))
        handler.enqueue("x" * 7)
        assert (handler._characters, handler._left_out) == (WAITING_CHARACTERS_MAX - 7, 1)
        handler.enqueue("x" * 6)
        assert (handler._characters, handler._left_out) == (WAITING_CHARACTERS_MAX, 1)
    found = b""
    while b"1 lines were left out here" not in found:
        found += read_some(pipe)
    handler.flush()


@pytest.mark.parametrize("blocking", [True, False])
def test_a_hung_reader_of_the_log_holds_up_nothing(pipe: tuple[int, int], blocking: bool) -> None:
    """Non-blocking, as another process may have made it, the lines were lost and not counted."""
    os.set_blocking(pipe[1], blocking)
    handler = StandardError(pipe[1])
    handler.setFormatter(OneLineFormatter())
    began = time.monotonic()
    for number in range(8_000):
        handler.handle(record("line %d %s", number, "x" * 100))
    assert time.monotonic() - began < PROMPTLY_S
    assert handler._characters <= WAITING_CHARACTERS_MAX
    began = time.monotonic()
    handler.flush()
    assert time.monotonic() - began < PROMPTLY_S, "the process's end does not wait for ever"
    assert os.read(pipe[0], 4096) == b"." * 4096
    found, deadline = b"", time.monotonic() + PATIENCE_S
    while accounted(found.decode()) < 8_000 and time.monotonic() < deadline:
        found += read_some(pipe)
    lines = [line for line in found.decode().splitlines() if " line " in line]
    numbers = [int(line.split(" line ")[1].split()[0]) for line in lines]
    assert numbers == sorted(set(numbers)) and numbers[:500] == list(range(500))
    assert accounted(found.decode()) == 8_000
    handler.handle(record("later %s"))
    handler.handle(record("later %d", "x"))
    handler.flush()
    later = os.read(pipe[0], 65_536).decode()
    assert "INFO x: later %s\n" in later
    assert "ERROR warren_broker.process.logs: a line cannot be formatted: 'later %d'" in later


def test_a_closed_standard_error_ends_nothing(pipe: tuple[int, int]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    handler = StandardError(writing)
    for _ in range(3):
        handler.handle(record("line"))
        handler.flush()
    os.close(writing)
    assert handler._waiting == []


@pytest.mark.parametrize(
    ("level", "priority"),
    [
        (logging.DEBUG, 7),
        (logging.INFO, 6),
        (logging.WARNING, 4),
        (logging.ERROR, 3),
        (logging.CRITICAL, 2),
    ],
)
def test_journal_lines_have_syslog_priorities_and_no_time(level: int, priority: int) -> None:
    line = JournalFormatter().format(record("said", level=level))
    assert line == f"<{priority}>{logging.getLevelName(level)} x: said"


def test_each_line_of_a_traceback_has_its_priority_in_the_journal() -> None:
    try:
        raise ValueError("x\n<0>forged")
    except ValueError as error:
        lines = JournalFormatter().format(record("m", level=logging.ERROR, error=error)).split("\n")
    assert len(lines) > 2 and all(line.startswith("<3>") for line in lines)


def test_only_the_journals_own_stream_is_the_journal() -> None:
    read_end, write_end = os.pipe()
    try:
        found = os.fstat(write_end)
        assert is_journal(write_end, f"{found.st_dev}:{found.st_ino}")
        assert not is_journal(write_end, f"{found.st_dev}:{found.st_ino + 1}")
        assert not is_journal(write_end, None) and not is_journal(write_end, "")
    finally:
        os.close(read_end)
        os.close(write_end)
    assert not is_journal(write_end, "1:1"), "closed"
