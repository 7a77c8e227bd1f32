"""The table of rights against a running broker, which may be RabbitMQ.

With WARREN_TEST_URI naming a RabbitMQ, WARREN_TEST_CTL is the command that manages its users:
`rabbitmqctl`, or a script around it. RabbitMQ 3.10.8 was found to behave the same but in two
things, which 4.x has: the texts name the permission that is missing, and topic permissions hold for
the keys in CC and BCC, too.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any, Protocol

import pamqp.commands as spec
import pamqp.header
import pika
import pytest

from broker.test_access import CLIENT091, DEAD_LETTERS, Right, granted
from live.conftest import Broker
from live.raw_client import RawClient, frame, method
from warren.admin import Admin
from warren.connection import Connection
from warren.uri import parse_uri

pytestmark = pytest.mark.live
VHOST = "rights"
USER = "limited"
RABBITMQ_310 = "WARREN_TEST_CTL" in os.environ


class Rights(Protocol):
    """Manages the broker's users."""

    def begin(self) -> None:
        """The vhost, for guest and, without any rights, for the user."""

    def grant(self, configure: str, write: str, read: str) -> None:
        """The user's permissions in the vhost."""

    def topic(self, write: str, read: str) -> None:
        """The user's topic permissions for amq.topic."""

    def no_topic(self) -> None:
        """None of them."""

    def end(self) -> None:
        """The vhost and the user are gone."""


class ByAdmin:
    """A Warren's."""

    def __init__(self, uri: str) -> None:
        self._connection = Connection(parse_uri(uri))
        self._admin = Admin(self._connection)

    def begin(self) -> None:
        self._admin.vhosts.put(VHOST)
        self._admin.users.put(USER, password="p")
        self.grant("^$", "^$", "^$")

    def grant(self, configure: str, write: str, read: str) -> None:
        self._admin.permissions.put(VHOST, USER, configure=configure, write=write, read=read)

    def topic(self, write: str, read: str) -> None:
        self._admin.topic_permissions.put(VHOST, USER, "amq.topic", write=write, read=read)

    def no_topic(self) -> None:
        self._admin.topic_permissions.delete(VHOST, USER)

    def end(self) -> None:
        self._admin.users.delete(USER)
        self._admin.vhosts.delete(VHOST)
        self._connection.close()


class ByCommand:
    """A RabbitMQ's."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)

    def _run(self, *arguments: str) -> None:
        subprocess.run([*self._command, *arguments], check=True, capture_output=True)

    def begin(self) -> None:
        self._run("add_vhost", VHOST)
        self._run("add_user", USER, "p")
        self._run("set_permissions", "-p", VHOST, "guest", ".*", ".*", ".*")
        self.grant("^$", "^$", "^$")

    def grant(self, configure: str, write: str, read: str) -> None:
        self._run("set_permissions", "-p", VHOST, USER, configure, write, read)

    def topic(self, write: str, read: str) -> None:
        self._run("set_topic_permissions", "-p", VHOST, USER, "amq.topic", write, read)

    def no_topic(self) -> None:
        self._run("clear_topic_permissions", "-p", VHOST, USER)

    def end(self) -> None:
        self._run("delete_user", USER)
        self._run("delete_vhost", VHOST)


def address(broker: Broker) -> tuple[str, int]:
    parameters = broker.parameters()
    return str(parameters.host), int(parameters.port)


@pytest.fixture(scope="module")
def rights(broker: Broker) -> Iterator[Rights]:
    command = os.environ.get("WARREN_TEST_CTL")
    if command is None and broker.cluster is None:
        pytest.skip("WARREN_TEST_CTL says how the users of WARREN_TEST_URI are managed")
    made: Rights = ByCommand(command) if command is not None else ByAdmin(broker.uri)
    made.begin()
    yield made
    made.end()


@pytest.fixture(autouse=True)
def things(broker: Broker, rights: Rights) -> None:
    """What the operations of the table are about, as they find it."""
    parameters = broker.parameters()
    parameters.virtual_host = VHOST
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        for queue in ("q", "n"):
            channel.queue_delete(queue)
        channel.queue_declare("q", durable=True)
        for exchange in ("d", "n", "ae", "dlx", "inner"):
            channel.exchange_delete(exchange)
        for exchange in ("d", "ae", "dlx"):
            channel.exchange_declare(exchange)
        channel.exchange_declare("inner", internal=True)


def attempt(broker: Broker, operation: Any) -> spec.Channel.Close | None:
    """What the limited user's channel is closed with; None: it is not."""
    with RawClient(address(broker), password="p", vhost=VHOST, user=USER) as client:
        if isinstance(operation, tuple):
            exchange, key, given = operation
            client.send(method(spec.Confirm.Select()))
            client.expect(spec.Confirm.SelectOk)
            header = pamqp.header.ContentHeader(0, 1, spec.Basic.Properties(**given))
            client.send(
                method(spec.Basic.Publish(exchange=exchange, routing_key=key))
                + method(header)
                + frame(3, 1, b"x")
            )
        else:
            client.send(method(operation))
        got = client.next()
        assert got is not None
        return got[1] if isinstance(got[1], spec.Channel.Close) else None


def word(permission: str) -> str:
    """What is missing is named by RabbitMQ 4, not by 3.10."""
    return "" if RABBITMQ_310 else f"{permission} "


@pytest.mark.parametrize(
    ("name", "needs", "operation"), CLIENT091, ids=[name for name, _, _ in CLIENT091]
)
def test_an_operation_needs_exactly_its_rights(
    broker: Broker, rights: Rights, name: str, needs: tuple[Right, ...], operation: Any
) -> None:
    for missing in needs:
        held = granted(tuple(right for right in needs if right != missing))
        rights.grant(held.configure, held.write, held.read)
        refused = attempt(broker, operation)
        permission, kind, shown = missing
        assert refused is not None, f"allowed without {missing}"
        assert refused.reply_code == 403
        assert refused.reply_text == (
            f"ACCESS_REFUSED - {word(permission)}access to {kind} '{shown}' in vhost '{VHOST}' "
            f"refused for user '{USER}'"
        )
    held = granted(needs)
    rights.grant(held.configure, held.write, held.read)
    assert attempt(broker, operation) is None


def test_nobody_publishes_to_an_internal_exchange(broker: Broker, rights: Rights) -> None:
    rights.grant(".*", ".*", ".*")
    refused = attempt(broker, ("inner", "k", {}))
    assert refused is not None and refused.reply_text == (
        f"ACCESS_REFUSED - cannot publish to internal exchange 'inner' in vhost '{VHOST}'"
    )


def topic_text(permission: str, key: str) -> str:
    return (
        f"ACCESS_REFUSED - {word(permission)}access to topic '{key}' in exchange 'amq.topic' "
        f"in vhost '{VHOST}' refused for user '{USER}'"
    )


def test_topic_permissions(broker: Broker, rights: Rights) -> None:
    rights.grant(".*", ".*", ".*")
    rights.topic("^{username}[.]", "^r")
    try:
        assert attempt(broker, ("amq.topic", "limited.k", {})) is None
        refused = attempt(broker, ("amq.topic", "other.k", {}))
        assert refused is not None and refused.reply_text == topic_text("write", "other.k")
        also = attempt(broker, ("amq.topic", "limited.k", {"headers": {"CC": ["other.k"]}}))
        assert (also is None) is RABBITMQ_310
        assert attempt(broker, ("d", "other.k", {})) is None
        bound = spec.Queue.Bind(queue="q", exchange="amq.topic", routing_key="r.1")
        assert attempt(broker, bound) is None
        refused = attempt(broker, spec.Queue.Bind(queue="q", exchange="amq.topic", routing_key="w"))
        assert refused is not None and refused.reply_text == topic_text("read", "w")
    finally:
        rights.no_topic()


def test_a_user_id_is_the_users_own(broker: Broker, rights: Rights) -> None:
    rights.grant(".*", ".*", ".*")
    assert attempt(broker, ("", "q", {"user_id": USER})) is None
    refused = attempt(broker, ("", "q", {"user_id": "guest"}))
    assert refused is not None and refused.reply_code == 406
    assert refused.reply_text == (
        f"PRECONDITION_FAILED - user_id property set to 'guest' but authenticated user was '{USER}'"
    )


def test_a_dead_letter_exchange_needs_rights_for_a_new_queue(
    broker: Broker, rights: Rights
) -> None:
    rights.grant("^n$", "^$", "^$")
    refused = attempt(broker, spec.Queue.Declare(queue="n", arguments=DEAD_LETTERS))
    assert refused is not None and refused.reply_code == 403
