"""What must hold in whole nodes: one leader per term, one log, one state."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from sim.checkers import require
from warren_broker.block import Block
from warren_broker.queue.codec import decode_submission
from warren_raft.machine import Meta
from warren_raft.messages import AnyRaftMessage, AppendReply, VoteReply
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.identity import WAL, Directory
from warren_raft.storage.memtable import Memtable
from warren_raft.storage.recovery import recover
from warren_raft.types import METADATA_GROUP, HardState

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

DATA_DIR = Path("/sim")
REPLY_EVERY = 40
STATE_EVERY = 4
"""Entries from one comparison of states to the next; taking a snapshot is slow."""


class Checkers:
    """Sees every entry that every life of every member applies.

    leaders  (group, term) -> who leads
    entries  (group, index) -> (term, time, digest of the bytes)
    states   (group, index) -> digest of the state after it
    bodies   index -> the messages of the queue's entry at that index, in block order
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.leaders: dict[tuple[int, int], str] = {}
        self.entries: dict[tuple[int, int], tuple[int, int, bytes]] = {}
        self.states: dict[tuple[int, int], bytes] = {}
        self.last: dict[tuple[int, int], int] = {}
        self.bodies: dict[int, list[bytes]] = {}
        self.replies = 0

    def leader(self, process: Process, group: int, term: int, leading: bool) -> None:
        """Election safety."""
        if leading:
            self.world.note("leads", process.name, group, term)
            known = self.leaders.setdefault((group, term), process.name)
            require(known == process.name, "two leaders in a term", group, term, known)

    def applied(self, process: Process, group: int, meta: Meta, data: bytes) -> None:
        """State machine safety, by the entries and by the states."""
        place = (group, meta.index)
        entry = (meta.term, meta.time_ms, blake2b(data, digest_size=8).digest())
        known = self.entries.setdefault(place, entry)
        require(known == entry, "applied differently", process.name, place, known, entry)
        life = (process.boot_id, group)
        require(self.last.get(life, 0) < meta.index, "applied again", process.name, place)
        self.last[life] = meta.index
        if group != METADATA_GROUP and meta.index not in self.bodies:
            _, block = decode_submission(data)
            if block is not None:
                decoded = Block.decode(block)
                self.bodies[meta.index] = [bytes(decoded.body(i)) for i in range(len(decoded))]
        if meta.index % STATE_EVERY == 0:
            self.compare(process, group, meta.index)

    def compare(self, process: Process, group: int, index: int) -> None:
        """The state after an entry is the same on every member, in every life."""
        found = process.host._groups[group]
        if group != METADATA_GROUP:
            found.state.check()
        self.everything_lives(process, group)
        digest = blake2b(found.machine.snapshot(found.state), digest_size=8).digest()
        known = self.states.setdefault((group, index), digest)
        require(known == digest, "states differ", process.name, group, index)

    def everything_lives(self, process: Process, group: int) -> None:
        """Compaction loses nothing live: what the state refers to can be read, and is the same."""
        found = process.host._groups[group]
        found.store.log.check()
        for index in found.machine.live_indexes(found.state):
            try:
                entry = process.host.read_entry(group, index)
            except KeyError:
                require(False, "a live entry is gone", process.name, group, index)
            known = self.entries[group, index]
            held = (entry.term, entry.time_ms, blake2b(entry.data, digest_size=8).digest())
            require(held == known, "a live entry is another", process.name, group, index)

    def sent(self, process: Process, message: AnyRaftMessage) -> None:
        """What leaves may vouch only for what recovery would find on the disk now.

        Every vote is looked at; of append replies, which are many, some.
        """
        if type(message) is VoteReply:
            if message.granted:
                hard_state = self.recovered(process, message.group)[0]
                require(
                    hard_state.term > message.term
                    or (hard_state.term, hard_state.vote) == (message.term, message.to),
                    "a vote leaves before it is on disk", process.name, message, hard_state,
                )
        elif type(message) is AppendReply and message.ok:
            self.replies += 1
            if self.replies % REPLY_EVERY == 0:
                hard_state, log = self.recovered(process, message.group)
                require(hard_state.term >= message.term, "a term not on disk", message)
                if hard_state.term == message.term:
                    require(
                        log is not None and log.last >= message.index,
                        "acknowledged before it is on disk", process.name, message,
                    )

    def rewritten(self, process: Process) -> None:
        """After files were rewritten: were the power to go now, the node could start.

        Recovery itself refuses when something is missing that a snapshot refers to.
        """
        for group, found in sorted(process.host._groups.items()):
            _, log = self.recovered(process, group)
            if group in process.host._transfers._installing:
                continue  # what is on the disk is ahead of what is in memory
            durable = found.node.log.durable
            require(
                log is not None and log.last >= durable,
                "rewriting lost entries", process.name, group, durable, log and log.last,
            )

    def recovered(self, process: Process, group: int) -> tuple[HardState, GroupLog | None]:
        """A group as the process would find it if it were started anew."""
        files = process.machine.files.as_after_power_loss()
        directory = Directory(DATA_DIR, DATA_DIR / WAL, 0, files)
        found = recover(files, directory, Memtable(1 << 20)).groups.get(group)
        return (HardState(), None) if found is None else (found.hard_state, found.log)

    def finished(self) -> None:
        """All members have applied the same and are equal."""
        for group in (METADATA_GROUP, self.world.group):
            ends = {}
            for name, machine in self.world.processes.items():
                process = machine.running
                assert process is not None
                if group in process.host.groups():
                    ends[name] = process.host.applied_index(group)
            require(len(set(ends.values())) == 1, "members stopped at different entries", ends)
            for name in ends:
                process = self.world.processes[name].running
                assert process is not None
                self.compare(process, group, ends[name])
            self.world.note("state", group, self.states[group, next(iter(ends.values()))])
