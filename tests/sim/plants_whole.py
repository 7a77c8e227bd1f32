"""Bugs to plant in whole nodes; see `plants`."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from sim import (
    plants_delayed,
    plants_deliveries,
    plants_filters,
    plants_imports,
    plants_letters,
    plants_policies,
    plants_queues,
    plants_relays,
    plants_versions,
)
from sim.planting import Replacement, by_name
from sim.whole.sync import SimulatedWal
from warren_broker.cluster.client import dead_letters
from warren_broker.cluster.client.queue_client import GroupClient
from warren_broker.cluster.client.uplink import Uplink
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.leader.leader_effects import LeaderEffects
from warren_broker.cluster.leader.set_aside import SetAsideCounts
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue import disconnects, machine
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import OpenClaim, Resume, SinkStage
from warren_machines.queue.effects import DeadLetter
from warren_machines.queue.ready import limits
from warren_machines.queue.ready.block_index import Detail
from warren_raft.core import lost
from warren_raft.machine import GroupSpec
from warren_raft.runtime.group import Group, LinearizableReads
from warren_raft.runtime.host import Host
from warren_raft.runtime.net import call_table
from warren_raft.runtime.peer_write_marks import PeerWriteMarks
from warren_raft.runtime.snapshots import Transfers
from warren_raft.storage import recovery, rewrite, wal
from warren_raft.storage.compaction import Compactor
from warren_raft.storage.files import Files
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.wal import Wal
from warren_raft.types import HardState


def a_leader_keeps_what_it_cannot_send() -> list[Replacement]:
    """A leader with a damaged, uncommitted entry that it alone has leads for good."""
    return [(lost, "give_way", lambda *_: None)]


def wal_answers_before_the_sync() -> list[Replacement]:
    """Written but unsynced data is acknowledged."""
    put = SimulatedWal.put

    def put_hastily(self: SimulatedWal, batch: Any) -> None:
        if batch is None:
            put(self, batch)
            return
        self._post(lambda: self._finished(batch))
        self.process.after_sync(lambda: self._writer.write(batch))

    return [(SimulatedWal, "put", put_hastily)]


def a_renewal_begins_a_second_call() -> list[Replacement]:
    """A silent peer that spoke during a renewal's handshake is called again beside that call."""
    pair = call_table.CallState.CALLING, call_table.Event.SUSPECTED
    return [(call_table, "FIRST", {**call_table.FIRST, pair: call_table.CONNECT_NOW})]


def every_second_sync_is_skipped() -> list[Replacement]:
    """The writer of the log calls a batch synced, every second time, that it has only written."""
    write = wal._Writer.write
    calls = {"made": 0}

    class Lazy:
        """Files without that sync."""

        def __init__(self, files: Any) -> None:
            self._files = files

        def __getattr__(self, name: str) -> Any:
            return getattr(self._files, name)

        def sync_data(self, fd: int) -> None:
            """Not now."""
            calls["made"] += 1
            if calls["made"] % 2:
                self._files.sync_data(fd)

    def lazy(self: Any, batch: Any) -> None:
        files, self._files = self._files, Lazy(self._files)
        try:
            write(self, batch)
        finally:
            self._files = files

    return [(wal._Writer, "write", lazy)]


def directory_not_synced_after_a_rename() -> list[Replacement]:
    """A file is renamed, and the directory is not synced."""

    def hasty(self: Files, old: Any, new: Any) -> None:
        self.system.rename(old, new)

    create = Files.create

    def created(self: Files, path: Any, data: bytes) -> int:
        sync, self.sync_directory = self.sync_directory, lambda path: None  # type: ignore
        try:
            return create(self, path, data)
        finally:
            self.sync_directory = sync  # type: ignore[method-assign]

    return [(Files, "rename", hasty), (Files, "create", created)]


def a_file_that_is_written_over_keeps_its_salt() -> list[Replacement]:
    """Records of a file's earlier use pass for records of this one, behind its end."""

    def the_same(self: SimulatedWal, file: int) -> int:
        self.salts[file] = 0x5A175A17
        return 0x5A175A17

    return [(SimulatedWal, "_new_salt", the_same)]


def a_spare_file_is_its_old_self_until_it_is_synced() -> list[Replacement]:
    """A spare file gets its new name before its new beginning is on the disk."""

    def hasty(self: Files, old: Any, path: Any, data: bytes) -> int:
        fd: int = self.system.open(old, os.O_RDWR | os.O_CLOEXEC)
        self.write_at(fd, 0, [data])
        self.rename(old, path)
        return fd

    return [(Files, "reuse", hasty)]


def a_spare_file_is_renamed_before_it_is_synced() -> list[Replacement]:
    """A spare file gets its new name, then its new beginning and the name are synced."""

    def hasty(self: Files, old: Any, path: Any, data: bytes) -> int:
        fd: int = self.system.open(old, os.O_RDWR | os.O_CLOEXEC)
        self.write_at(fd, 0, [data])
        self.system.rename(old, path)
        self.system.fsync(fd)
        self.sync_directory(path.parent)
        return fd

    return [(Files, "reuse", hasty)]


def damage_amid_the_log_is_a_torn_end() -> list[Replacement]:
    """Recovery cuts the log at the first record that it cannot read, whatever follows."""
    return [(recovery._File, "_refuse_unless_torn", lambda self, salt, offset, damage: None)]


def wal_forgets_the_vote() -> list[Replacement]:
    """The record of a hard state holds the term only."""
    write = Wal.hard_state

    def forgetful(self: Wal, group: int, state: HardState) -> None:
        write(self, group, HardState(state.term, None))

    return [(Wal, "hard_state", forgetful)]


def repeats_are_applied() -> list[Replacement]:
    """The machine does not look at the sequence numbers of submissions."""
    submit = machine._submit

    def again(context: Any, submission: Any) -> Any:
        uplink = context.state.uplinks.get(submission.uplink)
        if uplink is not None and submission.seq <= uplink.last_seq:
            uplink.last_seq = submission.seq - 1
        return submit(context, submission)

    return [(machine, "_submit", again)]


def nothing_is_told_again() -> list[Replacement]:
    """The uplink does not resend to a new leader."""
    return [(Uplink, "rewind", lambda self, seq=0: None)]


def resume_skips_one() -> list[Replacement]:
    """A consumer asks its new leader to continue one message too late."""
    found = GroupClient.leader_found

    def hasty(self: GroupClient, leader: str, term: int, reconnected: bool = False) -> None:
        command = self.uplink.command
        for local in self.consumers.values():
            command(Resume(local.consumer, local.next_msg_id + 1))
            local.next_msg_id += 1
        found(self, leader, term, reconnected)

    return [(GroupClient, "leader_found", hasty)]


def the_dead_keep_their_messages() -> list[Replacement]:
    """The queues are not told that a node's process has ended."""
    return [
        (LeaderEffects, "_end", lambda self, group, life: None),
        (
            LeaderEffects,
            "start",
            lambda self, group, effects: (
                self.led.add(group),
                self._held.carry_out(group, 0, None, effects),
            ),
        ),
    ]


def state_depends_on_the_member() -> list[Replacement]:
    """The state depends on something outside the log."""
    apply = machine.QueueMachine.apply
    calls = {"made": 0}

    def counting(self: Any, meta: Any, command: Any, state: Any) -> Any:
        calls["made"] += 1
        applied = apply(self, meta, command, state)
        if calls["made"] % 50 == 0:
            state.unused_ms += 1
        return applied

    return [(machine.QueueMachine, "apply", counting)]


def staged_again_counts_again() -> list[Replacement]:
    """A stage does not look at the numbers of its blocks, and its count only at new ones."""

    def again(context: Any, command: SinkStage) -> Any:
        run = context.state.runs.get(command.sink, {}).get(command.run)
        key = (command.batch, command.partition, command.attempt)
        part = run.stages.get(key) if run is not None else None
        seen = part is not None and command.seq <= part.last_seq
        reply = stage(context, msgspec.structs.replace(command, seq=0))
        if part is not None:
            part.count -= seen
            part.last_seq = max(part.last_seq, command.seq)
        return reply

    stage = machine.HANDLERS[SinkStage]
    return [(machine, "HANDLERS", {**machine.HANDLERS, SinkStage: again})]


def a_claim_asked_for_again_is_another() -> list[Replacement]:
    """The number of a claim that is open opens the next messages."""

    def again(context: Any, command: OpenClaim) -> Any:
        reader = context.state.readers.get(command.reader)
        if reader is not None and command.number in reader.claims:
            forgotten = reader.claims.pop(command.number)
            reader.opened = command.number - 1
            context.state.claimed -= forgotten.messages
        return open_claim(context, command)

    open_claim = machine.HANDLERS[OpenClaim]
    return [(machine, "HANDLERS", {**machine.HANDLERS, OpenClaim: again})]


def snapshot_before_its_entries_are_durable() -> list[Replacement]:
    """A snapshot is written at once, before the log is on disk."""

    def hasty(self: Compactor, snapshots: Any, done: Any = lambda: None) -> None:
        self.busy = True
        self._when_done = done
        kept, log_files = list(snapshots), self.log_files
        with suppress(OSError):
            rewrite.write_snapshots(log_files.files, log_files.directory.snapshots, kept)
        self.background_writer.run(
            lambda: None, lambda _: self._snapshots_written(kept), self._full
        )

    return [(Compactor, "run", hasty)]


def compaction_drops_a_live_entry() -> list[Replacement]:
    """The oldest entry that is referred to is taken for dead, once there are three."""
    drop_to = GroupLog.drop_to

    def careless(self: GroupLog, index: int, live: Any, time_ms: int) -> None:
        drop_to(self, index, live[1:] if len(live) > 2 else live, time_ms)

    return [(GroupLog, "drop_to", careless)]


def snapshot_forgets_who_submitted() -> list[Replacement]:
    """De-duplication is not in the snapshot: a repeated submission is applied again."""
    restore = machine.QueueMachine.restore

    def forgetful(self: Any, data: bytes) -> Any:
        state = restore(self, data)
        for uplink in state.uplinks.values():
            uplink.last_seq = max(0, uplink.last_seq - 1)
        return state

    return [(machine.QueueMachine, "restore", forgetful)]


def a_file_of_what_is_being_received_is_retired() -> list[Replacement]:
    """Log files are retired although they hold entries of a snapshot being received."""
    return [(Compactor, "_may_retire", lambda self, file: True)]


def an_empty_disk_begins_as_a_founder() -> list[Replacement]:
    """A node does not ask whether the group exists already."""
    start_group = Host.start_group

    def naive(self: Host, spec: GroupSpec, machine: Any) -> None:
        start_group(self, replace(spec, joining=False), machine)

    return [(Host, "start_group", naive)]


def a_member_goes_before_it_was_let_go() -> list[Replacement]:
    """A node deletes its member of a queue before the removal is committed."""
    carriers = property(lambda self: self.nodes)
    return [(QueueRecord, "carriers", carriers)]


def files_removed_before_the_manifest() -> list[Replacement]:
    """Log files are removed before the manifest holds their groups, terms and votes."""
    return [(rewrite, "put_manifest", lambda files, path: None)]


def received_entries_not_synced() -> list[Replacement]:
    """A received snapshot is written before the entries that it refers to are on disk."""

    def hasty(self: Transfers, group: Any, incoming: Any, now_ms: int) -> None:
        class Eager:
            """A store that reports everything as on disk."""

            def __getattr__(self, name: str) -> Any:
                return getattr(store, name)

            @property
            def wal(self) -> Any:
                """Itself."""
                return self

            def submit(self, done: Any) -> None:
                """At once."""
                done()

        store, self.store = self.store, Eager()  # type: ignore[assignment]
        try:
            finish(self, group, incoming, now_ms)
        finally:
            self.store = store

    finish = Transfers._finish
    return [(Transfers, "_finish", hasty)]


def applied_again_after_a_restart() -> list[Replacement]:
    """The last entry of a snapshot is applied again when the log has it."""
    apply = Group.apply

    def again(self: Group, committed: Any, observer: Any) -> None:
        begun = bool(self.applied) and self.applied == self.store.snapshot_index
        apply(self, committed, observer)
        if begun and committed and not self.deleted:
            self.applied = committed[-1].index - 1
            apply(self, committed[-1:], observer)

    return [(Group, "apply", again)]


def set_order_leak() -> list[Replacement]:
    """The order of returns is that of a set, which differs between processes."""
    remove = disconnects._remove
    processes: dict[int, tuple[int, Any]] = {}

    def unordered(context: Any, gone: Any, failed: bool, lost: bool = False) -> None:
        state = context.state
        seed, _ = processes.setdefault(id(state), (len(processes), state))
        for consumer in sorted(gone, key=lambda one: hash((seed, one.key))):
            remove(context, [consumer], failed, lost)

    return [(disconnects, "_remove", unordered)]


def every_member_carries_effects_out() -> list[Replacement]:
    """Dead letters are published by every member that applies the entry."""
    applied = Cluster.applied

    def eager(self: Cluster, group: int, meta: Any, data: bytes, done: Any, leading: bool) -> None:
        if not leading and group:
            for effect in done.effects:
                if isinstance(effect, DeadLetter):
                    self.effects._run[DeadLetter](group, effect)
        applied(self, group, meta, data, done, leading)

    return [(Cluster, "applied", eager)]


def a_full_disk_counts_as_written() -> list[Replacement]:
    """A write that found no space is not repeated."""

    def careless(self: Wal, batch: Any) -> bool:
        with suppress(OSError):
            wrote(self, batch)
        return True

    wrote = Wal._wrote
    return [(Wal, "_wrote", careless)]


def what_was_refused_stays() -> list[Replacement]:
    """A full queue refuses messages, and keeps them."""
    cut_surplus = limits.cut_surplus

    def generous(context: QueueContext, lane: int, index: int) -> int:
        state = context.state
        surplus = state.order.count - (context.config.max_length or state.order.count)
        return min(surplus, 1) if surplus > 0 else cut_surplus(context, lane, index)

    return [(limits, "cut_surplus", generous)]


def expired_a_little_early() -> list[Replacement]:
    """A message expires a tenth of a second too early."""
    expiry = Detail.expiry

    def hasty(self: Detail, ordinal: int) -> int | None:
        due = expiry(self, ordinal)
        return None if due is None else max(self.born_ms, due - 100)

    return [(Detail, "expiry", hasty)]


def what_can_be_read_is_on_the_disk() -> list[Replacement]:
    """A start acknowledges what the earlier process had written and not synced."""
    return [(recovery, "_settle", lambda files, directory, newest: None)]


def an_older_copy_is_judged_by_nobody() -> list[Replacement]:
    """No node tells another one that its directory is an older copy."""
    return [(PeerWriteMarks, "judge", lambda self, hello: None)]


def one_message_ends_the_node() -> list[Replacement]:
    """The fault of an unreadable dead letter reaches the loop."""

    def unguarded(
        self: SetAsideCounts, group: int, where: str, call: Any, *args: Any, count: int = 1
    ) -> bool:
        call(*args)
        return True

    return [
        (SetAsideCounts, "attempt", unguarded),
        (dead_letters, "readable", lambda stored: stored),
    ]


def a_read_does_not_wait_for_its_index() -> list[Replacement]:
    """A member answers a read as soon as the leader has, whatever it has applied itself."""

    def confirmed(self: LinearizableReads, reads: Any) -> None:
        for read in reads:
            done = self._asked.pop(read.context, None)
            if done is not None:
                done(read.index is not None)

    return [(LinearizableReads, "confirmed", confirmed)]


PLANTS = (
    by_name(
        a_leader_keeps_what_it_cannot_send,
        wal_answers_before_the_sync,
        a_renewal_begins_a_second_call,
        every_second_sync_is_skipped,
        directory_not_synced_after_a_rename,
        a_file_that_is_written_over_keeps_its_salt,
        a_spare_file_is_its_old_self_until_it_is_synced,
        a_spare_file_is_renamed_before_it_is_synced,
        damage_amid_the_log_is_a_torn_end,
        wal_forgets_the_vote,
        repeats_are_applied,
        nothing_is_told_again,
        resume_skips_one,
        the_dead_keep_their_messages,
        state_depends_on_the_member,
        staged_again_counts_again,
        a_claim_asked_for_again_is_another,
        snapshot_before_its_entries_are_durable,
        compaction_drops_a_live_entry,
        snapshot_forgets_who_submitted,
        a_file_of_what_is_being_received_is_retired,
        an_empty_disk_begins_as_a_founder,
        a_member_goes_before_it_was_let_go,
        files_removed_before_the_manifest,
        received_entries_not_synced,
        applied_again_after_a_restart,
        set_order_leak,
        every_member_carries_effects_out,
        a_full_disk_counts_as_written,
        what_was_refused_stays,
        expired_a_little_early,
        what_can_be_read_is_on_the_disk,
        an_older_copy_is_judged_by_nobody,
        one_message_ends_the_node,
        a_read_does_not_wait_for_its_index,
    )
    | plants_queues.PLANTS
    | plants_filters.PLANTS
    | plants_letters.PLANTS
    | plants_policies.PLANTS
    | plants_delayed.PLANTS
    | plants_deliveries.PLANTS
    | plants_imports.PLANTS
    | plants_relays.PLANTS
    | plants_versions.PLANTS
)
