"""A published message while its frames arrive."""

from __future__ import annotations

from warren_wire.kernel.items import Route


class Content:
    """A basic.publish with an incomplete header or body.

    route        the route, not its id: the dictionary may be replaced before the message is
                 complete
    mixed, ttl   as in a table's row, once the header has arrived (properties is not None)
    left         bytes of the body still to come
    body         grows by what arrives, whatever size its header gives
    """

    __slots__ = ("body", "left", "mixed", "properties", "route", "ttl")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.properties: bytes | None = None
        self.mixed = 0
        self.ttl = 0
        self.body = bytearray()
        self.left = 0
