"""The connections of clients to all nodes of the cluster: shown, and closed by an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.survey import Answers, Survey
from warren_broker.management.connection_values import ConnectionInfo


class DescribedClient(Protocol):
    """A connection that can be shown and closed."""

    def described(self) -> ConnectionInfo | None:
        """Return what is shown of it; None: it has not opened a vhost, or has ended."""
        ...

    def shut_down(self, reason: str) -> None:
        """Close the connection with the reason."""
        ...


class Connections:
    """This node's connections, by number; the other nodes are asked for theirs."""

    def __init__(self, cluster: Cluster, definitions: Definitions) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._clients: dict[int, DescribedClient] = {}
        self._survey = Survey(cluster, messages.AskConnections, messages.ConnectionsAre)
        cluster.handlers[messages.AskConnections] = self._on_ask

    def add(self, number: int, client: DescribedClient) -> None:
        """Take note of a new connection."""
        self._clients[number] = client

    def remove(self, number: int) -> None:
        """Forget a connection that has ended; a repeat is harmless."""
        self._clients.pop(number, None)

    def survey(
        self, vhost: str, user: str, name: str, answer: Callable[[list[ConnectionInfo]], None]
    ) -> None:
        """Answer the connections to the nodes within reach, by name; "": of any."""

        def told(answers: Answers) -> None:
            found = [*self._here(vhost, user, name)]
            found += [one for of in answers.values() for one in of.connections]
            found.sort(key=lambda one: (one.name, one.node))
            answer(found)

        self._survey.ask(self._definitions.within_reach(), told, vhost, user, name, "")

    def close(self, name: str, reason: str, answer: Callable[[], None]) -> None:
        """Close the connection of that name, wherever it is; answer when the nodes have done so."""
        self._close(name, reason)
        nodes = self._definitions.within_reach()
        self._survey.ask(nodes, lambda answers: answer(), "", "", name, reason)

    def _here(self, vhost: str, user: str, name: str) -> tuple[ConnectionInfo, ...]:
        shown = (client.described() for client in [*self._clients.values()])
        return tuple(
            one
            for one in shown
            if one is not None
            and vhost in ("", one.vhost)
            and user in ("", one.user)
            and name in ("", one.name)
        )

    def _close(self, name: str, reason: str) -> None:
        for client in [*self._clients.values()]:
            shown = client.described()
            if shown is not None and shown.name == name:
                client.shut_down(reason)

    def _on_ask(self, node: str, message: messages.AskConnections, rest: Any) -> None:
        found: tuple[ConnectionInfo, ...] = ()
        if message.reason:
            self._close(message.name, message.reason)
        else:
            found = self._here(message.vhost, message.user, message.name)
        told = messages.ConnectionsAre(message.request, found)
        self._cluster.host.send(node, messages.encode(told))
