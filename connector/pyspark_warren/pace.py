"""The pace of polls: Spark polls 95 times a second when idle, queues are asked less often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

IDLE_POLL_MS_MAX: Final = 1000
"""The longest poll interval of an idle query, which grows because each poll is a request."""


class Pace:
    """Waits between polls that found nothing, longer and longer.

    clock_ms     monotonic milliseconds
    sleep_s      waits that many seconds
    interval_ms  after the first poll that found nothing; then twice as long, up to IDLE_POLL_MS_MAX
    """

    def __init__(
        self, clock_ms: Callable[[], int], sleep_s: Callable[[float], None], interval_ms: int
    ) -> None:
        self._clock_ms = clock_ms
        self._sleep_s = sleep_s
        self._interval_ms = interval_ms
        self._poll_at_ms = 0
        self._idle_polls = 0

    @property
    def idle(self) -> bool:
        """Return whether the last poll found nothing."""
        return self._idle_polls > 0

    @property
    def due(self) -> bool:
        """Return whether the next poll is due."""
        return self._poll_at_ms <= self._clock_ms()

    def wait(self) -> None:
        """Wait until the next poll is due."""
        wait_ms = self._poll_at_ms - self._clock_ms()
        if wait_ms > 0:
            self._sleep_s(wait_ms / 1000)

    def found_nothing(self, longest_ms: int = IDLE_POLL_MS_MAX) -> None:
        """Postpone the next poll, at most by that long or by the interval."""
        pause_ms = self._interval_ms << min(self._idle_polls, 16)
        self._poll_at_ms = self._clock_ms() + min(pause_ms, max(self._interval_ms, longest_ms))
        self._idle_polls += 1

    def found_messages(self) -> None:
        """Poll again as soon as Spark asks."""
        self._idle_polls = 0
