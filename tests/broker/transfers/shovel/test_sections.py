"""AMQP 1.0 messages as a shovel passes them on, and their conversion."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from proton import Message, byte, char, symbol, timestamp, uint

from warren_broker.transfers.shovel.received import Received091, Received10
from warren_broker.transfers.shovel.sections import Changes, annotation, message_id, passed_on
from warren_wire.kernel.section_types import MalformedSections
from warren_wire.sessions.pika_properties import MessageProperties

NUMBER = uuid.uuid4()


def encoded(**more: Any) -> bytes:
    """A message with a value of many types in each section."""
    made = Message(
        body=b"body", id=NUMBER, durable=True, priority=3, ttl=5, subject="s", inferred=True, **more
    )
    made.delivery_count = 4
    made.instructions = {symbol("x-of-the-link"): 1}
    made.annotations = {symbol("x-a"): symbol("q"), symbol("x-exchange"): "x"}
    made.properties = {"u": uint(3), "b": byte(2), "i": NUMBER, "c": char("z"), "t": timestamp(5)}
    return bytes(made.encode())


def decoded(data: bytes) -> Message:
    """The same way back."""
    made = Message()
    made.decode(data)
    return made


def test_a_message_passes_without_what_was_of_its_delivery() -> None:
    before = encoded()
    after = b"".join(passed_on(before, Changes()))
    assert after.endswith(before[before.index(b"\x00Sr") :]), "the rest is bit for bit"
    found = decoded(after)
    assert (found.durable, found.priority, found.ttl) == (True, 3, 5)
    assert (found.delivery_count, found.instructions) == (0, None)
    assert b"".join(passed_on(after, Changes())) == after


def test_what_is_added_replaces_and_the_types_of_the_rest_stay() -> None:
    changes = Changes(
        {"x-a": "new", "x-opt-t": 1 << 40},
        {"b": "new", "more": "m"},
        {"subject": "new", "user_id": "u", "content_type": "text/plain"},
    )
    found = decoded(b"".join(passed_on(encoded(), changes)))
    assert found.annotations == {"x-a": "new", "x-exchange": "x", "x-opt-t": 1 << 40}
    expected = {"u": 3, "b": "new", "i": NUMBER, "c": "z", "t": 5, "more": "m"}
    assert found.properties == expected
    assert isinstance(found.properties["u"], uint) and isinstance(found.properties["i"], uuid.UUID)
    assert (found.subject, bytes(found.user_id), found.content_type) == ("new", b"u", "text/plain")
    assert (found.id, bytes(found.body)) == (NUMBER, b"body")


def test_a_message_without_sections_gets_those_that_are_added() -> None:
    bare = b"\x00\x53\x75\xa0\x01x"
    assert b"".join(passed_on(bare, Changes())) == bare
    found = decoded(b"".join(passed_on(bare, Changes({"x-a": 1}, {"p": "q"}, {"to": "t"}))))
    assert (found.annotations, found.properties, found.address) == ({"x-a": 1}, {"p": "q"}, "t")
    assert (annotation(bare, "x-exchange"), message_id(bare)) == (None, "")
    assert (annotation(encoded(), "x-exchange"), message_id(encoded())) == ("x", str(NUMBER))


def test_any_form_of_a_descriptor_is_understood() -> None:
    symbolic = b"\x00\xa3\x1camqp:message-annotations:map"
    number = b"\x00\x80" + (0x72).to_bytes(8, "big")
    for descriptor in (symbolic, number):
        with_map = descriptor + b"\xc1\x01\x00" + b"\x00\x53\x75\xa0\x01x"
        found = decoded(b"".join(passed_on(with_map, Changes({"x-a": "b"}))))
        assert found.annotations == {"x-a": "b"}


def test_a_malformed_message_is_no_other_error_wherever_it_is_cut_or_changed() -> None:
    whole = encoded()
    body = whole.index(b"\x00Su")
    for end in range(body + 2):
        with pytest.raises(MalformedSections):
            passed_on(whole[:end], Changes({"x-a": "b"}))
    for at in range(body):
        for value in (0x00, 0x40, 0x53, 0x75, 0xC1, 0xD1, 0xFF):
            changed = whole[:at] + bytes((value,)) + whole[at + 1 :]
            try:
                passed_on(changed, Changes({"x-a": "b"}, {"p": "q"}, {"to": "t"}))
                message_id(changed)
                Received10(1, changed).as_091()
            except MalformedSections:
                continue


def test_a_message_is_converted_as_a_node_converts_it() -> None:
    properties = MessageProperties(
        message_id="m", headers={"k": 1}, delivery_mode=2, expiration="5000", type="t", priority=3
    )
    there = Received091(1, "x", "key", False, properties, b"body").as_10()
    found = decoded(there.data)
    assert (found.id, found.properties, found.durable, found.ttl) == ("m", {"k": 1}, True, 5)
    assert found.annotations == {"x-basic-type": "t", "x-exchange": "x", "x-routing-key": "key"}
    back = there.as_091()
    assert (back.exchange, back.routing_key, back.body) == ("x", "key", b"body")
    assert back.properties == properties and back.tag == 1
    silent = Received10(1, b"\x00\x53\x75\xa0\x01x").as_091()
    assert (silent.exchange, silent.routing_key) == (None, None)
