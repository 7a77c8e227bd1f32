"""The firehose: what clients publish and are sent, once more as messages of `amq.rabbitmq.trace`.

Tracing is turned on by vhost, on one node, until it is turned off or the node ends. Trace messages
are best effort (`node_messages`): nothing that happens to them affects what is traced.

They are not traced themselves, neither when they are delivered nor after they were dead-lettered:
1. The queue of a trace is full and dead-letters what it drops.  2. A consumer of these letters is
sent one.  3. Its trace has the letter's headers in its own, fills the queue again, and so on: the
headers would grow without end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from warren_broker.access import requests
from warren_broker.cluster.client.event_facts import fitting
from warren_broker.cluster.client.node_messages import BestEffort, UnconfirmedBounds
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.client.routed_runs import BCC, QueuePart
from warren_broker.cluster.definitions import Definitions
from warren_broker.config import NodeConfig
from warren_raft.runtime.loop import Loop
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import SHORT_STRING_BYTES_MAX, Field
from warren_wire.amqp091.fitting import HEADER_FRAME_BYTES
from warren_wire.block.block import Block
from warren_wire.kernel import MessageTable, Route, readable, split_sections

log = logging.getLogger(__name__)
TRACE_EXCHANGE: Final = "amq.rabbitmq.trace"
_TRACE: Final = TRACE_EXCHANGE.encode()
_FIRST_DEATH: Final = "x-first-death-exchange"
UNCONFIRMED_SHARE: Final = 4
"""Traces under way take at most this part of what blocks publishers, of a queue and of a node."""


class TracedClient(NamedTuple):
    """A channel, as its trace messages name it; connection: the connection's name."""

    vhost: str
    user: str
    connection: str
    channel: int


class _Message(NamedTuple):
    """A message; headers: as the client sent them, or is sent them."""

    route: Route
    properties: bytes
    headers: dict[str, Any]
    body: bytes


class Firehose:
    """Publishes trace messages, in the vhosts in which tracing is on.

    vhosts     those; its readers look at it for every run of messages
    publisher  sends the trace messages
    """

    def __init__(
        self, loop: Loop, definitions: Definitions, publishing: Publisher, settings: NodeConfig
    ) -> None:
        self.vhosts: set[str] = set()
        limits = settings.limits
        bounds = UnconfirmedBounds(
            limits.queue_in_flight_bytes_max // UNCONFIRMED_SHARE,
            limits.node_in_flight_bytes_max // UNCONFIRMED_SHARE,
        )
        self.publisher = BestEffort(loop, publishing, "trace messages", log, bounds)
        self._definitions = definitions
        self._node = settings.node
        self._properties_max = limits.frame_max - HEADER_FRAME_BYTES
        definitions.on_access.append(self._deleted)

    def start(self, vhost: str) -> None:
        """Turn tracing on; the vhost exists."""
        self.vhosts.add(vhost)

    def stop(self, vhost: str) -> None:
        """Turn tracing off; harmless where it is off."""
        self.vhosts.discard(vhost)

    def _deleted(self, users: tuple[str, ...], vhosts: tuple[str, ...]) -> None:
        """Turn tracing off in deleted vhosts: others of these names are not traced."""
        self.vhosts.difference_update(vhosts)
        self.vhosts.intersection_update(self._definitions.state.scopes)

    # ------------------------------------------------------------ what is traced

    def published(
        self,
        by: TracedClient,
        table: MessageTable,
        first: int,
        last: int,
        parts: Sequence[QueuePart],
    ) -> None:
        """Trace messages first <= i < last, which are about to be put into the queues of `parts`.

        Stores of exchanges are not named: no client knows them as queues.
        """
        queues: dict[int, list[str]] = {}
        for part in parts:
            if not part.kept:
                for i in part.selection:
                    queues.setdefault(i, []).append(part.name)
        traces = MessageTable()
        for i in range(first, last):
            route = table.route(i)
            key = _key(b"publish.", route.exchange)
            if self._asked_for(by.vhost, key):
                message = _message(route, table.properties_of(i), table.body(i), None)
                facts = {"routed_queues": queues.get(i, [])}
                self._add(traces, key, by, message, facts)
        self._send(by.vhost, traces)

    def delivered(self, to: TracedClient, sent: requests.TraceRequest) -> None:
        """Trace messages that were sent to a client."""
        traces = MessageTable()
        key = _key(b"deliver.", sent.queue.encode("utf-8", "surrogateescape"))
        if self._asked_for(to.vhost, key):
            facts = {"redelivered": int(sent.redelivered)}
            for message in _messages(sent):
                if message.route.exchange != _TRACE and not _was_trace(message.headers):
                    self._add(traces, key, to, message, facts)
        self._send(to.vhost, traces)

    def _asked_for(self, vhost: str, key: bytes) -> bool:
        """Return whether a queue may be bound for that key."""
        topology = self._definitions.topology
        if self._definitions.exchange(vhost, TRACE_EXCHANGE) is None:
            return False
        known = topology.known(vhost, TRACE_EXCHANGE, key.decode("utf-8", "surrogateescape"))
        return known is None or bool(known)  # the first trace with that key finds it out

    def _send(self, vhost: str, traces: MessageTable) -> None:
        if traces.count:
            self.publisher.publish(vhost, traces)

    # ------------------------------------------------------------ trace messages

    def _add(
        self,
        traces: MessageTable,
        key: bytes,
        client: TracedClient,
        message: _Message,
        more: dict[str, Any],
    ) -> None:
        facts = {
            "exchange_name": _text(message.route.exchange),
            "routing_keys": _keys(message),
            "properties": _shown(message),
            "node": self._node,
            "vhost": client.vhost,
            "connection": client.connection,
            "channel": client.channel,
            "user": client.user,
            **more,
        }
        traces.append(Route(_TRACE, key, False), self._fitting(facts), message.body)

    def _fitting(self, facts: dict[str, Any]) -> bytes:
        """Return the trace's properties, so that they fit into a frame and any client reads them.

        What is too long, or nested too deeply inside of further tables, is left out: first the
        message's own headers, then the queues and the keys beside the first, then its properties.
        """
        shown = facts["properties"]
        without = {name: value for name, value in shown.items() if name != "headers"}
        short = {"routing_keys": facts["routing_keys"][:1]}
        if "routed_queues" in facts:
            short["routed_queues"] = []
        steps: tuple[dict[str, Any], ...] = ({}, {"properties": without}, short, {"properties": {}})
        for changes in steps:
            facts |= changes
            written = properties.encode(properties.Properties(headers=facts))
            if len(written) <= self._properties_max and readable(written) == written:
                break
        return written


def _messages(sent: requests.TraceRequest) -> Iterator[_Message]:
    source = sent.messages
    for i in range(sent.first, sent.last):
        if isinstance(source, Block):
            route = Route(*source.route(i), False)
            yield _message(route, source.properties(i), bytes(source.body(i)), sent.headers)
        else:
            yield _message(source.route(i), source.properties_of(i), source.body(i), sent.headers)


def _message(
    route: Route, raw: bytes | memoryview, body: bytes, more: dict[str, int] | None
) -> _Message:
    """Return a message; more: headers that were added to its own."""
    data, _ = split_sections(readable(raw))
    headers: dict[str, Any] = dict(properties.headers(data))
    for name, value in (more or {}).items():
        headers[name] = Field("l", value)
    return _Message(route, data, headers, body)


def _key(prefix: bytes, name: bytes) -> bytes:
    return (prefix + name)[:SHORT_STRING_BYTES_MAX]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _was_trace(headers: dict[str, object]) -> bool:
    first = headers.get(_FIRST_DEATH)
    return isinstance(first, Field) and first.value == TRACE_EXCHANGE


def _keys(message: _Message) -> list[str]:
    """Return the routing key, and those in the headers CC and BCC."""
    found = [_text(message.route.routing_key)]
    for name in ("CC", BCC):
        given = message.headers.get(name)
        if isinstance(given, Field) and isinstance(given.value, list):
            found += [key for key in given.value if isinstance(key, str)]
    return found


def _shown(message: _Message) -> dict[str, Any]:
    """Return the message's properties as a table, named as in the protocol, without BCC."""
    said = properties.decode(message.properties)
    shown = {
        name: fitting(value)
        for name in properties.NAMES
        if name != "headers" and (value := getattr(said, name)) is not None
    }
    if message.headers or said.headers is not None:
        headers = {name: value for name, value in message.headers.items() if name != BCC}
        shown["headers"] = headers
    return shown
