"""The numbers and names that a node gives out."""

from __future__ import annotations

import base64
import os

NAME_RANDOM_BYTES = 16


class Ids:
    """The numbers and names given out by this node; no two are equal."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._sessions = 0
        self._consumers = 0
        self._connections = 0

    def connection(self) -> int:
        """Return the number of a new connection, from 1."""
        self._connections += 1
        return self._connections

    def session(self) -> int:
        """Return the number of a new session."""
        self._sessions += 1
        return self._sessions

    def consumer(self) -> int:
        """Return the number of a new consumer."""
        self._consumers += 1
        return self._consumers

    def name(self, prefix: str) -> str:
        """Return `prefix` with 22 random characters."""
        drawn = base64.urlsafe_b64encode(os.urandom(NAME_RANDOM_BYTES)).decode().rstrip("=")
        return prefix + drawn

    def reply_name(self) -> str:
        """Return the name of a reply queue; it contains the name of its node."""
        node = base64.urlsafe_b64encode(self._node.encode()).decode().rstrip("=")
        return self.name("amq.rabbitmq.reply-to.") + "." + node
