"""Links of relays on a node: names in the tags, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery, Message, symbol

from tests.broker.clients10.test_links import CONSUMER, asked, consumer, opened, received
from warren_broker.clients10 import link_requests as asks
from warren_machines.queue import commands
from warren_machines.queue.commands import Delivery as Run
from warren_wire.amqp10.deliveries import begin, handle_of, tag_of
from warren_wire.block.block import Block, encode
from warren_wire.relay_names import RelayedName, name_in_delivered_tag, relayed_tag

BLOCK = Block.decode(encode([b"a", b"b", b"c"], [b""] * 3, (b"", b"q"), 4, None))
RELAY = {symbol("x-relay"): "shovel s"}


def test_a_relay_s_deliveries_have_their_names_in_the_tags() -> None:
    """Also those that waited for credit."""
    client = opened()
    receiver = consumer(client, credit=2, properties=RELAY)
    (request,) = asked(client, asks.Consume)
    assert request.relay == "shovel s"
    client.connection.deliver(CONSUMER, Run(0, 1, 0, 2, origin=1 << 62, number=41), BLOCK)
    client.turn()
    receiver.flow(1)
    client.turn()
    found = received(receiver)
    tags = [tag_of(handle_of(delivery)) for delivery, _ in found]
    assert [name_in_delivered_tag(tag) for tag in tags] == [(1 << 62, 41 + i) for i in range(3)]
    delivery = found[1][0]
    delivery.local.failed = True
    delivery.update(Delivery.MODIFIED)
    client.turn()
    (modified,) = asked(client, commands.Modify)
    assert modified.msg_ids == ((1, 1),), "an outcome with fields finds its delivery"


def test_others_have_tags_without_names() -> None:
    client = opened()
    receiver = consumer(client)
    assert asked(client, asks.Consume)[0].relay == ""
    client.connection.deliver(CONSUMER, Run(0, 1, 0, 2), BLOCK)
    client.turn()
    assert [delivery.tag for delivery, _ in received(receiver)] == ["0", "1", "2"]


@pytest.mark.parametrize("value", [7, "n" * 5000])
def test_a_relay_s_name_is_a_string(value: Any) -> None:
    client = opened()
    receiver = consumer(client, properties={symbol("x-relay"): value})
    assert receiver.remote_condition.name == "amqp:invalid-field"


@pytest.mark.parametrize("says", [True, False])
def test_a_relay_publishes_under_the_names_in_its_tags(says: bool) -> None:
    """Anyone else's tags mean nothing, whatever they look like."""
    client = opened()
    sender = client.session.sender("relay")
    sender.target.address = "/queues/q"
    if says:
        sender.properties = {symbol("x-relay"): True}
    sender.open()
    client.turn()
    names = [RelayedName(5, number, 6) for number in (6, 7)]
    for tag in (relayed_tag(1, names[0]), b"2", relayed_tag(3, names[1])):
        begin(handle_of(sender), tag)
        sender.stream(Message(body="m").encode())
        sender.advance()
    client.turn()
    (published,) = asked(client, asks.PublishMessages)
    assert published.table.count == 3
    assert published.names == ({0: names[0], 2: names[1]} if says else {})
