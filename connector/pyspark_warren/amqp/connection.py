"""Connections of pika to an AMQP 0.9.1 broker: names, parameters, hosts in turn, errors by name.

The broker's operators see the names of connections and consumers. A source's driver is not told
which query it works for: there the name is the reader's, which is in the checkpoint and the
progress, and what the option queryName says. Tasks are told.
"""

from __future__ import annotations

import logging
import math
import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import pika
from pika import exceptions, spec
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from pyspark_warren.amqp.renewing import TokenCredentials, forget_refused
from pyspark_warren.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    WarrenSparkError,
    named_conditions,
)
from pyspark_warren.login.tokens import login_address
from pyspark_warren.options.options import Options
from pyspark_warren.options.specs import SASL_ANONYMOUS
from warren.client_tls import client_context, tls_failure
from warren.errors import ConnectionLost, TlsError, WarrenError
from warren_wire.certificate_login import EXTERNAL
from warren_wire.queue_values.describe_command import ReadBy
from warren_wire.sessions.pika_connections import blocking_connection, innermost

CLIENT: Final = "pyspark_warren"
_SHOWN_BYTES_MAX: Final = 255
_TAG_BYTES_MAX: Final = 128
_QUERY_NAME_BYTES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class ClientName:
    """How a connection and its consumer are shown.

    connection  name of the connection
    tag         the consumer's; every delivery carries it, so it is short
    about       client properties beside the name: query, query_name, queue, reader, sink
    """

    connection: str = CLIENT
    tag: str = ""
    about: tuple[tuple[str, str], ...] = field(default=())

    def properties(self) -> dict[str, str]:
        """Return the client properties of connection.start-ok."""
        return {"connection_name": self.connection, "product": CLIENT, **dict(self.about)}


UNNAMED: Final = ClientName()


def of_receiver(options: Options, reader: str, index: int) -> ClientName:
    """Name one of a reader's consumers of a queue."""
    query = _cut(options.query_name, _QUERY_NAME_BYTES_MAX)
    return _named(
        f"receiver {index}",
        query,
        f"queue {options.queue}, reader {reader}",
        f"{query} {reader}.{index}".lstrip(),
        queue=options.queue,
        reader=reader,
    )


def of_look(options: Options) -> ClientName:
    """Name a driver's connection that asks whether a queue exists."""
    query = _cut(options.query_name, _QUERY_NAME_BYTES_MAX)
    return _named("driver", query, f"queue {options.queue}", queue=options.queue)


def of_stream(options: Options, task: ReadBy | None) -> ClientName:
    """Name a consumer of a stream: of a query's task, or of the driver, which looks for its end."""
    query, query_id = _query(options, task)
    part = f"query {query_id}" if query_id else "driver"
    tag = f"{query} {query_id or 'driver'}".lstrip()
    return _named(
        "stream", query, f"{options.queue}, {part}", tag, queue=options.queue, query=query_id
    )


def of_sink(options: Options, task: ReadBy | None) -> ClientName:
    """Name the connection of a task that publishes."""
    query, query_id = _query(options, task)
    parts = [f"query {query_id}"] if query_id else []
    parts += [f"sinkId {options.sink_id}"] if options.sink_id else []
    return _named("sink", query, ", ".join(parts), query=query_id, sink=options.sink_id)


def _query(options: Options, task: ReadBy | None) -> tuple[str, str]:
    """Return name and id of the query that a task belongs to, each "" where not known."""
    if task is None:
        return _cut(options.query_name, _QUERY_NAME_BYTES_MAX), ""
    return _cut(options.query_name or task.name, _QUERY_NAME_BYTES_MAX), task.query


def _named(what: str, name: str, more: str, tag: str = "", **about: str) -> ClientName:
    of_query = f" of {name}" if name else ""
    rest = f": {more}" if more else ""
    told = {**about, "query_name": name}
    return ClientName(
        _cut(f"{CLIENT} {what}{of_query}{rest}", _SHOWN_BYTES_MAX),
        _cut(tag, _TAG_BYTES_MAX),
        tuple(sorted((name, _cut(text, _SHOWN_BYTES_MAX)) for name, text in told.items() if text)),
    )


def _cut(text: str, most: int) -> str:
    """Return the beginning of a text that has at most that many bytes."""
    return text.encode()[:most].decode(errors="ignore")


class AnonymousCredentials(pika.credentials.ExternalCredentials):
    """No login, of AMQP 1.0 alone."""

    TYPE = SASL_ANONYMOUS


T = TypeVar("T")
_HOME_NODE_DOWN: Final = "is down or inaccessible"
"""In RabbitMQ's text of 404 for a queue that exists on a node that does not run now."""
_RETRY_S_FIRST: Final = 0.1
_RETRY_S_MAX: Final = 5.0
_TRY_LATER: Final = frozenset({320, 541})
"""Reply codes that mean: this node, now. 320 connection-forced, 541 internal-error."""
_OF_TLS: Final = (ssl.SSLError, exceptions.AMQPError)
_OF_ONE_HOST: Final = (
    *(exceptions.AMQPError, AMQPConnectorException, OSError, WarrenError, WarrenSparkError),
)
_LARGE_PASSWORD_BYTES: Final = 4_000
"""A token of more may be too large for the frame with the login, which RabbitMQ does not answer."""

_pika_log = logging.getLogger("pika")
if _pika_log.level == logging.NOTSET:
    # pika writes a traceback at level ERROR for each host that does not answer; here such an
    # error is retried, or raised under its name.
    _pika_log.setLevel(logging.CRITICAL)


def parameters(options: Options, name: ClientName = UNNAMED) -> list[pika.ConnectionParameters]:
    """Return the parameters of a connection to each host, starting with a random one.

    name    what the broker shows of it
    raises  OptionError: a file of the TLS options cannot be used, or there is no password;
            TokenError: there is no token, BrokerUnavailableError: not now
    """
    with named_conditions("preparing a connection"):
        address, source = login_address(options)
        token = None if source is None else source.token()
        context = None if address.tls is None else client_context(address.tls)
    if options.sasl_mechanism == SASL_ANONYMOUS:
        login = AnonymousCredentials()
    elif options.sasl_mechanism == EXTERNAL:
        login = pika.credentials.ExternalCredentials()
    elif token is not None and source is not None:
        login = TokenCredentials(address.user, token, source)
    else:
        login = pika.PlainCredentials(address.user, address.password)
    first = random.randrange(len(options.hosts))
    return [
        pika.ConnectionParameters(
            host=host,
            port=port,
            virtual_host=options.vhost,
            credentials=login,
            heartbeat=math.ceil(options.heartbeat_s),
            ssl_options=None if context is None else pika.SSLOptions(context, host),
            connection_attempts=1,
            socket_timeout=options.connect_timeout_s,
            stack_timeout=options.connect_timeout_s,
            client_properties=name.properties(),
        )
        for host, port in options.hosts[first:] + options.hosts[:first]
    ]


def open_blocking(
    options: Options, doing: str = "", name: ClientName = UNNAMED
) -> pika.BlockingConnection:
    """Open a connection to the first host that answers, until requestTimeout.

    doing   what for, for the error's text
    raises  WarrenSparkError: refused by the broker, or no host answered in time
    """
    return open_any(
        options, doing or f"connecting to {options.addresses()}", blocking_connection, name
    )


def open_any(
    options: Options,
    doing: str,
    open_one: Callable[[pika.ConnectionParameters], T],
    name: ClientName = UNNAMED,
) -> T:
    """Call `open_one` for each host in turn until it succeeds; raises like `open_blocking`.

    A host with a refused certificate is passed over while another one may work; any other
    refusal is the cluster's, and raised at once.
    """
    deadline = time.monotonic() + options.request_timeout_ms / 1000
    pause_s = _RETRY_S_FIRST
    while True:
        lost: WarrenSparkError | None = None
        refused: WarrenSparkError | None = None
        hosts: list[pika.ConnectionParameters] = []
        try:
            hosts = parameters(options, name)
        except BrokerUnavailableError as wrong:  # of the token endpoint
            lost = wrong
        for one in hosts:
            left_s = max(0.05, deadline - time.monotonic())
            one.socket_timeout = one.stack_timeout = min(options.connect_timeout_s, left_s)
            try:
                return open_one(one)
            except _OF_ONE_HOST as wrong:
                at = f"{one.host}:{one.port}"
                error = named(wrong, doing, at)
                if isinstance(error, BrokerRefusedError):
                    forget_refused(one.credentials)
                if not isinstance(error, BrokerUnavailableError) and not _tls(wrong, at):
                    raise error from None
                if isinstance(error, BrokerUnavailableError):
                    lost = error
                else:
                    refused = error
        if lost is None:
            assert refused is not None, "there is at least one host"
            raise refused
        if time.monotonic() + pause_s >= deadline:
            raise _naming_size(lost, hosts)
        time.sleep(pause_s)
        pause_s = min(_RETRY_S_MAX, 2 * pause_s)


def _naming_size(lost: WarrenSparkError, hosts: list[pika.ConnectionParameters]) -> Exception:
    """Return the error with the size of a large token, which may be the reason."""
    size = max((len(getattr(one.credentials, "password", "")) for one in hosts), default=0)
    if size <= _LARGE_PASSWORD_BYTES:
        return lost
    return type(lost)(
        f"{lost.text}. The token has {size} bytes: RabbitMQ ends a login without an answer when it "
        "has more than about 4,000 (3.10) or 8,000 (4.3), Warren takes 65,536; ask for fewer scopes"
    )


# ------------------------------------------------------------------ errors by name


def is_no_queue(wrong: exceptions.ChannelClosedByBroker) -> bool:
    """Return whether the broker says that there is no such queue."""
    return wrong.reply_code == spec.NOT_FOUND and _HOME_NODE_DOWN not in wrong.reply_text


def named(wrong: Exception, doing: str, at: str = "the broker") -> WarrenSparkError:
    """Return the condition for an error of pika, of the socket or of the client.

    BrokerUnavailableError where another attempt may succeed, BrokerRefusedError where it would
    meet the same.

    doing   such as "reading queue 'flights' at a:5672"
    at      host and port, where known
    """
    if isinstance(wrong, WarrenSparkError):
        return wrong
    wrong = innermost(wrong)
    told = _tls(wrong, at) or wrong
    if isinstance(told, WarrenError) and not isinstance(told, ConnectionLost):
        try:
            with named_conditions(doing):
                raise told
        except WarrenSparkError as condition:
            return condition
    text = f"{doing}: {_reason(told, at)}"
    if _refused(told):
        return BrokerRefusedError(text)
    return BrokerUnavailableError(f"{text}; check that the broker is up, or raise requestTimeout")


def _tls(wrong: Exception, at: str) -> TlsError | None:
    """Return the refusal of one of the two sides' certificates; None: it is another error."""
    wrong = innermost(wrong)
    if isinstance(wrong, TlsError):
        return wrong
    # With TLS 1.3 a refused client learns it from the first read; pika has only its text then.
    failure = tls_failure(wrong, at) if isinstance(wrong, _OF_TLS) else None
    return failure if isinstance(failure, TlsError) else None


def _refused(wrong: Exception) -> bool:
    """Whether the broker said that it will not, rather than that it cannot now."""
    if isinstance(wrong, exceptions.ConnectionClosedByBroker | exceptions.ChannelClosedByBroker):
        return wrong.reply_code not in _TRY_LATER
    if isinstance(
        wrong,
        exceptions.AuthenticationError
        | exceptions.ProtocolVersionMismatch
        | exceptions.MethodNotImplemented,
    ):
        return True
    text = str(wrong)
    if isinstance(
        wrong, exceptions.ProbableAuthenticationError | exceptions.ProbableAccessDeniedError
    ):
        # pika guesses by the moment. A node that stops then closes the socket without a word.
        return "ConnectionClosedByBroker" in text and not any(
            f"({code})" in text for code in _TRY_LATER
        )
    return isinstance(wrong, exceptions.IncompatibleProtocolError) and "StreamLost" not in text


def _reason(wrong: Exception, at: str) -> str:
    text = str(wrong.args[-1]) if wrong.args else type(wrong).__name__
    if isinstance(wrong, exceptions.ConnectionClosed | exceptions.ChannelClosed):
        return f"{at} answers {wrong.reply_code} {wrong.reply_text}"
    if isinstance(wrong, exceptions.AuthenticationError):
        return f"{at} does not offer the SASL mechanism that is asked for: {text}"
    if isinstance(wrong, exceptions.ProbableAuthenticationError):
        return f"{at} refuses the login: {text}; check user and password"
    if isinstance(wrong, exceptions.ProbableAccessDeniedError):
        return f"{at} refuses the vhost: {text}; check vhost and the user's permissions there"
    if isinstance(wrong, exceptions.IncompatibleProtocolError):
        return f"{at} does not speak AMQP 0.9.1, or only with TLS: {text}"
    if isinstance(wrong, exceptions.AMQPHeartbeatTimeout):
        return f"{at} was silent for longer than two heartbeats"
    if isinstance(wrong, OSError):
        return f"{at}: {wrong.strerror or wrong}"
    return f"{at}: {text or type(wrong).__name__}"
