"""What is shown of the channels of an AMQP 0.9.1 connection."""

from __future__ import annotations

from warren_broker.clients.client_counts import ChannelCounts, ClientCounts
from warren_broker.clients.connection_facts import Consumed, Spoken
from warren_broker.clients091.connection import Connection
from warren_broker.clients091.state import Channel, ChannelConsumer
from warren_broker.counting.message_stats import PUBLISH, Row
from warren_machines.queue.commands import SessionId
from warren_wire.admin.connections import ChannelInfo


def spoken_091(session: Connection, counts: ClientCounts, channels: bool) -> Spoken:
    """Return what was said on an AMQP 0.9.1 connection.

    channels  with its open channels and its consumers
    """
    state = session.state
    return Spoken(
        state.client_properties,
        state.channels_open(),
        state.channel_max,
        state.frame_max,
        session.heartbeat_ms // 1000,
        tuple(
            _channel_info(state.channels[number], counts)
            for number in sorted(state.channels)
            if channels and state.channels[number].state in ("new", "open")
        ),
        tuple(map(_consumed, state.consumers.values())) if channels else (),
    )


def _consumed(one: ChannelConsumer) -> Consumed:
    return Consumed(
        one.number,
        one.channel.number,
        one.queue,
        one.tag,
        one.no_ack,
        one.exclusive,
        one.prefetch,
        one.asked.shown(),
    )


def _channel_info(channel: Channel, counts: ClientCounts) -> ChannelInfo:
    counted = counts.of_channel(channel.session) or ChannelCounts()
    return ChannelInfo(
        channel.number,
        channel.prefetch,
        channel.global_prefetch,
        len(channel.deliveries),
        channel.tx is not None,
        channel.confirm,
        tuple(sorted((one.tag, one.queue) for one in channel.consumers.values())),
        channel.session,
        counted.total[PUBLISH],
        channel.confirmed,
        channel.returned,
        tuple(sorted((name, tuple(row)) for (_, name), row in counted.rows.items())),
        counted.dropped,
        messages_unconfirmed=channel.publishes.unconfirmed if channel.confirm else 0,
        messages_uncommitted=sum(one.last - one.first for one in channel.tx.publishes)
        if channel.tx is not None
        else 0,
        acks_uncommitted=len(channel.tx.acks) if channel.tx is not None else 0,
    )


def channels_counted(session: Connection, counts: ClientCounts) -> list[tuple[SessionId, Row]]:
    """Return the sessions of an AMQP 0.9.1 connection's channels, and what each has counted."""
    return [
        (one.session, counts.row_of(one.session, one.confirmed, one.returned))
        for one in session.state.channels.values()
    ]
