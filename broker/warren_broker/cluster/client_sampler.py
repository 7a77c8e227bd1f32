"""Samples of clients' connections and channels: octets, and what channels did with messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from warren_broker.counting.message_stats import (
    CHANNEL_COUNTED,
    CHANNEL_SAMPLES_MAX,
    CONNECTION_SAMPLES_MAX,
    OCTETS,
    UNKNOWN,
    CountHistory,
)
from warren_broker.counting.pair_counts import Row
from warren_machines.queue.commands import SessionId
from warren_wire.admin.connections import ChannelInfo, ConnectionInfo
from warren_wire.admin.statistics import NodeSamples


class ClientCounted(NamedTuple):
    """What one connection has counted since it was made.

    octets    `message_stats.OCTETS`
    channels  of AMQP 0.9.1: their sessions, and `message_stats.CHANNEL_COUNTED` of each
    """

    octets: Row
    channels: Sequence[tuple[SessionId, Row]]


class CountedClient(Protocol):
    """A connection that counts."""

    def counted(self) -> ClientCounted | None:
        """Count its octets in its vhost, and return what it has counted; None: it has ended."""


class ClientSampler:
    """The histories of the connections and channels of this node.

    One that is idle takes a comparison each look, and a channel that has done nothing has no
    history. A history ends with its connection or channel.
    """

    def __init__(self, clients: Mapping[int, CountedClient], now_ms: int) -> None:
        """clients: the connections by number; others add and remove them."""
        self._clients = clients
        self._connections: CountHistory[int] = CountHistory(now_ms, CONNECTION_SAMPLES_MAX, OCTETS)
        self._channels: CountHistory[SessionId] = CountHistory(
            now_ms, CHANNEL_SAMPLES_MAX, CHANNEL_COUNTED
        )
        self._seen: tuple[list[int], list[SessionId]] = [], []

    @property
    def histories(self) -> tuple[CountHistory[Any], CountHistory[Any]]:
        """Return those of connections and of channels."""
        return self._connections, self._channels

    def begin(self) -> list[int]:
        """Begin a look; return the connections that are to be visited."""
        self._seen = [], []
        return list(self._clients)

    def visit(self, numbers: Sequence[int], now: tuple[int, int]) -> None:
        """Look at some of them; now: see `CountHistory.sample`."""
        connections, channels = self._seen
        for number in numbers:
            client = self._clients.get(number)
            counted = None if client is None else client.counted()
            if counted is None:
                continue
            connections.append(number)
            _look(self._connections, number, now, counted.octets)
            for session, row in counted.channels:
                if any(row):
                    channels.append(session)
                    _look(self._channels, session, now, row)

    def end(self, began_ms: int) -> None:
        """End the look: forget what has ended."""
        connections, channels = self._seen
        self._connections.looked(began_ms, connections)
        self._channels.looked(began_ms, channels)

    def with_rates(self, number: int, shown: ConnectionInfo, samples: bool) -> ConnectionInfo:
        """Return a connection with its rates and those of the channels that are shown.

        samples  with those that were kept
        """
        rates, kept = _known(self._connections, number, samples)
        channels = tuple([self._with_rates(one, samples) for one in shown.open_channels])
        return msgspec.structs.replace(shown, rates=rates, samples=kept, open_channels=channels)

    def _with_rates(self, shown: ChannelInfo, samples: bool) -> ChannelInfo:
        rates, kept = _known(self._channels, shown.session, samples)
        changed_ms = self._channels.changed_ms(shown.session)
        return msgspec.structs.replace(shown, rates=rates, samples=kept, changed_ms=changed_ms)


def _look(history: CountHistory[int], key: int, now: tuple[int, int], row: Row) -> None:
    if not history.unchanged(key, now[0], UNKNOWN, row):
        history.sample(key, now, UNKNOWN, row, None)


def _known(
    history: CountHistory[int], key: int, samples: bool
) -> tuple[tuple[float, ...], NodeSamples | None]:
    return history.rates(key), NodeSamples(*history.samples(key)) if samples else None
