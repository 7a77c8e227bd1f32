"""One simulated node: what a host does around the core, with a simulated disk and network."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from sim.carrier import Carrier
from sim.disk import Disk, Kept
from warren_raft import messages
from warren_raft.core.node import RaftNode
from warren_raft.core.ready import Ready, Role
from warren_raft.machine import Meta
from warren_raft.types import Entry, EntryKind

if TYPE_CHECKING:
    from sim.world import World

GROUP = 7
HEARTBEAT_MS = 150
SUSPECT_MS = (400, 600, 1_500)
"""Members need not agree: one may lead on while the others have a new leader."""


class Member:
    """A node with one group. `node` is None while it is down.

    skew_ms its clock against the world's
    life    counts its processes; heartbeats carry it
    heard   when each other node was last heard of; lives: in which life
    held    messages that wait for a write: (sequence, messages)
    last_seen  the end of its log after the turn before
    asked   proposals of this life that are not applied yet: index -> (term, ticket)
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.rng = Random(world.rng.randrange(1 << 48))
        self.disk = Disk(world.agenda, self.rng, self.sync_ms)
        self.disk.on_synced = self.on_synced
        self.others = [other for other in world.names if other != name]
        self.node: RaftNode | None = None
        self.life = 0
        self.paused_until = 0
        self.slow_disk_until = 0
        self.suspect_ms = self.rng.choice(SUSPECT_MS)
        self.skew_ms = self.rng.choice((0, self.rng.randrange(-1_000, 1_000)))
        self.snapshot_index = 0
        self.last_seen = 0

    def now(self) -> int:
        """What its clock says."""
        return self.world.agenda.now_ms + self.skew_ms

    def sync_ms(self) -> int:
        """How long the next sync takes."""
        profile = self.world.profile
        low, high = profile.sync_ms
        took = self.rng.randrange(low, high + 1)
        if self.world.agenda.now_ms < self.slow_disk_until:
            return took * 20
        if not self.world.network.calm and self.rng.randrange(1000) < profile.slow_permille:
            return took * 10
        return took

    # ------------------------------------------------------------------ living

    def start(self) -> None:
        """A new process on what the disk holds."""
        assert self.node is None
        world = self.world
        self.life += 1
        kept = self.disk.snapshot
        self.snapshot_index = kept.index if kept is not None else 0
        self.node = RaftNode(
            GROUP,
            self.name,
            kept.membership if kept is not None else world.founders,
            self.disk.hard_state,
            self.disk.safe,
            world.profile.config,
            self.rng,
            self.now(),
            world.preferred,
            self.snapshot_index,
            self.disk.member_id,
            self.disk.safe.configs(),
        )
        self.carrier = Carrier(self, GROUP)
        self.state = world.machine.init() if kept is None else world.machine.restore(kept.state)
        self.last_seen = self.node.last_index
        self.heard = dict.fromkeys(self.others, world.agenda.now_ms)
        self.lives: dict[str, int] = {}
        self.suspects = dict.fromkeys(self.others, False)
        self.held: list[tuple[int, tuple[messages.AnyRaftMessage, ...]]] = []
        self.asked: dict[int, tuple[int, Any]] = {}
        self.reading: dict[int, int] = {}
        self.dirty = False
        self.timer_at: int | None = None
        world.checkers.started(self)
        self.heartbeat(self.life)
        self.touch()

    def begin_after(self, kept: Kept) -> None:
        """Another member's snapshot takes the place of the state."""
        self.state = self.world.machine.restore(kept.state)
        self.snapshot_index = kept.index
        for index in [index for index in self.asked if index <= kept.index]:
            self.asked.pop(index)[1].refused(None)
        self.world.checkers.started(self)

    def crash(self) -> None:
        """The process ends; what was not synced may be gone."""
        if self.node is not None:
            self.node = None
            self.paused_until = 0
            self.disk.crash()
            self.world.note("crash", self.name, self.disk.safe.last_index())

    def lose_disk(self) -> None:
        """The process ends and its disk is gone: what starts here next is another member."""
        self.crash()
        self.disk.lose()
        self.world.note("lost", self.name, self.disk.member_id)

    def is_paused(self) -> bool:
        """It stands still."""
        return self.world.agenda.now_ms < self.paused_until

    def pause(self, until_ms: int) -> None:
        """Do nothing until then; what arrives waits."""
        self.paused_until = until_ms

    def later(self, act: Any, *args: Any) -> bool:
        """Whether the member is paused; then `act` is planned for its end."""
        if self.world.agenda.now_ms < self.paused_until:
            self.world.agenda.at(self.paused_until, act, *args)
            return True
        return False

    def heartbeat(self, life: int) -> None:
        """Tell the others that this one lives, and see whom it has not heard of."""
        if life != self.life or self.node is None or self.later(self.heartbeat, life):
            return
        now_ms = self.world.agenda.now_ms
        for other in self.others:
            self.world.network.send(self.name, other, self.life)
            if not self.suspects[other] and now_ms - self.heard[other] > self.suspect_ms:
                self.suspect(other)
        self.world.agenda.after(HEARTBEAT_MS, self.heartbeat, life)

    def suspect(self, other: str) -> None:
        """Not heard of for too long."""
        if self.node is not None and not self.suspects[other]:
            self.suspects[other] = True
            self.node.peer_suspected(other, self.now())
            self.touch()

    def hear(self, other: str, life: int) -> None:
        """A sign of life."""
        assert self.node is not None
        known = self.lives.get(other)
        if known is not None and life < known:
            return
        self.heard[other] = self.world.agenda.now_ms
        self.lives[other] = life
        if known != life:
            self.suspects[other] = False
            self.node.peer_restarted(other, self.now())
            self.touch()
        elif self.suspects[other]:
            self.suspects[other] = False
            self.node.peer_connected(other, self.now())
            self.touch()

    def reconnected(self, other: str) -> None:
        """The connection was made anew."""
        if self.node is not None and not self.suspects[other]:
            self.node.peer_connected(other, self.now())
            self.touch()

    # ------------------------------------------------------------------ what comes in

    def receive(self, sender: str, packet: Any) -> None:
        """From the network."""
        if self.node is None or self.later(self.receive, sender, packet):
            return
        if type(packet) is int:
            self.hear(sender, packet)
            return
        life, packet = packet
        if life < self.lives.get(sender, 0):
            return  # of a process that is known to be over: its connection was closed
        if type(packet) is bytes:
            packet = messages.decode(packet)
        self.node.step(packet, self.now())
        self.touch()

    def propose(self, data: bytes, ticket: Any) -> None:
        """From a client; raises NotLeader."""
        assert self.node is not None
        index = self.node.propose(data, self.now())
        self.asked[index] = (self.node.term, ticket)
        self.touch()

    def read(self, context: int, current: int) -> None:
        """From a client: an answer must lie at or above `current`; raises NotLeader."""
        assert self.node is not None
        self.node.read_index(context, self.now())
        self.reading[context] = current
        self.touch()

    def on_synced(self, sequence: int) -> None:
        """From the disk."""
        self.hear_disk(self.life, sequence)

    def hear_disk(self, life: int, sequence: int) -> None:
        """From the disk, in the life that wrote."""
        if life != self.life or self.node is None or self.later(self.hear_disk, life, sequence):
            return
        if sequence <= self.node.synced:
            return  # planned during a pause, overtaken when the pause was cut short
        self.node.durable(sequence)
        while self.held and self.held[0][0] <= sequence:
            self.send(self.held.pop(0)[1])
        self.touch()

    def on_timer(self, life: int, at_ms: int) -> None:
        """From the clock."""
        if life != self.life or self.node is None or self.later(self.on_timer, life, at_ms):
            return
        if at_ms == self.timer_at:
            self.timer_at = None
            deadline = self.node.deadline_ms
            if deadline is not None and deadline <= self.now():
                self.node.tick(self.now())
            self.touch()

    # ------------------------------------------------------------------ the turn

    def touch(self) -> None:
        """Something happened: a turn follows."""
        if not self.dirty:
            self.dirty = True
            self.world.agenda.after(self.world.profile.turn_ms, self.turn, self.life)

    def turn(self, life: int) -> None:
        """Do what the core asks for."""
        if life != self.life or self.node is None or self.later(self.turn, life):
            return
        self.dirty = False
        node = self.node
        while (ready := node.ready()) is not None:
            self.carry_out(ready)
        node.check()
        self.carrier.take()
        self.world.checkers.turned(self)
        self.last_seen = node.last_index
        deadline = node.deadline_ms
        if deadline is not None and (self.timer_at is None or deadline < self.timer_at):
            self.timer_at = deadline
            self.world.agenda.at(deadline - self.skew_ms, self.on_timer, life, deadline)

    def carry_out(self, ready: Ready) -> None:
        """One Ready, in the order that its docstring gives."""
        node = self.node
        assert node is not None
        self.world.checkers.ready(self, ready)
        if ready.writes:
            self.disk.write(ready.sequence, ready.hard_state, ready.entries)
        self.send(ready.messages)
        if ready.messages_after_sync:
            if self.may_leave(ready.sequence):
                self.send(ready.messages_after_sync)
            else:
                self.held.append((ready.sequence, ready.messages_after_sync))
        for entry in ready.committed:
            self.apply(entry)
        if ready.committed:
            node.applied_to(ready.committed[-1].index)
        for read in ready.reads:
            current = self.reading.pop(read.context, None)
            if current is not None and read.index is not None:
                self.world.checkers.read(self, read.index, current)
        for chunk in ready.chunks:
            self.carrier.take_chunk(chunk)
        for name in ready.snapshots:
            self.carrier.send_to(name)
        if ready.soft_state is not None:
            self.world.checkers.role(self, ready.soft_state)
            if ready.soft_state.role is not Role.LEADER:
                self.refuse_all()

    def may_leave(self, sequence: int) -> bool:
        """Whether what rests on that write may be sent."""
        assert self.node is not None
        return sequence <= self.node.synced

    def send(self, batch: tuple[messages.AnyRaftMessage, ...]) -> None:
        """Hand messages to the network."""
        codec = self.world.profile.codec
        for message in batch:
            self.world.checkers.sent(self, message)
            packet = messages.encode(message) if codec else message
            self.world.network.send(self.name, message.to, (self.life, packet))

    def apply(self, entry: Entry) -> None:
        """One committed entry."""
        self.world.checkers.applied(self, entry)
        reply = None
        if entry.kind is EntryKind.COMMAND:
            meta = Meta(entry.index, entry.term, entry.time_ms)
            reply = self.world.machine.apply(meta, entry.data, self.state).reply
        asked = self.asked.pop(entry.index, None)
        if asked is not None:
            term, ticket = asked
            if term == entry.term:
                ticket.confirmed(reply)
            else:
                ticket.refused(None)

    def term_at(self, index: int) -> int:
        """The term of an entry of the log as the core sees it; 0 before the first."""
        assert self.node is not None
        return self.node.log.term(index)

    def refuse_all(self) -> None:
        """Leadership is gone: who proposed asks the next leader."""
        for _, ticket in self.asked.values():
            ticket.refused(None)
        self.asked.clear()
