"""The processing, once per turn of the loop, of every group that had an event."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

from warren_raft.core import damaged
from warren_raft.core.ready import ReadState, Ready, Role, SoftState
from warren_raft.measures import SECONDS, Histogram
from warren_raft.messages import AnyRaftMessage, Append
from warren_raft.runtime.disk_backpressure import DiskBackpressure
from warren_raft.runtime.group import Group
from warren_raft.runtime.loop import Loop, LoopStage
from warren_raft.runtime.observer import Observer
from warren_raft.runtime.snapshots import Transfers
from warren_raft.storage.log_store import LogStore
from warren_raft.storage.wal import Wal
from warren_raft.types import METADATA_GROUP, Entry, GroupId, NodeId

TURN_MS_MAX = 50
"""Applying stops after that long in one turn and continues in the next one."""
SPARE_MS = 4
"""A timer that would fire as soon as that, and that much too early, is set again: one for the last
copies (`core.last_copies`) is set with most messages, and its turn would be for nothing."""
CHANGED_MAX = 200_000
"""Groups that are noted for `Host.take_changed`; of more it is not known."""
OUTBOX_BYTES = 4 << 20
"""With that many bytes of entries to be sent, they are sent before the next group is looked at."""


class ReadyLoop:
    """The loop that takes Readys, sends, writes and applies; idle groups cost nothing.

    1. A node restarts and applies the log of its queues, some seconds of work.  2. Until that is
    done it sends no heartbeat, so the others suspect it, and reads none, so that it suspects them.
    So a turn applies only as much as `TURN_MS_MAX` allows, but at least one Ready; sockets and
    timers are served in between. Replayed by tests/raft/runtime/test_long_replay.py

    The order of a turn, on which safety depends:
    1. every touched group's Ready is taken
    2. messages that need no disk are sent: a leader's appends travel while it writes itself; where
       the turn applies nothing, and so has nothing else for the peers, they leave at once
    3. entries and hard states are added to the WAL's batch, and it is submitted; the loop continues
       (a small one is written at the turn's end: `Wal`)
    4. committed entries are applied, but those of groups led elsewhere only in LoopStage.LATE when
       a batch is written on the loop's thread: the leader waits for the answer to it
    5. when the batch is on disk, the votes and append replies that depend on it are sent, at once
    A failed write or sync raises out of the loop: the process ends without having sent them.

    That 5 may come before 4 is safe, because an append reply vouches for what is on disk, and for
    nothing else: 1. A follower acknowledges 8, and has not applied 7, which is committed.  2. The
    leader commits 8 and answers its client.  3. The follower crashes, or is elected: it has 7 and
    8 on disk, and applies both before it leads (`Group.leading`), or answers a read
    (`LinearizableReads`). Replayed by tests/raft/runtime/test_answers_first.py

    A follower's window bounds what one group has on its way to a node, and groups are many:
    1. Thirty queues get a message of 15 MiB each, or a node comes back to thirty queues with that
    much.  2. Their leaders hand 450 MiB to one connection.  3. Nothing of it is acknowledged within
    `retransmit_ms`, and each group hands over its entries once more, until the connection is reset
    for what waits in it; everything is lost, and sent again.  So a node with a congested
    connection is crowded: no group sends it appends until the connection has drained. Replayed by
    tests/raft/runtime/test_crowded.py
    """

    def __init__(
        self,
        own: NodeId,
        loop: Loop,
        observer: Observer,
        send_raft: Callable[[NodeId, Sequence[AnyRaftMessage], bool], bool],
    ) -> None:
        """send_raft: sends to a peer, in one frame, at once (True) or at the end of the turn.

        Messages are lost without a connection. It returns True when the peer is crowded.

        `applied` gathers the groups that have applied entries, for the snapshot policy. `commits`
        to `leader_changes`: see `RaftMeasures`.
        """
        self._own = own
        self._loop = loop
        self._clock = loop.clock
        self._observer = observer
        self._send_raft = send_raft
        self._touched: list[Group] = []
        self._turn_asked = False
        self._turned = -1
        self._submit_asked = False
        self._outbox: dict[NodeId, list[AnyRaftMessage]] = {}
        self._outbox_bytes = 0
        self._crowded: dict[NodeId, dict[Group, None]] = {}
        self._unwritten: list[tuple[Group, Ready]] = []
        self._awaiting: list[tuple[Group, int, int]] = []
        self._late_asked = False
        self.applied: dict[GroupId, None] = {}
        self._changed: dict[str, set[GroupId]] = {}
        self.commits, self.applies = Histogram(SECONDS), Histogram(SECONDS)
        self.elections = self.elections_won = self.leader_changes = 0
        self._read: list[tuple[Group, Sequence[ReadState]]] = []
        self._wal: Wal
        self._pace: DiskBackpressure
        self._transfers: Transfers
        self._acquaint: Callable[[Group], None]
        self._cluster_committed: Callable[[Sequence[Entry]], None]
        self._freed: Callable[[Group], None]
        self.stopped = False

    def begin(
        self,
        store: LogStore,
        pace: DiskBackpressure,
        transfers: Transfers,
        acquaint: Callable[[Group], None],
        cluster_committed: Callable[[Sequence[Entry]], None],
        freed: Callable[[Group], None],
    ) -> None:
        """Start with an open log.

        acquaint           called with a group when its members have changed
        cluster_committed  called with committed entries of group 0, before they are applied
        freed              called with a group of which the machine has freed bytes (`Group.freed`)
        """
        self._wal = store.wal
        self._pace = pace
        self._transfers = transfers
        self._acquaint = acquaint
        self._cluster_committed = cluster_committed
        self._freed = freed

    # ------------------------------------------------------------ the turn

    def touch(self, group: Group) -> None:
        """Have the group's Ready taken in this turn: it had an event."""
        if not group.touched:
            group.touched = True
            self._touched.append(group)
            if not self._turn_asked:
                self._ask_turn()

    def _ask_turn(self) -> None:
        if not self._turn_asked:
            self._turn_asked = True
            self._loop.at_turn_end(LoopStage.RAFT, self._turn)

    def ask_submit(self) -> None:
        """Have the log's batch written: records were added to it."""
        self._submit_asked = True
        self._ask_turn()

    def _ask_late(self) -> None:
        if not self._late_asked:
            self._late_asked = True
            self._loop.at_turn_end(LoopStage.LATE, self._apply_late)

    def _apply_late(self) -> None:
        self._late_asked = False
        if self._pace.late and not self.stopped:
            self._apply_ripe([])

    def _next_turn(self) -> None:
        self._loop.at_turn_end(LoopStage.RAFT, self._turn)

    @property
    def _long(self) -> bool:
        return self._clock.monotonic_ms() - self._loop.now_ms > TURN_MS_MAX

    def _turn(self) -> None:
        if self._turned == self._loop.turn and self._long and not self.stopped:
            self._loop.call_soon(self._next_turn)
            return
        self._turned = self._loop.turn
        self._turn_asked = False
        if self.stopped:
            return
        touched, self._touched = self._touched, []
        to_apply: list[tuple[Group, Ready]] = []
        for group in touched:
            group.touched = False
            if not group.deleted:
                self._take(group, to_apply)
        if self._outbox:
            self._send_outbox(now=not (to_apply or self._pace.late))
        if self._unwritten:
            self._write()
        if self._awaiting or self._submit_asked:
            self._submit_asked = False
            awaiting, self._awaiting = self._awaiting, []
            self._wal.submit(partial(self._synced, awaiting))
        if to_apply or (self._pace.late and not self._late_asked):
            self._apply_ripe(to_apply)
        if self._read:
            read, self._read = self._read, []
            for group, reads in read:
                group.reads.confirmed(reads)
                group.reads.applied(group.applied)
        for group in touched:
            if not (group.deleted or self.stopped):
                self._set_timer(group)

    def _apply_ripe(self, to_apply: list[tuple[Group, Ready]]) -> None:
        """Apply what need not wait for the disk, these last; perhaps after the write of a batch."""
        ripe = self._pace.ripe(to_apply)
        later = self._late_asked or self._wal.writes_here
        if later and ripe and not any(map(_answers, ripe)):
            self._pace.put_off(ripe)
            self._ask_late()
            return
        began = time.monotonic()
        for at, (group, ready) in enumerate(ripe):
            if at and self._long:
                self._pace.put_off(ripe[at:])
                self._ask_turn()
                break
            self._apply(group, ready)
        if ripe:
            applies, took = self.applies, time.monotonic() - began
            applies.counts[bisect_left(applies.bounds, took)] += 1
            applies.total += took

    def _take(self, group: Group, to_apply: list[tuple[Group, Ready]]) -> None:
        outbox = self._outbox
        if group.node.unread:
            damaged.look_again(group.node)
        if group.node.membership is not group.members:
            self._acquaint(group)
        again = True
        while again and (ready := group.node.ready(self._crowded)) is not None:
            again = False
            for message in ready.messages:
                outbox.setdefault(message.to, []).append(message)
                if type(message) is Append and message.entries:
                    self._outbox_bytes += sum([len(entry[3]) for entry in message.entries])
            if ready.messages_after_sync:
                group.after_sync.append((ready.sequence, ready.messages_after_sync))
            if ready.entries or ready.hard_state is not None:
                if not group.volatile:
                    self._unwritten.append((group, ready))
                    if ready.entries and not group.followed and group.leading:
                        group.followed, group.taken_s = ready.entries[-1].index, time.monotonic()
                else:
                    group.store.append(ready.hard_state, ready.entries)
                    again = group.node.durable(ready.sequence) and not ready.committed
            if ready.snapshots or ready.chunks:
                self._write()  # what installs a snapshot continues this log
                self._transfer(group, ready)
            if group.after_sync:
                group.released(outbox)
            if ready.reads:
                self._read.append((group, ready.reads))
            if ready.committed or ready.soft_state is not None:
                to_apply.append((group, ready))  # and then the rest: a long replay is in parts
        if self._crowded and group.node.leadership is not None:
            for held_back in self._crowded.values():
                held_back[group] = None
        if self._outbox_bytes > OUTBOX_BYTES:
            self._send_outbox()

    def _write(self) -> None:
        """Add what was taken to the log's batch."""
        unwritten, self._unwritten = self._unwritten, []
        for group, ready in unwritten:
            if not group.deleted:
                group.store.append(ready.hard_state, ready.entries)
                self._awaiting.append((group, ready.sequence, len(ready.entries)))

    def _send_outbox(self, now: bool = False) -> None:
        outbox, self._outbox, self._outbox_bytes = self._outbox, {}, 0
        for node, messages in outbox.items():
            if self._send_raft(node, messages, now):
                self._crowded.setdefault(node, {})

    def drained(self, node: NodeId) -> None:
        """Send appends to that node again: its connection has drained, or has ended."""
        for group in self._crowded.pop(node, {}):
            self.touch(group)

    def send(self, message: AnyRaftMessage) -> None:
        """Send it with this turn's messages."""
        self._outbox.setdefault(message.to, []).append(message)
        self._ask_turn()

    def _transfer(self, group: Group, ready: Ready) -> None:
        now = self._clock.epoch_ms()
        for member in ready.snapshots:
            self._transfers.begin(group, member, now)
        for part in ready.chunks:
            if self._transfers.take(group, part, now):
                self._submit_asked = True
        group.sending = self._transfers.sending(group.id)

    def _synced(self, written: list[tuple[Group, int, int]]) -> None:
        if self.stopped:
            return
        for group, sequence, entries in written:
            if group.deleted:
                continue
            group.store.written(entries)
            if group.node.durable(sequence):
                self.touch(group)
            if group.after_sync:
                group.released(self._outbox)
        if self._outbox and not self._touched:
            self._send_outbox()
        if self._pace.late and not self._late_asked:
            self._ask_turn()

    def _apply(self, group: Group, ready: Ready) -> None:
        soft = ready.soft_state
        if soft is not None:
            self._measure_role(group, soft)
            self.note_change(group.id)
        if soft is not None and soft.role is Role.LEADER and not group.deleted:
            group.follow(soft, self._own, self._observer)
            soft = None
        if ready.committed and not group.deleted:
            if group.id == METADATA_GROUP:
                self._cluster_committed(ready.committed)
            group.apply(ready.committed, self._observer)
            self.applied[group.id] = None
            for changed in self._changed.values():
                changed.add(group.id)
            if 0 < group.followed <= group.applied:
                commits, took = self.commits, time.monotonic() - group.taken_s
                commits.counts[bisect_left(commits.bounds, took)] += 1
                commits.total += took
                group.followed, group.commit_s = 0, took
            if group.freed:
                self._freed(group)
            if not group.deleted:
                group.reads.applied(group.applied)
                if group.node.replays:
                    self.touch(group)
        if soft is not None and not group.deleted:
            group.follow(soft, self._own, self._observer)

    def _measure_role(self, group: Group, soft: SoftState) -> None:
        """Count what a new role means. A single voter is never seen as a candidate."""
        if soft.role >= Role.CANDIDATE and soft.term > group.stood:
            group.stood = soft.term
            self.elections += 1
        if soft.role is Role.LEADER:
            self.elections_won += 1
        else:
            group.followed = 0  # another leader may have replaced the entry
        if soft.leader not in (None, group.led_by):
            self.leader_changes += group.led_by is not None  # the first one is no change
            group.led_by = soft.leader

    def note_change(self, group: GroupId) -> None:
        """Note that a group is new, has another role, leader or term, or has ended."""
        for who, changed in [*self._changed.items()]:
            changed.add(group)
            if len(changed) > CHANGED_MAX:
                del self._changed[who]

    def take_changed(self, who: str) -> set[GroupId] | None:
        """See `Host.take_changed`."""
        found = self._changed.get(who)
        self._changed[who] = set()
        return found

    # ------------------------------------------------------------ time

    def _set_timer(self, group: Group) -> None:
        deadline = group.node.deadline_ms
        if deadline is None:
            return
        timer = group.timer
        if timer is not None and timer.active:
            early_ms = deadline - group.timer_ms
            if early_ms >= 0 and not (
                early_ms >= SPARE_MS
                and group.node.config.last_copy_delay_ms
                and group.timer_ms - self._clock.epoch_ms() < SPARE_MS
            ):
                return  # it fires early enough, and is set again then
            group.timer_ms = deadline
            timer.move(self._clock.monotonic_ms() + max(0, deadline - self._clock.epoch_ms()))
            return
        group.timer_ms = deadline
        delay = deadline - self._clock.epoch_ms()
        group.timer = self._loop.call_later(delay, lambda: self._tick(group))

    def _tick(self, group: Group) -> None:
        if not group.deleted and not self.stopped:
            group.node.tick(self._clock.epoch_ms())
            self.touch(group)


def _answers(applied: tuple[Group, Ready]) -> bool:
    """Return whether something waits for a Ready to be applied: a leader's clients, a new role."""
    group, ready = applied
    return group.node.leadership is not None or ready.soft_state is not None
