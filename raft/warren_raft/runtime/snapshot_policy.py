"""The snapshot policy: keeps disk usage and restart time proportional to the live data."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from warren_raft.index_set import Indexes
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.group import Group
from warren_raft.runtime.held_snapshots import HeldSnapshot, HeldSnapshots
from warren_raft.runtime.loop import Loop
from warren_raft.storage.log_store import LogStore
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import GroupId, Index, Membership

log = logging.getLogger(__name__)

ENTRIES_MANY = 4_096
"""A group that applied more gets a snapshot at a WAL file's end, however small the entries."""
LIVE_SHARE = 8
"""A snapshot's cost grows with the live entries: at least this fraction of them must be new."""
DEAD_BYTES_MANY = 16 << 20
"""Dead bytes of a group that justify a snapshot however few entries it has applied."""
LARGE_LIVE_MAX = 4_096
"""Live entries up to which a group with few new ones is examined for such dead bytes."""
RECLAIM_BYTES_MIN = 64 << 10
"""Dead bytes of a group that justify a snapshot while the disk is low on space."""
RECLAIM_GROUPS_MAX = 256
"""Groups per cycle then; those that free most come first."""
LOOK_EVERY_MS = 2_000
"""Time between two looks when no WAL file was completed."""
LOOK_FAST_MS = 500
"""The same of a log in which a quarter of a file was written since."""
BARELY_BEGUN_SHARE = 16
"""A newest file with less than that of its size is left for a spare one."""


def due_snapshot(group: Group, closed: bool, config: HostConfig) -> Snapshot | None:
    """Return a snapshot of the group's present state if it is worth its cost.

    closed  a WAL file is complete: its entries of the group are to become final
    """
    look, held_log = group.last_look, group.store.log
    new = group.applied - look.applied
    few = new < max(config.snapshot_entries_min, look.live // LIVE_SHARE)
    if group.volatile or group.pinned or not new:
        return None
    # 1. A batch of Spark is some dozens of entries, settled by one.  2. Without this a queue
    # that has given 400 MB to four batches keeps all of it, as ten entries are few.
    # Replayed by tests/raft/runtime/test_large_entries.py
    held = 0 if few and look.live > LARGE_LIVE_MAX else held_log.held_bytes(group.applied)
    if few and held < DEAD_BYTES_MANY:
        return None
    members = group.node.membership_at(group.applied)
    if members is None:
        return None  # it joins, and does not know the group's members yet
    live = group.machine.live_indexes(group.state)
    look.live = len(live)
    since = group.applied - group.store.snapshot_index
    dead = held - held_log.needed_bytes(live)
    if closed and few:
        worth = dead >= DEAD_BYTES_MANY
    elif closed:
        worth = held > config.snapshot_bytes_min or since > ENTRIES_MANY
    else:
        look.mostly_dead = dead > held // 2
        # 1. A queue holds five batches of Spark, 700 MB, and one of them is settled.  2. That is
        # less than half of it.  3. The next batch is written to new files, in memory that costs
        # more than the copy into it, while those of the first could be written over.
        # Replayed by tests/raft/runtime/test_large_entries.py
        enough = held // 2
        if look.live <= LARGE_LIVE_MAX:
            enough = min(enough, config.wal_file_bytes)
        worth = dead > max(enough, config.wal_file_bytes // 4, DEAD_BYTES_MANY if few else 0)
    if worth or not few:
        look.applied = group.applied
    return take(group, live, members) if worth else None


def is_large(group: Group) -> bool:
    """Return whether so much of the group's log could be dead that it justifies a snapshot."""
    return not group.volatile and group.store.log.held_bytes(group.applied) >= DEAD_BYTES_MANY


def dead_bytes(group: Group) -> int:
    """Return the bytes a snapshot would free; 0 when nothing was applied since the last look.

    For a disk that is low on space: however few entries are new. A few acknowledgements may have
    freed a hundred megabytes, and no more may come, because publishers are blocked.
    """
    look = group.last_look
    if group.volatile or group.pinned or group.applied == look.applied:
        return 0
    if group.node.membership_at(group.applied) is None:
        return 0
    live = group.machine.live_indexes(group.state)
    look.applied, look.live = group.applied, len(live)
    held = group.store.log
    return held.held_bytes(group.applied) - held.needed_bytes(live)


def take(group: Group, live: Sequence[Index], members: Membership) -> Snapshot:
    """Return a snapshot of the group's present state; members: as of the last applied entry."""
    store = group.store
    index = group.applied
    return Snapshot(
        group.id,
        index,
        store.log.term(index),
        group.applied_ms,
        store.born,
        group.machine.form(group.state),
        members.voters,
        members.learners,
        Indexes.of(live).tobytes(),
        group.machine.snapshot(group.state),
        members.ids,
        store.base,
    )


def take_now(group: Group) -> Snapshot | None:
    """Return a snapshot to replace one with a damaged file; None: not possible now."""
    members = group.node.membership_at(group.applied)
    if group.volatile or group.pinned or members is None:
        return None
    return take(group, group.machine.live_indexes(group.state), members)


@dataclass(eq=False, repr=False)
class SnapshotPolicy:
    """The policy: looks at groups when a WAL file is complete, else every two seconds.

    It looks at those that have applied entries since its last look: for the others nothing has
    changed, so that 10,000 idle groups cost nothing. It does nothing on a node on which nothing was
    written since.

    applied: groups that have applied entries; those that were looked at are taken out.
    `_declined` are large ones of these to which the last look, between two files, gave no
    snapshot: they are looked at again when a file is complete, which takes less of them.
    """

    store: LogStore
    groups: dict[GroupId, Group]
    applied: dict[GroupId, None]
    loop: Loop
    config: HostConfig
    _closed: bool = True  # files of the earlier process are complete
    _asked: bool = False
    _missed: bool = False  # a look was due during a cycle, and follows it
    _put_off: bool = False  # a group is to be looked at when its snapshot has been sent
    _declined: dict[GroupId, None] = field(default_factory=dict)
    _looked_ms: int | None = None
    _batches: int = 0
    _bytes: int = 0
    _pressed: bool = False
    _batches_reclaimed: int = -1
    held: HeldSnapshots = field(default_factory=HeldSnapshots)
    stopped: bool = False

    def hold(self, group: Group) -> HeldSnapshot | None:
        """Hold a snapshot of the present state; None: its members are not known here yet."""
        members = group.node.membership_at(group.applied)
        if group.volatile or members is None:
            return None
        live = group.machine.live_indexes(group.state)
        return self.held.hold(group, take(group, live, members))

    def file_closed(self) -> None:
        """Look at the groups soon: a WAL file is complete."""
        self._closed = True
        self._ask()

    def freed(self, group: Group) -> None:
        """Look soon when a group has freed as much as a file of the log holds.

        1. Spark settles a batch of 120 MiB, and opens the next claim.  2. A tenth of a second later
        its tasks stage the next batch.  3. A look that is due comes when a quarter of a file is
        written, and half of the batch was written to new files before what it finds is a spare one.
        Replayed by tests/raft/runtime/test_large_entries.py
        """
        if group.freed >= self.config.wal_file_bytes:
            group.freed = 0
            self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self.loop.call_later(0, self._look)

    def beat(self, now_ms: int) -> None:
        """Look at the groups when that is due; once per heartbeat interval, monotonic clock."""
        if self._looked_ms is None:
            self._looked_ms = now_ms
        self.store.look(now_ms)
        if self.store.compactor.snapshots_damaged or self._missed:
            self._ask()
        wal = self.store.wal
        due = self._put_off or self._batches != wal.batches
        # What is found to be dead becomes spare files, so the sooner the fewer new ones are begun.
        fast = wal.bytes_written - self._bytes >= self.config.wal_file_bytes // 4
        if due and now_ms - self._looked_ms >= (LOOK_FAST_MS if fast else LOOK_EVERY_MS):
            self._looked_ms = now_ms
            self._batches, self._bytes = wal.batches, wal.bytes_written
            self._ask()

    def reclaim(self) -> None:
        """Free at once what can be freed: the disk is low on space. May be repeated."""
        self._pressed = True
        self.held.release_all()
        self.store.space_is_low()
        self._ask()

    def _reclaim(self) -> None:
        """Run one cycle with the groups that free most, and complete the newest WAL file.

        A file cannot be retired as long as it is written to.
        """
        self._pressed = False
        found = [(dead_bytes(group), number) for number, group in self.groups.items()]
        worth = sorted((each for each in found if each[0] >= RECLAIM_BYTES_MIN), reverse=True)
        taken = [
            snapshot
            for _, number in worth[:RECLAIM_GROUPS_MAX]
            if (snapshot := take_now(self.groups[number])) is not None
        ]
        if taken:
            total = sum(dead for dead, _ in worth[:RECLAIM_GROUPS_MAX])
            log.warning(
                "low disk space: taking snapshots of %d groups to free %d bytes", len(taken), total
            )
            if self.store.wal.newest_bytes:
                self.store.wal.roll()
                self._closed = True
        elif self._batches_reclaimed == self.store.wal.batches:
            return  # nothing was written since the last time
        self._batches_reclaimed = self.store.wal.batches
        self.store.compactor.run(taken, self._done)

    def _look(self) -> None:
        self._asked = False
        # 1. A cycle rewrites a large file, for a repair or its dead entries.  2. All of a queue is
        # acknowledged meanwhile, and nothing is written after that.  3. Without this look the queue
        # keeps its space until something is.
        # Replayed by tests/raft/runtime/test_snapshot_policy.py
        self._missed = self.store.compactor.busy
        if self.stopped or self._missed:
            return
        if self._pressed and not self._closed:
            self._reclaim()
            return
        closed, self._closed = self._closed, False
        taken, mostly = self._due(closed)
        wal = self.store.wal
        if mostly and not closed and wal.newest_bytes > self.config.wal_file_bytes // 4:
            # Most of what some group holds is dead, so most of the newest file may be, too:
            # complete it, or it stays for as long as nothing is published.
            wal.roll()
            self._closed = True
        if taken or closed:
            self.store.compactor.run(taken, self._done)

    def _due(self, closed: bool) -> tuple[list[Snapshot], bool]:
        """Return the snapshots that are worth their cost, and those that replace damaged ones.

        And whether the newest file may be dead mostly, as what some group holds, or damaged.
        """
        damaged = self.store.compactor.snapshots_damaged
        taken = []
        mostly = False
        self._put_off = False
        numbers = {*self.applied, *damaged}
        if closed:
            numbers |= self._declined.keys()
            self._declined.clear()
        for number in sorted(numbers):
            group = self.groups.get(number)
            # 1. A member was late, and is sent a snapshot.  2. All of a queue is acknowledged
            # meanwhile, and nothing is written after that.  3. Without another look the queue keeps
            # its space until something is.
            # Replayed by tests/raft/runtime/test_snapshot_policy.py
            if group is not None and group.pinned:
                self._put_off = True
            else:
                self.applied.pop(number, None)
            if group is None:
                continue
            snapshot = due_snapshot(group, closed, self.config)
            if snapshot is None and not closed and is_large(group):
                self._declined[number] = None
            if snapshot is None and number in damaged:
                snapshot = take_now(group)
                mostly = True
            if snapshot is not None:
                taken.append(snapshot)
                mostly |= group.last_look.mostly_dead
        return taken, mostly

    def _done(self) -> None:
        # 1. A file is full when a batch of Spark is published, and the next one is begun, a new
        # one, with the settlement of its claim.  2. That frees two files.  3. The next batch is
        # written to what was begun. So that is left as it is, and a spare file follows it.
        # Replayed by tests/raft/runtime/test_large_entries.py
        wal = self.store.wal
        barely = wal.newest_bytes < self.config.wal_file_bytes // BARELY_BEGUN_SHARE
        if barely and wal.newest_grows and self.store.spares.count:
            wal.roll()
        if self._closed or self._pressed or self._missed:
            self._ask()
