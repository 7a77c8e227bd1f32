"""One AMQP 1.0 connection to a broker: login, the broker's kind, errors by name, redirects.

The parameters are those of `amqp.connection`, pika's: host, TLS, login, names, time limits.
"""

from __future__ import annotations

import copy
import os
import re
import secrets
import socket
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import pika

from pyspark_warren.amqp.connection import AnonymousCredentials, named
from pyspark_warren.amqp.renewing import forget_refused
from pyspark_warren.amqp10.cbs import CbsLogin, cbs_source
from pyspark_warren.errors import BrokerRefusedError, BrokerUnavailableError, WarrenSparkError
from pyspark_warren.options.options import Options
from warren_wire.amqp10.client import CONNECTION, SESSION, ClientEngine
from warren_wire.amqp10.proton import Condition, Session
from warren_wire.kernel.section_types import QUEUES
from warren_wire.sessions.connection10 import (
    CLOSE_ANSWER_S,
    IDLE,
    NOT_AMQP,
    SIZE_EXCEEDED,
    UNAUTHORIZED,
    Stream10,
)
from warren_wire.sessions.pika_connections import IOServices

REDIRECTS_MAX: Final = 3
"""So many brokers in a row may name another one."""
INCOMING_BYTES: Final = 512 << 20
"""The session's window: a message that is larger could never arrive."""
_NO_SUCH_NODE: Final = "amqp:not-found"
_EXPECTED: Final = re.compile(r"RabbitMQ|Warren", re.IGNORECASE)
_REDIRECTS: Final = ("amqp:connection:redirect", "amqp:link:redirect")
_REFUSED: Final = frozenset(
    {
        *("amqp:decode-error", "amqp:frame-size-too-small", "amqp:illegal-state"),
        *("amqp:invalid-field", "amqp:not-allowed", _NO_SUCH_NODE, "amqp:not-implemented"),
        *("amqp:precondition-failed", "amqp:resource-locked", UNAUTHORIZED),
        *(SIZE_EXCEEDED, "amqp:link:stolen", "com.microsoft:auth-failed"),
    }
)
"""Conditions that another attempt would meet again."""


class NoQueueError(BrokerRefusedError):
    """The broker has nothing of that name."""


class RedirectedError(BrokerUnavailableError):
    """The broker names another one.

    given  host, port, hostname and address, as far as it says them
    """

    def __init__(self, text: str, given: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.given = {str(name): value for name, value in given.items()}


def of_condition(condition: Condition, doing: str, at: str) -> WarrenSparkError:
    """Return the error that an AMQP condition stands for."""
    text = f"{doing}: {at} answers {condition.name}: {condition.description or 'no reason'}"
    if condition.name in _REDIRECTS:
        return RedirectedError(text, condition.info or {})
    if condition.name == _NO_SUCH_NODE:
        return NoQueueError(f"{text}; declare the queue first")
    if condition.name in _REFUSED:
        return BrokerRefusedError(text)
    return BrokerUnavailableError(f"{text}; check that the broker is up, or raise requestTimeout")


class Peer10(Stream10):
    """A connection with one session; a subclass does what it is for in `_ready` and `_lost`.

    one    host, TLS, login, names
    doing  such as "reading queue 'flights'", for errors
    """

    def __init__(
        self, loop: object, options: Options, one: pika.ConnectionParameters, doing: str
    ) -> None:
        super().__init__()
        self.options, self.one, self.doing = options, one, doing
        self.at = f"{one.host}:{one.port}"
        self.session: Session | None = None
        self.product = self.version = ""
        self._hostname = one.host if one.virtual_host == "/" else f"vhost:{one.virtual_host}"
        self._why: WarrenSparkError | None = None
        self._closing = self._logged_in = False
        self._cbs: CbsLogin | None = None
        self._services = IOServices(loop)
        if one.ssl_options is not None:
            self._tls = one.ssl_options.context, one.ssl_options.server_hostname
        self._services.call_later(one.stack_timeout, self._too_late)
        self._services.getaddrinfo(one.host, one.port, self._located, socktype=socket.SOCK_STREAM)

    @abstractmethod
    def _ready(self) -> None:
        """Use the connection: it is open, and its user is known."""

    @abstractmethod
    def _lost(self, why: WarrenSparkError | None) -> None:
        """Take note of the end, once; None after `close`."""

    @property
    def client(self) -> ClientEngine:
        """The client, of a connection that was made."""
        assert self._client is not None
        return self._client

    @property
    def speaks_rabbit(self) -> bool:
        """Whether addresses, annotations and counts are those of RabbitMQ 4, which Warren has."""
        return _EXPECTED.fullmatch(self.product) is not None

    @property
    def over(self) -> bool:
        """Whether it has ended, or is to."""
        return self._ended or self._closing

    def post(self, callback: Callable[[], None]) -> None:
        """Run a callback in the loop's thread; callable from any."""
        self._services.add_callback_threadsafe(callback)

    def later(self, pause_s: float, callback: Callable[[], None]) -> None:
        """Run a callback after a pause, whatever has become of the connection then."""
        self._services.call_later(pause_s, callback)

    def address_of(self, queue: str) -> str:
        """Return the address of a queue; one that begins with / is an address already."""
        if self.speaks_rabbit and not queue.startswith("/"):
            return QUEUES.decode() + quote(queue, safe="")
        return queue

    def close(self) -> None:
        """Close, after what is to be sent before."""
        if self._ended or self._client is None:
            self._closing = True
            self._end()
            return
        if not self._closing:
            self._closing = True
            self._client.close()
            self.flush()
            self._services.call_later(CLOSE_ANSWER_S, self._end)

    # ------------------------------------------------------------ connecting

    def _located(self, found: Any) -> None:
        if isinstance(found, BaseException):
            self.fail(found)
        elif not self._ended:
            self._addresses = list(found)
            self._try_next()

    def _too_late(self) -> None:
        if not self._logged_in and not self._ended:
            self.fail("it did not answer in time")

    def _made_client(self) -> ClientEngine:
        one = self.one
        login = one.credentials
        mechanism, user, secret = "PLAIN", None, None
        if isinstance(login, AnonymousCredentials):
            mechanism = "ANONYMOUS"
        elif isinstance(login, pika.credentials.ExternalCredentials):
            mechanism = "EXTERNAL"
        elif cbs_source(self.options) is not None:
            mechanism = "ANONYMOUS"  # the user is told to $cbs
        else:
            user, secret = login.username, login.password
        told = {name: str(value) for name, value in (one.client_properties or {}).items()}
        container = f"{told.get('connection_name', '')} {os.getpid()}-{secrets.token_hex(4)}"
        client = ClientEngine(
            container.lstrip(),
            self._hostname,
            told,
            float(one.heartbeat or 0),
            mechanism,
            user,
            secret,
            self._opened,
            self._over,
        )
        self.session = client.session()
        self.session.incoming_capacity = INCOMING_BYTES
        return client

    def _opened(self) -> None:
        said = self.client.engine.connection.remote_properties or {}
        about = {str(name): value for name, value in said.items()}
        self.product, self.version = str(about.get("product", "")), str(about.get("version", ""))
        source = cbs_source(self.options)
        if source is None:
            self._known()
            return
        self._cbs = CbsLogin(self, source, self._known, self._failed)

    def _known(self) -> None:
        self._logged_in = True
        if not self._closing:
            self._ready()

    # ------------------------------------------------------------ the end

    def fail(self, error: BaseException | str) -> None:
        """See Stream10."""
        if isinstance(error, str):
            text = f"{self.doing}: {self.at}: {error}"
            self._failed(
                BrokerUnavailableError(
                    f"{text}; check that the broker is up, or raise requestTimeout"
                )
            )
        else:
            self._failed(named(error, self.doing, self.at))  # type: ignore[arg-type]

    def _failed(self, why: WarrenSparkError) -> None:
        if self._why is None and not self._closing:
            self._why = why
            self._services.call_later(0, self._end)

    def _over(self, what: str, condition: Condition | None) -> None:
        self._peer_closed |= what == CONNECTION
        if what in (SESSION, CONNECTION):
            self.ended_by(condition, f"it has closed the {what}")
            return
        name = "" if condition is None else condition.name
        if name == UNAUTHORIZED:
            forget_refused(self.one.credentials)
            text = f"{self.doing}: {self.at} refuses the login"
            self._failed(BrokerRefusedError(f"{text}: check user, password and saslMechanism"))
        elif name == NOT_AMQP and not self.client.engine.connection.remote_container:
            text = f"{self.doing}: {self.at} does not speak AMQP 1.0, or only with TLS, or refuses"
            self._failed(BrokerRefusedError(f"{text} the login"))
        elif name == IDLE:
            self.fail("it was silent for longer than its heartbeat")
        else:
            self.fail("the connection was lost" if condition is None else condition.description)

    def ended_by(self, condition: Condition | None, otherwise: str) -> None:
        """Fail with what the broker says."""
        if condition is None:
            self.fail(otherwise)
        else:
            self._failed(of_condition(condition, self.doing, self.at))

    def _has_ended(self) -> None:
        self._lost(None if self._closing and self._why is None else self._why)


def redirected(
    one: pika.ConnectionParameters, why: RedirectedError
) -> tuple[pika.ConnectionParameters, str]:
    """Return the parameters of the broker that was named, and the address there ("": the same)."""
    given = why.given
    made = copy.copy(one)
    host = str(given.get("network-host") or given.get("hostname") or one.host)
    made.host, made.port = host, int(given.get("port") or one.port)
    if one.ssl_options is not None:
        made.ssl_options = pika.SSLOptions(one.ssl_options.context, given.get("hostname") or host)
    return made, str(given.get("address") or "")
