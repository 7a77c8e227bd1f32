"""Connections of clients to all nodes, with their consumers: shown, closed by an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from warren_broker.cluster import messages
from warren_broker.cluster.client_sampler import CountedClient
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.led_queues import NodeTotalsReader
from warren_broker.cluster.queue_numbers import Column, QueueNumbers
from warren_broker.cluster.queue_sampler import QueueSampler
from warren_broker.cluster.sorted_names import SortedNames
from warren_broker.cluster.survey import Answers, Survey
from warren_wire.admin.connections import (
    SINGLE_ACTIVE,
    WAITING,
    ConnectionInfo,
    ConsumerInfo,
    ListConnectionsRequest,
)
from warren_wire.admin.overview import NodeTotals
from warren_wire.admin.statistics import QueueStatistics

Counted: TypeAlias = Literal["", "exchanges", "vhosts", "gauges"]
"""Of what statistics are, but of queues: see `messages.AskConnections`."""
KnownConsumer: TypeAlias = tuple[int, int, ConsumerInfo]
"""Group of its queue, its number on its node, and what that node knows of it."""


class ClientGauges(NamedTuple):
    """What a connection is now; publishers: its channels, or links, that publish.

    blocked  it is not read, or its links get no credit, because of the resource alarms
    """

    protocol: str
    publishers: int
    consumers: int
    blocked: bool


class DescribedClient(CountedClient, Protocol):
    """A connection that can be shown and closed."""

    def described(self, channels: bool) -> ConnectionInfo | None:
        """Return what is shown of it; None: it has not opened a vhost, or has ended.

        channels  whether its open channels are shown, too
        """

    def gauges(self) -> ClientGauges | None:
        """Return what it is; None: as `described`."""

    def consumers(self) -> list[KnownConsumer]:
        """Return its consumers, each as if it was active; none when it is not shown."""

    def shut_down(self, reason: str) -> None:
        """Close the connection with the reason."""


@dataclass(eq=False, repr=False)
class Connections:
    """This node's connections, by number; the other nodes are asked for theirs.

    clients: of this node, none yet; `own_samples` looks at them.
    """

    cluster: Cluster
    definitions: Definitions
    own_totals: NodeTotalsReader
    own_samples: QueueSampler
    clients: dict[int, DescribedClient]
    own_numbers: QueueNumbers = field(init=False)
    own_names: SortedNames = field(init=False)
    _survey: Survey = field(init=False)

    def __post_init__(self) -> None:
        self.own_names = SortedNames()
        self.own_numbers = QueueNumbers(self.cluster, self.own_samples)
        self._survey = Survey(self.cluster, messages.AskConnections, messages.ConnectionsAre)
        self.cluster.handlers[messages.AskConnections] = self._on_ask

    def add(self, number: int, client: DescribedClient) -> None:
        """Take note of a new connection."""
        self.clients[number] = client

    def remove(self, number: int) -> None:
        """Forget a connection that has ended; a repeat is harmless."""
        self.clients.pop(number, None)

    def survey(
        self, chosen: ListConnectionsRequest, answer: Callable[[list[ConnectionInfo]], None]
    ) -> None:
        """Answer the connections to the nodes within reach, by name."""
        named = (chosen.vhost, chosen.user, chosen.name, chosen.channels, "")
        asked = messages.AskConnections(0, *named, samples=chosen.samples)

        def told(answers: Answers) -> None:
            found = [*self._here(asked)]
            found += [one for of in answers.values() for one in of.connections]
            found.sort(key=lambda one: (one.name, one.node))
            answer(found)

        self._ask(asked, told)

    def consumers(
        self,
        vhost: str,
        user: str,
        queue: str,
        connection: str,
        answer: Callable[[list[ConsumerInfo]], None],
    ) -> None:
        """Answer the consumers on the nodes within reach, by queue, connection, channel and tag.

        They are those of that vhost, user, queue and connection; "": of any. What is on a node the
        node knows; the active one of several is known where the queue is led.
        """

        def told(answers: Answers) -> None:
            active = {*self._active_here(asked)}
            known = self._consumers_here(asked)
            for node in sorted(answers):
                active.update(answers[node].active)
                known += answers[node].consumers
            if connection:  # a node of an earlier version answers those of all connections
                known = [one for one in known if one[2].connection == connection]
            keys = {(group, self.cluster.node_of(uplink), one) for group, uplink, one in active}
            found = [self._judged(one, keys) for one in known]
            found.sort(
                key=lambda one: (
                    *(one.vhost, one.queue, one.connection, one.node),
                    *(one.channel, one.consumer_tag),
                )
            )
            answer(found)

        named = (vhost, user, connection, False, "")
        asked = messages.AskConnections(0, *named, consumers=True, queue=queue)
        self._ask(asked, told)

    def _ask(self, asked: messages.AskConnections, told: Callable[[Answers], None]) -> None:
        """Ask the nodes within reach; the question is numbered then."""
        _, *fields = msgspec.structs.astuple(asked)
        self._survey.ask(self.definitions.within_reach(), told, *fields)

    def _judged(
        self, known: KnownConsumer, active: set[tuple[int, str | None, int]]
    ) -> ConsumerInfo:
        group, number, info = known
        queue = self.definitions.state.groups.get(group)
        if queue is None or not queue.config.single_active_consumer:
            return info
        is_active = (group, info.node, number) in active
        status = SINGLE_ACTIVE if is_active else WAITING
        return msgspec.structs.replace(info, active=is_active, activity_status=status)

    def _consumers_here(self, chosen: messages.AskConnections) -> list[KnownConsumer]:
        return [
            known
            for client in [*self.clients.values()]
            for known in client.consumers()
            if chosen.vhost in ("", known[2].vhost)
            and chosen.user in ("", known[2].user)
            and chosen.queue in ("", known[2].queue)
            and chosen.name in ("", known[2].connection)
        ]

    def _active_here(self, chosen: messages.AskConnections) -> list[tuple[int, int, int]]:
        """Return the single active consumers of the queues led here: group, uplink, number."""
        host, found = self.cluster.host, []
        for group, queue in self.definitions.state.groups.items():
            if (
                queue.config.single_active_consumer
                and chosen.vhost in ("", queue.vhost)
                and chosen.queue in ("", queue.name)
                and host.is_leader(group)
            ):
                active = host.state(group).active
                if active is not None:
                    found.append((group, *active.key))
        return found

    def totals(self, answer: Callable[[list[NodeTotals]], None]) -> None:
        """Answer what the nodes within reach count, by name."""

        def read(own: NodeTotals) -> None:
            def told(answers: Answers) -> None:
                others = [one.totals for one in answers.values() if one.totals is not None]
                answer(sorted([own, *others], key=lambda one: one.node))

            self._ask(messages.AskConnections(0, "", "", "", False, "", totals=True), told)

        self.own_totals.read(read)

    def statistics(
        self,
        vhost: str,
        queue: str,
        samples: bool,
        answer: Callable[[list[QueueStatistics]], None],
        counted: Counted = "",
    ) -> None:
        """Answer the sums of the nodes within reach, by name.

        vhost    "": of the nodes themselves, named ""
        queue    "": all of the vhost
        counted  "": queues; else of exchanges with `queue` as the name, of vhosts, or of what
                 each node has in use
        """
        here = partial(self._statistics_here, vhost, queue, samples, counted)

        def told(answers: Answers) -> None:
            found = {one.name: one for one in here()}
            for node in sorted(answers):
                for one in answers[node].statistics:
                    known = found.get(one.name)
                    found[one.name] = one if known is None else known.plus(one)
            answer([found[name] for name in sorted(found)])

        others = (False, queue, False, not counted, samples, counted)
        self._ask(messages.AskConnections(0, vhost, "", "", False, "", *others), told)

    def numbers(
        self, groups: tuple[int, ...], answer: Callable[[dict[int, messages.NumbersOfQueue]], None]
    ) -> None:
        """Answer what the nodes within reach know of these queues, by group."""

        def told(answers: Answers) -> None:
            found = {one.group: one for one in self.own_numbers.of_groups(groups)}
            for node in sorted(answers):
                for one in answers[node].queues:
                    known = found.get(one.group)
                    found[one.group] = one if known is None else known.plus(one)
            answer(found)

        self._ask(messages.AskConnections(0, "", "", "", False, "", groups=groups), told)

    def column(self, name: str, answer: Callable[[Column], None]) -> None:
        """Answer that number of all queues, as the nodes within reach know it."""

        def read(own: Column) -> None:
            def told(answers: Answers) -> None:
                found = dict(own)
                for one in answers.values():
                    for group, value in one.column.items():
                        found[group] = found.get(group, 0) + value
                answer(found)

            self._ask(messages.AskConnections(0, "", "", "", False, "", column=name), told)

        self.own_numbers.column(name, read)

    def _statistics_here(
        self, vhost: str, queue: str, samples: bool, counted: str
    ) -> tuple[QueueStatistics, ...]:
        if counted == "exchanges":
            return self.own_samples.read_exchanges(vhost, queue, samples)
        if counted == "vhosts":
            return self.own_samples.read_vhosts(vhost, samples)
        if counted == "gauges":
            return (self.own_samples.read_gauges(samples),)
        if not vhost:
            return (self.own_samples.read_node(),)
        return self.own_samples.read(vhost, queue, samples)

    def close(self, name: str, reason: str, answer: Callable[[], None]) -> None:
        """Close the connection of that name, wherever it is; answer when the nodes have done so."""
        self._close(name, reason)
        asked = messages.AskConnections(0, "", "", name, False, reason)
        self._ask(asked, lambda answers: answer())

    def _here(self, chosen: messages.AskConnections) -> tuple[ConnectionInfo, ...]:
        shown = [
            (number, client.described(chosen.channels))
            for number, client in [*self.clients.items()]
        ]
        return tuple(
            self.own_samples.clients.with_rates(number, one, chosen.samples)
            for number, one in shown
            if one is not None
            and chosen.vhost in ("", one.vhost)
            and chosen.user in ("", one.user)
            and chosen.name in ("", one.name)
        )

    def _close(self, name: str, reason: str) -> None:
        for client in [*self.clients.values()]:
            shown = client.described(False)
            if shown is not None and shown.name == name:
                client.shut_down(reason)

    def _on_ask(self, node: str, message: messages.AskConnections, rest: object) -> None:
        found: tuple[ConnectionInfo, ...] = ()
        consumers: tuple[KnownConsumer, ...] = ()
        active: tuple[tuple[int, int, int], ...] = ()
        if message.totals:

            def answer(totals: NodeTotals) -> None:
                counted = messages.ConnectionsAre(message.request, (), totals=totals)
                self.cluster.host.send(node, messages.encode(counted))

            self.own_totals.read(answer)
            return
        if message.column:

            def counted(found: Column) -> None:
                told = messages.ConnectionsAre(message.request, (), column=found)
                self.cluster.host.send(node, messages.encode(told))

            self.own_numbers.column(message.column, counted)
            return
        if message.groups:
            numbers = self.own_numbers.of_groups(message.groups)
            shown = messages.ConnectionsAre(message.request, (), queues=numbers)
            self.cluster.host.send(node, messages.encode(shown))
            return
        if message.statistics or message.counted:
            asked = (message.vhost, message.queue, message.samples, message.counted)
            known = self._statistics_here(*asked)
            read = messages.ConnectionsAre(message.request, (), statistics=known)
            self.cluster.host.send(node, messages.encode(read))
            return
        if message.reason:
            self._close(message.name, message.reason)
        elif message.consumers:
            consumers = tuple(self._consumers_here(message))
            active = tuple(self._active_here(message))
        else:
            found = self._here(message)
        told = messages.ConnectionsAre(message.request, found, consumers, active)
        self.cluster.host.send(node, messages.encode(told))
