"""One simulated node: a host for the core, with a simulated disk and network."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from sim.carrier import Carrier
from sim.disk import Disk, Kept
from warren_raft import messages
from warren_raft.core.raft_node import RaftNode
from warren_raft.core.ready import Ready, Role
from warren_raft.machine import Meta
from warren_raft.runtime.net import codec
from warren_raft.types import Entry, EntryKind

if TYPE_CHECKING:
    from sim.world import World

GROUP = 7
HEARTBEAT_MS = 150
SUSPECT_MS = (400, 600, 1_500)
"""Members need not agree: one may still lead while the others have a new leader."""


class Member:
    """A node with one group. `node` is None while it is down.

    skew_ms its clock against the world's
    life       counts its processes; heartbeats carry it
    heard      when each other node last sent anything; lives: its process number then
    held    messages that wait for a write: (sequence, messages)
    last_seen  the end of its log after the last turn
    asked   proposals of this process that are not applied yet: index -> (term, ticket)
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
        """Return the time of its clock."""
        return self.world.agenda.now_ms + self.skew_ms

    def sync_ms(self) -> int:
        """Return how long the next sync takes."""
        profile = self.world.profile
        low, high = profile.sync_ms
        took = self.rng.randrange(low, high + 1)
        if self.world.agenda.now_ms < self.slow_disk_until:
            return took * 20
        if not self.world.network.calm and self.rng.randrange(1000) < profile.slow_permille:
            return took * 10
        return took

    # ------------------------------------------------------------------ processes

    def start(self) -> None:
        """Start a new process from the disk."""
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
        """Replace the state by another member's snapshot."""
        self.state = self.world.machine.restore(kept.state)
        self.snapshot_index = kept.index
        for index in [index for index in self.asked if index <= kept.index]:
            self.asked.pop(index)[1].refused(None)
        self.world.checkers.started(self)

    def crash(self) -> None:
        """End the process; unsynced data may be lost."""
        if self.node is not None:
            self.node = None
            self.paused_until = 0
            self.disk.crash()
            self.world.note("crash", self.name, self.disk.safe.last_index())

    def lose_disk(self) -> None:
        """End the process and lose its disk: the next process is another member."""
        self.crash()
        self.disk.lose()
        self.world.note("lost", self.name, self.disk.member_id)

    def is_paused(self) -> bool:
        """Whether it is paused."""
        return self.world.agenda.now_ms < self.paused_until

    def pause(self, until_ms: int) -> None:
        """Pause until then; what arrives waits."""
        self.paused_until = until_ms

    def later(self, act: Any, *args: Any) -> bool:
        """Return whether the member is paused; then `act` is scheduled for the pause's end."""
        if self.world.agenda.now_ms < self.paused_until:
            self.world.agenda.at(self.paused_until, act, *args)
            return True
        return False

    def heartbeat(self, life: int) -> None:
        """Send heartbeats, and suspect nodes that were silent for too long."""
        if life != self.life or self.node is None or self.later(self.heartbeat, life):
            return
        now_ms = self.world.agenda.now_ms
        for other in self.others:
            self.world.network.send(self.name, other, self.life)
            if not self.suspects[other] and now_ms - self.heard[other] > self.suspect_ms:
                self.suspect(other)
        self.world.agenda.after(HEARTBEAT_MS, self.heartbeat, life)

    def suspect(self, other: str) -> None:
        """Suspect a node that was silent for too long."""
        if self.node is not None and not self.suspects[other]:
            self.suspects[other] = True
            self.node.peer_suspected(other, self.now())
            self.touch()

    def hear(self, other: str, life: int) -> None:
        """Handle a heartbeat."""
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
        """Handle a new connection."""
        if self.node is not None and not self.suspects[other]:
            self.node.peer_connected(other, self.now())
            self.touch()

    # ------------------------------------------------------------------ input

    def receive(self, sender: str, packet: Any) -> None:
        """Handle a packet from the network."""
        if self.node is None or self.later(self.receive, sender, packet):
            return
        if type(packet) is int:
            self.hear(sender, packet)
            return
        life, packet = packet
        if life < self.lives.get(sender, 0):
            return  # from a process that is known to have ended: its connection was closed
        if type(packet) is bytes:
            (packet,) = codec.decode_raft(memoryview(packet)[codec.FRAME_HEADER_BYTES :])
        self.node.step(packet, self.now())
        self.touch()

    def propose(self, data: bytes, ticket: Any) -> None:
        """Propose a client's command; raises NotLeader."""
        assert self.node is not None
        index = self.node.propose(data, self.now())
        self.asked[index] = (self.node.term, ticket)
        self.touch()

    def read(self, context: int, current: int) -> None:
        """Read for a client: the index must be at least `current`; raises NotLeader."""
        assert self.node is not None
        self.node.read_index(context, self.now())
        self.reading[context] = current
        self.touch()

    def on_synced(self, sequence: int) -> None:
        """Handle the completion of a sync."""
        self.hear_disk(self.life, sequence)

    def hear_disk(self, life: int, sequence: int) -> None:
        """Handle the completion in the process that wrote."""
        if life != self.life or self.node is None or self.later(self.hear_disk, life, sequence):
            return
        if sequence <= self.node.synced:
            return  # scheduled during a pause that was cut short
        self.node.durable(sequence)
        while self.held and self.held[0][0] <= sequence:
            self.send(self.held.pop(0)[1])
        self.touch()

    def on_timer(self, life: int, at_ms: int) -> None:
        """Handle a timer."""
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
        """Schedule a turn after an event."""
        if not self.dirty:
            self.dirty = True
            self.world.agenda.after(self.world.profile.turn_ms, self.turn, self.life)

    def turn(self, life: int) -> None:
        """Carry out the core's Readys."""
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
        """Carry out one Ready, in the order of its docstring."""
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
        """Return whether messages that depend on that write may be sent."""
        assert self.node is not None
        return sequence <= self.node.synced

    def send(self, batch: tuple[messages.AnyRaftMessage, ...]) -> None:
        """Pass messages to the network."""
        encoded = self.world.profile.codec
        for message in batch:
            self.world.checkers.sent(self, message)
            packet = b"".join(codec.encode_raft([message])) if encoded else message
            self.world.network.send(self.name, message.to, (self.life, packet))

    def apply(self, entry: Entry) -> None:
        """Apply one committed entry."""
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
        """Return the term of an entry as the core sees it; 0 before the first."""
        assert self.node is not None
        return self.node.log.term(index)

    def refuse_all(self) -> None:
        """Refuse all proposals after the loss of leadership: clients use the next leader."""
        for _, ticket in self.asked.values():
            ticket.refused(None)
        self.asked.clear()
