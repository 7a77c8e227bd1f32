"""The bound on how many bytes of recent entries all groups hold in memory."""

from __future__ import annotations

from collections import deque

from warren_raft.storage.group_log import GroupLog
from warren_raft.types import Entry, Index

ENTRY_OVERHEAD_BYTES = 200
"""What an entry costs beside its data: itself, its numbers, its place in dictionary and queue."""


class Memtable:
    """Oldest out first, over all groups of a node; volatile groups are not counted.

    `add` is for entries that are on disk. An entry that is truncated leaves its line, which may
    drop its successor at that index early: that one is then read from disk.
    Invariants: bytes_held counts every line's overhead, and its data unless its group was dropped
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._queue: deque[tuple[GroupLog, Index, int]] = deque()

    def add(self, log: GroupLog, entry: Entry) -> None:
        """Count an entry of `log` that is held in memory and on disk now."""
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
        """Forget a deleted group and what it held."""
        self.bytes_held -= log.bytes_counted
        log.bytes_counted = 0
        log.drop()
