"""Sinks, which stage what they write and then publish it whole, as Spark's writer does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.whole.people import Person
from sim.whole.profile import QueuePlan
from warren_broker.block import encode
from warren_broker.errors import Refusal
from warren_broker.queue import commands

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World


class Sink(Person):
    """Writes as Spark does: stages what the partitions of a batch wrote, then publishes it whole.

    When its node dies it stages again, as the same attempt (the blocks have numbers) or as another
    one; a batch that was asked to be published is published with those attempts and no others.
    batch     which is under way
    chosen    partition -> attempt, once publishing was asked for
    written   (partition, attempt) -> blocks of bodies
    """

    PARTITIONS = 2
    BLOCKS = 2

    def __init__(self, world: World, number: int, plan: QueuePlan, batches: int) -> None:
        super().__init__(world, number, plan)
        self.name = f"sink-{number}"
        self.left = batches
        self.batch = 0
        self.attempts = 0
        self.busy = False
        self.begin()

    @property
    def finished(self) -> bool:
        """Every batch is published."""
        return self.left == 0

    def begin(self) -> None:
        """The next batch, of which nothing is staged."""
        self.batch += 1
        self.chosen: tuple[tuple[int, int], ...] | None = None
        self.attempt = dict.fromkeys(range(self.PARTITIONS), 0)
        self.written: dict[tuple[int, int], list[list[bytes]]] = {}
        self.unanswered = 0
        self.staged = False

    def arrived(self, process: Process) -> None:
        """Whether the old node got everything through is unknown."""
        self.busy = False
        self.unanswered = 0
        self.staged = False
        if self.chosen is None:
            for partition in range(self.PARTITIONS):
                if self.rng.random() < 0.5:
                    self.attempt[partition] += 1

    def act(self) -> None:
        """Stage, or publish what is staged."""
        process = self.connected()
        if process is not None and not self.busy and self.left:
            self.busy = True
            process.inject(lambda: self.step(process))
        if self.left:
            self.again(100)

    def step(self, process: Process) -> None:
        """In the node's turn."""
        queue = self.queue(process)
        assert queue is not None
        if self.chosen is None and not self.staged:
            for partition, attempt in self.attempt.items():
                self.stage(process, partition, attempt)
            return
        if self.chosen is None:
            self.chosen = tuple(self.attempt.items())
            for partition, attempt in self.chosen:
                for bodies in self.written[partition, attempt]:
                    self.book(queue).publish(bodies)
        command = commands.PublishBatch(self.name, self.batch, self.chosen)
        process.broker.queues.ask(queue, command, lambda reply: self.published(process, reply))

    def stage(self, process: Process, partition: int, attempt: int) -> None:
        """All blocks of a partition's attempt, for the first time or again."""
        queue = self.queue(process)
        assert queue is not None
        blocks = self.written.get((partition, attempt))
        if blocks is None:
            name = b"%s/%d-%d-%d" % (self.name.encode(), self.batch, partition, attempt)
            numbers = iter(range(1, 100))
            blocks = self.written[partition, attempt] = [
                [b"%s/%d" % (name, next(numbers)) for _ in range(self.rng.choice((1, 3)))]
                for _ in range(self.BLOCKS)
            ]
        for at, bodies in enumerate(blocks):
            self.unanswered += 1
            block = encode(bodies, [b""] * len(bodies), (b"", queue.name.encode()))
            command = commands.Stage(self.name, self.batch, partition, attempt, 0, at + 1)
            process.broker.queues.client(queue).with_block(
                command, block, lambda reply, index: self.answered(process, reply)
            )

    def answered(self, process: Process, reply: Any) -> None:
        """A block is staged."""
        require(isinstance(reply, commands.Done), "a stage was refused", reply)
        if self.at is process:
            self.unanswered -= 1
            if self.unanswered == 0:
                self.staged = True
                self.busy = False

    def published(self, process: Process, reply: Any) -> None:
        """The batch is in the queue, now or since an earlier try; or nobody knows."""
        if self.at is not process:
            return
        self.busy = False
        if isinstance(reply, Refusal):
            return
        require(isinstance(reply, commands.Count | commands.Done), "not published", reply)
        assert self.chosen is not None
        self.world.note("published", self.name, self.batch)
        queue = self.queue(process)
        assert queue is not None
        for partition, attempt in self.chosen:
            for bodies in self.written[partition, attempt]:
                self.book(queue).confirm(bodies)
        self.left -= 1
        if self.left:
            self.begin()
