"""Snapshot transfers between nodes: carries out the core's requests."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from warren_raft.core.snapshot_transfer import Incoming, OutgoingSnapshot
from warren_raft.messages import AnyRaftMessage, SnapshotChunk, SnapshotWanted
from warren_raft.runtime.group import Group
from warren_raft.runtime.group_start import known_members
from warren_raft.storage import rewrite
from warren_raft.storage.errors import EntryDamaged, LogDamaged
from warren_raft.storage.log_store import LogStore
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import GroupId, Index, Membership, MemberState, NodeId, Term
from warren_raft.versions import VersionNeeded, Versions
from warren_wire.undecodable import NO_STATE

log = logging.getLogger("warren.raft")

INCOMING_IDLE_MS = 60_000
"""A partly received snapshot is dropped after that long without a chunk: the WAL files that hold
it cannot be retired meanwhile. The next offer starts again."""
OFFER_AGAIN_MS = 1_000
"""A transfer without an answer for that long is offered again."""
REFUSED_AGAIN_MS = 60_000
"""A snapshot that was refused is not received from the same member again for that long."""

SnapshotKey = tuple[NodeId, Index, Term]
"""A snapshot as its sender names it."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A received snapshot that is whole.

    snapshot  as it is written here
    members   as of its last entry
    state     the machine's state, restored from it
    within    this log has its last entry, so later entries stay
    """

    snapshot: Snapshot
    members: Membership
    state: Any
    within: bool


@dataclass(eq=False, repr=False)
class Transfers:
    """All snapshot transfers to and from this node.

    A group that sends one releases no entries meanwhile. Receiving: live entries are written to the
    log as they arrive; when all are received they are synced, then the snapshot is written, then
    log, machine and core continue after it. A crash in between leaves the old state or the new one.

    send      with this turn's messages
    touch     have the group's Ready taken
    restored  called with a group after its state was replaced
    awaits    whether an entry is damaged here and not repaired yet
    versions  that this program reads
    begun, installed  transfers to other members, and from them, since the start
    """

    store: LogStore
    own: NodeId
    send: Callable[[AnyRaftMessage], None]
    touch: Callable[[Group], None]
    restored: Callable[[Group], None]
    awaits: Callable[[GroupId, Index], bool]
    versions: Versions
    begun: int = 0
    installed: int = 0
    _outgoing: dict[tuple[GroupId, NodeId], tuple[Group, OutgoingSnapshot]] = field(
        default_factory=dict
    )
    _incoming: dict[GroupId, Incoming] = field(default_factory=dict)
    _came: dict[GroupId, tuple[Group, int]] = field(default_factory=dict)
    _installing: set[GroupId] = field(default_factory=set)
    _refused: dict[GroupId, tuple[SnapshotKey, int]] = field(default_factory=dict)
    _later: dict[tuple[GroupId, NodeId], tuple[Group, Index]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Followers with a transfer postponed until another snapshot exists without the entry."""

    def under_way(self) -> tuple[int, int]:
        """Return the number of transfers to other members, and from them."""
        return len(self._outgoing), len(self._incoming)

    def sending(self, group: GroupId) -> bool:
        """Return whether a snapshot of that group is being sent to a member."""
        return any(key[0] == group for key in self._outgoing)

    def drop(self, group: GroupId) -> None:
        """Forget a group that is deleted here."""
        self._incoming.pop(group, None)
        self._came.pop(group, None)
        self._refused.pop(group, None)
        for key in [key for key in self._outgoing if key[0] == group]:
            del self._outgoing[key]
        for key in [key for key in self._later if key[0] == group]:
            del self._later[key]

    # ------------------------------------------------------------ sending

    def begin(self, group: Group, to: NodeId, now_ms: int) -> None:
        """Send a snapshot to that member; nothing when the newest is being sent already."""
        # 1. A cycle in progress writes snapshot 64 while 53 is being sent.  2. The member has 53,
        # and lacks 54, which was released.  53 again would not help it.
        known = self._outgoing.get((group.id, to))
        if known is not None and known[1].index == group.store.snapshot_index:
            return
        if self._is_put_off(group, to):
            return
        self._later.pop((group.id, to), None)
        try:
            snapshot = self.store.read_snapshot(group.store)
        except LogDamaged as damage:
            log.error("group %s: taking another snapshot for %s: %s", group.id, to, damage.what)
            self._later[group.id, to] = group, 0
            return
        out = OutgoingSnapshot(
            group.id,
            self.own,
            to,
            snapshot.index,
            snapshot.term,
            snapshot.live_indexes(),
            msgspec.msgpack.encode(snapshot),
            group.store.read,
            now_ms,
        )
        log.info("group %s: sending %s a snapshot up to entry %s", group.id, to, snapshot.index)
        self._outgoing[group.id, to] = group, out
        self.begun += 1
        group.sending = True
        self.send(out.offer(group.node.term))

    def _is_put_off(self, group: Group, to: NodeId) -> bool:
        _, index = self._later.get((group.id, to), (group, 0))
        return index > 0 and self.awaits(group.id, index)

    def put_off(self, group: Group, index: Index) -> None:
        """Postpone the transfers that need an entry which no member has.

        They wait until it is repaired or released; meanwhile the group may take snapshots.
        """
        for key, (found, out) in list(self._outgoing.items()):
            if found is group and out.stuck == index:
                log.info("group %s: entry %s lost: %s must wait", group.id, index, out.to)
                del self._outgoing[key]
                self._later[key] = group, index
        group.sending = self.sending(group.id)

    def progress(self, group: Group, states: Sequence[MemberState]) -> tuple[MemberState, ...]:
        """Return the members' states with the progress of each transfer."""

        def told(state: MemberState) -> MemberState:
            known = self._outgoing.get((group.id, state.node))
            if known is None:
                return state
            out = known[1]
            live = group.store.log.needed_bytes(out.live)
            past = bisect_right(out.live, out.live_sent)
            sent = live * past // max(1, len(out.live)) + out.payload_sent
            return replace(state, sent_bytes=sent, total_bytes=live + len(out.payload))

        return tuple(map(told, states))

    def beat(self, now_ms: int) -> None:
        """Drop transfers that have ended, and repeat offers that were not answered."""
        for number, (group, came_ms) in list(self._came.items()):
            if now_ms - came_ms >= INCOMING_IDLE_MS and number not in self._installing:
                log.info("group %s: incomplete snapshot dropped: no more chunks came", number)
                self._end(group)
        for (_, to), (group, _) in list(self._later.items()):
            if group.deleted or not group.node.wants_snapshot(to):
                del self._later[group.id, to]
            elif group.id not in self.store.compactor.snapshots_damaged:
                self.begin(group, to, now_ms)
        for key, (group, out) in list(self._outgoing.items()):
            if group.deleted or not group.node.wants_snapshot(out.to):
                del self._outgoing[key]
                group.sending = self.sending(group.id)
            elif now_ms - out.heard_ms >= OFFER_AGAIN_MS:
                out.heard_ms = now_ms
                self.send(out.offer(group.node.term))

    def _heard(self, group: Group, wanted: SnapshotWanted, now_ms: int) -> None:
        found = self._outgoing.get((group.id, wanted.sender))
        if found is None:
            return
        out = found[1]
        out.heard(wanted, now_ms)
        try:
            while (chunk := out.next(group.node.term)) is not None:
                self.send(chunk)
                out.stuck = 0
        except EntryDamaged as damage:
            out.stuck = damage.index  # offered again when the entry is repaired
        except KeyError:
            # A cycle in progress when this began has released a live entry: there is a newer
            # snapshot, which does not refer to it.
            del self._outgoing[group.id, out.to]
            if group.node.wants_snapshot(out.to):
                self.begin(group, out.to, now_ms)

    # ------------------------------------------------------------ receiving

    def take(self, group: Group, part: SnapshotChunk | SnapshotWanted, now_ms: int) -> bool:
        """Handle an item of `Ready.chunks`; return whether a record was added to the batch."""
        if isinstance(part, SnapshotWanted):
            self._heard(group, part, now_ms)
            return False
        if group.id in self._installing or self._is_refused(group, part, now_ms):
            return False
        incoming = self._incoming.get(group.id)
        if incoming is None or not incoming.is_of(part):
            # A log that has the snapshot's last entry has the entries that it refers to.
            within = group.node.log.has(part.index, part.last_term)
            base = part.index if within else group.applied
            incoming = self._incoming[group.id] = Incoming(part, base)
            group.store.begin_incoming()
        self._came[group.id] = group, now_ms
        entries, repeat = incoming.take(part)
        for entry in entries:
            group.store.receive(entry)
        self.send(
            SnapshotWanted(
                group.id,
                self.own,
                part.sender,
                group.node.term,
                incoming.index,
                incoming.term,
                incoming.live_after,
                len(incoming.payload),
                repeat,
            )
        )
        if incoming.complete:
            self._finish(group, incoming, now_ms)
        return bool(entries)

    def _finish(self, group: Group, incoming: Incoming, now_ms: int) -> None:
        # 1. A member of another build, or with bad memory, sends a snapshot that is none.  2. What
        # it holds reaches the machine, the membership and the disk.  3. An assertion in one of them
        # ends this node, and all others that it is sent to. So everything that can be refused is
        # made here, before anything is written, and the group waits for another snapshot.
        # Replayed by tests/raft/runtime/test_broken_snapshots.py
        try:
            accepted = self._accepted(group, incoming)
        except (*NO_STATE, VersionNeeded) as error:
            self._refuse(group, incoming, error, now_ms)
            return
        self._installing.add(group.id)
        store = self.store
        # 1. The snapshot is written.  2. The node crashes before the live entries are.  3. The
        # snapshot refers to entries that are nowhere.  So the entries are synced first.
        store.wal.submit(
            lambda: store.background_writer.run(
                lambda: rewrite.write_snapshots(
                    store.files, store.directory.snapshots, [accepted.snapshot]
                ),
                lambda _: self._written(group, incoming, accepted),
                lambda error: self._full(group, error),
            )
        )

    def _accepted(self, group: Group, incoming: Incoming) -> Accepted:
        """Decode all of a received snapshot; raises any error for one that is none."""
        theirs = msgspec.msgpack.decode(bytes(incoming.payload), type=Snapshot)
        named = group.id, incoming.index, incoming.term
        if (theirs.group, theirs.index, theirs.term) != named:
            raise ValueError(
                f"it is of group {theirs.group} up to entry {theirs.index} of term {theirs.term}"
            )
        live = theirs.live_indexes()
        if len(live) and not 0 < live[0] <= live[-1] <= theirs.index:
            raise ValueError(f"it refers to entries {live[0]} to {live[-1]}")
        members = known_members(theirs, self.versions)
        state = group.machine.restore(theirs.state)
        within = group.node.log.has(theirs.index, theirs.term)
        base = group.store.base if within else group.store.voided(theirs)
        own = msgspec.structs.replace(theirs, group=group.id, born=group.store.born, base=base)
        return Accepted(own, members, state, within)

    def _refuse(self, group: Group, incoming: Incoming, error: Exception, now_ms: int) -> None:
        self._refused[group.id] = (incoming.sender, incoming.index, incoming.term), now_ms
        self._end(group)
        log.error(
            "group %s: the snapshot up to entry %s that %s sent is refused (%s: %s): this member "
            "waits for another one; check the memory of %s",
            group.id,
            incoming.index,
            incoming.sender,
            type(error).__name__,
            error,
            incoming.sender,
        )

    def _is_refused(self, group: Group, part: SnapshotChunk, now_ms: int) -> bool:
        """Return whether the snapshot was refused: its sender offers it again once a second."""
        key, since_ms = self._refused.get(group.id, (None, 0))
        if key != (part.sender, part.index, part.last_term):
            return False
        if now_ms - since_ms < REFUSED_AGAIN_MS:
            return True
        del self._refused[group.id]
        return False

    def _full(self, group: Group, error: OSError) -> None:
        log.warning("group %s: no space for its snapshot (%s): will be retried", group.id, error)
        self._end(group)

    def _end(self, group: Group) -> None:
        self._installing.discard(group.id)
        self._incoming.pop(group.id, None)
        self._came.pop(group.id, None)
        group.store.end_incoming()

    def _written(self, group: Group, incoming: Incoming, accepted: Accepted) -> None:
        snapshot, within = accepted.snapshot, accepted.within
        if group.deleted:
            self._end(group)
            return
        store, node = group.store, group.node
        path = self.store.log_files.snapshot_path(group.id, snapshot.index)
        if within:
            places = store.places_here(snapshot)
        else:
            places = store.incoming_places(snapshot, incoming.base)
        stands = within == node.log.has(snapshot.index, snapshot.term)
        # Entries taken for applying that wait for a slow disk would be applied to the new state.
        ready = stands and node.log.applying == node.log.applied
        if places is None or not ready or not node.may_install(snapshot.index, snapshot.term):
            if places is None:
                log.error("group %s: a snapshot refers to entries that were not received", group.id)
            self._end(group)
            if store.snapshot_index != snapshot.index:
                self.store.remove_later([path])
            return
        old = [self.store.snapshot_path(store)] if store.snapshot_index else []
        node.installed(snapshot.index, snapshot.term, snapshot.time_ms, accepted.members)
        if not within:
            store.install(snapshot, places)
        group.restore(snapshot, accepted.state)
        if within:
            store.skip_to(snapshot)
        self._end(group)
        self.installed += 1
        self.store.remove_later(old)
        log.info("group %s: state replaced by snapshot %s", group.id, snapshot.index)
        self.restored(group)
        self.touch(group)
