"""Relays, which carry messages from the plain queue to another one; as a federation link does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.told import Told
from sim.whole.ledger import Book
from sim.whole.people import VHOST, Person
from sim.whole.profile import CARRIED
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue import commands
from warren_wire.block.block import Block
from warren_wire.errors import Refusal
from warren_wire.kernel import MessageTable, Route
from warren_wire.relay_names import RelayedName

if TYPE_CHECKING:
    from sim.whole.process import Process

RELAY = "carrier"
ORIGIN_BITS = 62


class Carriage:
    """One session of a relay, at one process of a node.

    ledger     number -> (origin, msg_id, body) of what it has not settled, in order
    published  numbers of which the confirm is awaited, or has come; done: has come
    """

    def __init__(self, owner: Carrier, process: Process, queue: QueueRecord) -> None:
        self.owner = owner
        self.process = process
        self.queue = queue
        self.book: Book = owner.book(queue)
        self.session = process.broker.ids.session()
        self.consumer = process.broker.ids.consumer()
        self.ledger: dict[int, tuple[int, int, bytes]] = {}
        self.published: dict[int, bool] = {}
        self.done: dict[int, bool] = {}
        self.ended = False

    def begin(self) -> None:
        """Consume, in the node's turn."""
        rng = self.owner.rng
        command = commands.Checkout(
            self.consumer,
            self.session,
            "carrier",
            rng.choice((1, 3, 20)),
            relay=RELAY,
            origin=rng.getrandbits(ORIGIN_BITS) | 1,
        )

        def joined(reply: Any) -> None:
            if isinstance(reply, Refusal):
                self.end()

        self.process.broker.consuming.checkout(self.queue, command, self, joined)

    def end(self) -> None:
        """End the session, as a lost connection does."""
        if not self.ended:
            self.ended = True
            self.process.broker.consuming.session_down(self.session, True)
        if self.owner.carriage is self:
            self.owner.carriage = None

    # ------------------------------------------------------------ Receiver

    def deliver(self, consumer: int, delivery: commands.Delivery, block: Block) -> None:
        """Messages of one block, with their names."""
        if self.ended or self.process.dead:
            return
        taker, order = (self.process.boot_id, consumer), self.owner.world.checkers.order
        for k in range(delivery.last - delivery.first + 1):
            body = bytes(block.body(delivery.first + k))
            order.received(self.book, taker, delivery.first_msg_id + k, delivery, body)
            self.book.carry(body, delivery.index, delivery.acquired_count)
            number = delivery.number + k
            require(delivery.number > 0 and number not in self.ledger, "a name is wrong", number)
            self.ledger[number] = (delivery.origin, delivery.first_msg_id + k, body)
        work_ms = self.owner.world.profile.work_ms
        self.owner.later(self.process, work_ms, self.publish)

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        """Handle the queue's cancellation: the session ends."""
        if not self.ended and not self.process.dead:
            self.process.inject(self.end)

    def publish(self) -> None:
        """Publish what was not; one that has ended may do so, too, until it notices."""
        broker = self.process.broker
        target = broker.definitions.state.queue(VHOST, CARRIED)
        numbers = [number for number in self.ledger if number not in self.published]
        if target is None or not numbers or broker.queues.absent(target):
            return
        book, table = self.owner.book(target), MessageTable()
        route = Route(b"", CARRIED.encode(), False)
        names, bodies = {}, []
        for at, number in enumerate(numbers):
            origin, _, body = self.ledger[number]
            bodies.append(b"carried/" + body)
            table.append(route, b"\0\0", bodies[-1])
            names[at] = RelayedName(origin, number, next(iter(self.ledger)))
            self.published[number] = True
        book.publish([body for body in bodies if body not in book.sent])

        def confirmed(part: int, ok: bool, refused: list[int] | None) -> None:
            if ok:
                book.confirm([body for body in bodies if body not in book.confirmed])
                self.done.update(dict.fromkeys(numbers, True))
                self.settle()

        broker.publishing.publish(VHOST, table, 0, len(numbers), Told(confirmed, names))

    def settle(self) -> None:
        """Settle what was confirmed, in order."""
        while self.ledger and (number := next(iter(self.ledger))) in self.done:
            msg_id = self.ledger.pop(number)[1]
            if not self.ended:
                settled = commands.Settle(self.consumer, ((msg_id, msg_id),))
                self.process.broker.consuming.acknowledge(settled, late=True)


class Carrier(Person):
    """A process of the relay; there are two, of which either may take over at any time."""

    carriage: Carriage | None = None

    def arrived(self, process: Process) -> None:
        """Drop the session, which ended with the old node."""
        self.carriage = None

    def act(self) -> None:
        """Begin a session, or end one, or leave one alone and begin another."""
        process = self.connected()
        if process is not None:
            retires = self.world.calm and self.number > 0
            if self.carriage is None:
                if not retires:
                    process.inject(lambda: self.begin(process))
            elif retires or (not self.world.calm and self.rng.random() < 0.3):
                carriage, self.carriage = self.carriage, None
                if retires or self.rng.random() < 0.6:
                    process.inject(carriage.end)
        self.again(300)

    def begin(self, process: Process) -> None:
        """In the node's turn."""
        queue = self.queue(process)
        if queue is not None and self.carriage is None:
            self.carriage = Carriage(self, process, queue)
            self.carriage.begin()
