"""The ends of the nodes' logs beside a failure: all that a run on another machine leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

TAIL_LINES = 40
"""Lines of each log that are shown."""
LOGS_MAX = 9


def logs_under(directories: list[Path]) -> list[Path]:
    """Return the logs of the nodes below these directories, each once."""
    found = {
        log
        for directory in directories
        if directory.is_dir()
        for pattern in ("node-*/log.txt", "*/node-*/log.txt", "*/*/node-*/log.txt")
        for log in directory.glob(pattern)
    }
    return sorted(found)[:LOGS_MAX]


def directories_of(item: pytest.Item) -> Iterator[Path]:
    """Yield the directories of a test's clusters: its own one, and those of its fixtures."""
    for value in getattr(item, "funcargs", {}).values():
        if isinstance(value, Path):
            yield value
        for holder in (value, getattr(value, "cluster", None)):
            directory = getattr(holder, "directory", None)
            if isinstance(directory, Path):
                yield directory


def show_logs(item: pytest.Item, report: pytest.TestReport) -> None:
    """Add the ends of the nodes' logs to a failure's report."""
    for log in logs_under(list(directories_of(item))):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        title = f"the last {min(len(lines), TAIL_LINES)} of {len(lines)} lines of {log}"
        report.sections.append((title, "\n".join(lines[-TAIL_LINES:])))
