"""Clients that wait for results in auto-delete queues, and go from node to node for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.told import Told
from sim.whole.people import VHOST, Person
from sim.whole.process import DISCONNECTED_MS
from sim.whole.profile import QueuePlan
from warren_machines.metadata.commands import QueueIs
from warren_machines.queue import commands
from warren_wire.amqp091 import properties
from warren_wire.block.block import Block
from warren_wire.errors import Refusal
from warren_wire.kernel import TTL_NONE, MessageTable, Route

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

RESULTS = "results"
RESULTS_MAX = 12
"""Of each client."""


class Subscribed:
    """The client's consumer at one process; messages are settled as they come."""

    def __init__(self, owner: Awaiter, process: Process) -> None:
        self.owner = owner
        self.process = process
        self.session = process.broker.ids.session()
        self.consumer = process.broker.ids.consumer()

    def deliver(self, consumer: int, delivery: commands.Delivery, block: Block) -> None:
        """See Receiver."""
        if self.process.dead:
            return
        for at in range(delivery.first, delivery.last + 1):
            self.owner.received[bytes(block.body(at))] = True
        last = delivery.first_msg_id + delivery.last - delivery.first
        settle = commands.Settle(consumer, ((delivery.first_msg_id, last),))
        self.process.inject(lambda: self.process.broker.consuming.acknowledge(settle))

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        """See Receiver."""
        if self.process.dead or self.process.shunned:
            return
        late = self.owner.world.agenda.now_ms - self.owner.seen_ms >= DISCONNECTED_MS
        require(late, "a queue for results gave its consumer up", self.owner.name, reason)
        self.owner.at = None


class Awaiter(Person):
    """A client that declares a durable auto-delete queue, has results published to it, and consumes
    them; when its node is lost it does the same on another one, as Celery's clients do.

    A queue that has lost its consumer with a node keeps what was confirmed for DISCONNECTED_MS.

    seen_ms    when it was last connected to a process that lived; 0: it has not been yet
    confirmed  results that the queue has, or had
    moves      how often it has found its queue on another node
    """

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number, QueuePlan(f"{RESULTS}-{number}"))
        self.name = self.plan.name
        self.seen_ms = 0
        self.sent = 0
        self.moves = 0
        self.confirmed: dict[bytes, bool] = {}
        self.received: dict[bytes, bool] = {}
        self.asked: Process | None = None
        self.subscribed: Subscribed | None = None
        self.over = False

    def act(self) -> None:
        """Connect, or have a result published."""
        at = self.at
        if self.over:
            return
        if at is not None and not at.dead and not at.shunned:
            self.seen_ms = self.world.agenda.now_ms
            self.publish()
        else:
            self.at: Process | None = None
            process = self.somewhere()
            asked = self.asked
            if process is not None and (asked is None or asked.dead or asked.shunned):
                self.asked = process
                process.inject(lambda: self.declare(process))
        self.again(300)

    def somewhere(self) -> Process | None:
        """Return a node that serves clients, unless the one that was chosen does not."""
        process = self.world.processes[self.rng.choice(self.world.names)].running
        return process if process is not None and process.serves else None

    def declare(self, process: Process) -> None:
        """In the node's turn."""

        def declared(reply: Any) -> None:
            if isinstance(reply, Refusal):
                self.asked = None
                return
            require(isinstance(reply, QueueIs), "a queue for results was not declared", reply)
            late = self.world.agenda.now_ms - self.seen_ms >= DISCONNECTED_MS
            require(
                not reply.created or late or not self.seen_ms,
                "a queue for results was deleted before its client was there again",
                self.name,
                self.seen_ms,
            )
            if reply.created:
                self.confirmed.clear()
            elif self.seen_ms:
                self.moves += 1
            self.consume(process, reply)

        process.broker.declare_queue(
            VHOST, self.name, durable=True, auto_delete=True, arguments={}, done=declared
        )

    def consume(self, process: Process, declared: QueueIs) -> None:
        """In the node's turn."""
        subscribed = Subscribed(self, process)

        def joined(reply: Any) -> None:
            self.asked = None
            if isinstance(reply, Refusal):
                process.broker.consuming.session_down(subscribed.session, True)
            else:
                self.at, self.subscribed = process, subscribed
                self.seen_ms = self.world.agenda.now_ms

        command = commands.Checkout(subscribed.consumer, subscribed.session, "tag", 5)
        process.broker.consuming.checkout(declared.queue, command, subscribed, joined)

    def publish(self) -> None:
        """Have any node publish a result, if that knows the queue."""
        process = self.somewhere()
        if process is None or self.sent >= RESULTS_MAX or self.queue(process) is None:
            return
        self.sent += 1
        body = b"result %d" % self.sent
        table = MessageTable()
        table.append(Route(b"", self.name.encode(), False), properties.NONE, body, 4, TTL_NONE)

        def told(part: int, ok: bool, refused: list[int] | None) -> None:
            if ok:
                self.confirmed[body] = True

        run = Told(told)
        process.inject(lambda: process.broker.publishing.publish(VHOST, table, 0, 1, run))

    @property
    def finished(self) -> bool:
        """Return whether it has everything that it waits for."""
        return self.at is not None and self.confirmed.keys() <= self.received.keys()

    def leave(self) -> None:
        """Disconnect: nothing is lost with a node, so the queue is deleted."""
        self.over = True
        if self.at is not None and self.subscribed is not None:
            broker, session = self.at.broker, self.subscribed.session
            self.at.inject(lambda: broker.consuming.session_down(session, True))
