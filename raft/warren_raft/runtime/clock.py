"""The clocks of the machine."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time; neither clock moves backwards."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary moment; for delays."""

    def epoch_ms(self) -> int:
        """Return milliseconds since the epoch; for the stamps of entries."""


class SystemClock:
    """The operating system's clocks, without backward steps.

    The wall clock's steps forward are followed; after a step back time continues at its ordinary
    pace from where it was: it stays ahead of the wall clock until the process is restarted, but no
    deadline waits for the wall clock to catch up.
    Invariant: epoch - monotonic never decreases.
    """

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def monotonic_ms(self) -> int:
        """See Clock."""
        return time.monotonic_ns() // 1_000_000

    def epoch_ms(self) -> int:
        """See Clock."""
        monotonic = time.monotonic_ns()
        offset = time.time_ns() - monotonic
        if offset > self._offset_ns:
            self._offset_ns = offset
        return (monotonic + self._offset_ns) // 1_000_000
