"""What RabbitMQ accepts, and other brokers may not: logins, names, arguments, recovery."""

from __future__ import annotations

from typing import Any

import pamqp.commands as spec
import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from live.conftest import Broker
from live.raw_client import RawClient, method
from live.test_semantics import address, closes, depth, get
from warren.admin import Admin
from warren.connection import Connection

pytestmark = pytest.mark.live


def test_an_anonymous_client_is_guest_on_this_machine(broker: Broker) -> None:
    with RawClient(address(broker), "header") as client:
        client.send(method(spec.Connection.StartOk({}, "ANONYMOUS", "", "en_US"), 0))
        client.expect(spec.Connection.Tune)
        client.send(method(spec.Connection.TuneOk(2047, 131_072, 0), 0))
        client.send(method(spec.Connection.Open("/"), 0))
        client.expect(spec.Connection.OpenOk)


NAMES = [
    "очередь 🐇",
    "\0",
    " ",
    "%2F/?#&=:@",
    "\u202eevil\u2066",
    "e\u0301",
    "\xe9",
    "\ufeff\uffff",
    "名" * 85,
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_queue_may_have_any_name_of_utf_8(broker: Broker, name: str) -> None:
    with broker.connect() as first, broker.connect(1) as second:
        mine, other = first.channel(), second.channel()
        mine.queue_declare(name, durable=True)
        mine.queue_bind(name, "amq.direct", name)
        mine.confirm_delivery()
        for exchange in ("", "amq.direct"):
            mine.basic_publish(exchange, name, b"m", pika.BasicProperties(reply_to=name))
        assert depth(other, name) == 2
        found, properties, _ = get(other, name)
        assert found.routing_key == properties.reply_to == name
        tag = other.basic_consume(name, lambda *_: None, consumer_tag=name)
        other.basic_cancel(tag)
        if broker.cluster is not None:
            with Connection(broker.cluster.address) as connection:
                assert Admin(connection).queues.get(name).name == name
        assert mine.queue_delete(name).method.message_count == 1
        with closes(404):
            other.queue_declare(name, passive=True)


def test_arguments_of_former_times_are_accepted_and_compare_equal(
    channel: Any, queue_name: str
) -> None:
    arguments = {
        "x-queue-type": "classic",
        "x-queue-mode": "lazy",
        "x-queue-version": 1,
        "x-queue-master-locator": "min-masters",
        "x-ha-policy": "all",
    }
    channel.queue_declare(queue_name, durable=True, arguments=arguments)
    channel.queue_declare(queue_name, durable=True, arguments={"x-queue-type": "classic"})
    channel.queue_declare(
        queue_name, durable=True, arguments={"x-queue-type": "classic", "x-queue-mode": "default"}
    )


def test_recover_brings_back_what_is_unacknowledged_in_its_old_order(
    channel: Any, queue_name: str
) -> None:
    """basic.recover(requeue=true) and recover-async, as RabbitMQ has them."""
    arguments = {"x-queue-type": "classic"}
    channel.queue_declare(queue_name, durable=True, arguments=arguments)
    channel.confirm_delivery()
    for body in (b"1", b"2", b"3", b"4"):
        channel.basic_publish("", queue_name, body)
    got = [channel.basic_get(queue_name) for _ in range(3)]
    channel.basic_ack(got[1][0].delivery_tag)
    channel.basic_recover(requeue=True)
    found = [channel.basic_get(queue_name) for _ in range(3)]
    assert [body for _, _, body in found] == [b"1", b"3", b"4"]
    assert [method_.redelivered for method_, _, _ in found] == [True, True, False]
    with pytest.raises(ConnectionClosedByBroker, match=r"\(540, ") as refused:
        channel.basic_recover(requeue=False)
    assert "requeue=false" in str(refused.value) or "540" in str(refused.value)
