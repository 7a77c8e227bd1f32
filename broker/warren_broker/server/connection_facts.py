"""What is shown of a client's connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from warren_broker.amqp091.connection import Connection
from warren_broker.amqp091.state import Channel, ChannelConsumer
from warren_broker.management.connection_values import (
    ChannelInfo,
    ConnectionInfo,
    ConsumerInfo,
)
from warren_broker.message_stats import PUBLISH, Row
from warren_broker.queue.commands import ConsumerId, SessionId
from warren_broker.server.client_counts import ChannelCounts, ClientCounts
from warren_broker.server.connection_events import TEXT_MAX, said_of_itself
from warren_raft.runtime.net.stream import Stream
from warren_raft.runtime.net.tls import TlsStream

PROTOCOL_WORDS: Final = {"0.9.1": "AMQP 0-9-1", "1.0": "AMQP 1-0"}
"""RabbitMQ's words for the protocols."""


class Consumed(NamedTuple):
    """A consumer of the connection; channel 0: a link of AMQP 1.0."""

    number: ConsumerId
    channel: int
    queue: str
    tag: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Spoken:
    """What client and node have told each other; timeout_s: of heartbeats, 0: none."""

    client: Mapping[Any, Any]
    channels: int
    channel_max: int
    frame_max: int
    timeout_s: int
    open_channels: tuple[ChannelInfo, ...] = ()
    consumers: tuple[Consumed, ...] = ()


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


def connection_info(
    node: str,
    protocol: str,
    socket: tuple[str, Stream],
    login: tuple[str, str],
    connected_ms: int,
    spoken: Spoken,
) -> ConnectionInfo | None:
    """Return what is shown of an open connection; None: its socket has just ended.

    socket  the client's address and port, and the stream
    login   user and vhost
    """
    peer, stream = socket
    try:
        host, port = stream.sock.getsockname()[:2]
    except OSError:
        return None
    said = said_of_itself(spoken.client)
    tls = stream.description.split(", ") if isinstance(stream, TlsStream) else ["", ""]
    peer_host, _, peer_port = peer.rpartition(":")
    named = str(spoken.client.get("container", "")) if protocol == PROTOCOL_WORDS["1.0"] else ""
    return ConnectionInfo(
        name=f"{peer} -> {host}:{port}",
        node=node,
        user=login[0],
        vhost=login[1],
        protocol=protocol,
        peer_host=peer_host,
        peer_port=int(peer_port) if peer_port.isdigit() else 0,
        host=host,
        port=port,
        ssl=isinstance(stream, TlsStream),
        channels=spoken.channels,
        channel_max=spoken.channel_max,
        frame_max=spoken.frame_max,
        timeout=spoken.timeout_s,
        connected_at=connected_ms,
        recv_oct=stream.bytes_in,
        send_oct=stream.bytes_out,
        user_provided_name=said.get("connection_name", "") or named[:200],
        client_properties=said,
        open_channels=spoken.open_channels,
        ssl_protocol=tls[0],
        ssl_cipher=tls[1],
        container_id=named[:TEXT_MAX],
    )


def consumer_info(of: ConnectionInfo, one: Consumed, timeout_ms: int | None) -> ConsumerInfo:
    """Return what is shown of a consumer of a connection; its queue says whether it is active."""
    return ConsumerInfo(
        queue=one.queue,
        vhost=of.vhost,
        consumer_tag=one.tag,
        ack_required=not one.no_ack,
        exclusive=one.exclusive,
        prefetch_count=one.prefetch,
        consumer_timeout=timeout_ms,
        arguments=one.arguments,
        connection=of.name,
        channel=one.channel,
        node=of.node,
        user=of.user,
        peer_host=of.peer_host,
        peer_port=of.peer_port,
    )
