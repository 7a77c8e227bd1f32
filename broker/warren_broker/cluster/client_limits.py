"""Limits of vhosts and users on connections and channels, counted over the nodes of the cluster.

A client that comes is counted here first; then, where a limit is set, the other nodes are asked how
many they have. So a limit is never exceeded by clients that come at the same moment to nodes which
reach each other: 1. The limit is 1.  2. One client comes to node A, another to node B.  3. Each
node has counted its own before it asks, so at least one of the two finds two. Perhaps both do: then
both are refused. Nodes that are out of reach are not counted, see docs/how-to/users.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.survey import Answers, Survey
from warren_machines.metadata.limits import MAX_CHANNELS, MAX_CONNECTIONS, limit
from warren_wire import errors

Answer = Callable[[errors.Refusal | None], None]
"""Called once: None when the client is within the limits."""


@dataclass(slots=True)
class _Client:
    vhost: str
    user: str
    channels: int = 0


@dataclass(slots=True)
class _User:
    connections: int = 0
    channels: int = 0


class ClientLimits:
    """This node's clients by vhost and user, and the limits on those of all nodes.

    Invariant: `_vhosts` and `_users` have each client of `_clients` once, and nothing empty; they
    are sums, since a user with many connections may open many channels in one turn.
    """

    def __init__(self, cluster: Cluster, definitions: Definitions) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._clients: dict[int, _Client] = {}
        self._vhosts: dict[str, int] = {}
        self._users: dict[str, _User] = {}
        self._survey = Survey(cluster, messages.CountClients, messages.ClientsCounted)
        cluster.handlers[messages.CountClients] = self._on_count

    # ------------------------------------------------------------ clients come and go

    def enter(
        self,
        number: int,
        vhost: str,
        user: str,
        answer: Answer,
        *,
        free: bool = False,
    ) -> None:
        """Count a connection that opens a vhost, and check the limits; see `leave`.

        number  of the connection on this node
        answer  NotAllowed: the connection is to be closed
        free    it is counted, and permitted whatever the limits: an administrator's, which
                would otherwise be kept out by a limit that only an administrator can change
        """
        self.leave(number)
        self._clients[number] = _Client(vhost, user)
        self._vhosts[vhost] = self._vhosts.get(vhost, 0) + 1
        self._users.setdefault(user, _User()).connections += 1
        in_vhost, of_user = self._vhost_limit(vhost), self._user_limit(user, MAX_CONNECTIONS)
        if free or (in_vhost is None and of_user is None):
            answer(None)
            return

        def counted(total: messages.ClientsCounted) -> None:
            if in_vhost is not None and total.vhost_connections > in_vhost:
                self._cluster.counters.add("connections_refused", 1, "vhost_limit")
                answer(errors.vhost_connections_reached(vhost, user, in_vhost))
            elif of_user is not None and total.user_connections > of_user:
                self._cluster.counters.add("connections_refused", 1, "user_limit")
                answer(errors.user_connections_reached(user, of_user))
            else:
                answer(None)

        self._count(vhost, user, counted)

    def leave(self, number: int) -> None:
        """Count that connection no more; a repeat is harmless."""
        self.channels(number, 0)
        client = self._clients.pop(number, None)
        if client is None:
            return
        self._vhosts[client.vhost] -= 1
        if not self._vhosts[client.vhost]:
            del self._vhosts[client.vhost]
        self._users[client.user].connections -= 1
        if not self._users[client.user].connections:
            del self._users[client.user]

    def channels(self, number: int, count: int) -> None:
        """Note how many channels a connection has open, or is about to open."""
        client = self._clients.get(number)
        if client is not None:
            self._users[client.user].channels += count - client.channels
            client.channels = count

    def counts(self) -> tuple[int, int]:
        """Return this node's connections with an open vhost, and the channels they have open."""
        return len(self._clients), sum(one.channels for one in self._users.values())

    def channels_max(self, user: str) -> int | None:
        """Return how many channels the user may have open; None: there is no limit."""
        return self._user_limit(user, MAX_CHANNELS)

    def open_channel(self, vhost: str, user: str, answer: Answer) -> None:
        """Check the limit of a user's channels; the one to be opened is counted already."""

        def counted(total: messages.ClientsCounted) -> None:
            most = self.channels_max(user)
            reached = most is not None and total.user_channels > most
            answer(errors.channels_reached(user, most) if most is not None and reached else None)

        self._count(vhost, user, counted)

    # ------------------------------------------------------------ counting

    def _vhost_limit(self, vhost: str) -> int | None:
        scope = self._definitions.state.scopes.get(vhost)
        return None if scope is None else limit(scope.vhost.limits, MAX_CONNECTIONS)

    def _user_limit(self, user: str, name: str) -> int | None:
        known = self._definitions.state.users.get(user)
        return None if known is None else limit(known.limits, name)

    def _count(
        self, vhost: str, user: str, done: Callable[[messages.ClientsCounted], None]
    ) -> None:
        """Call `done` with the clients of every node within reach."""

        def told(answers: Answers) -> None:
            every = [self._here(0, vhost, user), *answers.values()]
            done(
                messages.ClientsCounted(
                    0,
                    sum(one.vhost_connections for one in every),
                    sum(one.user_connections for one in every),
                    sum(one.user_channels for one in every),
                )
            )

        self._survey.ask(self._definitions.within_reach(), told, vhost, user)

    def _here(self, request: int, vhost: str, user: str) -> messages.ClientsCounted:
        mine = self._users.get(user, _User())
        in_vhost = self._vhosts.get(vhost, 0)
        return messages.ClientsCounted(request, in_vhost, mine.connections, mine.channels)

    def _on_count(self, node: str, message: messages.CountClients, rest: object) -> None:
        counted = self._here(message.request, message.vhost, message.user)
        self._cluster.host.send(node, messages.encode(counted))
