"""Connections with their own exclusive queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.told import Told
from sim.whole.people import VHOST, Person
from sim.whole.profile import QueuePlan
from warren_broker.access import requests
from warren_machines.metadata.commands import QueueIs
from warren_machines.queue import commands
from warren_wire.amqp091 import properties
from warren_wire.block.block import Block
from warren_wire.errors import Refusal
from warren_wire.kernel import MessageTable, Route

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

MESSAGES = 5


class Loner(Person):
    """A client that declares an exclusive queue, publishes, consumes in order, and disconnects.

    While its node is up, nothing may be lost: the queue is on that node only.
    """

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number, QueuePlan("own", durable=False, volatile=True))
        self.rounds = 0
        self.busy: Process | None = None
        self.received: list[bytes] = []

    def act(self) -> None:
        """Begin, unless a round is in progress."""
        if self.busy is None or self.busy.dead or self.busy.shunned:
            machine = self.world.processes[self.rng.choice(self.world.names)]
            process = machine.running
            if process is not None and process.serves:
                self.busy = process
                self.rounds += 1
                process.inject(lambda: self.declare(process))
        self.again(500)

    def declare(self, process: Process) -> None:
        """In the node's turn."""
        connection = process.broker.ids.connection()
        name = f"own-{self.number}-{self.rounds}"

        def declared(reply: Any) -> None:
            if isinstance(reply, Refusal):
                self.leave(process, connection)
            else:
                require(isinstance(reply, QueueIs), "an exclusive queue was not declared", reply)
                self.work(process, connection, reply)

        process.broker.declare_queue(
            VHOST,
            name,
            durable=False,
            exclusive=True,
            arguments={},
            connection=connection,
            done=declared,
        )

    def work(self, process: Process, connection: int, declared: QueueIs) -> None:
        """Publish, and consume what was published."""
        queue, broker = declared.queue, process.broker
        received: list[bytes] = []
        table, sent = MessageTable(), []
        for number in range(MESSAGES):
            body = b"own-%d/%d/%d" % (self.number, self.rounds, number)
            sent.append(body)
            table.append(Route(b"", queue.name.encode(), False), properties.NONE, body)
        session, consumer = broker.ids.session(), broker.ids.consumer()

        def received_all() -> None:
            require(received == sent, "an exclusive queue lost something", received, sent)
            broker.consuming.session_down(session, False)
            self.leave(process, connection)

        class Own:
            """The receiver of the messages."""

            def deliver(self, consumer: int, delivery: commands.Delivery, block: Block) -> None:
                """See Receiver."""
                for at in range(delivery.first, delivery.last + 1):
                    received.append(bytes(block.body(at)))
                if len(received) >= MESSAGES:
                    process.inject(received_all)
                else:
                    gone = commands.Credit(consumer, len(received), 0)
                    process.inject(lambda: broker.consuming.credit(gone))

            def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
                """See Receiver."""
                require(False, "an exclusive queue gave its consumer up", reason)

        broker.consuming.checkout(
            queue,
            commands.Checkout(consumer, session, "tag", no_ack=True),
            Own(),
            lambda reply: require(isinstance(reply, requests.RequestDone), "not consuming", reply),
        )
        broker.publishing.publish(
            VHOST,
            table,
            0,
            MESSAGES,
            Told(lambda part, ok, refused: require(ok, "an exclusive queue refused", part)),
        )

    def leave(self, process: Process, connection: int) -> None:
        """End the connection, and with it the queue."""

        def gone(reply: Any) -> None:
            if self.busy is process:
                self.busy = None

        process.broker.connection_gone(connection, gone)
