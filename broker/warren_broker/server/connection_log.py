"""What an operator reads in the log about one client's connection.

Levels are RabbitMQ's: a connection that opens or ends is INFO, a client that goes without a word
WARNING, a refused login or an error of a channel, a link or the connection ERROR.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from warren_broker.errors import Refusal
from warren_raft.quoting import quoted

log = logging.getLogger(__name__)


class ConnectionLog:
    """One connection's lines; everything that the client said is quoted.

    Invariant: `ended` or `lost` writes one line, the first time one of them is called.
    """

    __slots__ = ("_ended", "_opened", "_peer", "_protocol", "_user", "_vhost")

    def __init__(self, protocol: str, peer: str) -> None:
        self._protocol = protocol
        self._peer = peer
        self._user = ""
        self._vhost = ""
        self._opened = False
        self._ended = False
        log.debug("accepting AMQP %s connection %s", protocol, peer)

    def opened(self, user: str, vhost: str, client: Mapping[Any, Any], name: Any = None) -> None:
        """The user is authenticated and may use the vhost.

        client  what the client's library says of itself: product, version
        name    what its program calls the connection
        """
        self._user, self._vhost, self._opened = user, vhost, True
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
        """Wrong credentials, or a user without permission to connect from there."""
        log.error(
            "connection %s (AMQP %s): login refused: user %s, mechanism %s: %s",
            self._peer,
            self._protocol,
            quoted(user),
            quoted(mechanism),
            why,
        )

    def failed(self, where: str, operation: str, refusal: Refusal) -> None:
        """The client did what is refused.

        where  what ends with it: "channel 1", "link 'x'", "the connection"; quoted already
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

    def ended(self, reason: str) -> None:
        """It was closed as the protocol has it, or given up by this node."""
        self._end(logging.INFO if self._opened else logging.WARNING, "closed", reason)

    def lost(self, error: Exception | None) -> None:
        """The socket was closed without a close of the protocol."""
        if not self._opened and error is None:
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
