"""What is shown of a client's connection."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from warren_broker.clients.connection_events import TEXT_MAX, capabilities_of, said_of_itself
from warren_machines.queue.commands import ConsumerId
from warren_raft.runtime.net.stream import Stream
from warren_raft.runtime.net.tls import TlsStream
from warren_wire.admin.connections import PROTOCOL_091, ChannelInfo, ConnectionInfo, ConsumerInfo
from warren_wire.certificate_login import distinguished_name

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
    tls: Mapping[str, Any],
) -> ConnectionInfo | None:
    """Return what is shown of an open connection; None: its socket has just ended.

    socket  the client's address and port, and the stream
    login   user, vhost and SASL mechanism
    tls     see `tls_facts`
    """
    peer, stream = socket
    try:
        host, port = stream.sock.getsockname()[:2]
    except OSError:
        return None
    said = said_of_itself(spoken.client)
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
        container_id=named[:TEXT_MAX],
        send_pend=stream.out_bytes,
        capabilities=capabilities_of(spoken.client),
        **tls,
    )


def tls_facts(stream: Stream) -> dict[str, str]:
    """Return what is shown of a connection's TLS, by the fields of ConnectionInfo."""
    if not isinstance(stream, TlsStream) or not stream.established:
        return {}
    protocol, _, cipher = stream.description.partition(", ")
    facts = {"ssl_protocol": protocol, "ssl_cipher": cipher, **_of_cipher(cipher)}
    certificate = stream.peer_certificate
    if certificate:
        ends = (_utc(certificate[key]) for key in ("notBefore", "notAfter"))
        facts |= {
            "peer_cert_subject": distinguished_name(certificate.get("subject", ())),
            "peer_cert_issuer": distinguished_name(certificate.get("issuer", ())),
            "peer_cert_serial_number": str(certificate["serialNumber"]),
            "peer_cert_validity": " - ".join(ends),
        }
    return facts


def _of_cipher(name: str) -> dict[str, str]:
    """Return what OpenSSL's name of a cipher says of the key exchange and the hash.

    Those of TLS 1.3 (`TLS_AES_256_GCM_SHA384`) go with any key exchange.
    """
    sealed = any(word in name for word in ("GCM", "CCM", "POLY1305"))
    before = re.split("-?(?:AES|CHACHA20|CAMELLIA|ARIA|DES)", name)[0]
    exchange = before.lower().replace("-", "_") or "rsa"
    return {
        "ssl_key_exchange": "any" if name.startswith("TLS_") else exchange,
        "ssl_hash": "aead" if sealed else name.rpartition("-")[2].lower(),
    }


def _utc(when: str) -> str:
    """Return a time of a certificate, as `ssl` gives it, in ISO 8601."""
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(when), UTC).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
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
