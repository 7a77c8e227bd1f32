"""SASL EXTERNAL on a real node: clients of both protocols, and those that must not get in."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pika
import pytest
from pika.exceptions import (
    AMQPError,
    ConnectionClosedByBroker,
    ProbableAuthenticationError,
)
from typer.testing import CliRunner

from live.conftest import eventually
from tests.certificates import Authority, Certificate
from tests.live.test_tls import TlsBroker, by_common_name
from warren.admin import Admin
from warren.cli.app import app
from warren.connection import Connection
from warren.errors import AccessRefused, UsageError
from warren.uri import Address, parse_uri

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """Verifies certificates, requires none, and takes the user from the common name."""
    made = by_common_name(tmp_path_factory.mktemp("external"))
    with made, Connection(made.address()) as connection:
        admin = Admin(connection)
        for name in ("ann", "odd name/ü", "leaver"):
            admin.users.put(name, password_hash="")
            admin.permissions.put("/", name, configure=".*", write=".*", read=".*")
        yield made


def external(node: TlsBroker, given: Certificate | None) -> pika.BlockingConnection:
    return node.pika(given, credentials=pika.credentials.ExternalCredentials())


def files(given: Certificate) -> dict[str, str]:
    return {"cert_file": str(given.cert), "key_file": str(given.key)}


def by_certificate(node: TlsBroker, given: Certificate) -> Address:
    return node.address(**files(given), sasl_mechanism="EXTERNAL")


def whoami(address: Address) -> str:
    with Connection(address) as connection:
        return Admin(connection).whoami().name


@pytest.mark.parametrize("name", ["ann", "odd name/ü"])
def test_the_common_name_logs_in_without_a_password(node: TlsBroker, name: str) -> None:
    subject = name.replace("/", "\\/")
    given = node.authority.issue(subject, file=f"user{len(name)}")
    connection = external(node, given)
    channel = connection.channel()
    channel.queue_declare("", exclusive=True)
    connection.close()
    assert whoami(by_certificate(node, given)) == name
    with pytest.raises(AMQPError):  # it has no password, and the certificate is not asked for one
        node.pika(given, credentials=pika.PlainCredentials(name, ""))


def test_it_is_offered_only_with_a_certificate(node: TlsBroker) -> None:
    given = node.authority.issue("ann", file="ann")
    assert offered(node, given) == {"PLAIN", "AMQPLAIN", "ANONYMOUS", "EXTERNAL"}
    assert offered(node, None) == {"PLAIN", "AMQPLAIN", "ANONYMOUS"}
    with pytest.raises(AMQPError):
        external(node, None)
    plain = pika.ConnectionParameters(
        "127.0.0.1", node.plain_port, credentials=pika.credentials.ExternalCredentials()
    )
    with pytest.raises(AMQPError):
        pika.BlockingConnection(plain)


def offered(node: TlsBroker, given: Certificate | None) -> set[str]:
    """The mechanisms of connection.start, as the wire has them."""
    with (
        socket.create_connection(("127.0.0.1", node.port), 20) as raw,
        node.context(given).wrap_socket(raw, server_hostname="localhost") as wrapped,
    ):
        wrapped.sendall(b"AMQP\x00\x00\x09\x01")
        data = b""
        while not data.endswith(b"\xce"):
            data += wrapped.recv(65536)
    found = data[data.rindex(b"PLAIN AMQPLAIN") :]
    return set(found[: found.index(b"\0")].decode().split())


@pytest.mark.parametrize("name", ["stranger", "ANN", "ann,ann", " ann"])
def test_a_certificate_of_no_user_is_refused(node: TlsBroker, name: str) -> None:
    given = node.authority.issue(name, file=f"no-user-{len(name)}")
    with pytest.raises(ProbableAuthenticationError) as refused:
        external(node, given)
    assert "403" in str(refused.value)
    assert "Login was refused using authentication mechanism EXTERNAL" in str(refused.value)
    with pytest.raises(AccessRefused):
        whoami(by_certificate(node, given))
    node.logged("no user has the name in the client's certificate")


def test_a_certificate_without_a_common_name_is_refused(node: TlsBroker) -> None:
    given = node.authority.issue("", file="nameless", subject="/O=ann")
    with pytest.raises(AMQPError):
        external(node, given)
    node.logged("no name found in the client's certificate")


def test_a_certificate_of_another_authority_never_gets_so_far(
    node: TlsBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Authority(tmp_path_factory.mktemp("other")).issue("ann")
    with pytest.raises((AMQPError, ssl.SSLError, OSError)):
        external(node, other)


def test_a_deleted_user_is_disconnected_and_stays_out(node: TlsBroker) -> None:
    given = node.authority.issue("leaver", file="leaver")
    connection = external(node, given)
    with Connection(node.address()) as mine:
        Admin(mine).users.delete("leaver")

    def gone() -> bool:
        try:
            connection.process_data_events(0.1)
        except ConnectionClosedByBroker as closed:
            return closed.reply_code == 320
        return False

    eventually(gone, "the deleted user's client is disconnected")
    with pytest.raises(AMQPError):
        external(node, given)


def test_a_user_from_this_machine_only_is_held_to_it_with_a_certificate_too(
    node: TlsBroker,
) -> None:
    given = node.authority.issue("guest", file="guest")
    assert whoami(by_certificate(node, given)) == "guest"  # the test connects from this machine


def test_the_command_line_logs_in_with_a_certificate(node: TlsBroker) -> None:
    given = node.authority.issue("guest", file="guest")
    uri = by_certificate(node, given).uri()
    assert parse_uri(uri) == by_certificate(node, given)
    done = CliRunner().invoke(app, ["users", "list", "--uri", uri])
    assert done.exit_code == 0, done.output
    assert "odd name/ü" in done.output
    checked: Any = CliRunner().invoke(
        app, ["users", "authenticate", "guest", "wrong password", "--uri", uri]
    )
    assert checked.exit_code != 0, "a password is asked for, not the certificate"


def test_external_without_a_certificate_is_refused_by_the_client(node: TlsBroker) -> None:
    with pytest.raises(UsageError, match="needs certFile"):
        node.address(sasl_mechanism="EXTERNAL")
    with pytest.raises(UsageError, match="GSSAPI"):
        node.address(sasl_mechanism="GSSAPI")
    asked = replace(node.address(), user="ann")
    assert asked.sasl_mechanism == "PLAIN"
