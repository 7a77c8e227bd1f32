"""The event queue of a simulated world; the order of events depends only on the seed."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Agenda:
    """Virtual time in milliseconds; events of one moment run in the order of their scheduling."""

    __slots__ = ("events", "now_ms", "planned", "run_count")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.planned = 0
        self.run_count = 0
        self.events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, when_ms: int, act: Callable[..., None], *args: Any) -> None:
        """Schedule `act(*args)`; a time before the present one means now."""
        self.planned += 1
        heapq.heappush(self.events, (max(when_ms, self.now_ms), self.planned, act, args))

    def after(self, delay_ms: int, act: Callable[..., None], *args: Any) -> None:
        """Schedule `act(*args)` that much later."""
        self.planned += 1
        heapq.heappush(self.events, (self.now_ms + delay_ms, self.planned, act, args))

    def drop(self, unwanted: Callable[[Callable[..., None]], bool]) -> None:
        """What is unwanted does not happen; the rest does, in the same order."""
        self.events = [event for event in self.events if not unwanted(event[2])]
        heapq.heapify(self.events)

    def run_until(self, when_ms: int, stop: Callable[[], bool] | None = None) -> bool:
        """Run all events up to that time; return whether `stop` ended it before."""
        events = self.events
        while events and events[0][0] <= when_ms:
            moment, _, act, args = heapq.heappop(events)
            assert moment >= self.now_ms, (moment, self.now_ms)
            self.now_ms = moment
            self.run_count += 1
            act(*args)
            if stop is not None and stop():
                return True
        self.now_ms = when_ms
        return False
