"""The log lines about one client's connection.

Levels are RabbitMQ's: a connection that opens or ends is INFO, a client that disconnects without a
close WARNING, a refused login or an error of a channel, a link or the connection ERROR.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from warren_wire.errors import Refusal
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)


class ConnectionLog:
    """One connection's log lines; every value from the client is quoted.

    Invariant: `ended` or `lost` writes one line, the first time one of them is called.
    """

    __slots__ = ("_container", "_ended", "_opened", "_peer", "_protocol", "_user", "_vhost")

    def __init__(self, protocol: str, peer: str) -> None:
        self._protocol = protocol
        self._peer = peer
        self._user = ""
        self._vhost = ""
        self._container: object = ""
        self._opened = False
        self._ended = False
        log.debug("accepting AMQP %s connection %s", protocol, peer)

    def opened(self, user: str, vhost: str, client: Mapping[Any, Any], name: Any = None) -> None:
        """Log that the user is authenticated and may use the vhost.

        client  the client library's description: product, version
        name    the connection's name, given by the client
        """
        self._user, self._vhost, self._opened = user, vhost, True
        self._container = client.get("container", "")
        log.info(
            "connection %s (AMQP %s): user %s authenticated and granted access to vhost %s; "
            "client %s %s, name %s",
            self._peer,
            self._protocol,
            quoted(user),
            quoted(vhost),
            quoted(client.get("product", "")),
            quoted(client.get("version", "")),
            quoted(client.get("connection_name", "") if name is None else name),
        )

    def login_refused(self, user: str, mechanism: str, why: str) -> None:
        """Log wrong credentials, or a user that may not connect from there."""
        log.error(
            "connection %s (AMQP %s): login refused: user %s, mechanism %s: %s",
            self._peer,
            self._protocol,
            quoted(user),
            quoted(mechanism),
            why,
        )

    def failed(self, where: str, operation: str, refusal: Refusal) -> None:
        """Log a refused operation.

        where  what it closes: "channel 1", "link 'x'", "the connection"; quoted already
        """
        log.error(
            "connection %s (AMQP %s, user %s, vhost %s): %s: operation %s caused %s: %s",
            self._peer,
            self._protocol,
            quoted(self._user),
            quoted(self._vhost),
            where,
            operation or "none",
            refusal.word,
            quoted(refusal.detail, 1000),
        )

    def consumer_timed_out(
        self, consumer: str, channel: int, queue: str, timeout_ms: int | None
    ) -> None:
        """Log that messages of a consumer went back to the queue: they were held for too long."""
        log.warning(
            "connection %s (AMQP %s, user %s, vhost %s): consumer %s on channel %d has timed out: "
            "deliveries of queue %s, not acknowledged in time (timeout used: %s ms), return to the "
            "queue",
            self._peer,
            self._protocol,
            quoted(self._user),
            quoted(self._vhost),
            quoted(consumer),
            channel,
            quoted(queue),
            "unknown" if timeout_ms is None else timeout_ms,
        )

    def link_timed_out(self, link: str, queue: str, timeout_ms: int | None, first: bool) -> None:
        """Log that deliveries of a link were released: they were held for too long.

        first  on this link: later ones are not worth a warning
        """
        log.log(
            logging.WARNING if first else logging.DEBUG,
            "connection %s (AMQP %s, user %s, vhost %s): link %s of container %s has timed out: "
            "deliveries of queue %s, not settled in time (timeout used: %s ms), are released; the "
            "link gets no others before the client settles them",
            self._peer,
            self._protocol,
            quoted(self._user),
            quoted(self._vhost),
            quoted(link),
            quoted(self._container),
            quoted(queue),
            "unknown" if timeout_ms is None else timeout_ms,
        )

    def ended(self, reason: str) -> None:
        """Log a connection that was closed by the protocol's close, or by this node."""
        self._end(logging.INFO if self._opened else logging.WARNING, "closed", reason)

    def lost(self, error: Exception | None) -> None:
        """Log a socket that was closed without the protocol's close."""
        if not self._opened and (error is None or isinstance(error, ConnectionError)):
            # A port check; whether it ends with a reset depends on what it had not read yet.
            self._end(logging.INFO, "ended before it was opened", "the client closed it")
            return
        reason = "the client closed the TCP connection" if error is None else repr(error)
        self._end(logging.WARNING, "ended unexpectedly", reason)

    def _end(self, level: int, how: str, reason: str) -> None:
        if self._ended:
            return
        self._ended = True
        log.log(
            level,
            "connection %s (AMQP %s, user %s, vhost %s) %s: %s",
            self._peer,
            self._protocol,
            quoted(self._user),
            quoted(self._vhost),
            how,
            quoted(reason),
        )
