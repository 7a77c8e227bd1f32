"""A client that damages its frames gets a refusal in AMQP's own form: no exception of ours."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from proton import Link

from tests.broker.clients10.stream_fuzz import FRAMES, LOGIN, carry_out, play
from tests.broker.clients10.test_connection import new, send
from tests.broker.clients10.test_links import consumer, deliver, opened
from warren_wire.amqp10.fields import read_map
from warren_wire.errors import InvalidArgument

STREAMS = 600
FOUND = (
    82_257,  # a transfer without a tag on a link on which the client receives
)
"""Seeds of streams at which an exception was found."""


def test_damaged_streams_are_refused_or_harmless() -> None:
    ends = [play(seed) for seed in range(STREAMS)]
    assert sum(1 for why in ends if why and "the client closed" not in why) > STREAMS // 10
    assert sum(1 for why in ends if "the client closed" in why) > STREAMS // 40


@pytest.mark.parametrize("seed", FOUND)
def test_streams_that_once_ended_the_connection_with_an_exception(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("tag", [b"", b"\xa0\x01t"])
def test_a_transfer_on_a_link_on_which_the_client_receives_ends_the_connection(tag: bytes) -> None:
    """Proton takes it for a delivery of the broker; the next message would be written to it."""
    client = opened()
    consumer(client)
    fields = b"\x43\x43" + (tag or b"\x40") + b"\x43\x42\x42"
    body = b"\x02\x00\x00\x00\x00\x53\x14\xc0" + bytes([len(fields) + 1, 6]) + fields + b"x"
    client.connection.receive(struct.pack(">I", 4 + len(body)) + body)
    deliver(client, [b"not sent"])
    assert "on which the client receives" in client.connection.failure
    assert client.engine.connection.remote_condition.name == "amqp:not-allowed"


@pytest.mark.parametrize("properties", [7, "text", [1, 2]])
def test_link_properties_that_are_no_map_refuse_the_link(properties: Any) -> None:
    client = opened()
    receiver = consumer(client, properties=properties)
    assert receiver.remote_condition.name == "amqp:invalid-field"
    assert "link properties" in receiver.remote_condition.description


def nested(levels: int) -> bytes:
    """A list in a list in a list."""
    value = b"\x40"
    for _ in range(levels):
        value = b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value
    return value


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        (b"\x52\x07", "must be a map, not a value of type uint"),
        (nested(5_000), "cannot be read: maximum recursion depth exceeded"),
        (b"\xc1\x08\x02\x50\x01\x73\xff\xff\xff\xff", "cannot be read"),  # no such character
    ],
)
def test_properties_of_open_that_are_no_map_end_the_connection(
    properties: bytes, says: str
) -> None:
    connection = new()
    fields = b"\xa1\x01c" + b"\x40" * 8 + properties  # the container, and eight nulls
    body = b"\x02\x00\x00\x00\x00\x53\x10\xd0" + struct.pack(">II", len(fields) + 4, 10) + fields
    for frame in [*FRAMES[:LOGIN], struct.pack(">I", 4 + len(body)) + body]:
        connection.receive(frame)
        carry_out(connection)
    assert connection.failure.startswith("properties of open ")
    assert says in connection.failure


def test_a_text_that_is_not_utf_8_is_shown_in_the_refusal() -> None:
    client = opened()
    sender = client.session.sender("a")
    sender.open()
    client.turn()
    to = b"/queues/\xff"
    properties = b"\x00\x53\x73\xc0" + bytes([len(to) + 5, 3]) + b"\x40\x40\xa1"
    send(sender, properties + bytes([len(to)]) + to + b"\x00\x53\x75\xa0\x01x")
    client.turn()
    assert sender.state & Link.REMOTE_ACTIVE, "a message is refused, not the link"


def test_a_map_that_the_engine_cannot_build() -> None:
    def unhashable() -> Any:
        return {[]: 1}

    with pytest.raises(InvalidArgument, match="annotations cannot be read: .*unhashable"):
        read_map("annotations", unhashable)
    assert read_map("annotations", lambda: None) == {}
