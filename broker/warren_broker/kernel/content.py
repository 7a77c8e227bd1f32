"""A message while its frames come in."""

from __future__ import annotations

from warren_broker.kernel.items import Route


class Content:
    """A basic.publish whose header or body has not arrived whole.

    route        itself, not its id: the dictionary may start anew before the message is complete
    mixed, ttl   as in a table's row, once the header is there (properties is not None)
    left         bytes of the body still to come
    """

    __slots__ = ("body", "left", "mixed", "properties", "route", "ttl")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.properties: bytes | None = None
        self.mixed = 0
        self.ttl = 0
        self.body = bytearray()
        self.left = 0
