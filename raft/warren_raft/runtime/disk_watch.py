"""The condition of this node's disk, judged by the log's writes and reads."""

from __future__ import annotations

from enum import IntEnum

SLOW_PART = 4
"""A write that takes this fraction of `stall_ms` makes the disk slow."""
QUIET_STALLS = 5
"""A slow disk is quick again after this multiple of `stall_ms` without a slow write."""
QUIET_DOUBLED_MAX = 4
"""The quiet time doubles with every stall that follows soon, at most this many times."""


class Condition(IntEnum):
    """The condition of the disk, the best first."""

    QUICK = 0
    SLOW = 1
    STALLED = 2


class DiskWatch:
    """A detector that distinguishes a disk that hangs from one that is slow.

    It samples at every heartbeat: a write that is in progress at two samples has taken at least the
    time between them. STALLED lasts as long as one write; SLOW ends after a quiet time. Leadership
    moves from a STALLED disk to QUICK ones only, so the two limits are far apart:
    1. Every sync of every member takes about `stall_ms`.  2. A leader transfers to a member that
    happens to be between two syncs.  3. That one stalls, transfers, and so on: nothing is
    committed. With the two limits all of them are SLOW, and the leader stays.
    A read in progress blocks the loop, so that there are no samples; its duration is reported
    afterwards and counts for one sample.
    A process that was stopped itself (a long pause between two samples) restarts the measurement,
    unless the write in progress has stalled already: it still hangs.
    Times are milliseconds of one monotonic clock.
    Invariant: `since_ms` is None exactly while no write is in progress
    """

    def __init__(self, stall_ms: int) -> None:
        self._stall_ms = stall_ms
        self._writes = 0
        self._looked_ms: int | None = None
        self.since_ms: int | None = None
        self.condition = Condition.QUICK
        self._slow_ms = 0
        self._stalled_ms: int | None = None
        self._doubled = 0

    def look(self, now_ms: int, writes: int, busy: bool, read_ms: int = 0) -> Condition:
        """Take a sample and return the disk's condition.

        writes    completed since the start; busy: another one is in progress
        read_ms   how long the longest read took since the last sample
        """
        last_ms = now_ms if self._looked_ms is None else self._looked_ms
        paused = (now_ms - last_ms) * 2 > self._stall_ms
        hung = self.age_ms(last_ms) >= self._stall_ms
        self._looked_ms = now_ms
        if writes != self._writes or not busy or (paused and not hung):
            self._writes, self.since_ms = writes, None
        if busy and self.since_ms is None:
            self.since_ms = now_ms
        age_ms = max(self.age_ms(now_ms), read_ms)
        if age_ms >= self._stall_ms:
            if self.condition is not Condition.STALLED:
                self._stalls(now_ms)
            self.condition, self._slow_ms = Condition.STALLED, now_ms
        elif age_ms * SLOW_PART >= self._stall_ms:
            self.condition, self._slow_ms = Condition.SLOW, now_ms
        elif self.condition is Condition.STALLED:
            self.condition = Condition.SLOW
        elif self.condition is Condition.SLOW and now_ms - self._slow_ms >= self.quiet_ms:
            self.condition = Condition.QUICK
        return self.condition

    def _stalls(self, now_ms: int) -> None:
        last, self._stalled_ms = self._stalled_ms, now_ms
        if last is not None and now_ms - last < 2 * QUIET_STALLS * self.quiet_ms:
            self._doubled = min(self._doubled + 1, QUIET_DOUBLED_MAX)
        else:
            self._doubled = 0

    def age_ms(self, now_ms: int) -> int:
        """Return how long the write in progress has been observed; 0: there is none."""
        return 0 if self.since_ms is None else now_ms - self.since_ms

    @property
    def quiet_ms(self) -> int:
        """The time without a slow write after which the disk is quick again."""
        return (self._stall_ms * QUIET_STALLS) << self._doubled
