"""A message of which the routing takes many turns: its publisher waits, and keeps its order."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pamqp.body
import pamqp.commands as spec
import pamqp.frame
import pamqp.header
import pika
import pytest
from proton import Message, symbol
from proton.utils import BlockingConnection

from live.conftest import DEADLINE_S, Broker
from live.raw_client import RawClient, frame, method

pytestmark = pytest.mark.live
KEY = ".".join(["a"] * 127)
CC = [".".join(["a"] * at + ["b"] + ["a"] * (126 - at)) for at in range(4)]
"""Hundreds of thousands of steps of routing, with the bindings below."""


@pytest.fixture
def slow(broker: Broker, queue_name: str) -> Iterator[str]:
    """The name of a topic exchange; many of its bindings match nearly all words of KEY."""
    name = f"{queue_name}-slow"
    connection = broker.connect()
    channel = connection.channel()
    channel.queue_declare(queue_name, durable=True)
    channel.exchange_declare(name, "topic")
    channel.queue_bind(queue_name, name, "a.#")
    chance = Random(1)
    for _ in range(30):
        words = chance.choices(("*", "a"), (6, 4), k=80)
        words[chance.randrange(80)] = "#"
        channel.queue_bind(queue_name, name, ".".join(words))
    yield name
    channel.exchange_delete(name)
    connection.close()


def test_what_comes_after_a_slow_route_stays_after_it(
    broker: Broker, slow: str, queue_name: str
) -> None:
    """On one channel, on another one of the connection, in a transaction; for a get, too."""
    connection = broker.connect()
    channel, other = connection.channel(), connection.channel()
    slowly = pika.BasicProperties(headers={"CC": CC})
    for number in range(3):
        channel.basic_publish(slow, KEY, b"%d slow" % number, slowly)
        channel.basic_publish("", queue_name, b"%d quick" % number)
        other.basic_publish("", queue_name, b"%d other" % number)
    channel.basic_publish(slow, KEY, b"last", pika.BasicProperties(headers={"CC": ["x", KEY]}))
    got = [channel.basic_get(queue_name, auto_ack=True)[2] for _ in range(10)]
    expected = [
        b"%d %s" % (number, by) for number in range(3) for by in (b"slow", b"quick", b"other")
    ]
    assert got == [*expected, b"last"]
    channel.tx_select()
    channel.basic_publish(slow, KEY, b"in a transaction", slowly)
    channel.tx_commit()
    assert other.basic_get(queue_name, auto_ack=True)[2] == b"in a transaction"
    confirming = connection.channel()
    confirming.confirm_delivery()
    confirming.basic_publish(slow, KEY, b"confirmed", slowly, mandatory=True)
    assert other.basic_get(queue_name, auto_ack=True)[2] == b"confirmed"
    connection.close()


def test_what_was_sent_at_once_is_done_in_its_order(
    broker: Broker, slow: str, queue_name: str
) -> None:
    """The gets are read with the publishes, and are for the messages before them."""
    parameters = broker.parameters()
    header = spec.Basic.Properties(headers={"CC": list(CC)})
    bytes_sent = b""
    for number in range(6):
        body = b"%d" % number
        content = pamqp.header.ContentHeader(0, len(body), header)
        bytes_sent += method(spec.Basic.Publish(exchange=slow, routing_key=KEY))
        bytes_sent += bytes(pamqp.frame.marshal(content, 1)) + frame(3, 1, body)
        bytes_sent += method(spec.Basic.Get(queue=queue_name, no_ack=True))
    with RawClient((parameters.host, parameters.port)) as client:
        client.send(bytes_sent)
        bodies = []
        while len(bodies) < 6:
            said = client.next()
            assert said is not None and said[1].name != "Basic.GetEmpty"
            if isinstance(said[1], pamqp.body.ContentBody):
                bodies.append(said[1].value)
    assert bodies == [b"%d" % number for number in range(6)]


def test_a_closed_channel_and_connection_have_published(
    broker: Broker, slow: str, queue_name: str
) -> None:
    connection = broker.connect()
    channel = connection.channel()
    channel.basic_publish(slow, KEY, b"slow", pika.BasicProperties(headers={"CC": CC}))
    channel.close()
    connection.channel().basic_publish(slow, KEY, b"slow", pika.BasicProperties(headers={"CC": CC}))
    connection.close()
    with broker.connect() as another:
        asked = another.channel()
        assert [asked.basic_get(queue_name, auto_ack=True)[2] for _ in range(2)] == [b"slow"] * 2


def test_over_amqp_1_0(broker: Broker, slow: str, queue_name: str) -> None:
    parameters = broker.parameters()
    uri = f"amqp://guest:guest@{parameters.host}:{parameters.port}"
    connection = BlockingConnection(uri, timeout=DEADLINE_S, allowed_mechs="PLAIN")
    sender = connection.create_sender(f"/exchanges/{slow}/{KEY}")
    quick = connection.create_sender(f"/queues/{queue_name}")
    for number in range(3):
        sender.send(
            Message(body=f"{number} slow", annotations={symbol("x-cc"): CC}), timeout=DEADLINE_S
        )
        quick.send(Message(body=f"{number} quick"), timeout=DEADLINE_S)
    receiver = connection.create_receiver(f"/queues/{queue_name}", credit=10)
    got = []
    for _ in range(6):
        got.append(receiver.receive(timeout=DEADLINE_S).body)
        receiver.accept()
    assert got == [f"{number} {by}" for number in range(3) for by in ("slow", "quick")]
    connection.close()
