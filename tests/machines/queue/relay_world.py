"""A queue, the messages of which a relay carries to another one, amid everything that may go wrong.

The relay's processes die, hang and come back to life; their acknowledgements and the answers to
them are lost; sessions end, nodes are suspected; clients consume from the first queue, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from tests.machines.queue.world import Queue, block
from warren_machines.queue import commands as c
from warren_machines.queue.effects import CancelConsumer, Deliver
from warren_machines.queue.relays.relay_commands import EnqueueRelayed

Place = tuple[int, int]
"""Index and ordinal of a message in the first queue."""
CLIENT = 9
"""Uplink of publishers and clients."""


@dataclass(eq=False)
class Process:
    """One process of the relay, with one session.

    ledger   what it has received and not acknowledged, in order: number to (origin, msg_id, place)
    done     numbers that were confirmed to it
    seen     the highest number that it has received
    consumer of its session; 0: none now
    """

    uplink: int
    session: int
    consumer: int = 0
    ledger: dict[int, tuple[int, int, int, Place]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    seen: int = 0
    cancelled: bool = False


class Pair:
    """Two queues and the relay between them."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.source = Queue(
            kind=self.chance.choice(("quorum", "quorum", "classic")),
            delivery_limit=-1,
            consumer_disconnected_timeout_ms=50,
            single_active_consumer=self.chance.random() < 0.2,
            consumer_timeout_ms=self.chance.choice((None, None, 400)),
        )
        limit = self.chance.choice((None, None, 15))
        self.target = Queue(max_length=limit, overflow="reject-publish")
        self.published: list[Place] = []
        self.arrived: Counter[Place] = Counter()
        self.consumed: Counter[Place] = Counter()
        self.processes: list[Process] = []
        self.consumers: dict[tuple[int, int], Process] = {}
        self.held: dict[int, Place] = {}
        self.sessions = self.next_consumer = self.origins = 0

    # ------------------------------------------------------------ the first queue

    def do(self, command: c.AnyCommand, data: bytes | None = None, uplink: int = CLIENT) -> object:
        """One entry of the first queue, and what comes of it."""
        queue = self.source
        (reply,) = queue.submit(command, data=data, uplink=uplink, node=f"n{uplink}").replies
        self._carry_out()
        return reply

    def _carry_out(self) -> None:
        for effect in self.source.effects:
            if isinstance(effect, CancelConsumer) and (
                one := self.consumers.get((effect.uplink, effect.consumer))
            ):
                one.cancelled = True
            if isinstance(effect, Deliver):
                for delivery in effect.deliveries:
                    self._delivered(effect.uplink, effect.consumer, delivery)

    def _delivered(self, uplink: int, consumer: int, delivery: c.Delivery) -> None:
        one = self.consumers.get((uplink, consumer))
        for k in range(delivery.last - delivery.first + 1):
            msg_id, place = delivery.first_msg_id + k, (delivery.index, delivery.first + k)
            if one is None:
                assert not delivery.number, "a client is told no names"
                self.held[msg_id] = place
            else:
                number = delivery.number + k
                assert delivery.number
                if number > one.seen:
                    assert number > max(one.ledger, default=0), (number, one)
                one.seen = max(one.seen, number)
                one.ledger[number] = (delivery.origin, consumer, msg_id, place)

    def pass_time(self) -> None:
        """Some milliseconds; a timer that is due fires."""
        self.source.now += self.chance.choice((1, 5, 60, 300))
        if 0 < self.source.state.timer_ms <= self.source.now:
            self.source.tick(0)
            self._carry_out()

    def put(self) -> None:
        """Messages for the first queue."""
        count = self.chance.randint(1, 6)
        self.do(c.Enqueue(), block(count, priorities=[4, 4, 9, 0, 4, 4][:count]))
        self.published += [(self.source.index, i) for i in range(count)]

    def client(self) -> None:
        """A client of the first queue takes messages, or settles or returns what it has."""
        if not self.held:
            if self.source.state.find(CLIENT, 1) is None:
                self.do(c.Checkout(1, 1, "client", self.chance.randint(1, 4)))
            return
        msg_id, place = self.chance.choice(sorted(self.held.items()))
        del self.held[msg_id]
        settled = self.chance.random() < 0.6
        command = c.Settle if settled else c.Return
        known = self.source.state.find(CLIENT, 1)
        has = known is not None and any(run[0] <= msg_id <= run[1] for run in known.held)
        self.do(command(1, ((msg_id, msg_id),), *(() if settled else (False,))))
        if settled and has:
            self.consumed[place] += 1
        if self.chance.random() < 0.2:
            self.do(c.SessionDown(1, True))
            self.held.clear()

    # ------------------------------------------------------------ the relay

    def begin(self) -> None:
        """Another process begins, whatever became of the others."""
        self.sessions += 1
        one = Process(self.chance.randint(1, 3), self.sessions + 10)
        self.processes.append(one)
        self.consume(one)

    def consume(self, one: Process) -> None:
        """A process begins to consume, or again."""
        self.next_consumer += 1
        self.origins += 1
        one.consumer, one.cancelled = self.next_consumer, False
        self.consumers[one.uplink, one.consumer] = one
        prefetch = self.chance.choice((1, 3, 3, 8))
        command = c.Checkout(
            one.consumer, one.session, "relay", prefetch, relay="r", origin=1000 + self.origins
        )
        self.do(command, uplink=one.uplink)

    def demand(self, one: Process) -> None:
        """The demand of a process ends, or begins."""
        if one.consumer:
            self.do(c.Cancel(one.consumer), uplink=one.uplink)
            one.consumer = 0
        elif one is self.processes[-1] and not one.cancelled:
            self.consume(one)

    def publish(self, one: Process) -> None:
        """It publishes some of what it has; the confirm arrives or not."""
        numbers = [number for number in one.ledger if number not in one.done]
        at = self.chance.randint(0, 2) if self.chance.random() < 0.3 else 0
        chosen = numbers[at : at + self.chance.randint(1, 5)]
        origin = one.ledger[chosen[0]][0] if chosen else 0
        chosen = [number for number in chosen if one.ledger[number][0] == origin]
        if not chosen:
            return
        runs = tuple((1, number) for number in chosen)
        command = EnqueueRelayed(origin, next(iter(one.ledger)), runs)
        before = self.target.state.order.count
        reply = self.target.do(command, block(len(chosen)), uplink=one.uplink)
        end = reply.accepted if isinstance(reply, c.Refused) else len(chosen)
        index = self.target.index
        entered = [i for at, i in self.target.ready() if at == index]
        assert self.target.state.order.count == before + len(entered)
        for i in entered:
            self.arrived[one.ledger[chosen[i]][3]] += 1
        if self.chance.random() < 0.8:
            one.done.update(chosen[:end])

    def acknowledge(self, one: Process) -> None:
        """It acknowledges in order what was confirmed; that arrives or not."""
        arrives = self.chance.random() < 0.8
        while one.ledger and next(iter(one.ledger)) in one.done:
            number = next(iter(one.ledger))
            _, consumer, msg_id, _ = one.ledger.pop(number)
            if arrives:
                self.do(c.Settle(consumer, ((msg_id, msg_id),)), uplink=one.uplink)

    def end(self, one: Process) -> None:
        """Its connection ends; the process itself may run for a while."""
        self.do(c.SessionDown(one.session, self.chance.random() < 0.5), uplink=one.uplink)
        if self.chance.random() < 0.5:
            self.processes.remove(one)

    def node(self) -> None:
        """A node is suspected, or is back."""
        name = f"n{self.chance.randint(1, 3)}"
        self.do(c.NodeBack(name) if self.chance.random() < 0.6 else c.NodeSuspected(name))

    def drain(self) -> None:
        """Clients of the second queue take what is there."""
        self.target.do(c.Purge())

    # ------------------------------------------------------------ all of it

    def step(self) -> None:
        """Something happens."""
        chance = self.chance
        one = chance.choice(self.processes) if self.processes else None
        what = chance.choice(
            ("put", "put", "client", "time", "begin", "demand", "end", "node", "restore", "drain")
            + ("publish", "acknowledge") * 4
        )
        if what == "time":
            self.pass_time()
        elif what == "restore":
            for queue in (self.source, self.target):
                queue.state = queue.machine.restore(queue.digest())
        elif what == "begin" and chance.random() < 0.5:
            self.begin()
        elif what in ("put", "client", "node", "drain"):
            getattr(self, what)()
        elif one is not None and what in ("demand", "end", "publish", "acknowledge"):
            getattr(self, what)(one)

    def finish(self) -> None:
        """Everything is well from now on, and the relay carries what is left."""
        for name in ("n1", "n2", "n3"):
            self.do(c.NodeBack(name))
        self.do(c.SessionDown(1, False))
        self.held.clear()
        self.begin()
        last = self.processes[-1]
        for _ in range(2000):
            self.drain()
            self.publish(last)
            self.acknowledge(last)
            if last.cancelled or not last.ledger:
                stat = self.source.stat()
                if not stat.messages_ready and not stat.messages_unacknowledged:
                    return
                self.begin()
                last = self.processes[-1]
        raise AssertionError("it does not come to an end")

    def judge(self) -> None:
        """Every message is in the world once."""
        for place in self.published:
            met = self.arrived[place] + self.consumed[place]
            assert met == 1, (place, self.arrived[place], self.consumed[place])


def run(seed: int, steps: int = 120) -> Pair:
    """A whole life; judged."""
    pair = Pair(seed)
    for _ in range(steps):
        pair.step()
    pair.finish()
    pair.judge()
    return pair
