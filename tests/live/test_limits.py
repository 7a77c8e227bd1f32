"""Limits of vhosts and users on a cluster of three, met by pika's clients and by Warren's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
)
from typer.testing import CliRunner

from live.conftest import eventually
from tests.patience import TooSlow, with_time_enough
from warren.admin import Admin
from warren.cli.app import app
from warren.connection import Connection
from warren.errors import NotFound, PeerError, WarrenError
from warren.local import LocalCluster
from warren.uri import Address

pytestmark = pytest.mark.live

VHOST = "limited"


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Connection(cluster.address) as connection:
        made = Admin(connection)
        made.vhosts.put(VHOST)
        made.users.put("lim", password="p")
        made.permissions.put(VHOST, "lim", configure=".*", write=".*", read=".*")
        yield made
        made.users.delete("lim")
        made.vhosts.delete(VHOST)


def connect(cluster: LocalCluster, node: int = 0) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials("lim", "p")
    port = cluster.nodes[node].amqp_port
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, VHOST, credentials))


def refusal(cluster: LocalCluster, node: int) -> str | None:
    """Connect and close; code and text of a refusal."""
    try:
        connect(cluster, node).close()
    except ProbableAccessDeniedError as refused:
        return str(refused)
    return None


def closed_by_broker(text: str) -> str:
    """pika's text for a connection that is not opened."""
    return f'ConnectionClosedByBroker: (530) "NOT_ALLOWED - {text}"'


def test_connections_of_a_vhost_over_the_nodes(cluster: LocalCluster, admin: Admin) -> None:
    admin.limits.put("vhost", VHOST, "max-connections", 3)
    open_ones = [connect(cluster, node) for node in range(3)]
    text = f"access to vhost '{VHOST}' refused for user 'lim': connection limit (3) is reached"
    for node in range(3):
        assert refusal(cluster, node) == closed_by_broker(text)
    with_time_enough(lambda limit_s: refused_by_limit(cluster, limit_s), 3.0)
    open_ones.pop().close()
    assert refusal(cluster, 0) is None, "a closed connection is counted no more at once"
    admin.limits.put("vhost", VHOST, "max-connections", 1)
    assert all(one.is_open for one in open_ones), "a lower limit disconnects nobody"
    assert refusal(cluster, 2) is not None
    admin.limits.clear("vhost", VHOST)
    assert refusal(cluster, 2) is None
    for one in open_ones:
        one.close()


def refused_by_limit(cluster: LocalCluster, limit_s: float) -> None:
    """A client is told of the limit, and gives up soon: else it tries for a minute."""
    address = Address(
        cluster.address.hosts, user="lim", password="p", vhost=VHOST, request_timeout_s=limit_s
    )
    with Connection(address) as connection, pytest.raises(WarrenError) as told:
        Admin(connection).whoami()
    if "limit" not in str(told.value):
        raise TooSlow(str(told.value))


def test_connections_of_a_node_that_dies_count_no_more(cluster: LocalCluster, admin: Admin) -> None:
    admin.limits.put("user", "lim", "max-connections", 1)
    held = connect(cluster, 2)
    text = "connection refused for user 'lim': user connection limit (1) is reached"
    assert refusal(cluster, 1) == closed_by_broker(text)
    cluster.kill(2)
    try:
        eventually(lambda: refusal(cluster, 1) is None, "the dead node's connection is forgotten")
    finally:
        cluster.start(2)
    del held
    admin.limits.clear("user", "lim", "max-connections")


def test_channels_of_a_user_over_the_nodes(cluster: LocalCluster, admin: Admin) -> None:
    admin.limits.put("user", "lim", "max-channels", 2)
    one, other = connect(cluster, 0), connect(cluster, 1)
    channel = one.channel()
    other.channel()
    with pytest.raises(ConnectionClosedByBroker) as closed:
        one.channel()
    assert closed.value.reply_code == 530
    assert closed.value.reply_text == (
        "NOT_ALLOWED - number of channels opened for user 'lim' has reached the maximum allowed "
        "user limit of 2"
    )
    assert not channel.is_open
    again = connect(cluster, 2)
    again.channel().close()
    again.channel()
    for each in (other, again):
        each.close()


def test_queues_of_a_vhost(cluster: LocalCluster, admin: Admin) -> None:
    admin.limits.put("vhost", VHOST, "max-queues", 1)
    connection = connect(cluster)
    connection.channel().queue_declare("first", durable=True)
    delayed = {"x-delayed-type": "topic"}  # its store is none of the client's queues
    connection.channel().exchange_declare("later", "x-delayed-message", arguments=delayed)
    with pytest.raises(ChannelClosedByBroker) as closed:
        connection.channel().queue_declare("second", durable=True)
    assert (closed.value.reply_code, closed.value.reply_text) == (
        406,
        f"PRECONDITION_FAILED - cannot declare queue 'second': queue limit in vhost '{VHOST}' (1) "
        "is reached",
    )
    channel: Any = connection.channel()
    channel.exchange_delete("later")
    channel.queue_declare("first", durable=True)
    channel.queue_delete("first")
    channel.queue_declare("second", exclusive=True)
    connection.close()


def test_no_limit_keeps_out_the_administrator_who_must_change_it(
    cluster: LocalCluster, admin: Admin
) -> None:
    admin.limits.put("user", "guest", "max-connections", 0)
    admin.limits.put("vhost", "/", "max-connections", 0)
    with Connection(cluster.address) as connection:
        again = Admin(connection)
        with pytest.raises(ProbableAccessDeniedError):
            pika.BlockingConnection(
                pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].amqp_port)
            )
        again.limits.clear("user", "guest")
        again.limits.clear("vhost", "/")


def test_limits_by_command_line(cluster: LocalCluster, admin: Admin) -> None:
    def warren(*words: str) -> Any:
        return CliRunner().invoke(app, [*words, "--uri", cluster.uri])

    assert warren("limits", "set", "max-queues", "7", "--vhost", VHOST).exit_code == 0
    assert warren("limits", "set", "max-channels", "-1", "--user", "lim").exit_code == 0
    listed = warren("limits", "list", "--json")
    mine = [row for row in json.loads(listed.output) if row["name"] in (VHOST, "lim")]
    assert mine == [
        {"of": "vhost", "name": VHOST, "limit": "max-queues", "value": 7},
        {"of": "user", "name": "lim", "limit": "max-channels", "value": -1},
    ]
    assert warren("limits", "list", "--user", "lim", "--json").exit_code == 0
    assert warren("limits", "set", "max-queues", "7").exit_code != 0, "of what?"
    refused = warren("limits", "set", "max-queues", "7", "--user", "lim")
    assert refused.exit_code != 0
    assert warren("limits", "clear", "all", "--vhost", VHOST).exit_code == 0
    assert warren("limits", "clear", "max-channels", "--user", "lim").exit_code == 0
    assert admin.limits.of_vhosts(VHOST) == [] and admin.limits.of_users("lim") == []


def test_a_limit_that_cannot_be_is_refused(admin: Admin) -> None:
    with pytest.raises(PeerError, match="Unrecognised terms"):
        admin.limits.put("vhost", VHOST, "max-everything", 1)
    with pytest.raises(NotFound):
        admin.limits.put("vhost", "no such vhost", "max-queues", 1)
    admin.limits.replace("user", "lim", {"max-channels": 3, "max-connections": 4})
    (shown,) = admin.limits.of_users("lim")
    assert shown.value == {"max-channels": 3, "max-connections": 4}
