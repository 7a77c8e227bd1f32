"""How long the disk takes for reads of the log."""

from __future__ import annotations

from collections.abc import Callable


class ReadWatch:
    """Measures reads that are made on the loop's thread: `with watch: read()`.

    Such a read cannot be left to another thread as a write is: what asked for it needs its bytes to
    continue. While a disk does not answer, the loop stands, and the other nodes suspect this one.

    since_ms  when the read under way began; None: there is none. May be looked at by any thread
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
        assert began_ms is not None, "a read ends that did not begin"
        self._longest_ms = max(self._longest_ms, self._clock_ms() - began_ms)

    def take_ms(self) -> int:
        """How long the longest read took since this was asked last."""
        longest_ms, self._longest_ms = self._longest_ms, 0
        return longest_ms
