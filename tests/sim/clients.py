"""Clients that retry each command through any node until it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren_raft.errors import NotLeader

if TYPE_CHECKING:
    from sim.member import Member
    from sim.world import World

TIMEOUT_MS = 700
PAUSE_MS = 40


class Ticket:
    """One attempt of one command; answers after the first are ignored."""

    __slots__ = ("client", "command", "open")

    def __init__(self, client: Client, command: bytes) -> None:
        self.client = client
        self.command = command
        self.open = True

    def confirmed(self, index: int) -> None:
        """Handle the confirmation that the command was done at `index`."""
        if self.open:
            self.open = False
            self.client.done(self.command, index)

    def refused(self, leader: str | None) -> None:
        """Handle a refusal by this node, perhaps with the leader's name."""
        if self.open:
            self.open = False
            self.client.again(self.command, leader)

    def expired(self) -> None:
        """Handle a missing answer: it is unknown whether the command was done."""
        self.refused(None)


class Client:
    """A client that keeps `window` commands in flight until all are confirmed.

    confirmed  command -> index, as confirmed by the cluster
    """

    def __init__(self, world: World, number: int, commands: int) -> None:
        self.world = world
        self.number = number
        self.rng = world.rng
        body = world.profile.body_bytes_max
        self.todo = [
            b"%d/%d/" % (number, at) + b"x" * self.rng.randrange(body)
            for at in range(commands, 0, -1)
        ]
        self.under_way = 0
        self.leader: str | None = None
        self.confirmed: dict[bytes, int] = {}
        self.tries: dict[bytes, int] = {}

    def begin(self) -> None:
        """Send a window full."""
        for _ in range(self.world.profile.window):
            self.next()

    def next(self) -> None:
        """Send another command, if there is one."""
        if self.todo:
            self.under_way += 1
            self.attempt(self.todo.pop())

    def attempt(self, command: bytes) -> None:
        """Try a command on the presumed leader, or on any node.

        Each attempt waits twice as long, so that repeats do not overload a slow leader.
        """
        tries = self.tries.get(command, 0)
        self.tries[command] = tries + 1
        members = self.world.roster.latest
        name = self.leader or self.rng.choice(members.voters + members.learners)
        ticket = Ticket(self, command)
        self.world.agenda.after(TIMEOUT_MS << min(tries, 5), ticket.expired)
        self.world.agenda.after(self.rng.randrange(3), self.reach, name, ticket)

    def reach(self, name: str, ticket: Ticket) -> None:
        """Deliver the attempt to the node; one that is down or paused does not answer."""
        member = self.world.members[name]
        if member.node is None or member.later(self.reach, name, ticket):
            return
        if self.rng.random() < 0.3:
            self.read(member)
        try:
            member.propose(ticket.command, ticket)
        except NotLeader as refusal:
            ticket.refused(refusal.leader)

    def read(self, member: Member) -> None:
        """Request a read index, which must not be older than any confirmation so far."""
        self.world.contexts += 1
        try:
            member.read(self.world.contexts, self.world.checkers.highest_confirmed)
        except NotLeader:
            return

    def done(self, command: bytes, index: int) -> None:
        """Record a confirmation: from now on the cluster must never lose the command."""
        assert command not in self.confirmed, command
        self.confirmed[command] = index
        self.world.checkers.confirmed(command, index)
        self.under_way -= 1
        pause_ms = PAUSE_MS if self.world.faults.stopped else self.world.profile.pause_ms
        self.world.agenda.after(self.rng.randrange(pause_ms), self.next)

    def again(self, command: bytes, leader: str | None) -> None:
        """Repeat a command after a refusal, or without an answer."""
        self.leader = leader
        self.world.agenda.after(1 + self.rng.randrange(PAUSE_MS), self.attempt, command)

    @property
    def finished(self) -> bool:
        """Whether everything is confirmed."""
        return not self.todo and self.under_way == 0
