"""The configuration of a connection: its limits, the properties told to the client."""

from __future__ import annotations

from typing import Final

import msgspec

from warren_wire.amqp091.fitting import HEADER_FRAME_BYTES

BLOCK_BYTES: Final = 32 << 20
"""Largest block of a 1.0 client where single messages are smaller than that."""
COLUMNS_BYTES: Final = 1 << 20
"""More than the header, routes and columns of a block of one message."""
LOGIN_FRAME_BYTES_MAX = 8192
"""Largest frame before the login, as in RabbitMQ: the client is not authenticated yet."""


class ConnectionConfig(msgspec.Struct, frozen=True):
    """Limits of a connection and the node's description of itself.

    frame_max           bytes of the largest frame, at least 4096; 0: no limit
    login_frame_max     the same, before the client has logged in
    channel_max         highest channel number; 0: 65535
    heartbeat_s         heartbeat interval offered to the client, in seconds; 0: none
    message_bytes_max   a larger message closes its channel
    unfinished_bytes_max  bytes of incomplete messages over all channels; more closes the connection
    transaction_bytes_max publishes that wait for tx.commit, over all channels
    consumers_max         over all channels; one more closes the connection
    undelivered_bytes_max deliveries that wait for a client that does not read, see limits.md
    handshake_ms        time allowed from the first byte to connection.open
    closing_ms          time allowed between close and close-ok
    received_bytes_max  what has come on 1.0 and is not read, over all sessions; more ends it
    unsettled_max       deliveries that a 1.0 client has not settled, over all links
    request_bytes_max   one management request
    in_flight_bytes_max blocks passed on and not answered; above it no further one is read
    send_ahead_bytes_max messages fetched, over all links, or written, over all sessions, ahead of
                        the client's reading
    waiting_bytes_max   bytes that wait for the broker's answers; above, `wants_input` is False
    external            user in the client's certificate, for SASL EXTERNAL; None: it is not offered
    anonymous           user and password of clients with SASL ANONYMOUS; None: it is not offered
    """

    frame_max: int = 131_072
    login_frame_max: int = LOGIN_FRAME_BYTES_MAX
    channel_max: int = 2047
    heartbeat_s: int = 60
    message_bytes_max: int = 16 * 1024 * 1024
    unfinished_bytes_max: int = 128 * 1024 * 1024
    transaction_bytes_max: int = 64 * 1024 * 1024
    consumers_max: int = 10_000
    undelivered_bytes_max: int = 64 * 1024 * 1024
    received_bytes_max: int = 256 * 1024 * 1024
    unsettled_max: int = 100_000
    request_bytes_max: int = 4 * 1024 * 1024
    in_flight_bytes_max: int = 32 * 1024 * 1024
    send_ahead_bytes_max: int = 8 * 1024 * 1024
    handshake_ms: int = 10_000
    closing_ms: int = 10_000
    waiting_bytes_max: int = 16 * 1024 * 1024
    product: str = "RabbitMQ"
    version: str = "4.3.0"
    platform: str = "Warren"
    information: str = "Warren, a broker with Raft-replicated queues in Python"
    cluster_name: str = "warren"
    anonymous: tuple[str, str] | None = None
    external: str | None = None

    @property
    def block_bytes_max(self) -> int:
        """Of one block on a link of 1.0; told as its max-message-size."""
        return max(BLOCK_BYTES, self.message_bytes_max + self.frame_max + COLUMNS_BYTES)

    @property
    def properties_bytes_max(self) -> int:
        """Of one message's properties as stored: what a 0.9.1 frame holds."""
        return self.frame_max - HEADER_FRAME_BYTES

    @property
    def properties(self) -> dict[str, str]:
        """What clients of either protocol are told of the node, but its cluster."""
        return {
            "copyright": "The Warren authors",
            "information": self.information,
            "platform": self.platform,
            "product": self.product,
            "version": self.version,
        }

    def for_user(self, external: str | None) -> ConnectionConfig:
        """Return the configuration of a connection with that user in its certificate."""
        return self if external is None else msgspec.structs.replace(self, external=external)

    def __repr__(self) -> str:
        return f"ConnectionConfig(cluster_name={self.cluster_name!r})"
