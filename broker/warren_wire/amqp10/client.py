"""An AMQP 1.0 client without a socket and a clock: bytes in, calls of its links, bytes out.

The client library drives it by the thread that waits, a shovel by pika's loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from warren_wire.amqp10.engine import SESSION_WINDOW_BYTES, Engine
from warren_wire.amqp10.proton import Condition, Delivery, Event, Link, Session, symbol

SESSION: Final = "session"
CONNECTION: Final = "connection"
TRANSPORT: Final = "transport"
_NOT_ALLOWED: Final = "amqp:not-allowed"


class ClientLink:
    """The owner of a link, called while what has arrived is handled."""

    link: Any

    def attached(self) -> None:
        """Handle the peer's attach; that of a refused link has no terminus."""

    def delivered(self, delivery: Delivery) -> None:
        """Handle a change of a delivery."""

    def credited(self) -> None:
        """Handle a change of the credit."""

    def closed(self, condition: Condition | None) -> None:
        """Handle the close or detach of the link by the peer."""


class ClientEngine:
    """A connection, its sessions and links.

    opened  called when the peer has opened the connection
    over    called with what the peer has ended (SESSION, CONNECTION or TRANSPORT), and with why
    Links that the peer attaches are refused.
    """

    def __init__(
        self,
        container: str,
        hostname: str,
        properties: dict[str, str],
        idle_s: float,
        mechanism: str | None,
        user: str | None,
        password: str | None,
        opened: Callable[[], None],
        over: Callable[[str, Condition | None], None],
    ) -> None:
        """mechanism: of SASL; None: no SASL at all."""
        self._opened, self._over = opened, over
        self._sessions: list[Session] = []
        self._links: dict[tuple[str, bool], ClientLink] = {}
        self._freed = False
        self.engine = Engine(server=False, container=container, idle_timeout_s=idle_s)
        connection = self.engine.connection
        connection.hostname = hostname
        connection.properties = {symbol(name): value for name, value in properties.items()}
        if user is not None:
            connection.user, connection.password = user, password
        if mechanism is not None:
            sasl = self.engine.transport.sasl()
            sasl.allow_insecure_mechs = True
            sasl.allowed_mechs(mechanism)
        self.engine.bind()
        connection.open()

    def session(self) -> Session:
        """Begin a session."""
        made = self.engine.connection.session()
        made.incoming_capacity = SESSION_WINDOW_BYTES
        made.open()
        self._sessions.append(made)
        return made

    def attach(self, handler: ClientLink) -> None:
        """Attach a link, of a session of this client; no other has its name and direction."""
        self._links[_key(handler.link)] = handler
        handler.link.open()

    def receive(self, data: Any) -> None:
        """Handle bytes that have arrived."""
        for _ in self.engine.receive(data):
            self.handle()

    def handle(self) -> None:
        """Handle what there is: after `receive`, `tick` and the end of the input."""
        for event in () if self._freed else self.engine.events():
            if self._freed:
                return
            kind = event.type
            if kind in _OF_LINKS:
                self._handle_link(kind, event)
            elif kind == Event.CONNECTION_REMOTE_OPEN:
                self._opened()
            elif kind == Event.SESSION_REMOTE_CLOSE and event.session in self._sessions:
                self._over(SESSION, event.session.remote_condition)
            elif kind == Event.CONNECTION_REMOTE_CLOSE:
                event.connection.close()
                self._over(CONNECTION, event.connection.remote_condition)
            elif kind == Event.TRANSPORT_ERROR:
                self._over(TRANSPORT, event.transport.condition)

    def _handle_link(self, kind: object, event: Event) -> None:
        link = event.link
        handler = self._links.get(_key(link))
        if handler is None:
            if kind == Event.LINK_REMOTE_OPEN:
                link.condition = Condition(_NOT_ALLOWED, "this client attaches its links itself")
                link.open()
                link.close()
            elif kind in _ENDS:
                link.close()
                link.free()
        elif kind == Event.DELIVERY:
            handler.delivered(event.delivery)
        elif kind == Event.LINK_FLOW:
            handler.credited()
        elif kind == Event.LINK_REMOTE_OPEN:
            handler.attached()
        else:
            del self._links[_key(link)]
            handler.closed(link.remote_condition)

    def end_of_input(self) -> None:
        """Handle that the peer sends nothing more."""
        self.engine.end_of_input()
        self.handle()

    def close(self) -> None:
        """Close the connection, after what is to be sent before."""
        self.engine.connection.close()

    def free(self) -> None:
        """Free Proton's objects: nothing is handled any more."""
        self._freed = True
        self.engine.free()


def _key(link: Link) -> tuple[str, bool]:
    """Return a link's key: a name may be used once in each direction."""
    return link.name, link.is_sender


_ENDS: Final = (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH)
_OF_LINKS: Final = (Event.DELIVERY, Event.LINK_FLOW, Event.LINK_REMOTE_OPEN, *_ENDS)
