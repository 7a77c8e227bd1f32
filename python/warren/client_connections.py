"""Connections and consumers of clients, as their user or an administrator sees and closes them."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import msgspec

from warren.connection import Connection
from warren_wire.admin.connection_values import ConnectionInfo, ConsumerInfo


class ConnectionCalls:
    """The part of `Admin` for connections and consumers; each raises AccessRefused, Unavailable."""

    connection: Connection

    def connections(self, *, vhost: str = "", user: str = "") -> list[ConnectionInfo]:
        """Connections to all nodes within reach, by name; without the tag `monitoring` one's own.

        vhost, user  only theirs; "": of any
        """
        path = f"/connections?{urlencode({'vhost': vhost, 'user': user})}"
        found = self.connection.request("GET", path)
        return [msgspec.convert(body, ConnectionInfo) for body in found]

    def consumers(self, *, vhost: str = "", queue: str = "") -> list[ConsumerInfo]:
        """Consumers on all nodes within reach, by queue; without the tag `monitoring` one's own.

        vhost  only those in it; "": in any
        queue  of this connection's vhost: all of its consumers; "": of any
        """
        path = f"/consumers?{urlencode({'vhost': vhost, 'queue': queue})}"
        found = self.connection.request("GET", path)
        return [msgspec.convert(body, ConsumerInfo) for body in found]

    def close_connection(self, name: str, reason: str = "") -> None:
        """Close the connection of that name, with a reason that its client is told; NotFound."""
        query = f"?{urlencode({'reason': reason})}" if reason else ""
        self.connection.request("DELETE", f"/connections/{quote(name, safe='')}{query}")
