"""What is shown of a client's connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from warren_broker.clients.connection_events import TEXT_MAX, said_of_itself
from warren_machines.queue.commands import ConsumerId
from warren_raft.runtime.net.stream import Stream
from warren_raft.runtime.net.tls import TlsStream
from warren_wire.admin.connections import PROTOCOL_091, ChannelInfo, ConnectionInfo, ConsumerInfo

PROTOCOL_WORDS: Final = {"0.9.1": PROTOCOL_091, "1.0": "AMQP 1-0"}
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


def connection_info(
    node: str,
    protocol: str,
    socket: tuple[str, Stream],
    login: tuple[str, str, str],
    connected_ms: int,
    spoken: Spoken,
) -> ConnectionInfo | None:
    """Return what is shown of an open connection; None: its socket has just ended.

    socket  the client's address and port, and the stream
    login   user, vhost and SASL mechanism
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
        recv_cnt=stream.reads,
        send_cnt=stream.writes,
        auth_mechanism=login[2],
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
