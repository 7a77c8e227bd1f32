"""A link on which a client sends blocks: to publish, or for a stage."""

from __future__ import annotations

from warren_broker.clients10.connection_requests import (
    AnyAnswer,
    PublishBlock,
    Published,
    StageBlock,
    Staged,
)
from warren_broker.clients10.incoming_link import IncomingLink
from warren_broker.clients10.link import LinkFault, LinkHost, condition_of
from warren_wire.amqp10.addresses import BlocksTarget, StageTarget
from warren_wire.amqp10.deliveries import handle_of, read_message
from warren_wire.amqp10.fetched import STAGED_STATE, MalformedPiece, decode_section
from warren_wire.amqp10.proton import Delivery, Link
from warren_wire.errors import InvalidArgument, Refusal

CREDIT = 16
"""Blocks in flight on one link; their bytes are bounded by the connection's window."""


class BlocksLink(IncomingLink):
    """A link that receives blocks and answers with dispositions.

    A refused block of a stage ends the link: a later one must not be staged without it.
    """

    what = "a block"

    def __init__(self, link: Link, host: LinkHost, target: BlocksTarget | StageTarget) -> None:
        super().__init__(link, host, host.limits.block_bytes_max)
        self._target = target
        self._next_seq = target.seq if isinstance(target, StageTarget) else 0
        self._credited = False
        self.wake()

    def grant(self) -> bool:
        """Give credit once; each block that is read gives one more."""
        if self._credited or self.ended or self.host.short:
            return False
        self._credited = True
        self.link.flow(CREDIT)
        return True

    def take(self, delivery: Delivery) -> None:
        """Pass a block on."""
        _, data, _ = read_message(handle_of(self.link), handle_of(delivery))
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
