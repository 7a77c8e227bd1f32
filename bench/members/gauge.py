"""Measurement of commits in the leader's process; standard library only."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

WARMUP_S = 1.5


@dataclass(frozen=True)
class Task:
    """The command line: NUMBER FIRST_PORT DIRECTORY OUTSTANDING SECONDS BYTES.

    Member i of 3 has the ports first_port + 2 i and the next one.
    """

    number: int
    first_port: int
    directory: Path
    outstanding: int
    seconds: float
    size: int

    def port(self, member: int) -> int:
        """Return a member's first port."""
        return self.first_port + 2 * member


def task() -> Task:
    """Return the task on this process's command line."""
    number, first_port, directory, outstanding, seconds, size = sys.argv[1:]
    return Task(
        int(number), int(first_port), Path(directory), int(outstanding), float(seconds), int(size)
    )


class Gauge:
    """A load of `outstanding` commands, each timed from proposal to applied.

    propose(number)  sends a command of that number
    """

    def __init__(self, task: Task, propose: Callable[[int], None]) -> None:
        self._task = task
        self._propose = propose
        self._sent: dict[int, float] = {}
        self._next = 0
        self._from = self._end = 0.0
        self._times: list[float] = []
        self._told = False

    def start(self) -> None:
        """Begin to propose, once this member leads and the others follow."""
        self._from = time.monotonic() + WARMUP_S
        self._end = self._from + self._task.seconds
        for _ in range(self._task.outstanding):
            self._one()

    def _one(self) -> None:
        self._next += 1
        self._sent[self._next] = time.monotonic()
        self._propose(self._next)

    def done(self, number: int) -> None:
        """Record that a command was applied (committed, as the library defines it)."""
        now = time.monotonic()
        sent = self._sent.pop(number)
        if self._from <= now < self._end:
            self._times.append(now - sent)
        if now < self._end:
            self._one()
        elif not self._told:
            self._told = True
            self._tell()

    def _tell(self) -> None:
        times = sorted(self._times)
        print(
            json.dumps(
                {
                    "commits_per_s": len(times) / self._task.seconds,
                    "p50_ms": 1e3 * times[len(times) // 2] if times else None,
                    "p99_ms": 1e3 * times[len(times) * 99 // 100] if times else None,
                }
            ),
            flush=True,
        )
