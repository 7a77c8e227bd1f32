"""Runs of messages by queue: what is known at once, and what is searched for as work."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from warren_broker.cluster.client.direct_replies import DirectReplies
from warren_broker.cluster.client.queue_client import GroupClient
from warren_broker.cluster.client.relayed import Names
from warren_broker.cluster.definitions import Definitions
from warren_broker.counting.pair_counts import ChannelKey
from warren_machines.routing.matcher import ON_CONTENT, RoutedMessage
from warren_machines.steps import Steps, Work
from warren_wire.amqp091 import properties
from warren_wire.arguments import plain
from warren_wire.errors import Refusal
from warren_wire.kernel import CC, MessageTable, Selection, distinct_routes, partition
from warren_wire.sender_selected import further_keys, has_keys, is_unused

Keep: TypeAlias = Callable[[str, int], bool]
"""(queue, table position) to whether the queue may get that message."""
BCC: Final = "BCC"


class QueuePart(NamedTuple):
    """The messages of a run for one queue, or for a direct reply's consumer.

    stored  the same messages without their BCC headers; the same object where there are none
    kept    the queue is the store of an exchange
    """

    name: str
    selection: Selection
    stored: Selection
    kept: bool = False


class PublishedRun:
    """A run of messages that is published, as its publisher keeps it; this one looks at nothing.

    confirms  whether `confirmed` is called
    counted   whether it is a client's: what the node publishes itself is not counted
    strict    a queue that is deleted meanwhile refuses its messages; False: for the publisher it
              is as if they had never been routed to it
    at_once   all queues are sent theirs in the turn of `routed`, where a fault is contained
    names     of the messages of a relay; empty: it is none's. A store does not look at them
    channel   of AMQP 0.9.1 that has published it
    """

    confirms = counted = strict = at_once = False
    names: Names = MappingProxyType({})
    channel: ChannelKey | None = None

    def guarded(self, call: Callable[[], object]) -> None:
        """Choose and send what goes at once, perhaps in a later turn than it was published in."""
        call()

    def routed(self, parts: list[QueuePart]) -> list[QueuePart]:
        """Return which of the parts are sent; once, before any confirm.

        Those for stores are the last ones. A message in no other part is unroutable.
        """
        return parts

    def refused(self, refusal: Refusal) -> None:
        """Note that the run cannot be routed: nothing else is called."""
        raise refusal

    def sent(self, touched: list[GroupClient]) -> None:
        """Note the uplinks of a run that was submitted, for backpressure."""

    def confirmed(self, number: int, part: QueuePart, ok: bool, refused: list[int] | None) -> None:
        """Note the answer to a part; once per part, by its number in what `routed` returned.

        refused  table positions when only some of its messages are refused
        """

    def unknown(self) -> bool:
        """Take note that a queue may have a relay's messages or not: its only node is unreachable.

        returns  whether `confirmed` is not to be called with a refusal
        """
        return False


class RunRouter:
    """Routes runs of messages by the current definitions."""

    def __init__(self, definitions: Definitions, replies: DirectReplies) -> None:
        self._definitions = definitions
        self._replies = replies

    def exists(self, vhost: str, name: str) -> bool:
        """Return whether there is such a queue, or consumer of direct replies."""
        return self._definitions.state.queue(vhost, name) is not None or self._replies.exists(name)

    def known(
        self, vhost: str, table: MessageTable, first: int, last: int
    ) -> list[QueuePart] | None:
        """Return the parts of a run if the queues of all its routes are known."""
        ids = distinct_routes(table, first, last)
        targets: dict[int, tuple[str, ...]] = {}
        entries, topology = table.routes.entries, self._definitions.topology
        for route_id in ids:
            exchange = entries[route_id].exchange.decode("utf-8", "surrogateescape")
            key = entries[route_id].routing_key.decode("utf-8", "surrogateescape")
            found = topology.known(vhost, exchange, key)
            if found is None:
                return None
            targets[route_id] = found or self._reply(exchange, key)
        return _parts_by_route(table, first, last, ids, targets)

    def _reply(self, exchange: str, key: str) -> tuple[str, ...]:
        """Return the name of a direct reply's consumer, if the route leads to one."""
        return (key,) if not exchange and self._replies.exists(key) else ()

    def search(
        self,
        vhost: str,
        table: MessageTable,
        first: int,
        last: int,
        flags: int,
        start: str | None,
        steps: Steps,
    ) -> Work[list[QueuePart]]:
        """Find the parts of a run; start: as for `_singly`."""
        if flags & CC or start is not None:
            return (yield from self._singly(vhost, table, first, last, flags, start, steps))
        topology = self._definitions.topology
        ids = distinct_routes(table, first, last)
        targets: dict[int, tuple[str, ...]] = {}
        for route_id in ids:
            exchange, key = _ends(table, route_id)
            if (yield from topology.search_dependence(vhost, exchange, steps)):
                return (yield from self._singly(vhost, table, first, last, flags, start, steps))
            found = yield from topology.search(vhost, exchange, RoutedMessage((key,)), steps)
            targets[route_id] = found or self._reply(exchange, key)
        return _parts_by_route(table, first, last, ids, targets)

    def _singly(
        self,
        vhost: str,
        table: MessageTable,
        first: int,
        last: int,
        flags: int,
        start: str | None,
        steps: Steps,
    ) -> Work[list[QueuePart]]:
        """Route message by message, where headers, properties or chance decide.

        start  the exchange to begin with; None: that of each message
        """
        positions: dict[str, list[int]] = {}
        decoded: dict[bytes, bool] = {}
        blind = False
        for i in range(first, last):
            route = table.route(i)
            exchange = start
            if exchange is None:
                exchange = route.exchange.decode("utf-8", "surrogateescape")
            key = route.routing_key.decode("utf-8", "surrogateescape")
            topology = self._definitions.topology
            wanted = decoded.get(route.exchange)
            if wanted is None:
                depends = yield from topology.search_dependence(vhost, exchange, steps)
                wanted = decoded[route.exchange] = bool(flags & CC or depends & ON_CONTENT)
            message = RoutedMessage((key,))
            if wanted:
                fields = properties.decode(table.properties_of(i))
                headers = plain(fields.headers or {})
                blind = blind or isinstance(headers.get(BCC), list)
                if start is None:
                    extra = bool(table.flags(i) & CC)
                else:
                    extra = has_keys(headers) and not is_unused(headers)
                further = further_keys(headers) if extra else ()
                message = RoutedMessage((key, *further), headers, fields)
            names = yield from topology.search(vhost, exchange, message, steps)
            for name in names or self._reply(exchange, key):
                positions.setdefault(name, []).append(i)
            if steps.take(1 + len(names)):
                yield
        return self._parts_by_position(vhost, table, first, last, blind, positions)

    def _parts_by_position(
        self,
        vhost: str,
        table: MessageTable,
        first: int,
        last: int,
        blind: bool,
        positions: dict[str, list[int]],
    ) -> list[QueuePart]:
        """Return the parts, those for stores last.

        blind  some of the messages have a BCC header
        """
        stored, shift = (_without_bcc(table, first, last), first) if blind else (table, 0)
        parts, kept = [], []
        for name, chosen in positions.items():
            selection = Selection(table, first, last, array("I", chosen))
            moved = array("I", [i - shift for i in chosen])
            selected = Selection(stored, first - shift, last - shift, moved)
            queue = self._definitions.state.queue(vhost, name)
            if queue is not None and queue.store_of:
                kept.append(QueuePart(name, selection, selected, True))
            else:
                parts.append(QueuePart(name, selection, selected))
        return parts + kept


def _ends(table: MessageTable, route_id: int) -> tuple[str, str]:
    """Return the exchange and the routing key of a route."""
    route = table.routes.entries[route_id]
    return (
        route.exchange.decode("utf-8", "surrogateescape"),
        route.routing_key.decode("utf-8", "surrogateescape"),
    )


def _parts_by_route(
    table: MessageTable,
    first: int,
    last: int,
    ids: list[int],
    targets: dict[int, tuple[str, ...]],
) -> list[QueuePart]:
    """Return the parts of messages of which the routes decide; ids: the routes of the run."""
    if len(ids) == 1:
        whole = Selection(table, first, last)
        return [QueuePart(name, whole, whole) for name in targets[ids[0]]]
    names = list(dict.fromkeys(name for hit in targets.values() for name in hit))
    numbers = {name: number for number, name in enumerate(names)}
    by_route = [
        tuple(numbers[name] for name in targets.get(route_id, ()))
        for route_id in range(len(table.routes.entries))
    ]
    selections = partition(table, first, last, by_route, len(names))
    return [QueuePart(name, some, some) for name, some in zip(names, selections, strict=True)]


def _without_bcc(table: MessageTable, first: int, last: int) -> MessageTable:
    """Copy messages first <= i < last without their BCC headers."""
    stored = MessageTable()
    for i in range(first, last):
        raw = table.properties_of(i)
        headers = properties.headers(raw)
        if headers.pop(BCC, None) is not None:
            raw = properties.replace(raw, headers=headers)
        stored.append(
            table.route(i), raw, table.body(i), table.priority(i), table.ttl_ms(i), table.flags(i)
        )
    return stored


def kept_parts(parts: list[QueuePart], keep: Keep) -> list[QueuePart]:
    """Drop the messages that a queue may not get."""
    some = []
    for name, selection, stored, kept in parts:
        both = [(i, j) for i, j in zip(selection, stored, strict=True) if keep(name, i)]
        if both:
            chosen, moved = zip(*both, strict=True)
            some.append(
                QueuePart(
                    name,
                    Selection(selection.table, selection.first, selection.last, array("I", chosen)),
                    Selection(stored.table, stored.first, stored.last, array("I", moved)),
                    kept,
                )
            )
    return some
