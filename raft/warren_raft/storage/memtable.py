"""The bound on the bytes of recent entries that all groups hold in memory."""

from __future__ import annotations

from collections import deque

from warren_raft.storage.group_log import GroupLog
from warren_raft.types import Entry, Index

ENTRY_OVERHEAD_BYTES = 270
"""Overhead of an entry beside its data: the object, its numbers, its dictionary and queue slots.

Of a settlement of 40 bytes it is most: counted too low, a memtable of them exceeds its bound.
"""


class Memtable:
    """A cache of the recent entries of all groups but volatile ones; the oldest are dropped first.

    `add` is for entries that are on disk. A truncated entry leaves its item, which may drop the
    successor at that index early: that one is then read from disk.
    Invariants: bytes_held counts every item's overhead, and its data unless its group was dropped
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._queue: deque[tuple[GroupLog, Index, int]] = deque()

    def add(self, log: GroupLog, entry: Entry) -> None:
        """Count an entry of `log` that is in memory and on disk now."""
        if log.dropped:
            return
        size = len(entry.data)
        self._queue.append((log, entry.index, size))
        log.bytes_counted += size
        self.bytes_held += size + ENTRY_OVERHEAD_BYTES
        while self.bytes_held > self.bytes_max:
            self._let_go()

    def _let_go(self) -> None:
        log, index, size = self._queue.popleft()
        self.bytes_held -= ENTRY_OVERHEAD_BYTES
        if not log.dropped:
            self.bytes_held -= size
            log.bytes_counted -= size
            log.forget(index)

    def drop(self, log: GroupLog) -> None:
        """Forget a deleted group and its entries."""
        self.bytes_held -= log.bytes_counted
        log.bytes_counted = 0
        log.drop()
