"""The log exchange: the lines of this node's log, as messages, best effort (`node_messages`).

Lines come from any thread and are published by the loop's, so that none waits for it. A line that
is logged because a line is published is not published, or one would lead to the next without end:
what this thread logs while it publishes, and what is said about lines that are dropped.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final, NamedTuple

from warren_broker.cluster.client.node_messages import BestEffort, OwnExchange
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.definitions import Definitions
from warren_broker.config import NodeConfig
from warren_raft.runtime.loop import Loop
from warren_wire.amqp091 import properties

log = logging.getLogger(__name__)
LOG_EXCHANGE: Final = "amq.rabbitmq.log"
CONTENT_TYPE: Final = "text/plain"
WAITING_LINES_MAX: Final = 1_000
"""Lines that wait for the loop's thread."""
LINE_BYTES_MAX: Final = 16 << 10
"""Bytes of a line; the rest is cut off."""


class LogLine(NamedTuple):
    """A line of the log; at_s: seconds since the epoch."""

    level: str
    text: str
    at_s: int


class LogExchange:
    """Publishes lines to an internal topic exchange, by their level.

    on        False: the exchange is not configured, and nothing is done
    exchange  None: the same
    """

    def __init__(
        self, loop: Loop, definitions: Definitions, publishing: Publisher, settings: NodeConfig
    ) -> None:
        self.on = settings.log.exchange.on
        self.publisher = BestEffort(loop, publishing, "lines of the log", log)
        self._loop = loop
        self._node = settings.node
        self._lock = threading.Lock()
        self._lines: deque[LogLine] = deque()
        self._dropped = 0
        self.exchange: OwnExchange | None = None
        if self.on:
            self.exchange = OwnExchange(
                loop, definitions, self.publisher, settings.default_vhost, LOG_EXCHANGE
            )

    def takes(self, logger: str) -> bool:
        """Return whether a line that this thread logs by that logger is published."""
        exchange = self.exchange
        if exchange is None or logger == log.name:
            return False
        return exchange.publishing != threading.get_ident()

    def tell(self, line: LogLine) -> None:
        """Publish a line soon; may be called by any thread."""
        with self._lock:
            if len(self._lines) >= WAITING_LINES_MAX:
                self._dropped += 1
                return
            self._lines.append(line)
            if len(self._lines) > 1:
                return
        self._loop.post(self._publish)

    def _publish(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, deque()
            dropped, self._dropped = self._dropped, 0
        if dropped:
            self.publisher.drop(dropped, f"{WAITING_LINES_MAX} wait already")
        assert self.exchange is not None
        for line in lines:
            written = properties.encode(
                properties.Properties(
                    content_type=CONTENT_TYPE, headers={"node": self._node}, timestamp=line.at_s
                )
            )
            body = f"{line.text}\n".encode("utf-8", "surrogateescape")
            if len(body) > LINE_BYTES_MAX:
                body = body[: LINE_BYTES_MAX - 1] + b"\n"
            self.exchange.put(line.level, written, body)
