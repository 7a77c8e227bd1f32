"""An AMQP 1.0 message as received, stored and sent."""

from __future__ import annotations

import pytest
from proton import Message, symbol

from warren_broker.amqp091.wire import properties
from warren_broker.amqp10.message.received import MalformedSections, read_message
from warren_broker.amqp10.message.sent import encode_message
from warren_broker.block.layout import FORM_AMQP091
from warren_broker.kernel import CC, HEADERS, PERSISTENT, USER_ID


def test_what_routing_and_storing_need() -> None:
    made = Message(
        body=b"data",
        inferred=True,
        durable=True,
        priority=31,
        ttl=2.5,
        address="/queues/q",
        user_id=b"guest",
        annotations={symbol("x-cc"): ["a"]},
    )
    found = read_message(memoryview(made.encode()))
    assert (found.form, bytes(found.body)) == (FORM_AMQP091, b"data")
    assert (found.ttl_ms, found.priority, found.durable) == (2500, 31, True)
    assert found.flags == PERSISTENT | HEADERS | CC | USER_ID
    assert (found.to, found.user_id) == ("/queues/q", b"guest")


def test_what_is_not_set() -> None:
    found = read_message(memoryview(b"\x00\x53\x75\xa0\x01b\x00\x53\x75\xa0\x01c"))
    assert bytes(found.body) == b"bc"
    assert found[3:] == (None, None, 0, False, None, None)
    assert found.properties == properties.NONE


def test_a_malformed_message_is_refused() -> None:
    with pytest.raises(MalformedSections, match="^header section at byte 0: it has 6 fields"):
        read_message(memoryview(b"\x00\x53\x70\xc0\x07\x06\x40\x40\x40\x40\x40\x40"))


def test_a_message_as_sent() -> None:
    raw = properties.encode(properties.Properties(headers={"x-delivery-count": 1}, priority=7))
    head, body = encode_message(
        FORM_AMQP091,
        raw,
        b"data",
        exchange=b"ex",
        routing_key=b"key",
        ttl_ms=1500,
        first_acquirer=False,
        delivery_count=3,
        annotations={
            "x-delivery-count": 3,
            "x-opt-a": "text",
            "x-opt-b": True,
            "x-opt-c": b"\xff",
            "x-opt-d": False,
        },
    )
    assert body == b"data"
    found = Message()
    found.decode(bytes(head) + bytes(body))
    assert (found.ttl, found.priority, found.first_acquirer, found.delivery_count) == (1.5, 7, 0, 3)
    assert dict(found.annotations or {}) == {
        "x-exchange": "ex",
        "x-routing-key": "key",
        "x-delivery-count": 3,
        "x-opt-a": "text",
        "x-opt-b": True,
        "x-opt-c": b"\xff",
        "x-opt-d": False,
    }
