"""Deliveries: assigns delivery tags, records them for acknowledgement, writes frames.

A message that cannot be sent to this client must neither close its connection nor block the queue:
it is settled here on behalf of the consumer, and the messages around it are sent.
"""

from __future__ import annotations

from typing import Any

from warren_broker.access import requests
from warren_broker.clients091.state import Channel, ChannelConsumer
from warren_machines.queue import commands
from warren_machines.queue.commands import ConsumerId, Delivery, part_of, rest_of
from warren_wire import relay_names
from warren_wire.kernel import Unsendable, format_deliveries, format_get_ok, format_large

UNSENDABLE_TRIES_MAX = 20
"""Failed deliveries after which a message that fits into no client's frames is discarded."""
VIEWED_BYTES_MIN = 64 << 10
"""Bodies of that mean size, in frames that large, are sent as views of their block."""
REPLACED = "its properties are malformed; the client is sent x-unreadable-properties in their place"


def count_headers(delivery: Delivery) -> dict[str, int] | None:
    """Return the headers with a message's redelivery counts, and the name that a relay is told.

    None: at its first delivery, to another consumer.
    """
    if not (delivery.acquired_count or delivery.delivery_count or delivery.number):
        return None
    headers = {}
    if delivery.number:
        headers[relay_names.ORIGIN] = delivery.origin
        headers[relay_names.NUMBER] = delivery.number
    if delivery.acquired_count:
        headers["x-acquired-count"] = delivery.acquired_count
    if delivery.delivery_count:
        headers["x-delivery-count"] = delivery.delivery_count
    return headers


def hand_out(consumer: ChannelConsumer, delivery: Delivery, block: object) -> bool:
    """Number the run and write it, except for messages that cannot be sent to this client.

    returns  False: some could not be sent
    """
    if delivery.number and delivery.first < delivery.last:  # each has a name of its own
        whole = True
        for k in range(delivery.last - delivery.first + 1):
            whole &= hand_out(consumer, part_of(delivery, k, k + 1), block)
        return whole
    sent = True
    while True:
        try:
            _write(consumer, delivery, block)
            return sent
        except Unsendable as found:
            at, reason, elsewhere = found.ordinal - delivery.first, str(found), found.elsewhere
        if at:
            _write(consumer, part_of(delivery, 0, at), block)
        set_aside(
            consumer.channel,
            consumer.number,
            part_of(delivery, at, at + 1),
            reason,
            elsewhere,
            consumer.no_ack,
        )
        sent = False
        if consumer.explicit:
            consumer.settled += 1
        if consumer.no_ack:
            consumer.unreported += 1
            consumer.channel.connection.delivered_no_ack(consumer)
        if delivery.first + at == delivery.last:
            return sent
        delivery = rest_of(delivery, at + 1)


def as_views(block: Any, first: int, last: int, frame_max: int) -> bool:
    """Return whether bodies first <= i < last are sent as views of the block, not copied.

    A view costs as much as copying some 40 KB, for each frame. It keeps the block in memory until
    it is sent, so the range must be half of the block: a client that reads slowly then holds at
    most twice what is counted as waiting for it.
    """
    size = int(block.body_offsets[last]) - int(block.body_offsets[first])
    large = size >= VIEWED_BYTES_MIN * (last - first) and frame_max - 8 >= VIEWED_BYTES_MIN
    return large and 2 * size >= len(block.buffer)


def _write(consumer: ChannelConsumer, delivery: Delivery, block: Any) -> None:
    channel = consumer.channel
    connection = channel.connection
    count = delivery.last - delivery.first + 1
    headers = count_headers(delivery)
    span = (
        block,
        delivery.first,
        delivery.last + 1,
        channel.number,
        consumer.tag,
        channel.deliveries.next_tag,
        delivery.acquired_count > 0,
        connection.frame_max,
        headers,
    )
    if as_views(block, delivery.first, delivery.last + 1, connection.frame_max):
        pieces: list[bytes | memoryview] = []
        replaced = format_large(pieces, *span)
        size_bytes = connection.send_pieces(pieces)
    else:
        before = len(connection.out)
        replaced = format_deliveries(connection.out, *span)
        size_bytes = len(connection.out) - before
    channel.deliveries.delivered(
        consumer.number, delivery.first_msg_id, count, keep=not consumer.no_ack
    )
    if connection.vhost in connection.traced_vhosts:
        _trace(channel, consumer.queue, delivery, block, headers)
    for ordinal in replaced:
        _note(channel, consumer.number, delivery, ordinal, REPLACED)
    if consumer.no_ack:
        consumer.unreported += count
        consumer.unreported_bytes += size_bytes
        connection.delivered_no_ack(consumer)


def answer_get(
    channel: Channel, number: ConsumerId, queue: str, result: requests.GotMessage, no_ack: bool
) -> bool:
    """Write basic.get-ok with the message; return False if it cannot be sent to this client."""
    delivery, connection = result.delivery, channel.connection
    headers = count_headers(delivery)
    try:
        replaced = format_get_ok(
            connection.out,
            result.block,
            delivery.first,
            channel.number,
            channel.deliveries.next_tag,
            delivery.acquired_count > 0,
            result.messages_ready,
            connection.frame_max,
            headers,
        )
    except Unsendable as found:
        set_aside(channel, number, delivery, str(found), found.elsewhere, no_ack)
        return False
    channel.deliveries.delivered(number, delivery.first_msg_id, 1, keep=not no_ack, counted=False)
    if connection.vhost in connection.traced_vhosts:
        _trace(channel, queue, delivery, result.block, headers)
    for ordinal in replaced:
        _note(channel, number, delivery, ordinal, REPLACED)
    return True


def _trace(
    channel: Channel, queue: str, delivery: Delivery, block: Any, headers: dict[str, int] | None
) -> None:
    channel.request(
        requests.TraceRequest(
            channel=channel.number,
            queue=queue,
            messages=block,
            first=delivery.first,
            last=delivery.last + 1,
            redelivered=delivery.acquired_count > 0,
            headers=headers,
        )
    )


def set_aside(
    channel: Channel,
    number: ConsumerId,
    delivery: Delivery,
    reason: str,
    elsewhere: bool,
    no_ack: bool,
) -> None:
    """Settle one message that could not be sent, as if the consumer had rejected it.

    elsewhere  another client may be able to take it: it is returned as a failed delivery, as if the
               client had closed its connection over it, UNSENDABLE_TRIES_MAX times at most
               (the queue's delivery limit may be lower). Else it is dead-lettered or dropped
    """
    _note(channel, number, delivery, delivery.first, reason)
    if no_ack:
        return  # the queue has settled it already
    msg_ids = ((delivery.first_msg_id, delivery.first_msg_id),)
    if elsewhere and delivery.delivery_count < UNSENDABLE_TRIES_MAX:
        channel.request(commands.Return(number, msg_ids, failed=True))
    else:
        channel.request(commands.Discard(number, msg_ids, failed=True))


def _note(
    channel: Channel, number: ConsumerId, delivery: Delivery, ordinal: int, reason: str
) -> None:
    channel.request(
        requests.SetAsideRequest(
            consumer=number,
            index=delivery.index,
            msg_id=delivery.first_msg_id + ordinal - delivery.first,
            reason=reason,
        )
    )
