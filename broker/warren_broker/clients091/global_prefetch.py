"""A channel-wide prefetch (basic.qos with global): one limit over all consumers of a channel.

A queue knows only limits per consumer. So consumers that join under a channel-wide limit get
explicit credit, shared out here so that what they may still be sent fits under the limit; every one
may always be sent one message while the limit is not reached, or a consumer of an empty queue could
starve the others. What comes beyond the limit (that one message, or deliveries to consumers that
joined before the limit) is held back until acknowledgements make room.
"""

from __future__ import annotations

from warren_broker.clients091.deliveries import hand_out
from warren_broker.clients091.held_back import HELD_BACK_BEYOND
from warren_broker.clients091.state import Channel, ChannelConsumer, ConnectionState
from warren_machines.queue import commands
from warren_machines.queue.commands import ConsumerId, Delivery, MsgIds, SessionId, part_of, rest_of

FREE_WINDOW = 1000
"""Credit of such a consumer after the limit is removed, if it has no prefetch of its own."""


def changed(channel: Channel) -> None:
    """Adjust to a change of the limit, the consumers or the unacknowledged deliveries."""
    if channel.held_back.runs:
        release(channel)
    if channel.shares:
        channel.connection.to_share[channel.session] = channel


def share_out(channels: dict[SessionId, Channel]) -> None:
    """Give out the credit of channels that have changed, once for all that a read has brought.

    A client may acknowledge 10,000 messages in one read, each of which makes room, and have as many
    consumers that share it.
    """
    for channel in channels.values():
        if channel.state == "open" and any(one.explicit for one in channel.consumers.values()):
            _share_out(channel)
    channels.clear()


def release(channel: Channel) -> None:
    """Send held-back deliveries as far as the limit allows."""
    sent = True
    while channel.held_back.runs:
        consumer, delivery, block = channel.held_back.first
        count = delivery.last - delivery.first + 1
        limit = channel.global_prefetch
        room = limit - channel.deliveries.counted if limit else count
        if room <= 0:
            break
        if count > room:
            channel.held_back.shorten_first((consumer, rest_of(delivery, room), block))
            delivery = part_of(delivery, 0, room)
        else:
            channel.held_back.popleft()
        sent = hand_out(consumer, delivery, block) and sent
    if not sent and channel.shares:  # what could not be sent does not use up credit
        channel.connection.to_share[channel.session] = channel


def settled(channel: Channel, number: ConsumerId, msg_ids: MsgIds) -> None:
    """Count deliveries of a consumer as settled."""
    consumer = channel.connection.consumers.get(number)
    if consumer is not None and consumer.explicit:
        consumer.settled += sum(last - first + 1 for first, last in msg_ids)


def crowded(state: ConnectionState, number: ConsumerId, level: int, bytes_max: int) -> bool:
    """Return whether a consumer gets nothing since too much is held back on channels.

    What is held back counts against the connection's bound for the consumers of channels with a
    limit; not for others. One that would be sent its message at once, as its channel has nothing
    held back and room, may have it beyond the bound, or it would wait for the client's
    acknowledgements on another channel.

    level  what waits for the client otherwise
    """
    consumer = state.consumers.get(number)
    if consumer is None or consumer.no_ack or not consumer.channel.global_prefetch:
        return False
    held, channel = state.held_back.size_bytes, consumer.channel
    if held + level < bytes_max:
        return False
    at_once = not channel.held_back.runs and channel.deliveries.counted < channel.global_prefetch
    return not at_once or held >= HELD_BACK_BEYOND * bytes_max


def give_back(consumer: ChannelConsumer, delivery: Delivery) -> None:
    """Return a held-back delivery, which the client has never seen, to its queue."""
    last = delivery.first_msg_id + delivery.last - delivery.first
    held = ((delivery.first_msg_id, last),)
    consumer.channel.request(commands.Return(consumer.number, held, failed=False))


def _share_out(channel: Channel) -> None:
    sharers = [consumer for consumer in channel.consumers.values() if consumer.explicit]
    limit = channel.global_prefetch
    held = sum(delivery.last - delivery.first + 1 for _, delivery, _ in channel.held_back)
    room = limit - channel.deliveries.counted - held if limit else FREE_WINDOW * len(sharers)
    share = max(1, room // len(sharers)) if room > 0 else 0
    for consumer in sharers:
        target = share
        if consumer.prefetch:
            unsettled = consumer.next_msg_id - consumer.settled
            target = min(target, consumer.prefetch - unsettled)
        granted = consumer.granted - consumer.next_msg_id
        # Credit is renewed once half is used: not every acknowledgement is worth a command.
        if target > granted and granted <= target // 2:
            consumer.granted = consumer.next_msg_id + target
            channel.request(commands.Credit(consumer.number, consumer.next_msg_id, target))
