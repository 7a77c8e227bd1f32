"""What a connection's consumers and requests may make its node hold, over all links."""

from __future__ import annotations

from typing import Final, Protocol

LINKS_MAX: Final = 1_024
"""Links of a connection."""
DISCARDED_MAX: Final = 4_096
"""Messages to a link that this end has detached: twice what any link is given credit for."""


LINKS_BEYOND_MAX: Final = 4
"""Links that may each have taken messages beyond the bound of bytes."""


class BoundedLink(Protocol):
    """The link of a consumer."""

    @property
    def waits_to_write(self) -> bool:
        """Whether it has messages that are not written."""
        ...


class ConnectionBounds:
    """Deliveries of all consumers of a connection, and its requests to the management.

    1. A client gives credit for millions of messages, and does not read, or does not settle.
    2. The queue gives them at once. Those that are not written keep their blocks in memory, and
    each that is written and not settled keeps some hundred bytes of the engine's. So both are
    bounded over all links. What is refused stays with the queue, which is asked again
    (`GroupClient.resume`).
    3. The client holds as much as it may on one link, or has closed the window of its session, and
    waits for a message on another one. So a link that holds nothing takes a delivery beyond the
    bound of bytes (LINKS_BEYOND_MAX links at a time), and sends one beyond that of unsettled ones.
    Replayed by tests/broker/amqp10/test_connection_bounds.py

    undelivered_bytes  of deliveries that wait for the client's credit, window or reading
    unsettled          deliveries that were sent and that the client has not settled
    requests           of the management that are carried out
    answers_bytes      of answers to them that are not written
    """

    __slots__ = (
        "_beyond",
        "_undelivered_max",
        "_unsettled_max",
        "answers_bytes",
        "requests",
        "undelivered_bytes",
        "unsettled",
    )

    def __init__(self, undelivered_bytes_max: int, unsettled_max: int) -> None:
        self._undelivered_max = undelivered_bytes_max
        self._unsettled_max = unsettled_max
        self._beyond: set[BoundedLink] = set()
        self.undelivered_bytes = 0
        self.unsettled = 0
        self.requests = self.answers_bytes = 0

    def takes(self, link: BoundedLink, in_turn: bool = True) -> bool:
        """Return whether a link takes its queue's messages now.

        in_turn  no other one waits for room before it
        """
        if in_turn and self.undelivered_bytes < self._undelivered_max:
            return True
        if not self.may_exceed(link):
            return False
        self._beyond.add(link)
        return True

    @property
    def half_free(self) -> bool:
        """Whether it is worth asking for what links have refused."""
        return 2 * self.undelivered_bytes <= self._undelivered_max

    def may_exceed(self, link: BoundedLink) -> bool:
        """Return whether a link may take a delivery beyond the bound of bytes."""
        self._beyond = {each for each in self._beyond if each.waits_to_write}
        return not link.waits_to_write and len(self._beyond) < LINKS_BEYOND_MAX

    def clear(self) -> None:
        """Forget the links: the connection is freed."""
        self._beyond.clear()

    def may_send(self, held: int) -> int:
        """Return how many more deliveries a link may send of which the client holds so many."""
        return max(self._unsettled_max - self.unsettled, 0 if held else 1)
