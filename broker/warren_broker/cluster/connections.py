"""The connections of clients to all nodes of the cluster: shown, and closed by an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.survey import Answers, Survey
from warren_broker.management.connection_values import ConnectionInfo


class DescribedClient(Protocol):
    """A connection that can be shown and closed."""

    def described(self, channels: bool) -> ConnectionInfo | None:
        """Return what is shown of it; None: it has not opened a vhost, or has ended.

        channels  whether its open channels are shown, too
        """
        ...

    def shut_down(self, reason: str) -> None:
        """Close the connection with the reason."""
        ...


@dataclass(frozen=True, slots=True)
class ChosenConnections:
    """Which connections are asked for, "": of any; channels: with those that they have open."""

    vhost: str = ""
    user: str = ""
    name: str = ""
    channels: bool = False


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
        self, chosen: ChosenConnections, answer: Callable[[list[ConnectionInfo]], None]
    ) -> None:
        """Answer the connections to the nodes within reach, by name."""

        def told(answers: Answers) -> None:
            found = [*self._here(chosen)]
            found += [one for of in answers.values() for one in of.connections]
            found.sort(key=lambda one: (one.name, one.node))
            answer(found)

        asked = (chosen.vhost, chosen.user, chosen.name, chosen.channels)
        self._survey.ask(self._definitions.within_reach(), told, *asked, "")

    def close(self, name: str, reason: str, answer: Callable[[], None]) -> None:
        """Close the connection of that name, wherever it is; answer when the nodes have done so."""
        self._close(name, reason)
        nodes = self._definitions.within_reach()
        self._survey.ask(nodes, lambda answers: answer(), "", "", name, False, reason)

    def _here(self, chosen: ChosenConnections) -> tuple[ConnectionInfo, ...]:
        shown = (client.described(chosen.channels) for client in [*self._clients.values()])
        return tuple(
            one
            for one in shown
            if one is not None
            and chosen.vhost in ("", one.vhost)
            and chosen.user in ("", one.user)
            and chosen.name in ("", one.name)
        )

    def _close(self, name: str, reason: str) -> None:
        for client in [*self._clients.values()]:
            shown = client.described(False)
            if shown is not None and shown.name == name:
                client.shut_down(reason)

    def _on_ask(self, node: str, message: messages.AskConnections, rest: Any) -> None:
        found: tuple[ConnectionInfo, ...] = ()
        if message.reason:
            self._close(message.name, message.reason)
        else:
            wanted = (message.vhost, message.user, message.name, message.channels)
            found = self._here(ChosenConnections(*wanted))
        told = messages.ConnectionsAre(message.request, found)
        self._cluster.host.send(node, messages.encode(told))
