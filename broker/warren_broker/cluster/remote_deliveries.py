"""Deliveries from a queue's leader to consumers on other nodes, bounded in bytes.

1. A consumer's node has no copy of the queue: the messages go with their deliveries.  2. Its
prefetch is 10,000, and each message has a mebibyte.  3. The queue hands all of that out in one
entry. If the leader sent it at once, both nodes would hold 10 GB, of which the consumer's node
drops what the client has no room for.  So what is on its way to one node, for all its consumers of
all queues that this node leads, is bounded: NODE_WINDOW_BYTES, and one message. The rest waits as
numbers, which the queue's state has as well, and follows in pieces, one for each consumer in turn,
as the other node reports what it has taken.
Replayed by tests/broker/cluster/test_remote_deliveries.py

A node takes everything at once, also what it then drops; so no client that does not read delays
another one's messages. For a consumer that has no room it says so (`DeliveriesRefused`), and the
leader drops what waits for it: the node asks again for all of it (`GroupClient.resume`). That
question cannot overtake the refusal, as both go to the leader on one connection.

A connection's end is the end of what was on its way and of what waits: every consumer is resumed at
the next one.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from msgspec.structs import replace

from warren_broker.cluster import messages
from warren_broker.cluster.client.queue_client import GroupClient
from warren_broker.cluster.leader.block_cache import BlockCache
from warren_machines.queue.commands import Delivery, part_of, rest_of
from warren_machines.queue.effects import ActiveIs, CancelConsumer, Deliver
from warren_raft.runtime.host import Host
from warren_raft.storage.errors import EntryDamaged
from warren_wire.block.block import Block

log = logging.getLogger(__name__)

NODE_WINDOW_BYTES: Final = 8 << 20
"""Bytes of messages on their way to a node that it has not reported as taken; and one message."""
PIECE_BYTES: Final = 1 << 20
"""Bytes of one message between nodes, or one message of a client."""
_REPORTS: Final = 4
"""Reports for each window."""

Key: TypeAlias = tuple[int, int, int]
"""Group, uplink, consumer."""
Told: TypeAlias = messages.ConsumerCancelled | messages.ConsumerActive
"""What a consumer is told among its deliveries."""
LateDelivery: TypeAlias = "tuple[str, messages.Delivered, memoryview]"


class DeliveringNode(Protocol):
    """The part of the cluster that both sides need."""

    host: Host
    stored: BlockCache
    handlers: dict[type, Callable[[str, Any, memoryview], None]]
    on_peer_up: list[Callable[[str], None]]
    on_peer_down: list[Callable[[str], None]]

    def client(self, group: int) -> GroupClient | None:
        """Return this node's own client of the group."""


@dataclass(slots=True)
class _Window:
    """What is on its way to one node, and what waits.

    under_way  bytes
    lanes      what waits for each consumer, in its order; consumers in turn. None is empty
    of_group   keys of the lanes of each group
    damaged    consumers that wait for an entry's repair

    Invariant: while there are lanes of others than the damaged, under_way is the window or more
    """

    under_way: int = 0
    lanes: OrderedDict[Key, deque[Delivery | Told]] = field(default_factory=OrderedDict)
    of_group: dict[int, dict[Key, None]] = field(default_factory=dict)
    damaged: set[Key] = field(default_factory=set)

    def put(self, key: Key, lane: deque[Delivery | Told]) -> None:
        """Put a lane last, or leave it in its place."""
        self.lanes[key] = lane
        self.of_group.setdefault(key[0], {})[key] = None

    def take(self, key: Key) -> deque[Delivery | Told]:
        """Take a lane out."""
        keys = self.of_group[key[0]]
        del keys[key]
        if not keys:
            del self.of_group[key[0]]
        return self.lanes.pop(key)


class DeliveryWindows:
    """The leader's side."""

    def __init__(self, cluster: DeliveringNode) -> None:
        self._cluster = cluster
        self._nodes: dict[str, _Window] = {}
        cluster.handlers[messages.DeliveriesTaken] = self._on_taken
        cluster.handlers[messages.DeliveriesRefused] = self._on_refused
        cluster.on_peer_up.append(self._forget)
        cluster.on_peer_down.append(self._forget)

    def deliver(self, node: str, group: int, effect: Deliver) -> None:
        """Send deliveries to a consumer of a node, or keep their numbers until there is room.

        Raises what reading the log raises; some may have been sent by then.
        """
        window = self._nodes.get(node)
        if window is None:
            window = self._nodes[node] = _Window()
        key = (group, effect.uplink, effect.consumer)
        lane = window.lanes.get(key)
        if lane is None:
            lane = deque(effect.deliveries)
            while lane and self._send_piece(node, window, key, lane):
                pass
        else:
            if effect.deliveries[0].first_msg_id <= _last_msg_id(lane):
                _drop_deliveries(lane)  # the answer to a Resume has all of them again
            lane.extend(effect.deliveries)
        if lane:
            window.put(key, lane)

    def follow(
        self,
        node: str,
        group: int,
        effect: CancelConsumer | ActiveIs,
    ) -> None:
        """Send what a consumer is told after the deliveries that wait for it."""
        message: Told = (
            messages.ConsumerCancelled(group, effect)
            if isinstance(effect, CancelConsumer)
            else messages.ConsumerActive(group, effect)
        )
        window = self._nodes.get(node)
        key = (group, effect.uplink, effect.consumer)
        lane = None if window is None else window.lanes.get(key)
        if lane is not None:
            lane.append(message)
        else:
            self._cluster.host.send(node, messages.encode(message))

    def stop(self, group: int) -> None:
        """Drop what waits of a group that this node no longer leads."""
        for window in self._nodes.values():
            for key in list(window.of_group.get(group, ())):
                window.take(key)
                window.damaged.discard(key)

    def _forget(self, node: str) -> None:
        self._nodes.pop(node, None)

    # ------------------------------------------------------------ sending

    def _send_piece(
        self, node: str, window: _Window, key: Key, lane: deque[Delivery | Told]
    ) -> bool:
        """Send what comes first of a lane, in one message; return False when there is no room."""
        host, group = self._cluster.host, key[0]
        told = lane[0]
        if not isinstance(told, Delivery):
            lane.popleft()
            host.send(node, messages.encode(told))
            return True
        deliveries: list[Delivery] = []
        terms: list[int] = []
        blobs: list[bytes] = []
        size = 0
        while lane and isinstance(lane[0], Delivery) and size < PIECE_BYTES:
            delivery = lane[0]
            term = host.sent_term(group, node, delivery.index)
            if not term:
                if window.under_way + size >= NODE_WINDOW_BYTES:
                    break
                try:
                    block = self._cluster.stored.for_delivery(group, delivery.index, delivery.last)
                except (EntryDamaged, KeyError):
                    if not deliveries:
                        raise
                    break
                count = _fitting(block, delivery, PIECE_BYTES - size)
                if count < delivery.last - delivery.first + 1:
                    lane[0] = rest_of(delivery, count)
                    delivery = part_of(delivery, 0, count)
                    lane.appendleft(delivery)
                blobs.append(block.slice(delivery.first, delivery.last + 1))
                size += len(blobs[-1])
            lane.popleft()
            deliveries.append(delivery)
            terms.append(term)
        if not deliveries:
            return False
        window.under_way += size
        lengths = tuple(map(len, blobs))
        message = messages.Delivered(*key, tuple(deliveries), tuple(terms), lengths)
        host.send(node, messages.encode(message, *blobs))
        return True

    def _pump(self, node: str) -> None:
        """Send what waits, a piece for each consumer in turn, as far as there is room."""
        window = self._nodes.get(node)
        while window is not None and window.under_way < NODE_WINDOW_BYTES:
            key = next((key for key in window.lanes if key not in window.damaged), None)
            if key is None:
                return
            lane = window.take(key)
            try:
                self._send_piece(node, window, key, lane)
            except EntryDamaged as damage:
                window.damaged.add(key)
                healed = partial(self._healed, node, key)
                self._cluster.host.repair.when(key[0], damage.index, healed)
            except KeyError:
                # It was taken back while it waited, and has left the queue. The consumer's node
                # sees the gap, and asks.
                log.info("group %d: a delivery to %s is no longer needed", key[0], key[1:])
                lane.popleft()
            if lane:
                window.put(key, lane)

    def _healed(self, node: str, key: Key) -> None:
        window = self._nodes.get(node)
        if window is not None:
            window.damaged.discard(key)
            self._pump(node)

    # ------------------------------------------------------------ reports

    def _on_taken(self, node: str, message: messages.DeliveriesTaken, rest: memoryview) -> None:
        window = self._nodes.get(node)
        if window is not None:
            window.under_way = max(0, window.under_way - message.size_bytes)
            self._pump(node)

    def _on_refused(self, node: str, message: messages.DeliveriesRefused, rest: memoryview) -> None:
        key = (message.group, message.uplink, message.consumer)
        window = self._nodes.get(node)
        lane = None if window is None else window.lanes.get(key)
        if window is None or lane is None:
            return
        _drop_deliveries(lane)
        for told in lane:
            assert not isinstance(told, Delivery), told
            self._cluster.host.send(node, messages.encode(told))
        window.take(key)
        window.damaged.discard(key)


def _last_msg_id(lane: deque[Delivery | Told]) -> int:
    """Return the number of the last delivery that waits; -1: none does."""
    for each in reversed(lane):
        if isinstance(each, Delivery):
            return each.first_msg_id + each.last - each.first
    return -1


def _drop_deliveries(lane: deque[Delivery | Told]) -> None:
    """Keep only what the consumer is told otherwise."""
    rest = [each for each in lane if not isinstance(each, Delivery)]
    lane.clear()
    lane.extend(rest)


def _fitting(block: Block, delivery: Delivery, size_bytes: int) -> int:
    """Return how many of a run's messages have at most so many bytes, one at least."""
    first, end = delivery.first, delivery.last + 1
    if block.size_bytes(first, end) <= size_bytes:
        return end - first
    ends = range(first + 1, end + 1)
    return max(1, bisect_right(ends, size_bytes, key=partial(block.size_bytes, first)))


class RemoteDeliveries:
    """The side of the consumers' node.

    _late      deliveries that wait for the repair of an entry that this member has, by consumer
    _untold    bytes that were taken and not reported, by leader
    """

    def __init__(self, cluster: DeliveringNode) -> None:
        self._cluster = cluster
        self._late: dict[tuple[int, int], list[LateDelivery]] = {}
        self._untold: dict[str, int] = {}
        cluster.handlers[messages.Delivered] = self._on_delivered
        cluster.on_peer_up.append(self._forget)
        cluster.on_peer_down.append(self._forget)

    def stop(self, group: int) -> None:
        """Drop what waits for a repair of a deleted group."""
        for key in [key for key in self._late if key[0] == group]:
            del self._late[key]

    def _forget(self, node: str) -> None:
        self._untold.pop(node, None)

    def _on_delivered(self, node: str, message: messages.Delivered, rest: memoryview) -> None:
        self._take(node, message, rest)
        if message.lengths:
            untold = self._untold.get(node, 0) + sum(message.lengths)
            if _REPORTS * untold >= NODE_WINDOW_BYTES:
                self._cluster.host.send(node, messages.encode(messages.DeliveriesTaken(untold)))
                untold = 0
            self._untold[node] = untold

    def _take(self, node: str, message: messages.Delivered, rest: memoryview) -> None:
        client = self._cluster.client(message.group)
        if client is None or message.uplink != self._cluster.host.boot_id:
            return
        late = self._late.get((message.group, message.consumer))
        if late is not None:
            late.append((node, message, rest))
            return
        parts = messages.cut(rest, message.lengths)
        if len(message.terms) != len(message.deliveries) or message.terms.count(0) != len(parts):
            raise messages.MalformedPeerMessage(
                f"{len(message.deliveries)} deliveries with {len(message.terms)} terms and "
                f"{len(parts)} blocks"
            )
        blobs, host = iter(parts), self._cluster.host
        for delivery, term in zip(message.deliveries, message.terms, strict=True):
            if not client.takes(message.consumer):
                self._refuse(node, message)
                return
            if not term:
                block = Block.decode(bytes(next(blobs)))
                client.delivered(message.consumer, moved(delivery), block)
                continue
            # A leader delivers committed entries only, so (index, term) is this entry for good.
            entry = host.entry(message.group, delivery.index, term)
            if entry is None and host.repair.awaits(message.group, delivery.index):
                self._deliver_later(delivery.index, (node, message, rest))
                return
            if entry is None:
                # It was sent, but this member has followed another leader since, or lost it with a
                # connection. What follows would leave a gap: ask the queue to send it all again.
                local = client.consumers.get(message.consumer)
                if local is not None:
                    client.resume(local)
                return
            block = self._cluster.stored.for_delivery(
                message.group, delivery.index, delivery.last, entry.data
            )
            client.delivered(message.consumer, delivery, block)

    def _deliver_later(self, index: int, delivered: LateDelivery) -> None:
        """Hold back a delivery of an entry that is damaged here until it has been repaired.

        The same consumer's later deliveries wait behind it; other consumers' do not, since the
        repair may never come.
        """
        message = delivered[1]
        key = message.group, message.consumer
        self._late[key] = [delivered]

        def healed() -> None:
            for each in self._late.pop(key, []):
                self._take(*each)

        self._cluster.host.repair.when(message.group, index, healed)

    def _refuse(self, node: str, message: messages.Delivered) -> None:
        """Have the leader drop what waits for a consumer, which will ask for all of it."""
        if message.lengths:
            refused = messages.DeliveriesRefused(message.group, message.uplink, message.consumer)
            self._cluster.host.send(node, messages.encode(refused))


def moved(delivery: Delivery) -> Delivery:
    """Return the same delivery, of a block that was cut to it."""
    return replace(delivery, first=0, last=delivery.last - delivery.first)
