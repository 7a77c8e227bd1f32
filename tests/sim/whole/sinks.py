"""Sinks, which stage what they write and then publish it whole, as Spark's writer does.

A sink is a query with its checkpoint; its drivers come and go. An older one may still be at work
when a newer one is, what it sends may arrive late, and a lost checkpoint means a new run.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.whole.people import Person
from sim.whole.profile import QueuePlan
from warren_machines.queue import commands
from warren_machines.queue.sinks.stage import DIGESTS
from warren_wire import errors
from warren_wire.block.block import encode
from warren_wire.errors import Refusal

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

PARTITIONS = 2
BLOCKS = 2
TTL_MS = (0, 0, 100, 400)
"""Stages of a driver go after so long without a block; 0: they stay."""
NEVER_STAGED = 1_000
"""So far beyond those that are staged no attempt ever has its number."""
ZOMBIE_ACTS = 12
"""So often an older driver acts beside the newer one before it ends by itself."""


def digest(bodies: list[bytes]) -> int:
    """What a block's messages add up to, in any order."""
    return sum(int.from_bytes(blake2b(body, digest_size=7).digest()) for body in bodies) % DIGESTS


class Sink(Person):
    """A query that writes to a queue, and its checkpoint.

    run        which checkpoint it has; batches are numbered from 0 in each
    committed  the last batch of this run that is in the checkpoint
    newest     run -> the epoch of its newest driver
    left       batches that are still to be committed, in whatever run
    rows       (run, batch) -> bodies: the same in every computation
    asked      (run, batch): publishing it was asked for, so its rows may be in the queue
    """

    def __init__(self, world: World, number: int, plan: QueuePlan, batches: int) -> None:
        super().__init__(world, number, plan)
        self.name = f"sink-{number}"
        self.left = batches
        self.run = 0
        self.committed = -1
        self.epochs = 0
        self.newest: dict[int, int] = {}
        self.rows: dict[tuple[int, int], list[bytes]] = {}
        self.asked: dict[tuple[int, int], bool] = {}
        self.confirmed: dict[tuple[int, int], bool] = {}
        self.driver: Driver | None = None

    @property
    def finished(self) -> bool:
        """Every batch is published."""
        return self.left == 0

    def act(self) -> None:
        """See that there is a driver; now and then another one, beside the one before."""
        driver = self.driver
        restless = not self.world.calm and self.rng.random() < 0.3
        if self.left and (driver is None or driver.over or restless):
            if driver is not None:
                driver.acts_left = self.rng.choice((0, ZOMBIE_ACTS))
            if restless and self.rng.random() < 0.4:
                self.run += 1
                self.committed = -1
            self.epochs += 1
            self.newest[self.run] = self.epochs
            self.driver = Driver(self, self.epochs)
            self.driver.again(50)
        if self.left:
            self.again(200)

    def bodies(self, run: int, batch: int) -> list[bytes]:
        """All rows of a batch."""
        rows = self.rows.get((run, batch))
        if rows is None:
            name = b"%s/%d-%d" % (self.name.encode(), run, batch)
            count = PARTITIONS * BLOCKS + self.rng.randrange(4)
            rows = self.rows[run, batch] = [b"%s/%d" % (name, at) for at in range(count)]
        return rows

    def commit(self, run: int, batch: int) -> None:
        """A driver writes into the checkpoint; one of an older run writes into its own."""
        if run == self.run and batch == self.committed + 1 and self.left:
            self.committed = batch
            self.left -= 1


class Driver(Person):
    """One driver of a sink's run: stages the next batch, publishes it, writes the checkpoint.

    Its attempts have the numbers that another driver's had: only its epoch tells them apart. As
    after a shuffle, it finds a batch's rows in other partitions than another driver did.
    epoch      higher than that of any driver before; acts_left: 0 once it has died
    batch      which is under way; chosen: partition -> attempt, once publishing was asked for
    attempt    partition -> which attempt is being staged
    blocks     partition -> blocks of bodies
    ttl_ms     how long what it stages is kept
    careless   it may name an attempt of which nothing is staged, or not any more
    """

    def __init__(self, sink: Sink, epoch: int) -> None:
        super().__init__(sink.world, sink.number, sink.plan)
        self.sink = sink
        self.epoch = epoch
        self.run = sink.run
        self.over = False
        self.acts_left = 1_000_000
        self.busy = False
        self.ttl_ms = self.rng.choice(TTL_MS)
        self.careless = self.ttl_ms > 0
        self.begin(sink.committed + 1)

    @property
    def newest(self) -> bool:
        """No driver has begun after it in its run."""
        return self.sink.newest[self.run] == self.epoch

    def begin(self, batch: int) -> None:
        """A batch of which this driver has staged nothing."""
        self.batch = batch
        self.attempt = dict.fromkeys(range(PARTITIONS), 0)
        rows = list(self.sink.bodies(self.run, batch))
        self.rng.shuffle(rows)
        cuts = sorted(self.rng.sample(range(1, len(rows)), PARTITIONS * BLOCKS - 1))
        parts = [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
        self.blocks = [parts[at::PARTITIONS] for at in range(PARTITIONS)]
        self.chosen: tuple[tuple[int, int, int], ...] | None = None
        self.unanswered = 0
        self.staged = False
        self.spoilt = False

    def arrived(self, process: Process) -> None:
        """Whether the old node got everything through is unknown: stage again, as the same attempt
        (the blocks have numbers) or as another one."""
        self.busy = self.staged = False
        self.unanswered = 0
        if self.chosen is None:
            for partition in range(PARTITIONS):
                if self.rng.random() < 0.5:
                    self.attempt[partition] += 1

    def act(self) -> None:
        """Stage, or publish what is staged."""
        self.acts_left -= 1
        if self.over or self.acts_left < 0 or self.sink.finished:
            self.over = True
            return
        process = self.connected()
        if process is not None and not self.busy:
            self.busy = True
            process.inject(lambda: self.step(process))
        self.again(100)

    def step(self, process: Process) -> None:
        """In the node's turn."""
        queue = self.queue(process)
        if queue is None or self.over:
            self.busy = False
        elif self.chosen is None and not self.staged:
            self.spoilt = False
            for partition, attempt in self.attempt.items():
                self.stage(process, partition, attempt)
        elif self.chosen is None and self.rng.random() < 0.25:
            self.drop(process)
        else:
            self.publish(process)

    def command(self, kind: Any, *rest: Any, **named: Any) -> Any:
        """A command of this driver."""
        return kind(self.sink.name, str(self.run), self.epoch, self.batch, *rest, **named)

    def stage(self, process: Process, partition: int, attempt: int) -> None:
        """All blocks of a partition's attempt, for the first time or again."""
        queue = self.queue(process)
        assert queue is not None
        batch = self.batch
        ttl_ms = 0 if self.world.calm else self.ttl_ms
        for at, bodies in enumerate(self.blocks[partition]):
            self.unanswered += 1
            block = encode(bodies, [b""] * len(bodies), (b"", queue.name.encode()))
            command = self.command(
                commands.SinkStage, partition, attempt, digest(bodies), ttl_ms, at + 1
            )
            process.broker.queues.client(queue).with_block(
                command, block, lambda reply, index: self.answered(process, batch, reply)
            )

    def answered(self, process: Process, batch: int, reply: Any) -> None:
        """A block is staged, or refused."""
        if self.at is not process or self.over or batch != self.batch:
            return
        if isinstance(reply, commands.Refused):
            self.refused(reply.reason)
            self.spoilt = True
        self.unanswered -= 1
        if self.unanswered == 0:
            self.staged = not self.spoilt
            self.busy = False

    def drop(self, process: Process) -> None:
        """An attempt is aborted: its stages go, and are written again as another attempt."""
        queue = self.queue(process)
        assert queue is not None
        partition = self.rng.randrange(PARTITIONS)
        gone = (partition, self.attempt[partition])
        drop = self.command(commands.SinkDrop, (gone,))
        # It may be long on its way, and through another node: it names what it drops.
        process.broker.queues.tell(queue, drop)
        self.later(process, 400, self.drop_late, process, drop)
        self.attempt[partition] += 1
        self.staged = self.busy = False

    def drop_late(self, process: Process, drop: commands.SinkDrop) -> None:
        """Publish the same once more, much later."""
        queue = self.queue(process)
        if queue is not None:
            process.broker.queues.tell(queue, drop)

    def publish(self, process: Process) -> None:
        """Ask for the batch to be published, with these attempts and no others.

        It may have lost count, and name one that was never staged: then nothing is published.
        """
        queue = self.queue(process)
        assert queue is not None
        if self.chosen is None:
            named = dict(self.attempt)
            if not self.world.calm and self.rng.random() < 0.15:
                named[self.rng.randrange(PARTITIONS)] += NEVER_STAGED
                self.careless = True
            self.chosen = tuple((*item, BLOCKS) for item in named.items())
        place = (self.run, self.batch)
        if place not in self.sink.asked:
            self.sink.asked[place] = True
            self.book(queue).publish(self.sink.bodies(*place))
        command = self.command(commands.SinkPublish, self.chosen)
        process.broker.queues.ask(
            queue, command, lambda reply: self.published(process, place, reply)
        )

    def published(self, process: Process, place: tuple[int, int], reply: Any) -> None:
        """The batch is in the queue, now or since an earlier try; or it was refused."""
        queue = self.queue(process)
        if queue is None:
            return
        bodies = self.sink.bodies(*place)
        if isinstance(reply, commands.Count):
            require(reply.messages == len(bodies), "a batch counts wrongly", place, reply)
            if place not in self.sink.confirmed:
                self.sink.confirmed[place] = True
                self.book(queue).confirm(bodies)
            self.world.note("published", self.sink.name, self.epoch, *place)
        if self.at is not process or self.over or place != (self.run, self.batch):
            return
        self.busy = False
        if isinstance(reply, commands.Count):
            self.sink.commit(*place)
            self.begin(self.batch + 1)
        elif isinstance(reply, Refusal):
            self.refused(reason_of(reply))

    def refused(self, reason: str) -> None:
        """What was asked for was not done: why?"""
        self.world.note("sink refused", self.sink.name, self.epoch, self.run, self.batch, reason)
        if reason == "unavailable":
            return
        if reason == "stage_lost" and (self.careless or not self.newest):
            self.staged, self.chosen = False, None
            for partition in range(PARTITIONS):
                self.attempt[partition] += 1
            return
        require(reason in ("fenced", "batch_past"), "a sink was refused", self.sink.name, reason)
        # It may have read the checkpoint before an older driver published this batch and the next.
        overtaken = reason == "batch_past" and (self.run, self.batch) in self.sink.confirmed
        allowed = overtaken or not self.newest
        require(allowed, "the newest driver was refused", self.sink.name, reason)
        self.over = True


def reason_of(refusal: Refusal) -> str:
    """The word for it."""
    if isinstance(refusal, errors.Unavailable):
        return "unavailable"
    if isinstance(refusal, errors.StageMissing):
        return "stage_lost"
    if isinstance(refusal, errors.EpochSuperseded):
        return "fenced"
    return "batch_past" if isinstance(refusal, errors.BatchNumberPast) else str(refusal)
