"""Consumers: some acknowledge, some requeue, some disconnect without a close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.whole.ledger import Book
from sim.whole.people import OneAtATime, Person
from sim.whole.profile import SIFTED, QueuePlan
from sim.whole.sieves import SIEVES, UNNUMBERED, passes
from sim.whole.windows import AHEAD, DELIVERIES
from warren_broker.access import requests
from warren_machines.message_filter.definition import MessageFilter, encode_filter
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue import commands
from warren_machines.queue.commands import Modify
from warren_wire.block.block import Block
from warren_wire.errors import Refusal

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

ANNOTATION = "x-acquired-before"
CREDIT = 3
ENDS_BEFORE_THE_ANSWER = 0.1
"""Share of the gets after which the session ends at once, perhaps before the answer."""
MODIFIED_MS = 700
NO_ROOM = 0.2
"""Share of the deliveries for which a consumer has no room."""
ROOM_AGAIN_MS = 60
STEADY_WORK_MS = 5


class Subscription:
    """One session with one consumer of one queue, at one process of a node.

    next_msg_id  the id its next message must have
    newest       (publisher, life, priority) -> the number of the newest message
    prefetch     how many it may have that it has not handled; 0: no such limit
    holds        how many it has
    ended        the session has ended; later deliveries are ignored
    """

    def __init__(self, owner: Consumer, process: Process, queue: QueueRecord) -> None:
        self.owner = owner
        self.process = process
        self.queue = queue
        self.book: Book = owner.book(queue)
        self.session = process.broker.ids.session()
        self.consumer = process.broker.ids.consumer()
        self.no_ack = owner.plan.no_ack and owner.rng.random() < 0.5
        self.explicit = not self.no_ack and not owner.steady and owner.rng.random() < 0.15
        self.sieve = owner.sieve
        if owner.plan.name == SIFTED and not owner.steady:
            self.sieve = owner.rng.choice((None, 0, 1))
        self.short = any(one[0] == DELIVERIES for one in owner.world.profile.windows)
        self.next_msg_id = self.prefetch = self.holds = 0
        self.newest: dict[tuple[bytes, bytes, int], int] = {}
        self.ended = False

    def begin(self) -> None:
        """Start the consumer, in the node's turn."""
        rng, consuming = self.owner.rng, self.process.broker.consuming
        prefetch = 0 if self.no_ack or self.explicit else rng.choice((1, 3, 20))
        if self.owner.is_short_of_time():
            prefetch = min(prefetch, 1)
        elif prefetch and any(one[0] == AHEAD for one in self.owner.world.profile.windows):
            prefetch = max(prefetch, 2)  # with one nothing is settled while a settle is under way
        self.prefetch = prefetch
        command = commands.Checkout(
            self.consumer,
            self.session,
            "tag",
            prefetch,
            no_ack=self.no_ack,
            explicit_credit=self.explicit,
            priority=rng.choice((0, 0, 5)),
            filter=(
                b""
                if self.sieve is None
                else encode_filter(MessageFilter(sql=(SIEVES[self.sieve],)))
            ),
        )

        def joined(reply: Any) -> None:
            if isinstance(reply, Refusal):
                self.end(False)
            else:
                self.flow()

        consuming.checkout(self.queue, command, self, joined, has_room=self.has_room)

    def has_room(self, consumer: int) -> bool:
        """Have no room now and then; the queue is asked again a little later."""
        if self.owner.steady or not self.short or self.owner.rng.random() >= NO_ROOM:
            return True
        self.owner.later(self.process, ROOM_AGAIN_MS, self.room_again)
        return False

    def room_again(self) -> None:
        """Ask for what there was no room for."""
        if not self.ended:
            self.process.broker.consuming.resume(self.consumer, lambda: None)

    def flow(self) -> None:
        """Grant more credit to the queue."""
        if (self.explicit or self.no_ack) and not self.ended:
            credit = CREDIT if self.explicit else 0
            self.process.broker.consuming.credit(
                commands.Credit(self.consumer, self.next_msg_id, credit)
            )

    def end(self, failed: bool) -> None:
        """End the session, in the node's turn."""
        if not self.ended:
            self.ended = True
            self.process.broker.consuming.session_down(self.session, failed)
        if self.owner.subscription is self:
            self.owner.subscription = None

    def cancel(self, stays: bool) -> None:
        """Cancel the consumer; the session ends when the held messages are handled, or stays."""
        self.process.broker.consuming.cancel(self.consumer, lambda reply: None)
        if not stays:
            self.owner.later(self.process, 400, self.end, False)

    @property
    def lapsed(self) -> bool:
        """Whether the queue may have taken back what it held, see `Disconnects`."""
        key = (self.book.group, self.process.boot_id, self.consumer)
        return key in self.owner.world.checkers.order.disconnects.taken

    @property
    def may_miss(self) -> bool:
        """Whether deliveries may be left out: given back by its node, or taken back."""
        client = self.process.broker.queues.cluster.client(self.queue.group)
        local = None if client is None else client.consumers.get(self.consumer)
        ahead = None if local is None else local.ahead
        return self.no_ack or self.lapsed or (ahead is not None and ahead.used)

    # ------------------------------------------------------------ Receiver

    def deliver(self, consumer: int, delivery: commands.Delivery, block: Block) -> None:
        """Messages of one block."""
        if self.ended or self.process.dead:
            return
        require(consumer == self.consumer, "delivered to another consumer", consumer)
        require(
            delivery.first_msg_id == self.next_msg_id
            or (self.may_miss and delivery.first_msg_id > self.next_msg_id)
            or self.book.plan.takes_back,
            "a delivery is missing or repeated",
            consumer,
            self.next_msg_id,
            delivery,
        )
        self.next_msg_id = delivery.first_msg_id
        self.holds += delivery.last - delivery.first + 1
        require(
            not self.prefetch
            or self.holds <= self.prefetch
            or self.lapsed
            or self.book.plan.takes_back,
            "more than its prefetch",
            consumer,
            self.holds,
            self.prefetch,
        )
        world = self.owner.world
        notes = {
            number: int(dict(pairs).get(ANNOTATION, b"-1"))
            for number, pairs in delivery.annotations
        }
        for at in range(delivery.first, delivery.last + 1):
            body, msg_id = bytes(block.body(at)), self.next_msg_id
            self.next_msg_id += 1
            if self.sieve is not None:
                require(passes(self.sieve, body), "its filter does not match", self.sieve, body)
            taker = (self.process.boot_id, consumer)
            world.checkers.order.received(self.book, taker, msg_id, delivery, body)
            acquired = delivery.acquired_count
            self.book.deliver(body, delivery.index, acquired, taker)
            self.book.check_annotation(body, notes.get(msg_id), acquired)
            if delivery.acquired_count == 0 and not self.book.plan.fed:
                self.in_order(body, block.priority(at))
            if self.no_ack:
                self.book.settle(body, delivery.acquired_count)
            else:
                # A steady one beats any timeout, or a message could be redelivered forever.
                work_ms = STEADY_WORK_MS if self.owner.steady else world.profile.work_ms
                self.owner.later(self.process, work_ms, self.done, msg_id, body, acquired)
        if self.no_ack:
            self.owner.later(self.process, 50, self.flow)

    def in_order(self, body: bytes, priority: int) -> None:
        """Check that one publisher's messages through one node first arrive in order."""
        if body.startswith(UNNUMBERED):
            return  # rows of a batch have no order, what is sent again or late neither
        publisher, life, number = body.split(b"/")
        key = (publisher, life, priority)
        before = self.newest.get(key, 0)
        require(int(number) > before, "out of order", body, before)
        self.newest[key] = int(number)

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        """Handle the queue's cancellation: the channel ends, as in RabbitMQ."""
        if reason == "timeout":
            require(self.book.plan.takes_back, "cancelled for a timeout", consumer)
        if not self.ended and not self.process.dead:
            self.process.inject(lambda: self.end(True))

    def done(self, msg_id: int, body: bytes, acquired: int) -> None:
        """Finish a message: acknowledge, requeue or reject it."""
        if self.ended:
            return
        self.holds -= 1
        ids, rng = ((msg_id, msg_id),), self.owner.rng
        consuming = self.process.broker.consuming
        if not self.owner.steady and rng.random() < self.book.plan.trouble:
            if "rejected" in self.book.plan.forgets and rng.random() < 0.5:
                self.book.rejected[body] = True
                consuming.acknowledge(commands.Discard(self.consumer, ids, msg_id % 2 == 0))
            else:
                self.give_back(msg_id, body, acquired, rng.random() < 0.5)
            self.flow()
            return
        client = self.process.broker.queues.cluster.client(self.queue.group)
        if client is not None:  # else the queue was deleted
            settle = commands.Settle(self.consumer, ids)
            client.acknowledge(
                settle, True, lambda reply, index: self.settled(reply, body, acquired)
            )
        self.flow()

    def give_back(self, msg_id: int, body: bytes, acquired: int, failed: bool) -> None:
        """Return a message; every second one annotated, and some of these not before a time."""
        ids = ((msg_id, msg_id),)
        client = self.process.broker.queues.cluster.client(self.queue.group)
        if msg_id % 2 or client is None:
            self.process.broker.consuming.acknowledge(commands.Return(self.consumer, ids, failed))
            return
        ready_ms = (
            self.process.loop.now_ms + MODIFIED_MS if msg_id % 4 and self.book.plan.delays else 0
        )
        pairs = ((ANNOTATION, str(acquired).encode()),)
        modify = Modify(self.consumer, ids, failed, annotations=pairs, ready_ms=ready_ms)
        # An outcome of a link with credit goes as a command; what is read ahead for goes the way of
        # acknowledgements.
        local = client.consumers.get(self.consumer)
        if local is not None and local.ahead is not None:
            client.acknowledge(
                modify, on_reply=lambda reply, index: self.modified(reply, body, acquired)
            )
        else:
            client.command(modify, lambda reply, index: self.modified(reply, body, acquired))

    def modified(self, reply: Any, body: bytes, acquired: int) -> None:
        """Handle the answer to a modified outcome: the message has its annotation from now on.

        Not that of a classic queue, which keeps none.
        """
        classic = self.book.plan.arguments.get("x-queue-type") == "classic"
        done = not self.ended and isinstance(reply, commands.Done)
        if done and not classic and not self.lapsed:
            self.book.annotate(body, acquired)

    def settled(self, reply: Any, body: bytes, acquired: int) -> None:
        """Handle the answer to an acknowledgement."""
        if not self.ended and isinstance(reply, commands.Done) and not self.lapsed:
            self.book.settle(body, acquired)


class Consumer(Person):
    """A consumer, which sometimes starts a new session.

    steady  for the end of the world: it requeues nothing and stays
    sieve   its filter among SIEVES; None: none, or drawn for each session
    """

    def __init__(
        self,
        world: World,
        number: int,
        plan: QueuePlan,
        steady: bool = False,
        sieve: int | None = None,
    ) -> None:
        super().__init__(world, number, plan)
        self.sieve = sieve
        self.steady = steady
        self.subscription: Subscription | None = None

    def arrived(self, process: Process) -> None:
        """Drop the subscription, which ended with the old node."""
        self.subscription = None

    def act(self) -> None:
        """Subscribe, or end a subscription."""
        process, leaves = self.connected(), not self.steady and self.is_short_of_time()
        if process is not None:
            if self.subscription is None:
                if not leaves:
                    process.inject(lambda: self.subscribe(process))
            elif not self.steady and (self.rng.random() < 0.08 or leaves):
                subscription, self.subscription = self.subscription, None
                leave = self.rng.choice(("cancel", "cancel, and stay", "end", "fail"))
                process.inject(lambda: self.leave(subscription, leave))
        self.again(300)

    def leave(self, subscription: Subscription, how: str) -> None:
        """In the node's turn."""
        if how.startswith("cancel"):
            subscription.cancel(how.endswith("stay"))
        else:
            subscription.end(how == "fail")

    def subscribe(self, process: Process) -> None:
        """In the node's turn."""
        queue = self.queue(process)
        if queue is not None and self.subscription is None:
            self.subscription = Subscription(self, process, queue)
            self.subscription.begin()


class Getter(OneAtATime):
    """A client that gets one message at a time (basic.get)."""

    def act(self) -> None:
        """Request the next message."""
        self.ask_next(self.ask, wanted=not self.is_short_of_time())
        # In the end it must not keep a node busier than a node with a window of one can be: a
        # message with a late settle is taken back where there is a timeout, and delivered again.
        self.again(2_000 if self.world.calm else 200)

    def ask(self, process: Process) -> None:
        """In the node's turn."""
        queue = self.queue(process)
        if queue is None:
            self.busy = False
            return
        book, broker = self.book(queue), process.broker
        session, consumer = broker.ids.session(), broker.ids.consumer()
        no_ack = book.plan.no_ack and self.rng.random() < 0.5
        ended: list[int] = []

        def got(reply: Any) -> None:
            self.busy = False
            # 1. The session ends before the answer: the message goes back, and to another client.
            # 2. The answer arrives after that delivery; the client's channel is closed by then.
            if ended or not isinstance(reply, requests.GotMessage):
                broker.consuming.session_down(session, False)
                return
            delivery, body = reply.delivery, bytes(reply.block.body(reply.delivery.first))
            taker, order = (process.boot_id, consumer), self.world.checkers.order
            order.received(book, taker, delivery.first_msg_id, delivery, body)
            book.deliver(body, delivery.index, delivery.acquired_count, taker)
            if no_ack:
                book.settle(body, delivery.acquired_count)
            done = commands.Settle(consumer, ((delivery.first_msg_id, delivery.first_msg_id),))
            self.later(process, 100, self.done, process, session, None if no_ack else done)

        command = commands.Get(consumer, session, no_ack)
        broker.consuming.get(queue, command, got)

        def end() -> None:
            ended.append(session)
            broker.consuming.session_down(session, True)

        if self.rng.random() < ENDS_BEFORE_THE_ANSWER:
            self.later(process, 100, end)

    def done(self, process: Process, session: int, settle: commands.Settle | None) -> None:
        """Acknowledge it, or not."""
        if settle is not None and self.rng.random() < 0.7:
            process.broker.consuming.acknowledge(settle)
        process.broker.consuming.session_down(session, self.rng.random() < 0.5)
