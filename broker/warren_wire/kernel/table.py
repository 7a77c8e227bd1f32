"""The messages of a connection that are not in a block yet."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from functools import lru_cache

from warren_wire.block.layout import LENGTH_MAX, PRIORITY_DEFAULT, PRIORITY_MAX, TTL_NONE
from warren_wire.kernel.items import Route

ROW = struct.Struct("=5I")
"""A message: route id, end of its properties, end of its body, ttl_ms, priority | flags << 8.

SILENT is set in the priority's octet of a message without priority: a queue has its own default.
"""
ROW_WORDS = 5
SILENT = 0x80


@lru_cache(maxsize=64)
def lanes(priority_max: int, priority_default: int) -> bytes:
    """Return the table: octet of a row -> the priority that a queue with these settings gives."""
    assert 0 <= priority_max <= PRIORITY_MAX, priority_max
    assert 0 <= priority_default <= PRIORITY_MAX, priority_default
    return bytes(
        min(priority_default if octet & SILENT else octet & PRIORITY_MAX, priority_max)
        for octet in range(256)
    )


def silent(priority: int, properties: bytes | memoryview) -> bool:
    """Return whether a message has no priority: bit 11 of the properties' flags is not set."""
    return priority == PRIORITY_DEFAULT and not (len(properties) and properties[0] & 0x08)


class Routes:
    """Distinct routes, numbered from 0 in the order first seen; only grows.

    entries  route id -> Route
    ids      exchange, routing key with their length octets, and the flag octet, as in basic.publish
             -> route id
    """

    __slots__ = ("entries", "ids")

    def __init__(self) -> None:
        self.entries: list[Route] = []
        self.ids: dict[bytes, int] = {}

    def add_raw(self, raw: bytes) -> int:
        """Return the id of a well-formed route as in basic.publish, without the reserved short."""
        known = self.ids.get(raw)
        if known is not None:
            return known
        split = 1 + raw[0]
        end = split + 1 + raw[split]
        assert end + 1 == len(raw), raw
        route = Route(raw[1:split], raw[split + 1 : end], bool(raw[end] & 1))
        self.ids[raw] = len(self.entries)
        self.entries.append(route)
        return len(self.entries) - 1

    def add(self, route: Route) -> int:
        """Return the id of a route; exchange and routing key hold at most 255 bytes each."""
        exchange, key = route.exchange, route.routing_key
        assert len(exchange) <= 255 and len(key) <= 255, route
        raw = b"%c%b%c%b%c" % (len(exchange), exchange, len(key), key, route.mandatory)
        return self.add_raw(raw)


class MessageTable:
    """Messages in columns, in the order received; filled by a FrameScanner or by `append`.

    rows        ROW for each message
    properties  flags and property list of each, back to back
    bodies      back to back; of a block from outside a view of its bytes (`admit.load_block`)
    routes      meaning of the route ids; shared by the tables of a connection while it stays small

    Invariants: len(rows) == count * ROW.size; the ends in rows ascend and the last ones are the
    lengths of the areas. Hold no view of the three areas across a feed: they grow in place.
    """

    __slots__ = ("bodies", "count", "properties", "routes", "rows")

    def __init__(self, routes: Routes | None = None) -> None:
        self.count = 0
        self.rows = bytearray()
        self.properties = bytearray()
        self.bodies: bytearray | memoryview = bytearray()
        self.routes = Routes() if routes is None else routes

    def append(
        self,
        route: Route,
        properties: bytes,
        body: bytes,
        priority: int = PRIORITY_DEFAULT,
        ttl_ms: int = TTL_NONE,
        flags: int = 0,
    ) -> int:
        """Append one message (slow) and return its position; for changed or generated messages.

        At the default priority, AMQP 0.9.1 properties without a priority count as having none.
        """
        assert 0 <= priority <= PRIORITY_MAX, priority
        assert 0 <= flags <= 0xFFFF, flags
        assert isinstance(self.bodies, bytearray), "a block from outside is not appended to"
        route_id = self.routes.add(route)
        assert len(self.properties) + len(properties) <= LENGTH_MAX
        assert len(self.bodies) + len(body) <= LENGTH_MAX
        self.properties += properties
        self.bodies += body
        octet = priority | SILENT if silent(priority, properties) else priority
        self.rows += ROW.pack(
            route_id, len(self.properties), len(self.bodies), ttl_ms, octet | flags << 8
        )
        self.count += 1
        return self.count - 1

    def _row(self, i: int) -> tuple[int, int, int, int, int]:
        if not 0 <= i < self.count:
            raise IndexError(f"message {i} of a table of {self.count}")
        route, properties, body, ttl, mixed = ROW.unpack_from(self.rows, i * ROW.size)
        return route, properties, body, ttl, mixed

    def properties_of(self, i: int) -> bytes:
        """Return property flags and list of message i."""
        start = self._row(i - 1)[1] if i else 0
        return bytes(self.properties[start : self._row(i)[1]])

    def body(self, i: int) -> bytes:
        """Return the body of message i."""
        start = self._row(i - 1)[2] if i else 0
        return bytes(self.bodies[start : self._row(i)[2]])

    def route_id(self, i: int) -> int:
        """Return the position of its route in routes.entries."""
        return self._row(i)[0]

    def route_ids(self, first: int, last: int) -> list[int]:
        """Return the positions of the routes of messages first <= i < last."""
        words = memoryview(self.rows).cast("I")
        return words[ROW_WORDS * first : ROW_WORDS * last : ROW_WORDS].tolist()

    def route(self, i: int) -> Route:
        """Return its route."""
        return self.routes.entries[self._row(i)[0]]

    def ttl_ms(self, i: int) -> int:
        """Return its expiration, TTL_NONE for none."""
        return self._row(i)[3]

    def priority(self, i: int) -> int:
        """Return its priority, 0 to PRIORITY_MAX; PRIORITY_DEFAULT where it has none."""
        return self._row(i)[4] & PRIORITY_MAX

    def lane(self, i: int, of_queue: bytes) -> int:
        """Return the priority that a queue gives it; of_queue: see `lanes`."""
        return of_queue[self._row(i)[4] & 0xFF]

    def flags(self, i: int) -> int:
        """Return its flags (items.py)."""
        return self._row(i)[4] >> 8

    def size_bytes(self, first: int, last: int) -> int:
        """Return the bytes of bodies and properties of messages first <= i < last."""
        if first >= last:
            return 0
        before = self._row(first - 1) if first else (0, 0, 0, 0, 0)
        end = self._row(last - 1)
        return end[1] - before[1] + end[2] - before[2]


class Selection:
    """Some messages of a table: all of first <= i < last, or those in `indices`.

    indices  ascending, array("I"); None: all of first <= i < last
    """

    __slots__ = ("first", "indices", "last", "table")

    def __init__(
        self, table: MessageTable, first: int, last: int, indices: array[int] | None = None
    ) -> None:
        assert 0 <= first <= last <= table.count, (first, last, table.count)
        self.table = table
        self.first = first
        self.last = last
        self.indices = indices

    def __len__(self) -> int:
        return self.last - self.first if self.indices is None else len(self.indices)

    def __iter__(self) -> Iterator[int]:
        """Iterate over positions in the table; per message, for slow paths and tests."""
        return iter(range(self.first, self.last) if self.indices is None else self.indices)

    def size_bytes(self) -> int:
        """Return the bytes of bodies and properties; per message when indices are given."""
        if self.indices is None:
            return self.table.size_bytes(self.first, self.last)
        return sum(self.table.size_bytes(i, i + 1) for i in self.indices)
