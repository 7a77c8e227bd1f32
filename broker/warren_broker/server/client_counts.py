"""What one client's connection adds to the node's counters, for whole runs of messages."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any

from warren_broker.amqp091 import requests
from warren_broker.arguments import Kind
from warren_broker.cluster.broker import Broker
from warren_broker.counters import QUEUE_TYPES
from warren_broker.queue.commands import Delivery


class ClientCounts:
    """Counts for one connection.

    protocol  the label of its messages (`counters.PROTOCOLS`)

    Invariant: what was counted as opened is counted as closed once
    """

    __slots__ = ("_channels", "_consuming", "_counters", "_opened", "_protocol")

    def __init__(self, broker: Broker, protocol: str) -> None:
        self._protocol = protocol
        self._counters = broker.cluster.counters
        self._consuming = broker.consuming
        self._opened = False
        self._channels: set[int] = set()

    def opened(self) -> None:
        """Count the connection, which has opened its vhost."""
        self._opened = True
        self._counters.add("connections_opened", 1)

    def closed(self) -> None:
        """Count its end."""
        if self._opened:
            self._opened = False
            self._counters.add("connections_closed", 1)

    def channel_opened(self, session: int) -> None:
        """Count a channel."""
        self._channels.add(session)
        self._counters.add("channels_opened", 1)

    def channel_closed(self, session: int) -> None:
        """Count the end of a channel; repeats are harmless."""
        if session in self._channels:
            self._channels.discard(session)
            self._counters.add("channels_closed", 1)

    # ------------------------------------------------------------ messages

    def published(self, request: requests.PublishRequest) -> None:
        """Count messages received."""
        self._counters.received(self._protocol, request.last - request.first, request.confirm)

    def routed(self, parts: Iterable[Sized]) -> None:
        """Count messages routed; one part per queue."""
        self._counters.add("global_messages_routed", sum(map(len, parts)), self._protocol)

    def confirmed(self, count: int) -> None:
        """Count messages confirmed."""
        if count:
            self._counters.add("global_messages_confirmed", count, self._protocol)

    def delivered(self, consumer: int, no_ack: bool, delivery: Delivery) -> None:
        """Count a run for a consumer."""
        queue = self._consuming.queue_of(consumer)
        if queue is not None:
            how = "consume_auto_ack" if no_ack else "consume_manual_ack"
            count = delivery.last - delivery.first + 1
            again = delivery.acquired_count > 0
            self._counters.delivered(self._protocol, queue.config.kind, how, count, again)

    def got(self, kind: Kind, no_ack: bool, result: Any) -> None:
        """Count what a basic.get has found, unless it failed."""
        if isinstance(result, requests.GotMessage):
            how = "get_auto_ack" if no_ack else "get_manual_ack"
            again = result.delivery.acquired_count > 0
            self._counters.delivered(self._protocol, kind, how, 1, again)
        elif isinstance(result, requests.GotNothing):
            labels = self._protocol, QUEUE_TYPES[kind]
            self._counters.add("global_messages_get_empty", 1, *labels)

    def acknowledged(self, consumer: int, msg_ids: Iterable[tuple[int, int]]) -> None:
        """Count messages acknowledged or, in AMQP 1.0, accepted; ranges with their last."""
        queue = self._consuming.queue_of(consumer)
        if queue is not None:
            count = sum([last - first + 1 for first, last in msg_ids])
            labels = self._protocol, QUEUE_TYPES[queue.config.kind]
            self._counters.add("global_messages_acknowledged", count, *labels)
