"""Clients whose user or vhost is gone are sent away."""

from __future__ import annotations

from warren_broker.cluster.definitions import Definitions
from warren_broker.server.listener import AmqpListener
from warren_raft.runtime.loop import Loop, Timer

REVIEW_DELAY_MS = 1_000
"""So long after the change, for its answer leaves before: whoever asked for it may be sent away,
too. Nothing is permitted to these clients from the change on."""


class Admission:
    """Looks at every open connection after users or vhosts were deleted, as RabbitMQ does.

    Invariant: at most one review is under way.
    """

    def __init__(self, loop: Loop, definitions: Definitions, listener: AmqpListener) -> None:
        self._loop = loop
        self._definitions = definitions
        self._listener = listener
        self._timer: Timer | None = None
        definitions.on_access = self.changed

    def changed(self) -> None:
        """Users or vhosts may be gone."""
        if self._timer is None:
            self._timer = self._loop.call_later(REVIEW_DELAY_MS, self._review)

    def _review(self) -> None:
        self._timer = None
        state = self._definitions.state
        for connection in list(self._listener.connections):
            client = connection.client
            if client is None or client.opened_as is None:
                continue
            user, vhost = client.opened_as
            if user not in state.users:
                client.shut_down(f"user '{user}' was deleted")
            elif vhost not in state.scopes:
                client.shut_down(f"vhost '{vhost}' is deleted")
