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
from warren_wire.amqp10.deliveries import ACCEPTED, RECEIVED, REJECTED, RELEASED, Handle
from warren_wire.amqp10.fields import encoded_value
from warren_wire.amqp10.proton import Delivery

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
    by_tag     the deliveries that the client has not settled; `_tags` has their tags, `_bounds`
               counts them with those of the connection's other consumers
    overdue    tags of those that were released because the client held them for too long: they are
               in the queue again
    ended      the queue was told to take back everything
    """

    def __init__(self, consumer: int, first_tag: int, tell: Tell, bounds: ConnectionBounds) -> None:
        self.consumer = consumer
        self.first_tag = first_tag
        self.by_tag: dict[int, Handle] = {}
        self._tags: dict[Handle, int] = {}
        self.overdue: set[int] = set()
        self.ended = False
        self._tell = tell
        self._bounds = bounds
        self._outcomes: dict[_Told, list[tuple[int, int]]] = {}

    def sent(self, tag: int, delivery: Handle) -> None:
        """Note a delivery that was sent."""
        self._bounds.unsettled += 1
        self.by_tag[tag] = delivery
        self._tags[delivery] = tag

    def plain_outcome(self, delivery: Handle) -> bool | None:
        """Take an outcome without fields, and settle the delivery; None: `outcome` is to take it.

        Return whether `flush` is needed.
        """
        state = deliveries.peer_outcome(delivery)
        outcome = _OUTCOMES.get(state)
        if outcome is None or self.overdue:
            return None
        tag = self._tags.pop(delivery, -1)
        if tag < 0:
            return None
        del self.by_tag[tag]
        self._bounds.unsettled -= 1
        if deliveries.is_settled(delivery):
            deliveries.settle(delivery)
        else:
            deliveries.settle_as(delivery, state)
        return self._note(outcome, tag - self.first_tag)

    def says_nothing(self, delivery: Handle) -> bool:
        """Return whether a client has said of a delivery that is held neither outcome nor end.

        Also of one that has been settled, and is named again before that is written: 1. A client
        holds 100,000.  2. It sends dispositions, of which each names all of them.
        """
        if delivery in self._tags:
            state = deliveries.peer_outcome(delivery)
            return state in (0, RECEIVED) and not deliveries.is_settled(delivery)
        return deliveries.is_own(delivery) and not self.overdue

    def tag_of(self, delivery: Delivery) -> int:
        """Return the tag of a delivery that is held; -1: it is not."""
        return self._tags.get(deliveries.handle_of(delivery), -1)

    def outcome(self, tag: int, delivery: Delivery) -> bool:
        """Take the client's outcome and settle the delivery.

        Return whether `flush` is needed. Raises Refusal, before anything is settled.
        """
        state = delivery.remote_state
        noted = False
        if tag in self.overdue:
            self.overdue.discard(tag)
        elif state == Delivery.MODIFIED:
            self._modify(tag, delivery)
        else:  # settled without an outcome: that of the source, released
            noted = self._note(_OUTCOMES.get(int(state), _released), tag - self.first_tag)
        if self.by_tag.pop(tag, None) is not None:
            self._bounds.unsettled -= 1
        self._tags.pop(deliveries.handle_of(delivery), None)
        if not delivery.settled:
            delivery.update(state)
        delivery.settle()
        return noted

    def _note(self, outcome: _Told, msg_id: int) -> bool:
        ranges = self._outcomes.setdefault(outcome, [])
        if ranges and ranges[-1][1] + 1 == msg_id:
            ranges[-1] = (ranges[-1][0], msg_id)
            return False
        ranges.append((msg_id, msg_id))
        return True

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
        for outcome, ranges in self._outcomes.items():
            self._tell(outcome(self.consumer, tuple(sorted(ranges))))
        self._outcomes = {}

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
        for tag, delivery in self.by_tag.items():
            msg_id = tag - self.first_tag
            at = bisect_right(msg_ids, msg_id, key=_first) - 1
            if at >= 0 and msg_id <= msg_ids[at][1] and tag not in self.overdue:
                self.overdue.add(tag)
                deliveries.tell_outcome(delivery, RELEASED)

    def abort(self) -> None:
        """Take back what was not sent: the client has ended the link.

        Where its session's window is closed, the engine would keep it as long as the connection.
        """
        for delivery in self.by_tag.values():
            deliveries.abort(delivery)

    def forget(self) -> None:
        """Drop the handles of all deliveries: their link has ended."""
        self._bounds.unsettled -= len(self.by_tag)
        self.by_tag.clear()
        self._tags.clear()

    def end(self, *, failed: bool) -> None:
        """Have the queue take back everything that it has not, and forget the consumer.

        failed  it counts as a failed delivery
        """
        if self.consumer and not self.ended:
            self.ended = True
            self.flush()
            self._tell(EndConsumer(self.consumer, failed))
