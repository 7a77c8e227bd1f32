"""Levels of the log by category, and its latest lines, as the node is asked for them."""

from __future__ import annotations

import logging
from collections import deque
from datetime import UTC, datetime
from typing import Final, get_args

from warren_broker.process.logs import FloodFilter
from warren_broker.process.structured_logs import fields_of, kind_of
from warren_wire.admin.logs import (
    LATEST_LINES_MAX,
    Category,
    ListLogLinesRequest,
    LoggedLine,
    LogLevelInfo,
    SetLogLevelRequest,
)
from warren_wire.quoting import escaped

LOGGERS: Final[dict[str, tuple[str, ...]]] = {
    "default": ("",),
    "connection": tuple(
        f"warren_broker.{name}" for name in ("clients", "clients091", "clients10", "listeners")
    ),
    "tokens": ("warren_broker.tokens",),
    "queue": ("warren_broker.cluster",),
    "membership": ("warren_broker.cluster.membership",),
    "raft": ("warren.raft",),
    "admin": ("warren_broker.admin",),
    "http": ("warren_broker.http",),
    "shovel": ("warren_broker.transfers.shovel",),
    "federation": ("warren_broker.transfers.federation",),
}
"""The loggers of each category; the longest name counts."""
assert set(LOGGERS) == set(get_args(Category))
KEPT_CHARACTERS_MAX: Final = 2_000


def levels_of(node: str) -> tuple[LogLevelInfo, ...]:
    """Return the level of each category."""
    return tuple(
        LogLevelInfo(node, category, _word(logging.getLogger(names[0]).level))
        for category, names in LOGGERS.items()
    )


def _word(level: int) -> str:
    return "default" if level == logging.NOTSET else logging.getLevelName(level).lower()


def set_level(category: str, level: str) -> None:
    """Set a category's level; `default` of the category default is INFO."""
    number = logging.NOTSET if level == "default" else logging.getLevelNamesMapping()[level.upper()]
    for name in LOGGERS[category]:
        logging.getLogger(name).setLevel(number if name or number else logging.INFO)


class LatestLines(logging.Handler):
    """Keeps the latest LATEST_LINES_MAX lines of the log in memory, of those that are written."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node
        self._lines: deque[LoggedLine] = deque(maxlen=LATEST_LINES_MAX)
        for handler in logging.getLogger().handlers:
            for one in handler.filters:
                if isinstance(one, FloodFilter):
                    self.addFilter(one)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line; one that cannot be formatted is said by the handler that writes it."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            return
        at = datetime.fromtimestamp(record.created, UTC)
        self._lines.append(
            LoggedLine(
                int(record.created * 1_000_000),
                at.isoformat(timespec="milliseconds"),
                self._node,
                record.levelname.lower(),
                record.name,
                escaped(text[:KEPT_CHARACTERS_MAX]),
                kind_of(str(record.msg)).event,
                fields_of(record),
            )
        )

    def found(self, asked: ListLogLinesRequest) -> tuple[LoggedLine, ...]:
        """Return the latest lines that are asked for, the newest last."""
        least = logging.getLevelNamesMapping()[asked.level.upper()] if asked.level else 0
        known = logging.getLevelNamesMapping()
        found = [
            one
            for one in tuple(self._lines)
            if asked.contains in one.text and known.get(one.level.upper(), 0) >= least
        ]
        return tuple(found[-asked.count :])


def changed(node: str, asked: SetLogLevelRequest) -> tuple[LogLevelInfo, ...]:
    """Set a level of this node; return all of them."""
    set_level(asked.category, asked.level)
    return levels_of(node)
