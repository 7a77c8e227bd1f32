"""A node's log: no client forges a line or fills the disk with lines."""

from __future__ import annotations

import logging
import sys

from warren_broker.logs import (
    BOUNDED_LOGGER,
    BURST_LINES,
    KINDS_MAX,
    LINES_PER_SECOND,
    FloodFilter,
    OneLineFormatter,
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
        name: str = BOUNDED_LOGGER + ".client091",
    ) -> logging.LogRecord | None:
        made = record(message, "10.0.0.1", name=name, level=level)
        return made if flood.filter(made) else None

    passed = [passes() is not None for _ in range(BURST_LINES + 500)]
    assert passed == [True] * BURST_LINES + [False] * 500
    assert passes("another kind") is not None
    assert passes(level=logging.CRITICAL) is not None
    assert passes(name="warren_broker.cluster") is not None
    assert passes(name=BOUNDED_LOGGER + "x") is not None
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
        assert flood.filter(record(f"kind {number}", name=BOUNDED_LOGGER))
        assert len(flood._buckets) <= KINDS_MAX
