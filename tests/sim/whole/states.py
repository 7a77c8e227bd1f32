"""What the members make of their log: the same entries, the same states, nothing live lost."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.whole.programs import NEW
from warren_machines.queue.codec import decode_submission
from warren_raft.errors import StorageError
from warren_raft.machine import Applied, Meta
from warren_raft.types import METADATA_GROUP
from warren_wire.block.block import Block

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

STATE_EVERY = 6
"""Entries from one comparison of states to the next; taking a snapshot is slow."""
LIVE_EVERY = 18
"""Entries from one reading of everything live to the next."""
Entry = tuple[int, int, bytes]


class States:
    """Sees every entry that every life of every member applies.

    entries  (group, index) -> (term, time, digest of the bytes)
    states   (group, index) -> digest of the state after it
    bodies   (group, index) -> the messages of that entry, in block order
    last     (life, group, member id) -> the last entry it has applied: one that left and came back
             begins again
    dying    what the entry that is being applied gives up
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.entries: dict[tuple[int, int], Entry] = {}
        self.states: dict[tuple[int, int], bytes] = {}
        self.bodies: dict[tuple[int, int], list[bytes]] = {}
        self.last: dict[tuple[int, int, int], int] = {}
        self.dying: list[tuple[str, int, int, int, int]] = []
        self.enqueued: dict[int, int] = {}

    # ------------------------------------------------------------ every entry

    def applied(
        self, process: Process, group: int, meta: Meta, data: bytes, applied: Applied
    ) -> None:
        """State machine safety (Raft paper, figure 3), by the entries and by the states."""
        place = (group, meta.index)
        if process.host._groups[group].volatile:
            self.forget(process, group, meta.index)
        entry = (meta.term, meta.time_ms, blake2b(data, digest_size=8).digest())
        known = self.entries.setdefault(place, entry)
        require(known == entry, "applied differently", process.name, place, known, entry)
        life = self.life(process, group)
        require(self.last.get(life, 0) < meta.index, "applied again", process.name, place)
        self.last[life] = meta.index
        if group != METADATA_GROUP:
            submission, block = decode_submission(data, NEW.newest)
            if place not in self.bodies and block is not None:
                decoded = Block.decode(block)
                self.bodies[place] = [bytes(decoded.body(i)) for i in range(len(decoded))]
            if self.dying:
                self.buried_in(group)
            found = process.host._groups[group]
            if not found.volatile:
                self.world.checkers.order.applied(
                    group, meta.index, submission, block, applied, found.state
                )
        if meta.index % STATE_EVERY == 0:
            self.compare(process, group, meta.index)

    def forget(self, process: Process, group: int, index: int) -> None:
        """A log in memory begins again with each life of its node."""
        if self.last.get(self.life(process, group), 0) < index:
            for table in (self.entries, self.states, self.bodies):
                table.pop((group, index), None)  # type: ignore[attr-defined]

    def restored(self, process: Process, group: int) -> None:
        """The entries up to another member's snapshot are not applied here."""
        self.last[self.life(process, group)] = process.host.applied_index(group)

    def life(self, process: Process, group: int) -> tuple[int, int, int]:
        """One life of a member."""
        return process.boot_id, group, process.host._groups[group].node.member_id

    def buried(self, reason: str, index: int, first: int, last: int, now: int) -> None:
        """Messages are given up; the books are told when the entry is applied."""
        self.dying.append((reason, index, first, last, now))

    def buried_in(self, group: int) -> None:
        """What the entry that was applied last has given up."""
        dying, self.dying = self.dying, []
        book = self.world.ledger.books.get(group)
        for reason, index, first, last, now in dying:
            bodies = self.bodies[group, index]
            for ordinal in range(first, last + 1):
                body = bodies[ordinal]
                if book is not None:
                    takes = self.world.checkers.order.taken.get((group, index, ordinal), 0)
                    book.bury(index, ordinal, body, reason, now, takes)
                if reason == "expired" and book is not None:
                    self.was_due(group, index, body, now)

    def was_due(self, group: int, index: int, body: bytes, now: int) -> None:
        """A message does not expire before its time."""
        book = self.world.ledger.of(group)
        limits = [ms for ms in (book.plan.ttl_ms, book.sent.get(body)) if ms is not None]
        # A staged message is ready only since its batch was published: later than its entry.
        due = self.entries[group, index][1] + min(limits)
        require(now >= due, "expired too early", group, index, body, now, due)

    # ------------------------------------------------------------ states

    def compare(self, process: Process, group: int, index: int, last: bool = False) -> None:
        """The state after an entry is the same on every member, in every life."""
        found = process.host._groups[group]
        if group != METADATA_GROUP:
            found.state.check()
        if index % LIVE_EVERY == 0 or last:
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
            except StorageError:
                require(process.machine.damaged, "damage out of nothing", process.name, group)
                continue
            known = self.entries[group, index]
            held = (entry.term, entry.time_ms, blake2b(entry.data, digest_size=8).digest())
            require(held == known, "a live entry is another", process.name, group, index)

    def finished(self, group: int) -> None:
        """All members have applied the same and are equal."""
        ends = {}
        for name, machine in self.world.present().items():
            process = machine.running
            assert process is not None
            if group in process.host.groups():
                ends[name] = process.host.applied_index(group)
        require(len(set(ends.values())) <= 1, "members stopped at different entries", group, ends)
        for name, index in ends.items():
            process = self.world.processes[name].running
            assert process is not None
            self.compare(process, group, index, last=True)
            self.world.note("state", group, self.states[group, index])

    def digests(self) -> Any:
        """The last state of every group."""
        return sorted(self.states.items())[-1:]
