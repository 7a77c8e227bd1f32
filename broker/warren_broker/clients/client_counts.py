"""What one client's connection adds to the node's counters, for whole runs of messages."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import sub
from typing import Final, NamedTuple

from warren_broker.access import requests
from warren_broker.broker.broker import Broker
from warren_broker.clients.part_answers import nowhere
from warren_broker.cluster.cluster import Cluster
from warren_broker.counting.counters import PROTOCOLS, QUEUE_TYPES, SIZES, Labels
from warren_broker.counting.message_stats import (
    ACK,
    CONFIRM,
    DELIVER,
    DELIVER_NO_ACK,
    DROP_UNROUTABLE,
    GET,
    GET_EMPTY,
    GET_NO_ACK,
    PUBLISH,
    RECV_OCT,
    REDELIVER,
    RETURN_UNROUTABLE,
    SEND_OCT,
    zero_row,
    zero_vhost_row,
)
from warren_broker.counting.pair_counts import (
    DROPPED,
    PUBLISHED,
    RETURNED,
    ChannelKey,
    ExchangeShare,
    PairCounts,
    Row,
)
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.commands import ConsumerId, Delivery, SessionId
from warren_wire.arguments import Kind
from warren_wire.kernel import (
    MessageTable,
    Selection,
    count_groups,
    count_unselected,
    distinct_routes,
)
from warren_wire.kernel.table import ROW_WORDS

COUNTED_QUEUES_MAX: Final = 1_000
"""Queues that one channel counts apart: a client may declare and delete any number."""
OTHERS: Final = (0, "")
BODY_END: Final = 2
"""The word of a row of a table that has the end of its body (`kernel.table.ROW`)."""


class _Keys(NamedTuple):
    """The counters of one protocol, of `counters.FAMILIES`."""

    received: tuple[str, Labels]
    expected: tuple[str, Labels]
    routed: tuple[str, Labels]
    confirmed: tuple[str, Labels]
    returned: tuple[str, Labels]
    dropped: tuple[str, Labels]


_KEYS: Final = {
    protocol: _Keys(
        *(
            (f"global_messages_{name}", (protocol,))
            for name in (
                *("received", "received_confirm", "routed", "confirmed"),
                *("unroutable_returned", "unroutable_dropped"),
            )
        )
    )
    for protocol in PROTOCOLS.values()
}


class _Fates(NamedTuple):
    """What became of the messages of a run that were published to one exchange."""

    exchange: str
    came: int
    returned: int
    dropped: int


def _by_exchange(request: requests.PublishRequest, ways: list[Selection] | None) -> list[_Fates]:
    """Return what became of the messages of each exchange of a run.

    ways  to the queues; None: every message is for one
    """
    table, first, last = request.table, request.first, request.last
    entries, ids = table.routes.entries, distinct_routes(table, first, last)
    names: dict[bytes, int] = {}
    groups = array("I", bytes(4 * len(entries)))
    for route_id in ids:
        # The messages of an exchange that are mandatory are a group of their own.
        route = entries[route_id]
        groups[route_id] = 2 * names.setdefault(route.exchange, len(names)) + route.mandatory
    count, whole = 2 * len(names), Selection(table, first, last)
    came, missed = count_groups([whole], groups, count), [0] * count
    if ways is not None:
        missing = Selection(table, first, last, array("I", nowhere(ways, first, last)))
        missed = count_groups([missing], groups, count)
    fates = []
    for name, at in names.items():
        dropped, returned = missed[2 * at : 2 * at + 2]
        exchange = name.decode("utf-8", "surrogateescape")
        fates.append(_Fates(exchange, came[2 * at] + came[2 * at + 1], returned, dropped))
    return fates


class PublishCounts:
    """The publishers of one protocol in one vhost: connections of 0.9.1, links and blocks of 1.0.

    name   of the vhost; "": none is open yet
    vhost  its counts, `message_stats.VHOST_COUNTED`
    """

    __slots__ = ("_keys", "_sizes", "_values", "name", "vhost")

    def __init__(self, cluster: Cluster, protocol: str, vhost: str | None) -> None:
        """protocol: the label of the messages; vhost None: none is open yet."""
        self.name = vhost or ""
        self._values = cluster.counters.values
        self._keys = _KEYS[protocol]
        self._sizes = cluster.counters.sizes[protocol]
        self.vhost: Row = zero_vhost_row() if vhost is None else cluster.queue_counts.vhosts[vhost]

    def received(self, table: MessageTable, first: int, last: int, confirm: bool) -> None:
        """Count messages first <= i < last received; confirm: the publisher expects an answer."""
        count = last - first
        if not count:
            return
        # In few calls, none of them for each message but within the interpreter's own loops.
        words, at = memoryview(table.rows).cast("I"), ROW_WORDS * first
        before = words[at - ROW_WORDS + BODY_END] if first else 0
        ends = words[at + BODY_END : ROW_WORDS * last : ROW_WORDS].tolist()
        lengths, sizes = [*map(sub, ends, (before, *ends))], self._sizes
        sizes[-1] += ends[-1] - before
        least, most = bisect_left(SIZES, min(lengths)), bisect_left(SIZES, max(lengths))
        if least == most:
            sizes[least] += count
        else:
            lengths.sort()
            counted = 0
            for bucket in range(least, most):
                below = bisect_right(lengths, SIZES[bucket])
                sizes[bucket] += below - counted
                counted = below
            sizes[most] += count - counted
        self._values[self._keys.received] += count
        if confirm:
            self._values[self._keys.expected] += count
        self.vhost[PUBLISH] += count

    def routed(self, parts: list[Selection], kept: int, first: int, last: int) -> int:
        """Count messages first <= i < last routed; return how many are for no queue.

        parts  one for each queue
        kept   how many of the parts, the last ones, are for exchanges that keep messages
        """
        lost = count_unselected(parts[:-kept] if kept else parts, first, last)
        # In few calls: many messages come one by one.
        whole = len(parts) == 1 and not lost
        self._values[self._keys.routed] += last - first if whole else sum(map(len, parts))
        return lost

    def answered(self, confirmed: int, returned: int) -> None:
        """Count messages of which publishers are told: confirmed, and returned as unroutable."""
        if confirmed:
            self._values[self._keys.confirmed] += confirmed
            self.vhost[CONFIRM] += confirmed
        if returned:
            self._values[self._keys.returned] += returned
            self.vhost[RETURN_UNROUTABLE] += returned

    def dropped(self, count: int) -> None:
        """Count messages that no queue has got, of which the publisher is not told."""
        self._values[self._keys.dropped] += count
        self.vhost[DROP_UNROUTABLE] += count


class ChannelCounts:
    """What one channel has done since it was opened.

    rows       of each queue from which it was delivered messages, by group and name
               of more than COUNTED_QUEUES_MAX queues the last ones share one, without a name
    total      of all of them, and what it has published
    dropped    messages that no queue has got, and of which it was not told
    consumers  that have rows among those of the connection, and have not ended
    key        of the channel in `pairs`, which has its rows, too; None: they are not counted
    """

    __slots__ = ("consumers", "dropped", "key", "pairs", "rows", "total")

    def __init__(self, pairs: PairCounts | None = None, key: ChannelKey | None = None) -> None:
        self.pairs = None if key is None else pairs
        self.key = key
        self.total = zero_row()
        self.dropped = 0
        self.rows: dict[tuple[int, str], Row] = {}
        self.consumers: set[ConsumerId] = set()

    def row(self, queue: QueueRecord) -> Row:
        """Return the counts of a queue, which the caller may increase."""
        key = queue.group, queue.name
        if len(self.rows) >= COUNTED_QUEUES_MAX and key not in self.rows:
            key = OTHERS
        row = self.rows.get(key)
        if row is None:
            if self.pairs is not None and self.key is not None and key is not OTHERS:
                row = self.pairs.deliveries.row(self.key, queue.group)
            row = self.rows[key] = zero_row() if row is None else row
        return row


class _Rows(NamedTuple):
    """Where a consumer's deliveries are counted: its queue never changes."""

    queue: Row
    channel: Row
    of_channel: Row
    kind: Kind


class ClientCounts:
    """Counts for one connection.

    protocol    the label of its messages (`counters.PROTOCOLS`)
    publishing  what it publishes

    Invariants: what was counted as opened is counted as closed once; `_rows` has consumers of
    sessions that have not ended
    """

    __slots__ = (
        "_channels",
        "_cluster",
        "_consuming",
        "_counters",
        "_octets",
        "_opened",
        "_protocol",
        "_queues",
        "_rows",
        "_vhost",
        "publishing",
    )

    def __init__(self, broker: Broker, protocol: str) -> None:
        self._protocol = protocol
        self._cluster = broker.cluster
        self._counters = broker.cluster.counters
        self._queues = broker.cluster.queue_counts
        self._consuming = broker.consuming
        self._opened = False
        self.publishing = PublishCounts(broker.cluster, protocol, None)
        self._vhost = self.publishing.vhost
        self._octets = (0, 0)
        self._channels: dict[SessionId, ChannelCounts] = {}
        self._rows: dict[ConsumerId, _Rows] = {}

    def opened(self, vhost: str) -> None:
        """Count the connection, which has opened its vhost."""
        self._opened = True
        self.publishing = PublishCounts(self._cluster, self._protocol, vhost)
        self._vhost = self.publishing.vhost
        self._counters.add("connections_opened", 1)

    def closed(self) -> None:
        """Count its end."""
        if self._opened:
            self._opened = False
            self._counters.add("connections_closed", 1)

    def flowed(self, received: int, sent: int) -> None:
        """Count octets of the vhost; both are those since the connection was made."""
        before_received, before_sent = self._octets
        self._octets = received, sent
        self._vhost[RECV_OCT] += received - before_received
        self._vhost[SEND_OCT] += sent - before_sent

    def channel_opened(self, session: SessionId, connection: int, number: int) -> None:
        """Count a channel; connection: its number on this node; number: the channel's."""
        key = ChannelKey(session, connection, number)
        pairs = self._queues.pairs
        if pairs is not None:
            pairs.opened(key)
        self._channels[session] = ChannelCounts(pairs, None if pairs is None else key)
        self._counters.add("channels_opened", 1)

    def channel_closed(self, session: SessionId) -> None:
        """Count the end of a channel; repeats are harmless."""
        channel = self._channels.pop(session, None)
        if channel is not None:
            for consumer in channel.consumers:
                self._rows.pop(consumer, None)
            if channel.pairs is not None and channel.key is not None:
                channel.pairs.forget_channel(channel.key)
            self._counters.add("channels_closed", 1)

    def consumer_ended(self, consumer: ConsumerId, session: SessionId) -> None:
        """Forget a consumer, or a number of gets, that holds nothing."""
        self._rows.pop(consumer, None)
        channel = self._channels.get(session)
        if channel is not None:
            channel.consumers.discard(consumer)

    def of_channel(self, session: SessionId) -> ChannelCounts | None:
        """Return what a channel has done; None: it is not open."""
        return self._channels.get(session)

    def row_of(self, session: SessionId, confirmed: int, returned: int) -> Row:
        """Return what a channel has counted, `message_stats.CHANNEL_COUNTED`."""
        channel = self._channels.get(session)
        if channel is None:
            return []
        return [*channel.total, confirmed, returned, channel.dropped]

    # ------------------------------------------------------------ messages

    def published(self, request: requests.PublishRequest) -> None:
        """Count messages received."""
        count = request.last - request.first
        self.publishing.received(request.table, request.first, request.last, request.confirm)
        channel = self._channels.get(request.session)
        if channel is not None:
            channel.total[PUBLISH] += count

    def routed(
        self, request: requests.PublishRequest, parts: list[Selection], kept: int, returned: int
    ) -> list[ExchangeShare]:
        """Count messages routed; returned: how many the publisher gets back.

        parts, kept  see `PublishCounts.routed`
        returns      where the confirms of the run are counted, where they are counted by exchange
        """
        unroutable = self.publishing.routed(parts, kept, request.first, request.last)
        lost = unroutable - returned
        channel = self._channels.get(request.session)
        if lost:
            self.publishing.dropped(lost)
            if channel is not None:
                channel.dropped += lost
        if channel is None or channel.pairs is None or channel.key is None:
            return []
        ways = parts[:-kept] if kept else parts
        fates = _by_exchange(request, ways if unroutable else None)
        return self._by_pairs(channel.pairs, channel.key, request.confirm, fates)

    def _by_pairs(
        self, pairs: PairCounts, channel: ChannelKey, confirm: bool, fates: list[_Fates]
    ) -> list[ExchangeShare]:
        shares, vhost = [], self.publishing.name
        for one in fates:
            row = pairs.publishes.row(channel, (vhost, one.exchange))
            if row is not None:
                row[PUBLISHED] += one.came
                row[RETURNED] += one.returned
                row[DROPPED] += one.dropped
                if confirm:
                    shares.append(ExchangeShare(row, one.came))
        return shares

    def delivered(
        self, consumer: ConsumerId, session: SessionId, no_ack: bool, delivery: Delivery
    ) -> None:
        """Count a run for a consumer."""
        rows = self._rows.get(consumer) or self._begun(consumer, session)
        if rows is not None:
            count = delivery.last - delivery.first + 1
            at, how = (
                (DELIVER_NO_ACK, "consume_auto_ack") if no_ack else (DELIVER, "consume_manual_ack")
            )
            self._handed_out(rows, at, how, count, delivery.acquired_count > 0)

    def got(self, request: requests.GetRequest, result: object, queue: QueueRecord) -> None:
        """Count what a basic.get of a queue has found, unless it failed."""
        if isinstance(result, requests.GotMessage):
            consumer = result.getter or request.consumer
            rows = self._rows.get(consumer) or self._begun(consumer, request.session)
            if rows is not None:
                again = result.delivery.acquired_count > 0
                at, how = GET, "get_manual_ack"
                if request.no_ack:
                    at, how = GET_NO_ACK, "get_auto_ack"
                self._handed_out(rows, at, how, 1, again)
        elif isinstance(result, requests.GotNothing):
            # Where a read has found the queue empty, it has no consumer of that number.
            self._queues.row(queue.group)[GET_EMPTY] += 1
            self._vhost[GET_EMPTY] += 1
            channel = self._channels.get(request.session)
            if channel is not None:
                channel.row(queue)[GET_EMPTY] += 1
                channel.total[GET_EMPTY] += 1
            labels = self._protocol, QUEUE_TYPES[queue.config.kind]
            self._counters.add("global_messages_get_empty", 1, *labels)

    def acknowledged(self, consumer: ConsumerId, msg_ids: Iterable[tuple[int, int]]) -> None:
        """Count messages acknowledged or, in AMQP 1.0, accepted; ranges with their last."""
        rows = self._rows.get(consumer)
        if rows is not None:
            count = sum([last - first + 1 for first, last in msg_ids])
            rows.queue[ACK] += count
            rows.channel[ACK] += count
            rows.of_channel[ACK] += count
            self._vhost[ACK] += count
            labels = self._protocol, QUEUE_TYPES[rows.kind]
            self._counters.add("global_messages_acknowledged", count, *labels)

    def _handed_out(self, rows: _Rows, at: int, how: str, count: int, again: bool) -> None:
        for row in (rows.queue, rows.channel, rows.of_channel, self._vhost):
            row[at] += count
            if again:
                row[REDELIVER] += count
        self._counters.delivered(self._protocol, rows.kind, how, count, again)

    def _begun(self, consumer: ConsumerId, session: SessionId) -> _Rows | None:
        """Return where a consumer's deliveries are counted; None: its queue was deleted."""
        queue = self._consuming.queue_of(consumer)
        if queue is None:
            return None
        channel = self._channels.get(session)
        if channel is not None:
            channel.consumers.add(consumer)
        channel = ChannelCounts() if channel is None else channel
        own = channel.row(queue)
        rows = _Rows(self._queues.row(queue.group), own, channel.total, queue.config.kind)
        self._rows[consumer] = rows
        return rows
