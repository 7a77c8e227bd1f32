"""Filters asked about stored messages, with both kernels."""

from __future__ import annotations

import json
from typing import Any, Final
from uuid import UUID

import pytest
from proton import Message, symbol, ulong

from warren_machines.message_filter import evaluator
from warren_machines.message_filter.definition import (
    MessageFilter,
    Reference,
    decode_filter,
    encode_filter,
)
from warren_machines.message_filter.evaluator import Evaluator
from warren_wire.amqp091 import properties as codec
from warren_wire.amqp10.message.received import read_message
from warren_wire.block.block import Block, encode
from warren_wire.kernel import load
from warren_wire.sql_filter import FilterRefused
from wire.sql_filter.messages import FILTERS, MESSAGES, OBSERVED, message_of
from wire.sql_filter.test_observed import KNOWN

ANSWERS: Final = json.loads(OBSERVED.read_text(encoding="utf-8"))["answers"]


@pytest.fixture(params=["compiled", "interpreted"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        found = load(request.param)
    except ImportError:
        pytest.skip("no compiled kernel")
    monkeypatch.setattr(evaluator, "read_fields", found.section_fields.read_fields)


def stored(*messages: Message) -> Block:
    """A block of messages as a queue has them that were published over AMQP 1.0."""
    heads = [bytes(read_message(memoryview(one.encode())).properties) for one in messages]
    return Block.decode(encode([b"x"] * len(heads), heads, (b"", b"q"), 4))


def numbers(found: evaluator.Matches) -> list[int]:
    return [at for at in range(found.bits.bit_length()) if found.bits >> at & 1]


def test_sql_says_of_stored_messages_what_rabbitmq_says() -> None:
    block = stored(*[message_of(number, given) for number, given in enumerate(MESSAGES)])
    asked = 0
    for text in FILTERS:
        if text in KNOWN or not isinstance(ANSWERS[text], list) or "UTC" in text:
            continue
        asked += 1
        assert numbers(Evaluator(MessageFilter((text,))).asked(block)) == ANSWERS[text], text
    assert asked > 120


def referring(**given: Any) -> Evaluator:
    return Evaluator(MessageFilter(application=tuple(Reference(*one) for one in given["all"])))


def test_references_match_equal_values_of_any_type_and_affixes_of_texts_and_bytes() -> None:
    values = ["north", symbol("north"), b"north", 5, 5.0, ulong(5), True, None, "5"]
    block = stored(
        *[Message(body="", properties={"k": value}) for value in values], Message(body="")
    )
    for match, value, binary, expected in (
        ("equal", "north", False, [0, 1, 2]),
        ("equal", "north", True, [0, 1, 2]),
        ("equal", 5, False, [3, 4, 5]),
        ("equal", 5.0, False, [3, 4, 5]),
        ("equal", True, False, [6]),
        ("prefix", "no", False, [0, 1, 2]),
        ("suffix", "th", False, [0, 1, 2]),
        ("suffix", "north pole", False, []),
        ("any", None, False, list(range(9))),
    ):
        asked = referring(all=[("k", match, value, binary)]).asked(block)
        assert numbers(asked) == expected, (match, value)


def test_fields_of_the_properties_section_and_all_filters_together() -> None:
    number = UUID("12345678-1234-5678-1234-567812345678")
    block = stored(
        Message(id=number, subject="order.new", body="", properties={"n": 1}),
        Message(id="12345678", subject="order.old", body="", properties={"n": 1}),
        Message(body="", properties={"n": 1}),
    )
    by_id = Reference("message-id", "equal", number.bytes.decode("latin-1"), True)
    subject = Reference("subject", "prefix", "order")
    assert numbers(Evaluator(MessageFilter(properties=(by_id,))).asked(block)) == [0]
    assert numbers(Evaluator(MessageFilter(properties=(subject,))).asked(block)) == [0, 1]
    anything = Reference("subject", "any")
    assert Evaluator(MessageFilter(properties=(anything,))).asked(block).whole
    both = MessageFilter(("n = 1", "p.message_id = '12345678'"), (subject,))
    assert decode_filter(encode_filter(both)) == both
    assert numbers(Evaluator(both).asked(block)) == [1]


def test_messages_of_amqp_091_and_unreadable_ones() -> None:
    heads = [
        codec.encode(codec.Properties(headers={"n": 1, "x-n": 1}, priority=7, message_id="a")),
        b"\x01\x00\xff\xff",
        b"",
        codec.encode(codec.Properties(headers={"n": {"t": 1}, "m": [1]})),
    ]
    block = Block.decode(encode([b""] * 4, heads, (b"", b"q"), 4))
    for text, expected in (
        ("n = 1", [0]),
        ("h.priority = 7 AND p.message_id = 'a'", [0]),
        ("h.priority = 4", [1, 2, 3]),
        ("n IS NULL", [1, 2, 3]),
        ("[x-n] = 1", []),
    ):
        assert numbers(Evaluator(MessageFilter((text,))).asked(block)) == expected, text


def test_of_equal_keys_the_first_one_counts_and_texts_that_are_none_are_bytes() -> None:
    head = b"\x00\x53\x74\xd1\x00\x00\x00\x13\x00\x00\x00\x06"
    head += b"\xa1\x01k\xa1\x01\xff\xa1\x01k\x41\xa1\x01l\x54\xfe"
    found = evaluator.read_fields(head, -1, {}, {b"k": 0, b"l": 1}, [None, None])
    assert found == [b"\xff", -2]


def test_the_time_is_refused() -> None:
    with pytest.raises(FilterRefused, match="UTC"):
        Evaluator(MessageFilter(("p.creation_time > UTC()",)))


def test_a_message_with_very_long_properties_matches_no_filter() -> None:
    long = codec.encode(codec.Properties(headers={"n": 1, "t": "x" * evaluator.HEAD_BYTES_MAX}))
    short = codec.encode(codec.Properties(headers={"n": 1, "t": "x" * 32_000}))
    block = Block.decode(encode([b""] * 2, [long, short], (b"", b"q"), 4))
    assert numbers(Evaluator(MessageFilter(("n = 1",))).asked(block)) == [1]
