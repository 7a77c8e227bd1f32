"""Deliveries as frames: numbered, kept for their acknowledgement, written out."""

from __future__ import annotations

from typing import Any

from warren_broker.kernel import format_deliveries
from warren_broker.queue.commands import Delivery
from warren_broker.session.channel import Consumer


def count_headers(delivery: Delivery) -> dict[str, int] | None:
    """The headers that tell how often a message came before; None on its first time."""
    if not delivery.acquired_count and not delivery.delivery_count:
        return None
    headers = {}
    if delivery.acquired_count:
        headers["x-acquired-count"] = delivery.acquired_count
    if delivery.delivery_count:
        headers["x-delivery-count"] = delivery.delivery_count
    return headers


def hand_out(consumer: Consumer, delivery: Delivery, block: Any) -> None:
    """Number the run and write it out."""
    channel = consumer.channel
    connection = channel.connection
    count = delivery.last - delivery.first + 1
    tag = channel.deliveries.delivered(consumer.number, consumer.queue, delivery.first_msg_id,
                                       count, keep=not consumer.no_ack)
    before = len(connection.out)
    format_deliveries(connection.out, block, delivery.first, delivery.last + 1, channel.number,
                      consumer.tag, tag, delivery.acquired_count > 0, connection.frame_max,
                      count_headers(delivery))
    if consumer.no_ack:
        consumer.unreported += count
        consumer.unreported_bytes += len(connection.out) - before
        connection.delivered_no_ack(consumer)
