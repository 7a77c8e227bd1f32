"""A sender of blocks over a link with a window, which resends them over the next connection."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from warren.connection import Connection, Pause
from warren.errors import DeadlinePassed, PeerError, TooLarge, Unavailable, Unroutable, WarrenError
from warren.wire import LinkHandler, Wire, refusal_of
from warren_wire.amqp10.addresses import BLOCKS_CAPABILITY
from warren_wire.amqp10.fetched import STAGED_STATE, encode_section_head
from warren_wire.amqp10.proton import Delivery, Link, Session, symbol

SEND_WINDOW_BYTES = 16 << 20
"""Default limit of unaccepted bytes in flight on one link."""
BLOCKS_MAX = 1024
"""Limit of blocks in flight on one link, beside the limit of bytes."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A block in flight.

    number   1, 2, 3 … within its sender
    error    why it was refused; valid when answered
    queues   those that hold it, for a block of a stage
    """

    number: int
    block: bytes | bytearray | memoryview
    answered: bool = False
    error: WarrenError | None = None
    queues: tuple[str, ...] = ()
    on_answer: Callable[[Outgoing], None] | None = field(default=None, repr=False)


class BlockSender:
    """A sender of blocks to one target, in order, with an answer for each.

    target    the link's address, given the number of the first block sent over it
    numbered  the broker drops repeated numbers: after a lost connection everything from the first
              unanswered block on is sent again, because the link numbers without gaps. Otherwise
              only unanswered blocks are sent again, and may arrive twice
    raising   a refused block ends the sender: `send` and `flush` raise the reason

    Invariant: `_blocks` are in order; its first is not answered; `_bytes` is the sum of their
    sizes; `_unsent` is those of them that the present link has not sent, in order
    """

    def __init__(
        self,
        connection: Connection,
        target: Callable[[int], str],
        *,
        window_bytes: int,
        timeout_s: float | None = None,
        numbered: bool = False,
        raising: bool = True,
    ) -> None:
        self.queues: dict[str, int] = {}  # queues with blocks of this sender: number of blocks
        self._connection = connection
        self._target = target
        self._window_bytes = window_bytes
        self._timeout_s = connection.address.request_timeout_s if timeout_s is None else timeout_s
        self._numbered = numbered
        self._raising = raising
        self._blocks: deque[Outgoing] = deque()
        self._unsent: deque[Outgoing] = deque()
        self._bytes = 0
        self._next = 1
        self._wire: Wire | None = None
        self._link: _SenderLink | None = None
        self._failure: WarrenError | None = None
        self._progress = 0

    @classmethod
    def to_exchange(
        cls,
        connection: Connection,
        exchange: str,
        *,
        window_bytes: int,
        timeout_s: float | None,
        raising: bool = True,
    ) -> BlockSender:
        """Make a sender of blocks that an exchange publishes at once; a repeat publishes again."""
        target = f"/exchanges/{quote(exchange, safe='')}/blocks"
        return cls(
            connection,
            lambda number: target,
            window_bytes=window_bytes,
            timeout_s=timeout_s,
            raising=raising,
        )

    @property
    def unanswered(self) -> int:
        """The number of unanswered blocks."""
        return sum(not block.answered for block in self._blocks)

    def send(
        self,
        block: bytes | bytearray | memoryview,
        on_answer: Callable[[Outgoing], None] | None = None,
    ) -> None:
        """Send a block; waits while the window is full. It must not change until it is answered."""
        self._raise_failure()
        outgoing = Outgoing(self._next, block, on_answer=on_answer)
        self._blocks.append(outgoing)
        self._unsent.append(outgoing)
        self._next += 1
        self._bytes += len(block)
        self._drive(lambda: self._bytes <= self._window_bytes and len(self._blocks) < BLOCKS_MAX)
        self._raise_failure()

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every block is answered."""
        self._drive(lambda: not self._blocks, timeout_s)
        self._raise_failure()

    def poll(self) -> None:
        """Send and receive without waiting."""
        if self._blocks:
            self._drive(lambda: True)

    def close(self) -> None:
        """Detach; the outcome of unanswered blocks stays unknown."""
        if self._wire is not None and self._link is not None:
            self._wire.detach(self._link)
        self._wire = self._link = None

    def _raise_failure(self) -> None:
        if self._failure is not None and self._raising:
            raise self._failure

    # -------------------------------------------------------------- driving

    def _drive(self, done: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Send and wait until `done` or a failure; each answer restarts the timeout."""
        timeout = self._timeout_s if timeout_s is None else timeout_s
        pause = Pause(time.monotonic() + timeout, timeout)
        progress = self._progress
        while True:
            try:
                with self._connection.lock:
                    self._drive_link(done, pause.deadline)
                return
            except Unavailable as error:
                self._forget_link()
                failure = error
            if self._progress != progress:
                progress = self._progress
                pause = Pause(time.monotonic() + timeout, timeout)
            pause.after(failure)

    def _drive_link(self, done: Callable[[], bool], deadline: float) -> None:
        link, wire = self._attached(deadline)
        while True:
            self._transmit(link)
            wire.poll()
            self._check(wire, link)
            if done() or (self._failure is not None and self._raising):
                return
            if self._await_change(wire, link, deadline):
                deadline = max(deadline, time.monotonic() + self._timeout_s)

    def _await_change(self, wire: Wire, link: _SenderLink, deadline: float) -> bool:
        """Wait for an answer (then return True), credit, or the link's end."""
        seen = self._progress
        try:
            wire.run(lambda: self._progress != seen or link.ended or self._sendable(link), deadline)
        except DeadlinePassed as late:
            if not self._unsent or link.link.credit > 0:
                raise
            sent = self.unanswered - len(self._unsent)
            raise DeadlinePassed(
                f"{late}: it gives no credit for {len(self._unsent)} blocks, {sent} others are "
                "sent and not confirmed; a resource alarm (memory, disk) of a node blocks "
                "publishers, or the queues do not answer"
            ) from None
        return self._progress != seen

    def _check(self, wire: Wire, link: _SenderLink) -> None:
        if wire.lost is not None:
            raise wire.lost
        if link.ended:
            failure = link.failure or Unavailable("the broker detached the link")
            if not isinstance(failure, PeerError):
                raise failure
            self._fail_all(failure)

    def _fail_all(self, failure: WarrenError) -> None:
        """Fail every block: the link was refused."""
        self._failure = self._failure or failure
        for block in list(self._blocks):
            self._answer(block, failure)

    def _sendable(self, link: _SenderLink) -> bool:
        return bool(self._unsent) and link.link.credit > 0

    def _attached(self, deadline: float) -> tuple[_SenderLink, Wire]:
        wire = self._connection.wire(deadline)
        if self._link is not None and self._wire is wire and not self._link.ended:
            return self._link, wire
        first = self._blocks[0].number if self._blocks else self._next
        self._wire, self._link = wire, _SenderLink.attach(wire, self._target(first), self)
        self._unsent = deque(b for b in self._blocks if self._numbered or not b.answered)
        return self._link, wire

    def _forget_link(self) -> None:
        """Forget the link; what was sent over it and not answered must be sent again."""
        if self._wire is not None and self._wire.lost is None and self._link is not None:
            self._wire.detach(self._link)
            self._link.sender = None
        self._wire = self._link = None

    def _transmit(self, link: _SenderLink) -> None:
        while self._unsent and link.link.credit > 0 and not link.ended:
            block = self._unsent.popleft()
            limit = link.link.remote_max_message_size or 0
            if limit and len(block.block) > limit:
                self._answer(
                    block,
                    TooLarge(f"a block of {len(block.block)} bytes; the broker's limit is {limit}"),
                )
            else:
                link.send(block)

    def _answer(
        self, block: Outgoing, error: WarrenError | None, queues: tuple[str, ...] = ()
    ) -> None:
        """Record a block's outcome; one sent twice keeps the first."""
        if block.answered:
            return
        self._progress += 1
        block.answered, block.error, block.queues = True, error, queues
        for name in queues:
            self.queues[name] = self.queues.get(name, 0) + 1
        if error is not None:
            self._failure = self._failure or error
        if block.on_answer is not None:
            block.on_answer(block)
        while self._blocks and self._blocks[0].answered:
            self._bytes -= len(self._blocks.popleft().block)


class _SenderLink(LinkHandler):
    """The link of a BlockSender: deliveries out, dispositions in."""

    def __init__(self, link: Link, sender: BlockSender) -> None:
        super().__init__(link)
        self.sender: BlockSender | None = sender
        self._under_way: dict[str, Outgoing] = {}

    @classmethod
    def attach(cls, wire: Wire, target: str, sender: BlockSender) -> _SenderLink:
        """Attach a sender; a refusal is raised when the wire is driven."""

        def make(session: Session, name: str) -> _SenderLink:
            link = session.sender(name)
            link.target.address = target
            link.target.capabilities.put_object(symbol(BLOCKS_CAPABILITY))
            return cls(link, sender)

        return wire.attach(make)

    def send(self, block: Outgoing) -> None:
        """Send one delivery of one data section; the engine copies the bytes."""
        tag = str(block.number)
        self._under_way[tag] = block
        self.link.delivery(tag)
        self.link.stream(encode_section_head(len(block.block)))
        self.link.stream(block.block)
        self.link.advance()

    def delivered(self, delivery: Delivery) -> None:
        """An outcome."""
        if not delivery.updated and not delivery.settled:
            return
        block = self._under_way.pop(delivery.tag, None)
        state, remote = delivery.remote_state, delivery.remote
        queues: tuple[str, ...] = ()
        error: WarrenError | None = None
        if state == STAGED_STATE:
            queues = tuple(str(name) for name in (remote.data or [[]])[0])
        elif state == Delivery.RELEASED:
            error = Unroutable(
                "a message of the block is unroutable; none was published",
                status=404,
                condition="warren:no-route",
            )
        elif state == Delivery.REJECTED:
            error = PeerError("the broker refused the block without a reason")
            if remote.condition is not None:
                error = refusal_of(remote.condition)
        elif state != Delivery.ACCEPTED:
            error = PeerError(
                f"the broker answered with delivery state {state}, which is not expected here"
            )
        delivery.settle()
        if block is not None and self.sender is not None:
            self.sender._answer(block, error, queues)
