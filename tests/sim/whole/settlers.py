"""Drivers that publish a batch for each claim and settle it by that, as one decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.whole.ledger import Book
from sim.whole.people import VHOST, Person
from sim.whole.profile import MADE
from sim.whole.readers import Reader
from sim.whole.sinks import digest
from warren_broker.admin import claims as handlers
from warren_machines.metadata.records import QueueRecord
from warren_machines.metadata.state import MetadataState
from warren_machines.queue import commands
from warren_wire.admin.claims import PublishBatchRequest, ReleaseClaimRequest
from warren_wire.admin.requests import MessagesCounted
from warren_wire.block.block import encode
from warren_wire.errors import BatchDiffers, BatchNumberPast, Refusal

if TYPE_CHECKING:
    from sim.whole.process import Process


PAUSE_MS = 300
"""So long the node may take from one step of a decision to the next."""


class _Connection:
    """A driver's connection to a node, with every right; the node pauses before each step.

    It is its own `broker` and `queues`, which traces nothing.
    """

    traced_claims = None

    def __init__(self, person: Person, process: Process) -> None:
        self.person = person
        self.process = process
        self.vhost = VHOST
        self.access = self.broker = self.queues = self
        self.definitions = process.broker.definitions

    @property
    def state(self) -> MetadataState:
        """The definitions as the node knows them now."""
        return self.definitions.state

    def queue(self, name: str) -> QueueRecord:
        """Return a queue."""
        return self.process.broker.queues.find(VHOST, name)

    def ask(self, queue: QueueRecord, command: commands.AnyCommand, done: Any) -> None:
        """Send a command to a queue, some time later."""
        ask = self.process.broker.queues.ask
        pause_ms = PAUSE_MS if self.person.rng.random() < 0.4 else 5
        self.person.later(self.process, pause_ms, ask, queue, command, done)

    def publish_stages(self, queue: str) -> None:
        """Refuse nothing."""

    def guard(self, call: Any) -> Any:
        """Return what a fault would end the connection in."""
        return call


class Settler(Reader):
    """Claims from the plain queue, publishes one message for each that it got, and continues.

    What is made of a claim has other bodies in each run, so that a claim which was published twice
    is seen. The same run publishes the same again.
    run      which checkpoint it has; a new one after it was lost
    attempt  of staging, and the epoch of the sink's driver, which is drawn for each
    made     (claim, run): what is made of it was staged
    pranks   so often it may still do what a good driver does not, also when all is calm
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.run = 0
        self.attempt = 0
        self.made: dict[tuple[int, int], bool] = {}
        self.pranks = 40

    def bodies(self, claim: int, run: int, count: int) -> list[bytes]:
        """What is made of a claim of so many messages."""
        return [b"%s/%d-%d/%d" % (self.name.encode(), claim, run, at) for at in range(count)]

    def step(self, process: Process) -> None:
        """In the node's turn."""
        source = self.queue(process)
        target = process.broker.definitions.state.queue(VHOST, MADE)
        if source is None or target is None:
            self.busy = False
            return
        if self.pranked(0.2):
            self.run += 1
        name = (self.name, self.claim)
        runs = self.book(source).claims.get(name)
        if self.epoch is None or not runs:
            super().step(process)
        elif self.pranked(0.25):
            self.release(process, source)
        else:
            count = sum(last - first + 1 for _, first, last, _, _ in runs)
            self.stage(process, source, target, count)

    def pranked(self, chance: float) -> bool:
        """Return whether it does something that a good driver does not."""
        pranks = self.pranks > 0 and self.rng.random() < chance
        self.pranks -= pranks
        return pranks

    def release(self, process: Process, source: QueueRecord) -> None:
        """Give the claim up; when it was published, it is settled by that."""
        assert self.epoch is not None
        self.book(source).released[self.name, self.claim] = True
        request = ReleaseClaimRequest(source.name, self.name, self.claim, self.epoch)
        self.lost = max(self.lost, self.claim)
        service: Any = handlers.release
        service(_Connection(self, process), request, lambda reply: self.over(process, reply))

    def stage(self, process: Process, source: QueueRecord, target: QueueRecord, count: int) -> None:
        """Stage what is made of the claim, under a new epoch; then publish it."""
        self.attempt += 1
        place = (self.claim, self.run)
        bodies = self.bodies(*place, count)
        if place not in self.made:
            self.made[place] = True
            self.book(target).publish(bodies)
        batch = (self.name, str(self.run), self.attempt, self.claim)
        command = commands.SinkStage(*batch, 0, self.attempt, digest(bodies), 0, 1)
        block = encode(bodies, [b""] * len(bodies), (b"", target.name.encode()))
        epoch, attempts = self.epoch, ((0, self.attempt, 1),)
        assert epoch is not None

        def staged(reply: Any, index: int) -> None:
            if isinstance(reply, commands.Refused):
                self.run += reply.reason in ("batch_past", "batch_conflict")
                self.over(process, reply)
                return
            settles = ((source.name, self.name, place[0], epoch),)
            request = PublishBatchRequest(*batch, ((target.name, attempts),), settles)
            service: Any = handlers.publish_settling
            service(
                _Connection(self, process),
                request,
                lambda reply: self.published(process, self.book(target), bodies, reply),
            )

        process.broker.queues.client(target).with_block(command, block, staged)
        # Or it does not wait: what it does next meets what is on its way, as with two drivers.
        self.busy = not self.pranked(0.5)

    def published(self, process: Process, book: Book, bodies: list[bytes], reply: Any) -> None:
        """It is published, or was refused, or may have been either."""
        if isinstance(reply, MessagesCounted):
            require(reply.messages == len(bodies), "a batch counts wrongly", bodies[0], reply)
            book.confirm([body for body in bodies if body not in book.confirmed])
        if isinstance(reply, BatchNumberPast | BatchDiffers):
            self.run += 1
        self.over(process, reply)

    def over(self, process: Process, reply: Any) -> None:
        """Begin as a new driver does: where the reader is, its queue says."""
        said = type(reply).__name__ if isinstance(reply, Refusal) else reply
        self.world.note("settler", self.name, self.claim, self.run, str(said))
        if self.at is process:
            self.busy = False
            self.epoch = None

    def close(self, source: Book, target: Book) -> None:
        """Check that each claim was either given back or published, and published once.

        What was given back came again, or it was given up after it had been taken: it expired.
        """
        bodies = self.world.checkers.bodies
        for name, runs in source.claims.items():
            if name[0] != self.name or not runs:
                continue
            named = [
                (bodies[source.group, index][at], acquired)
                for index, first, last, _, acquired in runs
                for at in range(first, last + 1)
            ]
            ends = [
                f"published by run {run}"
                for claim, run in self.made
                if claim == name[1] and self.bodies(claim, run, 1)[0] in target.seen
            ]
            if any(
                max(source.delivered.get(body, -1), source.given_up.get(body, -1)) > acquired
                or source.claimed[body][0] != name
                for body, acquired in named
            ):
                ends.append("given back")
            require(len(ends) == 1, "a claim must have one end", name, ends)
            self.world.decided[ends[0].partition(" ")[0]] += 1
