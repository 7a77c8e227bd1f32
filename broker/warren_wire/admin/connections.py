"""Clients' connections with their channels and consumers, and the requests for them.

A user sees its own, with the tag `monitoring` all of them, and of a queue that it names all
consumers; it closes its own connections, with the tag `administrator` any.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

import msgspec

from warren_wire.admin.requests import AdminRequest, Name, Text, route
from warren_wire.admin.statistics import NodeSamples
from warren_wire.errors import InvalidArgument

CLOSING_REASON: Final = "Closed via management plugin"
"""RabbitMQ's words, which its clients' suites compare."""
CLOSING_REASON_CHARACTERS_MAX: Final = 200

PROTOCOL_091: Final = "AMQP 0-9-1"
"""RabbitMQ's word for the protocol."""


class ChannelInfo(msgspec.Struct, frozen=True):
    """An open channel of AMQP 0.9.1.

    prefetch_count         of each consumer that is begun next
    global_prefetch_count  of the channel
    transactional, confirm  its mode
    consumers              tag and queue of each, sorted
    session                differs from another channel's with this number
    published, confirmed, returned  messages of the client; confirmed, or returned, to it
    deliveries             queue, and what it was given from there (`message_stats.COUNTED`)
    dropped                messages of the client for no queue, of which it was not told
    rates                  per second, of `message_stats.CHANNEL_COUNTED`; empty: not known
    samples                of these, where they were asked for
    messages_unconfirmed   of the client; messages_uncommitted, acks_uncommitted: until tx.commit
    changed_ms             the last change of its counts that was seen, since the epoch; 0: none
    """

    number: int
    prefetch_count: int
    global_prefetch_count: int
    messages_unacknowledged: int
    transactional: bool
    confirm: bool
    consumers: tuple[tuple[str, str], ...] = ()
    session: int = 0
    published: int = 0
    confirmed: int = 0
    returned: int = 0
    deliveries: tuple[tuple[str, tuple[int, ...]], ...] = ()
    dropped: int = 0
    rates: tuple[float, ...] = ()
    samples: NodeSamples | None = None
    messages_unconfirmed: int = 0
    messages_uncommitted: int = 0
    acks_uncommitted: int = 0
    changed_ms: int = 0


class ConnectionInfo(msgspec.Struct, frozen=True):
    """An open connection of a client.

    name          `peer -> node`, each an address and a port; unique in the cluster
    protocol      RabbitMQ's word
    channels      that are open; of AMQP 1.0 its sessions
    channel_max   the highest number of one; frame_max: bytes that the client takes in one
    timeout       seconds of the heartbeat, or of the idle time; 0: none
    connected_at  milliseconds since the epoch
    recv_oct, send_oct  bytes from the client and to it
    recv_cnt, send_cnt  reads and writes of the socket that have moved them
    auth_mechanism      of SASL, with which the user has logged in
    client_properties   what the client says of itself: product, version and the like
    container_id        of AMQP 1.0, as the client names it; "" of AMQP 0.9.1
    open_channels       where they were asked for, by number
    rates               per second, of `message_stats.OCTETS`; empty: not known
    samples             of these, where they were asked for
    ssl_protocol, ssl_cipher, ssl_key_exchange, ssl_hash  of a connection with TLS; "": it has none
    peer_cert_subject, peer_cert_issuer, peer_cert_serial_number, peer_cert_validity
                        of the client's verified certificate; "": it gave none
    send_pend           bytes that wait until the client reads
    capabilities        what the client says it understands
    """

    name: str
    node: str
    user: str
    vhost: str
    protocol: str
    peer_host: str
    peer_port: int
    host: str
    port: int
    ssl: bool
    channels: int
    channel_max: int
    frame_max: int
    timeout: int
    connected_at: int
    recv_oct: int
    send_oct: int
    user_provided_name: str = ""
    client_properties: dict[str, str] = {}
    open_channels: tuple[ChannelInfo, ...] = ()
    rates: tuple[float, ...] = ()
    samples: NodeSamples | None = None
    ssl_protocol: str = ""
    ssl_cipher: str = ""
    container_id: str = ""
    auth_mechanism: str = ""
    recv_cnt: int = 0
    send_cnt: int = 0
    ssl_key_exchange: str = ""
    ssl_hash: str = ""
    peer_cert_subject: str = ""
    peer_cert_issuer: str = ""
    peer_cert_serial_number: str = ""
    peer_cert_validity: str = ""
    send_pend: int = 0
    capabilities: dict[str, bool] = {}


UP, SINGLE_ACTIVE, WAITING = "up", "single_active", "waiting"
"""RabbitMQ's words for a consumer's activity: the last two are of a single active consumer's queue.
"""


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer of a queue; keys that RabbitMQ has are called as there.

    channel           its number; 0: a link of AMQP 1.0
    consumer_tag      of AMQP 1.0: the link's name
    consumer_timeout  milliseconds for which it may hold a message; None: for ever
    arguments         those that have an effect
    connection        its name; peer_host, peer_port: of its client
    """

    queue: str
    vhost: str
    consumer_tag: str
    ack_required: bool
    exclusive: bool
    prefetch_count: int
    consumer_timeout: int | None
    arguments: dict[str, Any]
    connection: str
    channel: int
    node: str
    user: str
    peer_host: str
    peer_port: int
    active: bool = True
    activity_status: str = UP


class ListConnectionsRequest(AdminRequest[list[ConnectionInfo]], frozen=True):
    """Return connections to all nodes within reach, by name; without `monitoring` one's own.

    Answer: Listed (ConnectionInfo).

    vhost, user, name  only theirs; "": of any
    channels           whether the open channels are shown, too
    samples            whether with those that were kept; of one that is named
    """

    ROUTES: ClassVar = (route("GET /connections", "management"),)
    vhost: Text = ""
    user: Text = ""
    name: Text = ""
    channels: bool = False
    samples: bool = False

    def checked(self) -> Self:
        """See the base class."""
        return msgspec.structs.replace(self, samples=self.samples and bool(self.name))


class ListConsumersRequest(AdminRequest[list[ConsumerInfo]], frozen=True):
    """Return consumers on all nodes within reach, by queue; 404. Answer: Listed (ConsumerInfo).

    vhost       only those in it; "": in any, unless a queue is given
    queue       of the connection's vhost, whatever the users of its consumers; "": of any
    connection  only those of the one with this name; "": of any
    """

    ROUTES: ClassVar = (route("GET /consumers", "management"),)
    vhost: Text = ""
    queue: Text = ""
    connection: Text = ""


class EndConnectionRequest(AdminRequest[None], frozen=True, rename={"name": "connection"}):
    """Close a connection; its client is told the reason, and may connect again; 404.

    Answer: Performed.

    name    as the list shows it: CLIENT -> NODE, each with its port
    reason  that the client is told
    """

    ROUTES: ClassVar = (route("DELETE /connections/:connection", "management"),)
    name: Name
    reason: Text = ""

    def checked(self) -> Self:
        """See the base class."""
        reason = self.reason or CLOSING_REASON
        if len(reason) > CLOSING_REASON_CHARACTERS_MAX:
            raise InvalidArgument(
                f"a reason of {len(reason)} characters; {CLOSING_REASON_CHARACTERS_MAX} is the "
                "limit"
            )
        return msgspec.structs.replace(self, reason=reason)
