"""Transfer of this node's leaderships while its disk does not answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from warren_raft.core.quorum import majority
from warren_raft.runtime.group import Group
from warren_raft.storage.log_files import ReadWatch
from warren_raft.storage.log_store import LogStore
from warren_raft.types import GroupId, NodeId

SLOW_PART = 4
"""A write that takes this fraction of `stall_ms` makes the disk slow."""
QUIET_STALLS = 5
"""A slow disk is quick again after this multiple of `stall_ms` without a slow write."""
QUIET_DOUBLED_MAX = 4
"""The quiet time doubles with every stall that follows soon, at most this many times."""
log = logging.getLogger("warren.raft")
HAND_OVERS_MAX = 256
"""Leaderships transferred per heartbeat."""
RETRY_STALLS = 2
"""A transfer that did not succeed is repeated after this multiple of `stall_ms`."""


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


@dataclass(eq=False, repr=False)
class StalledDisk:
    """A guard that moves leadership away from a disk that does not answer.

    1. A leader's disk hangs. The other members commit without it, until what waits for the disk
    exceeds `wal_backlog_bytes_max`: then nothing is applied here, and nothing is answered.  2. The
    node sends heartbeats all the time, so no other member campaigns. So the node transfers its
    leaderships itself, group by group, to a member with a quick disk, where the members with disks
    that answer are a majority without it; otherwise no member could commit, and it stays the
    leader. It takes no leadership until the write is done.

    A read that hangs blocks the loop's thread itself. Then the node sends no heartbeats, and the
    others elect leaders without it, as if its process were stopped. When the read is done, it
    counts like a write that took as long.

    slow     this node's disk is not quick: no new group is to be placed here
    stalled  it does not answer
    Peers send each other their condition when it changes, see `codec`; one that has sent none on
    the present connection is quick.

    tell: sends the condition to a peer, None: to all of them.
    """

    own: NodeId
    place: Path
    stall_ms: int
    groups: dict[GroupId, Group]
    touch: Callable[[Group], None]
    tell: Callable[[NodeId | None, int], None]
    epoch_ms: Callable[[], int]
    _peers: dict[NodeId, int] = field(default_factory=dict)
    _offered: dict[GroupId, tuple[int, int]] = field(default_factory=dict)
    _read_ms: int = 0
    _told_of_ms: int | None = None
    condition: Condition = Condition.QUICK
    _watch: DiskWatch = field(init=False)

    def __post_init__(self) -> None:
        self._watch = DiskWatch(self.stall_ms)

    @property
    def stalled(self) -> bool:
        """Whether this node takes no leadership now."""
        return self.condition is Condition.STALLED

    # ------------------------------------------------------------ peers

    def slow(self, node: NodeId) -> bool:
        """Return whether the disk of that node, or of this one, is not quick."""
        known = self.condition if node == self.own else self._peers.get(node, Condition.QUICK)
        return known != Condition.QUICK

    def peer_up(self, node: NodeId) -> None:
        """Reset the peer's condition and send it this node's: the connection is new."""
        self._peers.pop(node, None)
        if self.condition is not Condition.QUICK:
            self.tell(node, self.condition)

    def peer_said(self, node: NodeId, condition: int) -> None:
        """Record the condition of the peer's disk."""
        self._peers[node] = condition

    # ------------------------------------------------------------ this node

    def begun(self, group: Group) -> None:
        """Take a group that was started into account."""
        if self.stalled and not group.volatile:
            group.node.disk_stalled(True, self.epoch_ms())

    def watch_read(self, now_ms: int, reads: ReadWatch) -> None:
        """Log a read that does not return, once, on the guard's thread: the loop's is blocked."""
        since_ms = reads.since_ms
        if since_ms is None or since_ms == self._told_of_ms or now_ms - since_ms < self.stall_ms:
            return
        self._told_of_ms = since_ms
        log.error(
            "%s: the disk under %s does not answer: a read of the log has been under way for %d ms "
            "(suspect_after_ms %d). This node does not respond until it is done; the others "
            "elect leaders without it",
            self.own,
            self.place,
            now_ms - since_ms,
            self.stall_ms,
        )

    def beat(self, now_ms: int, logs: LogStore) -> None:
        """Sample the disk, once per heartbeat interval; now_ms: of the monotonic clock."""
        wal = logs.wal
        # A disk without space is handled elsewhere: its node transfers for that reason.
        busy = not wal.idle and wal.full is None
        before, age_ms = self.condition, max(self._read_ms, self._watch.age_ms(now_ms))
        self._read_ms = logs.log_files.reads.take_ms()
        self.condition = self._watch.look(now_ms, wal.batches, busy, self._read_ms)
        if self.condition is not before:
            self.tell(None, self.condition)
            self._changed(before, now_ms, age_ms)
        if self.stalled:
            moved, kept = self._hand_over(now_ms)
            if before is not Condition.STALLED:
                log.error(
                    "%s: the disk under %s does not answer: %s (suspect_after_ms %d). This node "
                    "takes no leadership until it does. Groups led here: %d, transferred: %d, kept "
                    "because no other majority has quick disks: %d",
                    self.own,
                    self.place,
                    self._slowest(now_ms),
                    self.stall_ms,
                    moved + kept,
                    moved,
                    kept,
                )

    def _changed(self, before: Condition, now_ms: int, age_ms: int) -> None:
        if self.stalled or before is Condition.STALLED:
            epoch_ms = self.epoch_ms()
            for group in list(self.groups.values()):
                if not group.volatile:
                    group.node.disk_stalled(self.stalled, epoch_ms)
                    self.touch(group)
        if before is Condition.STALLED:
            self._offered.clear()
            log.warning(
                "%s: the disk under %s answers again, after %d ms: this node may lead again",
                self.own,
                self.place,
                age_ms,
            )
        elif self.condition is Condition.SLOW:
            log.warning(
                "%s: the disk under %s is slow: %s",
                self.own,
                self.place,
                self._slowest(now_ms),
            )
        elif self.condition is Condition.QUICK:
            log.info(
                "%s: the disk under %s is quick again: no slow write or read for %d ms",
                self.own,
                self.place,
                self._watch.quiet_ms,
            )

    def _slowest(self, now_ms: int) -> str:
        age_ms = self._watch.age_ms(now_ms)
        if self._read_ms > age_ms:
            return f"a read of the log took {self._read_ms} ms"
        return f"a write of the log has been under way for {age_ms} ms"

    def _hand_over(self, now_ms: int) -> tuple[int, int]:
        """Transfer what this node leads; return the numbers of groups transferred and kept."""
        moved = kept = 0
        for group in self.groups.values():
            lead = group.node.leadership
            if lead is None or lead.transfer_to is not None or group.volatile:
                continue
            again_ms, times = self._offered.get(group.id, (now_ms, 0))
            if now_ms < again_ms or moved >= HAND_OVERS_MAX:
                continue
            successor = self._successor(group, times)
            if successor is None:
                kept += 1
                continue
            moved += 1
            self._offered[group.id] = now_ms + RETRY_STALLS * self.stall_ms, times + 1
            group.node.transfer_leader(successor, self.epoch_ms())
            self.touch(group)
        return moved, kept

    def _successor(self, group: Group, times: int) -> NodeId | None:
        """Return a voter with a quick disk that holds the most entries.

        None: there is none, or the voters with disks that answer at all are no majority.
        """
        node = group.node
        lead, members = node.leadership, node.membership
        assert lead is not None
        answer = [
            voter
            for voter in members.voters
            if voter != self.own
            and self._peers.get(voter) != Condition.STALLED
            and node.hears(lead, voter, members)
        ]
        quick = [voter for voter in answer if not self.slow(voter)]
        if not quick or len(answer) < majority(len(members.voters)):
            return None
        most = max(lead.progress[voter].match for voter in quick)
        best = [voter for voter in quick if lead.progress[voter].match == most]
        return best[(group.id + times) % len(best)]
