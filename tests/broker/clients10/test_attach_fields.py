"""Fields of an attach or open that cannot be decoded: arrays that miss what they announce.

The engine decodes them late, and ended the process when it wrote such an array into its answer.
"""

from __future__ import annotations

import struct

import pytest
from proton import Delivery, Link, Terminus, symbol

from tests.broker.clients10.stream_fuzz import FRAMES, LOGIN, carry_out
from tests.broker.clients10.test_connection import new
from tests.broker.clients10.test_links import (
    CONSUMER,
    asked,
    consumer,
    deliver,
    opened,
    received,
)
from warren_broker.clients10.connection import Connection10
from warren_machines.queue import commands

NULL = b"\x40"
SYMBOL = 0xA3


def listed(*fields: bytes) -> bytes:
    """A list."""
    content = b"".join(fields)
    return b"\xd0" + struct.pack(">II", len(content) + 4, len(fields)) + content


def mapped(value: bytes) -> bytes:
    """A map of one symbol to this value."""
    content = b"\xa3\x01k" + value
    return b"\xd1" + struct.pack(">II", len(content) + 4, 2) + content


def array(count: int, kind: int, content: bytes = b"") -> bytes:
    """An array that says it has so many elements."""
    return struct.pack(">BIIB", 0xF0, 5 + len(content), count, kind) + content


def frame(performative: int, *fields: bytes) -> bytes:
    """A frame on channel 0."""
    body = b"\x02\x00\x00\x00\x00\x53" + bytes((performative,)) + listed(*fields)
    return struct.pack(">I", 4 + len(body)) + body


def terminus(code: int, at: int = 0, value: bytes = NULL) -> bytes:
    """A source (0x28) or target (0x29) of the queue q, with that value as the field number `at`."""
    fields = [NULL] * (11 if code == 0x28 else 7)
    fields[at] = value
    fields[0] = b"\xa1\x09/queues/q"
    return b"\x00\x53" + bytes((code,)) + listed(*fields)


def attach(receiver: bool, source: bytes = b"", target: bytes = b"", told: bytes = NULL) -> bytes:
    """An attach; receiver: the client receives."""
    role, first = (b"\x41", NULL) if receiver else (b"\x42", b"\x43")
    ends = (source or terminus(0x28), target or terminus(0x29))
    fields = (b"\xa1\x01n", b"\x43", role, NULL, NULL, *ends, NULL, b"\x42", first)
    return frame(0x12, *fields, NULL, NULL, NULL, told)


def connected(properties: bytes = NULL) -> Connection10:
    """A connection with a session; properties: of its open."""
    connection = new()
    opening = frame(0x10, b"\xa1\x01c", *[NULL] * 8, properties)
    session = frame(0x11, NULL, b"\x43", b"\x70\x00\x00\x08\x00", b"\x70\x00\x00\x08\x00")
    for data in [*FRAMES[:LOGIN], opening, session]:
        connection.receive(data)
        carry_out(connection)
    return connection


BROKEN = {
    "no element": array(1, SYMBOL),
    "one of three": array(3, SYMBOL, b"\x01a"),
    "a part of the second": array(2, SYMBOL, b"\x01a\xff"),
    "without bytes": array(2**32 - 1, 0x40),
    "no constructor": b"\xf0\x00\x00\x00\x04\x00\x00\x00\x01",
    "no count": b"\xe0\x00",
    "described": array(1, 0, b"\xa3\x01a"),
}
FIELDS = {
    "dynamic-node-properties of the source": (0x28, 5),
    "filter of the source": (0x28, 7),
    "outcomes of the source": (0x28, 9),
    "capabilities of the source": (0x28, 10),
    "dynamic-node-properties of the target": (0x29, 5),
    "capabilities of the target": (0x29, 6),
}


def refused(data: bytes) -> tuple[str, str]:
    """Return condition and text of the refusal of an attach, which the client is told."""
    connection = connected()
    connection.receive(data)
    carry_out(connection, reads=False)
    (fault,) = connection.take_faults()
    sent = b"".join(bytes(piece) for piece in connection.take_output())
    assert fault.refusal.condition.encode() in sent
    assert not connection.failure, "the link is refused, the connection stays"
    return fault.refusal.condition, fault.refusal.detail


@pytest.mark.parametrize("receiver", [True, False], ids=["consumer", "publisher"])
@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("name", FIELDS)
def test_a_broken_array_in_a_terminus_refuses_the_link(
    name: str, broken: str, receiver: bool
) -> None:
    code, at = FIELDS[name]
    value = BROKEN[broken] if "capabilities" in name or at == 9 else mapped(BROKEN[broken])
    made = terminus(code, at, value)
    data = attach(receiver, made) if code == 0x28 else attach(receiver, target=made)
    condition, text = refused(data)
    assert condition == "amqp:decode-error"
    assert text.startswith(f"{name}: the encoded value cannot be read: ")


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_array_in_link_properties_refuses_the_link(broken: str) -> None:
    condition, text = refused(attach(True, told=mapped(BROKEN[broken])))
    assert (condition, text[:17]) == ("amqp:decode-error", "link properties: ")


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_array_in_properties_of_open_ends_the_connection(broken: str) -> None:
    connection = connected(mapped(BROKEN[broken]))
    assert connection.failure.startswith("properties of open: the encoded value cannot be read: ")


@pytest.mark.parametrize("receiver", [True, False], ids=["consumer", "publisher"])
def test_an_array_without_elements_is_whole(receiver: bool) -> None:
    connection = connected()
    empty = array(0, SYMBOL)
    connection.receive(attach(receiver, terminus(0x28, 10, empty), terminus(0x29, 6, empty)))
    carry_out(connection)
    assert not connection.take_faults() and not connection.failure


def test_the_answer_to_an_attach_says_how_messages_are_handed_out() -> None:
    """Whatever the client's source says: as RabbitMQ answers it."""
    client = opened()
    receiver = client.session.receiver("r")
    receiver.source.address = "/queues/q"
    receiver.source.distribution_mode = Terminus.DIST_MODE_COPY
    receiver.source.outcomes.put_object(symbol("amqp:accepted:list"))
    receiver.open()
    client.turn()
    answered = receiver.remote_source
    assert answered.distribution_mode == Terminus.DIST_MODE_MOVE
    answered.outcomes.rewind()
    answered.outcomes.next()
    kinds = ("accepted", "rejected", "released", "modified")
    told = answered.outcomes.get_object().elements
    assert list(told) == [f"amqp:{kind}:list" for kind in kinds]


def test_an_outcome_of_a_consumer_that_settles_second_is_settled_by_the_broker() -> None:
    """RabbitMQ refuses such a link."""
    client = opened()
    receiver = consumer(client, rcv_settle_mode=Link.RCV_SECOND)
    assert receiver.remote_rcv_settle_mode == Link.RCV_SECOND
    deliver(client, [b"a"])
    ((delivery, _),) = received(receiver)
    delivery.update(Delivery.ACCEPTED)
    client.turn()
    assert asked(client, commands.Settle) == [commands.Settle(CONSUMER, ((0, 0),))]
    assert delivery.settled and delivery.remote_state == Delivery.ACCEPTED
