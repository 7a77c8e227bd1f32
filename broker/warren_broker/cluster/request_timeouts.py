"""Timeouts of requests that wait for an answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from warren_raft.runtime.loop import Loop

SWEEP_MS = 250
"""Maximum delay of a timeout."""


class RequestTimeouts:
    """Pending requests with one common timeout; an answered request leaves nothing behind.

    Invariants: `_waiting` is in the order of its deadlines; while it is not empty a sweep is
    scheduled.
    """

    def __init__(self, loop: Loop, timeout_ms: int) -> None:
        self._loop = loop
        self._waiting: dict[int, tuple[int, Callable[[], None]]] = {}
        self._last = 0
        self._planned = False
        self.timeout_ms = timeout_ms

    def add(self, give_up: Callable[[], None]) -> int:
        """Call `give_up` unless `answered` is called with the number returned before."""
        self._last += 1
        self._waiting[self._last] = (self._loop.now_ms + self.timeout_ms, give_up)
        if not self._planned:
            self._planned = True
            self._loop.call_later(min(SWEEP_MS, self.timeout_ms), self._sweep)
        return self._last

    def answered(self, number: int) -> bool:
        """Record that the answer came; return False when the request had timed out."""
        return self._waiting.pop(number, None) is not None

    def _sweep(self) -> None:
        self._planned = False
        now = self._loop.now_ms
        due = list(takewhile(lambda each: each[1][0] <= now, self._waiting.items()))
        for number, (_, give_up) in due:
            if self.answered(number):
                give_up()
        if self._waiting and not self._planned:
            self._planned = True
            self._loop.call_later(min(SWEEP_MS, self.timeout_ms), self._sweep)
