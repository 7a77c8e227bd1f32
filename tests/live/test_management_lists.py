"""What `GET /queues` and `GET /alarms` of `/management` give on a cluster."""

from __future__ import annotations

import json
import subprocess
import sys

import pika
import pytest

from live.conftest import Broker, eventually
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.errors import NotFound
from warren_wire.admin.connections import ConnectionInfo

pytestmark = pytest.mark.live


def test_one_queue_by_name_and_without_counts(
    broker: Broker, admin: Admin, queue_name: str
) -> None:
    admin.queues.declare(queue_name)
    with broker.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue_name, b"one")
    request = admin.connection.request
    (shown,) = eventually(lambda: request("GET", f"/queues?name={queue_name}"), "it is known")
    assert (shown["name"], shown["messages"]) == (queue_name, 1)
    (plain,) = request("GET", f"/queues?name={queue_name}&counts=false")
    assert (plain["leader"], plain["messages"]) == (shown["leader"], 0)
    assert request("GET", f"/queues?name={queue_name}x") == []


def test_no_alarm(admin: Admin) -> None:
    assert admin.connection.request("GET", "/alarms") == []


def test_connections_are_shown_and_closed(broker: Broker, admin: Admin) -> None:
    parameters = broker.parameters(1)
    parameters.client_properties = {"connection_name": "with a channel"}
    with pika.BlockingConnection(parameters) as connection:
        connection.channel()

        def with_a_channel() -> list[ConnectionInfo]:
            found = [one for one in admin.connections.list(vhost="/") if one.channels == 1]
            return [one for one in found if one.user_provided_name == "with a channel"]

        (mine,) = eventually(with_a_channel, "it is shown with its channel")
        found = admin.connections.list(user="guest")
        assert mine.name in {one.name for one in found} and all(one.vhost == "/" for one in found)
        assert [one for one in found if one.protocol == "AMQP 1-0"], "that of `admin`"
        admin.connections.close(mine.name, "for a test")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="for a test"):
            connection.process_data_events(PATIENCE_S)
    with pytest.raises(NotFound, match="no connection"):
        admin.connections.close(mine.name)
    assert admin.connections.list(vhost="none") == []


def test_the_command_shows_and_closes_connections(broker: Broker, admin: Admin) -> None:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "warren.cli", *arguments, "--uri", broker.cluster.uri],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        return done.stdout

    mine = {one.name for one in admin.connections.list()}
    shown = {one["name"] for one in json.loads(run("connections", "list", "--json"))}
    name = sorted(mine & shown)[0]
    assert "is closed" in run("connections", "close", name)
