"""The clients of a simulated cluster, each connected to one node at a time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from sim.whole.calm import is_narrow
from sim.whole.ledger import Book
from sim.whole.profile import QueuePlan
from warren_machines.metadata.records import QueueRecord

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

VHOST = "/"
EXCHANGE = "every"


class Person:
    """A client that acts repeatedly until the world ends, in the node's turns.

    at    the process it is connected to; None: not connected
    plan  the queue that it uses
    """

    def __init__(self, world: World, number: int, plan: QueuePlan) -> None:
        self.world = world
        self.number = number
        self.plan: QueuePlan = plan
        self.rng = Random(world.rng.randrange(1 << 48))
        self.at: Process | None = None

    def connected(self) -> Process | None:
        """Return its node; a new one when that has failed, or does not know the queue."""
        at = self.at
        if at is None or at.dead or at.shunned or self.queue(at) is None:
            self.at = None
            machine = self.world.processes[self.rng.choice(self.world.names)]
            process = machine.running
            if process is not None and process.serves and self.queue(process) is not None:
                self.at = process
                self.arrived(process)
        return self.at

    def queue(self, process: Process) -> QueueRecord | None:
        """Return its queue as that node knows it."""
        return process.broker.definitions.state.queue(VHOST, self.plan.name)

    def book(self, queue: QueueRecord) -> Book:
        """Return the book of a queue."""
        return self.world.ledger.of(queue.group, self.world.plans[queue.name])

    def arrived(self, process: Process) -> None:
        """Connected again."""

    def is_short_of_time(self) -> bool:
        """Return whether acknowledgements of several clients at a node outlast its queue's timeout.

        1. A window holds one submission, and a trip takes up to 240 ms.  2. Consumers of a queue
        with a timeout of 500 ms acknowledge eight messages through one node: the third
        acknowledgement and all behind it reach the leader too late, and take the window's time
        nevertheless.  3. The messages are delivered again, to consumers that acknowledge them
        behind the late ones: without an end.  A client of such a queue must acknowledge in time: in
        calm a steady one alone does, one message at a time.
        """
        return self.world.calm and self.plan.takes_back and is_narrow(self.world.profile)

    def again(self, delay_ms: int) -> None:
        """Act some time later."""
        self.world.agenda.after(1 + self.rng.randrange(delay_ms), self.act)

    def act(self) -> None:
        """Do the next thing."""
        raise NotImplementedError

    def later(self, process: Process, delay_ms: int, call: Any, *args: Any) -> None:
        """Call in a later turn of that process, if it is still running."""
        self.world.agenda.after(
            1 + self.rng.randrange(delay_ms), process.inject, lambda: call(*args)
        )


class OneAtATime(Person):
    """A person that waits for an answer before it asks for the next thing.

    busy    something was asked for, and is not answered
    """

    def __init__(self, world: World, number: int, plan: QueuePlan) -> None:
        super().__init__(world, number, plan)
        self.busy = False

    def arrived(self, process: Process) -> None:
        """Forget what was asked for through the node before: no answer comes any more."""
        self.busy = False

    def ask_next(self, what: Callable[[Process], None], *, wanted: bool = True) -> None:
        """Ask in a turn of the node, unless an answer is missing."""
        process = self.connected()
        if process is not None and not self.busy and wanted:
            self.busy = True
            process.inject(lambda: what(process))
