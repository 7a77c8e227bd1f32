"""A shovel's connection to one of its ends over AMQP 1.0: Proton's engine in pika's loop."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import Any, Final

from warren_wire import relay_names
from warren_wire.amqp10.client import CONNECTION, SESSION, TRANSPORT, ClientEngine, ClientLink
from warren_wire.amqp10.proton import Condition, Link, Session, Terminus
from warren_wire.certificate_login import EXTERNAL
from warren_wire.errors import InvalidArgument
from warren_wire.links.uris import CONNECT_MS, LOGIN_ANONYMOUS, LOGIN_PLAIN, OWN_CLUSTER, ShovelUri
from warren_wire.sessions.connection10 import (
    CLOSE_ANSWER_S,
    IDLE,
    NOT_AMQP,
    UNAUTHORIZED,
    Stream10,
)
from warren_wire.sessions.endpoint import LinkConnection, in_words, tls_of
from warren_wire.sessions.locate import OwnNode, locate
from warren_wire.sessions.pika_connections import IOServices

IDLE_MS: Final = 20_000
"""Silence after which the peer counts as dead, unless the URI says another time."""
_MECHANISMS: Final = {
    LOGIN_PLAIN: "PLAIN",
    LOGIN_ANONYMOUS: "ANONYMOUS",
    EXTERNAL.lower(): EXTERNAL,
}
_FORCED: Final = ("amqp:connection:forced",)
"""Conditions of a connection's end that are not about what was sent on it."""
_OVER: Final = {SESSION: "it has ended the session", CONNECTION: "it has closed the connection"}


class Endpoint10(LinkConnection, ClientLink, Stream10):
    """One connection with one session and one link.

    link    None before `attach`
    """

    def __init__(
        self, key: str, uri: ShovelUri, own: OwnNode, name: str, failed: Callable[[str], None]
    ) -> None:
        LinkConnection.__init__(self, key, uri, own, name, failed)
        Stream10.__init__(self)
        self.link: Any = None
        self._opened: Callable[[], None] = lambda: None
        self._attached: Callable[[], None] = lambda: None
        self._is_attached = False
        self._here = self._closing = False
        self._session: Session | None = None

    def fail(self, error: BaseException | str) -> None:
        """See Stream10."""
        super().fail(error if isinstance(error, str) else in_words(error))

    @property
    def knows_relays(self) -> bool:
        """See `ends.End`."""
        if self._client is None:
            return False
        offered = self._client.engine.connection.remote_offered_capabilities
        return relay_names.CAPABILITY in map(str, offered or ())

    # ------------------------------------------------------------ connecting

    def open(self, ioloop: Any, opened: Callable[[], None]) -> None:
        """Connect and begin the session."""
        self._opened = opened
        self._services = IOServices(ioloop)
        connect_ms = int(self.uri.options.get("connection_timeout", CONNECT_MS))
        self._services.call_later(connect_ms / 1000, self._too_late)
        locate(self._services, self.uri, self._own, self._located)

    def _too_late(self) -> None:
        if not self._is_attached:
            self.fail("it did not answer in time")

    def _located(self, found: Any) -> None:
        if isinstance(found, BaseException):
            self.fail(found)
            return
        self._here = found.here
        self._addresses = list(found.addresses)
        try:
            self._tls = tls_of(self.uri, self._own, self._here)
        except InvalidArgument as refusal:
            self.fail(refusal.detail)
            return
        self._try_next()

    def _made_client(self) -> ClientEngine:
        """See Stream10; begin the session."""
        uri, options = self.uri, self.uri.options
        properties = {"product": "Warren shovel", "connection_name": self._name}
        user: str | None = None
        secret: str | None = None
        sasl = LOGIN_PLAIN if self._here else options.get("sasl", LOGIN_PLAIN)
        if self._here:
            user, secret, vhost = uri.inside
            hostname = f"vhost:{vhost}"
        else:
            properties[OWN_CLUSTER] = self._own.cluster
            hostname = options.get("hostname", self._hostname())
            if sasl == LOGIN_PLAIN:
                user, secret = uri.user, uri.password
        client = ClientEngine(
            f"{self._name} {os.getpid()}",
            hostname,
            properties,
            int(options.get("idle_time_out", IDLE_MS)) / 1000,
            _MECHANISMS.get(sasl),
            user,
            secret,
            self._opened,
            self._over,
        )
        self._session = client.session()
        return client

    def _hostname(self) -> str:
        """Return what the peer is called; RabbitMQ and Warren take a vhost there."""
        uri = self.uri
        return f"vhost:{uri.vhost}" if uri.names_vhost else uri.host

    # ------------------------------------------------------------ the link

    def attach(self, make: Callable[[Session, str], Link], attached: Callable[[], None]) -> None:
        """Attach the link; `make` gets the session and a name that no other link has."""
        if self._client is None or self._ended:
            return
        assert self._session is not None
        self._attached = attached
        self.link = make(self._session, f"{self._name} {uuid.uuid4()}")
        self._client.attach(self)
        self.flush()

    # ------------------------------------------------------------ ending

    def close(self, done: Callable[[], None] = lambda: None) -> None:
        """Close the connection, after what has been written; no failure is reported any more."""
        self._failed = None
        if self._ended or self._transport is None or self._client is None:
            self._end()
            done()
            return
        self._on_closed = done
        if not self._closing:
            self._closing = True
            self.leave(self._close_connection)

    def leave(self, left: Callable[[], None]) -> None:
        """End the link, where the end of the connection is not enough; then call `left`."""
        left()

    def _close_connection(self) -> None:
        if self._ended or self._client is None:
            return
        self._client.close()
        self.flush()
        self._services.call_later(CLOSE_ANSWER_S, self._end)

    def _has_ended(self) -> None:
        self._has_closed()

    # ------------------------------------------------------------ what the peer says

    def _over(self, what: str, condition: Condition | None) -> None:
        if what == TRANSPORT:
            self._transport_failed(condition)
            return
        self._peer_closed |= what == CONNECTION
        self._told(condition, _OVER[what])

    def attached(self) -> None:
        """See ClientLink: one that is refused is closed then."""
        link = self.link
        terminus = link.remote_source if link.is_receiver else link.remote_target
        if terminus.type != Terminus.UNSPECIFIED and not self._is_attached:
            self._is_attached = True
            self._attached()

    def closed(self, condition: Condition | None) -> None:
        """See ClientLink."""
        place = self.link.remote_source.address or self.link.remote_target.address or ""
        self._told(condition, f"it has closed the link to {place}")

    def _told(self, condition: Any, otherwise: str) -> None:
        """Fail with the peer's words."""
        if condition is None:
            self.fail(otherwise)
            return
        if self._is_attached and condition.name not in _FORCED:
            self.refuses = True
        self.access_refused |= condition.name == UNAUTHORIZED
        self.fail(f"{condition.name}: {condition.description or otherwise}")

    def _transport_failed(self, condition: Any) -> None:
        name = "" if condition is None else condition.name
        if name == UNAUTHORIZED:
            self.access_refused = True
            self.fail("it closed the connection: user or password is refused")
        elif name == IDLE:
            self.fail("it sent no heartbeat")
        elif name == NOT_AMQP and not self._is_attached:
            if self._client is not None and not self._client.engine.connection.remote_container:
                self.fail("what listens there does not speak AMQP 1.0, or refuses the login")
        self.fail("the connection was lost" if condition is None else condition.description)
