"""Measurement of reads of the log."""

from __future__ import annotations

from collections.abc import Callable


class ReadWatch:
    """A context manager that measures reads on the loop's thread: `with watch: read()`.

    Such a read cannot be moved to another thread like a write: its caller needs the bytes to
    continue. While the disk does not answer, the loop is blocked, and other nodes suspect this one.

    since_ms  when the read in progress began; None: there is none. May be read by any thread
    clock_ms  a monotonic clock
    """

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._longest_ms = 0
        self.since_ms: int | None = None

    def __enter__(self) -> None:
        self.since_ms = self._clock_ms()

    def __exit__(self, *error: object) -> None:
        began_ms, self.since_ms = self.since_ms, None
        assert began_ms is not None, "exit without enter"
        self._longest_ms = max(self._longest_ms, self._clock_ms() - began_ms)

    def take_ms(self) -> int:
        """Return how long the longest read since the last call took."""
        longest_ms, self._longest_ms = self._longest_ms, 0
        return longest_ms
