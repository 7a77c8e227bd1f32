"""Connections to an AMQP 0.9.1 broker: hosts in turn, TLS, errors by name."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pika
import pytest
from pika.adapters.select_connection import IOLoop

from bench.ports import free_ports
from connector.amqp.rabbitmq import OneRabbitMQ, found_root
from pyspark_warren import errors
from pyspark_warren.amqp.connection import ClientName, named, open_any, open_blocking, parameters
from pyspark_warren.amqp.detect import detect
from pyspark_warren.amqp.session import Session
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.sink.kept import KeptConnection
from tests.certificates import Authority
from tests.patience import PATIENCE_S, PROMPTLY_S, TooSlow, with_time_enough
from tests.resetting_peer import resetting_peer

pytestmark = [pytest.mark.live, pytest.mark.slow]


def given(hosts: str, **more: str) -> Options:
    return parse_options(
        {"hosts": hosts, "broker": "amqp", "requestTimeout": "2m", **more}, "write"
    )


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """A server that answers every connection with those bytes and closes it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            while True:
                try:
                    made, _ = server.accept()
                except OSError:
                    return
                with made, suppress(OSError):  # a client that has gone is not the last one
                    made.recv(8)
                    made.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_it_connects_through_the_host_that_answers(rabbitmq: OneRabbitMQ) -> None:
    options = given(f"127.0.0.1:{free_ports(1)},{rabbitmq.hosts}")
    for _ in range(4):  # the first host is drawn
        with open_blocking(options, name=ClientName("a test")) as connection:
            assert connection.channel().queue_declare("", exclusive=True).method.queue
    one = next(each for each in parameters(options) if each.port == rabbitmq.port)
    assert (one.virtual_host, one.heartbeat, one.blocked_connection_timeout) == ("/", 20, None)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"password": "wr0ng"}, "refuses the login.*ACCESS_REFUSED.*check user and password"),
        ({"user": "nobody"}, "refuses the login.*check user and password"),
        ({"vhost": "nowhere"}, "refuses the vhost.*vhost nowhere not found.*check vhost"),
    ],
)
def test_a_refused_login_fails_at_once(
    rabbitmq: OneRabbitMQ, more: dict[str, str], says: str
) -> None:
    begun = time.monotonic()
    with pytest.raises(errors.BrokerRefusedError, match=says) as caught:
        open_blocking(given(rabbitmq.hosts, **more), "reading queue 'q'")
    assert time.monotonic() - begun < PROMPTLY_S
    assert "reading queue 'q'" in str(caught.value) and "wr0ng" not in str(caught.value)


def test_nobody_answers_until_the_time_is_over() -> None:
    begun = time.monotonic()
    hosts = f"127.0.0.1:{free_ports(1)}"
    with pytest.raises(
        errors.BrokerUnavailableError, match=rf"{hosts}.*[Rr]efused.*requestTimeout"
    ):
        open_blocking(given(hosts, requestTimeout="1s"))
    assert 0.5 < time.monotonic() - begun < PROMPTLY_S


def named_at_last(
    options: Options,
    says: str,
    kind: type[errors.WarrenSparkError] = errors.WarrenSparkError,
    open_one: Callable[[Options], object] = open_blocking,
) -> None:
    """Connecting fails with that text, in as much time as one attempt needs on this machine."""

    def attempt(limit_s: float) -> None:
        with pytest.raises(kind) as caught:
            open_one(replace(options, request_timeout_ms=round(limit_s * 1000)))
        if says not in str(caught.value):
            raise TooSlow(str(caught.value))

    with_time_enough(attempt, 0.5)


def test_other_protocols_are_named() -> None:
    # An AMQP 1.0 broker; a proxy without a server behind it; a web server.
    for answer in (b"AMQP\x00\x01\x00\x00", b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"):
        with answering(answer) as hosts:
            named_at_last(given(hosts), "does not speak AMQP 0.9.1")


def test_a_token_that_is_too_large_is_named(rabbitmq: OneRabbitMQ) -> None:
    """RabbitMQ does not answer a login with so many bytes."""
    for size, told in ((9_000, "The token has 9000 bytes: RabbitMQ"), (20, "check user and")):
        given = {"hosts": rabbitmq.hosts, "broker": "amqp", "queue": "q", "requestTimeout": "3s"}
        options = parse_options({**given, "user": "u", "password": "t" * size}, "read")
        with pytest.raises(errors.WarrenSparkError, match=told):
            open_blocking(options)


def test_a_node_that_stops_is_tried_again() -> None:
    forced = "ConnectionClosedByBroker: (320) 'CONNECTION_FORCED - broker forced closure'"
    for later in (
        pika.exceptions.ProbableAuthenticationError(forced),
        pika.exceptions.ProbableAccessDeniedError("StreamLostError: ('lost',)"),
        pika.exceptions.ConnectionClosedByBroker(320, "CONNECTION_FORCED"),
        pika.exceptions.ConnectionClosedByBroker(541, "INTERNAL_ERROR"),
        pika.exceptions.StreamLostError("lost"),
        pika.exceptions.AMQPHeartbeatTimeout("no activity"),
        ConnectionResetError(104, "reset"),
        ssl.SSLEOFError(8, "EOF"),
    ):
        assert isinstance(named(later, "x"), errors.BrokerUnavailableError), later
    for refused in (
        pika.exceptions.ChannelClosedByBroker(404, "NOT_FOUND - no exchange 'x'"),
        pika.exceptions.ConnectionClosedByBroker(530, "NOT_ALLOWED"),
        pika.exceptions.AuthenticationError("EXTERNAL"),
    ):
        assert isinstance(named(refused, "x"), errors.BrokerRefusedError), refused


# ------------------------------------------------------------------ TLS


Mutual: TypeAlias = tuple[OneRabbitMQ, Authority, int]


@pytest.fixture(scope="module")
def mutual() -> Iterator[Mutual]:
    """A node that asks for certificates and takes them as logins; its port with TLS."""
    root = found_root()
    with tempfile.TemporaryDirectory(dir=root / "var/tmp") as directory:
        Path(directory).chmod(0o755)
        with _mutual(root, Authority(Path(directory))) as made:
            yield made


@contextmanager
def _mutual(root: Path, authority: Authority) -> Iterator[Mutual]:
    own = authority.issue("node")
    port = free_ports(1)
    ca, cert, key = (f"/{p.relative_to(root)}" for p in (authority.cert, own.cert, own.key))
    settings = f"""
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {ca}
ssl_options.certfile = {cert}
ssl_options.keyfile = {key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
"""
    with OneRabbitMQ(settings, ("rabbitmq_auth_mechanism_ssl",)) as made:
        yield made, authority, port


def with_tls(authority: Authority, port: int, user: str, **more: str) -> Options:
    client = authority.issue(user)
    return given(
        f"localhost:{port}",
        **{
            "tls": "true",
            "caFile": str(authority.cert),
            "certFile": str(client.cert),
            "keyFile": str(client.key),
            **more,
        },
    )


def test_tls_with_a_password_and_with_the_certificate_s_user(
    mutual: Mutual,
) -> None:
    node, authority, port = mutual
    open_blocking(with_tls(authority, port, "somebody")).close()
    open_blocking(with_tls(authority, port, "guest", saslMechanism="EXTERNAL")).close()
    assert detect(with_tls(authority, port, "guest", broker="auto")).broker == "amqp"
    with pytest.raises(errors.BrokerRefusedError, match="refuses the login"):
        open_blocking(with_tls(authority, port, "stranger", saslMechanism="EXTERNAL"))
    options = with_tls(authority, port, "guest", saslMechanism="EXTERNAL")
    plain = given(node.hosts)
    with pytest.raises(errors.BrokerRefusedError, match="refuses the login|SASL"):
        # Without TLS there is no certificate; the option itself is refused before (options).
        open_blocking(replace(options, hosts=plain.hosts, tls=False))


def test_a_refused_certificate_fails_at_once_and_names_the_option(
    mutual: Mutual, tmp_path: Path
) -> None:
    node, authority, port = mutual
    other = Authority(tmp_path / "other", "stranger")
    stranger = other.issue("guest")
    options = with_tls(authority, port, "guest")
    begun = time.monotonic()
    for wrong, says in (
        ({"ca_file": str(other.cert)}, "is refused: .*caFile names"),
        ({"cert_file": None, "key_file": None}, "refuses this TLS connection: .*certFile"),
        (
            {"cert_file": str(stranger.cert), "key_file": str(stranger.key)},
            "refuses this TLS connection: .*certFile",
        ),
        ({"hosts": (("127.0.0.1", node.port),)}, "does not speak TLS"),
    ):
        with pytest.raises(errors.BrokerRefusedError, match=says):
            open_blocking(replace(options, **wrong))
    assert time.monotonic() - begun < PROMPTLY_S
    with pytest.raises(errors.OptionError, match="cannot read certFile='/nowhere'"):
        open_blocking(replace(options, cert_file="/nowhere"))
    named_at_last(given(f"127.0.0.1:{port}"), "TLS")


@pytest.mark.parametrize("kind", [pika.BlockingConnection, KeptConnection])
def test_a_host_that_resets_a_new_connection_is_tried_again(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that stops, a load balancer without a node: pika's ValueError ended the query."""
    with resetting_peer(monkeypatch) as (host, port):
        open_one = open_blocking if kind is pika.BlockingConnection else _open_kept
        says, unavailable = "as soon as it was made", errors.BrokerUnavailableError
        named_at_last(given(f"{host}:{port}"), says, unavailable, open_one)


def _open_kept(options: Options) -> KeptConnection:
    return open_any(options, "writing", KeptConnection)


def test_a_receiver_whose_new_connection_is_reset_ends_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The receiver's loop serves all its sessions."""
    loop = IOLoop()
    ends: list[errors.WarrenSparkError | None] = []

    class Events:
        def began(self, messages: int, consumers: int) -> None:
            raise AssertionError("there is no consumer")

        def received(self) -> None:
            raise AssertionError("there is no message")

        def ended(self, why: errors.WarrenSparkError | None) -> None:
            ends.append(why)
            loop.stop()

    with resetting_peer(monkeypatch) as (host, port):
        one = parameters(given(f"{host}:{port}"))[0]
        Session(loop, one, "q", 10, "reading queue 'q'", Events())
        loop.call_later(PATIENCE_S, loop.stop)
        loop.start()
    assert [type(end) for end in ends] == [errors.BrokerUnavailableError], ends
