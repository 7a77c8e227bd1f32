"""Who uses a simulated cluster: publishers, consumers, readers of claims."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from sim.checkers import require
from warren_broker.block import Block, encode
from warren_broker.errors import Refusal
from warren_broker.queue import commands
from warren_broker.session import requests

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

VHOST = "/"
QUEUE = "q"


class Person:
    """Somebody who is connected to one node at a time."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.rng = Random(world.rng.randrange(1 << 48))
        self.at: Process | None = None

    def connected(self) -> Process | None:
        """The node it is connected to; a new one when that has died."""
        if self.at is None or self.at.dead:
            self.at = None
            machine = self.world.processes[self.rng.choice(self.world.names)]
            process = machine.running
            if process is not None and process.broker.definitions.ready:
                if process.broker.definitions.state.queue(VHOST, QUEUE) is not None:
                    self.at = process
                    self.arrived(process)
        return self.at

    def arrived(self, process: Process) -> None:
        """Connected anew."""

    def again(self, delay_ms: int) -> None:
        """Act some time later."""
        self.world.agenda.after(1 + self.rng.randrange(delay_ms), self.act)

    def act(self) -> None:
        """Do the next thing."""
        raise NotImplementedError


class Publisher(Person):
    """Publishes blocks with confirms; what its node took down with it is nobody's."""

    def __init__(self, world: World, number: int, messages: int) -> None:
        super().__init__(world, number)
        self.left = messages
        self.sent = 0
        self.under_way = 0

    @property
    def finished(self) -> bool:
        """Nothing to send, nothing unanswered."""
        return self.left <= 0 and (self.under_way == 0 or self.at is None or self.at.dead)

    def arrived(self, process: Process) -> None:
        """What was under way on the old node is unknown for ever."""
        self.under_way = 0

    def act(self) -> None:
        """Publish, while the window allows."""
        process = self.connected()
        if process is not None and self.left > 0 and self.under_way < self.world.profile.window:
            count = min(self.left, self.rng.choice((1, 1, 2, 5)))
            self.left -= count
            self.under_way += 1
            bodies = []
            for _ in range(count):
                self.sent += 1
                bodies.append(b"%d/%d/%d" % (self.number, process.boot_id, self.sent))
            priorities = [self.rng.choice((4, 4, 4, 9)) for _ in bodies]
            process.inject(lambda: self.publish(process, bodies, priorities))
        self.again(self.world.profile.pace_ms)

    def publish(self, process: Process, bodies: list[bytes], priorities: list[int]) -> None:
        """In the node's turn."""
        queue = process.broker.definitions.state.queue(VHOST, QUEUE)
        assert queue is not None
        self.world.ledger.publish(bodies)
        block = encode(bodies, [b""] * len(bodies), (b"", QUEUE.encode()), priorities)

        def answered(reply: Any, index: int) -> None:
            if self.at is process:
                self.under_way -= 1
            require(isinstance(reply, commands.Done), "a publish was refused", reply)
            self.world.note("confirmed", bodies[0], index)
            self.world.ledger.confirm(bodies)

        process.broker.queues.client(queue).with_block(commands.Enqueue(), block, answered)


class Consumer(Person):
    """Consumes with acknowledgements, returns some, and sometimes comes back as a new session.

    session  None: not subscribed; next_msg_id: the id its next message must have
    """

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.session: int | None = None
        self.consumer = 0
        self.asking = False
        self.next_msg_id = 0
        self.newest: dict[tuple[bytes, bytes, int], int] = {}

    def arrived(self, process: Process) -> None:
        """The subscription went with the old node."""
        self.session = None
        self.asking = False

    def act(self) -> None:
        """Subscribe, or give up a subscription."""
        process = self.connected()
        if process is not None and not self.asking:
            if self.session is None:
                self.asking = True
                process.inject(lambda: self.subscribe(process))
            elif self.rng.random() < 0.05:
                session, self.session = self.session, None
                process.inject(lambda: process.broker.consuming.session_down(session, False))
        self.again(300)

    def subscribe(self, process: Process) -> None:
        """In the node's turn."""
        queue = process.broker.definitions.state.queue(VHOST, QUEUE)
        assert queue is not None
        session = process.broker.ids.session()
        self.consumer = consumer = process.broker.ids.consumer()
        self.session = session
        self.next_msg_id = 0
        self.newest = {}

        def joined(reply: Any) -> None:
            if self.at is process and self.consumer == consumer:
                self.asking = False
                if isinstance(reply, Refusal):
                    self.session = None

        command = commands.Checkout(consumer, session, "tag", self.rng.choice((1, 3, 20)))
        process.broker.consuming.checkout(queue, command, self, joined)

    # ------------------------------------------------------------------ Receiver

    def deliver(self, consumer: int, delivery: commands.Delivery, block: Block) -> None:
        """Messages of one block."""
        process, session = self.at, self.session
        if process is None or process.dead or session is None or consumer != self.consumer:
            return
        require(
            delivery.first_msg_id == self.next_msg_id,
            "a delivery is missing or repeated", consumer, self.next_msg_id, delivery,
        )
        for at in range(delivery.first, delivery.last + 1):
            body = bytes(block.body(at))
            msg_id = self.next_msg_id
            self.next_msg_id += 1
            self.world.ledger.deliver(body, delivery.index)
            if delivery.acquired_count == 0:
                self.in_order(body, block.priority(at))
            delay = 1 + self.rng.randrange(self.world.profile.work_ms)
            self.world.agenda.after(
                delay, lambda body=body, msg_id=msg_id: process.inject(
                    lambda: self.done(process, session, consumer, msg_id, body)
                ),
            )  # fmt: skip

    def in_order(self, body: bytes, priority: int) -> None:
        """What one publisher sent through one node comes, the first time, as it was sent."""
        publisher, life, number = body.split(b"/")
        key = (publisher, life, priority)
        before = self.newest.get(key, 0)
        require(int(number) > before, "out of order", body, before)
        self.newest[key] = int(number)

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        """The queue has given it up."""
        if consumer == self.consumer:
            self.session = None

    def done(
        self, process: Process, session: int, consumer: int, msg_id: int, body: bytes
    ) -> None:
        """It has worked on a message: settle it, or give it back."""
        queue = process.broker.definitions.state.queue(VHOST, QUEUE)
        if queue is None or session != self.session or self.at is not process:
            return
        ids = ((msg_id, msg_id),)
        if self.rng.random() < 0.15:
            failed = self.rng.random() < 0.5
            process.broker.consuming.settle(commands.Return(consumer, ids, failed))
            return

        def answered(reply: Any, index: int) -> None:
            self.world.ledger.settle([body])

        process.broker.queues.client(queue).command(commands.Settle(consumer, ids), answered)


class Reader(Person):
    """Reads by claims, as Spark does: opens, perhaps opens again, settles.

    epoch    None: not registered with this connection
    number   the claim that is open or comes next
    """

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.name = f"reader-{number}"
        self.epoch: int | None = None
        self.claim = 0
        self.busy = False

    def arrived(self, process: Process) -> None:
        """A new driver."""
        self.epoch = None
        self.busy = False

    def act(self) -> None:
        """Take the next step."""
        process = self.connected()
        if process is not None and not self.busy:
            self.busy = True
            process.inject(lambda: self.step(process))
        self.again(150)

    def step(self, process: Process) -> None:
        """In the node's turn."""
        if self.epoch is None:
            self.ask(process, commands.RegisterReader(self.name), self.registered)
        elif (self.name, self.claim) in self.world.ledger.claims and self.rng.random() < 0.7:
            command = commands.SettleClaims(self.name, self.claim, self.epoch)
            self.ask(process, command, self.settled)
        else:
            command_ = commands.OpenClaim(self.name, self.claim, self.epoch, 4, 10_000)
            self.ask(process, command_, self.opened)

    def ask(self, process: Process, command: commands.AnyCommand, heard: Any) -> None:
        """A command and what its reply is for."""
        queue = process.broker.definitions.state.queue(VHOST, QUEUE)
        assert queue is not None

        def done(reply: Any) -> None:
            if self.at is not process:
                return
            self.busy = False
            if isinstance(reply, Refusal):
                self.epoch = None
            else:
                heard(reply)

        process.broker.queues.ask(queue, command, done)

    def registered(self, reply: commands.ReaderReply) -> None:
        """It knows where it was."""
        self.epoch = reply.epoch
        self.claim = reply.settled + 1

    def opened(self, reply: commands.ClaimReply) -> None:
        """A claim with something in it, or nothing was ready."""
        if not reply.messages:
            return
        runs = tuple((index, first, last) for index, first, last, _, _ in reply.runs)
        bodies = self.world.checkers.bodies
        named = [
            (bodies[index][at], index)
            for index, first, last in runs
            for at in range(first, last + 1)
        ]
        require(len(named) == reply.messages, "a claim counts wrongly", reply)
        self.world.note("claim", self.name, reply.number, reply.messages)
        self.world.ledger.claim(self.name, reply.number, runs, named)

    def settled(self, reply: Any) -> None:
        """On to the next."""
        require(isinstance(reply, requests.Done | commands.Count), "a settle was answered", reply)
        self.claim += 1


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

    def __init__(self, world: World, number: int, batches: int) -> None:
        super().__init__(world, number)
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
        if self.chosen is None and not self.staged:
            for partition, attempt in self.attempt.items():
                self.stage(process, partition, attempt)
            return
        if self.chosen is None:
            self.chosen = tuple(self.attempt.items())
            for partition, attempt in self.chosen:
                for bodies in self.written[partition, attempt]:
                    self.world.ledger.publish(bodies)
        queue = process.broker.definitions.state.queue(VHOST, QUEUE)
        assert queue is not None
        command = commands.PublishBatch(self.name, self.batch, self.chosen)
        process.broker.queues.ask(queue, command, lambda reply: self.published(process, reply))

    def stage(self, process: Process, partition: int, attempt: int) -> None:
        """All blocks of a partition's attempt, for the first time or again."""
        queue = process.broker.definitions.state.queue(VHOST, QUEUE)
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
            block = encode(bodies, [b""] * len(bodies), (b"", QUEUE.encode()))
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
        for partition, attempt in self.chosen:
            for bodies in self.written[partition, attempt]:
                self.world.ledger.confirm(bodies)
        self.left -= 1
        if self.left:
            self.begin()
