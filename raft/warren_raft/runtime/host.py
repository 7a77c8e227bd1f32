"""All groups of one node, over one loop, one log and one connection per peer."""

from __future__ import annotations

import functools
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from msgspec import structs

from warren_raft.core.membership import Change
from warren_raft.core.ready import Role
from warren_raft.errors import ImpossibleMessage, MembershipRefused, UsageError
from warren_raft.machine import GroupSpec, Machine, Meta
from warren_raft.measures import RaftMeasures
from warren_raft.messages import AnyRaftMessage, Append, EntryIs, EntryWanted
from warren_raft.runtime import log_identity
from warren_raft.runtime.bootstrap import BootstrapPlan, ClusterBootstrap
from warren_raft.runtime.config import Address, HostConfig
from warren_raft.runtime.continued import Continuing
from warren_raft.runtime.disk_backpressure import DiskBackpressure, report_full
from warren_raft.runtime.group import Group, LogPosition, ReadDone
from warren_raft.runtime.group_start import EarlyMessages, begin_group
from warren_raft.runtime.held_snapshots import HeldSnapshot
from warren_raft.runtime.loop import Loop, LoopStage, LoopTimer
from warren_raft.runtime.net.codec import BadFrame
from warren_raft.runtime.net.handshake import Hello
from warren_raft.runtime.net.stream import Buffer
from warren_raft.runtime.net.transport import Transport
from warren_raft.runtime.observer import Observer
from warren_raft.runtime.peer_write_marks import PeerWriteMarks, marks_of
from warren_raft.runtime.peers import Peers
from warren_raft.runtime.ready_loop import ReadyLoop
from warren_raft.runtime.repair import LostEntries, Repair
from warren_raft.runtime.scrub import Scrub
from warren_raft.runtime.snapshot_policy import SnapshotPolicy
from warren_raft.runtime.snapshots import Transfers
from warren_raft.runtime.stalled_disk import StalledDisk
from warren_raft.storage.entry_time import EntryTime
from warren_raft.storage.errors import DirectoryOutdated, EntryDamaged
from warren_raft.storage.files import Files
from warren_raft.storage.log_store import LogCallbacks, LogStore
from warren_raft.storage.opened_log import open_log
from warren_raft.types import (
    METADATA_GROUP,
    Entry,
    GroupId,
    Index,
    Membership,
    MemberState,
    NodeId,
)
from warren_raft.versions import VersionNeeded, Versions

log = logging.getLogger("warren.raft")
VERSION_RETRY_MS = 1_000
"""Until a full disk is tried again for the cluster's version."""

MessageHandler = Callable[[NodeId, memoryview], None]
"""Called with an application message: the sender, and the bytes (valid while referenced)."""


@dataclass(eq=False, repr=False)
class UnknownGroup(UsageError):
    """A group that was not started on this node."""

    group: GroupId
    node: NodeId

    def __str__(self) -> str:
        return f"group {self.group} was not started on node {self.node!r}; call start_group first"


class Host:
    """This node's member of every group. Not thread-safe: the loop's thread only.

    Proposals and messages of a turn leave at the turn's end, see `loop.Stage`: propose in GATHER
    or earlier, write to clients in DELIVER or FLUSH.
    """

    version = 0
    """The cluster's version as this node's directory is marked with it: what it may write."""

    def __init__(
        self,
        config: HostConfig,
        loop: Loop,
        observer: Observer,
        on_message: MessageHandler | None = None,
        files: Files | None = None,
        rng: Random | None = None,
    ) -> None:
        """Construct a stopped host, without any input or output; files and rng are for tests."""
        self.config = config
        self.node_id: NodeId = config.node
        self.boot_id = int.from_bytes(os.urandom(8), "little")
        self._loop = loop
        self._clock = loop.clock
        self._observer = observer
        self._on_message = on_message
        self._files = files if files is not None else Files()
        self._rng = rng if rng is not None else Random(os.urandom(16))
        self._groups: dict[GroupId, Group] = {}
        self._early = EarlyMessages()
        self._transport = Transport(config, loop, self.boot_id, self)
        self._ready_loop = ReadyLoop(config.node, loop, observer, self._transport.send_raft)
        self.peer_port = self._transport.peer_port
        self._touch = self._ready_loop.touch
        self.on_drained = self._ready_loop.drained
        # 1. A leader answers a question of the process before this one to this one: an index that
        # was current then.  So contexts begin at the random boot id, and none is used twice.
        self._read_contexts = itertools.count((self.boot_id >> 2) + 1)
        self._peers = Peers(config, loop, self._transport, self._groups, observer, self._touch)
        self.on_refused = self._peers.on_refused
        self.on_second = self._peers.on_second
        self.on_removed = self._peers.on_removed
        self._disk = StalledDisk(
            config.node,
            config.data_dir,
            config.suspect_after_ms,
            self._groups,
            self._touch,
            self._transport.tell_condition,
            self._clock.epoch_ms,
        )
        self.on_condition = self._disk.peer_said
        self.suspected = self._peers.suspected
        self.silent_since_ms = self._peers.silent_since_ms
        self.gone = self._peers.gone
        self.connected = self._transport.up
        self.peer_backlog_bytes = self._transport.backlog_bytes
        self.disk_slow = self._disk.slow
        self._write_marks: PeerWriteMarks
        self._bootstrap: ClusterBootstrap
        self._heartbeat: LoopTimer | None = None
        self._store: LogStore | None = None
        self._snapshot_policy: SnapshotPolicy
        self._backpressure: DiskBackpressure
        self.repair: Repair
        self._scrub: Scrub
        self._transfers: Transfers
        self._lost: LostEntries
        self._stopped = False

    # ------------------------------------------------------------ start and stop

    def start(self) -> None:
        """Lock the directory, recover the log, listen, connect.

        raises  StorageError: the directory is another node's, in use, or damaged; OSError: the port
        """
        config = self.config
        opened = open_log(
            self._files,
            config.data_dir,
            config.cluster,
            config.node,
            config.memtable_bytes,
            lambda: self._rng.getrandbits(64),
            log_identity.has_others,
            config.peers,
            self._clock.monotonic_ms,
            config.versions,
        )
        try:
            self._transport.start()
        except BaseException:
            opened.close()
            raise
        store = LogStore(
            opened,
            self._loop.post,
            config.wal_file_bytes,
            LogCallbacks(
                full=functools.partial(report_full, config.data_dir, self._observer.disk_full),
                closed=lambda: self._snapshot_policy.file_closed(),
                damaged=lambda damage: self.repair.is_damaged(damage),
            ),
            lambda job: self._loop.at_turn_end(
                LoopStage.SYNC, functools.partial(self._loop.wait_for, job)
            ),
            config.wal_recycle,
        )
        self._make_parts(store)
        self._store = store
        self.version = max(store.directory.identity.version, config.versions.oldest)
        for group, lost in sorted(store.condemned.items()):
            again = log_identity.again(group, lost.created, self._rng, config.peers)
            store.recreate(group, again)
        self._write_marks = marks_of(store, self.boot_id)
        self._bootstrap = ClusterBootstrap(
            config, store.directory, self._peers.hellos, lambda: METADATA_GROUP in store.groups
        )
        self._ready_loop.begin(
            store,
            self._backpressure,
            self._transfers,
            self._peers.acquaint,
            self._bootstrap.committed,
            self._snapshot_policy.freed,
        )
        self._bootstrap.recognize(store.groups.get(METADATA_GROUP))
        for node, address in sorted({**store.directory.identity.peers, **config.peers}.items()):
            self.add_peer(node, address)
        self._beat()
        self._loop.on_guard.append(self._watch_read)

    def _make_parts(self, store: LogStore) -> None:
        """Construct the parts that work on the store."""
        config, applied, send = self.config, self._ready_loop.applied, self._ready_loop.send
        self._backpressure = DiskBackpressure(store.wal, config.wal_backlog_bytes_max)
        self.repair = Repair(
            config.node,
            store,
            self._groups,
            send,
            self.connected,
            self._touch,
            self._clock.monotonic_ms,
            lambda group, index: self._lost.report(group, index),
        )
        now_ms = self._clock.monotonic_ms()
        self._scrub = Scrub(store, config.scrub_bytes_per_second, config.scrub_interval_ms, now_ms)
        self._transfers = Transfers(
            store,
            config.node,
            send,
            self._touch,
            self._group_restored,
            self.repair.awaits,
            config.versions,
        )
        self._continuing = Continuing(config.node, store, self._loop)
        groups, transfers, epoch_ms = self._groups, self._transfers, self._clock.epoch_ms
        self._lost = LostEntries(
            config.node, store, groups, transfers, epoch_ms, self._touch, self.repair.lacks
        )
        self._snapshot_policy = SnapshotPolicy(store, groups, applied, self._loop, config)

    def stop(self) -> None:
        """Finish the write in progress, close the files and connections; the loop keeps running."""
        if self._stopped:
            return
        self._stopped = self._ready_loop.stopped = True
        if self._watch_read in self._loop.on_guard:
            self._loop.on_guard.remove(self._watch_read)
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        for group in self._groups.values():
            if group.timer is not None:
                group.timer.cancel()
        self._peers.stopped = True
        self._transport.close()
        if self._store is not None:
            self._snapshot_policy.stopped = True
            self._write_marks.keep()
            self._store.close()

    def abandon(self) -> None:
        """Close port and connections as the end of the process would; write nothing."""
        self._peers.stopped = True
        self._transport.close()

    def note_outdated(self, reason: str) -> None:
        """Record DirectoryOutdated on disk; raises OSError, having changed nothing."""
        self._logs.directory.change(outdated=reason)

    @property
    def port(self) -> int:
        """The port at which peers reach this node."""
        return self._transport.port

    def add_peer(self, node: NodeId, address: Address) -> None:
        """Add a node whose address became known, or changed."""
        assert node != self.node_id, node
        self._peers.add(node, address)

    def remove_peer(self, node: NodeId) -> None:
        """Close the connection to a node that left the cluster, and forget it.

        `Observer.judge_peer` must refuse it; otherwise it is a peer again as soon as it connects.
        """
        self._peers.remove(node)
        self._early.forget(node)
        self._bootstrap.forget(node)
        self._write_marks.forget(node)

    def peer_hello(self, node: NodeId) -> Hello | None:
        """Return the Hello of that peer's last connection: disk, formed, address, founders."""
        return self._peers.hellos.get(node)

    @property
    def disk(self) -> int:
        """The directory id: 64 random bits, drawn when this node's data directory was made."""
        return int(self._logs.directory.identity.disk, 16)

    @property
    def cluster_id(self) -> str:
        """Drawn when the cluster was formed; "": this node does not know that it exists."""
        return self._logs.directory.identity.cluster_id

    @property
    def versions(self) -> Versions:
        """The versions that this program has."""
        return self.config.versions

    def link_version(self, node: NodeId) -> int:
        """Return the version that the link with a peer speaks; 0: none is established."""
        return self._transport.version(node)

    def raise_version(self, version: int) -> None:
        """Mark the directory with the cluster's version, then tell the peers; it never falls.

        1. a learns that the cluster has version 2, and submits something of it to b.  2. b appends
        it to its log, and to that of c.  3. c crashes before it learns of version 2, and is started
        with a program that has version 1: it finds in its log what it cannot read. So a tells b
        first, and b, before it sends anything else, c; each marks its directory at once.
        Replayed by tests/raft/runtime/test_versions.py

        raises  VersionNeeded, which ends this process: it has not that version
        """
        versions = self.config.versions
        if version <= self.version:
            return
        if version not in versions:
            raise VersionNeeded("the cluster", version, versions)
        if not self._bootstrap.change(version=version):
            self._loop.call_later(VERSION_RETRY_MS, lambda: self.raise_version(version))
            return
        self.version = version
        log.info("%s: the cluster has version %d", self.node_id, version)
        self._transport.tell_raised(version)

    on_raised = raise_version
    """See TransportOwner."""

    @property
    def address(self) -> Address:
        """The address of this node that it advertises to peers; host "": the one they see."""
        host, port = self.config.advertise or self.config.listen
        everywhere = host in ("", "0.0.0.0", "::")
        return "" if everywhere else host, port if self.config.advertise and port else self.port

    # ------------------------------------------------------------ groups

    def stored_groups(self) -> tuple[GroupId, ...]:
        """Return groups found on disk or started, ascending; delete those that are unwanted."""
        return tuple(sorted(self._logs.groups))

    def groups(self) -> tuple[GroupId, ...]:
        """The started groups, ascending."""
        return tuple(sorted(self._groups))

    def take_changed(self, who: str) -> set[GroupId] | None:
        """Return the groups that began, ended, applied, or have another role, leader or term.

        Since the last call of the same part of the program; from it on they are noted. None: it is
        not known, or they are many. What a follower acknowledges is no change.
        """
        return self._ready_loop.take_changed(who)

    def start_group(self, spec: GroupSpec, machine: Machine[Any]) -> None:
        """Start a member of a group: a new one, or one found on disk (replayed as it commits).

        A group of one soon has a leader: a volatile one within this turn, others after a write.
        Starting a started group does nothing. The members of a group found on disk are those it was
        created with.
        """
        if spec.group in self._groups:
            return
        now = self._clock.epoch_ms()
        group = begin_group(spec, machine, self._logs, self.config, self._rng, now)
        self._groups[spec.group] = group
        self._ready_loop.note_change(spec.group)
        self._disk.begun(group)
        self._peers.acquaint(group)
        for message in self._early.take(spec.group):
            try:
                group.node.step(message, now)
            except ImpossibleMessage as error:
                log.error("%s: a message was dropped: %s", self.node_id, error)
        self._touch(group)

    def continue_group(
        self,
        source: GroupId,
        target: GroupId,
        machine: Machine[Any],
        end_sessions: Callable[[Meta, Any], None],
        done: Callable[[], None],
    ) -> None:
        """Stop a stored group, and write another one that begins with its state: see `continued`.

        done  called when that one is on disk, and may be started
        """
        self._stop_group(source)
        self._continuing.begin(source, target, machine, end_sessions, done)

    def log_end(self, group: GroupId) -> tuple[int, Index]:
        """Return term and index of the last entry that is here, committed or not; zeros: none."""
        found = self._logs.groups.get(group)
        return (0, 0) if found is None else (found.term(found.last_index()), found.last_index())

    def delete_group(self, group: GroupId) -> None:
        """Stop this node's member and delete its log; unknown groups are ignored."""
        self._stop_group(group)
        self._continuing.drop(group)
        if group in self._logs.groups:
            self._logs.delete(group)
            self._ready_loop.ask_submit()

    def _stop_group(self, group: GroupId) -> None:
        found = self._groups.pop(group, None)
        self._ready_loop.note_change(group)
        if found is not None:
            led = found.leading
            found.end()
            if led:
                self._observer.leader_changed(group, None, found.node.term, False)
        self._early.take(group)
        self._transfers.drop(group)
        self.repair.drop(group)
        self._lost.drop(group)

    def propose(self, group: GroupId, data: bytes) -> Index:
        """Append a command to the group's log; `Observer.applied` tells when it has been applied.

        returns  the index it has if this leader's term lasts; another entry may take it otherwise
        raises   NotLeader, UnknownGroup
        """
        found = self._group(group)
        index = found.node.propose(data, self._clock.epoch_ms())
        self._touch(found)
        return index

    def transfer(self, group: GroupId, to: NodeId) -> None:
        """Transfer the leadership when `to` has caught up; aborted if that takes too long.

        raises  NotLeader, UnknownGroup, UsageError when `to` is no voter
        """
        found = self._group(group)
        found.node.transfer_leader(to, self._clock.epoch_ms())
        self._touch(found)

    def leader(self, group: GroupId) -> NodeId | None:
        """Return the leader that this node knows; None: none, or the group is unknown."""
        found = self._groups.get(group)
        return None if found is None else found.node.leader

    def time_ms(self, group: GroupId) -> int:
        """Return the time stamp that a command proposed now would get; raises UnknownGroup."""
        return self._clock.epoch_ms() + self._group(group).node.log.ahead_ms

    def term(self, group: GroupId) -> int:
        """Return the group's term as this member knows it; 0: unknown."""
        found = self._groups.get(group)
        return 0 if found is None else found.node.term

    def is_leader(self, group: GroupId) -> bool:
        """Return whether this node leads and has applied all before its term (`became_leader`)."""
        found = self._groups.get(group)
        return found is not None and found.leading and found.node.role is Role.LEADER

    def leader_denied(self, group: GroupId, node: NodeId) -> None:
        """Stop following that node if this member does: it says that it does not lead the group."""
        found = self._groups.get(group)
        if found is not None and found.node.leader == node:
            found.node.leader_denied(node, self._clock.epoch_ms())
            self._touch(found)

    def hands_over(self, group: GroupId) -> bool:
        """Return whether this node transfers its leadership: nothing can be proposed meanwhile."""
        found = self._groups.get(group)
        lead = None if found is None else found.node.leadership
        return lead is not None and lead.transfer_to is not None

    def state(self, group: GroupId) -> Any:
        """Return the machine's applied state, which must not be changed; raises UnknownGroup."""
        found = self._groups.get(group)
        return found.state if found is not None else self._group(group).state

    def read_index(self, group: GroupId, within_ms: int, done: ReadDone) -> None:
        """Have `done` called when the state holds everything that was committed before this call.

        Costs a round of messages to the voters, shared by the reads of a turn, and no log entry.
        done      called once, later: True; False when that is unknown after `within_ms`, because
                  leadership was lost, messages were, or this member is far behind
        raises    NotLeader when no leader is known, TooManyReads, UnknownGroup
        """
        found, context = self._group(group), next(self._read_contexts)
        found.node.read_index(context, self._clock.epoch_ms())
        timer = self._loop.call_later(within_ms, lambda: found.reads.give_up(context))

        def answered(current: bool) -> None:
            timer.cancel()
            done(current)

        found.reads.ask(context, answered)
        self._touch(found)

    def applied_index(self, group: GroupId) -> Index:
        """Return the index of the last entry in `state`; raises UnknownGroup."""
        return self._group(group).applied

    def log_position(self, group: GroupId) -> LogPosition:
        """Return how far this member's log of the group is; raises UnknownGroup."""
        return self._group(group).position()

    def members(self, group: GroupId) -> Membership:
        """Return the members of the group; raises UnknownGroup."""
        return self._group(group).node.membership

    def change_members(self, group: GroupId, change: Change) -> Index:
        """Propose a membership change (AddLearner, Promote, Remove, Demote of `core.membership`).

        returns  the index of its CONFIG entry; `Observer.members_changed` tells when it is applied
        raises   NotLeader, UnknownGroup, MembershipRefused with reason and remedy
        """
        found = self._group(group)
        if found.volatile:
            raise MembershipRefused(
                "cannot change", change.node, f"group {group} is in one node's memory only"
            )
        now = self._clock.epoch_ms()
        if self._peers.silent(change.node) and change.node != self.node_id:
            found.node.peer_suspected(change.node, now)
        index = found.node.propose_change(change, now)
        self._touch(found)
        return index

    def member_states(self, group: GroupId) -> tuple[MemberState, ...]:
        """Return each member as the leader sees it, with the progress of its snapshot transfer.

        raises  NotLeader, UnknownGroup
        """
        found = self._group(group)
        return self._transfers.progress(found, found.node.member_states())

    def stored(self, group: GroupId) -> bool:
        """Return whether this node's disk has a member of that group (started or not)."""
        return group in self._logs.groups

    def formation(self, callback: Callable[[BootstrapPlan], None]) -> None:
        """Decide how to start group 0; `callback` is called once, perhaps at once.

        A founder of a new cluster waits until it has reached all founders; the log names those it
        waits for.
        """
        self._bootstrap.begin(callback, self._clock.epoch_ms())

    def read_entry(self, group: GroupId, index: Index) -> Entry:
        """Return an entry: see `GroupStore.read`; raises UnknownGroup, too."""
        return self._group(group).store.read(index)

    def entry_time(self, group: GroupId, index: Index) -> EntryTime:
        """Return when an entry was written: see `GroupStore.entry_time`; raises UnknownGroup."""
        return self._group(group).store.entry_time(index)

    def read_data(self, group: GroupId, indexes: Iterable[Index]) -> Iterator[bytes | EntryDamaged]:
        """Yield the data of entries: see `GroupStore.read_data`; raises UnknownGroup at once."""
        return self._group(group).store.read_data(indexes)

    def hold_snapshot(self, group: GroupId) -> HeldSnapshot | None:
        """Hold the state as it is: see `SnapshotPolicy.hold`; raises UnknownGroup."""
        return self._snapshot_policy.hold(self._group(group))

    def release_snapshot(self, held: HeldSnapshot) -> None:
        """Let what is held go; harmless when repeated."""
        self._snapshot_policy.held.release(held)

    def entry(self, group: GroupId, index: Index, term: int) -> Entry | None:
        """Return the entry with that index and term, durable or not; None: it is not here."""
        found = self._groups.get(group)
        return None if found is None else found.node.entry(index, term)

    def sent_term(self, group: GroupId, node: NodeId, index: Index) -> int:
        """Return the entry's term if `node` has it, or receives it before any later message.

        returns  0 when that is not known, or this node does not lead the group
        """
        found = self._groups.get(group)
        return 0 if found is None else found.node.sent_term(node, index)

    # ------------------------------------------------------------ peers

    def send(self, node: NodeId, buffers: Iterable[Buffer]) -> bool:
        """Send one application message to the peer's handler, in order, at most once.

        returns  False when there is no connection: it is lost. Later losses are reported by
                 `peer_down`
        """
        return self._transport.send_message(node, list(buffers))

    @property
    def disk_full(self) -> bool:
        """Whether a write waits for disk space; it is retried until there is."""
        return self._store is not None and self._store.wal.full is not None

    def lags(self, group: GroupId) -> dict[NodeId, int]:
        """Return how many entries each other member lacks; empty: this node does not lead."""
        found = self._groups.get(group)
        lead = None if found is None else found.node.leadership
        if found is None or lead is None:
            return {}
        last = found.node.log.last
        return {node: last - one.match for node, one in lead.progress.items()}

    def measures(self) -> RaftMeasures:
        """Return what was measured; the histograms are those that continue to be changed."""
        logs, ready, loop = self._logs, self._ready_loop, self._loop
        wal, files, segments = logs.wal, set(logs.log_files.use.live), logs.log_files.segments
        ends = {**logs.log_files.ends, wal.current_file: wal.newest_bytes}
        sending, receiving = self._transfers.under_way()
        return RaftMeasures(
            turns=loop.turns,
            lags=loop.lags,
            syncs=wal.syncs,
            sync_bytes=wal.sync_bytes,
            sync_records=wal.sync_records,
            commits=ready.commits,
            applies=ready.applies,
            elections=ready.elections,
            elections_won=ready.elections_won,
            leader_changes=ready.leader_changes,
            snapshots=logs.compactor.snapshots,
            snapshots_sent=self._transfers.begun,
            snapshots_installed=self._transfers.installed,
            compactions=logs.compactor.cycles,
            compacted_bytes=logs.compactor.rewritten_bytes,
            wal_files=len(files),
            wal_bytes=sum([ends.get(file, 0) for file in files]),
            backlog_bytes=wal.backlog_bytes,
            segments=len(segments),
            segment_bytes=sum([segment.bytes for segment in segments]),
            memtable_bytes=logs.memtable.bytes_held,
            memtable_bytes_max=logs.memtable.bytes_max,
            sending=sending,
            receiving=receiving,
            disk=self._disk.condition,
            peers=self._peers.conditions(),
        )

    def log_work(self) -> tuple[int, int, int]:
        """Return writes of the log, bytes that they have written, and syncs."""
        wal = self._logs.wal
        return sum(wal.sync_bytes.counts), int(wal.sync_bytes.total), sum(wal.syncs.counts)

    @property
    def sync_ms(self) -> float:
        """The mean time of a sync of the log; 0: there was none."""
        syncs = self._logs.wal.syncs
        return round(1000 * syncs.total / max(1, sum(syncs.counts)), 3)

    @property
    def _logs(self) -> LogStore:
        assert self._store is not None, "call start first"
        return self._store

    def _group(self, group: GroupId) -> Group:
        found = self._groups.get(group)
        if found is None:
            raise UnknownGroup(group, self.node_id)
        return found

    def reclaim_disk(self) -> None:
        """Release at once what no group needs: the disk is low on space. May be repeated."""
        self._snapshot_policy.reclaim()

    def _group_restored(self, group: Group) -> None:
        self._ready_loop.ask_submit()  # for the record of the log's new beginning
        if group.id == METADATA_GROUP:
            self._bootstrap.committed(())
        self._observer.restored(group.id)
        if not group.deleted:
            self._observer.members_changed(group.id, group.node.membership)

    def _watch_read(self) -> None:
        self._disk.watch_read(self._clock.monotonic_ms(), self._logs.log_files.reads)

    def _beat(self) -> None:
        self._heartbeat = self._loop.call_later(self.config.heartbeat_ms, self._beat)
        self._peers.beat()
        now_ms = self._clock.monotonic_ms()
        self._disk.beat(now_ms, self._logs)
        self._snapshot_policy.beat(now_ms)
        self._transfers.beat(self._clock.epoch_ms())
        self.repair.beat()
        self._lost.beat()
        self._scrub.beat(now_ms)
        self._bootstrap.look(self._clock.epoch_ms())

    # ------------------------------------------------------------ events of the transport

    def greeting(self, to: NodeId) -> Hello:
        """See TransportOwner."""
        hello = self._bootstrap.greeting(to, self.boot_id, self.address)
        return structs.replace(hello, written=self.position(), vouched=self._write_marks.known(to))

    def judge(self, hello: Hello) -> str | None:
        """See TransportOwner."""
        # 1. a is recovered alone from an older copy.  2. b returns, which knows more of a's disk.
        # b's word is about another cluster, so it must not void what a has. And first of all a node
        # that was removed is told so: it ends.
        # Replayed by tests/live/test_recover.py
        said = self._observer.judge_peer(hello)
        other = self._bootstrap.judge(hello)
        if other is not None:
            return other
        outdated = self._write_marks.judge(hello)
        if outdated is not None:
            self._bootstrap.change(outdated=outdated)
            raise DirectoryOutdated(self.config.data_dir, outdated)
        self._peers.check_alone(hello)
        return said

    def on_met(self, hello: Hello, address: Address) -> None:
        """See TransportOwner."""
        self._peers.met(hello)
        self._write_marks.heard(hello.node, hello.disk, hello.written, hello.boot_id)
        if hello.version:
            self.raise_version(hello.version)
        self._bootstrap.met(hello, address, self._clock.epoch_ms())

    def on_up(self, node: NodeId, boot_id: int) -> None:
        """See TransportOwner."""
        self._disk.peer_up(node)
        self._peers.on_up(node, boot_id)

    def on_down(self, node: NodeId) -> None:
        """See TransportOwner."""
        self._write_marks.keep()
        self._peers.on_down(node)

    def position(self) -> int:
        """See TransportOwner."""
        return self._logs.wal.synced_batch

    def on_position(self, node: NodeId, disk: int, write: int, boot: int) -> None:
        """See TransportOwner."""
        self._write_marks.heard(node, disk, write, boot)

    def on_raft(self, node: NodeId, messages: list[AnyRaftMessage]) -> None:
        """See TransportOwner."""
        now = self._clock.epoch_ms()
        for message in messages:
            if message.sender != node or message.to != self.node_id:
                raise BadFrame(
                    f"node {node!r} sent a message from {message.sender!r} to {message.to!r}"
                )
            if isinstance(message, EntryWanted | EntryIs):
                self.repair.take(message)
                continue
            group = self._groups.get(message.group)
            if group is None:
                if message.group == METADATA_GROUP and type(message) is Append:
                    self._bootstrap.leader_heard(now)
                self._early.add(message)
                continue
            admitted = self._backpressure.admit(message, group)
            if admitted is not None:
                group.node.step(admitted, now)
                self._touch(group)

    def on_message(self, node: NodeId, body: memoryview) -> None:
        """See TransportOwner."""
        if self._on_message is not None:
            self._on_message(node, body)
