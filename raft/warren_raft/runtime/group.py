"""One group on this node: its core, its log, its machine."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warren_raft.core import membership
from warren_raft.core.raft_node import RaftNode
from warren_raft.core.ready import ReadState, Role, SoftState
from warren_raft.machine import Machine, Meta
from warren_raft.messages import AnyRaftMessage
from warren_raft.runtime.loop import LoopTimer
from warren_raft.runtime.observer import Observer
from warren_raft.storage.group_store import GroupStore
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import Entry, EntryKind, GroupId, Index, Membership, NodeId

ReadDone = Callable[[bool], None]
"""Called once. True: the applied state is current; False: it cannot be known, ask otherwise."""
TRIM_ENTRIES_MIN = 256
TRIM_BYTES_MIN = 4 << 20
"""A volatile log that has grown by less is not searched for entries to release."""


class LinearizableReads:
    """Requests by their context, from the question to the moment when enough is applied.

    asked      requests without an index: the leader has not confirmed their round
    confirmed  requests with an index that is not applied yet
    waiting    (index, context), a heap
    Invariant: a pending request is either in `asked`, or in `confirmed` and in `waiting`; one that
    was given up may stay in `waiting` until its index is applied.
    """

    __slots__ = ("_asked", "_confirmed", "_waiting")

    def __init__(self) -> None:
        self._asked: dict[int, ReadDone] = {}
        self._confirmed: dict[int, ReadDone] = {}
        self._waiting: list[tuple[Index, int]] = []

    def __len__(self) -> int:
        return len(self._asked) + len(self._confirmed)

    def ask(self, context: int, done: ReadDone) -> None:
        """Add a request; contexts are never used twice."""
        assert context not in self._asked, context
        self._asked[context] = done

    def confirmed(self, reads: Sequence[ReadState]) -> None:
        """Take the answers of a Ready; those given up are ignored."""
        for read in reads:
            done = self._asked.pop(read.context, None)
            if done is None:
                continue
            if read.index is None:
                done(False)
            else:
                self._confirmed[read.context] = done
                heapq.heappush(self._waiting, (read.index, read.context))

    def applied(self, index: Index) -> None:
        """Answer the confirmed requests for which that much is enough."""
        while self._waiting and self._waiting[0][0] <= index:
            done = self._confirmed.pop(heapq.heappop(self._waiting)[1], None)
            if done is not None:
                done(True)

    def give_up(self, context: int) -> None:
        """Answer a request that took too long; unknown ones were answered already."""
        done = self._asked.pop(context, None) or self._confirmed.pop(context, None)
        if done is not None:
            done(False)

    def end(self) -> None:
        """Answer everything: the group is gone."""
        for context in [*self._asked, *self._confirmed]:
            self.give_up(context)


class LogPosition(NamedTuple):
    """How far a member's log is: its term, and the last entry of each kind.

    commit_s  how long the last entry that was followed took (`RaftMeasures.commits`); 0: none yet
    """

    term: int
    committed: Index
    applied: Index
    durable: Index
    snapshot: Index
    commit_s: float = 0.0


class LastLook:
    """The findings of the snapshot policy's last look at a group.

    applied      the group's applied index then
    live         the number of entries that the machine referred to
    mostly_dead  of the bytes that the group held, more than half were those of other ones
    """

    __slots__ = ("applied", "live", "mostly_dead")

    def __init__(self, applied: Index) -> None:
        self.applied = applied
        self.live = 0
        self.mostly_dead = False


@dataclass(slots=True, eq=False, repr=False)
class Group:
    """The host's state of one group.

    leading     this node leads, and its own term's first entry is applied
    after_sync  (sequence, messages): sent once that write is on disk; sequences never decrease
    timer_ms    when `timer` fires on the epoch clock; it may fire before the core's deadline
                (then nothing is due and it is set again), never after
    applied_ms  the stamp of that entry
    sending     its snapshot is being sent to a member: nothing is released
    held        the number of snapshots of it that are held (`HeldSnapshots`): the same
    lost        an applied entry that cannot be read here and that no member has (`LostEntries`):
                nothing is retained up to there; 0: none
    members     those for which the core was told whether they are suspected
    followed    the entry of this leader that `RaftMeasures.commits` is about; 0: none
    taken_s     when it was taken; commit_s: how long the one before took
    stood       the last term in which this member stood for election
    led_by      the last leader that this member knew
    freed       bytes that its machine said to have freed (`Applied.frees`) since the last look for
                them
    Invariant: applied is the last entry that was applied to `state`
    """

    id: GroupId
    node: RaftNode
    store: GroupStore
    machine: Machine[Any]
    volatile: bool
    _retained_bytes_max: int = 0
    leading: bool = False
    after_sync: deque[tuple[int, Sequence[AnyRaftMessage]]] = field(default_factory=deque)
    timer: LoopTimer | None = None
    timer_ms: int = 0
    touched: bool = False
    deleted: bool = False
    sending: bool = False
    held: int = 0
    lost: Index = 0
    freed: int = 0
    followed: Index = 0
    taken_s: float = 0.0
    commit_s: float = 0.0
    stood: int = 0
    led_by: NodeId | None = None
    reads: LinearizableReads = field(default_factory=LinearizableReads)
    members: Membership = field(init=False)
    state: Any = field(init=False)
    applied: Index = field(init=False)
    applied_ms: int = 0
    last_look: LastLook = field(init=False)
    _trim_entries: int = TRIM_ENTRIES_MIN
    _trim_bytes: int = TRIM_BYTES_MIN

    def __post_init__(self) -> None:
        self.members = self.node.membership
        snapshot, machine = self.store.snapshot, self.machine
        self.state = machine.init() if snapshot is None else machine.restore(snapshot.state)
        self.applied = self.store.snapshot_index
        self.applied_ms = snapshot.time_ms if snapshot is not None else 0
        self.last_look = LastLook(self.applied)
        self.store.begun(self.retained_from)

    @property
    def pinned(self) -> bool:
        """Whether entries that a snapshot refers to are being read: no other one is taken."""
        return self.sending or self.held > 0

    def position(self) -> LogPosition:
        """Return how far the log is."""
        log = self.node.log
        return LogPosition(
            self.node.term,
            log.committed,
            self.applied,
            log.durable,
            self.store.snapshot_index,
            self.commit_s,
        )

    def restore(self, snapshot: Snapshot, state: object) -> None:
        """Replace the state with that of another member's snapshot."""
        self.state = state
        self.applied = snapshot.index
        self.applied_ms = snapshot.time_ms
        self.last_look = LastLook(self.applied)

    def retained_from(self) -> Index:
        """Return the first entry that a reachable member still lacks, within retained_bytes_max.

        It could be sent a snapshot instead; but one that is only a little behind needs none,
        unless what it lacks is lost here.
        """
        lead, lowest = self.node.leadership, self.applied
        if lead is not None:
            for progress in lead.progress.values():
                match = progress.match
                if not progress.paused and match < lowest:
                    if self.store.log.bytes_after(match) <= self._retained_bytes_max:
                        lowest = match
        return max(lowest, self.lost) + 1

    def concerns(self, node: NodeId) -> bool:
        """Return whether that node's reachability matters: it is a member, or a removed leader.

        1. c leads a, b, c and d, and removes itself: a and b know it.  2. c crashes. It is not a
        member any more, but a, b and d would follow it forever.
        Replayed by tests/raft/runtime/test_members.py
        """
        core = self.node
        if node in core.membership or core.leader == node:
            return True
        return core.leadership is not None and node in core.leadership.progress

    def end(self) -> None:
        """Stop: the member is deleted."""
        self.deleted = True
        self.leading = False
        self.reads.end()
        if self.timer is not None:
            self.timer.cancel()

    def released(self, outbox: dict[NodeId, list[AnyRaftMessage]]) -> None:
        """Move to the outbox the messages for which the write is on disk."""
        waiting, synced = self.after_sync, self.node.log.synced
        while waiting and waiting[0][0] <= synced:
            for message in waiting.popleft()[1]:
                outbox.setdefault(message.to, []).append(message)

    def apply(self, committed: Sequence[Entry], observer: Observer) -> None:
        """Apply entries in their order and report each to the observer."""
        for entry in committed:
            assert entry.index == self.applied + 1, (self.id, self.applied, entry.index)
            self.applied = entry.index
            self.applied_ms = entry.time_ms
            if entry.kind is EntryKind.COMMAND:
                meta = Meta(entry.index, entry.term, entry.time_ms)
                applied = self.machine.apply(meta, entry.data, self.state)
                self.freed += applied.frees
                observer.applied(self.id, meta, entry.data, applied, self.leading)
                if self.deleted:
                    return
            elif entry.kind is EntryKind.CONFIG:
                observer.members_changed(self.id, membership.decode(entry.data))
                if self.deleted:
                    return
            elif entry.kind is EntryKind.NOOP:
                if self.node.role is Role.LEADER and entry.term == self.node.term:
                    self.leading = True
                    observer.became_leader(self.id, self.machine.leader_effects(self.state))
                    if self.deleted:
                        return
        if committed:
            self.node.applied_to(self.applied)
            self.store.applied = self.applied
            if self.volatile:
                self._trim()

    def follow(self, soft: SoftState, own: NodeId, observer: Observer) -> None:
        """Record the leader that the core reports."""
        leads = soft.role is Role.LEADER
        if not leads:
            self.leading = False
        observer.leader_changed(self.id, soft.leader, soft.term, leads and soft.leader == own)

    def _trim(self) -> None:
        # The cost grows with the number of live entries, so it is done when the log has doubled:
        # amortized constant per entry, and memory stays within twice the need.
        log = self.store.log
        if len(log.entries) < self._trim_entries and log.bytes_held < self._trim_bytes:
            return
        self.store.release_but(self.machine.live_indexes(self.state), self.applied)
        self._trim_entries = max(TRIM_ENTRIES_MIN, 2 * len(log.entries))
        self._trim_bytes = max(TRIM_BYTES_MIN, 2 * log.bytes_held)
