"""A shovel's connection to one of its ends, with pika."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorStackTimeout
from pika.exceptions import (
    AMQPHeartbeatTimeout,
    ChannelClosed,
    ChannelClosedByBroker,
    ConnectionClosed,
    ConnectionClosedByBroker,
    ConnectionOpenAborted,
    IncompatibleProtocolError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    StreamLostError,
)

from warren_wire import relay_names
from warren_wire.errors import InvalidArgument
from warren_wire.links.definition import ShovelEnd
from warren_wire.links.uris import (
    CONNECT_MS,
    HEARTBEAT_S,
    OWN_CLUSTER,
    SASL_MECHANISMS,
    VERIFY,
    ShovelUri,
)
from warren_wire.sessions.connection091 import ACCESS_REFUSED, Connection091, UnfitPeer
from warren_wire.sessions.locate import FoundAddresses, OwnNode, locate
from warren_wire.sessions.pika_connections import IOServices, innermost
from warren_wire.tls.contexts import (
    CertificatesUnusable,
    TlsFiles,
    calling_context,
    client_side,
    refusal_in_words,
)

NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
CONNECTION_FORCED: Final = 320
VHOST_REFUSED: Final = 530
"""Also of a connection to a vhost that is missing or refused, or has as many as it may have."""
REPLY_S: Final = 60.0
"""How long a broker that sends heartbeats may take to answer a method. 1. The leader of a queue
hangs.  2. Its broker does not answer basic.consume, and is alive.  3. Without a limit the shovel
would say for ever that it starts, or runs, and never try its next URI."""
REPLY_LOOK_S: Final = 5.0
CAPABILITIES: Final = (
    *("authentication_failure_close", "basic.nack", "connection.blocked"),
    *("consumer_cancel_notify", "publisher_confirms", relay_names.CAPABILITY),
)
"""Capabilities announced to the broker: pika's, and that of relays."""
_TOLD: Final = re.compile(r"ConnectionClosedByBroker: \((\d+)\) (.*)", re.DOTALL)
"""What pika puts into an error of the login when the broker has closed the connection."""
_WORDS: Final[Mapping[type[BaseException], str]] = {
    AMQPConnectorStackTimeout: "it did not answer in time",
    AMQPHeartbeatTimeout: "it sent no heartbeat",
    ConnectionOpenAborted: "it did not answer in time",
    IncompatibleProtocolError: "what listens there does not speak AMQP 0.9.1",
    ProbableAccessDeniedError: "it closed the connection: the vhost is missing or refused",
    ProbableAuthenticationError: "it closed the connection: user or password is refused",
    ssl.SSLEOFError: (
        "it closed the connection within TLS; it may refuse this end's certificate, or want one"
    ),
    socket.gaierror: "the host's name has no address",
    TimeoutError: "it did not answer in time",
}


def connection_parameters(uri: ShovelUri, own: OwnNode, name: str, here: bool) -> object:
    """Return pika's parameters; raises InvalidArgument for files that cannot be used.

    here  it leads to the node's own cluster: the node itself is connected, with its own login
    """
    connect_s = int(uri.options.get("connection_timeout", CONNECT_MS)) / 1000
    external = uri.options.get("auth_mechanism") == SASL_MECHANISMS[1]
    user, secret, vhost = uri.inside if here else (uri.user, uri.password, uri.vhost)
    made = pika.ConnectionParameters(
        host=own.host if here else uri.host,
        port=own.port if here else uri.port,
        virtual_host=vhost,
        credentials=pika.credentials.ExternalCredentials()
        if external and not here
        else pika.PlainCredentials(user, secret),
        heartbeat=int(uri.options.get("heartbeat", HEARTBEAT_S)),
        connection_attempts=1,
        socket_timeout=connect_s,
        stack_timeout=connect_s,
        client_properties={
            "connection_name": name,
            "product": "Warren shovel",
            "capabilities": dict.fromkeys(CAPABILITIES, True),
            **({} if here or not own.cluster else {OWN_CLUSTER: own.cluster}),
        },
    )
    tls = tls_of(uri, own, here)
    if tls is not None:
        made.ssl_options = pika.SSLOptions(*tls)
    return made


def tls_of(uri: ShovelUri, own: OwnNode, here: bool) -> tuple[ssl.SSLContext, str] | None:
    """Return the context and the name in the peer's certificate, None for no TLS.

    Raises InvalidArgument for files that cannot be used.
    """
    if here:
        # It is the process that gave the address.
        return (client_side(checks=False), own.host) if own.scheme != "amqp" else None
    return None if uri.scheme == "amqp" else _tls(uri)


def _tls(uri: ShovelUri) -> tuple[ssl.SSLContext, str]:
    given = uri.options
    names = ("certfile", "keyfile", "cacertfile", "password")
    certfile, keyfile, cacertfile, password = (given.get(name) for name in names)
    files = TlsFiles(certfile, keyfile, cacertfile, password)
    try:
        context = calling_context(files, checks=given.get("verify", VERIFY[0]) == VERIFY[0])
    except CertificatesUnusable as error:
        raise InvalidArgument(f"on this node: {error}") from error
    return context, given.get("server_name_indication", uri.host)


def in_words(error: object) -> str:
    """Return an error of pika or of the operating system in words, without a password."""
    error = innermost(error)
    if isinstance(error, ConnectionClosed | ChannelClosed):
        return f"{error.reply_code} {error.reply_text}"
    if isinstance(error, ssl.SSLError) and (refusal := refusal_in_words(error, "the other side")):
        return refusal
    for kind, words in _WORDS.items():
        if isinstance(error, kind):
            return words
    if isinstance(error, StreamLostError):
        return "the connection was lost"
    if isinstance(error, UnfitPeer):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{type(error).__name__}: {error}"


def is_access_refused(error: object) -> bool:
    """Return whether the broker has refused user, password, vhost or permission, in its words.

    A connection that is lost during the login is no refusal, though pika says it may be one: a
    broker that stops does that, too.
    """
    error = innermost(error)
    if isinstance(error, ConnectionClosed | ChannelClosed):
        code, text = error.reply_code, error.reply_text
    elif isinstance(error, ProbableAccessDeniedError | ProbableAuthenticationError):
        told = _TOLD.match(str(error.args[0]) if error.args else "")
        if told is None:
            return False
        code, text = int(told[1]), told[2]
    else:
        return False
    return code == ACCESS_REFUSED or (code == VHOST_REFUSED and "limit" not in text)


class LinkConnection:
    """What the connections to a link's ends have in common, whatever protocol each speaks.

    key      of the parameter, for error texts
    failed   called at most once, with words: it could not be opened, or has ended
    refuses  whether the peer has ended channel, link or more for what was sent on it
    access_refused  whether the peer has refused user, password, vhost or permission
    """

    def __init__(
        self, key: str, uri: ShovelUri, own: OwnNode, name: str, failed: Callable[[str], None]
    ) -> None:
        self.key = key
        self.uri = uri
        self.refuses = False
        self.access_refused = False
        self._own = own
        self._name = name
        self._failed: Callable[[str], None] | None = failed
        self._on_closed: Callable[[], None] | None = None

    def fail(self, words: str) -> None:
        """Report a failure, the first one."""
        failed, self._failed = self._failed, None
        if failed is not None:
            failed(f"{self.key} {self.uri}: {words}")

    def _has_closed(self) -> None:
        done, self._on_closed = self._on_closed, None
        if done is not None:
            done()


class Endpoint(LinkConnection):
    """One connection with one channel.

    channel  None before `opened`
    """

    def __init__(
        self, key: str, uri: ShovelUri, own: OwnNode, name: str, failed: Callable[[str], None]
    ) -> None:
        super().__init__(key, uri, own, name, failed)
        self._connection: Any = None
        self._given_up = False
        self._close_s: float | None = None
        self._ioloop: Any = None
        self.channel: Any = None

    def open(self, ioloop: Any, opened: Callable[[], None]) -> None:
        """Connect and open the channel."""

        def connection_opened(made: Any) -> None:
            if self._given_up:
                self._close_now()
            else:
                made.channel(on_open_callback=channel_opened)
            self._watch()

        def channel_opened(channel: Any) -> None:
            self.channel = channel
            channel.add_on_close_callback(channel_closed)
            opened()

        def channel_closed(closed: Any, reason: Any) -> None:
            self.refuses |= isinstance(reason, ChannelClosedByBroker)
            self._fail_with(closed.connection.cause or reason)

        def located(found: Any) -> None:
            if self._failed is None:
                return
            if isinstance(found, BaseException):
                self.fail(in_words(found))
                return
            try:
                made = connection_parameters(self.uri, self._own, self._name, found.here)
            except InvalidArgument as refusal:
                self.fail(refusal.detail)
                return
            services = FoundAddresses(ioloop, found)
            self._connection = Connection091(made, services, connection_opened, self._closed)

        self._ioloop = ioloop
        locate(IOServices(ioloop), self.uri, self._own, located)

    def _fail_with(self, error: object) -> None:
        self.access_refused |= is_access_refused(error)
        self.fail(in_words(error))

    def fail_told(self, code: int, text: str) -> None:
        """Report what the broker has refused on another channel of the connection."""
        self.access_refused |= code == ACCESS_REFUSED
        self.fail(f"{code} {text}")

    def _closed(self, connection: Any, reason: Any) -> None:
        if isinstance(reason, ConnectionClosedByBroker):
            self.refuses |= reason.reply_code != CONNECTION_FORCED
        self._fail_with(connection.cause or reason)
        self._has_closed()

    def close(self, done: Callable[[], None] = lambda: None) -> None:
        """Close the connection, after what has been written; no failure is reported any more."""
        self._failed = None
        made = self._connection
        if made is None or made.is_closed:
            done()
            return
        if not (made.is_open or made.is_closing):
            # pika 1.4 ends in an assertion when it is to give up a connection that it opens: that
            # one is closed once it is open, or ends with its time limit or this process.
            self._given_up = True
            done()
            return
        self._on_closed = done
        if not made.is_closing:
            self._close_now()

    def _close_now(self) -> None:
        self._close_s = time.monotonic()
        self._connection.close()

    def _watch(self) -> None:
        """Look again and again whether what was asked is answered, and whether a close is."""
        made = self._connection
        if made.is_closed:
            return
        if self._close_s is not None:
            if time.monotonic() - self._close_s > REPLY_S:
                made.abandon()
                return
        elif (method := made.overdue(REPLY_S)) is not None:
            self.fail(f"it did not answer {method} in time")
        self._ioloop.call_later(REPLY_LOOK_S, self._watch)

    @property
    def connection(self) -> Any:
        """The open connection."""
        return self._connection

    @property
    def knows_relays(self) -> bool:
        """Whether the broker gives messages names, and recognises them."""
        return bool((self._connection.server_capabilities or {}).get(relay_names.CAPABILITY))

    @property
    def nacks_say_so(self) -> bool:
        """Whether the broker nacks a relay's message only when the queue does not have it."""
        return bool((self._connection.server_capabilities or {}).get(relay_names.NACKS))

    def unsent_bytes(self) -> int:
        """Return how much of what was written is not with the operating system yet."""
        transport = getattr(self._connection, "_transport", None)
        return 0 if transport is None else int(transport.get_write_buffer_size())

    # ------------------------------------------------------------ queues

    def ensure_queue(self, end: ShovelEnd, done: Callable[[int], None]) -> None:
        """Declare the end's queue unless it is there; `done` gets its number of messages."""

        def missing(code: int, text: str) -> None:
            if code != NOT_FOUND:
                self.fail_told(code, text)
            elif end.predeclared:
                self.fail(f"{code} {text}; the queue must exist, since it is predeclared")
            else:
                self.declare(
                    lambda made: done(made.method.message_count),
                    self.fail_told,
                    queue=end.queue,
                    durable=True,
                    arguments=dict(end.queue_args),
                )

        self.declare(
            lambda made: done(made.method.message_count), missing, queue=end.queue, passive=True
        )

    def declare(
        self, done: Callable[[Any], None], refused: Callable[[int, str], None], **queue: Any
    ) -> None:
        """Declare a queue; see `attempt`."""
        self.attempt(
            lambda channel, made: channel.queue_declare(callback=made, **queue), done, refused
        )

    def attempt(
        self,
        ask: Callable[[Any, Callable[[Any], None]], Any],
        done: Callable[[Any], None],
        refused: Callable[[int, str], None],
    ) -> None:
        """Ask something on a channel of its own, which a refusal closes."""

        def closed(channel: Any, reason: Any) -> None:
            if isinstance(reason, ChannelClosedByBroker):
                refused(reason.reply_code, reason.reply_text)

        def answered(channel: Any, answer: Any) -> None:
            channel.close()
            done(answer)

        def opened(channel: Any) -> None:
            channel.add_on_close_callback(closed)
            ask(channel, lambda answer: answered(channel, answer))

        self._connection.channel(on_open_callback=opened)
