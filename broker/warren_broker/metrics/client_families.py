"""The families of connections and channels, named as by RabbitMQ.

On `/metrics` their counters are of the node's clients since its start: unlike RabbitMQ's sums they
do not fall when a connection is closed. On the other paths they are of each: the label `channel` is
the name that the HTTP API has for a connection or channel, where RabbitMQ has the process of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from warren_broker.counting.message_stats import COUNTED, VHOST_COUNTED
from warren_broker.metrics.detailed import PREFIX
from warren_broker.metrics.queue_families import COUNTERS, Wants, pieces
from warren_broker.metrics.readings import NodeReading
from warren_wire.admin.connections import ChannelInfo, ConnectionInfo

ROUTED: Final = "global_messages_routed"


class ClientFamily(NamedTuple):
    """Name and text of a family, its kind, and the field that it shows."""

    name: str
    text: str
    field: str
    kind: Callable[..., Any] = GaugeMetricFamily


CONNECTIONS: Final = (
    ClientFamily(
        "connection_incoming_bytes", "Bytes from clients", "recv_oct", CounterMetricFamily
    ),
    ClientFamily("connection_outgoing_bytes", "Bytes to clients", "send_oct", CounterMetricFamily),
    ClientFamily(
        "connection_incoming_packets", "Reads of clients' sockets", "recv_cnt", CounterMetricFamily
    ),
    ClientFamily(
        "connection_outgoing_packets", "Writes to clients' sockets", "send_cnt", CounterMetricFamily
    ),
    ClientFamily("connection_channels", "Channels of open connections", "channels"),
)
CHANNELS: Final = (
    ClientFamily(
        "channel_messages_unacked", "Messages not acknowledged", "messages_unacknowledged"
    ),
    ClientFamily("channel_messages_unconfirmed", "Messages not confirmed", "messages_unconfirmed"),
    ClientFamily(
        "channel_messages_uncommitted", "Messages before tx.commit", "messages_uncommitted"
    ),
    ClientFamily(
        "channel_acks_uncommitted", "Acknowledgements before tx.commit", "acks_uncommitted"
    ),
    ClientFamily("consumer_prefetch", "Prefetch of new consumers", "prefetch_count"),
    ClientFamily("channel_prefetch", "Prefetch of channels", "global_prefetch_count"),
    ClientFamily("channel_consumers", "Consumers of channels", "consumers"),
    ClientFamily(
        "channel_messages_published", "Messages from publishers", "published", CounterMetricFamily
    ),
    ClientFamily(
        "channel_messages_confirmed", "Messages confirmed to them", "confirmed", CounterMetricFamily
    ),
    ClientFamily(
        "channel_messages_unroutable_returned",
        "Messages for no queue, returned",
        "returned",
        CounterMetricFamily,
    ),
    ClientFamily(
        "channel_messages_unroutable_dropped",
        "Messages for no queue, of which their publishers are not told",
        "dropped",
        CounterMetricFamily,
    ),
)
DELIVERIES: Final = {
    "get": ("channel_get_ack", "Messages fetched by basic.get, to be acknowledged"),
    "get_no_ack": ("channel_get", "Messages fetched by basic.get, without acknowledgement"),
    "deliver": ("channel_messages_delivered_ack", "Messages delivered, to be acknowledged"),
    "deliver_no_ack": ("channel_messages_delivered", "Messages delivered without acknowledgement"),
    "redeliver": ("channel_messages_redelivered", "Messages delivered again"),
    "ack": ("channel_messages_acked", "Messages acknowledged"),
    "get_empty": ("channel_get_empty", "basic.get that found no message"),
}
"""Of `message_stats.COUNTED`: what a channel was given from each queue."""


TOTALS: Final = {
    "channel_messages_published": "publish",
    "channel_messages_confirmed": "confirm",
    "channel_messages_unroutable_returned": "return_unroutable",
    "channel_messages_unroutable_dropped": "drop_unroutable",
    **{name: key for key, (name, _) in DELIVERIES.items()},
    **{name: key for key, (name, _) in COUNTERS.items() if key != "publish"},
    "exchange_messages_published": "publish",
    "connection_incoming_bytes": "recv_oct",
    "connection_outgoing_bytes": "send_oct",
}
"""A family of `/metrics` to the key of `message_stats.VHOST_COUNTED` that it sums up."""


def client_totals(reading: NodeReading) -> Iterator[Metric]:
    """Yield what all clients of the node have done, and have open."""
    used = dict(zip(VHOST_COUNTED, reading.used, strict=True))
    said = "Of all clients of this node since its start"
    for name, key in TOTALS.items():
        yield CounterMetricFamily(PREFIX + name, said, value=used[key])
    routed = sum([n for (name, _), n in reading.counters.items() if name == ROUTED])
    yield CounterMetricFamily(f"{PREFIX}queue_messages_published", said, value=routed)
    said = "Of all clients of this node"
    consumers = reading.clients.consumers.total()
    yield GaugeMetricFamily(f"{PREFIX}channel_consumers", said, value=consumers)
    yield GaugeMetricFamily(f"{PREFIX}connection_channels", said, value=reading.channels)


def client_families(reading: NodeReading, wants: Wants) -> Iterator[Metric]:
    """Yield each family, in pieces."""
    shown = reading.shown
    for one in CONNECTIONS:
        rows = (([of.name], _value(of, one.field)) for of in shown)
        yield from pieces(wants, one.kind, PREFIX + one.name, one.text, ["channel"], rows)
    for one in CHANNELS:
        rows = (
            ([_name(of, channel), of.vhost], _value(channel, one.field))
            for of in shown
            for channel in of.open_channels
        )
        yield from pieces(wants, one.kind, PREFIX + one.name, one.text, ["channel", "vhost"], rows)
    for key, (name, text) in DELIVERIES.items():
        at = COUNTED.index(key)
        rows = (
            ([_name(of, channel), of.vhost, queue], counts[at])
            for of in shown
            for channel in of.open_channels
            for queue, counts in channel.deliveries
        )
        labels = ["channel", "vhost", "queue"]
        yield from pieces(wants, CounterMetricFamily, PREFIX + name, text, labels, rows)


def exchange_families(reading: NodeReading, wants: Wants) -> Iterator[Metric]:
    """Yield what is shown of exchanges and vhosts, in pieces."""
    name, said = PREFIX + "exchange_messages_published", "Messages published to the exchange"
    used = (([vhost, exchange], count) for vhost, exchange, count in reading.published)
    yield from pieces(wants, CounterMetricFamily, name, said, ["vhost", "exchange"], used)
    labels = ["vhost", "exchange", "type"]
    for name, said, at in (("name", "1 for each exchange", 1), ("bindings", "Its bindings", 0)):
        rows = (([*one[:3]], (one[3], 1)[at]) for one in reading.exchanges)
        name = f"{PREFIX}cluster_exchange_{name}"
        yield from pieces(wants, GaugeMetricFamily, name, said, labels, rows)
    vhosts = (([vhost], 1.0) for vhost in reading.vhosts)
    name = f"{PREFIX}cluster_vhost_status"
    yield from pieces(wants, GaugeMetricFamily, name, "1 for each vhost", ["vhost"], vhosts)


def _value(of: ConnectionInfo | ChannelInfo, field: str) -> float:
    found = getattr(of, field)
    return len(found) if isinstance(found, tuple) else found


def _name(of: ConnectionInfo, channel: ChannelInfo) -> str:
    return f"{of.name} ({channel.number})"
