"""Links of a connection of the connector, and what they need of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pika

from pyspark_warren.options.options import Options
from warren_wire.amqp10.client import ClientEngine, ClientLink
from warren_wire.amqp10.proton import Condition, Session, Terminus


class Peer(Protocol):
    """A connection; see `connection.Peer10`."""

    options: Options
    one: pika.ConnectionParameters
    doing: str
    at: str
    session: Session | None

    @property
    def client(self) -> ClientEngine: ...

    @property
    def over(self) -> bool: ...

    def post(self, callback: Callable[[], None]) -> None: ...

    def later(self, pause_s: float, callback: Callable[[], None]) -> None: ...

    def flush_later(self) -> None: ...

    def ended_by(self, condition: Condition | None, otherwise: str) -> None: ...


class Link10(ClientLink):
    """One link of a connection: it is attached, or the connection fails."""

    def __init__(self, peer: Peer, link: Any) -> None:
        self.peer, self.link = peer, link
        self.is_attached = False
        peer.client.attach(self)

    def attached(self) -> None:
        """See ClientLink: one that is refused is closed then."""
        link = self.link
        terminus = link.remote_source if link.is_receiver else link.remote_target
        if terminus.type != Terminus.UNSPECIFIED and not self.is_attached:
            self.is_attached = True
            self.ready()

    def ready(self) -> None:
        """Use the link, which is attached."""

    def closed(self, condition: Condition | None) -> None:
        """See ClientLink."""
        self.peer.ended_by(condition, "it has closed the link")
