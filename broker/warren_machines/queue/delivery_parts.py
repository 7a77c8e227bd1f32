"""Parts of a run of messages that a queue delivers to one consumer."""

from __future__ import annotations

from warren_machines.queue.commands import Delivery


def part_of(delivery: Delivery, start: int, end: int) -> Delivery:
    """Return messages start <= k < end of a run, counted from its first."""
    return Delivery(
        delivery.first_msg_id + start,
        delivery.index,
        delivery.first + start,
        delivery.first + end - 1,
        delivery.delivery_count,
        delivery.acquired_count,
        delivery.annotations,
        delivery.origin,
        delivery.number + start if delivery.number else 0,
    )


def rest_of(delivery: Delivery, start: int) -> Delivery:
    """Return the run without its first `start` messages; all of it when that is not above 0.

    The result has first > last when the run has no more messages than that.
    """
    if start <= 0:
        return delivery
    return part_of(delivery, start, delivery.last - delivery.first + 1)
