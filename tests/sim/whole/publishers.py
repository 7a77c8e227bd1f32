"""Publishers with confirms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.told import Told
from sim.whole.ledger import Book
from sim.whole.people import EXCHANGE, VHOST, Person
from sim.whole.profile import DUE, LATER, STORE, QueuePlan
from sim.whole.sieves import PARITY
from warren_wire.amqp091 import properties
from warren_wire.kernel import TTL_NONE, MessageTable, Route

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

MALFORMED = b"\x01\x00\xff\xff"
"""Properties that end within an expiration: no door lets them in."""

FEED_MS = 100


class Publisher(Person):
    """Publishes runs with confirms; what its node took down with it is not counted.

    left       messages it still has
    under_way  runs whose confirms are missing, since it came to the node it is connected to
    stays      how often it has come to a node
    """

    def __init__(self, world: World, number: int, plan: QueuePlan, messages: int) -> None:
        super().__init__(world, number, plan)
        self.left = messages
        self.sent = 0
        self.under_way = self.stays = 0

    @property
    def finished(self) -> bool:
        """Nothing to send, nothing unanswered."""
        gone = self.at is None or self.at.dead or self.at.shunned
        return self.left <= 0 and (self.under_way == 0 or gone)

    def arrived(self, process: Process) -> None:
        """What was under way on the old node is unknown for ever, even if it is the new one."""
        self.under_way = 0
        self.stays += 1

    def begin(self, process: Process) -> Callable[[], None]:
        """Count a run as under way; return what is called at its end."""
        self.under_way += 1
        stay = self.stays

        def end() -> None:
            if self.at is process and self.stays == stay:
                self.under_way -= 1

        return end

    def act(self) -> None:
        """Publish, while the window allows."""
        if not self.under_way and self.left > 0:
            self.turn()
        process = self.connected()
        if process is not None and self.left > 0 and self.under_way < self.world.profile.window:
            count = min(self.left, self.rng.choice((1, 1, 2, 5)))
            self.left -= count
            end = self.begin(process)
            fan = self.world.profile.fanout and self.rng.random() < 0.3
            process.inject(lambda: self.publish(process, count, fan, end))
        self.again(self.world.profile.pace_ms)

    def turn(self) -> None:
        """Choose the queue of the next runs."""
        plans = [one for one in self.world.profile.queues if not one.fed]
        self.plan: QueuePlan = self.rng.choice((self.plan, plans[0], *plans))

    def publish(self, process: Process, count: int, fan: bool, end: Callable[[], None]) -> None:
        """In the node's turn."""
        state, topology = process.broker.definitions.state, process.broker.definitions.topology
        there = fan and state.exchange(VHOST, EXCHANGE) is not None
        fed = topology.route(VHOST, EXCHANGE, "") if there else ()
        # One that lives with a node out of reach is not routed to.
        names = fed or topology.route(VHOST, "", self.plan.name)
        queues = [state.queue(VHOST, name) for name in names]
        if None in queues or not queues:
            self.left += count
            end()
            return
        books = [self.book(queue) for queue in queues if queue is not None]
        route = Route(b"", self.plan.name.encode(), False)
        if fed:
            route = Route(EXCHANGE.encode(), b"", False)
        bodies, table = [], MessageTable()
        ttl_ms = None
        if self.world.profile.message_ttl and self.rng.random() < 0.3:
            ttl_ms = self.rng.choice((0, 30, 300))
        for _ in range(count):
            self.sent += 1
            body = b"%d/%d/%d" % (self.number, process.boot_id, self.sent)
            bodies.append(body)
            said = properties.NONE
            if self.world.profile.sifts:
                told = properties.Properties(headers={PARITY: self.sent % 2})
                said = properties.encode(told)
            if self.world.profile.malformed and self.rng.random() < 0.3:
                said = MALFORMED  # as another program may have stored it
            table.append(
                route,
                said,
                body,
                self.rng.choice((4, 4, 4, 9)),
                TTL_NONE if ttl_ms is None else ttl_ms,
            )
        for book in books:
            book.publish(bodies, ttl_ms)
        left = [len(books)]

        def confirmed(part: int, ok: bool, refused: list[int] | None) -> None:
            left[0] -= 1
            if not left[0]:
                end()
            self.answered(process, books[part], bodies, ok, refused)

        process.broker.publishing.publish(VHOST, table, 0, count, Told(confirmed))

    def answered(
        self, process: Process, book: Book, bodies: list[bytes], ok: bool, refused: list[int] | None
    ) -> None:
        """One queue has taken them, or not, or only some."""
        self.world.note("confirmed", book.group, bodies[0], ok, refused)
        gone = [] if ok else refused if refused is not None else list(range(len(bodies)))
        taken = [body for at, body in enumerate(bodies) if at not in gone]
        if ok or refused is not None or not book.plan.alone:
            book.refuse([bodies[at] for at in gone])
        # Else its only node is out of reach: whether the queue has them is not known.
        book.confirm(taken)
        if taken:
            self.world.checkers.durability.confirmed(book, taken)


class Feeder(Publisher):
    """Publishes to one queue, a little at a time."""

    def turn(self) -> None:
        """Stay with that queue."""

    def again(self, delay_ms: int) -> None:
        """Wait a little longer than others."""
        super().again(max(delay_ms, FEED_MS))


class Delayer(Publisher):
    """Publishes to an exchange that delays messages."""

    def __init__(self, world: World, number: int, messages: int) -> None:
        super().__init__(world, number, QueuePlan(STORE), messages)

    def act(self) -> None:
        """Publish, while the window allows."""
        process = self.connected()
        if process is not None and self.left > 0 and self.under_way < self.world.profile.window:
            count = min(self.left, self.rng.choice((1, 1, 2, 5)))
            self.left -= count
            end = self.begin(process)
            process.inject(lambda: self.delay(process, count, end))
        self.again(self.world.profile.pace_ms)

    def delay(self, process: Process, count: int, end: Callable[[], None]) -> None:
        """In the node's turn."""
        state, ledger = process.broker.definitions.state, self.world.ledger
        for name in (STORE, *DUE):
            queue = state.queue(VHOST, name)
            assert queue is not None, name
            ledger.of(queue.group, self.world.plans.get(name, self.plan))
        store = state.queue(VHOST, STORE)
        assert store is not None
        book = ledger.of(store.group)
        bodies, table = [], MessageTable()
        for _ in range(count):
            self.sent += 1
            body = b"later-%d/%d/%d" % (self.number, process.boot_id, self.sent)
            bodies.append(body)
            ledger.delays[body] = delay_ms = self.rng.choice((1, 20, 20, 150, 600, 1_500))
            said = properties.encode(properties.Properties(headers={"x-delay": delay_ms}))
            table.append(Route(LATER.encode(), b"", False), said, body)
        book.publish(bodies)

        def confirmed(part: int, ok: bool, refused: list[int] | None) -> None:
            end()
            self.answered(process, book, bodies, ok, refused)

        process.broker.publishing.publish(VHOST, table, 0, len(bodies), Told(confirmed))


class Resender(Publisher):
    """Publishes to a queue that drops duplicates, and sends runs again, through whatever node.

    It knows no confirms: what it sends again may be in the queue, on its way, or lost. Some of its
    runs are sent for the first time after later ones.

    runs   (group, numbers) of the runs that were sent; postponed: those that were not yet
    """

    def __init__(self, world: World, number: int, plan: QueuePlan, messages: int) -> None:
        super().__init__(world, number, plan, messages)
        self.runs: list[tuple[int, range]] = []
        self.postponed: list[range] = []

    def act(self) -> None:
        """Send a run, a new one or one again, while the window allows."""
        process = self.connected()
        if process is not None and self.left > 0 and self.under_way < self.world.profile.window:
            end = self.begin(process)
            process.inject(lambda: self.send(process, end))
        self.again(self.world.profile.pace_ms)

    def send(self, process: Process, end: Callable[[], None]) -> None:
        """In the node's turn."""
        queue = self.queue(process)
        assert queue is not None, self.plan.name
        book = self.book(queue)
        known = [run for group, run in self.runs if group == queue.group]
        if known and self.rng.random() < 0.5:
            run = self.rng.choice(known[-6:])
            run = run[self.rng.randrange(len(run)) :]
        else:
            run = self.fresh()
            self.runs.append((queue.group, run))
            book.publish([self.body(at) for at in run])
        bodies = [self.body(at) for at in run]
        table = MessageTable()
        for at in run:
            route = Route(b"", self.plan.name.encode(), False)
            table.append(route, self.said(at), self.body(at), 4, TTL_NONE)

        def confirmed(part: int, ok: bool, refused: list[int] | None) -> None:
            end()
            self.answered(process, book, bodies, ok, refused)

        process.broker.publishing.publish(VHOST, table, 0, len(run), Told(confirmed))

    def fresh(self) -> range:
        """Return numbers that were not sent yet."""
        if self.postponed and self.rng.random() < 0.4:
            run = self.postponed.pop()
        else:
            count = self.rng.choice((1, 1, 2, 5))
            run = range(self.sent, self.sent + count)
            self.sent += count
            if self.rng.random() < 0.3:
                self.postponed.append(run)
                return self.fresh()
        self.left -= len(run)
        return run

    def body(self, at: int) -> bytes:
        """Return the body of a message."""
        return b"once/%d/%d" % (self.number, at)

    def said(self, at: int) -> bytes:
        """Return the properties of a message, with its id in one of both forms."""
        headers: dict[str, object] = {"x-deduplication-id": self.body(at)}
        if self.number % 2:
            headers = {"x-producer": f"p{self.number}", "x-sequence": at}
        return properties.encode(properties.Properties(headers=headers))
