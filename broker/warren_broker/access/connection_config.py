"""The configuration of a connection: its limits, the properties told to the client."""

from __future__ import annotations

import msgspec

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
    undelivered_bytes_max deliveries that wait for a client that does not read, see docs/limits.md
    handshake_ms        time allowed from the first byte to connection.open
    closing_ms          time allowed between close and close-ok
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
