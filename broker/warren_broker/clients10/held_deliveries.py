"""What the client of a consuming link holds: deliveries that it was sent and has not settled."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Final, TypeAlias

from warren_broker.clients10.connection_bounds import ConnectionBounds
from warren_broker.clients10.connection_requests import AnyRequest
from warren_broker.clients10.link_requests import (
    EndConsumer,
    Ranges,
)
from warren_machines.queue import commands
from warren_machines.queue.annotations import read_annotations
from warren_wire.amqp10 import deliveries
from warren_wire.amqp10.deliveries import (
    ACCEPTED,
    REJECTED,
    RELEASED,
    address_of,
    delivery_at,
    handle_of,
)
from warren_wire.amqp10.fields import encoded_value
from warren_wire.amqp10.proton import Delivery
from warren_wire.kernel import Unsettled

_Told: TypeAlias = Callable[[int, Ranges], commands.Acknowledgement]
"""Makes the queue's command from the number of the consumer and those of the deliveries."""
_released: Final = partial(commands.Return, failed=False)
_OUTCOMES: Final[dict[int, _Told]] = {
    ACCEPTED: commands.Settle,
    REJECTED: partial(commands.Discard, failed=True),
    RELEASED: _released,
}
_first: Final = itemgetter(0)
Tell = Callable[[AnyRequest], None]


class HeldDeliveries:
    """The unsettled deliveries of one consumer of a link, and their outcomes of this pass.

    A link has one consumer at a time. One that has timed out is retired: it gets no messages, but
    the client may still settle what it was sent earlier.

    consumer   its number; first_tag: the delivery tag of its message 0, tags count over all
               consumers of a link
    unsettled  the deliveries that the client has not settled, which `_bounds` counts with those of
               the connection's other consumers
    overdue    tags of those that were released because the client held them for too long: they are
               in the queue again
    ended      the queue was told to take back everything
    """

    def __init__(self, consumer: int, first_tag: int, tell: Tell, bounds: ConnectionBounds) -> None:
        self.consumer = consumer
        self.first_tag = first_tag
        self.unsettled = Unsettled()
        self.overdue: set[int] = set()
        self.ended = False
        self._tell = tell
        self._bounds = bounds

    def __len__(self) -> int:
        return len(self.unsettled.tags)

    def sent(self, count: int) -> None:
        """Note that so many deliveries were sent."""
        self._bounds.unsettled += count

    def settled(self) -> bool:
        """Return whether the client has settled some since the last call."""
        count = self.unsettled.take_count()
        self._bounds.unsettled -= count
        return count > 0

    def tag_of(self, delivery: Delivery) -> int:
        """Return the tag of a delivery that is held; -1: it is not."""
        tag: int = self.unsettled.tags.get(address_of(handle_of(delivery)), -1)
        return tag

    def outcome(self, tag: int, delivery: Delivery) -> None:
        """Take the client's outcome and settle the delivery; `flush` tells it.

        Raises Refusal, before anything is settled.
        """
        state = delivery.remote_state
        if tag in self.overdue:
            self.overdue.discard(tag)
        elif state == Delivery.MODIFIED:
            self._modify(tag, delivery)
        else:  # settled without an outcome: that of the source, released
            self.unsettled.note(int(state) if state in _OUTCOMES else RELEASED, tag)
        del self.unsettled.tags[address_of(handle_of(delivery))]
        self._bounds.unsettled -= 1
        if not delivery.settled:
            delivery.update(state)
        delivery.settle()

    def _modify(self, tag: int, delivery: Delivery) -> None:
        remote = delivery.remote
        given = encoded_value("annotations of modified", deliveries.peer_annotations(delivery))
        annotations, ready_ms = read_annotations(given)
        self.flush()  # outcomes of one consumer stay in their order
        msg_id = tag - self.first_tag
        self._tell(
            commands.Modify(
                self.consumer,
                ((msg_id, msg_id),),
                bool(remote.failed),
                bool(remote.undeliverable),
                annotations,
                ready_ms,
            )
        )

    def flush(self) -> None:
        """Tell the queue the outcomes of this pass."""
        first = self.first_tag
        for outcome, runs in self.unsettled.take_outcomes().items():
            msg_ids = [(begin - first, end - first) for begin, end in sorted(runs)]
            self._tell(_OUTCOMES[outcome](self.consumer, tuple(msg_ids)))

    def give_back(self, msg_ids: Ranges) -> None:
        """Return messages that were not sent to the client."""
        if msg_ids:
            self.flush()
            self._tell(_released(self.consumer, msg_ids))

    def release(self, msg_ids: Ranges) -> None:
        """Release deliveries that the queue has taken back, and wait for the client to settle them.

        msg_ids  ascending
        As AMQP 1.0 has it (2.6.12): a sender that changes an outcome by itself does not settle
        before the receiver does.
        """
        for delivery, tag in self.unsettled.tags.items():
            msg_id = tag - self.first_tag
            at = bisect_right(msg_ids, msg_id, key=_first) - 1
            if at >= 0 and msg_id <= msg_ids[at][1] and tag not in self.overdue:
                self.overdue.add(tag)
                deliveries.tell_outcome(delivery_at(delivery), RELEASED)

    def abort(self) -> None:
        """Take back what was not sent: the client has ended the link.

        Where its session's window is closed, the engine would keep it as long as the connection.
        """
        for delivery in self.unsettled.tags:
            deliveries.abort(delivery_at(delivery))

    def forget(self) -> None:
        """Drop the addresses of all deliveries: their link has ended."""
        self._bounds.unsettled -= len(self)
        self.unsettled.tags.clear()
        self.unsettled.plain = False

    def end(self, *, failed: bool) -> None:
        """Have the queue take back everything that it has not, and forget the consumer.

        failed  it counts as a failed delivery
        """
        if self.consumer and not self.ended:
            self.ended = True
            self.flush()
            self._tell(EndConsumer(self.consumer, failed))
