"""Clients over TLS: both protocols, refusals that are explained, certificates that change."""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.certificates import Authority, Certificate
from tests.live.conftest import eventually
from tests.live.test_ready import wait_for
from tests.patience import PATIENCE_S
from warren import Admin, ClaimReader, Connection, Producer
from warren.errors import TlsError, Unavailable
from warren.local import LocalCluster
from warren.uri import Address, ClientTls
from warren_broker.config import NodeConfig
from warren_broker.ready import unready
from warren_wire.block.block import Block

HANDSHAKE_TIMEOUT_MS = 3_000
LARGE = 12 << 20


def by_common_name(directory: Path, **tls: Any) -> TlsBroker:
    """A node that verifies certificates, and takes the user from their common name."""
    return TlsBroker(directory, {"ssl_cert_login_from": "common_name"}, verify="verify_peer", **tls)


class TlsBroker:
    """One node with a plain port, one with TLS, and certificates that the test may replace."""

    def __init__(
        self,
        directory: Path,
        more: dict[str, Any] | None = None,
        handshake_timeout_ms: int = 600_000,
        **tls: Any,
    ) -> None:
        self.authority = Authority(directory / "ca")
        self.own = self.authority.issue("node", file="node")
        settings = {
            **(more or {}),
            "listen": {"amqps": "127.0.0.1:0"},
            "limits": {"handshake_timeout_ms": handshake_timeout_ms},
            "tls": {
                "certfile": str(self.own.cert),
                "keyfile": str(self.own.key),
                "cacertfile": str(self.authority.cert),
                **tls,
            },
        }
        self.cluster = LocalCluster(1, directory / "cluster", settings=settings)

    def __enter__(self) -> TlsBroker:
        self.cluster.start()
        ready = wait_for(self.cluster.nodes[0].data_dir / "ready.json")
        self.port = int(ready["amqps"].rpartition(":")[2])
        self.plain_port = self.cluster.nodes[0].amqp_port
        return self

    def __exit__(self, *failure: object) -> None:
        self.cluster.stop()

    def context(self, given: Certificate | None = None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(self.authority.cert))
        if given is not None:
            made.load_cert_chain(given.cert, given.key)
        return made

    def pika(self, given: Certificate | None = None, **settings: Any) -> pika.BlockingConnection:
        options = pika.SSLOptions(self.context(given), "localhost")
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", self.port, ssl_options=options, socket_timeout=PATIENCE_S, **settings
            )
        )

    def address(self, **tls: Any) -> Address:
        options = {"ca_file": str(self.authority.cert), **tls}
        return Address(
            hosts=(("127.0.0.1", self.port),),
            request_timeout_s=PATIENCE_S,
            tls=ClientTls(**options),
        )

    def logged(self, text: str) -> None:
        eventually(lambda: text in self.cluster.log(0), f"{text!r} in the log")


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """It closes what says nothing for HANDSHAKE_TIMEOUT_MS; no test depends on being as quick."""
    directory = tmp_path_factory.mktemp("impatient")
    with TlsBroker(directory, handshake_timeout_ms=HANDSHAKE_TIMEOUT_MS) as made:
        yield made


@pytest.fixture(scope="module")
def plain_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """Asks clients for no certificate."""
    with TlsBroker(tmp_path_factory.mktemp("tls")) as made:
        yield made


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """Requires clients to have a certificate of its authority."""
    directory = tmp_path_factory.mktemp("mutual")
    with TlsBroker(directory, verify="verify_peer", fail_if_no_peer_cert=True) as made:
        yield made


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_pika_publishes_and_consumes_large_messages(
    plain_tls: TlsBroker, version: ssl.TLSVersion
) -> None:
    context = plain_tls.context()
    context.minimum_version = context.maximum_version = version
    bodies = [bytes([i]) * (LARGE if i == 3 else 10 ** (i % 6)) for i in range(12)]
    parameters = pika.ConnectionParameters(
        "127.0.0.1", plain_tls.port, ssl_options=pika.SSLOptions(context, "localhost")
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        name = f"tls.{version.name}"
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", name, body)
        got = []
        for method, _, body in channel.consume(name, inactivity_timeout=PATIENCE_S):
            got.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(got) == len(bodies):
                break
        assert got == bodies
        channel.queue_delete(name)


def test_amqp_1_0_over_tls_with_blocks_both_ways(plain_tls: TlsBroker) -> None:
    with Connection(plain_tls.address()) as connection:
        admin = Admin(connection)
        admin.queues.declare("tls10")
        with Producer(connection) as producer:
            for i in range(20_000):
                producer.send(b"%d " % i * 20, "tls10")
            producer.send(bytes(LARGE), "tls10").wait()
        assert admin.queues.get("tls10").messages_ready == 20_001
        reader = ClaimReader(connection, "tls10", "reader")
        position = reader.register().settled
        claim = reader.open(position + 1, max_messages=30_000, max_bytes=1 << 30)
        bodies: list[bytes] = []
        for piece in reader.fetch(claim.number, 0, claim.messages):
            block = Block.decode(piece.data)
            bodies += [bytes(block.body(i)) for i in range(block.count)]
        assert bodies == [b"%d " % i * 20 for i in range(20_000)] + [bytes(LARGE)]
        reader.settle(claim.number)
        admin.queues.delete("tls10")
    uri = replace(plain_tls.address(), hosts=(("localhost", plain_tls.port),)).uri()
    assert uri.startswith("amqps://") and "caFile=" in uri
    with Connection(uri) as connection:
        assert Admin(connection).whoami().name == "guest"


def test_a_client_checks_the_node(plain_tls: TlsBroker, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    with pytest.raises(
        TlsError, match="the certificate of 127.0.0.1:.* is refused: .*caFile names"
    ):
        Admin(Connection(plain_tls.address(ca_file=str(other.cert)))).whoami()
    plain_tls.logged("unknown ca (it does not trust this node's certificate)")
    with pytest.raises(TlsError, match="is refused: .*caFile names"):
        Admin(Connection(plain_tls.address(ca_file=None))).whoami()
    with Connection(plain_tls.address(ca_file=None, verify=False)) as connection:
        assert Admin(connection).whoami().name == "guest"


def test_each_kind_of_client_on_the_other_kind_of_port(plain_tls: TlsBroker) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", plain_tls.port))
    plain_tls.logged("on the TLS port: it does not speak TLS; its first bytes are 'AMQP")
    wrong = replace(plain_tls.address(), hosts=(("127.0.0.1", plain_tls.plain_port),))
    with pytest.raises(TlsError, match="does not speak TLS; give its port with TLS, or write amqp"):
        Admin(Connection(wrong)).whoami()
    plain_tls.logged(f"speaks TLS on the plain port; the one with TLS is {plain_tls.port}")
    bare = replace(plain_tls.address(), tls=None, request_timeout_s=1)
    with pytest.raises(Unavailable):
        Admin(Connection(bare)).whoami()


@contextmanager
def hanging(port: int) -> Iterator[list[socket.socket]]:
    """Fifty connections without a TLS handshake, half of them in the middle of one."""
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    try:
        for sock in held[::2]:
            sock.sendall(b"\x16\x03\x01\x02\x00")  # the head of a record, and nothing of it
        yield held
    finally:
        for sock in held:
            sock.close()


def test_handshakes_that_hang_hold_up_no_other_client(plain_tls: TlsBroker) -> None:
    with hanging(plain_tls.port) as held:
        with plain_tls.pika() as connection:
            connection.channel()
        assert select.select(held, [], [], 0)[0] == [], "they were all open all the time"


def test_handshakes_that_hang_end(impatient: TlsBroker) -> None:
    with hanging(impatient.port) as held:
        for sock in held:
            sock.settimeout(PATIENCE_S)
            try:
                assert sock.recv(1) == b""
            except ConnectionResetError:
                pass
    impatient.logged(f"no complete TLS handshake within {HANDSHAKE_TIMEOUT_MS} ms")


def test_a_handshake_is_not_enough_to_stay(impatient: TlsBroker) -> None:
    def only_shakes_hands() -> bool:
        """A client that is not quick enough does not come so far."""
        with suppress(OSError):
            with impatient.context().wrap_socket(
                socket.create_connection(("127.0.0.1", impatient.port)), server_hostname="localhost"
            ) as wrapped:
                wrapped.settimeout(PATIENCE_S)
                assert wrapped.recv(1) == b""
        return said in impatient.cluster.log(0)

    said = f"no protocol header within {HANDSHAKE_TIMEOUT_MS} ms"
    eventually(only_shakes_hands, said)


def test_a_consumer_that_stops_reading_costs_the_node_little(plain_tls: TlsBroker) -> None:
    """Its deliveries wait as ranges of blocks, not as sealed bytes; and all arrive at last."""
    with plain_tls.pika() as publisher:
        channel = publisher.channel()
        channel.queue_declare("slow", durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        for i in range(60):
            channel.basic_publish("", "slow", bytes([i]) * (1 << 20))
        with plain_tls.pika() as consumer:
            reading = consumer.channel()
            got: list[bytes] = []
            reading.basic_consume("slow", lambda c, m, p, b: got.append(b), auto_ack=True)
            declare = partial(channel.queue_declare, "slow", passive=True)
            eventually(lambda: declare().method.message_count < 60, "deliveries, none of them read")
            eventually(
                lambda: consumer.process_data_events(1) or len(got) >= 60, "all of them arrive"
            )
            assert [body[0] for body in got] == list(range(60))
            assert all(len(body) == 1 << 20 for body in got)
        channel.queue_delete("slow")


def test_a_peer_that_resets_ends_its_connection_alone(plain_tls: TlsBroker) -> None:
    with plain_tls.pika() as other:
        wrapped = plain_tls.context().wrap_socket(
            socket.create_connection(("127.0.0.1", plain_tls.port)), server_hostname="localhost"
        )
        wrapped.sendall(b"AMQP\0\0\x09\x01")
        assert wrapped.recv(1)
        wrapped.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wrapped.close()
        other.channel().queue_declare("", exclusive=True)


# ---------------------------------------------------------------- mutual TLS


def test_a_client_with_a_certificate_of_the_authority_comes_in(mutual: TlsBroker) -> None:
    given = mutual.authority.issue("client")
    with mutual.pika(given) as connection:
        connection.channel().queue_declare("", exclusive=True)
    with Connection(
        mutual.address(cert_file=str(given.cert), key_file=str(given.key))
    ) as connection:
        assert Admin(connection).whoami().name == "guest"


@pytest.mark.parametrize("case", ["none", "expired", "other authority"])
def test_a_client_without_such_a_certificate_does_not(
    mutual: TlsBroker, tmp_path: Path, case: str
) -> None:
    given, said = None, "it has given no certificate, and one is required"
    if case == "expired":
        given = mutual.authority.issue("late", days=-1)
        said = "its certificate is refused: certificate has expired"
    elif case == "other authority":
        given = Authority(tmp_path / "other", "stranger").issue("client")
        said = "its certificate is refused: unable to get local issuer certificate"
    with pytest.raises((pika.exceptions.AMQPConnectionError, ssl.SSLError, ConnectionError)):
        mutual.pika(given)
    mutual.logged(said)
    files = {} if given is None else {"cert_file": str(given.cert), "key_file": str(given.key)}
    with pytest.raises(TlsError, match="refuses this TLS connection: .*certFile"):
        Admin(Connection(mutual.address(**files))).whoami()


# ---------------------------------------------------------------- new certificates


def test_a_health_check_needs_no_certificate(
    plain_tls: TlsBroker, mutual: TlsBroker, tmp_path: Path
) -> None:
    for broker in (plain_tls, mutual):
        values = {"amqp": "none", "amqps": f"127.0.0.1:{broker.port}"}
        (tmp_path / "ready.json").write_text(json.dumps(values))
        assert unready(NodeConfig(data_dir=tmp_path)) is None


def test_new_certificates_need_no_restart_and_broken_ones_do_no_harm(tmp_path: Path) -> None:
    with TlsBroker(tmp_path) as node:
        before = node.pika()
        channel = before.channel()
        channel.queue_declare("kept", durable=True, arguments={"x-queue-type": "quorum"})

        def shown() -> str:
            context = node.context()
            with context.wrap_socket(
                socket.create_connection(("127.0.0.1", node.port)), server_hostname="localhost"
            ) as wrapped:
                certificate: Any = wrapped.getpeercert()
                return str(certificate["subject"][0][0][1])

        assert shown() == "node"
        node.authority.issue("renewed", file="node")
        eventually(lambda: shown() == "renewed", "the new certificate")
        node.own.cert.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n")
        node.logged("new connections still get the earlier ones")
        assert shown() == "renewed"
        channel.basic_publish("", "kept", b"the old connection works on")
        assert channel.basic_get("kept", auto_ack=True)[2] == b"the old connection works on"
        before.close()
        node.authority.issue("again", file="node")
        eventually(lambda: shown() == "again", "the certificate after the broken one")


def test_a_node_without_a_plain_port(tmp_path: Path) -> None:
    with TlsBroker(tmp_path) as node:
        pass
    config = node.cluster.nodes[0].config_file
    text = config.read_text()
    changed = text.replace(f'"amqp" = "127.0.0.1:{node.plain_port}"', '"amqp" = "none"')
    assert changed != text
    config.write_text(changed)
    (data := node.cluster.nodes[0].data_dir / "ready.json").unlink(missing_ok=True)
    with subprocess.Popen(
        [sys.executable, "-m", "warren_broker", "--config", str(config)], stderr=subprocess.PIPE
    ) as process:
        try:
            ready = wait_for(data)
            assert ready["amqp"] == "none"
            node.port = int(ready["amqps"].rpartition(":")[2])
            with node.pika() as connection:
                connection.channel()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", node.plain_port))
        finally:
            process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_a_node_whose_certificates_cannot_be_used_does_not_start(tmp_path: Path) -> None:
    broker = TlsBroker(tmp_path)
    broker.own.key.write_text("no key")
    with pytest.raises(Unavailable, match="not a certificate and its private key in PEM format"):
        broker.cluster.start()
    broker.cluster.stop()


# ---------------------------------------------------------------- between nodes


def test_three_nodes_that_speak_tls_with_each_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    own = authority.issue("node")
    settings = {
        "listen": {"amqps": "127.0.0.1:0"},
        "tls": {
            "certfile": str(own.cert),
            "keyfile": str(own.key),
            "cacertfile": str(authority.cert),
            "between_nodes": "true",
        },
    }
    with LocalCluster(3, tmp_path / "cluster", settings=settings) as cluster:
        node = cluster.nodes[0]
        with pytest.raises(ssl.SSLError, match="(?i)certificate.required"):
            context = ssl.create_default_context(cafile=str(authority.cert))
            with context.wrap_socket(
                socket.create_connection(("127.0.0.1", node.peers_port)),
                server_hostname="localhost",
            ) as stranger:
                stranger.settimeout(PATIENCE_S)
                stranger.recv(1)
        with cluster.connect() as connection, Producer(connection) as producer:
            Admin(connection).queues.declare("q", arguments={"x-queue-type": "quorum"})
            for i in range(2_000):
                producer.send(b"%d" % i * 100, "q")
            producer.send(bytes(LARGE), "q").wait()
            cluster.kill(cluster.leader_of("q"))
            producer.send(b"last", "q").wait()
            assert Admin(connection).queues.get("q").messages_ready == 2_002
