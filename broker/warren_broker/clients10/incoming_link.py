"""The base of links on which a client sends large or many messages: bounded, read in turn."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from warren_broker.clients10.link import LinkHost, LinkPart, check_received, drop
from warren_wire.amqp10.endings import extend_window
from warren_wire.amqp10.proton import Delivery, Link
from warren_wire.errors import ContentTooLarge, Refusal

EXTENDED_BYTES: Final = 4 << 20
"""By so much at a time a session's window is extended: each time the client is sent a flow."""


class IncomingLink(LinkPart):
    """A link of messages that are read whole, when the connection has room for them.

    what, bytes_max  one message, for texts, and its limit

    What is not complete does not use up the session's window. 1. Clients send messages in turn, of
    several links, or one that is as large as the window.  2. None is complete when the window is
    full.  3. The window is renewed when something has been read, and only whole messages are: the
    session would wait for ever.  So it is extended; limits.unfinished_bytes_max bounds it.
    Replayed by tests/broker/clients10/test_session_windows.py
    """

    what = "a message"

    def __init__(self, link: Link, host: LinkHost, bytes_max: int) -> None:
        super().__init__(link, host)
        self.bytes_max = bytes_max
        self._waiting = False  # a whole message waits because the connection has enough in flight
        self._unfinished = 0  # bytes of an incomplete message
        self._extended = 0  # bytes of the session's window, beyond those that it has anyway

    def delivery(self, delivery: Delivery) -> None:
        """Handle a message of which a part, or everything, has arrived.

        An aborted one behind messages that wait is dropped in its turn. Settled earlier, the engine
        would free it with its next output, though the link may have come to it meanwhile.
        """
        if delivery.aborted:
            self._count(0)
            if delivery.readable:
                drop(delivery)
            return
        if delivery.pending > self.bytes_max:
            size, limit = delivery.pending, self.bytes_max
            self.refuse(
                ContentTooLarge(
                    f"{self.what} of {size} bytes or more; {limit} is the limit: send smaller ones"
                )
            )
            return
        self._count(delivery.pending if delivery.partial else 0)
        if not delivery.partial and delivery.readable:
            self._waiting = True
            self.wake()
        check_received(self.host)

    def refuse(self, refusal: Refusal) -> None:
        """End the link with an error; what waits, and what arrives later, is not read."""
        if not self.ended:
            super().refuse(refusal)
            self._count(0)
            self.host.discard(self.link)

    def gone(self) -> None:
        """Drop the link's incomplete message: the link has ended."""
        self._count(0)

    def _count(self, unfinished: int) -> None:
        host = self.host
        more, self._unfinished = unfinished - self._unfinished, unfinished
        host.unfinished_bytes += more
        limit = host.limits.unfinished_bytes_max
        if more > 0 and host.unfinished_bytes > limit:
            host.overrun(
                f"{host.unfinished_bytes} bytes of messages that are not complete; a connection "
                f"may have {limit} (limits.unfinished_bytes_max): complete some before sending "
                "others"
            )
        self._extend(unfinished // EXTENDED_BYTES * EXTENDED_BYTES)

    def _extend(self, wanted: int) -> None:
        more, self._extended = wanted - self._extended, wanted
        if more and not self.session_ended:
            extend_window(self.link, more)

    def wake(self) -> bool:
        """Read waiting messages as long as there is room."""
        moved = self.grant()
        while self._waiting and not self.ended and self.may_read():
            current = self.link.current
            if current is None or current.partial or not current.readable:
                self._waiting = False
                break
            if current.aborted:
                drop(current)
                continue
            self.take(current)
            moved = True
        return moved

    def may_read(self) -> bool:
        """Return whether another message may be read."""
        return self.host.may_read()

    @abstractmethod
    def grant(self) -> bool:
        """Give the client credit if it is time; return whether it got some."""

    @abstractmethod
    def take(self, delivery: Delivery) -> None:
        """Read a whole message, the link's current one, and advance the link."""
