"""What `GET /queues` and `GET /alarms` of `/management` give on a cluster."""

from __future__ import annotations

import pytest

from live.conftest import Broker, eventually
from warren.admin import Admin

pytestmark = pytest.mark.live


def test_one_queue_by_name_and_without_counts(
    broker: Broker, admin: Admin, queue_name: str
) -> None:
    admin.declare_queue(queue_name)
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
