"""Messages to the queues they are routed to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from warren_broker.cluster.group_client import GroupClient
from warren_broker.cluster.queues import Queues
from warren_broker.kernel import (
    CC,
    MessageTable,
    Selection,
    distinct_routes,
    partition,
)
from warren_broker.queue.commands import Refused
from warren_broker.wire.amqp091 import properties

Parts: TypeAlias = list[tuple[int, int, int]]
"""(first, last, queues) of messages first <= i < last; covering a run, in order."""
OnRouted: TypeAlias = Callable[[Parts], None]
OnConfirmed: TypeAlias = Callable[[int, int, bool], None]
"""(first, last, ok), once per queue of a part."""


class Publishing:
    """Routes runs of messages and hands them to the queues' uplinks."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def publish(
        self, vhost: str, table: MessageTable, first: int, last: int,
        on_routed: OnRouted | None, on_confirmed: OnConfirmed | None, flags: int = 0,
    ) -> list[GroupClient]:
        """Messages first <= i < last; the uplinks they went to, for backpressure.

        on_routed     called once, before any confirm; None: nobody wants to know
        on_confirmed  called once for each queue of each routable part
        """
        definitions = self._queues.definitions
        _ = definitions.state  # the topology follows the state
        topology = definitions.topology
        ids = distinct_routes(table, first, last)
        entries = table.routes.entries
        slow = bool(flags & CC)
        targets: dict[int, tuple[str, ...]] = {}
        for route_id in ids:
            route = entries[route_id]
            exchange = route.exchange.decode("utf-8", "replace")
            if slow or topology.needs_headers(vhost, exchange):
                return self._publish_slowly(vhost, table, first, last, on_routed, on_confirmed)
            key = route.routing_key.decode("utf-8", "surrogateescape")
            targets[route_id] = topology.route(vhost, exchange, key, None)
        if len(ids) == 1:
            names = targets[ids[0]]
            whole = [(first, last, len(names))]
            chosen = [(name, Selection(table, first, last)) for name in names]
            return self._hand_out(vhost, chosen, whole, on_routed, on_confirmed)
        return self._publish_mixed(vhost, table, first, last, targets, on_routed, on_confirmed)

    def _publish_mixed(
        self, vhost: str, table: MessageTable, first: int, last: int,
        targets: dict[int, tuple[str, ...]],
        on_routed: OnRouted | None, on_confirmed: OnConfirmed | None,
    ) -> list[GroupClient]:
        """Several routes in one run: every routable part is answered by every queue of the run."""
        names = list(dict.fromkeys(name for hit in targets.values() for name in hit))
        numbers = {name: number for number, name in enumerate(names)}
        by_route = [
            tuple(numbers[name] for name in targets.get(route_id, ()))
            for route_id in range(len(table.routes.entries))
        ]
        selections = partition(table, first, last, by_route, len(names))
        if all(targets.values()):
            parts = [(first, last, len(names))]
        else:
            parts = list(_parts(table, first, last, targets, len(names)))
        chosen = list(zip(names, selections, strict=True))
        return self._hand_out(vhost, chosen, parts, on_routed, on_confirmed)

    def _publish_slowly(
        self, vhost: str, table: MessageTable, first: int, last: int,
        on_routed: OnRouted | None, on_confirmed: OnConfirmed | None,
    ) -> list[GroupClient]:
        """Message by message, where its headers decide."""
        touched: list[GroupClient] = []
        parts: Parts = []
        chosen: list[list[tuple[str, Selection]]] = []
        for i in range(first, last):
            names = self._route_one(vhost, table, i)
            parts.append((i, i + 1, len(names)))
            chosen.append([(name, Selection(table, i, i + 1)) for name in names])
        if on_routed is not None:
            on_routed(parts)
        for part, one in zip(parts, chosen, strict=True):
            touched += self._hand_out(vhost, one, [part], None, on_confirmed)
        return list(dict.fromkeys(touched))

    def _route_one(self, vhost: str, table: MessageTable, i: int) -> tuple[str, ...]:
        topology = self._queues.definitions.topology
        route = table.route(i)
        exchange = route.exchange.decode("utf-8", "replace")
        headers = properties.decode(table.properties_of(i)).headers or {}
        keys = [route.routing_key.decode("utf-8", "surrogateescape")]
        for name in ("CC", "BCC"):
            more = headers.get(name)
            if isinstance(more, list):
                keys += [key for key in more if isinstance(key, str)]
        hits: dict[str, None] = {}
        for key in keys:
            hits.update(dict.fromkeys(topology.route(vhost, exchange, key, headers)))
        return tuple(hits)

    def _hand_out(
        self, vhost: str, chosen: list[tuple[str, Selection]], parts: Parts,
        on_routed: OnRouted | None, on_confirmed: OnConfirmed | None,
    ) -> list[GroupClient]:
        if on_routed is not None:
            on_routed(parts)
        routable = [(first, last) for first, last, queues in parts if queues]
        state = self._queues.definitions.state
        touched = []
        for name, selection in chosen:
            queue = state.queue(vhost, name)
            assert queue is not None, (vhost, name)
            client = self._queues.client(queue)
            on_reply = None if on_confirmed is None else _confirmer(routable, on_confirmed)
            client.publish(selection, selection.size_bytes(), on_reply)
            touched.append(client)
        return touched


def _confirmer(routable: list[tuple[int, int]], tell: OnConfirmed) -> Callable[[Any, int], None]:
    def on_reply(reply: Any, index: int) -> None:
        # A queue deleted under way takes nothing and refuses nothing: to the publisher it is as if
        # it had never been routed to.
        ok = not isinstance(reply, Refused) or reply.reason == "deleted"
        for first, last in routable:
            tell(first, last, ok)

    return on_reply


def _parts(
    table: MessageTable, first: int, last: int, targets: dict[int, tuple[str, ...]], queues: int
) -> Iterator[tuple[int, int, int]]:
    """Runs of routable and unroutable messages."""
    start, routed = first, bool(targets[table.route_id(first)])
    for i in range(first + 1, last):
        here = bool(targets[table.route_id(i)])
        if here != routed:
            yield start, i, queues if routed else 0
            start, routed = i, here
    yield start, last, queues if routed else 0
