"""Operators that purge queues, delete them and declare them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.whole.people import EXCHANGE, VHOST, OneAtATime, Person
from sim.whole.profile import DUE, LATER, LETTERS, STORE, QueuePlan
from warren_machines.metadata.commands import Bind, DeclareExchange, DeleteExchange, QueueIs, Unbind
from warren_machines.queue.commands import Count, RetryDelayed
from warren_machines.queue.delayed.delay_commands import EndDelay
from warren_wire.errors import Refusal, Unavailable

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World


class Operator(OneAtATime):
    """An operator that purges or deletes one queue; `Declarer` declares it again."""

    def act(self) -> None:
        """Purge or delete now and then."""
        self.ask_next(self.sweep, wanted=not self.world.calm)
        self.again(1_000)

    def sweep(self, process: Process) -> None:
        """In the node's turn."""
        queue = self.queue(process)
        if queue is None:
            self.busy = False
            return
        book = self.book(queue)
        book.sweep()
        broker, name = process.broker, self.plan.name
        self.world.note("sweeps", self.world.agenda.now_ms, book.group)

        def swept(reply: Any) -> None:
            self.busy = False
            if not isinstance(reply, Unavailable):  # else it may still happen
                book.swept_now()

        if self.rng.random() < 0.5:
            try:
                broker.purge_queue(VHOST, name, 0, swept)
            except Refusal as refusal:
                swept(refusal)
        else:
            book.doomed = True
            broker.delete_queue(VHOST, name, False, False, 0, swept)


class Vanisher(Operator):
    """An operator that purges or deletes the target of dead letters while some are kept for it."""

    def act(self) -> None:
        """Look whether there are any; soon again, for they may be on their way just then."""
        wait = any(self.world.checkers.order.letters.known.values())
        self.ask_next(self.sweep, wanted=wait and not self.world.calm and self.rng.random() < 0.5)
        self.again(300)


class Retrier(OneAtATime):
    """An operator that does not wait for delayed messages."""

    def act(self) -> None:
        """Make them ready now and then."""
        self.ask_next(self.retry, wanted=not self.world.calm)
        self.again(1_500)

    def retry(self, process: Process) -> None:
        """In the node's turn."""
        queue = self.queue(process)
        if queue is None:
            self.busy = False
            return

        def retried(reply: Any) -> None:
            self.busy = False
            require(isinstance(reply, Count | Refusal), "a retry was answered otherwise", reply)

        process.broker.queues.ask(queue, RetryDelayed(), retried)


class Ender(OneAtATime):
    """An operator that delivers delayed messages of an exchange now, or drops them."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number, QueuePlan(STORE))

    def act(self) -> None:
        """Pick one now and then."""
        self.ask_next(self.end, wanted=not self.world.calm)
        self.again(200)

    def end(self, process: Process) -> None:
        """In the node's turn; what is delayed is taken from the node's own state."""
        store = self.queue(process)
        held = store is not None and store.group in process.host.groups()
        rows = list(process.host.state(store.group).delayed) if store and held else []
        if store is None or not rows:
            self.busy = False
            return
        ready_ms, index, first, last, _, _ = self.rng.choice(rows)
        ordinal, kind = self.rng.randint(first, last), self.rng.randrange(5)
        command = EndDelay(ready_ms, index, ordinal, kind < 2) if kind else RetryDelayed()
        self.world.note("ends delays", command)

        def ended(reply: Any) -> None:
            self.busy = False
            require(isinstance(reply, Count | Refusal), "a delay's end is answered so", reply)

        process.broker.queues.ask(store, command, ended)


class Binder(OneAtATime):
    """An operator that takes away the way of the dead letters to their queue, and gives it back."""

    def act(self) -> None:
        """Change something now and then; in the end the way is open."""
        self.ask_next(self.change)
        self.again(300 if self.world.calm or self.world.profile.vanishing else 1_200)

    def change(self, process: Process) -> None:
        """In the node's turn."""
        definitions = process.broker.definitions
        there = definitions.state.exchange(VHOST, LETTERS) is not None
        bound = there and self.plan.name in definitions.topology.route(VHOST, LETTERS, "")
        binding = (VHOST, LETTERS, self.plan.name, True, "", {}, 0)

        def changed(reply: Any) -> None:
            self.busy = False
            if isinstance(reply, Unavailable):
                self.at = None  # that node does not see what it asked for: its disk hangs for good

        if not there:
            exchange = DeclareExchange(VHOST, LETTERS, "fanout", True, False, False, {})
            definitions.submit(exchange, changed)
        elif not bound:
            definitions.submit(Bind(*binding), changed)
        elif self.world.calm or self.rng.random() < (0.9 if self.world.profile.vanishing else 0.5):
            self.busy = False
        elif self.rng.random() < 0.5:
            definitions.submit(Unbind(*binding), changed)
        else:
            definitions.submit(DeleteExchange(VHOST, LETTERS), changed)


class Declarer(Person):
    """An operator that declares missing queues of the plan."""

    def __init__(self, world: World) -> None:
        super().__init__(world, 0, world.profile.queues[0])
        self.asked: dict[str, int] = {}

    def act(self) -> None:
        """Declare missing queues, on some node."""
        machine = self.world.processes[self.rng.choice(self.world.names)]
        process = machine.running
        if process is not None and process.serves:
            process.inject(lambda: self.look(process))
        self.again(400)

    def look(self, process: Process) -> None:
        """In the node's turn."""
        state = process.broker.definitions.state
        for plan in self.world.profile.queues:
            if state.queue(VHOST, plan.name) is None:
                declare(self.world, process, plan, lambda reply: None)
        if self.world.profile.fanout:
            feed(process, [plan.name for plan in self.world.profile.queues if not plan.fed])
        if self.world.profile.later:
            keep(process)


def declare(world: World, process: Process, plan: QueuePlan, done: Any) -> None:
    """Declare a queue; a repeat is harmless."""

    def answered(reply: Any) -> None:
        require(
            isinstance(reply, QueueIs | Unavailable), "a queue was not declared", plan.name, reply
        )
        if isinstance(reply, QueueIs):
            world.ledger.of(reply.queue.group, plan)
        done(reply)

    arguments = dict(plan.arguments)
    if arguments.get("x-queue-type") == "quorum":
        arguments["x-quorum-initial-group-size"] = plan.group_size
    process.broker.declare_queue(
        VHOST,
        plan.name,
        durable=plan.durable,
        arguments=arguments,
        done=answered,
    )


def feed(process: Process, names: list[str]) -> None:
    """Bind every queue to a fanout exchange."""
    definitions = process.broker.definitions
    if definitions.state.exchange(VHOST, EXCHANGE) is None:
        exchange = DeclareExchange(VHOST, EXCHANGE, "fanout", True, False, False, {})
        definitions.submit(exchange, lambda reply: None)
        return
    bound = definitions.topology.route(VHOST, EXCHANGE, "")
    for name in names:
        if name not in bound and definitions.state.queue(VHOST, name) is not None:
            definitions.submit(Bind(VHOST, EXCHANGE, name, True, "", {}, 0), lambda reply: None)


def keep(process: Process) -> None:
    """Bind the queues for what is due to an exchange that delays it."""
    definitions, broker = process.broker.definitions, process.broker
    if definitions.state.exchange(VHOST, LATER) is None:
        arguments = {"x-delayed-type": "fanout"}
        delaying = DeclareExchange(VHOST, LATER, "x-delayed-message", True, False, False, arguments)
        command = broker.exchange_declaration(delaying)
        definitions.submit(command, lambda reply: None)
        return
    for name in DUE:
        if not is_due(process, name) and definitions.state.queue(VHOST, name) is not None:
            definitions.submit(Bind(VHOST, LATER, name, True, "", {}, 0), lambda reply: None)


def is_due(process: Process, name: str) -> bool:
    """Return whether that queue gets what is due, as the node knows it."""
    definitions = process.broker.definitions
    exchange = definitions.state.exchange(VHOST, LATER)
    return exchange is not None and name in definitions.topology.route(VHOST, LATER, "")
