"""A link on which a client sends blocks: to publish, or for a stage."""

from __future__ import annotations

from proton import Delivery, Link

from warren_broker.amqp10.addresses import BlocksTarget, StageTarget
from warren_broker.amqp10.connection_requests import (
    AnyAnswer,
    PublishBlock,
    Published,
    StageBlock,
    Staged,
)
from warren_broker.amqp10.link import LinkFault, LinkHost, LinkPart, condition_of, drop
from warren_broker.amqp10.wire.fetched import STAGED_STATE, MalformedPiece, decode_section
from warren_broker.errors import ContentTooLarge, InvalidArgument, Refusal

CREDIT = 16
"""Blocks in flight on one link; their bytes are bounded by the connection's window."""


class BlocksLink(LinkPart):
    """A link that receives blocks and answers with dispositions.

    A refused block of a stage ends the link: a later one must not be staged without it.
    """

    def __init__(self, link: Link, host: LinkHost, target: BlocksTarget | StageTarget) -> None:
        super().__init__(link, host)
        self._target = target
        self._next_seq = target.seq if isinstance(target, StageTarget) else 0
        self._waiting = False  # a complete block waits because the connection has enough in flight
        self._credited = False
        self._unfinished = 0  # bytes of an incomplete block
        self.wake()

    def delivery(self, delivery: Delivery) -> None:
        """Handle a block of which a part, or everything, has arrived."""
        if self.ended or delivery.aborted:
            drop(delivery)
            return
        if delivery.pending > self.host.limits.block_bytes_max:
            size, limit = delivery.pending, self.host.limits.block_bytes_max
            drop(delivery)
            self.refuse(
                ContentTooLarge(
                    f"a block of {size} bytes or more; {limit} is the limit: send smaller blocks"
                )
            )
            return
        self._count(delivery.pending if delivery.partial else 0)
        if not delivery.partial and delivery.readable:
            self._waiting = True
            self.wake()

    def gone(self) -> None:
        """Drop the link's incomplete block: the link has ended."""
        self._count(0)

    def _count(self, unfinished: int) -> None:
        host = self.host
        host.unfinished_bytes += unfinished - self._unfinished
        self._unfinished = unfinished
        if host.unfinished_bytes > host.limits.unfinished_bytes_max:
            host.overrun()

    def wake(self) -> bool:
        """Read waiting blocks as long as there is room."""
        moved = False
        if not self._credited and not self.ended and not self.host.short:
            self._credited = moved = True
            self.link.flow(CREDIT)
        while self._waiting and not self.ended and self.host.may_read():
            current = self.link.current
            if current is None or current.partial or not current.readable:
                self._waiting = False
                break
            self._take(current)
            moved = True
        return moved

    def _take(self, delivery: Delivery) -> None:
        data = self.link.recv(delivery.pending) or b""
        self.link.advance()
        self.link.flow(1)
        try:
            block = decode_section(memoryview(data))  # a view: nothing is copied
        except MalformedPiece as error:
            self._settle(delivery, InvalidArgument(str(error)))
            return
        size = len(block)
        self.host.in_flight_bytes += size
        target = self._target
        request: StageBlock | PublishBlock
        if isinstance(target, StageTarget):
            request = StageBlock(target, self._next_seq, block)
            self._next_seq += 1
        else:
            request = PublishBlock(target.queue, target.exchange, block)

        def answered(answer: AnyAnswer) -> None:
            self.host.in_flight_bytes -= size
            self._settle(delivery, answer)

        self.host.ask(request, answered)

    def _settle(self, delivery: Delivery, answer: AnyAnswer) -> None:
        if self.ended:
            return
        if isinstance(answer, Staged):
            delivery.local.data = [list(answer.queues)]
            delivery.update(STAGED_STATE)
        elif isinstance(answer, Published):
            delivery.update(Delivery.ACCEPTED)
        else:
            assert isinstance(answer, Refusal), answer
            if not isinstance(self._target, StageTarget):  # its link ends with it, below
                self.host.faults.append(LinkFault(self.link.name, answer))
            delivery.local.condition = condition_of(answer)
            delivery.update(Delivery.REJECTED)
        delivery.settle()
        if isinstance(self._target, StageTarget) and not isinstance(answer, Staged):
            assert isinstance(answer, Refusal), answer
            self.refuse(answer)
