"""Deliveries to an AMQP 0.9.1 client that does not read as fast as its queues give."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from warren_broker.clients.refused_consumers import TURNS, RefusedConsumers, Resume
from warren_broker.clients091.connection import Connection
from warren_broker.clients091.global_prefetch import crowded
from warren_broker.clients091.held_back import HeldBackBytes, Waiting, WaitingRuns
from warren_broker.clients091.state import ConnectionState
from warren_machines.queue.commands import Delivery
from warren_raft.runtime.net.stream import Stream
from warren_wire.block.block import Block

Unread: TypeAlias = Waiting[int]


class UnreadDeliveries:
    """What waits for the socket, and the consumers that were refused more meanwhile.

    1. A client has a prefetch of 65,535, or many consumers, and does not read.  2. The queues give
    all of that at once, and each message is in memory until the client reads it. So above the bound
    nothing more is taken; the queue holds it for the consumer, and is asked to send it again when
    there is room (`GroupClient.resume`). So it does for consumers without acknowledgements, until
    it is told that their messages have left for the client (`Credit`).
    Replayed by tests/live/test_bounds.py

    Answers to what the client asks for go the same way: while it is `full`, the client is not read,
    a message that it gets waits (`later`), and direct replies, which are at most once, are dropped.

    unsent  returns the bytes that were written for the client and have not left
    resume  asks a consumer's queue for what was refused
    state   knows what channels with a limit hold back: for their consumers it counts, too
    owes    consumers or calls may wait for room

    Invariants: while it owes something, `ask_again` is called when bytes have left;
    bytes_max is twice the bytes above which a stream is congested, or more: it says when they leave
    """

    def __init__(
        self,
        bytes_max: int,
        unsent: Callable[[], int],
        resume: Resume,
        state: ConnectionState,
    ) -> None:
        self._bytes_max = bytes_max
        self._state = state
        self._resume = resume
        self._unsent = unsent
        self._counted = HeldBackBytes()
        self._waiting: WaitingRuns[int] = WaitingRuns(self._counted)
        self.owes = False
        self._refused = RefusedConsumers(bytes_max // (2 * TURNS), resume)
        self._crowded = RefusedConsumers(bytes_max // (2 * TURNS), resume)
        self._later: list[Callable[[], None]] = []

    @property
    def full(self) -> bool:
        """Whether as much waits for the client as may."""
        return self._counted.size_bytes + self._unsent() >= self._bytes_max

    def later(self, call: Callable[[], None]) -> None:
        """Have something done when there is room: at most one thing for each channel."""
        self._later.append(call)
        self.owes = True

    def __bool__(self) -> bool:
        return bool(self._waiting.runs)

    def took(self, consumer: int, delivery: Delivery, block: Block) -> None:
        """Note messages that a consumer was given."""
        if self._refused.turns:
            size = block.kept_bytes(delivery.first, delivery.last + 1)
            self._refused.took(consumer, size)
        if self._crowded.turns:
            size = block.kept_bytes(delivery.first, delivery.last + 1)
            self._crowded.took(consumer, size)

    def add(self, consumer: int, delivery: Delivery, block: Block) -> None:
        """Append messages that cannot be written yet."""
        self._waiting.append(consumer, (consumer, delivery, block))

    def take(self) -> Unread:
        """Remove and return the first ones."""
        return self._waiting.popleft()

    def take_of(self, consumers: Iterable[int]) -> list[Unread]:
        """Remove and return those of some consumers, which have ended."""
        found: list[Unread] = []
        for consumer in consumers:
            found += self._waiting.take_of(consumer)
            self._refused.forget(consumer)
            self._crowded.forget(consumer)
        return found

    def clear(self) -> None:
        """Forget what waits, and the consumers that were refused more."""
        self._waiting.clear()
        self._refused.clear()
        self._crowded.clear()
        self._later.clear()

    def has_room(self, consumer: int) -> bool:
        """Return whether a consumer may be given more; else its queue is asked again later."""
        level = self._counted.size_bytes + self._unsent()
        refused = self._refused
        if level < self._bytes_max and (not self.owes or self._refused.may_take(consumer)):
            if not crowded(self._state, consumer, level, self._bytes_max):
                return True
            refused = self._crowded
        refused.refuse(consumer)
        self.owes = True
        return False

    def ask_again(self) -> None:
        """Ask for what was refused, if half of the bound has become free."""
        if not self.owes:
            return
        level = self._counted.size_bytes + self._unsent()
        if 2 * level <= self._bytes_max:
            self._refused.ask(self.ask_again)
            later, self._later = self._later, []
            for call in later:
                call()
        if self._crowded:
            self._ask_crowded(level)
        self.owes = bool(self._refused or self._crowded or self._later)

    def _ask_crowded(self, level: int) -> None:
        """Ask for what was refused because too much was held back on channels with a limit."""
        if 2 * (level + self._state.held_back.size_bytes) <= self._bytes_max:
            self._crowded.ask(self.ask_again)
            return
        for consumer in self._crowded.waiting():
            if not crowded(self._state, consumer, level, self._bytes_max):
                self._crowded.forget(consumer)
                self._resume(consumer, _nothing)


def _nothing() -> None:
    """Do nothing: what comes is looked at when it does."""


def unsent_bytes(session: Connection, stream: Stream) -> int:
    """Return the bytes that were written for a client and have not left."""
    return session.output_bytes + stream.out_bytes
