"""What the Raft runtime of a node measures: plain numbers, which cost nothing until they are read.

Each is changed by what it is about, where that happens, once per turn, sync or Ready, and never
per message. Where that is on the way of a message, it is done in place and without a function call:
`tests/instructions` counts these. Nothing is gathered, and no lock is taken, until `Host.measures`
is called for a scrape; the metrics of the broker give them their names.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Bounds of what takes time, from a write to a page cache to a disk that hangs."""
SIZES: Final = tuple(1 << bits for bits in range(8, 27, 2))
"""Bounds of bytes, 256 to 64 MiB."""
COUNTS: Final = tuple(1 << bits for bits in range(0, 15, 2))
"""Bounds of numbers of things."""


class Histogram:
    """A number of observations in buckets with fixed upper bounds.

    counts  of each bucket, not of those below it; the last one has what exceeds all bounds
    total   the sum of what was observed
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one; where messages pass, these two lines stand in place of the call."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(frozen=True, slots=True)
class RaftMeasures:
    """What a node's Raft runtime has measured since its start, and what it has now.

    turns       seconds of a turn of the loop, without the wait for something to do
    lags        seconds by which the loop's timers were late, the latest of each turn
    syncs       seconds of a sync of the log
    sync_bytes, sync_records  of one write and sync of the log; records: entries, terms and votes
    commits     seconds from the taking of a leader's entry until it was committed and applied; of
                each group one entry at a time is followed
    applies     seconds that applying took in one turn
    elections, elections_won  for which members of this node have stood, and that they have won
    leader_changes  of the groups with a member here, as this node saw them; not their first leader
    snapshots   written here; sent, and installed: those for and of other nodes
    compactions, compacted_bytes  cycles over the log's files, and what they have written again
    wal_files, wal_bytes, backlog_bytes  of the write-ahead log; backlog: not on disk yet
    segments, segment_bytes  of what compaction has written
    memtable_bytes, memtable_bytes_max  entries that are kept in memory
    sending, receiving  snapshot transfers under way
    disk        `stalled_disk.Condition`: 0 quick, 1 slow, 2 it does not answer
    peers       peers by condition: connected, suspected, or neither: connecting
    """

    turns: Histogram
    lags: Histogram
    syncs: Histogram
    sync_bytes: Histogram
    sync_records: Histogram
    commits: Histogram
    applies: Histogram
    elections: int
    elections_won: int
    leader_changes: int
    snapshots: int
    snapshots_sent: int
    snapshots_installed: int
    compactions: int
    compacted_bytes: int
    wal_files: int
    wal_bytes: int
    backlog_bytes: int
    segments: int
    segment_bytes: int
    memtable_bytes: int
    memtable_bytes_max: int
    sending: int
    receiving: int
    disk: int
    peers: dict[str, int]
