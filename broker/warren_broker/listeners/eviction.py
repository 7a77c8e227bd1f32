"""Disconnection of clients after their user or vhost was deleted."""

from __future__ import annotations

from warren_broker.cluster.definitions import Definitions
from warren_broker.listeners.listener import AmqpListener, Client
from warren_raft.runtime.loop import Loop

LEAVING_DELAY_MS = 1_000
"""Delay from the deletion to the disconnect, so that the answer to the request is sent first: the
client that made it may be affected, too. These clients are permitted nothing in between."""


class ClientEviction:
    """The disconnection of clients of deleted users and vhosts, as in RabbitMQ.

    Invariant: at most one timer is scheduled, exactly while `_leaving` is not empty.
    """

    def __init__(self, loop: Loop, definitions: Definitions, listener: AmqpListener) -> None:
        self._loop = loop
        self._definitions = definitions
        self._listener = listener
        self._leaving: dict[Client, str] = {}
        definitions.on_access.append(self.deleted)

    def deleted(self, users: tuple[str, ...], vhosts: tuple[str, ...]) -> None:
        """Handle deleted users and vhosts, or those that a restored snapshot no longer has.

        Users of the same name with another password hash are among the deleted ones then.
        """
        # Selected now, not at the disconnect: 1. A user is deleted.  2. One of that name is added.
        # 3. A client of the new user connects: it stays, the first user's are disconnected, also
        # those that have logged in and not opened a vhost yet.
        state = self._definitions.state
        waiting = bool(self._leaving)
        for connection in self._listener.connections:
            client = connection.client
            if client is None or client.logged_in is None:
                continue
            user, vhost = client.logged_in
            gone = user in users or user not in state.users
            if gone and not client.by_token:
                self._leaving.setdefault(client, f"user '{user}' is deleted")
            elif vhost and (vhost in vhosts or vhost not in state.scopes):
                self._leaving.setdefault(client, f"vhost '{vhost}' is deleted")
        if self._leaving and not waiting:
            self._loop.call_later(LEAVING_DELAY_MS, self._send_away)

    def _send_away(self) -> None:
        leaving, self._leaving = self._leaving, {}
        for client, reason in leaving.items():
            client.shut_down(reason)
