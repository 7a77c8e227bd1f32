"""Bugs in what is on its way to consumers on other nodes, to plant in whole nodes; see `plants`."""

from __future__ import annotations

from typing import Any

from sim.planting import Replacement, by_name
from warren_broker.cluster.client.queue_client import GroupClient, LocalConsumer
from warren_broker.cluster.client.read_ahead import MSG_ID_MAX, ReadAhead
from warren_broker.cluster.remote_deliveries import DeliveryWindows, RemoteDeliveries
from warren_machines.queue import ack
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import Return
from warren_machines.queue.ready.ranges import COUNT_MASK


def what_was_taken_is_not_reported() -> list[Replacement]:
    """The window to another node is used up once, for good."""
    return [(RemoteDeliveries, "_on_delivered", RemoteDeliveries._take)]


def what_waits_is_forgotten() -> list[Replacement]:
    """What does not fit into the window is not sent later."""
    send = DeliveryWindows._send_piece

    def once(self: DeliveryWindows, node: str, window: Any, key: Any, lane: Any) -> bool:
        sent = send(self, node, window, key, lane)
        lane.clear()
        return sent

    return [(DeliveryWindows, "_send_piece", once)]


def what_is_read_ahead_is_sent_at_once() -> list[Replacement]:
    """A consumer's node sends what is beyond its prefetch."""

    def sent(self: ReadAhead) -> Any:
        self.strict_from = 0
        return next_run(self)

    next_run = ReadAhead.next_run
    return [(ReadAhead, "next_run", sent)]


def what_was_sent_goes_back_uncounted() -> list[Replacement]:
    """With what was not sent, all that the consumer holds goes back."""

    def everything(self: GroupClient, local: LocalConsumer, on_reply: Any = None) -> None:
        if local.ahead is not None:
            local.ahead.take_back()
        ids = ((0, MSG_ID_MAX),)
        self.command(Return(local.consumer, ids, failed=False, unseen=True), on_reply)

    return [(GroupClient, "_return_unsent", everything)]


def what_is_on_its_way_is_not_recalled() -> list[Replacement]:
    """Messages given after those that go back are sent before them."""
    recall = GroupClient._recall

    def hasty(self: GroupClient, local: LocalConsumer, ahead: ReadAhead) -> None:
        recall(self, local, ahead)
        ahead.recalled = False

    return [(GroupClient, "_recall", hasty)]


def what_was_not_sent_counts() -> list[Replacement]:
    """The queue does not know which consumer it gives messages to."""
    return [(QueueContext, "taken_by", lambda self, key: None)]


def it_does_not_count_though_others_were_served() -> list[Replacement]:
    """A consumer gets an older message after a newer one, as if for the first time."""
    taken_by = QueueContext.taken_by

    def first_of_all(self: QueueContext, key: Any) -> None:
        self.state.taker = None
        taken_by(self, key)

    def uncounted(context: Any, run: Any) -> None:
        index, first, last, failed, acquired = run
        put_back(context, (index, first, last, failed, acquired & ~COUNT_MASK))

    put_back = ack.put_back_unsent
    return [(QueueContext, "taken_by", first_of_all), (ack, "put_back_unsent", uncounted)]


PLANTS = by_name(
    what_was_taken_is_not_reported,
    what_waits_is_forgotten,
    what_is_read_ahead_is_sent_at_once,
    what_was_sent_goes_back_uncounted,
    what_is_on_its_way_is_not_recalled,
    what_was_not_sent_counts,
    it_does_not_count_though_others_were_served,
)
