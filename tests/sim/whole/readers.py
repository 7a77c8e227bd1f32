"""Readers of claims, as Spark's driver is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.whole.ledger import Book
from sim.whole.people import OneAtATime
from sim.whole.profile import QueuePlan
from warren_broker.access import requests
from warren_broker.cluster.client.reads import ReadFailed, cut_runs
from warren_machines.queue import commands
from warren_machines.queue.claims import claim
from warren_wire.block.block import Block
from warren_wire.errors import ClaimNotOpen, Refusal

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

MESSAGES = 4
EXPIRES_MS = 400
"""Shorter than the silences of a reader, and than what faults make of its requests."""


class Reader(OneAtATime):
    """Opens, perhaps the next one ahead, opens again, fetches, settles, seldom releases.

    Two of one name fence each other: the claims belong to the name, not to the driver.
    epoch    None: not registered with this connection
    claim    the claim that is open or comes next
    call     the name of a call to register that is not answered; calls counts them
    lost     the last one that was released: to be counted as done when registering again
    """

    def __init__(self, world: World, number: int, plan: QueuePlan, name: str) -> None:
        super().__init__(world, number, plan)
        self.name = name
        self.epoch: int | None = None
        self.claim = 0
        self.lost = 0
        self.call = ""
        self.calls = 0
        self.silent_until = 0

    def arrived(self, process: Process) -> None:
        """A new driver."""
        super().arrived(process)
        self.epoch = None

    def act(self) -> None:
        """Take the next step."""
        self.ask_next(self.step)
        self.again(120 if not self.world.profile.rivals else 350)

    def step(self, process: Process) -> None:
        """In the node's turn."""
        queue = self.queue(process)
        if queue is None:
            self.busy = False
            return
        book, name = self.book(queue), (self.name, self.claim)
        if self.epoch is None:
            self.call = self.call or f"{self.number}-{self.calls}"
            expires_ms = EXPIRES_MS if self.number % 2 else 0
            register = commands.RegisterReader(
                self.name, self.lost, self.call, expires_ms=expires_ms
            )
            book.registers.setdefault(self.name, []).append(self.call)
            if expires_ms or queue.life:
                book.forgotten.add(self.name)
            asked = self.call
            self.ask(process, register, lambda reply: self.registered(book, asked, reply))
        elif self.silent():
            self.busy = False
        elif name in book.claims and name not in book.released and self.rng.random() < 0.2:
            self.open(process, book, self.claim + 1, ahead=True)
        elif name in book.claims and name not in book.released and self.rng.random() < 0.7:
            if self.rng.random() < 0.05:
                book.released[name] = True
                release = commands.ReleaseClaim(self.name, self.claim, self.epoch)
                self.ask(process, release, self.released)
            else:
                settle = commands.SettleClaims(self.name, self.claim, self.epoch)
                self.ask(process, settle, lambda reply: self.settled(book, name, reply))
        elif name in book.claims and self.rng.random() < 0.3:
            self.ask(process, commands.RenewClaims(self.name, self.epoch), lambda reply: None)
        elif name in book.released:
            again = commands.ReleaseClaim(self.name, self.claim, self.epoch)
            self.ask(process, again, self.released)
        else:
            self.open(process, book, self.claim)

    def open(self, process: Process, book: Book, number: int, ahead: bool = False) -> None:
        """Open a claim."""
        keep_empty = not ahead and not self.world.calm and self.rng.random() < 0.2
        asked = commands.OpenClaim(
            self.name,
            number,
            self.epoch or 0,
            MESSAGES,
            10_000,
            self.world.profile.claim_ttl_ms,
            keep_empty=keep_empty,
            ahead=ahead,
        )
        self.ask(process, asked, lambda reply: self.opened(process, book, reply))

    def ask(self, process: Process, command: commands.AnyCommand, heard: Any) -> None:
        """A command and what its reply is for."""
        queue = self.queue(process)
        assert queue is not None

        def done(reply: Any) -> None:
            if self.at is not process:
                return
            self.busy = False
            if isinstance(reply, Refusal):
                self.epoch = None
                if isinstance(reply, ClaimNotOpen) and self.world.profile.claim_ttl_ms:
                    self.world.note("claim lost", self.name, self.claim)
                    self.lost = max(self.lost, self.claim)
            else:
                heard(reply)

        process.broker.queues.ask(queue, command, done)

    def silent(self) -> bool:
        """It does nothing for a while, and may lose its claim by that."""
        if self.world.agenda.now_ms < self.silent_until:
            return True
        if self.world.profile.claim_ttl_ms and not self.world.calm and self.rng.random() < 0.15:
            self.silent_until = self.world.agenda.now_ms + self.rng.choice((100, 600, 1_500))
            return True
        return False

    def registered(self, book: Book, call: str, reply: commands.ReaderReply) -> None:
        """It knows where it was, and how often its own drivers have registered."""
        asked, calls = book.registers[self.name], set(book.registers[self.name])
        # A request that is repeated is one start, as long as the reader remembers its name; a world
        # may have it remember fewer (`windows`).
        most = len(calls) if len(calls) <= claim.CALLS_KEPT_MAX else len(asked)
        require(1 <= reply.starts <= most, "starts of others count", reply, asked)
        # A request that was repeated is answered twice: the second answer is to no new start.
        if call == self.call and self.name not in book.forgotten:
            before = book.started.get(self.number, 0)
            require(reply.starts > before, "a start is forgotten", reply, before)
            book.started[self.number] = reply.starts
        self.call = ""
        self.calls += 1
        self.epoch = reply.epoch
        self.claim = reply.settled + 1

    def opened(
        self, process: Process, book: Book, reply: commands.ClaimReply | commands.EmptyClaim
    ) -> None:
        """A claim with something in it, or without; or nothing was ready."""
        if isinstance(reply, commands.EmptyClaim):
            self.world.note("empty claim", self.name, reply.number)
            book.claim(self.name, reply.number, (), [])
            return
        if not reply.messages:
            return
        bodies = self.world.checkers.bodies
        named = [
            (bodies[book.group, index][at], index, acquired)
            for index, first, last, _, acquired in reply.runs
            for at in range(first, last + 1)
        ]
        require(len(named) == reply.messages, "a claim counts wrongly", reply)
        ahead = "ahead" if reply.number > self.claim else ""
        self.world.note("claim", self.name, reply.number, reply.messages, ahead)
        book.claim(self.name, reply.number, reply.runs, named)
        if self.rng.random() < 0.3:
            self.fetch(process, book, reply.number, [body for body, _, _ in named])

    def fetch(self, process: Process, book: Book, number: int, expected: list[bytes]) -> None:
        """Read what it holds, as an executor does: any member will do.

        A member that lags reads what it has applied of it, and is asked for the rest.
        """
        reading = process.broker.reading
        bodies: list[bytes] = []

        def found(runs: Any) -> None:
            if runs and not isinstance(runs, ReadFailed):
                reading.block(book.group, runs, 1 << 20, lambda reply: read(runs, reply))

        def read(runs: Any, reply: Any) -> None:
            if not isinstance(reply, ReadFailed):
                count, data = reply
                block = Block.decode(data)
                require(0 < count == block.count, "a read of so many", count, block.count)
                bodies.extend(bytes(block.body(at)) for at in range(count))
                rest = cut_runs(runs, count)[1]
                so_far = expected if not rest else expected[: len(bodies)]
                require(bodies == so_far, "a claim reads otherwise", bodies, expected)
                found(rest)

        reading.runs(book.group, self.name, number, 0, len(expected), found)

    def settled(self, book: Book, name: tuple[str, int], reply: Any) -> None:
        """On to the next."""
        require(
            isinstance(reply, requests.RequestDone | commands.Count), "a settle was answered", reply
        )
        book.settle_claim(name)
        self.claim += 1

    def released(self, reply: Any) -> None:
        """The claim is lost, for ever; its messages are the queue's again."""
        self.lost = max(self.lost, self.claim)
        self.epoch = None
